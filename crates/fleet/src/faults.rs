//! Faults of the network and of devices, which follow from the seed of the fleet.

use serde::{Deserialize, Serialize};

use crate::error::{FleetError, Result};
use crate::seeds::Seed;

/// The probabilities of faults. All of them follow from the seed of the fleet and the numbers of device, session and request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// The probability, per request, that it is lost before the service gets it.
    pub lost_before: f64,
    /// The probability, per request, that the service handles it and the reply is lost.
    pub lost_after: f64,
    /// The probability, per request, that it arrives twice. The device sees the second reply.
    pub duplicate: f64,
    /// The probability, per request, that it arrives late.
    pub delay: f64,
    /// The max lateness, in milliseconds. Each late request draws its own uniformly.
    pub max_delay_ms: u64,
    /// The points at which devices vanish.
    pub vanish: Vec<Vanish>,
}

/// A point of the session at which devices vanish without a word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vanish {
    /// The point.
    pub at: Point,
    /// The probability, per session.
    pub probability: f64,
    /// The time after which the device comes back with a new session, in milliseconds; without it, the device stays away for good.
    #[serde(default)]
    pub returns_after_ms: Option<u64>,
}

/// A named point of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The update is ready and nothing was sent.
    BeforeJoin,
    /// The service knows that the update is ready.
    AfterJoin,
    /// The device has the roster of a secure sum, and has sent no shares. A plain session has no such point.
    BeforeShares,
    /// Half of a chunk was sent.
    MidUpload,
    /// The service has accepted the whole update.
    AfterCommit,
    /// The service waits for the shares that unmask a secure sum. A plain session has no such point.
    BeforeUnmask,
}

impl Point {
    /// The name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeJoin => "before_join",
            Self::AfterJoin => "after_join",
            Self::BeforeShares => "before_shares",
            Self::MidUpload => "mid_upload",
            Self::AfterCommit => "after_commit",
            Self::BeforeUnmask => "before_unmask",
        }
    }
}

/// The fate of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered,
    LostBefore,
    LostAfter,
    Duplicated,
    Delayed { ms: u64 },
}

impl Fate {
    /// The name in statistics; `None` for a request without a fault.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Delivered => None,
            Self::LostBefore => Some("lost_before"),
            Self::LostAfter => Some("lost_after"),
            Self::Duplicated => Some("duplicate"),
            Self::Delayed { .. } => Some("delay"),
        }
    }
}

impl Faults {
    /// Checks that all probabilities are in range, and those of one draw together.
    ///
    /// # Errors
    /// [`FleetError::Value`] naming the first setting.
    pub fn validate(&self) -> Result<()> {
        let chances = [
            ("faults.lost_before", self.lost_before),
            ("faults.lost_after", self.lost_after),
            ("faults.duplicate", self.duplicate),
            ("faults.delay", self.delay),
        ];
        let mut sum = 0.0;
        for (key, chance) in chances {
            probability(key, chance)?;
            sum += chance;
        }
        probability("the sum of all faults of a request", sum)?;
        let mut sum = 0.0;
        for vanish in &self.vanish {
            probability("faults.vanish.probability", vanish.probability)?;
            sum += vanish.probability;
        }
        probability("the sum of faults.vanish", sum)
    }

    /// The fate of a request.
    pub(crate) fn fate(&self, seed: Seed, device: u64, session: u64, request: u64) -> Fate {
        let numbers = [device, session, request];
        let mut left = seed.unit("fate", &numbers);
        let late = 1 + seed.below("delay", &numbers, self.max_delay_ms);
        for (chance, fate) in [
            (self.lost_before, Fate::LostBefore),
            (self.lost_after, Fate::LostAfter),
            (self.duplicate, Fate::Duplicated),
            (self.delay, Fate::Delayed { ms: late }),
        ] {
            if left < chance {
                return fate;
            }
            left -= chance;
        }
        Fate::Delivered
    }

    /// The point at which a session's device vanishes.
    pub(crate) fn vanishing(&self, seed: Seed, device: u64, session: u64) -> Option<&Vanish> {
        let mut left = seed.unit("vanish", &[device, session]);
        self.vanish.iter().find(|vanish| {
            let drawn = left < vanish.probability;
            left -= vanish.probability;
            drawn
        })
    }
}

fn probability(key: &'static str, got: f64) -> Result<()> {
    // Room for the rounding of a sum.
    match (0.0..=1.0 + 1e-9).contains(&got) {
        true => Ok(()),
        false => Err(FleetError::value(key, "from 0 to 1", got)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults() -> Faults {
        Faults {
            lost_before: 0.1,
            lost_after: 0.2,
            duplicate: 0.3,
            delay: 0.1,
            max_delay_ms: 50,
            vanish: vec![
                Vanish {
                    at: Point::MidUpload,
                    probability: 0.25,
                    returns_after_ms: None,
                },
                Vanish {
                    at: Point::AfterCommit,
                    probability: 0.25,
                    returns_after_ms: Some(5),
                },
            ],
        }
    }

    #[test]
    fn fates_have_their_probabilities_and_follow_from_the_seed() {
        let faults = faults();
        let fates = |seed| -> Vec<Fate> {
            (0..4000)
                .map(|request| faults.fate(Seed(seed), 3, 4, request))
                .collect()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        let share =
            |name: Option<&str>| fates(1).iter().filter(|fate| fate.name() == name).count() as f64 / 4000.0;
        for (name, expected) in [
            (Some("lost_before"), 0.1),
            (Some("lost_after"), 0.2),
            (Some("duplicate"), 0.3),
            (Some("delay"), 0.1),
            (None, 0.3),
        ] {
            assert!((share(name) - expected).abs() < 0.04, "{name:?}: {}", share(name));
        }
        let late = |fate: &Fate| matches!(fate, Fate::Delayed { ms } if !(1..=50).contains(ms));
        assert!(!fates(1).iter().any(late));
    }

    #[test]
    fn the_points_of_vanishing_have_their_probabilities() {
        let faults = faults();
        let points: Vec<Option<Point>> = (0..4000)
            .map(|session| faults.vanishing(Seed(1), 9, session).map(|vanish| vanish.at))
            .collect();
        for (point, expected) in [
            (Some(Point::MidUpload), 0.25),
            (Some(Point::AfterCommit), 0.25),
            (None, 0.5),
        ] {
            let share = points.iter().filter(|got| **got == point).count() as f64 / 4000.0;
            assert!((share - expected).abs() < 0.04, "{point:?}: {share}");
        }
        assert_eq!(Faults::default().vanishing(Seed(1), 0, 0), None);
    }

    #[test]
    fn a_file_of_faults_is_read_and_wrong_probabilities_are_refused() {
        let text = "lost_after = 0.1\n[[vanish]]\nat = \"before_unmask\"\nprobability = 0.05\n";
        let read: Faults = toml::from_str(text).unwrap();
        read.validate().unwrap();
        assert_eq!(read.vanish[0].at.name(), "before_unmask");
        assert!(toml::from_str::<Faults>("lost = 0.1").is_err());
        for bad in [
            "lost_after = 1.1",
            "lost_after = -0.1",
            "delay = nan",
            "delay = 0.6\nduplicate = 0.6",
        ] {
            let read: Faults = toml::from_str(bad).unwrap();
            assert!(read.validate().is_err(), "{bad}");
        }
    }
}

//! The settings of a fleet.

use std::str::FromStr;
use std::sync::Arc;

use undertone_device::{Setup, UserSeeds};
use undertone_protocol::Digest32;

use crate::availability::{Always, Availability};
use crate::clock::{FleetClock, MachineClock};
use crate::error::{FleetError, Result};
use crate::faults::Faults;
use crate::malice::{Malice, Malicious};
use crate::seeds::Seed;

/// The update that a device sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Updates {
    /// The device trains on its examples.
    #[default]
    Train,
    /// A vector at the clip norm whose direction follows from the seed, the subject and the round. Nothing is trained.
    Synthetic,
    /// The clip norm at the coordinate of the subject's number, modulo the length, and 0 elsewhere. Two updates of a subject show as 2.
    OneHot,
}

impl Updates {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Train, Self::Synthetic, Self::OneHot];

    /// The name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Synthetic => "synthetic",
            Self::OneHot => "one-hot",
        }
    }
}

impl FromStr for Updates {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|updates| updates.name() == text);
        let expected = "train, synthetic or one-hot";
        found.ok_or_else(|| FleetError::value("updates", expected, text.escape_debug()))
    }
}

/// The seeds of a simulated user, by round and user.
pub type SeedsOf = Arc<dyn Fn(u64, u64) -> UserSeeds + Send + Sync>;

/// The text of an invitation, by the number of the subject and its name.
pub type InvitationOf = Arc<dyn Fn(usize, &Digest32) -> String + Send + Sync>;

/// The evidence that a device shows when it enrols.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds a function of the caller")]
pub enum Enrolment {
    /// The device names its subject itself, as the identity level `dev` allows.
    SelfAsserted,
    /// The device shows an invitation of its subject.
    Invitations(InvitationOf),
}

/// The names of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubjectNames {
    /// Names that follow from the seed of the fleet.
    #[default]
    Seeded,
    /// The number of the subject in the first eight bytes, little-endian, and zeros.
    Number,
}

/// The settings of a fleet.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds functions of the caller")]
pub struct FleetConfig {
    /// The settings that all devices share, the keys that they trust among them.
    pub setup: Arc<Setup>,
    /// Number of devices.
    pub devices: usize,
    /// Number of subjects. Device `i` belongs to subject `i` modulo this number, whose examples are those of the user of the same number.
    pub subjects: usize,
    /// Number of threads that step and train devices.
    pub workers: usize,
    /// Max number of trainings at one time. Fewer than threads let devices talk to the service while others train.
    pub trainings: usize,
    /// The seed of all keys, draws and faults. PRIVACY: everything about these devices follows from it, so they must be simulated.
    pub seed: u64,
    /// The updates.
    pub updates: Updates,
    /// The evidence at enrolment.
    pub enrolment: Enrolment,
    /// The names of subjects.
    pub subject_names: SubjectNames,
    /// Faults of the network and of devices.
    pub faults: Faults,
    /// The devices that break the protocol. Each device is of one kind, drawn by the seed.
    pub malicious: Vec<Malicious>,
    /// The times at which devices may work.
    pub availability: Arc<dyn Availability>,
    /// The clock.
    pub clock: Arc<dyn FleetClock>,
    /// The max time between two sessions of a device, in milliseconds. A smaller number lets devices come back before the time that the service named.
    pub max_pause_ms: u64,
    /// The first session of a device starts within this time, in milliseconds.
    pub start_spread_ms: u64,
    /// Withhold one in so many examples from training, for evaluations; 0 withholds none.
    pub withhold_one_in: u64,
    /// `true` if devices share what they have loaded and read, so that a model is loaded and checked about once per round.
    pub share_blobs: bool,
    /// Seeds that replace those of sessions, for a comparison with a seeded simulation.
    pub seeds_of: Option<SeedsOf>,
}

impl FleetConfig {
    /// A fleet of this number of devices, each of a subject of its own, that train and follow the protocol on one thread.
    #[must_use]
    pub fn new(setup: Arc<Setup>, devices: usize) -> Self {
        Self {
            setup,
            devices,
            subjects: devices,
            workers: 1,
            trainings: usize::MAX,
            seed: 0,
            updates: Updates::Train,
            enrolment: Enrolment::SelfAsserted,
            subject_names: SubjectNames::Seeded,
            faults: Faults::default(),
            malicious: Vec::new(),
            availability: Arc::new(Always),
            clock: Arc::new(MachineClock),
            max_pause_ms: u64::MAX,
            start_spread_ms: 0,
            withhold_one_in: 0,
            share_blobs: true,
            seeds_of: None,
        }
    }

    /// Checks the settings against the number of users that have examples.
    pub(crate) fn validate(&self, users: usize) -> Result<()> {
        for (key, number) in [
            ("devices", self.devices),
            ("subjects", self.subjects),
            ("workers", self.workers),
            ("trainings", self.trainings),
        ] {
            if number == 0 {
                return Err(FleetError::value(key, "at least 1", number));
            }
        }
        if self.subjects > users {
            let expected = format!("at most {users}, the number of users with examples");
            return Err(FleetError::value("subjects", expected, self.subjects));
        }
        let total: f64 = self.malicious.iter().map(|malicious| malicious.fraction).sum();
        let all_in_range = self
            .malicious
            .iter()
            .all(|malicious| (0.0..=1.0).contains(&malicious.fraction));
        if !all_in_range || total > 1.0 + 1e-9 {
            let expected = "fractions from 0 to 1 that add up to at most 1";
            return Err(FleetError::value("malicious", expected, total));
        }
        self.faults.validate()
    }

    /// The kind of malice of a device.
    pub(crate) fn malice(&self, device: usize) -> Option<Malice> {
        let mut left = Seed(self.seed).unit("malice", &[device as u64]);
        let found = self.malicious.iter().find(|malicious| {
            let drawn = left < malicious.fraction;
            left -= malicious.fraction;
            drawn
        });
        found.map(|malicious| malicious.kind)
    }

    /// The number of the subject of a device.
    pub(crate) fn subject(&self, device: usize) -> usize {
        let own = device % self.subjects;
        match self.malice(device) {
            Some(Malice::SharedSubject) => (own + self.subjects - 1) % self.subjects,
            _ => own,
        }
    }

    /// The name of a subject.
    pub(crate) fn subject_name(&self, subject: usize) -> Digest32 {
        match self.subject_names {
            SubjectNames::Seeded => Seed(self.seed).bytes("subject", &[subject as u64]),
            SubjectNames::Number => {
                let mut name = Digest32::default();
                name[..8].copy_from_slice(&(subject as u64).to_le_bytes());
                name
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_read_by_their_names() {
        for updates in Updates::ALL {
            assert_eq!(updates.name().parse::<Updates>().unwrap(), updates);
        }
        assert!("training".parse::<Updates>().is_err());
    }
}

//! `audit.json`: the figures of an audit with the sentences that belong to them.
//!
//! Verdict and sentences follow from the figures by [`Audit::finish`], and the bounds follow from counts. The
//! writer and the verifier of the file call the same functions.
//!
//! An audit has up to four sections: a replay, tests of noise, bounds from canaries, and exposures. Each section speaks of one level, which is
//! what was tested. A later audit replaces the section of the same kind and level. One of another level goes to [`Audit::others`]. An alarm never leaves the file: that of a replaced section stays in [`Audit::alarms`].

mod bound;
mod kept;
mod sentences;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::{hex, number};

use super::exposure::Exposed;
use super::noise::NoiseTests;
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::replays::Replay;

pub use bound::{ANY, Bound, FDP, FINAL, ITERATES, LANE, MECHANISM, TEXT};
pub use kept::{Alarm, Kind};

/// The version of the file.
pub const SCHEMA: &str = "undertone.audit/1";

/// An audit as `audit.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run that was tested, and which part of it.
    pub run: Tested,
    /// Number of audits that were recorded in this file, this one included.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub audits: u64,
    /// The plan of the canaries, which is fixed before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<CanaryPlan>,
    /// SHA-256 of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<String>,
    /// The claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<GuaranteeRecord>,
    /// The replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The bounds from canaries; one of them is the headline, and one may confirm it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<Bound>,
    /// The tests of the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTests>,
    /// The exposure of secrets of invented users in a copy of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposure: Option<Exposed>,
    /// The error that was planted, in a positive control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// Earlier audits of one section each, whose kind stands above at another level. They have no others and no alarms of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Audit>,
    /// Alarms of sections that later ones replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<Alarm>,
    /// One of [`Verdict`]'s sentences.
    pub verdict: String,
    /// Sentences for readers.
    pub statements: Vec<String>,
}

fn one() -> u64 {
    1
}

fn is_one(audits: &u64) -> bool {
    *audits == 1
}

/// The tested run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tested {
    /// The name of the run.
    pub name: String,
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// The last digest of the ledger, where the audit was of a run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_head: Option<String>,
}

/// The plan of an audit with canaries, which is fixed before the first round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryPlan {
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// Number of canaries.
    pub canaries: u64,
    /// Number of coordinates without contributions.
    pub probes: usize,
    /// Number of coordinates in which each canary has a random direction; `None` where each has a coordinate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<u64>,
    /// The seed that the coins follow from, where the auditor chose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Significance of the bounds.
    pub significance: f64,
    /// The estimator of the headline.
    pub headline: String,
    /// Number of guesses of the headline.
    pub guesses: u64,
    /// Number of guesses of the bound that assumes a Gaussian trade-off.
    pub guesses_fdp: u64,
}

impl CanaryPlan {
    /// SHA-256 of the plan as JSON.
    ///
    /// # Errors
    /// Numbers that JSON cannot hold.
    pub fn sha256(&self) -> Result<String> {
        let text = serde_json::to_vec(self)
            .map_err(|error| DirectoryError::value("audit plan", "values that JSON can hold", error))?;
        Ok(hex(&Sha256::digest(text)))
    }
}

/// An error that is planted on purpose, so that the instrument can be seen to work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// This factor of the stated noise is added.
    Noise(f64),
    /// The attacker is told the coins of Poisson cohorts, which the claim takes to be secret.
    PoissonCoins,
    /// The copy of the run with invented users is trained without clipping and noise.
    WithoutPrivacy,
}

impl Control {
    fn sentence(self) -> String {
        let planted = match self {
            Self::Noise(factor) => format!("{} of the stated noise was added", number(factor)),
            Self::PoissonCoins => {
                "the attacker was told the rounds of each canary, which the claim takes to be secret"
                    .to_owned()
            }
            Self::WithoutPrivacy => "the copy was trained without clipping and noise".to_owned(),
        };
        format!("This is a positive control: {planted}, so that the instrument can be seen to work.")
    }
}

/// The result of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No test contradicts the claim. It confirms nothing.
    Nothing,
    /// A headline bound at 95 % exceeds the claim, and its confirmation at 99.9 % does not.
    OneInTwenty,
    /// A replayed sensitivity or the noise is not as stated, a confirmed bound exceeds the claim, or an exposure exceeds its limit.
    Contradicted,
}

impl Verdict {
    /// The sentence of `audit.json`.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Nothing => "nothing contradicts the claim",
            Self::OneInTwenty => {
                "a bound exceeds the claim once and was not confirmed: at most one audit in twenty does that under a true claim"
            }
            Self::Contradicted => "the claim is contradicted",
        }
    }

    /// `true` where the exit status must be 3.
    #[must_use]
    pub fn is_alarm(self) -> bool {
        self != Self::Nothing
    }
}

impl Audit {
    /// An audit without figures, of a run with this name and configuration.
    #[must_use]
    pub fn new(name: &str, config_sha256: &str) -> Self {
        Self::of_run(Tested {
            name: name.to_owned(),
            config_sha256: config_sha256.to_owned(),
            ledger_head: None,
        })
    }

    fn of_run(run: Tested) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            run,
            audits: 1,
            plan: None,
            plan_sha256: None,
            claim: None,
            replay: None,
            canaries: Vec::new(),
            noise: None,
            exposure: None,
            control: None,
            others: Vec::new(),
            alarms: Vec::new(),
            verdict: String::new(),
            statements: Vec::new(),
        }
    }

    /// The audit with the seed that its coins and its noise followed from, which the auditor chose.
    ///
    /// # Errors
    /// Numbers that JSON cannot hold.
    pub fn seeded(mut self, seed: u64) -> Result<Self> {
        if let Some(noise) = &mut self.noise {
            noise.seed = Some(seed);
        }
        if let Some(plan) = &mut self.plan {
            plan.seed = Some(seed);
            self.plan_sha256 = Some(plan.sha256()?);
        }
        Ok(self.finish())
    }

    /// The verdict that follows from the figures, those of [`others`](Self::others) and the alarms of replaced sections.
    #[must_use]
    pub fn judged(&self) -> Verdict {
        let others = self.others.iter().map(Self::judged);
        let alarms = self.alarms.iter().map(|alarm| alarm.verdict);
        others.chain(alarms).fold(self.judged_alone(), Verdict::max)
    }

    /// The verdict of the sections of this audit alone.
    fn judged_alone(&self) -> Verdict {
        let contradicted = self.replay.as_ref().is_some_and(Replay::contradicts)
            || self.noise.as_ref().is_some_and(NoiseTests::contradicts)
            || self.exposure.as_ref().is_some_and(Exposed::contradicts);
        let claim = self.claim.as_ref().map_or(f64::INFINITY, |claim| claim.epsilon);
        let headlines = || self.canaries.iter().filter(|bound| bound.headline);
        // A bound or claim that is no number counts as an alarm.
        let exceeds =
            |bound: &&Bound| bound.epsilon_lower > claim || bound.epsilon_lower.is_nan() || claim.is_nan();
        let exceeding = headlines().filter(exceeds).count();
        match (contradicted, exceeding, headlines().count()) {
            (true, _, _) => Verdict::Contradicted,
            (false, 0, _) => Verdict::Nothing,
            (false, 1, 2) => Verdict::OneInTwenty,
            _ => Verdict::Contradicted,
        }
    }

    /// Sets the verdict and the sentences, which follow from the figures.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.verdict = self.judged().sentence().to_owned();
        self.statements = self.sentences();
        self
    }
}

/// The audit of an attack by exposure.
#[must_use]
pub fn of_exposure(name: &str, config_sha256: &str, exposure: Exposed) -> Audit {
    Audit {
        exposure: Some(exposure),
        ..Audit::new(name, config_sha256)
    }
    .finish()
}

/// The audit of a replay.
#[must_use]
pub fn of_replay(name: &str, config_sha256: &str, replay: Replay) -> Audit {
    Audit {
        replay: Some(replay),
        ..Audit::new(name, config_sha256)
    }
    .finish()
}

#[cfg(test)]
pub(super) mod tests;

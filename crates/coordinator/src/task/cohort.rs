//! `[cohort]`: the sampling of a round, and its size.

use serde::{Deserialize, Serialize};

use super::validate::{at_least_one, positive};
use super::{Algorithm, TaskConfig};
use crate::error::{CoordinatorError, Result};
use crate::participation::timers::TimersConfig;
use crate::sampling::Sampling;

/// `[cohort]`: the sampling of a round.
///
/// One of the four sizes is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CohortConfig {
    /// The sampling scheme of the users of a round, or of its examples with ELS; `poisson` by default.
    #[serde(default)]
    pub sampling: Sampling,
    /// Expected (Poisson), exact (fixed-size) or min (epochs; devices: the report goal) number of users per round;
    /// `q = users_per_round / users`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_per_round: Option<f64>,
    /// Poisson probability `q` of a user, or `p` of an example with ELS, instead of `users_per_round`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_probability: Option<f64>,
    /// ELS: expected examples per round, `B`; `p = examples_per_round / kept examples`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples_per_round: Option<f64>,
    /// ULS and ELS: gradients per round, `B`. ELS samples `B` examples, ULS `compute_budget / group_size` users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_budget: Option<u64>,
    /// `[cohort.timers]`: the simulated devices of `device_timers`; each user of the corpus has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<TimersConfig>,
}

/// The size of a round's sample, in users or, with ELS, in examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CohortSize {
    /// An exact or an expected number.
    Count {
        /// The number.
        count: f64,
        /// The key that gives the number, for messages.
        key: &'static str,
    },
    /// The probability of each.
    Probability(f64),
}

impl TaskConfig {
    /// The size of a round's sample, in users or, with ELS, in examples.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] where none or several of the keys are given, or one that is not for this algorithm.
    pub fn cohort_size(&self) -> Result<CohortSize> {
        let (cohort, algorithm) = (&self.cohort, self.user_update.algorithm);
        let given = [
            ("users_per_round", cohort.users_per_round),
            ("sampling_probability", cohort.sampling_probability),
            ("examples_per_round", cohort.examples_per_round),
            (
                "compute_budget",
                cohort.compute_budget.map(|budget| budget as f64),
            ),
        ];
        let allowed: &[&str] = match algorithm {
            Algorithm::FedAvg | Algorithm::FedSgd => &["users_per_round", "sampling_probability"],
            Algorithm::Uls => &["users_per_round", "sampling_probability", "compute_budget"],
            Algorithm::Els => &["examples_per_round", "sampling_probability", "compute_budget"],
        };
        let expected = || {
            let names: Vec<String> = allowed.iter().map(|name| format!("`{name}`")).collect();
            let (last, others) = names
                .split_last()
                .map_or(("", &[][..]), |(last, others)| (&last[..], others));
            format!("{} or {last} with {}", others.join(", "), algorithm.name())
        };
        let mut found = None;
        for (name, value) in given {
            let Some(value) = value else { continue };
            if !allowed.contains(&name) {
                return Err(CoordinatorError::value(
                    &format!("cohort.{name}"),
                    expected(),
                    value,
                ));
            }
            if let Some((before, _)) = found.replace((name, value)) {
                return Err(CoordinatorError::value(
                    "cohort",
                    expected(),
                    format!("both {before} and {name}"),
                ));
            }
        }
        Ok(match found {
            None => return Err(CoordinatorError::missing("cohort", expected())),
            Some(("sampling_probability", q)) => CohortSize::Probability(q),
            Some(("compute_budget", _)) if algorithm == Algorithm::Uls => CohortSize::Count {
                count: self.users_of_budget()?,
                key: "cohort.compute_budget",
            },
            Some(("compute_budget", count)) => CohortSize::Count {
                count,
                key: "cohort.compute_budget",
            },
            Some(("examples_per_round", count)) => CohortSize::Count {
                count,
                key: "cohort.examples_per_round",
            },
            Some((_, count)) => CohortSize::Count {
                count,
                key: "cohort.users_per_round",
            },
        })
    }

    /// `M = B / G`.
    fn users_of_budget(&self) -> Result<f64> {
        let budget = self.cohort.compute_budget.unwrap_or(0);
        let group_size = u64::from(self.user_update.group_size.unwrap_or(0));
        if group_size == 0 || !budget.is_multiple_of(group_size) {
            return Err(CoordinatorError::value(
                "cohort.compute_budget",
                format!(
                    "a multiple of user_update.group_size = {group_size}, the users a round being their quotient"
                ),
                budget,
            ));
        }
        Ok((budget / group_size) as f64)
    }

    pub(super) fn validate_cohort(&self) -> Result<()> {
        let cohort = &self.cohort;
        if cohort.timers.is_some() && cohort.sampling != Sampling::DeviceTimers {
            return Err(CoordinatorError::value(
                "cohort.timers",
                "`device_timers` as cohort.sampling",
                cohort.sampling.name(),
            ));
        }
        if let Some(budget) = cohort.compute_budget {
            at_least_one("cohort.compute_budget", budget as usize)?;
        }
        match self.cohort_size()? {
            CohortSize::Count { count, key } => {
                positive(key, count)?;
                if cohort.sampling != Sampling::Poisson && count.fract() != 0.0 {
                    return Err(CoordinatorError::value(key, "a whole number", count));
                }
                Ok(())
            }
            CohortSize::Probability(q) if cohort.sampling != Sampling::Poisson => {
                Err(CoordinatorError::value(
                    "cohort.sampling_probability",
                    format!("users_per_round with {}", cohort.sampling.name()),
                    q,
                ))
            }
            CohortSize::Probability(q) if q > 0.0 && q <= 1.0 => Ok(()),
            CohortSize::Probability(q) => Err(CoordinatorError::value(
                "cohort.sampling_probability",
                "a number in (0, 1]",
                q,
            )),
        }
    }
}

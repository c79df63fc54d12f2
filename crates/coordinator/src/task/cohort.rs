//! `[cohort]`: the sampling of a round, and its size.

use serde::{Deserialize, Serialize};
use undertone_settings::Algorithm;

use super::TaskConfig;
use crate::error::check::{at_least_one, positive, require};
use crate::error::{CoordinatorError, Result};
use crate::participation::timers::TimersConfig;
use crate::sampling::Sampling;

/// `[cohort]`: the sampling of a round.
///
/// One of the four sizes is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Only with `check_in`: a declared upper bound on the subjects of the population. Reports name it; no cost depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<u64>,
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
                let key = format!("cohort.{name}");
                return Err(CoordinatorError::value(&key, expected(), value));
            }
            if let Some((before, _)) = found.replace((name, value)) {
                let [before, name] = [before, name].map(|name| format!("cohort.{name}"));
                return Err(CoordinatorError::conflict(&before, &name, "remove one of them"));
            }
        }
        let (key, count) = match found {
            None => return Err(CoordinatorError::missing("cohort", expected())),
            Some(("sampling_probability", q)) => return Ok(CohortSize::Probability(q)),
            Some(("compute_budget", count)) => match algorithm {
                Algorithm::Uls => ("cohort.compute_budget", self.users_of_budget()?),
                _ => ("cohort.compute_budget", count),
            },
            Some(("examples_per_round", count)) => ("cohort.examples_per_round", count),
            Some((_, count)) => ("cohort.users_per_round", count),
        };
        Ok(CohortSize::Count { count, key })
    }

    /// `M = B / G`.
    fn users_of_budget(&self) -> Result<f64> {
        let budget = self.cohort.compute_budget.unwrap_or(0);
        let group_size = u64::from(self.user_update.group_size.unwrap_or(0));
        let divides = group_size > 0 && budget.is_multiple_of(group_size);
        let expected = format!(
            "a multiple of user_update.group_size = {group_size}, the users per round being their quotient"
        );
        require(divides, "cohort.compute_budget", expected, budget)?;
        Ok((budget / group_size) as f64)
    }

    pub(super) fn validate_cohort(&self) -> Result<()> {
        let cohort = &self.cohort;
        let (sampling, expected) = (cohort.sampling, "`device_timers` as cohort.sampling");
        let of_timers = cohort.timers.is_none() || sampling == Sampling::DeviceTimers;
        require(of_timers, "cohort.timers", expected, sampling.name())?;
        if let Some(budget) = cohort.compute_budget {
            at_least_one("cohort.compute_budget", budget as usize)?;
        }
        match self.cohort_size()? {
            CohortSize::Count { count, key } => {
                positive(key, count)?;
                let holds = sampling == Sampling::Poisson || count.fract() == 0.0;
                require(holds, key, "a whole number", count)
            }
            CohortSize::Probability(q) => {
                let (key, poisson) = ("cohort.sampling_probability", sampling == Sampling::Poisson);
                let expected = format!("users_per_round with {}", sampling.name());
                require(poisson, key, expected, q)?;
                require(q > 0.0 && q <= 1.0, key, "a number in (0, 1]", q)
            }
        }
    }
}

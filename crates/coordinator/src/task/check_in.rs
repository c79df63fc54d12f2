//! The demands of `cohort.sampling = "check_in"` on the other tables: a service learns neither the examples nor the weights of
//! its users, and its guarantee rests on a participation schema alone.

use super::{ClipConfig, DropoutConfig, SumName, TaskConfig};
use crate::error::check::{exclude, require};
use crate::error::{CoordinatorError, Result};
use crate::participation::policy::Enforcement;
use crate::sampling::Sampling;
use undertone_settings::Algorithm;

impl TaskConfig {
    /// Checks that the other tables fit devices that check in.
    pub(super) fn validate_check_in(&self) -> Result<()> {
        let cohort = &self.cohort;
        if cohort.sampling != Sampling::CheckIn {
            return match cohort.population {
                None => Ok(()),
                Some(_) => Err(CoordinatorError::left_out(
                    "cohort.population",
                    format!(
                        "{} cohorts are drawn from the users of the corpus; only `check_in` declares a population",
                        cohort.sampling.name()
                    ),
                )),
            };
        }
        self.validate_goal()?;
        self.validate_figures()?;
        self.validate_updates()?;
        self.validate_sums()
    }

    /// Checks the report goal and the declared population.
    fn validate_goal(&self) -> Result<()> {
        let cohort = &self.cohort;
        let Some(population) = cohort.population else {
            return Err(CoordinatorError::missing(
                "cohort.population",
                "a declared upper bound on the subjects of the population with `check_in`",
            ));
        };
        let reason =
            "devices check in when they choose to, so no probability is known; set `cohort.users_per_round`";
        exclude(
            cohort.sampling_probability.is_some(),
            "cohort.sampling_probability",
            reason,
        )?;
        match cohort.users_per_round {
            None => Err(CoordinatorError::missing(
                "cohort.users_per_round",
                "the report goal of a round with `check_in`",
            )),
            Some(goal) if goal > population as f64 => Err(CoordinatorError::value(
                "cohort.users_per_round",
                format!("at most cohort.population = {population}"),
                goal,
            )),
            // Also refuses what is no number; its range is checked with the other schemes.
            Some(goal) if goal >= 2.0 => Ok(()),
            Some(goal) => Err(CoordinatorError::value(
                "cohort.users_per_round",
                "at least 2 with `check_in`: the sum of one device is its update",
                goal,
            )),
        }
    }

    /// Checks the keys that a guarantee is made of.
    fn validate_figures(&self) -> Result<()> {
        let Some(privacy) = &self.privacy else {
            return Err(CoordinatorError::missing(
                "privacy",
                "a table with `mechanism`, `delta` and the noise: a service trains with privacy only",
            ));
        };
        if privacy.delta.is_none() {
            return Err(CoordinatorError::missing(
                "privacy.delta",
                "a number well below one over the users with `check_in`: the true population is not known, so no default \
                 follows from it",
            ));
        }
        if privacy.mechanism.is_none() && !self.encoding_is_noisy() {
            return Err(CoordinatorError::missing(
                "privacy.mechanism",
                "a table with `check_in`, because check-ins do not amplify privacy (`kind = \"independent\"` for independent \
                 noise)",
            ));
        }
        let reason =
            "it composes Poisson figures, and devices that check in are no Poisson sample; leave it out";
        exclude(privacy.accountant.is_some(), "privacy.accountant", reason)?;
        let reason =
            "a service states the guarantee of its own cohorts alone; set the real `cohort.users_per_round`";
        exclude(self.estimate.is_some(), "estimate", reason)?;
        match &self.participation {
            None => Err(CoordinatorError::missing(
                "participation",
                "a table with `min_sep` with `check_in`, on which the guarantee depends",
            )),
            Some(participation) if participation.on_violation == Enforcement::Account => {
                Err(CoordinatorError::value(
                    "participation.on_violation",
                    "`refuse` with `check_in`: a service admits nobody beyond the schema",
                    "account",
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks the keys of updates and their average.
    fn validate_updates(&self) -> Result<()> {
        let update = &self.user_update;
        match update.algorithm {
            Algorithm::FedAvg | Algorithm::FedSgd => {}
            Algorithm::Els => {
                return Err(CoordinatorError::value(
                    "user_update.algorithm",
                    "`fedavg` or `fedsgd` with `check_in`: els needs a Poisson sample of examples that the server draws",
                    "els",
                ));
            }
            Algorithm::Uls => {
                return Err(CoordinatorError::value(
                    "user_update.algorithm",
                    "`fedavg` or `fedsgd` with `check_in`: uls counts the examples of a round, which a service never learns",
                    "uls",
                ));
            }
        }
        let reason = "a service never learns how much text a device has, so each device has weight 1";
        exclude(update.weight_cap.is_some(), "user_update.weight_cap", reason)?;
        let holds = self.estimator.is_fixed();
        let expected =
            "`fixed_denominator` with `check_in`: the other averages need the weights of the devices";
        require(holds, "estimator.kind", expected, self.estimator.kind())
    }

    /// Checks the keys of sums.
    fn validate_sums(&self) -> Result<()> {
        let Some(aggregation) = &self.aggregation else {
            return Ok(());
        };
        let holds = aggregation.sum != SumName::SecAgg || !matches!(self.clip, ClipConfig::Adaptive { .. });
        let expected = "`flat` or `per_layer` with `sum = \"secagg\"`: adaptive clipping needs a bit of each device beside its update";
        require(holds, "clip.kind", expected, "adaptive")?;
        let reason = "it makes simulated users fail; devices that check in fail by themselves";
        exclude(
            aggregation.dropout != DropoutConfig::default(),
            "aggregation.dropout",
            reason,
        )?;
        let Some(max) = aggregation.max_clients else {
            return Err(CoordinatorError::missing(
                "aggregation.max_clients",
                "the max number of devices in a sum with `check_in`, which the modulus has room for",
            ));
        };
        let goal = self.cohort.users_per_round.unwrap_or(f64::NAN);
        if goal <= max as f64 && aggregation.min_clients as f64 <= goal {
            return Ok(());
        }
        Err(CoordinatorError::value(
            "aggregation",
            format!(
                "`min_clients` of at most and `max_clients` of at least cohort.users_per_round = {goal} with `check_in`"
            ),
            format!("{} and {max}", aggregation.min_clients),
        ))
    }
}

//! `[privacy.mechanism]` and `[participation]`: noise that is correlated over the rounds, and the schema that bounds it.

use std::path::PathBuf;
use undertone_settings::Algorithm;

use serde::{Deserialize, Serialize};
use undertone_mechanisms::Objective;
use undertone_mechanisms::optimize::Kind;

use super::{AccountantName, ClipConfig, PrivacyConfig, TaskConfig};
use crate::error::check::{apart, at_least_one, exclude, require};
use crate::error::{CoordinatorError, Result};
use crate::participation::policy::Enforcement;
use crate::sampling::Sampling;

/// `[privacy.mechanism]`: the strategy of the noise of the run.
///
/// With this table the guarantee rests on the participation schema ([`ParticipationConfig`]), not on the sampling of users.
/// A key that is added later is left out while it is absent, because identifiers of tasks are digests of this text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MechanismConfig {
    /// Kind of strategy, optimised for the run where there is something to optimise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// File of a strategy that `undertone mechanism optimize --out` wrote, instead of a kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Number of buffers of a BLT; by default as many as lower the loss by a thousandth each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<usize>,
    /// Number of bands of a banded matrix; by default the separation `min_sep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<usize>,
    /// The rounds in which new trees begin; only for `kind = "tree"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<RestartsConfig>,
    /// The objective of an optimised matrix: the max or the root mean square of the error of the iterates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// The outputs whose errors count.
    #[serde(default)]
    pub workload: WorkloadName,
}

/// The outputs that a matrix is optimised for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkloadName {
    /// Prefix sums of the updates, as in \[BLT\].
    #[default]
    PrefixSum,
    /// The iterates of the run's own server optimizer: momentum and the falling learning rate.
    Server,
}

/// `[privacy.mechanism.restarts]`: a new tree after the first `first` rounds and after every further `every`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RestartsConfig {
    /// Number of rounds of the first tree; \[Gboard\] takes 128.
    pub first: u64,
    /// Number of rounds of each later tree; \[Gboard\] takes 1024.
    pub every: u64,
}

/// `[participation]`: the participation schema of each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ParticipationConfig {
    /// `b`: min distance in rounds of two participations of one user (MinS + 1).
    pub min_sep: u64,
    /// `k`: max number of participations of one user; by default as many as fit into the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_part: Option<u64>,
    /// The treatment of a round that breaks the schema.
    #[serde(default)]
    pub on_violation: Enforcement,
}

impl MechanismConfig {
    /// Checks the range of each value.
    pub(super) fn validate(&self) -> Result<()> {
        let kind = match (self.kind, &self.file) {
            (Some(kind), None) => Some(kind),
            (None, Some(_)) => None,
            (None, None) => {
                return Err(CoordinatorError::missing(
                    "privacy.mechanism.kind",
                    "`kind` or `file` in the table",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(CoordinatorError::conflict(
                    "privacy.mechanism.kind",
                    "privacy.mechanism.file",
                    "remove one of them",
                ));
            }
        };
        let name = kind.map_or("a file", Kind::name);
        if let Some(buffers) = self.buffers {
            at_least_one("privacy.mechanism.buffers", buffers)?;
            let holds = kind.is_some_and(Kind::is_buffered);
            let expected = "kind `blt` or `normalised-blt` with it";
            require(holds, "privacy.mechanism.buffers", expected, name)?;
        }
        if let Some(bands) = self.bands {
            at_least_one("privacy.mechanism.bands", bands)?;
            let holds = kind.is_some_and(Kind::is_banded);
            let expected = "a banded kind with it";
            require(holds, "privacy.mechanism.bands", expected, name)?;
        }
        if let Some(restarts) = self.restarts {
            at_least_one("privacy.mechanism.restarts.first", restarts.first as usize)?;
            at_least_one("privacy.mechanism.restarts.every", restarts.every as usize)?;
            let holds = kind == Some(Kind::Tree);
            let expected = "kind `tree` with it";
            require(holds, "privacy.mechanism.restarts", expected, name)?;
        }
        Ok(())
    }
}

impl ParticipationConfig {
    pub(super) fn validate(&self) -> Result<()> {
        at_least_one("participation.min_sep", self.min_sep as usize)?;
        at_least_one("participation.max_part", self.max_part.unwrap_or(1) as usize)
    }
}

impl TaskConfig {
    /// Checks that sampling, participation, clipping and mechanism fit each other.
    pub(super) fn validate_participation(&self) -> Result<()> {
        if let Some(participation) = &self.participation {
            participation.validate()?;
            let sampling = self.cohort.sampling;
            if !matches!(
                sampling,
                Sampling::FixedSize | Sampling::DeviceTimers | Sampling::CheckIn
            ) {
                return Err(CoordinatorError::value(
                    "participation",
                    "`fixed_size` or `device_timers` as cohort.sampling; epochs say it themselves, Poisson cohorts bound nothing",
                    sampling.name(),
                ));
            }
        }
        match self.privacy.as_ref().map(|privacy| (privacy, &privacy.mechanism)) {
            Some((privacy, Some(mechanism))) => {
                mechanism.validate()?;
                self.validate_bounded(privacy)?;
            }
            // Its own rules: see `validate_aggregation`.
            Some((_, None)) if self.encoding_is_noisy() => {}
            Some((_, None)) => self.validate_sampled()?,
            None => {}
        }
        self.validate_adaptive()
    }

    /// Checks the keys of a guarantee that rests on a participation schema.
    fn validate_bounded(&self, privacy: &PrivacyConfig) -> Result<()> {
        match self.cohort.sampling {
            Sampling::Poisson => {
                return Err(CoordinatorError::value(
                    "cohort.sampling",
                    "`shuffled_epochs`, `device_timers` or `fixed_size` with privacy.mechanism: Poisson cohorts keep to no schema",
                    "poisson",
                ));
            }
            Sampling::FixedSize | Sampling::DeviceTimers | Sampling::CheckIn
                if self.participation.is_none() =>
            {
                return Err(CoordinatorError::missing(
                    "participation",
                    "a table with `min_sep`, on which the guarantee of privacy.mechanism depends",
                ));
            }
            _ => {}
        }
        let remedy = "remove one of them: correlated noise has one size (`clip.kind = \"adaptive\"` changes the clip norm)";
        apart(!self.schedule.is_empty(), "schedule", "privacy.mechanism", remedy)?;
        let remedy = "remove one of them: correlated noise is a single Gaussian, whose epsilon is exact";
        apart(
            privacy.accountant.is_some(),
            "privacy.accountant",
            "privacy.mechanism",
            remedy,
        )
    }

    /// Checks the keys of a guarantee that rests on the sampling of the cohorts.
    fn validate_sampled(&self) -> Result<()> {
        let sampling = self.cohort.sampling;
        if !matches!(sampling, Sampling::Poisson | Sampling::FixedSize) {
            return Err(CoordinatorError::missing(
                "privacy.mechanism",
                format!(
                    "a table, because {} cohorts do not amplify privacy (`kind = \"independent\"` for independent noise)",
                    sampling.name()
                ),
            ));
        }
        let accountant = self.privacy.as_ref().and_then(|privacy| privacy.accountant);
        if let (Sampling::FixedSize, Some(name @ (AccountantName::Pld | AccountantName::Moments2016))) =
            (sampling, accountant)
        {
            return Err(CoordinatorError::value(
                "privacy.accountant",
                "`rdp` with fixed_size cohorts: the other accountants have no bound for them",
                name.name(),
            ));
        }
        let reason = "without privacy.mechanism the guarantee needs a uniform sample of all users, and this table limits who may \
                      take part";
        exclude(self.participation.is_some(), "participation", reason)
    }

    fn validate_adaptive(&self) -> Result<()> {
        let ClipConfig::Adaptive { .. } = self.clip else {
            return Ok(());
        };
        let mechanism = self
            .privacy
            .as_ref()
            .and_then(|privacy| privacy.mechanism.as_ref());
        let holds = mechanism.is_some_and(|mechanism| mechanism.restarts.is_some());
        let expected = "privacy.mechanism of kind `tree` with `restarts` beside `adaptive`: the norm changes where the tree restarts";
        require(holds, "clip.kind", expected, "adaptive without")?;
        let update = &self.user_update;
        let holds = update.algorithm != Algorithm::FedAvg || !update.clip_every_step;
        let expected = "false with adaptive clipping, whose quantile is that of whole updates";
        require(holds, "user_update.clip_every_step", expected, true)?;
        let holds = self.estimator.is_fixed();
        let expected = "`fixed_denominator` with adaptive clipping";
        require(holds, "estimator.kind", expected, self.estimator.kind())
    }
}

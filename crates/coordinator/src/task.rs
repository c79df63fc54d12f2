//! A task: everything about a training that privacy depends on, as one value.
//!
//! The tables are the parts of \[DPLM\] Algorithm 1: `[model]`, `[cohort]` (how users are sampled), `[user_update]` (what a
//! user computes), `[clip]`, `[estimator]`, `[privacy]` (noise and budget), `[server]`, and beside them `[participation]`,
//! `[aggregation]`, `[[schedule]]` and `[estimate]`. A task names no source of data, no seed and no file of a run: those
//! belong to the program that drives it.

mod aggregation;
mod check_in;
mod cohort;
mod duration;
mod els;
mod file;
mod mechanism;
mod server;
mod service;
mod validate;

use serde::{Deserialize, Serialize};
use undertone_models::ModelSpec;
use undertone_settings::UserSettings;

pub use crate::error::check::at_least_one;
pub use aggregation::{AggregationConfig, DropoutConfig, GraphConfig, SumName};
pub use cohort::{CohortConfig, CohortSize};
pub use duration::{NotASpan, Span};
pub use file::{Seeding, TaskFile, TaskPurpose, TaskVocabulary};
pub use mechanism::{MechanismConfig, ParticipationConfig, RestartsConfig, WorkloadName};
pub use server::{DecayConfig, OptimizerConfig, ServerConfig};
pub(crate) use service::MAX_OVER_SELECTION;
pub use service::{
    BudgetConfig, DeadlinesConfig, EligibilityConfig, GroupConfig, IdentityLevel, LedgerPlace, PaceConfig,
    ServiceConfig,
};
pub use validate::{check_initial_model, folder_name, trained_here};

#[cfg(test)]
mod tests;

/// A training task: the model, the sampling of users, their computation, and the noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Name of the task; a run's folder under the output folder has this name.
    pub name: String,
    /// Rounds `n`.
    pub rounds: u64,
    /// The model.
    pub model: ModelSpec,
    /// The sampling of the users of a round.
    pub cohort: CohortConfig,
    /// The local training of a user.
    pub user_update: UserSettings,
    /// The bound on the update of a user.
    pub clip: ClipConfig,
    /// The average over users that is released.
    #[serde(default)]
    pub estimator: EstimatorConfig,
    /// The participation schema: the max number of participations of one user and the min gap between them. The guarantee of
    /// correlated noise rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participation: Option<ParticipationConfig>,
    /// Noise and budget; without this table the task is not private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyConfig>,
    /// The aggregation of the updates of a round, if not a plain sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<AggregationConfig>,
    /// The server optimizer, which applies the released average.
    #[serde(default)]
    pub server: ServerConfig,
    /// Changes of clip norm and noise multiplier from given rounds on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<SchedulePoint>,
    /// The larger cohort and population of a utility estimate (\[DPLM\] section 3); it is no guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateConfig>,
}

/// `[clip]`: the bound on the update of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum ClipConfig {
    /// No bound: the run cannot be private.
    None,
    /// The whole update is clipped to norm `S`.
    Flat {
        /// The norm `S`.
        norm: f64,
        /// `true` to give the server's optimizer the average over `S`, so that learning rate and clip norm decouple
        /// (\[UserDP\] section 5, after De et al. 2022).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        normalised: bool,
    },
    /// Each parameter vector of the model is clipped to its own norm: `norm / sqrt(m)`, or the given `norms`.
    PerLayer {
        /// Total norm `S`, spread evenly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        norm: Option<f64>,
        /// One norm `S_j` for each parameter vector, in the model's order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        norms: Option<Vec<f64>>,
    },
    /// \[Gboard\] Algorithm 1: the norm follows a quantile of the users' update norms, estimated with noise of its own, and
    /// changes where the tree restarts. Needs `privacy.mechanism` with `kind = "tree"` and `restarts`.
    Adaptive {
        /// `C^0`: the norm up to the first restart.
        initial_norm: f64,
        /// `gamma`: the fraction of users whose update is to be shorter than the norm.
        #[serde(default = "half")]
        quantile: f64,
        /// `eta_gamma`: the speed of the estimate, in logarithms per round.
        #[serde(default = "default_norm_rate")]
        learning_rate: f64,
        /// `sigma_b`: noise on the number of users below the norm; by default a twentieth of the users per round.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bit_noise_std: Option<f64>,
    },
}

impl ClipConfig {
    /// The bound of a task that names none: norm 1 where it is private, and none elsewhere.
    #[must_use]
    pub fn by_default(private: bool) -> Self {
        match private {
            true => Self::Flat {
                norm: 1.0,
                normalised: false,
            },
            false => Self::None,
        }
    }
}

fn half() -> f64 {
    0.5
}

fn default_norm_rate() -> f64 {
    0.2
}

/// `[estimator]`: the weighted average over users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum EstimatorConfig {
    /// `f_f`: the sum is divided by the expected weight of a round, `q W`.
    FixedDenominator {
        /// `q W`, given instead of computed from the number of users. A private run with weights needs it, because the weights
        /// follow from the users' text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_weight: Option<f64>,
    },
    /// `f_c`: the sum is divided by `max(q W_min, observed weight)`.
    ClippedDenominator {
        /// `W_min`, a lower bound on the population's total weight.
        min_weight: f64,
    },
    /// `f`: the sum is divided by the observed weight. Its sensitivity has no useful bound, so only runs without noise may use it.
    Exact,
}

impl Default for EstimatorConfig {
    fn default() -> Self {
        Self::FixedDenominator {
            expected_weight: None,
        }
    }
}

impl ClipConfig {
    /// The value of `kind` in run files.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::None => "\"none\"",
            Self::Flat { .. } => "flat",
            Self::PerLayer { .. } => "per_layer",
            Self::Adaptive { .. } => "adaptive",
        }
    }
}

impl EstimatorConfig {
    /// The value of `kind` in run files.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::FixedDenominator { .. } => "fixed_denominator",
            Self::ClippedDenominator { .. } => "clipped_denominator",
            Self::Exact => "exact",
        }
    }

    /// `true` if the average is divided by a constant.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::FixedDenominator { .. })
    }

    /// The expected weight of a round, where the run file gives it.
    #[must_use]
    pub fn expected_weight(&self) -> Option<f64> {
        match self {
            Self::FixedDenominator { expected_weight } => *expected_weight,
            Self::ClippedDenominator { .. } | Self::Exact => None,
        }
    }
}

/// `[privacy]`: noise and budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PrivacyConfig {
    /// `z`: noise standard deviation over the estimator's sensitivity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// Target epsilon of the whole training, instead of a noise multiplier: the smallest multiplier that meets it is used. The
    /// cost of a private vocabulary comes on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_epsilon: Option<f64>,
    /// The delta of every guarantee of the run; by default `users^-1.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Budget: no round starts that would bring epsilon above it, the private choice of the vocabulary included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epsilon: Option<f64>,
    /// The accountant of sampled cohorts, by default the tightest that is valid for them. Correlated noise is one Gaussian,
    /// whose epsilon is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accountant: Option<AccountantName>,
    /// Noise that is correlated over the rounds; without this table it is independent and the guarantee rests on the
    /// sampling of the cohorts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<MechanismConfig>,
}

/// The accountants of sampled cohorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AccountantName {
    /// Renyi DP over integer and fractional orders: for Poisson and fixed-size cohorts.
    Rdp,
    /// Loss distributions: the tightest. For Poisson cohorts, and their default.
    Pld,
    /// The moments accountant of 2016, as in the tables of \[DPLM\]; looser.
    Moments2016,
}

impl AccountantName {
    /// The name in run files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdp => "rdp",
            Self::Pld => "pld",
            Self::Moments2016 => "moments2016",
        }
    }
}

/// One entry of `[[schedule]]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SchedulePoint {
    /// First round that the entry holds for.
    pub from_round: u64,
    /// New total clip norm `S`; the noise follows, so the privacy cost of a round stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// New noise multiplier; the accountant composes the rounds as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
}

/// `[estimate]`: the larger run that this one stands for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EstimateConfig {
    /// Number of users in the larger population, `K`.
    pub population: u64,
    /// Expected users per round of the larger run, `C`; the noise is `z * S / C`.
    pub users_per_round: f64,
    /// Rounds to account for; by default those of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Delta of the estimate; by default the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
}

//! A task: everything about a training that privacy depends on, as one value.
//!
//! The tables are the parts of \[DPLM\] Algorithm 1: `[model]`, `[cohort]` (how users are sampled), `[user_update]` (what a
//! user computes), `[clip]`, `[estimator]`, `[privacy]` (noise and budget), `[server]`, and beside them `[participation]`,
//! `[aggregation]`, `[[schedule]]` and `[estimate]`. A task names no source of data, no seed and no file of a run: those
//! belong to the program that drives it.

mod aggregation;
mod cohort;
mod els;
mod mechanism;
mod server;
mod validate;

use serde::{Deserialize, Serialize};
use undertone_models::ModelSpec;

pub use aggregation::{AggregationConfig, DropoutConfig, EncodingConfig, GraphConfig, SumName};
pub use cohort::{CohortConfig, CohortSize};
pub use mechanism::{MechanismConfig, ParticipationConfig, RestartsConfig, WorkloadName};
pub use server::{DecayConfig, OptimizerConfig, ServerConfig};
pub use undertone_local::{Algorithm, Batching, UserSettings};
pub use validate::{at_least_one, folder_name, needs_initial_model};

/// A training task: the model, who takes part, what each of them computes, and the noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskConfig {
    /// Name of the task; a run's folder under the output folder has this name.
    pub name: String,
    /// Rounds `n`.
    pub rounds: u64,
    /// The model.
    pub model: ModelSpec,
    /// How the users of a round are chosen.
    pub cohort: CohortConfig,
    /// What a user computes.
    pub user_update: UserSettings,
    /// How a user's update is bounded.
    pub clip: ClipConfig,
    /// The average over users that is released.
    #[serde(default)]
    pub estimator: EstimatorConfig,
    /// How often and how far apart one user may take part. The guarantee of correlated noise rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participation: Option<ParticipationConfig>,
    /// Noise and budget; without this table the task is not private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacyConfig>,
    /// How the updates of a round become one sum, if not by simply adding them up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<AggregationConfig>,
    /// How the server applies the released average.
    #[serde(default)]
    pub server: ServerConfig,
    /// Changes of clip norm and noise multiplier from given rounds on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<SchedulePoint>,
    /// The larger cohort and population to account for (\[DPLM\] section 3): utility estimates, no guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateConfig>,
}

/// `[clip]`: how a user's update is bounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum ClipConfig {
    /// No bound: the run cannot be private.
    None,
    /// The whole update to norm `S`.
    Flat {
        /// `S`.
        norm: f64,
        /// Whether the server's optimizer gets the average over `S`, so that learning rate and clip norm decouple
        /// (\[UserDP\] section 5, after De et al. 2022).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        normalised: bool,
    },
    /// Every parameter vector of the model to its own norm: `norm / sqrt(m)` each, or the given `norms`.
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
        /// `gamma`: the share of users whose update is to be shorter than the norm.
        #[serde(default = "half")]
        quantile: f64,
        /// `eta_gamma`: how fast the estimate moves, in logarithms a round.
        #[serde(default = "default_norm_rate")]
        learning_rate: f64,
        /// `sigma_b`: noise on the number of users below the norm; by default a twentieth of the users a round.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bit_noise_std: Option<f64>,
    },
}

fn half() -> f64 {
    0.5
}

fn default_norm_rate() -> f64 {
    0.2
}

/// `[estimator]`: the weighted average over users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum EstimatorConfig {
    /// `f_f`: divide by the expected weight of a round, `q W`.
    FixedDenominator {
        /// `q W`, instead of what the number of users says. A private run with weights needs it: the weights follow from
        /// what people wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_weight: Option<f64>,
    },
    /// `f_c`: divide by `max(q W_min, observed weight)`.
    ClippedDenominator {
        /// `W_min`, a lower bound on the population's total weight.
        min_weight: f64,
    },
    /// `f`: divide by the observed weight; its sensitivity has no useful bound, so only runs without noise may use it.
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

    /// Whether the average is divided by a constant.
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
#[serde(deny_unknown_fields)]
pub struct PrivacyConfig {
    /// `z`: noise standard deviation over the estimator's sensitivity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// Instead of a noise multiplier: the smallest one that keeps the whole training within this epsilon; what a private
    /// vocabulary costs comes on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_epsilon: Option<f64>,
    /// The delta of every guarantee of the run; by default `users^-1.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Hard stop: no round starts that would bring epsilon above this, the private choice of the vocabulary counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epsilon: Option<f64>,
    /// Which accountant speaks where cohorts are sampled, by default the tightest that is valid for them. Correlated noise is
    /// one Gaussian, whose epsilon is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accountant: Option<AccountantName>,
    /// Noise that is correlated over the rounds; without this table it is independent and the guarantee rests on the
    /// sampling of the cohorts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<MechanismConfig>,
}

/// The accountants a run can be held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(deny_unknown_fields)]
pub struct SchedulePoint {
    /// First round it holds for.
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
#[serde(deny_unknown_fields)]
pub struct EstimateConfig {
    /// Users of the larger population, `K`.
    pub population: u64,
    /// Expected users a round of the larger run, `C`; the noise is `z * S / C`.
    pub users_per_round: f64,
    /// Rounds accounted for; by default those of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Its delta; by default the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
}

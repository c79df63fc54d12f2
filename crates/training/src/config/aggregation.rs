//! `[aggregation]`: how the updates of a round become one sum, and who fails on the way.

use serde::{Deserialize, Serialize};

use super::validate::at_least_one;
use super::{ClipConfig, EstimatorConfig, RunConfig};
use crate::cohort::Sampling;
use crate::error::{Result, TrainingError};

/// `[aggregation]`: how the updates of a round become one sum.
///
/// Without this table whoever runs the training sees every update. With an encoding, updates are integers that only ever
/// meet in sums modulo a number, so that a secure sum can hide each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationConfig {
    /// Who sees what.
    #[serde(default)]
    pub sum: SumName,
    /// How an update becomes integers.
    #[serde(default)]
    pub encoding: EncodingConfig,
    /// The report goal's floor: a round with fewer users in its sum is abandoned. Noise that users add themselves is sized
    /// for this many.
    pub min_clients: u64,
    /// Most users in one sum: what the modulus has room for. By default what a cohort can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clients: Option<u64>,
    /// `[aggregation.dropout]`: the shares of users that fail, for study.
    #[serde(default)]
    pub dropout: DropoutConfig,
}

/// Who sees what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SumName {
    /// The server sees every user's integers and adds them up.
    #[default]
    Plain,
    /// The server learns the sum alone: every round runs the protocol of secure aggregation.
    SecAgg,
}

/// How an update becomes integers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum EncodingConfig {
    /// Fixed point, truncated toward zero: the sum that there is without a table.
    #[default]
    Identity,
    /// \[Gboard\] Algorithm 2: rotated, rounded at random to a grid; noise is added by the server.
    RotatedRounding {
        /// `s`: grid steps in one unit of the update.
        scale: f64,
    },
    /// \[cpSGD\]: `levels` levels and binomial noise of every user's own.
    Binomial {
        /// `k`: levels of a coordinate.
        levels: u64,
        /// Whether updates are rotated first.
        #[serde(default = "yes")]
        rotate: bool,
    },
    /// Rotated, rounded, and discrete Gaussian noise of every user's own.
    DiscreteGaussian {
        /// Grid steps in one unit of the update.
        scale: f64,
    },
    /// Rotated, rounded, and Skellam noise of every user's own.
    Skellam {
        /// Grid steps in one unit of the update.
        scale: f64,
    },
}

fn yes() -> bool {
    true
}

impl EncodingConfig {
    /// The name in run files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::RotatedRounding { .. } => "rotated_rounding",
            Self::Binomial { .. } => "binomial",
            Self::DiscreteGaussian { .. } => "discrete_gaussian",
            Self::Skellam { .. } => "skellam",
        }
    }

    /// Whether the users add the noise, in shares.
    #[must_use]
    pub fn is_distributed(self) -> bool {
        !matches!(self, Self::Identity | Self::RotatedRounding { .. })
    }
}

/// `[aggregation.dropout]`: of the users chosen for a round, the share that fails at each point.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DropoutConfig {
    /// Before anything was sent: the user is not in the session.
    pub before_keys: f64,
    /// After the keys, before the shares of secrets.
    pub before_shares: f64,
    /// After the shares, before the masked update.
    pub before_upload: f64,
    /// After the masked update: the user is in the sum, and others help to unmask it.
    pub before_unmask: f64,
}

impl DropoutConfig {
    /// The shares with their names, in the order of the protocol.
    #[must_use]
    pub fn shares(&self) -> [(&'static str, f64); 4] {
        [
            ("before_keys", self.before_keys),
            ("before_shares", self.before_shares),
            ("before_upload", self.before_upload),
            ("before_unmask", self.before_unmask),
        ]
    }
}

//! The table that names an encoding, in run files, task files and plans.

use serde::{Deserialize, Serialize};

use super::settings::{EncodingKind, Levels};

/// The encoding of an update as integers: `[aggregation.encoding]` of a run file or task file.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum EncodingConfig {
    /// Fixed point, truncated toward zero: the same sum as without this table.
    #[default]
    Identity,
    /// \[Gboard\] Algorithm 2: rotated, rounded at random to a grid; noise is added by the server.
    RotatedRounding {
        /// `s`: grid steps in one unit of the update.
        scale: f64,
    },
    /// \[cpSGD\]: `levels` levels, and binomial noise that each user adds.
    Binomial {
        /// `k`: number of levels of a coordinate.
        levels: u64,
        /// `m`: number of trials (coin flips) of the noise of one user.
        trials: u64,
        /// `true` if updates are rotated first.
        #[serde(default = "yes")]
        rotate: bool,
    },
    /// Rotated and rounded, with discrete Gaussian noise that each user adds.
    DiscreteGaussian {
        /// Grid steps in one unit of the update.
        scale: f64,
    },
    /// Rotated and rounded, with Skellam noise that each user adds.
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

    /// `true` if the users add the noise, each a part of it.
    #[must_use]
    pub fn is_distributed(self) -> bool {
        !matches!(self, Self::Identity | Self::RotatedRounding { .. })
    }

    /// The encoding with its settings. A server and its devices both get it from here, so that they agree on every integer.
    ///
    /// `noise_multiplier` is that of the sum of `min_clients` users, `delta` is that of the run, and `max_part` is the max number of
    /// participations of one user.
    #[must_use]
    pub fn kind(self, noise_multiplier: f64, delta: f64, max_part: u64) -> EncodingKind {
        match self {
            Self::Identity => EncodingKind::Identity,
            Self::RotatedRounding { scale } => EncodingKind::RotatedRounding { scale },
            Self::DiscreteGaussian { scale } => EncodingKind::DiscreteGaussian {
                scale,
                noise_multiplier,
            },
            Self::Skellam { scale } => EncodingKind::Skellam {
                scale,
                noise_multiplier,
            },
            Self::Binomial {
                levels,
                trials,
                rotate,
            } => EncodingKind::Binomial(Levels {
                levels,
                trials,
                success_probability: (1, 2),
                x_max: None,
                rotate,
                // Half of the run's delta over all rounds that one user takes part in; composing takes the rest.
                delta: delta / (2.0 * max_part as f64),
            }),
        }
    }
}

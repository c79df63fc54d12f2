//! `[server]`: the optimizer that the released averages go to.

use serde::{Deserialize, Serialize};

/// `[server]`: the optimizer that moves the parameters by the released average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The optimizer; it sees only the released average.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// Server learning rate; 1 applies the average as it is (\[DPLM\]).
    #[serde(default = "one")]
    pub learning_rate: f64,
    /// Linear decay of the server learning rate over the last part of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay: Option<DecayConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            optimizer: OptimizerConfig::default(),
            learning_rate: 1.0,
            decay: None,
        }
    }
}

fn one() -> f64 {
    1.0
}

/// `server.optimizer`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum OptimizerConfig {
    /// `theta += lr * v`, `v = momentum * v + average`.
    Sgd {
        /// Momentum in `[0, 1)`.
        #[serde(default)]
        momentum: f64,
    },
    /// Adam on the released average, with bias correction.
    Adam {
        /// Decay of the first moment.
        #[serde(default = "default_beta1")]
        beta1: f64,
        /// Decay of the second moment.
        #[serde(default = "default_beta2")]
        beta2: f64,
        /// Constant that is added to the root of the second moment.
        #[serde(default = "default_adam_epsilon")]
        epsilon: f64,
    },
    /// Adam with decoupled weight decay: parameters also shrink by `learning_rate * weight_decay` (Loshchilov, Hutter 2019).
    #[serde(rename = "adamw")]
    AdamW {
        /// Decay of the first moment.
        #[serde(default = "default_beta1")]
        beta1: f64,
        /// Decay of the second moment.
        #[serde(default = "default_beta2")]
        beta2: f64,
        /// Constant that is added to the root of the second moment.
        #[serde(default = "default_adam_epsilon")]
        epsilon: f64,
        /// Decoupled weight decay.
        #[serde(default = "default_weight_decay")]
        weight_decay: f64,
    },
    /// Adafactor with the server's learning rate: no relative step, no first moment (Shazeer, Stern 2018).
    Adafactor {
        /// Second moments of step `t` keep `1 - t^-decay_exponent`.
        #[serde(default = "default_decay_exponent")]
        decay_exponent: f64,
        /// Constant that is added to squares.
        #[serde(default = "default_adafactor_epsilon")]
        epsilon: f64,
        /// Max root mean square of a tensor's step, in learning rates.
        #[serde(default = "default_clipping_threshold")]
        clipping_threshold: f64,
    },
}

impl ServerConfig {
    /// The learning rate of a round out of `rounds`: constant, then falling linearly over the last part of the run.
    #[must_use]
    pub(crate) fn learning_rate_at(&self, round: u64, rounds: u64) -> f64 {
        let Some(decay) = self.decay else {
            return self.learning_rate;
        };
        let start = (1.0 - decay.last_fraction) * rounds as f64;
        let span = (rounds as f64 - start - 1.0).max(1.0);
        let progress = ((round as f64 - start) / span).clamp(0.0, 1.0);
        self.learning_rate * (1.0 - progress * (1.0 - decay.final_factor))
    }

    /// The factor of each round's average in the parameters after `made` rounds of a run of `planned` rounds: they are the initial ones plus
    /// the sum of all averages, each times its factor. `None` for an optimizer that does more than add.
    ///
    /// The learning rate falls as planned, also in a run that ends early.
    #[must_use]
    pub fn factors(&self, made: u64, planned: u64) -> Option<Vec<f64>> {
        let OptimizerConfig::Sgd { momentum } = self.optimizer else {
            return None;
        };
        let mut factor = 0.0;
        let mut factors: Vec<f64> = (0..made)
            .rev()
            .map(|round| {
                factor = self.learning_rate_at(round, planned) + momentum * factor;
                factor
            })
            .collect();
        factors.reverse();
        Some(factors)
    }
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::Sgd { momentum: 0.0 }
    }
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.99
}

fn default_adam_epsilon() -> f64 {
    1e-6
}

fn default_weight_decay() -> f64 {
    0.01
}

fn default_decay_exponent() -> f64 {
    0.8
}

fn default_adafactor_epsilon() -> f64 {
    1e-30
}

fn default_clipping_threshold() -> f64 {
    1.0
}

/// `server.decay`: constant, then linear.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DecayConfig {
    /// The last part of the rounds, in `(0, 1]`, over which the rate falls.
    pub last_fraction: f64,
    /// The factor reached at the last round.
    pub final_factor: f64,
}

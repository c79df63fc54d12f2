//! `[aggregation]`: the sum of the updates of a round, and the users that fail on the way.

use serde::{Deserialize, Serialize};
use undertone_secagg::{ThreatModel, assurance::Assumptions};

use super::validate::{at_least_one, positive};
use super::{ClipConfig, TaskConfig};
use crate::error::{CoordinatorError, Result};
use crate::sampling::Sampling;

/// `[aggregation]`: the sum of the updates of a round.
///
/// Without this table the server sees each update. With an encoding, updates are integers that are only ever added modulo a
/// number, so that a secure sum can hide each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationConfig {
    /// The parties that see the users' integers.
    #[serde(default)]
    pub sum: SumName,
    /// The encoding of an update as integers.
    #[serde(default)]
    pub encoding: EncodingConfig,
    /// Min number of users in a sum: a round with fewer is abandoned. Noise that clients add is sized for this number.
    pub min_clients: u64,
    /// Max number of users in one sum, which the modulus has room for. By default the max size of a cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clients: Option<u64>,
    /// `[aggregation.graph]`: the pairs of users that agree on masks, with `sum = "secagg"`; all pairs without this table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphConfig>,
    /// `[aggregation.dropout]`: the fractions of users that fail, for study.
    #[serde(default)]
    pub dropout: DropoutConfig,
}

/// `[aggregation.graph]`: the assumed rates of drop-outs and of corruption. Each session gets the sparsest graph and the
/// smallest threshold that hold under them ([`Assumptions`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphConfig {
    /// Max fraction of a session's users that drop out.
    pub drop_out_rate: f64,
    /// Max fraction of a session's users that work with the server.
    pub corrupt_rate: f64,
    /// The probability that the sum of fewer than all survivors is revealed is at most `2^-privacy_bits`.
    #[serde(default = "default_privacy_bits")]
    pub privacy_bits: u32,
    /// The probability that a session fails although the rates hold is at most `2^-failure_bits`.
    #[serde(default = "default_failure_bits")]
    pub failure_bits: u32,
}

fn default_privacy_bits() -> u32 {
    40
}

fn default_failure_bits() -> u32 {
    20
}

impl GraphConfig {
    /// The assumptions, checked.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the table.
    pub fn assumptions(&self) -> Result<Assumptions> {
        Assumptions::new(
            self.drop_out_rate,
            self.corrupt_rate,
            ThreatModel::HonestButCurious,
        )
        .and_then(|assumptions| assumptions.with_bits(self.privacy_bits, self.failure_bits))
        .map_err(|error| {
            let expected = "rates in [0, 1) and exponents from 1 to 128";
            CoordinatorError::value("aggregation.graph", expected, error)
        })
    }
}

/// The parties that see the users' integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SumName {
    /// The server sees the integers of each user and adds them up.
    #[default]
    Plain,
    /// The server learns the sum alone: every round runs the protocol of secure aggregation.
    SecAgg,
}

/// The encoding of an update as integers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
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
}

/// `[aggregation.dropout]`: the fraction of a round's users that fails at each point.
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
    /// The fractions with their names, in the order of the protocol.
    #[must_use]
    pub fn fractions(&self) -> [(&'static str, f64); 4] {
        [
            ("before_keys", self.before_keys),
            ("before_shares", self.before_shares),
            ("before_upload", self.before_upload),
            ("before_unmask", self.before_unmask),
        ]
    }
}

impl TaskConfig {
    /// Checks that `[aggregation]` and the other tables fit each other.
    pub(super) fn validate_aggregation(&self) -> Result<()> {
        let Some(aggregation) = &self.aggregation else {
            return Ok(());
        };
        aggregation.validate()?;
        let refuse = |key: &str, expected: &str, got: &str| Err(CoordinatorError::value(key, expected, got));
        // PRIVACY: whether a round is abandoned must not tell how many came. Under the relation of Poisson cohorts that
        // number is one person's secret; under the others it is the same for both neighbours.
        if self.cohort.sampling == Sampling::Poisson {
            let expected = "`fixed_size`, `shuffled_epochs` or `device_timers` with [aggregation]: whether a round reaches \
                            its floor tells how many came, which Poisson cohorts keep secret";
            return refuse("cohort.sampling", expected, "poisson");
        }
        if !matches!(self.clip, ClipConfig::Flat { .. } | ClipConfig::PerLayer { .. }) {
            let expected =
                "`flat` or `per_layer` with [aggregation]: the integers of an encoding are made for one norm";
            return refuse("clip.kind", expected, self.clip.kind());
        }
        if !self.estimator.is_fixed() {
            let expected = "`fixed_denominator` with [aggregation]: a sum says nothing of its users' weights";
            return refuse("estimator.kind", expected, self.estimator.kind());
        }
        if !self.schedule.is_empty() {
            return Err(CoordinatorError::conflict(
                "schedule",
                "the encoding of [aggregation] is made for one clip norm",
            ));
        }
        if self.estimate.is_some() && aggregation.encoding != EncodingConfig::Identity {
            let reason = "its guarantee needs `aggregation.encoding.kind` = \"identity\": the cost of the other encodings \
                          depends on the cohort";
            return Err(CoordinatorError::conflict("estimate", reason));
        }
        if aggregation.encoding.is_distributed() {
            self.validate_distributed()?;
        }
        Ok(())
    }

    /// `true` if the users add the noise, each a part of it.
    #[must_use]
    pub fn encoding_is_noisy(&self) -> bool {
        self.aggregation
            .as_ref()
            .is_some_and(|aggregation| aggregation.encoding.is_distributed())
    }

    /// Checks the keys of noise that the users add.
    fn validate_distributed(&self) -> Result<()> {
        let refuse = |key: &str, expected: &str, got: &str| Err(CoordinatorError::value(key, expected, got));
        let name = self
            .aggregation
            .as_ref()
            .map_or("", |aggregation| aggregation.encoding.name());
        let Some(privacy) = &self.privacy else {
            return Err(CoordinatorError::missing(
                "privacy",
                format!("a table, because users add noise with the encoding {name}"),
            ));
        };
        if privacy.mechanism.is_some() {
            let reason = "the noise that users add is independent in every round";
            return Err(CoordinatorError::conflict("privacy.mechanism", reason));
        }
        if self.cohort.sampling != Sampling::ShuffledEpochs && self.participation.is_none() {
            let expected = "a table with `min_sep`, or `shuffled_epochs` as cohort.sampling: the guarantee of noise that users \
                            add depends on how often a user takes part";
            return Err(CoordinatorError::missing("participation", expected));
        }
        if privacy.target_epsilon.is_some() {
            return refuse(
                "privacy.target_epsilon",
                "`noise_multiplier` with an encoding of its own noise",
                name,
            );
        }
        let binomial = matches!(
            self.aggregation.as_ref().map(|aggregation| aggregation.encoding),
            Some(EncodingConfig::Binomial { .. })
        );
        if !binomial && privacy.noise_multiplier.is_none() {
            let expected =
                "the noise standard deviation of min_clients users together, divided by the clip norm";
            return Err(CoordinatorError::missing("privacy.noise_multiplier", expected));
        }
        if binomial && privacy.noise_multiplier.is_some() {
            let reason = "`trials` of the binomial encoding determines the noise";
            return Err(CoordinatorError::conflict("privacy.noise_multiplier", reason));
        }
        Ok(())
    }
}

impl AggregationConfig {
    fn validate(&self) -> Result<()> {
        // The sum of one user's update is that update.
        if self.min_clients < 2 {
            return Err(CoordinatorError::value(
                "aggregation.min_clients",
                "at least 2",
                self.min_clients,
            ));
        }
        if let Some(max) = self.max_clients
            && max < self.min_clients
        {
            return Err(CoordinatorError::value(
                "aggregation.max_clients",
                format!("at least min_clients = {}", self.min_clients),
                max,
            ));
        }
        if let Some(graph) = &self.graph {
            if self.sum != SumName::SecAgg {
                return Err(CoordinatorError::value(
                    "aggregation.graph",
                    "`sum = \"secagg\"` beside it",
                    "sum = \"plain\"",
                ));
            }
            graph.assumptions()?;
        }
        match self.encoding {
            EncodingConfig::Identity => {}
            EncodingConfig::RotatedRounding { scale }
            | EncodingConfig::DiscreteGaussian { scale }
            | EncodingConfig::Skellam { scale } => positive("aggregation.encoding.scale", scale)?,
            EncodingConfig::Binomial { levels, trials, .. } => {
                if levels < 2 {
                    return Err(CoordinatorError::value(
                        "aggregation.encoding.levels",
                        "at least 2",
                        levels,
                    ));
                }
                at_least_one("aggregation.encoding.trials", trials as usize)?;
            }
        }
        let mut total = 0.0;
        for (name, fraction) in self.dropout.fractions() {
            if !(0.0..=1.0).contains(&fraction) {
                let key = format!("aggregation.dropout.{name}");
                return Err(CoordinatorError::value(&key, "a share from 0 to 1", fraction));
            }
            total += fraction;
        }
        if total > 1.0 {
            return Err(CoordinatorError::value(
                "aggregation.dropout",
                "shares of at most 1 together",
                total,
            ));
        }
        Ok(())
    }
}

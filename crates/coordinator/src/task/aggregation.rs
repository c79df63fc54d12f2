//! `[aggregation]`: the sum of the updates of a round, and the users that fail on the way.

use serde::{Deserialize, Serialize};
use undertone_aggregation::EncodingConfig;
use undertone_secagg::{ThreatModel, assurance::Assumptions};

use super::{ClipConfig, TaskConfig};
use crate::error::check::{apart, at_least_one, exclude, positive, require};
use crate::error::{CoordinatorError, Result};
use crate::sampling::Sampling;

/// `[aggregation]`: the sum of the updates of a round.
///
/// Without this table the server sees each update. With an encoding, updates are integers that are only ever added modulo a
/// number, so that a secure sum can hide each of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
        self.assumptions_of(ThreatModel::HonestButCurious)
    }

    /// The assumptions under a threat model, checked.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the table.
    pub(crate) fn assumptions_of(&self, model: ThreatModel) -> Result<Assumptions> {
        Assumptions::new(self.drop_out_rate, self.corrupt_rate, model)
            .and_then(|assumptions| assumptions.with_bits(self.privacy_bits, self.failure_bits))
            .map_err(|error| {
                let expected = "rates in [0, 1) and exponents from 1 to 128";
                CoordinatorError::value("aggregation.graph", expected, error)
            })
    }
}

/// The parties that see the users' integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SumName {
    /// The server sees the integers of each user and adds them up.
    #[default]
    Plain,
    /// The server learns the sum alone: every round runs the protocol of secure aggregation.
    SecAgg,
}

/// `[aggregation.dropout]`: the fraction of a round's users that fails at each point.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DropoutConfig {
    /// Fraction that fails before anything was sent: the user is not in the session.
    pub before_keys: f64,
    /// Fraction that fails after the keys, before the shares of secrets.
    pub before_shares: f64,
    /// Fraction that fails after the shares, before the masked update.
    pub before_upload: f64,
    /// Fraction that fails after the masked update: the user is in the sum, and others help to unmask it.
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
        // PRIVACY: whether a round is abandoned must not tell how many came. Under the relation of Poisson cohorts that
        // number is one person's secret; under the others it is the same for both neighbours.
        let open = self.cohort.sampling != Sampling::Poisson;
        let expected = "`fixed_size`, `shuffled_epochs` or `device_timers` with [aggregation]: whether a round reaches its \
                        floor tells how many came, which Poisson cohorts keep secret";
        require(open, "cohort.sampling", expected, "poisson")?;
        let one_norm = matches!(self.clip, ClipConfig::Flat { .. } | ClipConfig::PerLayer { .. });
        let expected =
            "`flat` or `per_layer` with [aggregation]: the integers of an encoding are made for one norm";
        require(one_norm, "clip.kind", expected, self.clip.kind())?;
        let (fixed, kind) = (self.estimator.is_fixed(), self.estimator.kind());
        let expected = "`fixed_denominator` with [aggregation]: a sum says nothing of its users' weights";
        require(fixed, "estimator.kind", expected, kind)?;
        let remedy = "remove one of them: an encoding is made for one clip norm";
        apart(!self.schedule.is_empty(), "schedule", "aggregation", remedy)?;
        if self.estimate.is_some() && aggregation.encoding != EncodingConfig::Identity {
            let reason = "its guarantee needs `aggregation.encoding.kind` = \"identity\": the cost of the other encodings \
                          depends on the cohort";
            return Err(CoordinatorError::left_out("estimate", reason));
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
        let reason = "the noise that users add is independent in every round";
        exclude(privacy.mechanism.is_some(), "privacy.mechanism", reason)?;
        if self.cohort.sampling != Sampling::ShuffledEpochs && self.participation.is_none() {
            let expected = "a table with `min_sep`, or `shuffled_epochs` as cohort.sampling: the guarantee of noise that users \
                            add depends on how often a user takes part";
            return Err(CoordinatorError::missing("participation", expected));
        }
        let expected = "`noise_multiplier` with an encoding of its own noise";
        require(
            privacy.target_epsilon.is_none(),
            "privacy.target_epsilon",
            expected,
            name,
        )?;
        let binomial = matches!(
            self.aggregation.as_ref().map(|aggregation| aggregation.encoding),
            Some(EncodingConfig::Binomial { .. })
        );
        if !binomial && privacy.noise_multiplier.is_none() {
            let expected =
                "the noise standard deviation of min_clients users together, divided by the clip norm";
            return Err(CoordinatorError::missing("privacy.noise_multiplier", expected));
        }
        let reason = "`trials` of the binomial encoding determines the noise";
        exclude(
            binomial && privacy.noise_multiplier.is_some(),
            "privacy.noise_multiplier",
            reason,
        )
    }
}

impl AggregationConfig {
    fn validate(&self) -> Result<()> {
        // The sum of one user's update is that update.
        let min = self.min_clients;
        require(min >= 2, "aggregation.min_clients", "at least 2", min)?;
        if let Some(max) = self.max_clients {
            let expected = format!("at least min_clients = {min}");
            require(max >= min, "aggregation.max_clients", expected, max)?;
        }
        if let Some(graph) = &self.graph {
            let (holds, expected) = (self.sum == SumName::SecAgg, "`sum = \"secagg\"` beside it");
            require(holds, "aggregation.graph", expected, "sum = \"plain\"")?;
            graph.assumptions()?;
        }
        match self.encoding {
            EncodingConfig::Identity => {}
            EncodingConfig::RotatedRounding { scale }
            | EncodingConfig::DiscreteGaussian { scale }
            | EncodingConfig::Skellam { scale } => positive("aggregation.encoding.scale", scale)?,
            EncodingConfig::Binomial { levels, trials, .. } => {
                require(levels >= 2, "aggregation.encoding.levels", "at least 2", levels)?;
                at_least_one("aggregation.encoding.trials", trials as usize)?;
            }
        }
        let mut total = 0.0;
        for (name, fraction) in self.dropout.fractions() {
            let key = format!("aggregation.dropout.{name}");
            require(
                (0.0..=1.0).contains(&fraction),
                &key,
                "a share from 0 to 1",
                fraction,
            )?;
            total += fraction;
        }
        let expected = "shares of at most 1 together";
        require(total <= 1.0, "aggregation.dropout", expected, total)
    }
}

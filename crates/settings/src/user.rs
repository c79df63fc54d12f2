//! The settings of a user's work: the table `[user_update]` of a run file.

use serde::{Deserialize, Serialize};

use crate::error::{Result, SettingsError};

/// The settings of a user's work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UserSettings {
    /// FedAvg (several local steps), FedSGD (one gradient), ULS or ELS (gradients of single examples).
    #[serde(default)]
    pub algorithm: Algorithm,
    /// The batching of a user's text; ULS and ELS know sentences only.
    #[serde(default)]
    pub batching: Batching,
    /// Number of sentences (or parallel streams) per local batch, `B`. ULS and ELS: number of examples whose gradients are
    /// computed at once, by default 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Max number of examples per user: drawn at random in each round (ULS), or kept for the run, chosen once (ELS). A user with
    /// fewer gives all it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// Number of tokens that a stream advances per local step; only for `batching = "stream"`.
    #[serde(default = "default_unroll")]
    pub unroll: usize,
    /// Local epochs `E`; FedAvg only.
    #[serde(default = "default_epochs")]
    pub epochs: usize,
    /// Local learning rate; FedAvg and FedSGD. ULS and ELS have the server's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Max number of local steps, whatever the epochs and the user's data; FedAvg only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<usize>,
    /// `true` to project the update onto the clip ball after each local step (\[DPLM\]), `false` to clip it once at the end
    /// (\[Gboard\]). FedAvg only.
    #[serde(default = "yes")]
    pub clip_every_step: bool,
    /// Max number of the user's examples per round, chosen at random in each round; FedAvg and FedSGD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_examples: Option<usize>,
    /// `w_hat`: users are weighted by `min(examples / w_hat, 1)`; without it each user has weight 1. FedAvg and FedSGD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_cap: Option<f64>,
}

/// Default number of examples whose gradients ULS and ELS compute at once.
const MICROBATCH: usize = 16;

fn default_unroll() -> usize {
    10
}

fn default_epochs() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// The sizes of a batch, for which a worker takes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchShape {
    /// Max number of sequences.
    pub sequences: usize,
    /// Max number of tokens per sequence.
    pub steps: usize,
}

/// Number of sentences whose gradient is computed at once in FedSGD; it bounds the workspace, not the batch.
pub const FEDSGD_CHUNK: usize = 64;

/// The algorithm of a user: the user updates of \[DPLM\] Algorithm 1, or the gradients of \[UserDP\].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// `UserUpdateFedAvg(B, E, lr)`: local SGD, projected onto the clip ball after every step.
    #[default]
    FedAvg,
    /// `UserUpdateFedSGD(B, lr)`: one clipped gradient of `B` examples.
    FedSgd,
    /// DP-SGD-ULS, \[UserDP\] Algorithm 2: users are sampled; the average gradient of at most `group_size` random examples
    /// is clipped.
    Uls,
    /// DP-SGD-ELS, \[UserDP\] Algorithm 1: examples are sampled out of at most `group_size` per user; the gradient of each is
    /// clipped.
    Els,
}

impl Algorithm {
    /// The name in run files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FedAvg => "fedavg",
            Self::FedSgd => "fedsgd",
            Self::Uls => "uls",
            Self::Els => "els",
        }
    }

    /// `true` if the update is made of the gradients of single examples (\[UserDP\]).
    #[must_use]
    pub fn is_of_examples(self) -> bool {
        matches!(self, Self::Uls | Self::Els)
    }
}

/// The batching of a user's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Batching {
    /// Sentences side by side, each from the zero state.
    #[default]
    Sentences,
    /// \[DPLM\]: the user's text cut into `batch_size` parallel streams, the state carried from step to step.
    Stream,
}

impl UserSettings {
    /// Number of sentences (or parallel streams) that are computed at once.
    #[must_use]
    pub fn batch_size(&self) -> usize {
        self.batch_size.unwrap_or(MICROBATCH)
    }

    /// Max number of a user's examples per round, chosen at random in each round; `None` for all.
    #[must_use]
    pub fn max_examples_per_round(&self) -> Option<usize> {
        let group_size = self.group_size.map(|size| size as usize);
        match self.algorithm {
            Algorithm::FedAvg => self.max_examples,
            Algorithm::FedSgd => Some(self.batch_size().min(self.max_examples.unwrap_or(usize::MAX))),
            Algorithm::Uls => group_size,
            Algorithm::Els => None,
        }
    }

    /// The largest batch of users with at most `max_examples` examples of at most `longest` tokens each.
    #[must_use]
    pub fn batch_shape(&self, longest: usize, max_examples: usize) -> BatchShape {
        let steps = match self.batching {
            Batching::Sentences => longest,
            // A text shorter than `unroll` is one stream of one window.
            Batching::Stream => self.unroll.min(max_examples.saturating_mul(longest + 1)),
        };
        let (examples, batch_size) = (self.examples_of(max_examples), self.batch_size());
        let sequences = match (self.algorithm, self.batching) {
            (Algorithm::FedSgd, _) => batch_size.min(examples).min(FEDSGD_CHUNK),
            (Algorithm::FedAvg, Batching::Sentences) | (Algorithm::Uls, _) => batch_size.min(examples),
            // A stream has at least one token; the gaps between sentences are inputs too.
            (Algorithm::FedAvg, Batching::Stream) => batch_size.min(examples.saturating_mul(longest + 1)),
            // A microbatch holds examples of several users.
            (Algorithm::Els, _) => batch_size,
        };
        BatchShape { sequences, steps }
    }

    /// Max number of examples that a user trains on in a round, of those that a user has at most. It is at least 1: a batch of "all
    /// examples" is no larger than what a user has.
    #[must_use]
    pub fn examples_of(&self, max_examples: usize) -> usize {
        max_examples
            .min(self.max_examples_per_round().unwrap_or(max_examples))
            .max(1)
    }

    /// The local learning rate; 1 where there is only the server's.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(1.0)
    }

    /// Checks each value and the keys that go together.
    ///
    /// # Errors
    /// An error that names the key.
    pub fn validate(&self) -> Result<()> {
        if let Some(size) = self.batch_size {
            at_least_one("user_update.batch_size", size)?;
        }
        at_least_one("user_update.unroll", self.unroll)?;
        at_least_one("user_update.epochs", self.epochs)?;
        let name = self.algorithm.name();
        if self.algorithm != Algorithm::FedAvg && self.epochs != 1 {
            return Err(SettingsError::invalid(
                "user_update.epochs",
                format!("1 with {name}"),
                self.epochs,
            ));
        }
        if self.algorithm != Algorithm::FedAvg && self.batching == Batching::Stream {
            return Err(SettingsError::invalid(
                "user_update.batching",
                format!("`sentences` with {name}"),
                "stream",
            ));
        }
        if let Some(steps) = self.max_steps {
            at_least_one("user_update.max_steps", steps)?;
        }
        if self.algorithm != Algorithm::FedAvg && (self.max_steps.is_some() || !self.clip_every_step) {
            let key = match self.max_steps {
                Some(_) => "user_update.max_steps",
                None => "user_update.clip_every_step",
            };
            return Err(SettingsError::conflict(
                key,
                format!("algorithm {name} makes a single step per round"),
            ));
        }
        match self.algorithm.is_of_examples() {
            true => self.validate_of_examples(),
            false => self.validate_local(),
        }
    }

    /// Checks the keys of local training.
    fn validate_local(&self) -> Result<()> {
        let name = self.algorithm.name();
        let missing = |key: &str| {
            Err(SettingsError::missing(
                key,
                format!("a value for algorithm {name}"),
            ))
        };
        if self.batch_size.is_none() {
            return missing("user_update.batch_size");
        }
        let Some(learning_rate) = self.learning_rate else {
            return missing("user_update.learning_rate");
        };
        positive("user_update.learning_rate", learning_rate)?;
        if let Some(size) = self.group_size {
            return Err(SettingsError::invalid(
                "user_update.group_size",
                format!("`uls` or `els` as user_update.algorithm (`max_examples` with {name})"),
                size,
            ));
        }
        if let Some(examples) = self.max_examples {
            at_least_one("user_update.max_examples", examples)?;
        }
        self.weight_cap
            .map_or(Ok(()), |cap| positive("user_update.weight_cap", cap))
    }

    /// Checks the keys of gradients of single examples.
    fn validate_of_examples(&self) -> Result<()> {
        let name = self.algorithm.name();
        let Some(size) = self.group_size else {
            let expected = format!("a value for algorithm {name}");
            return Err(SettingsError::missing("user_update.group_size", expected));
        };
        at_least_one("user_update.group_size", size as usize)?;
        let others = [
            ("learning_rate", self.learning_rate, "`server.learning_rate`"),
            (
                "max_examples",
                self.max_examples.map(|max| max as f64),
                "`group_size`",
            ),
            ("weight_cap", self.weight_cap, "no weights"),
        ];
        for (key, value, instead) in others {
            if let Some(value) = value {
                let key = format!("user_update.{key}");
                return Err(SettingsError::invalid(
                    &key,
                    format!("{instead} with {name}"),
                    value,
                ));
            }
        }
        Ok(())
    }
}

fn positive(key: &str, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(SettingsError::invalid(key, "a finite number above 0", value))
    }
}

fn at_least_one(key: &str, value: usize) -> Result<()> {
    if value > 0 {
        Ok(())
    } else {
        Err(SettingsError::invalid(key, "at least 1", value))
    }
}

use crate::{error::Result, sequence::SequenceModel, word_lstm::WordLstm};
use serde::{Deserialize, Serialize};

/// A word model as a run file names it.
///
/// # Example
/// ```
/// let spec = undertone_models::ModelSpec::Dplm { embed: 96, hidden: 256, unit_norm: true };
/// let model = spec.build(10_003)?;
/// assert_eq!(model.layout().len(), 1_346_432);
/// # Ok::<(), undertone_models::ModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum ModelSpec {
    /// The tied LSTM of \[DPLM\].
    Dplm {
        /// Width of embeddings.
        #[serde(default = "default_embed")]
        embed: usize,
        /// Width of the LSTM state.
        #[serde(default = "default_dplm_hidden")]
        hidden: usize,
        /// Whether embedding rows are divided by their L2 norm.
        #[serde(default = "default_unit_norm")]
        unit_norm: bool,
    },
    /// The StackOverflow next-word LSTM.
    StackOverflow {
        /// Width of embeddings.
        #[serde(default = "default_embed")]
        embed: usize,
        /// Width of the LSTM state.
        #[serde(default = "default_stackoverflow_hidden")]
        hidden: usize,
    },
}

fn default_embed() -> usize {
    96
}

fn default_dplm_hidden() -> usize {
    256
}

fn default_unit_norm() -> bool {
    true
}

fn default_stackoverflow_hidden() -> usize {
    670
}

impl ModelSpec {
    /// The family's name in run files and reports.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self {
            Self::Dplm { .. } => "dplm",
            Self::StackOverflow { .. } => "stackoverflow",
        }
    }

    /// The model over a vocabulary of `vocab_len` ids (special tokens included).
    ///
    /// The StackOverflow model has one id more, the padding id of the published model, which no batch uses.
    ///
    /// # Errors
    /// A dimension of zero.
    pub fn build(&self, vocab_len: usize) -> Result<Box<dyn SequenceModel>> {
        Ok(match *self {
            Self::Dplm {
                embed,
                hidden,
                unit_norm,
            } => Box::new(WordLstm::tied(vocab_len, embed, hidden, unit_norm)?),
            Self::StackOverflow { embed, hidden } => {
                Box::new(WordLstm::untied(vocab_len.saturating_add(1), embed, hidden)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, parameters: usize, vocab_size: usize, groups: usize) {
        let spec: ModelSpec = serde_json::from_str(text).unwrap();
        let model = spec.build(10_003).unwrap();
        assert_eq!(model.layout().len(), parameters);
        assert_eq!(model.vocab_size(), vocab_size);
        assert_eq!(model.layout().groups().len(), groups);
    }

    #[test]
    fn published_sizes() {
        check(r#"{"family": "dplm"}"#, 1_346_432, 10_003, 11);
        check(r#"{"family": "stackoverflow"}"#, 4_050_748, 10_004, 13);
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in [
            r#"{"family": "dplm", "layers": 2}"#,
            r#"{"family": "gru"}"#,
            r#"{"family": "stackoverflow", "unit_norm": true}"#,
            r#"{"embed": 96}"#,
        ] {
            assert!(serde_json::from_str::<ModelSpec>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn zero_sizes_are_refused() {
        let message = |spec: ModelSpec, vocab| spec.build(vocab).err().unwrap().to_string();
        let dplm = |embed, hidden| ModelSpec::Dplm {
            embed,
            hidden,
            unit_norm: true,
        };
        assert_eq!(message(dplm(0, 4), 9), "`embed` must be at least 1, got 0");
        assert_eq!(message(dplm(4, 0), 9), "`hidden` must be at least 1, got 0");
        assert_eq!(message(dplm(4, 4), 1), "`vocab` must be at least 2, got 1");
    }
}

//! Which model a run trains: how many parameters, and which it leaves as they are.

use sha2::{Digest, Sha256};
use undertone_models::{ModelSpec, SequenceModel};

use crate::error::Result;
use undertone_present::numbers::{grouped, hex};

/// How many parameters a model trains, and how many it computes with beside them: what adapters are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterCounts {
    /// Parameters that training changes.
    pub trained: usize,
    /// Parameters that stay as they are, beside adapters.
    pub frozen: usize,
}

impl ParameterCounts {
    /// Of a model that nobody has the parameters of.
    ///
    /// # Errors
    /// As [`ModelSpec::layout`].
    pub fn of(spec: &ModelSpec, vocab_len: usize) -> Result<Self> {
        let len = |spec: &ModelSpec| spec.layout(vocab_len).map(|layout| layout.len());
        Ok(Self {
            trained: len(spec)?,
            frozen: spec.lora().map_or(Ok(0), |_| len(&spec.without_lora()))?,
        })
    }
}

impl std::fmt::Display for ParameterCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let trained = grouped(self.trained as u64);
        match self.frozen {
            0 => write!(f, "{trained} parameters"),
            frozen => write!(
                f,
                "{trained} trained parameters of {}",
                grouped((self.trained + frozen) as u64)
            ),
        }
    }
}

/// A model as ledgers and checkpoints know it.
#[derive(Debug, Clone)]
pub struct ModelIdentity {
    counts: ParameterCounts,
    frozen_sha256: Option<String>,
}

impl ModelIdentity {
    /// The identity of a model.
    #[must_use]
    pub fn new(model: &dyn SequenceModel) -> Self {
        let frozen = model.frozen();
        Self {
            counts: ParameterCounts {
                trained: model.layout().len(),
                frozen: frozen.len(),
            },
            frozen_sha256: (!frozen.is_empty()).then(|| digest_of(frozen)),
        }
    }

    /// How many parameters the model has.
    #[must_use]
    pub fn counts(&self) -> ParameterCounts {
        self.counts
    }

    /// Hex SHA-256 of the frozen parameters, where there are any.
    #[must_use]
    pub fn frozen_sha256(&self) -> Option<&str> {
        self.frozen_sha256.as_deref()
    }

    /// Family and size, as checkpoints name the model: one with adapters is another model on another base.
    #[must_use]
    pub fn name(&self, family: &str) -> String {
        let trained = self.counts.trained;
        match &self.frozen_sha256 {
            None => format!("{family} ({trained} parameters)"),
            Some(base) => format!("{family} ({trained} parameters of adapters to those of SHA-256 {base})"),
        }
    }

    /// Hex SHA-256 of the model with these parameters: of them, behind the digest of the frozen ones where there are any.
    #[must_use]
    pub fn digest(&self, parameters: &[f32]) -> String {
        let trained = digest_of(parameters);
        match &self.frozen_sha256 {
            None => trained,
            Some(frozen) => hex(&Sha256::digest(format!("{frozen}{trained}").as_bytes())),
        }
    }
}

/// Hex SHA-256 of parameters as little-endian bytes.
#[must_use]
pub fn digest_of(parameters: &[f32]) -> String {
    let mut hasher = Sha256::new();
    let mut buffer = [0; 4096];
    for block in parameters.chunks(buffer.len() / 4) {
        for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(block) {
            *bytes = value.to_le_bytes();
        }
        hasher.update(&buffer[..4 * block.len()]);
    }
    hex(&hasher.finalize())
}

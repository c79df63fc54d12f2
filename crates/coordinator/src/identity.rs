//! The identity of the model that a run trains: its trained and its frozen parameters.

use sha2::{Digest, Sha256};
use undertone_models::{ModelSpec, SequenceModel};

use crate::error::Result;
use undertone_present::numbers::{grouped, hex};

/// The numbers of trained and of frozen parameters of a model. Adapters are added to the frozen ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterCounts {
    /// Number of parameters that training changes.
    pub trained: usize,
    /// Number of parameters that stay as they are, beside adapters.
    pub frozen: usize,
}

impl ParameterCounts {
    /// The counts of a model whose parameters are not there.
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

/// The name and the digests of a model in ledgers and checkpoints.
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

    /// The numbers of parameters of the model.
    #[must_use]
    pub fn counts(&self) -> ParameterCounts {
        self.counts
    }

    /// Hex SHA-256 of the frozen parameters, where there are any.
    #[must_use]
    pub fn frozen_sha256(&self) -> Option<&str> {
        self.frozen_sha256.as_deref()
    }

    /// The name of the model in checkpoints: family and size. With adapters it also holds the base.
    #[must_use]
    pub fn name(&self, family: &str) -> String {
        let trained = self.counts.trained;
        match &self.frozen_sha256 {
            None => format!("{family} ({trained} parameters)"),
            Some(base) => format!("{family} ({trained} parameters of adapters to those of SHA-256 {base})"),
        }
    }

    /// Hex SHA-256 of the model with these parameters: the digest of the frozen ones, where there are any, and the parameters.
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

//! The table `[engine]` of a run file: the machine that trains the users of a run.

use serde::{Deserialize, Serialize};

/// Number of users that a GPU trains at once where a run file does not say it.
const USERS: usize = 64;

/// The sentence of a run on a GPU about the assumptions of its guarantee.
const ASSUMES_THE_GPU: &str = "A GPU computed the updates and their sum. The guarantee assumes that it computes what its kernels say. The \
     sum is one of integers, so it has the bits that the processor would give. A user's update is computed from that user's text and \
     the model alone. In each round the processor computed the exact norm of one user again, chosen at random.";

/// `[engine]`: the machine that trains users. It decides the last bits of the model, so it is a part of the run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EngineConfig {
    /// The processor, with one user per core at a time.
    #[default]
    Processor,
    /// An NVIDIA GPU, with many users at a time. `CUDA_VISIBLE_DEVICES` chooses one of several.
    Gpu {
        /// Number of users that are trained at once. The result does not depend on it.
        #[serde(default = "users")]
        users: usize,
        /// The numbers that products were made of.
        #[serde(default)]
        precision: Precision,
    },
    /// The kernels of the GPU on the processor. They give the bits of the GPU, far more slowly than `processor` trains.
    Emulator {
        /// Number of users that are trained at once. The result does not depend on it.
        #[serde(default = "users")]
        users: usize,
        /// The numbers that products were made of.
        #[serde(default)]
        precision: Precision,
    },
}

/// The numbers that the products of local training were made of. A run of today has [`F32`](Self::F32).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Factors rounded to bfloat16, which runs of transformers in version 0.2.0 could have.
    Bf16,
}

fn users() -> usize {
    USERS
}

impl EngineConfig {
    /// Max number of users that a GPU trains at once.
    pub const MAX_USERS: usize = 65_535;

    /// `true` for the processor, which run files need not name.
    #[must_use]
    pub fn is_processor(&self) -> bool {
        *self == Self::Processor
    }

    /// The assumption about the machine that the guarantee rests on, where there is one.
    #[must_use]
    pub fn assumption(self) -> Option<&'static str> {
        matches!(self, Self::Gpu { .. }).then_some(ASSUMES_THE_GPU)
    }
}

//! `[engine]`: the machine that trains the users of a run.

use serde::{Deserialize, Serialize};
use undertone_coordinator::task::TaskConfig;
use undertone_data::Partition;
use undertone_gpu::{Capacity, GpuEngine, Trainer};
use undertone_gpu_sum::Emulator;
use undertone_local::{CpuEngine, Engine};
use undertone_models::{ModelSpec, SequenceModel};

use crate::error::{Result, RunError};

/// Number of users that a GPU trains at once where a run file does not say it.
const USERS: usize = 64;

/// The sentence of a run on a GPU about the assumptions of its guarantee.
const ASSUMES_THE_GPU: &str = "A GPU computed the updates and their sum. The guarantee assumes that it computes what its kernels say. The \
     sum is one of integers, so it has the bits that the processor would give. A user's update is computed from that user's text and \
     the model alone. In each round the processor computed the exact norm of one user again, chosen at random.";

/// `[engine]`: the machine that trains users. It decides the last bits of the model, so it is a part of the run file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// `true` for the processor, which run files need not name.
    pub(crate) fn is_processor(&self) -> bool {
        *self == Self::Processor
    }

    /// Refuses a task that the machine could never train. Runs of transformers that version 0.2.0 trained on it are read and verified.
    ///
    /// # Errors
    /// An error that names the key.
    pub(crate) fn validate(self, task: &TaskConfig) -> Result<()> {
        let (Self::Gpu { users, precision } | Self::Emulator { users, precision }) = self else {
            return Ok(());
        };
        if !(1..=undertone_gpu::MAX_SLOTS).contains(&users) {
            let expected = format!("from 1 to {}", undertone_gpu::MAX_SLOTS);
            return Err(RunError::value("engine.users", expected, users));
        }
        if task.aggregation.is_some() {
            let remedy = "remove one of them: updates that a secure sum encodes are trained on the processor";
            return Err(RunError::conflict("aggregation", "engine.kind", remedy));
        }
        if is_transformer(&task.model) {
            return Ok(());
        }
        if precision != Precision::F32 {
            return Err(RunError::value("engine.precision", "`f32`", "bf16"));
        }
        Ok(undertone_gpu::check(&task.model, &task.user_update)?)
    }

    /// Refuses a task that the machine no longer trains. It is asked where training starts, not where a file is read.
    ///
    /// # Errors
    /// An error that names the key and another way to train.
    pub(crate) fn check_start(self, task: &TaskConfig) -> Result<()> {
        if self.is_processor() || !is_transformer(&task.model) {
            return Ok(());
        }
        let expected = "`dplm`, `stackoverflow` or `cifg` beside the table `engine`: leave out `engine`, and the processor trains this \
             family; or train it on a GPU from PyTorch, as docs/guide/from-pytorch.md shows";
        Err(RunError::value("model.family", expected, task.model.family()))
    }

    /// The assumption about the machine that the guarantee rests on, where there is one.
    pub(crate) fn assumption(self) -> Option<&'static str> {
        matches!(self, Self::Gpu { .. }).then_some(ASSUMES_THE_GPU)
    }

    /// Takes the machine for the users of a partition.
    ///
    /// # Errors
    /// The GPU cannot be used, has too little memory, or does not compute what its kernels say; the model has another family.
    pub(crate) fn open(
        self,
        task: &TaskConfig,
        model: &dyn SequenceModel,
        users: &Partition<'_>,
        threads: usize,
    ) -> Result<Box<dyn Engine>> {
        match self {
            Self::Processor => Ok(Box::new(processor(task, model, users, threads))),
            Self::Emulator { users: slots, .. } => on(Emulator::default(), slots, task, model, users),
            #[cfg(feature = "cuda")]
            Self::Gpu { users: slots, .. } => on(undertone_gpu::open(0)?, slots, task, model, users),
            #[cfg(not(feature = "cuda"))]
            Self::Gpu { .. } => {
                let expected =
                    "`processor` or `emulator`, because this program was built without the feature `cuda`";
                Err(RunError::value("engine.kind", expected, "gpu"))
            }
        }
    }
}

/// Returns true for the families of transformers.
fn is_transformer(model: &ModelSpec) -> bool {
    model.context().is_some()
}

/// The engine of the processor for the users of a partition.
pub(crate) fn processor(
    task: &TaskConfig,
    model: &dyn SequenceModel,
    users: &Partition<'_>,
    threads: usize,
) -> CpuEngine {
    let (longest, max_examples) = sizes(users);
    CpuEngine::new(model, &task.user_update, threads, longest, max_examples)
}

/// Number of tokens of the longest example.
#[must_use]
pub fn longest_example(users: &Partition<'_>) -> usize {
    users
        .users()
        .flat_map(|user| user.examples().map(<[u32]>::len))
        .max()
        .unwrap_or(0)
}

/// The longest example in tokens, and the largest number of examples of a user.
fn sizes(users: &Partition<'_>) -> (usize, usize) {
    let max_examples = users.users().map(|user| user.num_examples()).max().unwrap_or(0);
    (longest_example(users), max_examples)
}

fn on<M: Trainer + Clone + 'static>(
    machine: M,
    slots: usize,
    task: &TaskConfig,
    model: &dyn SequenceModel,
    users: &Partition<'_>,
) -> Result<Box<dyn Engine>> {
    let (longest, max_examples) = sizes(users);
    let settings = &task.user_update;
    let capacity = Capacity {
        users: slots,
        longest,
        max_examples,
    };
    let engine = GpuEngine::new(machine, &task.model, model, settings, capacity)?;
    Ok(Box::new(engine))
}

//! The machine that trains the users of a run, by `[engine]`.

use undertone_coordinator::task::TaskConfig;
use undertone_data::Partition;
#[cfg(feature = "gpu")]
use undertone_gpu::{Capacity, GpuEngine, Trainer};
#[cfg(feature = "gpu")]
use undertone_gpu_sum::Emulator;
use undertone_local::{CpuEngine, Engine};
use undertone_models::{ModelSpec, SequenceModel};

use undertone_settings::EngineConfig;

use crate::error::{Result, RunError};

/// Refuses a task that the machine no longer trains. It is asked where training starts, not where a file is read.
///
/// # Errors
/// An error that names the key and another way to train.
pub(crate) fn check_start(engine: EngineConfig, task: &TaskConfig) -> Result<()> {
    if engine.is_processor() || !is_transformer(&task.model) {
        return Ok(());
    }
    let expected = "`dplm`, `stackoverflow` or `cifg` beside the table `engine`: leave out `engine`, and the processor trains this \
         family; or train it on a GPU from PyTorch, as docs/guide/from-pytorch.md shows";
    Err(RunError::value("model.family", expected, task.model.family()))
}

/// Takes the machine for the users of a partition.
///
/// # Errors
/// The GPU cannot be used, has too little memory, or does not compute what its kernels say; the model has another family.
pub(crate) fn open(
    engine: EngineConfig,
    task: &TaskConfig,
    model: &dyn SequenceModel,
    users: &Partition<'_>,
    threads: usize,
) -> Result<Box<dyn Engine>> {
    match engine {
        EngineConfig::Processor => Ok(Box::new(processor(task, model, users, threads))),
        #[cfg(feature = "gpu")]
        EngineConfig::Emulator { users: slots, .. } => on(Emulator::default(), slots, task, model, users),
        #[cfg(feature = "cuda")]
        EngineConfig::Gpu { users: slots, .. } => on(undertone_gpu::open(0)?, slots, task, model, users),
        #[cfg(not(feature = "gpu"))]
        EngineConfig::Emulator { .. } | EngineConfig::Gpu { .. } => {
            let expected =
                "`processor`, because this program was built without the features `gpu` and `cuda`";
            let got = match engine {
                EngineConfig::Emulator { .. } => "emulator",
                _ => "gpu",
            };
            Err(RunError::value("engine.kind", expected, got))
        }
        #[cfg(all(feature = "gpu", not(feature = "cuda")))]
        EngineConfig::Gpu { .. } => {
            let expected =
                "`processor` or `emulator`, because this program was built without the feature `cuda`";
            Err(RunError::value("engine.kind", expected, "gpu"))
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

#[cfg(feature = "gpu")]
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

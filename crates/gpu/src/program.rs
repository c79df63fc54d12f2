//! The programs of the models: which kernels a local step calls, and where their arrays lie.

use undertone_local::{Algorithm, Batching, LocalError, UserSettings};
use undertone_models::{ModelSpec, SequenceModel};

use crate::call::{Call, Kernel, Precision};
use crate::frame::{Extents, Frame, Launch};
use crate::recurrent::{Recurrent, Shape};
use crate::transformer::TransformerProgram;

/// Makes the calls of the kernels for a model.
pub(crate) enum Program {
    /// An LSTM or a CIFG.
    Recurrent(Box<Recurrent>),
    /// A decoder-only transformer.
    Transformer(Box<TransformerProgram>),
}

/// Numbers of the present batches, over all slots.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    /// Rows of the largest batch.
    pub(crate) rows: u32,
    /// Tokens of the longest sequence.
    pub(crate) steps: u32,
    /// Sequences of the batch with most of them.
    pub(crate) sequences: u32,
}

/// Refuses a model or an algorithm that the engine does not know.
///
/// # Errors
/// An error that names the key of the run file.
pub(crate) fn check(
    spec: &ModelSpec,
    settings: &UserSettings,
    precision: Precision,
) -> Result<(), LocalError> {
    let (transformer, name) = (spec.context().is_some(), settings.algorithm.name());
    if !transformer && !Shape::knows(spec) {
        let expected = "`dplm`, `stackoverflow`, `cifg`, `transformer` or `llama`";
        return Err(unusable("model.family", expected, spec.family()));
    }
    if !transformer && precision != Precision::F32 {
        let expected = format!("`f32` with model.family = `{}`", spec.family());
        return Err(unusable("engine.precision", &expected, "bf16"));
    }
    match settings.algorithm {
        Algorithm::FedAvg if transformer && settings.batching == Batching::Stream => {
            Err(unusable("user_update.batching", "`sentences`", "stream"))
        }
        Algorithm::FedAvg => Ok(()),
        Algorithm::Uls if transformer => Ok(()),
        _ if transformer => Err(unusable("user_update.algorithm", "`fedavg` or `uls`", name)),
        _ => Err(unusable("user_update.algorithm", "`fedavg`", name)),
    }
}

impl Program {
    /// The program of a model, for batches of these extents.
    ///
    /// # Errors
    /// A model of another family.
    pub(crate) fn new(
        spec: &ModelSpec,
        model: &dyn SequenceModel,
        settings: &UserSettings,
        extents: Extents,
    ) -> Result<Self, LocalError> {
        match spec.transformer(model.vocab_size())? {
            Some(transformer) => {
                let algorithm = settings.algorithm;
                let program = TransformerProgram::new(spec, &transformer, model, algorithm, extents)?;
                Ok(Self::Transformer(Box::new(program)))
            }
            None => {
                let shape = Shape::new(spec, model.layout())?;
                Ok(Self::Recurrent(Box::new(Recurrent::new(shape, extents))))
            }
        }
    }

    pub(crate) fn frame(&self) -> &Frame {
        match self {
            Self::Recurrent(program) => program.frame(),
            Self::Transformer(program) => program.frame(),
        }
    }

    /// Values that never change, and where they stand behind the workspaces.
    pub(crate) fn constants(&self) -> Vec<(u64, &[f32])> {
        match self {
            Self::Recurrent(_) => Vec::new(),
            Self::Transformer(program) => program.constants(),
        }
    }

    /// Tokens of the longest sequence that the model knows, where rows stand sequence after sequence. `None` where they stand step after
    /// step.
    pub(crate) fn context(&self) -> Option<usize> {
        match self {
            Self::Recurrent(_) => None,
            Self::Transformer(program) => Some(program.context()),
        }
    }

    /// The parameters of each slot start as those of the round, or become its update. A gradient starts at zero and is the update.
    pub(crate) fn whole(&self, kernel: Kernel, algorithm: Algorithm) -> Launch {
        let mode = u32::from(algorithm != Algorithm::FedAvg);
        let call = Call {
            mode,
            ..self.frame().call()
        };
        (kernel, self.frame().parameters as u64, call)
    }

    /// The calls of a local step. With `carries`, states go from batch to batch.
    pub(crate) fn step(&self, sizes: Sizes, learning_rate: f32, carries: bool) -> Vec<Launch> {
        match self {
            Self::Recurrent(program) => program.step(sizes.rows, sizes.steps, learning_rate, carries),
            Self::Transformer(program) => program.step(sizes, learning_rate),
        }
    }
}

/// The error of a setting that training on a GPU does not know.
pub(crate) fn unusable(key: &str, expected: &str, got: &str) -> LocalError {
    LocalError::Setting {
        key: key.to_owned(),
        expected: format!("{expected} on a GPU"),
        got: got.to_owned(),
    }
}

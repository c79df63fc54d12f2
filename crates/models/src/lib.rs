//! Models over flat parameters: forward and backward passes, plain SGD steps, evaluation.
//!
//! A model is a [`ParamLayout`](undertone_aggregation::ParamLayout) and an explicit backward pass over a handful of
//! kernels; a worker computes its steps for one thread, in memory taken once, at the speed of the machine's vector
//! unit (chosen at run time).
//!
//! ```
//! use undertone_models::{ModelSpec, PackedBatch, StateMode};
//! let model = ModelSpec::Dplm { embed: 8, hidden: 12, unit_norm: true }.build(20)?;
//! let mut params = model.initial_params(1);
//! let mut worker = model.worker(2, 16);
//! let mut packed = PackedBatch::default();
//! let batch = packed.pack(&[(&[1, 7, 5], &[7, 5, 2]), (&[1, 5], &[5, 2])]);
//! let first = worker.sgd_step(&mut params, &batch, 0.5, StateMode::Zero)?;
//! let second = worker.sgd_step(&mut params, &batch, 0.5, StateMode::Zero)?;
//! assert!(second.mean_loss() < first.mean_loss());
//! # Ok::<(), undertone_models::ModelError>(())
//! ```
//!
//! It does no I/O, reads no clock and no global randomness, knows nothing of users or privacy, and has no optimizer
//! but plain SGD. Models: the tied LSTM of McMahan et al. (ICLR 2018, section 3), the StackOverflow LSTM of McMahan, Xu
//! and Zhang (section 5) the CIFG-LSTM of Xu et al. (2023) and a decoder-only transformer, see [`ModelSpec`]; a multilayer perceptron, see [`Mlp`].

mod batch;
mod error;
mod explicit;
mod initial;
mod kernels;
mod mlp;
mod scalar;
mod sequence;
mod sizes;
mod spec;
mod target;
#[cfg(test)]
mod testing;
mod transformer;
pub mod weights;
mod word_lstm;

pub use batch::{IGNORE, PackedBatch, SequenceBatch};
pub use error::{ModelError, Result};
pub use mlp::{DenseBatch, Mlp, MlpWorker};
pub use scalar::Scalar;
pub use sequence::{SequenceModel, SequenceWeights, SequenceWorker, StateMode, StepStats};
pub use sizes::MAX_PARAMETERS;
pub use spec::{Loaded, ModelSpec};
pub use transformer::{LoraSpec, LoraTarget, Positions, Transformer, TransformerSizes};
pub use word_lstm::WordLstm;

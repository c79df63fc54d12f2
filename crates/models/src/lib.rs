#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`ModelSpec`], [`Loaded`] | the models by name, and a model with its parameters |
//! | [`SequenceModel`], [`SequenceWorker`], [`StepStats`] | a model, and the steps that one thread computes |
//! | [`PackedBatch`], [`SequenceBatch`], [`IGNORE`] | sequences packed time-major |
//! | [`WordLstm`] | the LSTMs |
//! | [`Transformer`], [`TransformerSizes`], [`LoraSpec`] | the decoder-only transformer, and its low-rank adapters |
//! | [`Decoder`], [`Extension`], [`DecoderOptions`], [`Drafting`] | predictions, token by token, and guesses of several |
//! | [`ExternalTensor`] | a tensor of a model that another program trains |
//! | [`weights`] | parameters in safetensors files |
//!
//! # Notes
//!
//! [`ModelSpec`] names the models: the tied LSTM of McMahan et al. (ICLR 2018, section 3), the StackOverflow LSTM of McMahan, Xu and Zhang
//! (section 5), the CIFG-LSTM of Xu et al. (2023) and a decoder-only transformer. A model's parameters are described by a
//! [`ParamLayout`](undertone_aggregation::ParamLayout). The crate does no I/O and reads neither a clock nor global randomness. A decoder starts the
//! threads that its caller asks for.

mod batch;
mod decoder;
mod error;
mod explicit;
mod external;
mod initial;
mod kernels;
mod scalar;
mod sequence;
mod sizes;
mod spec;
mod target;
mod tensors;
#[cfg(test)]
mod testing;
mod transformer;
pub mod weights;
mod word_lstm;

pub use batch::{IGNORE, PackedBatch, SequenceBatch};
pub use decoder::{Decoder, DecoderOptions, Drafting, Extension};
pub use error::{ModelError, Result};
pub use external::ExternalTensor;
pub use scalar::Scalar;
pub use sequence::{SequenceModel, SequenceWeights, SequenceWorker, StateMode, StepStats};
pub use spec::{LlamaSpec, Loaded, ModelSpec};
pub use transformer::{
    Architecture, BlockMatrix, FeedForward, Gate, LocalRotary, LoraSpec, Norm, Positions, RotaryScaling,
    SoftCaps, Transformer, TransformerSizes,
};
pub use word_lstm::WordLstm;

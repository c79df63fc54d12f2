#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`ParamLayout`], [`TensorSpec`], [`Block`] | the tensors in a flat vector of parameters |
//! | [`Clipping`], [`Bound`], [`NonFinite`] | the bound on one contribution |
//! | [`BoundedSum`], [`Added`], [`ClipReport`] | a sum that clips whatever it adds |
//! | [`UserSeeds`], [`UserOutcome`], [`MicrobatchOutcome`] | the secrets of a user in a round, and the reports of what was added |
//! | [`GpuPart`], [`GpuSum`], [`GpuUnits`], [`Factor`], [`Limbs`] | the part of a sum that lies in the memory of an accelerator |
//! | [`Estimator`], [`user_weight`] | averages with their sensitivities |
//! | [`Encoding`], [`Encoder`], [`RoundEncoding`] | updates as integers modulo `M` |
//! | [`ModularVec`], [`ModularSum`], [`Modulus`] | vectors and sums of residues |
//! | [`pack`] | residues on the wire |
//! | [`Rotation`], [`walsh_hadamard`] | the random rotation before an encoding |
//! | [`Wiped`], [`UpdateBytes`], [`Values`] | memory that is wiped, and updates as bytes |
//!
//! # Notes
//!
//! Sums leave this crate as a [`RawSum`](undertone_mechanisms::RawSum) and its sensitivity. An [`Encoding`] turns updates into
//! integers for secure sums. The crate does no accounting, draws no random numbers and does no I/O.
//!
//! Paper: McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018 (\[DPLM\]), section 2.2
//! and Lemma 1.

mod bounded;
mod clip;
mod contribution;
mod encoding;
mod error;
mod estimator;
mod hadamard;
mod layout;
mod modular;
pub mod pack;
mod rotation;
mod sum;
mod weight;
mod wiped;

pub use bounded::{Added, Bound, BoundedSum, Factor, GpuPart, GpuSum, GpuUnits, Measured, NonFinite};
pub use clip::{ClipReport, Clipping, Limbs};
pub use contribution::{CLIP_MARGIN, MicrobatchOutcome, UserOutcome, UserSeeds};
pub use encoding::{
    Encoder, Encoding, EncodingConfig, EncodingKind, EncodingSize, Levels, MeanSquaredError, NoiseDomain,
    RoundEncoding, Sensitivity,
};
pub use error::{AggregationError, Result};
pub use estimator::Estimator;
pub use hadamard::{Transformable, walsh_hadamard};
pub use layout::{Block, ClipGroup, ParamLayout, TensorSpec};
pub use modular::{Lane, ModularSum, ModularVec, Modulus};
pub use rotation::Rotation;
pub use sum::{SUM_LIMIT, UPDATE_LIMIT};
pub use weight::user_weight;
pub use wiped::{UpdateBytes, Values, Wiped};

#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`UnitSlots`] | the updates of units in the memory of a machine, as a part of a bounded sum |
//! | [`Machine`], [`Word`], [`Span`] | the seam to a machine that runs the kernels |
//! | [`Emulator`] | the kernels on the processor |
//! | `Cuda` | an NVIDIA GPU, with the feature `cuda` |
//! | [`self_test()`] | a comparison of the kernels with known answers |
//!
//! # Notes
//!
//! `docs/design/gpu.md` in the repository states the two assumptions that remain, and how each is tested.

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod machine;
mod raw;
mod self_test;
mod slots;

pub use error::{GpuError, Result};
pub use machine::{Machine, Span, Word};
#[cfg(feature = "cuda")]
pub use raw::cuda::Cuda;
pub use raw::emulator::Emulator;
pub use self_test::self_test;
pub use slots::UnitSlots;

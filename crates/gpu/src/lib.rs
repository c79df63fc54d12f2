#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`GpuEngine`] | the engine: users in slots, and their updates handed to a sink where they lie |
//! | [`check()`], [`Capacity`], [`MAX_SLOTS`] | what the engine can train |
//! | [`self_test()`] | a comparison of a machine with the emulator |
//! | `open` | an NVIDIA GPU, with the feature `cuda` |
//! | [`Trainer`], [`TrainingMemory`] | the seam to a machine that runs the kernels |
//! | [`Kernel`], [`Call`] | a kernel and its arguments |
//!
//! # Notes
//!
//! `docs/design/gpu.md` in the repository states what is assumed of a GPU, and how each assumption is tested.

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod call;
mod check;
mod engine;
mod frame;
mod machine;
mod projection;
mod raw;
mod recurrent;
mod self_test;
mod table;
#[cfg(test)]
mod tests;

pub use call::{Call, Kernel};
pub use check::check;
pub use engine::{Capacity, GpuEngine, MAX_SLOTS};
pub use machine::{Trainer, TrainingMemory};
#[cfg(feature = "cuda")]
pub use raw::cuda::open;
pub use self_test::self_test;

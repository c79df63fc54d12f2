#![doc = include_str!("../README.md")]
//!
//! A device in this crate is an accelerator such as a GPU. In other crates a device is a phone that takes part in a federated task.
//! `docs/design/gpu.md` in the repository states the two assumptions that remain, and how each is tested.

mod error;
mod machine;
mod raw;
mod self_test;
mod slots;

pub use error::{DeviceError, Result};
pub use machine::{Machine, Span, Word};
#[cfg(feature = "cuda")]
pub use raw::cuda::Cuda;
pub use raw::emulator::Emulator;
pub use self_test::self_test;
pub use slots::UnitSlots;

/// The source of the kernels, in C, as NVRTC compiles it.
pub const KERNELS: &str = include_str!("../kernels/bound.c");

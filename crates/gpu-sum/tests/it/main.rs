//! The kernels and their emulator from outside.

mod common;
mod faults;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod no_gpu;
mod self_test;
mod sums;

//! The numeric kernels the models are written over, each compiled for several instruction sets.

// Kernels index several slices and arrays in lockstep; an iterator over one of them would hide the symmetry.
#![allow(clippy::needless_range_loop)]

pub(crate) mod causal;
pub(crate) mod cifg;
pub(crate) mod coarse;
pub(crate) mod gated;
pub(crate) mod gelu;
pub(crate) mod isa;
pub(crate) mod layer_norm;
pub(crate) mod lstm;
pub(crate) mod matmul;
pub(crate) mod pack;
pub(crate) mod rms_norm;
pub(crate) mod soft_cap;
pub(crate) mod softmax;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tile_avx512;
pub(crate) mod transpose;
#[cfg(target_arch = "x86_64")]
pub(crate) mod transpose_avx512;
pub(crate) mod vector;

//! The unsafe code of this crate: calls of the kernels, on the processor and on a GPU. Each call checks what it hands over.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod emulator;

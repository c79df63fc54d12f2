//! The machines: the only code without the compiler's checks.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod emulator;

#![doc = include_str!("../README.md")]
//!
//! This crate is the border to C, the only place of the device that needs unsafe code. Each block says why it is sound. The header
//! states the other side's promises: pointers are null or valid, strings end with a zero byte, and arrays have the room that a call names.

#![expect(non_camel_case_types, reason = "these are the names of the C interface")]

mod device;
mod failure;
mod handles;
mod host;
mod predict;
mod text;
mod types;

pub use device::*;
pub use failure::*;
pub use host::*;
pub use predict::*;
pub use types::*;

/// The version of this interface. A program compares it with `UT_ABI_VERSION` of its header. A function, a status or a member at the
/// end of `ut_host` may be added within a version.
pub const UT_ABI_VERSION: u32 = 1;

/// Returns the version of the interface that the library was built with.
#[unsafe(no_mangle)]
pub extern "C" fn ut_abi_version() -> u32 {
    UT_ABI_VERSION
}

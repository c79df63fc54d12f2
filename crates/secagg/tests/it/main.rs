//! The secure sum from outside, and each attack on it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod attacks;
mod availability;
mod floors;
mod harness;
mod inputs;
mod issuer;
mod malformed;
#[cfg(target_os = "linux")]
mod memory;
mod opened;
mod sequences;
mod splits;
mod sums;
mod uniform;
mod vectors;

//! The accountant from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod audit;
mod borders;
mod faults;
mod pld;
mod properties;

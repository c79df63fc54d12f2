//! The public behaviour of the crate.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod size_guide;

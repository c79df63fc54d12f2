//! The public behaviour of the crate.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod polls_during_a_release;

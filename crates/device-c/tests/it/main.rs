//! The interface in C from outside, and its header.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod header;
mod interface;

//! The tables of people and their text, from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod corpora;
#[cfg(unix)]
mod git;
mod real_text;
mod support;
#[path = "../../src/testing.rs"]
mod testing;

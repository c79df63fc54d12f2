//! Corpora through the public interface: what comes of good sources, and what is said of bad ones.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod bad_input;
mod corpus;
mod import;
mod languages;
mod memory;
mod support;
#[path = "../../src/testing.rs"]
mod testing;

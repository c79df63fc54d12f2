//! Corpora through the public interface: what comes of good sources, and what is said of bad ones.

mod bad_input;
mod corpus;
mod import;
mod languages;
mod memory;

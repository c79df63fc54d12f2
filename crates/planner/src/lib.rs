#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`account`] | the arguments of `undertone account` and their answers |
//! | [`population`] | the arguments of `undertone plan` and their answers |
//! | [`answer`] | the answer to a command line of either |
//! | [`Shown`] | an answer as a JSON document and as text |

#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]

pub mod account;
mod files;
mod line;
#[cfg(target_family = "wasm")]
mod page;
pub mod population;
mod shown;

pub use line::answer;
pub use shown::{Progress, Shown};

/// The heading of options that belong to no group, which clap calls "Options". An option behind flattened ones needs it: without
/// a heading of its own it would get theirs.
const NO_GROUP: Option<&str> = None;

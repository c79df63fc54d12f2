//! Studies of runs from outside: replays, and folders that a forger has changed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod forger;
mod ranks;
mod replays;
#[path = "../support/mod.rs"]
mod support;

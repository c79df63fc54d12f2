//! The device as an app embeds it: its files, its driver and its keys.

#![allow(clippy::unwrap_used)]

mod clocks;
mod enrolment;
#[path = "../harness/mod.rs"]
mod harness;
mod lab;
mod participation;
mod waiting;

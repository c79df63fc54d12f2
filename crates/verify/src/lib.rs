#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`verify`](fn@verify), [`Verification`], [`Check`] | the claims of a directory, made again from its files |
//! | [`publish`](fn@publish), [`Published`] | a release for strangers |
//! | [`obstacles`], [`release`] | all that the guarantee of a model does not cover |
//! | [`read_lane`], [`read_replays`] | the lane and the replays of a run, checked |

#![forbid(unsafe_code)]

mod publish;
#[cfg(test)]
mod task_tests;
mod verify;

pub use publish::{Published, publish};
pub use verify::{Check, Verification, obstacles, read_lane, read_replays, release, verify};

#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`task`] | everything about a training that privacy depends on, as one value |
//! | [`plan`] | clip norm, noise and cost of each round, before the first one |
//! | [`cohorts`] | the users of each round |
//! | [`sampling`], [`participation`] | the schemes of sampling, and schemas of participation: policies, timers, what a ledger shows |
//! | [`kept_examples`] | example-level sampling |
//! | [`head`] | a training between two rounds, and the only way from one round to the next |
//! | [`source`] | the sum of a round, and the source that gathers it |
//! | [`adaptive_clip`] | a clip norm that follows a quantile |
//! | [`server_optimizer`] | SGD, Adam, AdamW and Adafactor on released averages |
//! | [`record`], [`chain`] | the lines of a ledger, and the digests that chain them |
//! | [`account`] | the guarantee of the rounds in a ledger |
//! | [`privacy_report`] | `privacy.json` |
//! | [`outlet`] | the obstacles in front of everything that leaves the house |
//! | [`identity`], [`trainings`] | the identity of a model, and the trainings that it comes from |
//! | [`random`], [`entropy`] | the randomness of a run, and that of one round |
//! | [`session_terms`] | the names of secure sums |
//! | [`CoordinatorError`] | the errors, which name a key or a round |
//!
//! # Notes
//!
//! Sources: \[DPLM\] Algorithm 1 (McMahan et al., ICLR 2018); \[Gboard\] Algorithm 1 (Xu et al., 2023); \[BLT\] section 5
//! (McMahan et al., 2024); \[UserDP\] Algorithms 1 and 2 (Charles et al., 2024).

#![forbid(unsafe_code)]

pub mod account;
pub mod adaptive_clip;
pub mod chain;
pub mod cohorts;
pub mod entropy;
mod error;
pub mod head;
pub mod identity;
pub mod kept_examples;
mod noise;
pub mod outlet;
mod participant;
pub mod participation;
pub mod plan;
pub mod privacy_report;
pub mod random;
pub mod record;
pub mod sampling;
pub mod server_optimizer;
pub mod session_terms;
pub mod source;
pub mod task;
pub mod trainings;
mod violation;

pub use error::{CoordinatorError, Result};

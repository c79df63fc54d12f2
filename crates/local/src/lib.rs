#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`LocalTask`], [`LocalWorker`], [`LocalOutcome`] | the work of one user in one round |
//! | [`UserBatches`], [`Steps`] | the examples that a user trains on in one round, and the local steps over them |
//! | [`batch`] | the examples of one user as batches |
//! | [`Engine`], [`CpuEngine`], [`UpdateSink`] | the seam to the machine that computes updates |
//! | [`on_threads`] | one thread per worker |
//!
//! # Notes
//!
//! Sources: \[DPLM\] Algorithm 1 (McMahan et al., ICLR 2018); \[UserDP\] Algorithms 1 and 2 (Charles et al., 2024).

#![forbid(unsafe_code)]

pub mod batch;
mod engine;
mod error;
mod update;
mod user_batches;
mod workers;

pub use engine::{CohortText, CpuEngine, Engine, EngineError, EngineTimes, UpdateSink, Work, check_units};
pub use error::{LocalError, Result};
pub use update::{LocalOutcome, LocalTask, LocalWorker};
pub use user_batches::{Steps, UserBatches};
pub use workers::on_threads;

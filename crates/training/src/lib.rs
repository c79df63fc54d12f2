//! Training with user-level differential privacy: user updates, cohorts, the round, the server optimizer, ledger,
//! checkpoints, evaluation and reports.
//!
//! A run is a value: [`config::RunConfig`] goes in, a run directory comes out. The guarantee is computed before training,
//! enforced during it and recomputed from the ledger after it.
//!
//! ```no_run
//! use undertone_training::{config::RunFile, run};
//!
//! let file = RunFile::read("examples/quickstart.toml".as_ref(), &[])?;
//! let options = run::RunOptions { out: "runs".into(), threads: 2, resume: false };
//! let summary = run::train(&file, &options, &run::Silent)?;
//! println!("{:.2} % at {:?}", 100.0 * summary.metrics.top1, summary.privacy.observed);
//! # Ok::<(), undertone_training::error::TrainingError>(())
//! ```
//!
//! Not here: the mathematics of privacy (`undertone-accounting`), noise (`undertone-mechanisms`), clipping and sums
//! (`undertone-aggregation`), the models' kernels (`undertone-models`).
//!
//! Source: \[DPLM\] Algorithm 1 and section 3 (McMahan et al., "Learning Differentially Private Recurrent Language Models",
//! ICLR 2018).

#![forbid(unsafe_code)]

pub mod account;
pub mod adaptive_clip;
pub mod advise;
pub mod checkpoint;
pub mod cohort;
pub mod cohorts;
pub mod config;
pub mod coordinator_error;
pub mod error;
pub mod evaluate;
pub mod export;
pub mod files;
pub mod identity;
pub mod initial_model;
mod json_number;
pub mod kept_examples;
pub mod ledger;
pub mod manifest;
pub mod metrics;
pub mod noise;
pub mod participant;
pub mod participation;
pub mod personalize;
pub mod plan;
pub mod pretrain;
pub mod privacy_report;
pub mod random;
pub mod ranks;
pub mod record;
pub mod report;
pub mod round;
pub mod run;
pub mod secure_round;
pub mod server_optimizer;
pub mod simulate;
pub mod sweep;
pub mod task;
pub mod trainings;
pub mod verify;
pub mod violation;

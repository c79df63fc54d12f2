#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`RunFile`] | a run file with its folder and its corpus |
//! | [`train`], [`RunOptions`], [`Observer`] | a run from its file to its directory, and its observer |
//! | [`session`] | a training whose updates another program computes |
//! | [`source`] | the sums of a run: cores, processes, simulated secure sums |
//! | [`checkpoint`] | the state between two rounds |
//! | [`pretrain`] | training on public text |
//! | [`evaluate()`](evaluate()), [`Evaluation`], [`evaluate`](mod@evaluate) | the predictions of a model on held-out users |
//! | [`personalize`] | what the text of a user does to a trained model |
//! | [`language`] | predictions and text of a trained model |
//! | [`export`] | a model for other programs |
//! | [`membership`], [`likelihood`], [`replay`] | attacks on a model, and the replay of rounds |
//! | [`sweep`] | the measure of the candidates of a private sweep |
//! | [`ranks`] | the processes of one run |
//! | [`RunError`] | the errors, which name a file or a key |
//!
//! # Notes
//!
//! Source: \[DPLM\] Algorithm 1 and section 3 (McMahan et al., "Learning Differentially Private Recurrent Language Models",
//! ICLR 2018).

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod checkpoint;
mod driver;
mod engine;
mod error;
pub mod evaluate;
pub mod export;
pub mod language;
pub mod likelihood;
mod local_sources;
pub mod membership;
mod observer;
pub mod personalize;
pub mod pretrain;
pub mod ranks;
mod run_file;
pub mod session;
pub mod source;
pub mod sweep;
mod work_items;

pub use driver::{
    CorpusProgress, Evaluation, RunOptions, Summary, evaluate, evaluate_users, example_counts, replay, train,
    train_as_follower, train_as_leader, train_candidate,
};
pub use engine::longest_example;
pub use error::{Result, RunError};
pub use observer::{Observer, Silent};
pub use run_file::{RunFile, training_users};

#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | the run file |
//! | [`train`], [`RunOptions`], [`Observer`] | a run from its file to its directory, and its observer |
//! | [`verify`] | the claims of a directory, made again from its files |
//! | [`session`], [`session_config`] | a training whose updates another program computes, and its settings |
//! | [`source`] | the sums of a run: cores, processes, simulated secure sums |
//! | [`checkpoint`] | the state between two rounds |
//! | [`ledger`], [`metrics`], [`manifest`] | the files of a run directory |
//! | [`files`] | how these files are opened and written |
//! | [`read`] | a run directory for reports |
//! | [`initial_model`], [`pretrain`] | parameters to start from, and training on public text |
//! | [`evaluate()`](evaluate()), [`evaluate`](mod@evaluate) | the predictions of a model on held-out users |
//! | [`personalize`] | what the text of a user does to a trained model |
//! | [`language`] | predictions and text of a trained model |
//! | [`export`], [`publish`], [`public_ledger`] | a model for other programs, and a release for strangers with its ledger |
//! | [`privacy_page`] | the privacy report as Markdown |
//! | [`audit`], [`membership`], [`likelihood`], [`replay`], [`replays`] | the record of an audit, attacks on a model, the replay of rounds and its result |
//! | [`sweep_statement`], [`sweep`] | the statement of a private sweep, and the measure of its candidates |
//! | [`ranks`] | the processes of one run |
//! | [`task`] | tasks of the federated service as files |
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
    CorpusProgress, RunOptions, Summary, evaluate, evaluate_users, example_counts, replay, train,
    train_as_follower, train_as_leader, train_candidate,
};
pub use engine::longest_example;
pub use error::{Result, RunError};
pub use observer::{Observer, Silent};
pub use run_file::{RunFile, training_users};

#![doc = include_str!("../README.md")]
//!
//! Source: \[DPLM\] Algorithm 1 and section 3 (McMahan et al., "Learning Differentially Private Recurrent Language Models",
//! ICLR 2018).

#![forbid(unsafe_code)]

pub mod audit;
pub mod checkpoint;
pub mod config;
mod driver;
pub mod error;
pub mod evaluate;
pub mod export;
pub mod files;
pub mod initial_model;
mod json_number;
mod lane;
pub mod language;
pub mod ledger;
pub mod likelihood;
mod live;
pub mod manifest;
pub mod membership;
pub mod metrics;
mod observer;
pub mod personalize;
pub mod pretrain;
pub mod privacy_page;
pub mod publish;
pub mod ranks;
pub mod read;
pub mod session;
pub mod source;
pub mod store;
pub mod sweep;
pub mod task;
pub mod verify;

pub use driver::{
    CACHE, CorpusProgress, RunOptions, Summary, config_digest, evaluate, example_counts, lead,
    longest_example, named_strategy, randomness, replay, train, train_as_follower, train_candidate,
};
pub use error::{Result, RunError};
pub use observer::{Observer, Silent};

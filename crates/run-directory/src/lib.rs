#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | the run file |
//! | [`files`] | the names of the files, and how they are opened and written |
//! | [`ledger`], [`public_ledger`] | the ledger of a run, and the one that strangers see |
//! | [`metrics`], [`manifest`] | measurements per round, and the digests of all files |
//! | [`read`](mod@read) | a run directory for reports |
//! | [`plan_inputs`] | the words, the model and the mechanism of a run, from its files |
//! | [`initial_model`] | parameters to start from |
//! | [`privacy_page`] | the privacy report as Markdown |
//! | [`lane`], [`replays`] | the files of an audit that a run makes itself |
//! | [`session_config`] | the settings of a session |
//! | [`sweep_statement`] | the statement of a private sweep |
//! | [`task`] | tasks of the federated service as files |
//! | [`one_word`] | the sentence about a model that says one word nearly always |
//! | [`entropy`] | random bytes of the operating system |
//! | [`error`] | the errors, which name a file, a line or a key |

#![forbid(unsafe_code)]

pub mod config;
pub mod entropy;
pub mod error;
pub mod files;
pub mod initial_model;
pub mod lane;
pub mod ledger;
pub mod manifest;
pub mod metrics;
mod one_word;
pub mod plan_inputs;
pub mod privacy_page;
pub mod public_ledger;
pub mod read;
pub mod replays;
pub mod session_config;
pub mod sweep_statement;
pub mod task;

pub use one_word::one_word;

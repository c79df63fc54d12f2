#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`room`] | a task that this process leads: its head, its attempt and its sessions |
//! | [`task`], [`head_state`] | a task as the service runs it, and its head as bytes |
//! | [`identity`], [`attest`], [`limits`] | who takes part, on which platform, and how often |
//! | [`pace`] | when devices come back |
//! | [`keys`] | the keys of a service |
//! | [`server`], [`http`], [`tls`] | the routes of devices and their listeners |
//! | [`host`], [`capacity`], [`spool`], [`data_folder`] | a service in this process, its share of the machine, and its folder |
//! | [`cluster`] | several processes of one service |
//! | [`admin`], [`metrics`], [`trouble`] | operations, figures and states for operators |
//! | [`backup`] | backups, and the way back |
//! | [`estimate`] | the size of a task before it starts |
//! | [`parity`] | tasks that repeat a simulation |
//!
//! The modules with the state of an attempt are private:
//!
//! | module | what it holds |
//! |---|---|
//! | `attempt`, `session` | the machines that decide about attempts and sessions |
//! | `plain`, `group` | sums of single updates, and groups of secure sums |
//! | `upload` | the upload of a session, in the spool |
//! | `pseudonyms`, `seal` | the names of subjects, and secrets at rest |
//! | `refusal` | refusals of messages |
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod admin;
mod attempt;
pub mod attest;
pub mod backup;
mod blobs;
mod boards;
pub mod capacity;
pub mod cluster;
pub mod data_folder;
mod error;
pub mod estimate;
mod failpoint;
mod group;
pub mod head_state;
pub mod host;
pub mod http;
pub mod identity;
pub mod keys;
pub mod limits;
pub mod metrics;
pub mod pace;
pub mod parity;
mod pipe;
mod plain;
mod pseudonyms;
mod refusal;
pub mod room;
mod scrub;
mod seal;
pub mod server;
mod session;
mod shard;
pub mod spool;
pub mod task;
#[cfg(test)]
mod test_world;
pub mod tls;
pub mod trouble;
mod upload;
mod vouch;

use failpoint::failpoint;

pub use error::{Result, ServiceError};

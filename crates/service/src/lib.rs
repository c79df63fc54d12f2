#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`room`] | a task that this process leads: its head, its attempt and its sessions |
//! | [`attempt`], [`session`] | the machines that decide about attempts and sessions |
//! | [`plain`], [`group`] | sums of single updates, and groups of secure sums |
//! | [`task`], [`head_state`] | a task as the service runs it, and its head as bytes |
//! | [`identity`], [`attest`], [`pseudonyms`] | who takes part, on which platform, under which name |
//! | [`pace`] | when devices come back |
//! | [`refusal`] | refusals of messages |
//! | [`keys`], [`seal`] | the keys of a service, and secrets at rest |
//! | [`server`], [`http`], [`tls`] | the routes of devices and their listeners |
//! | [`host`], [`capacity`], [`spool`], [`data_folder`] | a service in this process, its share of the machine, and its folder |
//! | [`cluster`] | several processes of one service |
//! | [`admin`], [`metrics`] | operations and figures for operators |
//! | [`backup`] | backups, and the way back |
//! | [`estimate`] | the size of a task before it starts |
//! | [`parity`] | tasks that repeat a simulation |
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod admin;
pub mod attempt;
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
pub mod group;
pub mod head_state;
pub mod host;
pub mod http;
pub mod identity;
pub mod keys;
pub mod metrics;
pub mod pace;
pub mod parity;
mod pipe;
pub mod plain;
pub mod pseudonyms;
pub mod refusal;
pub mod room;
mod scrub;
pub mod seal;
pub mod server;
pub mod session;
mod shard;
pub mod spool;
pub mod task;
#[cfg(test)]
mod test_world;
pub mod tls;
mod vouch;

use failpoint::failpoint;

pub use error::{Result, ServiceError};

#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`room`] | a task that this process leads: its head, its attempt and its sessions |
//! | [`task`] | a task as the service runs it, and tasks that repeat a simulation |
//! | [`identity`] | who takes part, on which platform, and how often |
//! | [`pace`] | when devices come back |
//! | [`keys`] | the keys of a service, the names of subjects, and secrets at rest |
//! | [`server`], [`http`] | the routes of devices and their listeners, with TLS |
//! | [`capacity`], [`storage`], [`data_folder`] | the share of the machine that a service takes, its bytes at rest, and its folder |
//! | [`cluster`] | several processes of one service, and their parts of a sum |
//! | [`metrics`], [`trouble`] | figures and states for operators |
//!
//! Two modules are private:
//!
//! | module | what it holds |
//! |---|---|
//! | `attempt` | the machines that decide about attempts, sessions and groups, their sums, and refusals |
//! | `upload` | the upload of a session, in the spool |
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod attempt;
pub mod capacity;
pub mod cluster;
pub mod data_folder;
mod error;
mod failpoint;
pub mod http;
pub mod identity;
pub mod keys;
pub mod metrics;
pub mod pace;
pub mod room;
pub mod server;
pub mod storage;
pub mod task;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod test_world;
pub mod trouble;
mod upload;

use failpoint::failpoint;

pub use error::{Result, ServiceError};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod admin;
pub mod attempt;
mod blobs;
pub mod capacity;
pub mod data_folder;
mod error;
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
pub mod plain;
pub mod refusal;
pub mod room;
mod scrub;
pub mod seal;
pub mod server;
pub mod session;
pub mod spool;
pub mod task;
#[cfg(test)]
mod test_world;
pub mod tls;
mod vouch;

use failpoint::failpoint;

pub use error::{Result, ServiceError};

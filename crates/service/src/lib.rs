#![doc = include_str!("../README.md")]
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

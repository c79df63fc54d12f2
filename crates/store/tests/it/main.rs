//! The stores and the folders of uploads from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod blobs;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod oversight;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "s3")]
mod s3;
mod sqlite;
#[cfg(feature = "postgres")]
mod transfer;

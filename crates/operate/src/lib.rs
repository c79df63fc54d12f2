#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`admin`] | the operations of an operator, their listener, and the dashboard |
//! | [`backup`] | backups, and the way back |
//! | [`estimate`] | the size of a task before it starts |
//! | [`host`] | a service in this process, with its listeners |
#![forbid(unsafe_code)]

pub mod admin;
pub mod backup;
pub mod estimate;
pub mod host;

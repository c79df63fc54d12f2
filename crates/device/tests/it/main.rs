//! The device from outside: as an app embeds it, and against services that lie.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod compiled;
mod device;
#[cfg(target_os = "linux")]
mod durable;
mod harness;
mod hostile;
mod lies;
mod plain;
mod predict;
mod secure;

//! Fleets of devices against the service, in a process and over several, and against a virtual network.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod parity;
#[cfg(unix)]
mod processes;
mod real;
mod rounds;
#[path = "../../../store/tests/common/postgres.rs"]
mod server;
mod simulation;
mod versions;

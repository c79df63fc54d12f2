//! The laboratory from outside: its commands as a person runs them, the files of `deploy/`, and a service against the simulation.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod audits;
mod binomial;
mod corpora;
mod deploy;
mod mean;
mod service;
mod support;
mod utility;

#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | module | what it holds |
//! |---|---|
//! | [`sweep`] | all combinations of some settings, and their comparison over seeds; private sweeps |
//! | [`advise`] | example-level or user-level sampling, with group size, cohort and noise |
//! | [`simulate`] | the participation of a population of devices, without training |
//! | [`audit`] | canaries, probes and attacks on the model of a run |
#![forbid(unsafe_code)]

pub mod advise;
pub mod audit;
pub mod simulate;
pub mod sweep;

#![doc = include_str!("../README.md")]
//!
//! Sources: \[DPLM\] Algorithm 1 (McMahan et al., ICLR 2018); \[Gboard\] Algorithm 1 (Xu et al., 2023); \[BLT\] section 5
//! (McMahan et al., 2024); \[UserDP\] Algorithms 1 and 2 (Charles et al., 2024).

#![forbid(unsafe_code)]

pub mod account;
pub mod adaptive_clip;
pub mod chain;
pub mod cohorts;
pub mod entropy;
pub mod error;
pub mod head;
pub mod identity;
pub mod kept_examples;
pub mod noise;
pub mod participant;
pub mod participation;
pub mod plan;
pub mod privacy_report;
pub mod random;
pub mod record;
pub mod sampling;
pub mod server_optimizer;
pub mod session_terms;
pub mod source;
pub mod task;
pub mod trainings;
pub mod violation;

pub use error::{CoordinatorError, Result};

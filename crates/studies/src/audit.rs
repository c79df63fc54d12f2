//! Audits: what an attacker of a stated kind and size can show of a run.
//!
//! A replay proves sensitivities; canaries and noise probes only test. A lower bound below the claim never confirms the claim. The
//! estimators are those of [`undertone_accounting::audit`], and the replay is [`undertone_run::replay`].

pub mod attack;
pub mod exposure;
pub mod inference;
pub mod lane;
pub mod mechanism;
pub mod text;

pub use undertone_audit::{noise, record};

#[cfg(test)]
mod reach;
#[cfg(test)]
mod tests;

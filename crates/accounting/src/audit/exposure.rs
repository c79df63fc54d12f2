//! Exposure of a secret: how far above the other candidates a model ranks it.
//!
//! # Source
//! Carlini et al., "The Secret Sharer" (2019).

use super::{Significance, check_delta};
use crate::error::ensure;
use crate::{AccountingError, Epsilon};

/// The exposure of the secret with this rank, from 1, among `candidates`: `log2(candidates) - log2(rank)`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] unless `1 <= rank <= candidates`.
pub fn exposure(rank: u64, candidates: u64) -> Result<f64, AccountingError> {
    let holds = (1..=candidates).contains(&rank);
    ensure(holds, "rank", "a number in [1, candidates]", rank as f64)?;
    Ok((candidates as f64).log2() - (rank as f64).log2())
}

/// The exposure that a secret of an `(epsilon, delta)` private model exceeds with at most the probability of the significance.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a delta that is not below the significance.
pub fn limit(epsilon: Epsilon, delta: f64, significance: Significance) -> Result<f64, AccountingError> {
    let left = significance.get() - check_delta(delta)?;
    ensure(left > 0.0, "delta", "less than the significance", delta)?;
    Ok((epsilon.get() - left.ln()) / std::f64::consts::LN_2)
}

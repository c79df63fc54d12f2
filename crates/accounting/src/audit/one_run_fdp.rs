//! One run, f-DP: a lower bound that assumes the shape of the trade-off between false alarms and misses.
//!
//! # Source
//! Mahloujifar, Melis, Chaudhuri (2024), the algorithm with abstention for two choices per canary.

use super::distributions::{normal_cdf, normal_quantile};
use super::{Guesses, Significance, last_rejected};
use crate::{AccountingError, Delta, Epsilon, NoiseMultiplier};

/// `true` if the outcome rejects, at the significance, the trade-off of one Gaussian release with means `mu` standard deviations apart.
fn rejects(outcome: &Guesses, mu: f64, significance: Significance) -> bool {
    let (m, r, v) = (
        outcome.canaries() as f64,
        outcome.guesses() as f64,
        outcome.correct() as f64,
    );
    let limit = r / m;
    let mut right = significance.get() * v / m;
    let mut wrong = significance.get() * (r - v) / m;
    for i in (0..outcome.correct()).rev() {
        let next = normal_cdf(normal_quantile(right) - mu).max(wrong);
        let i = i as f64;
        right = (right + i / (r - i) * (next - wrong)).min(1.0);
        wrong = next;
        // Both sums only grow.
        if right + wrong > limit {
            return true;
        }
    }
    right + wrong > limit
}

/// The lower bound on the `mu` of a Gaussian trade-off; 0 where the outcome rejects none.
#[must_use]
pub fn mu(outcome: &Guesses, significance: Significance) -> f64 {
    last_rejected(|mu| rejects(outcome, mu, significance))
}

/// The lower bound on epsilon at a delta, *if* the trade-off of the run is that of a Gaussian.
///
/// # Errors
/// From the accountant.
pub fn epsilon_if_gaussian(
    outcome: &Guesses,
    significance: Significance,
    delta: Delta,
) -> Result<Epsilon, AccountingError> {
    epsilon_of_mu(mu(outcome, significance), delta)
}

/// The epsilon of a Gaussian trade-off at a delta; 0 for `mu <= 0`.
///
/// # Errors
/// [`AccountingError::NoFiniteGuarantee`] for a `mu` too large for a finite epsilon.
pub fn epsilon_of_mu(mu: f64, delta: Delta) -> Result<Epsilon, AccountingError> {
    if mu <= 0.0 {
        return Epsilon::new(0.0);
    }
    crate::gaussian::epsilon(NoiseMultiplier::new(1.0 / mu)?, delta)
}

/// The `mu` of the Gaussian trade-off through `(epsilon, delta)`.
///
/// # Errors
/// From the accountant.
pub fn mu_of_epsilon(epsilon: Epsilon, delta: Delta) -> Result<f64, AccountingError> {
    Ok(1.0 / crate::gaussian::noise_multiplier(epsilon, delta)?.get())
}

//! One run, f-DP: a lower bound that assumes the shape of the trade-off between false alarms and misses.
//!
//! # Source
//! Mahloujifar, Melis, Chaudhuri (2024), the algorithm with abstention for two choices per canary.

use super::distributions::{normal_cdf, normal_quantile};
use super::{Guesses, Significance, check_delta, last_rejected};
use crate::{AccountingError, Delta, Epsilon, NoiseMultiplier};

/// A family of trade-off curves, from indistinguishable at 0 upwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Curve {
    /// The curve of one Gaussian release with means `mu` standard deviations apart.
    Gaussian {
        /// `mu`.
        mu: f64,
    },
    /// The curve that `(epsilon, delta)` alone implies.
    EpsilonDelta {
        /// `epsilon`.
        epsilon: f64,
        /// `delta`.
        delta: f64,
    },
}

impl Curve {
    /// The inverse of one minus the curve.
    fn inverse(&self, y: f64) -> f64 {
        match *self {
            Self::Gaussian { mu } => normal_cdf(normal_quantile(y) - mu),
            Self::EpsilonDelta { epsilon, delta } => {
                let steep = (y - delta) * (-epsilon).exp();
                let flat = 1.0 - delta - epsilon.exp() * (1.0 - y);
                steep.max(flat).max(0.0)
            }
        }
    }
}

/// `true` if the outcome rejects a curve at the significance.
#[must_use]
pub fn rejects(outcome: &Guesses, curve: Curve, significance: Significance) -> bool {
    let (m, r, v) = (
        outcome.canaries() as f64,
        outcome.guesses() as f64,
        outcome.correct() as f64,
    );
    let limit = r / m;
    let mut right = significance.get() * v / m;
    let mut wrong = significance.get() * (r - v) / m;
    for i in (0..outcome.correct()).rev() {
        let next = curve.inverse(right).max(wrong);
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
    last_rejected(|mu| rejects(outcome, Curve::Gaussian { mu }, significance))
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

/// The lower bound on epsilon from the curve of `(epsilon, delta)` itself: within about 1 % of [`super::one_run::epsilon`].
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a delta outside `[0, 1)`.
pub fn epsilon(
    outcome: &Guesses,
    significance: Significance,
    delta: f64,
) -> Result<Epsilon, AccountingError> {
    let delta = check_delta(delta)?;
    Epsilon::new(last_rejected(|epsilon| {
        rejects(outcome, Curve::EpsilonDelta { epsilon, delta }, significance)
    }))
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

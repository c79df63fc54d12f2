//! One run, any mechanism: a lower bound on epsilon that assumes nothing about the noise.
//!
//! # Source
//! Steinke, Nasr, Jagielski (2023), Theorem 5.2.

use super::distributions::{binomial_masses, tail};
use super::{Guesses, Significance, check_delta, last_rejected};
use crate::error::ensure;
use crate::{AccountingError, Epsilon};

/// The probability, at most, of `correct` or more right guesses if the run is `(epsilon, delta)` differentially private.
///
/// `W` has the law `Bin(r, e^epsilon / (1 + e^epsilon))`. The result is `P[W >= v] + m delta max_i (2/i) P[v > W >= v - i]`, at
/// most 1.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for an epsilon that is negative or not finite, or a delta outside `[0, 1)`.
pub fn p_value(outcome: &Guesses, epsilon: f64, delta: f64) -> Result<f64, AccountingError> {
    let holds = epsilon >= 0.0 && epsilon.is_finite();
    ensure(holds, "epsilon", "a finite number >= 0", epsilon)?;
    Ok(p_value_at(outcome, epsilon, check_delta(delta)?))
}

fn p_value_at(outcome: &Guesses, epsilon: f64, delta: f64) -> f64 {
    let correct = outcome.correct() as usize;
    if correct == 0 {
        return 1.0;
    }
    let masses = binomial_masses(outcome.guesses(), epsilon);
    let mut p = tail(&masses, correct);
    if delta > 0.0 {
        let (mut below, mut largest) = (0.0, 0.0f64);
        for i in 1..=correct {
            below += masses[correct - i];
            largest = largest.max(2.0 * below / i as f64);
        }
        p += outcome.canaries() as f64 * delta * largest;
    }
    p.min(1.0)
}

/// The lower bound on epsilon at a delta: the largest that the outcome rejects, or 0.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a delta outside `[0, 1)`.
///
/// # Example
/// ```
/// use undertone_accounting::audit::{Guesses, Significance, one_run};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// // 1,000 canaries, 100 guesses, 95 right: epsilon is at least 2.16 with 95 % confidence.
/// let bound = one_run::epsilon(&Guesses::new(1000, 100, 95)?, Significance::REPORTED, 1e-5)?;
/// assert!((bound.get() - 2.165).abs() < 1e-3);
/// # Ok(())
/// # }
/// ```
pub fn epsilon(
    outcome: &Guesses,
    significance: Significance,
    delta: f64,
) -> Result<Epsilon, AccountingError> {
    let delta = check_delta(delta)?;
    Epsilon::new(last_rejected(|epsilon| {
        p_value_at(outcome, epsilon, delta) <= significance.get()
    }))
}

//! Many runs: the limit of an error rate, and the probability of as few intervals that hold the truth.

use super::distributions::{binomial_masses, tail};
use crate::AccountingError;
use crate::error::ensure;

/// The upper limit of a probability with `successes` of `trials`, which the truth exceeds with probability `alpha` at most.
///
/// # Source
/// Clopper and Pearson (1934), one side.
///
/// # Errors
/// [`AccountingError::OutOfRange`] without trials, for more successes than trials or an alpha outside `(0, 1)`.
pub fn clopper_pearson_upper(successes: u64, trials: u64, alpha: f64) -> Result<f64, AccountingError> {
    let holds = (1..=super::MAX_CANARIES).contains(&trials);
    ensure(holds, "trials", "a number in [1, 2^24]", trials as f64)?;
    let expected = "at most the number of trials";
    ensure(successes <= trials, "successes", expected, successes as f64)?;
    ensure(alpha > 0.0 && alpha < 1.0, "alpha", "a number in (0, 1)", alpha)?;
    if successes == trials {
        return Ok(1.0);
    }
    // In log odds P[X <= successes] falls steadily.
    let (mut low, mut high) = (-800.0f64, 800.0f64);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        // Failures have the opposite odds, so the tail is one of large counts.
        let masses = binomial_masses(trials, -middle);
        match tail(&masses, (trials - successes) as usize) > alpha {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(1.0 / (1.0 + (-high).exp()))
}

/// The probability of at most `covered` of `runs` intervals that hold the truth, if each holds it with probability `stated`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for no runs, more covered than runs, or a level outside `(0, 1)`.
pub fn coverage_p_value(covered: u64, runs: u64, stated: f64) -> Result<f64, AccountingError> {
    let holds = (1..=super::MAX_CANARIES).contains(&runs) && covered <= runs;
    let expected = "a number of at most `runs` >= 1";
    ensure(holds, "covered", expected, covered as f64)?;
    let holds = stated > 0.0 && stated < 1.0;
    ensure(holds, "stated", "a number in (0, 1)", stated)?;
    let masses = binomial_masses(runs, ((1.0 - stated) / stated).ln());
    Ok(tail(&masses, (runs - covered) as usize).min(1.0))
}

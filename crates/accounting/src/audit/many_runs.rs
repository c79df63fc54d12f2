//! Many runs: a bound from false alarms and misses at one threshold, fixed on other runs.

use super::distributions::{binomial_masses, normal_quantile, tail};
use super::one_run_fdp::epsilon_of_mu;
use super::{Significance, check_delta};
use crate::error::ensure;
use crate::{AccountingError, Delta, Epsilon};

/// Errors of an attack at one threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errors {
    /// Members that the attack missed.
    pub false_negatives: u64,
    /// Members, `n_1`.
    pub members: u64,
    /// Non-members that the attack took for members.
    pub false_positives: u64,
    /// Non-members, `n_0`.
    pub non_members: u64,
}

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

impl Errors {
    /// Upper limits of both error rates, each at half the significance: misses and false alarms.
    fn limits(&self, significance: Significance) -> Result<(f64, f64), AccountingError> {
        let alpha = 0.5 * significance.get();
        Ok((
            clopper_pearson_upper(self.false_negatives, self.members, alpha)?,
            clopper_pearson_upper(self.false_positives, self.non_members, alpha)?,
        ))
    }

    /// The lower bound on epsilon at a delta, for any mechanism.
    ///
    /// # Errors
    /// The errors of [`clopper_pearson_upper`], and one for a delta outside `[0, 1)`.
    pub fn epsilon(&self, significance: Significance, delta: f64) -> Result<Epsilon, AccountingError> {
        let delta = check_delta(delta)?;
        let (misses, alarms) = self.limits(significance)?;
        let found = 1.0 - misses - delta;
        Epsilon::new(match found > 0.0 {
            true => (found / alarms).ln().max(0.0),
            false => 0.0,
        })
    }

    /// The lower bound on the `mu` of a Gaussian trade-off.
    ///
    /// # Errors
    /// The errors of [`clopper_pearson_upper`].
    pub fn mu(&self, significance: Significance) -> Result<f64, AccountingError> {
        let (misses, alarms) = self.limits(significance)?;
        Ok((-normal_quantile(alarms) - normal_quantile(misses)).max(0.0))
    }

    /// The lower bound on epsilon, *if* the trade-off is that of a Gaussian.
    ///
    /// # Errors
    /// The errors of [`clopper_pearson_upper`] and of the accountant.
    pub fn epsilon_if_gaussian(
        &self,
        significance: Significance,
        delta: Delta,
    ) -> Result<Epsilon, AccountingError> {
        epsilon_of_mu(self.mu(significance)?, delta)
    }
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

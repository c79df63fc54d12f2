//! The reach of an audit before a run: the number of guesses to fix, the bound to expect, and the smallest error it finds.

use super::distributions::{normal_cdf, normal_quantile};
use super::one_run_fdp::{epsilon_of_mu, mu_of_epsilon};
use super::{Guesses, MAX_CANARIES, Significance, one_run, one_run_fdp};
use crate::error::ensure;
use crate::{AccountingError, Delta, Epsilon};

/// The power at which [`PowerAnalysis::smallest_ratio`] is stated.
pub const POWER: f64 = 0.9;

/// The best choice of guesses for one estimator.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ReachableBound {
    /// The number of guesses to fix before the run, `r`.
    pub guesses: u64,
    /// The number of them that is expected to be right.
    pub correct: u64,
    /// The bound on epsilon from these.
    pub epsilon: f64,
    /// The bound if all guesses were right: more cannot be shown with this number.
    pub most: f64,
}

/// The reach of an audit with exactly Gaussian scores, for one claim.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct PowerAnalysis {
    /// Number of canaries, `m`.
    pub canaries: u64,
    /// The claim.
    pub epsilon: f64,
    /// The delta of the claim and of every bound.
    pub delta: f64,
    /// The distance between canaries in and out, in standard deviations, that the claim stands for.
    pub mu: f64,
    /// One run, any mechanism.
    pub any: ReachableBound,
    /// One run, if the trade-off is Gaussian.
    pub fdp: ReachableBound,
    /// The lower limit of the Gaussian model, in the median.
    pub gaussian: f64,
    /// The smallest error in the noise that the Gaussian limit finds with a power of 90 %: true over stated standard deviation.
    pub smallest_ratio: f64,
}

impl PowerAnalysis {
    /// The plan of an audit of the claim `(epsilon, delta)` with `canaries` canaries whose scores all iterates give.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for fewer than 10 or more than 2^24 canaries, or an epsilon of 0; from the accountant.
    pub fn new(
        canaries: u64,
        epsilon: Epsilon,
        delta: Delta,
        significance: Significance,
    ) -> Result<Self, AccountingError> {
        let holds = (10..=MAX_CANARIES).contains(&canaries);
        ensure(holds, "canaries", "a number in [10, 2^24]", canaries as f64)?;
        ensure(epsilon.get() > 0.0, "epsilon", "a number > 0", epsilon.get())?;
        let mu = mu_of_epsilon(epsilon, delta)?;
        let any = best(canaries, mu, |outcome| {
            Ok(one_run::epsilon(outcome, significance, delta.get())?.get())
        })?;
        // The bound on mu is what counts; its epsilon follows.
        let fdp = best(canaries, mu, |outcome| Ok(one_run_fdp::mu(outcome, significance)))?;
        let of_mu = |mu: f64| Ok::<_, AccountingError>(epsilon_of_mu(mu, delta)?.get());
        let root = (canaries as f64).sqrt();
        let sigmas = -normal_quantile(significance.get());
        Ok(Self {
            canaries,
            epsilon: epsilon.get(),
            delta: delta.get(),
            mu,
            any,
            fdp: ReachableBound {
                epsilon: of_mu(fdp.epsilon)?,
                most: of_mu(fdp.most)?,
                ..fdp
            },
            gaussian: of_mu(mu - 2.0 * sigmas / root)?,
            smallest_ratio: 1.0 / (1.0 + 2.0 * (sigmas + normal_quantile(POWER)) / (root * mu)),
        })
    }
}

/// The number of guesses with the largest expected bound, of about 40 that grow by a sixth each.
fn best(
    canaries: u64,
    mu: f64,
    bound: impl Fn(&Guesses) -> Result<f64, AccountingError>,
) -> Result<ReachableBound, AccountingError> {
    let mut found: Option<ReachableBound> = None;
    let mut guesses = (canaries / 400).max(5);
    loop {
        let correct = expected_correct(canaries, guesses, mu);
        let epsilon = bound(&Guesses::new(canaries, guesses, correct)?)?;
        if found.is_none_or(|found| epsilon > found.epsilon) {
            let most = bound(&Guesses::new(canaries, guesses, guesses)?)?;
            found = Some(ReachableBound {
                guesses,
                correct,
                epsilon,
                most,
            });
        }
        if guesses >= canaries {
            break;
        }
        guesses = (guesses + guesses.div_ceil(6)).min(canaries);
    }
    Ok(found.expect("at least one number of guesses was tried"))
}

/// The number of correct guesses to expect where the `guesses` scores farthest from the middle are guessed.
///
/// Scores are `N(+-mu/2, 1)` around the middle. The threshold `c` is where a fraction `guesses / canaries` lies farther away.
#[must_use]
pub fn expected_correct(canaries: u64, guesses: u64, mu: f64) -> u64 {
    let fraction = guesses as f64 / canaries as f64;
    let half = 0.5 * mu;
    let (right, wrong) = (|c: f64| normal_cdf(half - c), |c: f64| normal_cdf(-half - c));
    let (mut low, mut high) = (0.0, half + 40.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        match right(middle) + wrong(middle) > fraction {
            true => low = middle,
            false => high = middle,
        }
    }
    let share = right(low) / (right(low) + wrong(low));
    ((share * guesses as f64).round() as u64).min(guesses)
}

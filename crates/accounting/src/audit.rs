//! Estimators of privacy audits: lower bounds on epsilon from the success of an attack, and tests of noise.
//!
//! A lower bound below the claim never confirms the claim: it only says what one attack of one kind and size showed. All functions are
//! pure. Every bound is one-sided at a stated significance, which is the probability of a bound above the truth.
//!
//! # Sources
//! Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run" (2023); Mahloujifar, Melis, Chaudhuri, "Auditing f-Differential
//! Privacy in One Run" (2024); Andrew et al., "One-shot Empirical Privacy Estimation for Federated Learning" (2023).

pub mod attack;
mod distributions;
pub mod exposure;
pub mod gaussian;
pub mod many_runs;
pub mod noise;
pub mod one_run;
pub mod one_run_fdp;
pub mod planning;
pub mod sampled;

use crate::AccountingError;
use crate::error::ensure;

/// The most canaries that an estimator accepts. Larger audits show no more: the term `m delta` eats the gain.
pub const MAX_CANARIES: u64 = 1 << 24;

/// The probability of a bound above the truth, in (0, 1/2].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Significance(f64);

impl Significance {
    /// The significance of reports: 0.05.
    pub const REPORTED: Self = Self(0.05);

    /// A checked significance.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] outside (0, 1/2].
    pub fn new(value: f64) -> Result<Self, AccountingError> {
        let holds = value > 0.0 && value <= 0.5;
        ensure(holds, "significance", "a number in (0, 0.5]", value).map(Self)
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// The outcome of an audit with one run: `canaries` fair coins, `guesses` of them guessed, `correct` of those right.
///
/// The number of guesses must be fixed before the run. A number chosen after looking at the scores voids every bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guesses {
    canaries: u64,
    guesses: u64,
    correct: u64,
}

impl Guesses {
    /// A checked outcome.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] unless `correct <= guesses <= canaries <= 2^24` and `guesses >= 1`.
    pub fn new(canaries: u64, guesses: u64, correct: u64) -> Result<Self, AccountingError> {
        let holds = canaries <= MAX_CANARIES;
        ensure(holds, "canaries", "at most 2^24", canaries as f64)?;
        let holds = (1..=canaries).contains(&guesses);
        ensure(holds, "guesses", "a number in [1, canaries]", guesses as f64)?;
        let expected = "at most the number of guesses";
        ensure(correct <= guesses, "correct", expected, correct as f64)?;
        Ok(Self {
            canaries,
            guesses,
            correct,
        })
    }

    /// Number of canaries, `m`.
    #[must_use]
    pub const fn canaries(&self) -> u64 {
        self.canaries
    }

    /// Number of guesses, `r`.
    #[must_use]
    pub const fn guesses(&self) -> u64 {
        self.guesses
    }

    /// Number of correct guesses, `v`.
    #[must_use]
    pub const fn correct(&self) -> u64 {
        self.correct
    }
}

/// A failure probability of a guarantee, with 0 for pure differential privacy.
fn check_delta(delta: f64) -> Result<f64, AccountingError> {
    ensure((0.0..1.0).contains(&delta), "delta", "a number in [0, 1)", delta)
}

/// The largest value at which `rejects` holds, from below; 0 where it fails at 0. `rejects` must not come back once it fails.
fn last_rejected(mut rejects: impl FnMut(f64) -> bool) -> f64 {
    if !rejects(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while rejects(high) {
        (low, high) = (high, 2.0 * high);
        if high > 1e6 {
            return low;
        }
    }
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        match rejects(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

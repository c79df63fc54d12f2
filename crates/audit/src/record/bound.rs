//! One bound from canaries, and the figures that follow from its counts.

use serde::{Deserialize, Serialize};
use undertone_accounting::audit::{Guesses, Significance, one_run, one_run_fdp};
use undertone_accounting::{Delta, Epsilon};
use undertone_coordinator::record::GuaranteeRecord;

use undertone_run_directory::error::{DirectoryError, Result};

/// The level of canaries in a run.
pub const LANE: &str = "lane";
/// The level of canaries with text.
pub const TEXT: &str = "text";
/// The level of a rehearsal of the mechanism.
pub const MECHANISM: &str = "mechanism";

/// The attacker who sees the release of each round.
pub const ITERATES: &str = "all_iterates";

/// The attacker who sees the final model alone.
pub const FINAL: &str = "final_model";

/// The estimator of the headline, which assumes nothing about the mechanism.
pub const ANY: &str = "one_run.any";

/// The estimator that assumes a Gaussian trade-off.
pub const FDP: &str = "one_run_fdp.gaussian";

/// One bound from canaries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// `mechanism` for a rehearsal, `lane` for canaries in the run itself, `text` for invented users in a copy of it.
    pub level: String,
    /// [`ITERATES`] or [`FINAL`].
    pub adversary: String,
    /// Secrets that the attacker is assumed not to know.
    pub unknown_to_attacker: Vec<String>,
    /// Number of canaries, `m`.
    pub canaries: u64,
    /// Number of canaries whose coin put them in.
    #[serde(rename = "in")]
    pub members: u64,
    /// Number of guesses that was fixed beforehand, `r`; `None` for an estimator without guesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guesses: Option<u64>,
    /// Number of correct guesses, `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correct: Option<u64>,
    /// Confidence of the bound.
    pub confidence: f64,
    /// `true` for a bound that decides about the verdict.
    pub headline: bool,
    /// The estimator.
    pub estimator: String,
    /// The assumption of the estimator.
    pub assumption: String,
    /// The lower bound on epsilon at the claim's delta.
    pub epsilon_lower: f64,
    /// The bound if every guess had been right; for the final model without guesses, the bound of canaries without number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_that_could_show: Option<f64>,
    /// The probability of as many correct guesses, at most, if the claim holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_at_claim: Option<f64>,
}

impl Bound {
    /// `true` for a bound that decides about the verdict. It assumes nothing about the mechanism, and is that of the strongest attacker of
    /// its level.
    #[must_use]
    pub fn decides(&self) -> bool {
        let strongest = match self.level == TEXT {
            true => FINAL,
            false => ITERATES,
        };
        self.estimator == ANY && self.adversary == strongest
    }

    /// The thing that was attacked, in words.
    pub(super) fn attacked(&self) -> &'static str {
        match self.level.as_str() {
            LANE => "the lane of this run",
            TEXT => "a copy of this run with invented users",
            _ => "a rehearsal of the mechanism",
        }
    }

    /// The releases that the attacker sees, in words.
    #[must_use]
    pub fn seen(&self) -> &'static str {
        match self.adversary == FINAL {
            true => "the final model alone",
            false => "all rounds",
        }
    }

    /// The bound with the figures that follow from its counts under a claim; unchanged for an estimator without guesses.
    ///
    /// # Errors
    /// Counts that do not fit each other, a confidence outside `[0.5, 1)`, an unknown estimator with guesses; from the estimators.
    pub fn of_counts(self, claim: &GuaranteeRecord) -> Result<Self> {
        let (Some(guesses), Some(correct)) = (self.guesses, self.correct) else {
            return Ok(self);
        };
        let significance = Significance::new(1.0 - self.confidence)?;
        let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
        let guessed = Guesses::new(self.canaries, guesses, correct)?;
        let all = Guesses::new(self.canaries, guesses, guesses)?;
        let of = |outcome: &Guesses| -> Result<f64> {
            Ok(match self.estimator.as_str() {
                ANY => one_run::epsilon(outcome, significance, delta.get())?.get(),
                FDP => one_run_fdp::epsilon_if_gaussian(outcome, significance, delta)?.get(),
                other => {
                    return Err(DirectoryError::value(
                        "estimator",
                        "`one_run.any` or `one_run_fdp.gaussian`",
                        other,
                    ));
                }
            })
        };
        let (lower, most) = (of(&guessed)?, of(&all)?);
        let p_at_claim = match self.estimator.as_str() {
            ANY => Some(one_run::p_value(&guessed, epsilon.get(), delta.get())?),
            _ => None,
        };
        Ok(Self {
            epsilon_lower: lower,
            most_that_could_show: Some(most),
            p_at_claim,
            ..self
        })
    }
}

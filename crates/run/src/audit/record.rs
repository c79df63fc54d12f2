//! `audit.json`: the figures of an audit with the sentences that belong to them.
//!
//! Verdict and sentences follow from the figures by [`Audit::finish`], and the bounds follow from counts by [`Bound::of_counts`]. The
//! writer and the verifier of the file call the same functions.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_accounting::audit::{Guesses, Significance, one_run, one_run_fdp};
use undertone_accounting::{Delta, Epsilon};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::{hex, number};

use super::exposure::Exposed;
use super::noise::{NoiseTests, Source};
use super::text;
use crate::error::{Result, RunError};
use crate::replay::{Replay, TWIN};

/// The version of the file.
pub const SCHEMA: &str = "undertone.audit/1";

/// The sentence that stands beside every bound.
pub const LIMITS: &str =
    "It does not show that no better attack exists. The promise is the claim, which rests on proof.";

/// An audit as `audit.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run that was tested, and which part of it.
    pub run: Tested,
    /// Number of audits that were recorded in this file, this one included.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub audits: u64,
    /// The plan of the canaries, which is fixed before the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<CanaryPlan>,
    /// SHA-256 of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<String>,
    /// The claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<GuaranteeRecord>,
    /// The replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The bounds from canaries; one of them is the headline, and one may confirm it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<Bound>,
    /// The tests of the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTests>,
    /// The exposure of secrets of invented users in a copy of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposure: Option<Exposed>,
    /// The error that was planted, in a positive control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// One of [`Verdict`]'s sentences.
    pub verdict: String,
    /// Sentences for readers.
    pub statements: Vec<String>,
}

fn one() -> u64 {
    1
}

fn is_one(audits: &u64) -> bool {
    *audits == 1
}

/// The tested run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tested {
    /// The name of the run.
    pub name: String,
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// The last digest of the ledger, where the audit was of a run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_head: Option<String>,
}

/// The plan of an audit with canaries, which is fixed before the first round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryPlan {
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// Number of canaries.
    pub canaries: u64,
    /// Number of coordinates without contributions.
    pub probes: usize,
    /// Number of coordinates in which each canary has a random direction; `None` where each has a coordinate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<u64>,
    /// Significance of the bounds.
    pub significance: f64,
    /// The estimator of the headline.
    pub headline: String,
    /// Number of guesses of the headline.
    pub guesses: u64,
    /// Number of guesses of the bound that assumes a Gaussian trade-off.
    pub guesses_fdp: u64,
}

impl CanaryPlan {
    /// SHA-256 of the plan as JSON.
    ///
    /// # Errors
    /// Numbers that JSON cannot hold.
    pub fn sha256(&self) -> Result<String> {
        let text = serde_json::to_vec(self)
            .map_err(|error| RunError::value("audit plan", "values that JSON can hold", error))?;
        Ok(hex(&Sha256::digest(text)))
    }
}

/// An error that is planted on purpose, so that the instrument can be seen to work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// This factor of the stated noise is added.
    Noise(f64),
    /// The attacker is told the coins of Poisson cohorts, which the claim takes to be secret.
    PoissonCoins,
    /// The copy of the run with invented users is trained without clipping and noise.
    WithoutPrivacy,
}

impl Control {
    fn sentence(self) -> String {
        let planted = match self {
            Self::Noise(factor) => format!("{} of the stated noise was added", number(factor)),
            Self::PoissonCoins => {
                "the attacker was told the rounds of each canary, which the claim takes to be secret"
                    .to_owned()
            }
            Self::WithoutPrivacy => "the copy was trained without clipping and noise".to_owned(),
        };
        format!("This is a positive control: {planted}, so that the instrument can be seen to work.")
    }
}

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
    /// Its assumption.
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
    pub(crate) fn decides(&self) -> bool {
        let strongest = match self.level == text::LEVEL {
            true => FINAL,
            false => ITERATES,
        };
        self.estimator == ANY && self.adversary == strongest
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
                    return Err(RunError::value(
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

/// The result of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No test contradicts the claim. It confirms nothing.
    Nothing,
    /// A headline bound at 95 % exceeds the claim, and its confirmation at 99.9 % does not.
    OneInTwenty,
    /// A replayed sensitivity or the noise is not as stated, or a confirmed bound exceeds the claim.
    Contradicted,
}

impl Verdict {
    /// The sentence of `audit.json`.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Nothing => "nothing contradicts the claim",
            Self::OneInTwenty => {
                "a bound exceeds the claim once and was not confirmed: one audit in twenty does"
            }
            Self::Contradicted => "the claim is contradicted",
        }
    }

    /// `true` where the exit status must be 3.
    #[must_use]
    pub fn is_alarm(self) -> bool {
        self != Self::Nothing
    }
}

impl Audit {
    /// An audit without figures, of a run with this name and configuration.
    #[must_use]
    pub fn new(name: &str, config_sha256: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            run: Tested {
                name: name.to_owned(),
                config_sha256: config_sha256.to_owned(),
                ledger_head: None,
            },
            audits: 1,
            plan: None,
            plan_sha256: None,
            claim: None,
            replay: None,
            canaries: Vec::new(),
            noise: None,
            exposure: None,
            control: None,
            verdict: String::new(),
            statements: Vec::new(),
        }
    }

    /// The verdict that follows from the figures.
    #[must_use]
    pub fn judged(&self) -> Verdict {
        let replay = self.replay.as_ref().is_some_and(Replay::contradicts);
        let noise = self.noise.as_ref().is_some_and(NoiseTests::contradicts);
        let claim = self.claim.as_ref().map_or(f64::INFINITY, |claim| claim.epsilon);
        let headlines = || self.canaries.iter().filter(|bound| bound.headline);
        // A bound or claim that is no number counts as an alarm.
        let exceeds =
            |bound: &&Bound| bound.epsilon_lower > claim || bound.epsilon_lower.is_nan() || claim.is_nan();
        let exceeding = headlines().filter(exceeds).count();
        match (replay || noise, exceeding, headlines().count()) {
            (true, _, _) => Verdict::Contradicted,
            (false, 0, _) => Verdict::Nothing,
            (false, 1, 2) => Verdict::OneInTwenty,
            _ => Verdict::Contradicted,
        }
    }

    /// Sets the verdict and the sentences, which follow from the figures.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.verdict = self.judged().sentence().to_owned();
        self.statements = self.sentences();
        self
    }

    fn sentences(&self) -> Vec<String> {
        let mut statements = Vec::new();
        let claim = self.claim.as_ref().map_or(f64::NAN, |claim| claim.epsilon);
        for bound in self.canaries.iter().filter(|bound| bound.headline) {
            statements.push(format!(
                "An attack of this kind and size shows an epsilon of at least {} with {} % confidence, of a claim of {}. {LIMITS}",
                number(bound.epsilon_lower),
                number(100.0 * bound.confidence),
                number(claim),
            ));
        }
        if let Some(directions) = self.plan.as_ref().and_then(|plan| plan.directions) {
            statements.push(format!(
                "Each canary had a random direction in {directions} coordinates, in which the other canaries add at most 10 % to the variance \
                 of its score."
            ));
        }
        if self.canaries.iter().any(|bound| bound.level == text::LEVEL) {
            statements.push(
                "The final model of a copy of this run was attacked, which was trained with invented users beside all others. This run \
                 itself was not tested."
                    .to_owned(),
            );
        }
        let last = self
            .canaries
            .iter()
            .find(|bound| bound.adversary == FINAL && bound.guesses.is_none());
        if let Some(most) = last.and_then(|bound| bound.most_that_could_show) {
            statements.push(format!(
                "An attacker who sees the final model alone could show an epsilon of at most {} by such canaries, however many there are, of a \
                 claim of {}.",
                number(most),
                number(claim),
            ));
        }
        if let Some(noise) = &self.noise {
            statements.push(format!(
                "{} values of pure noise were tested; the smallest p-value after Holm's correction is {}. Such a test finds noise that is a \
                 few percent too small, and proves nothing.",
                noise.values,
                number(noise.smallest_p_holm),
            ));
            statements.push(
                match noise.source {
                    Source::Rehearsal => {
                        "The mechanism was tested in a rehearsal with invented contributions. This run itself, its model and its users \
                         were not."
                    }
                    Source::ThisRun => {
                        "The values are those of coordinates of this run itself, to which no user contributes. Its model and the sums of its \
                         users were not tested."
                    }
                }
                .to_owned(),
            );
        }
        statements.extend(self.control.map(Control::sentence));
        if let Some(replay) = &self.replay {
            statements.push(format!(
                "{} (user, round) pairs of {} were replayed with and without the user. A replay proves the sensitivity of these sums for \
                 these users, and of no others.",
                replay.pairs, replay.tested
            ));
            if replay.tested == TWIN {
                statements
                    .push("A twin of this run was replayed under a fresh seed, never this run.".to_owned());
            }
            statements.push("A replay does not check the accountant: reference cases do.".to_owned());
        }
        if let Some(exposure) = &self.exposure {
            statements.extend(exposure.sentences());
        }
        if self.audits > 1 {
            statements.push(format!(
                "{} audits of this configuration were recorded. Each bound holds with its confidence for one audit alone.",
                self.audits
            ));
        }
        statements
    }

    /// The audits of an earlier file and of this one together: this one's sections replace those of the same kind.
    #[must_use]
    pub fn after(mut self, earlier: Self) -> Self {
        self.audits = earlier.audits + 1;
        self.replay = self.replay.or(earlier.replay);
        self.noise = self.noise.or(earlier.noise);
        self.exposure = self.exposure.or(earlier.exposure);
        self.claim = self.claim.or(earlier.claim);
        if self.canaries.is_empty() {
            self.canaries = earlier.canaries;
            self.plan = earlier.plan;
            self.plan_sha256 = earlier.plan_sha256;
        }
        self.finish()
    }
}

/// The audit of an attack by exposure.
#[must_use]
pub fn of_exposure(name: &str, config_sha256: &str, exposure: Exposed) -> Audit {
    Audit {
        exposure: Some(exposure),
        ..Audit::new(name, config_sha256)
    }
    .finish()
}

/// The audit of a replay.
#[must_use]
pub fn of_replay(name: &str, config_sha256: &str, replay: Replay) -> Audit {
    Audit {
        replay: Some(replay),
        ..Audit::new(name, config_sha256)
    }
    .finish()
}

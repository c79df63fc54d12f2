//! `audit.json`: the figures of an audit with the sentences that belong to them.

use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::hex;
use undertone_run::replay::Replay;

use super::noise::NoiseTests;

/// The sentence that stands beside every bound.
pub const LIMITS: &str =
    "It does not show that no better attack exists. The promise is the claim, which rests on proof.";

/// An audit as `audit.json` holds it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// `undertone.audit/1`.
    pub schema: &'static str,
    /// The run that was tested, and which part of it.
    pub run: Tested,
    /// SHA-256 of the plan, which is fixed before the first round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<String>,
    /// The claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<GuaranteeRecord>,
    /// The replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The bounds from canaries; one of them is the headline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<Bound>,
    /// The tests of the noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTests>,
    /// One of [`Verdict`]'s sentences.
    pub verdict: &'static str,
    /// Sentences for readers.
    pub statements: Vec<String>,
}

/// The tested run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tested {
    /// The name of the run.
    pub name: String,
    /// SHA-256 of the configuration.
    pub config_sha256: String,
    /// `mechanism`, `this run` or `a twin of this run`.
    pub tested: &'static str,
}

/// One bound from canaries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// `mechanism`.
    pub level: &'static str,
    /// `all_iterates`.
    pub adversary: &'static str,
    /// Secrets that the attacker is assumed not to know.
    pub unknown_to_attacker: Vec<&'static str>,
    /// Number of canaries, `m`.
    pub canaries: u64,
    /// Number of canaries whose coin put them in.
    #[serde(rename = "in")]
    pub members: u64,
    /// Number of guesses that was fixed beforehand, `r`; `None` for an estimator without guesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guesses: Option<u64>,
    /// Number of correct guesses, `v`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correct: Option<u64>,
    /// Confidence of the bound.
    pub confidence: f64,
    /// `true` for the one bound that decides about the exit status.
    pub headline: bool,
    /// The estimator.
    pub estimator: &'static str,
    /// Its assumption.
    pub assumption: &'static str,
    /// The lower bound on epsilon at the claim's delta.
    pub epsilon_lower: f64,
    /// The bound if every guess had been right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_that_could_show: Option<f64>,
    /// The probability of as many correct guesses, at most, if the claim holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_at_claim: Option<f64>,
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

/// SHA-256 of values as little-endian `f32`, in hexadecimal digits.
pub(super) fn digest_of(values: &[f32]) -> String {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(value.to_le_bytes());
    }
    hex(&hash.finalize())
}

/// The audit of a replay.
#[must_use]
pub fn of_replay(name: &str, config_sha256: &str, replay: Replay) -> Audit {
    let verdict = match replay.contradicts() {
        true => Verdict::Contradicted,
        false => Verdict::Nothing,
    };
    let mut statements = vec![format!(
        "{} (user, round) pairs of {} were replayed with and without the user. A replay proves the sensitivity of these sums for these \
         users, and of no others.",
        replay.pairs, replay.tested
    )];
    if replay.tested != "this run" {
        statements.push("A twin of this run was replayed under a fresh seed, never this run.".to_owned());
    }
    statements.push("A replay does not check the accountant: reference cases do.".to_owned());
    Audit {
        schema: "undertone.audit/1",
        run: Tested {
            name: name.to_owned(),
            config_sha256: config_sha256.to_owned(),
            tested: replay.tested,
        },
        plan_sha256: None,
        claim: None,
        canaries: Vec::new(),
        noise: None,
        verdict: verdict.sentence(),
        statements,
        replay: Some(replay),
    }
}

//! Exposure of the secrets of invented users, as an audit records it.
//!
//! Every figure here is about invented users alone, so it may stand in a release.

use serde::{Deserialize, Serialize};
use undertone_accounting::Epsilon;
use undertone_accounting::audit::Significance;
use undertone_accounting::audit::exposure::limit;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::number;

use super::noise::FAILURE;
use undertone_run_directory::error::Result;

/// The sentence that stands beside every bound.
pub const LIMITS: &str =
    "It does not show that no better attack exists. The promise is the claim, which rests on proof.";

/// Number of candidates of each secret.
pub const CANDIDATES: u64 = 1 << 20;

/// Numbers of texts that hold the secret; the invented users take turns.
pub const REPEATS: [usize; 3] = [1, 4, 16];

/// Exposure of the secrets of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exposures {
    /// Median exposure in bits.
    pub median: f64,
    /// Largest exposure in bits.
    pub highest: f64,
    /// Median exposure by the number of texts that hold the secret.
    pub median_by_texts: Vec<(usize, f64)>,
    /// Number of secrets above the limit of the claim, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_limit: Option<usize>,
    /// The exposures in bits, in the order of the secrets.
    pub exposures: Vec<f64>,
}

impl Exposures {
    /// The figures of these exposures, one per secret, under a limit.
    #[must_use]
    pub fn of(exposures: Vec<f64>, limit: Option<f64>) -> Self {
        let by_texts = REPEATS.iter().enumerate().filter_map(|(turn, &repeats)| {
            let of_texts: Vec<f64> = exposures
                .iter()
                .skip(turn)
                .step_by(REPEATS.len())
                .copied()
                .collect();
            (!of_texts.is_empty()).then(|| (repeats, median(&of_texts)))
        });
        Self {
            median: median(&exposures),
            highest: exposures.iter().copied().fold(0.0, f64::max),
            median_by_texts: by_texts.collect(),
            above_limit: limit.map(|limit| exposures.iter().filter(|exposure| **exposure > limit).count()),
            exposures,
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// An attack by exposure on a copy of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exposed {
    /// The claim of the copy, which has more users than the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<GuaranteeRecord>,
    /// Number of secrets, each of an invented user of its own.
    pub secrets: usize,
    /// Number of candidates for each secret.
    pub candidates: u64,
    /// The exposure that a secret exceeds with a probability of at most 5 % under the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_95: Option<f64>,
    /// The exposure that any of the secrets exceeds with a probability of at most 0.1 % under the claim. One above it contradicts the claim.
    /// `None` where delta is too large for such a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_of_all: Option<f64>,
    /// The exposures under the model of the copy.
    pub attack: Exposures,
    /// Rounds of the positive control, and the exposures under its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<(u64, Exposures)>,
}

impl Exposed {
    /// The attack with the figures that follow from its exposures and from the claim of the copy.
    ///
    /// # Errors
    /// A claim that no limit follows from.
    pub fn of(
        claim: Option<GuaranteeRecord>,
        attack: Vec<f64>,
        control: Option<(u64, Vec<f64>)>,
    ) -> Result<Self> {
        let limit_95 = match &claim {
            Some(claim) => {
                let epsilon = Epsilon::new(claim.epsilon)?;
                Some(limit(epsilon, claim.delta, Significance::REPORTED)?)
            }
            None => None,
        };
        let each = FAILURE / attack.len().max(1) as f64;
        let limit_of_all = match &claim {
            Some(claim) if claim.delta < each => {
                let epsilon = Epsilon::new(claim.epsilon)?;
                Some(limit(epsilon, claim.delta, Significance::new(each)?)?)
            }
            _ => None,
        };
        Ok(Self {
            claim,
            secrets: attack.len(),
            candidates: CANDIDATES,
            limit_95,
            limit_of_all,
            attack: Exposures::of(attack, limit_95),
            control: control.map(|(rounds, found)| (rounds, Exposures::of(found, None))),
        })
    }

    /// The attack as its exposures make it.
    ///
    /// # Errors
    /// The errors of [`of`](Self::of).
    pub fn made_again(&self) -> Result<Self> {
        let control = self.control.as_ref();
        Self::of(
            self.claim.clone(),
            self.attack.exposures.clone(),
            control.map(|(rounds, found)| (*rounds, found.exposures.clone())),
        )
    }

    /// `true` if a secret is exposed by more than [`limit_of_all`](Self::limit_of_all). An exposure that is no number counts as one.
    #[must_use]
    pub fn contradicts(&self) -> bool {
        let exposures = &self.attack.exposures;
        let above = |limit: f64| {
            exposures
                .iter()
                .any(|exposure| *exposure > limit || exposure.is_nan())
        };
        self.limit_of_all.is_some_and(above)
    }

    /// Sentences for readers.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let limit = self.limit_95.map_or(String::new(), |limit| {
            format!(
                " Under the claim of the copy, a secret exceeds {} bits with a probability of at most 5 %.",
                number(limit)
            )
        });
        let control = match &self.control {
            Some((rounds, found)) => format!(
                "A positive control of {rounds} rounds without clipping and noise exposes them by {} bits in the median.",
                number(found.median)
            ),
            None => "No positive control was made. Without one, a small exposure means only that the attack is weak."
                .to_owned(),
        };
        let bits = (self.candidates as f64).log2();
        let alarm = match (&self.claim, self.limit_of_all) {
            (None, _) => "The copy has no claim that an exposure could contradict.".to_owned(),
            (Some(_), Some(limit)) if limit < bits => format!(
                "An exposure above {} bits contradicts the claim: under it, any of these secrets exceeds them with a probability of at most {} %.",
                number(limit),
                number(100.0 * FAILURE)
            ),
            (Some(_), _) => format!(
                "No exposure of {} secrets with {} candidates each could contradict the claim with a significance of {} %.",
                self.secrets,
                self.candidates,
                number(100.0 * FAILURE)
            ),
        };
        vec![
            format!(
                "A model of a copy of this run exposes {} secrets of invented users by {} bits in the median and by {} at most, of 20.{limit} \
                 This run itself was not tested. {LIMITS}",
                self.secrets,
                number(self.attack.median),
                number(self.attack.highest),
            ),
            alarm,
            control,
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::{Verdict, of_exposure};
    use super::*;

    fn claim(epsilon: f64, delta: f64) -> GuaranteeRecord {
        serde_json::from_value(json!({
            "epsilon": epsilon,
            "delta": delta,
            "adjacency": "add-or-remove-one",
            "sampling": "poisson",
            "recipe": "pld",
            "rounds": 10,
            "population": 60,
            "users_per_round": 12.0,
            "noise_multiplier": 2.0,
        }))
        .unwrap()
    }

    fn judged(claim: Option<GuaranteeRecord>, exposures: Vec<f64>) -> (Verdict, String) {
        let exposed = Exposed::of(claim, exposures, None).unwrap();
        let statements = exposed.sentences().join(" ");
        (of_exposure("run", "00", exposed).judged(), statements)
    }

    /// With epsilon 1 and 10 secrets, the limit of all is `(1 - ln(1e-4 - 1e-6)) / ln 2`, which is 14.74 bits.
    #[test]
    fn one_secret_above_the_limit_of_all_contradicts_the_claim() {
        let of = |highest: f64| {
            let mut exposures = vec![1.0; 9];
            exposures.push(highest);
            judged(Some(claim(1.0, 1e-6)), exposures)
        };
        assert_eq!(of(14.7).0, Verdict::Nothing);
        let (verdict, statements) = of(14.8);
        assert_eq!(verdict, Verdict::Contradicted);
        assert!(
            statements.contains("An exposure above 14.74 bits contradicts the claim"),
            "{statements}"
        );
        assert_eq!(of(f64::NAN).0, Verdict::Contradicted);
        // A large claim, a large delta and no claim at all leave nothing to contradict.
        for claim in [Some(claim(8.0, 1e-6)), Some(claim(1.0, 1e-3)), None] {
            let (verdict, statements) = judged(claim, vec![20.0; 10]);
            assert_eq!(verdict, Verdict::Nothing);
            assert!(statements.contains("could contradict"), "{statements}");
        }
    }
}

//! Exposure of the secrets of invented users, as an audit records it.
//!
//! Every figure here is about invented users alone, so it may stand in a release.

use serde::{Deserialize, Serialize};
use undertone_accounting::Epsilon;
use undertone_accounting::audit::Significance;
use undertone_accounting::audit::exposure::limit;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_present::numbers::number;

use super::record::LIMITS;
use crate::error::Result;

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
        Ok(Self {
            claim,
            secrets: attack.len(),
            candidates: CANDIDATES,
            limit_95,
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
        vec![
            format!(
                "A model of a copy of this run exposes {} secrets of invented users by {} bits in the median and by {} at most, of 20.{limit} \
                 This run itself was not tested. {LIMITS}",
                self.secrets,
                number(self.attack.median),
                number(self.attack.highest),
            ),
            control,
        ]
    }
}

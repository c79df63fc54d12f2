//! The lines of a ledger and the guarantee of a run, as types.
//!
//! `ledger.jsonl` holds one [`LedgerEntry`] per line, and `privacy.json` one [`PrivacyReport`].
//!
//! PRIVACY: the ledger contains exact statistics of the cohort and belongs to whoever runs the training.

use serde::{Deserialize, Serialize};

use crate::participation::ParticipantId;

/// One line of `ledger.jsonl`: everything the accountant needs of one round, durable before the
/// checkpoint that holds the round's parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Round index, from 0.
    pub round: u64,
    /// `poisson`, `fixed_size` (without replacement), `shuffled_epochs` or `device_timers`.
    pub sampling: String,
    /// Poisson probability of a user, with example-level sampling of an example; cohort size / population for fixed-size
    /// cohorts.
    pub sampling_probability: f64,
    /// Users in the population sampled from.
    pub population: u64,
    /// Their total weight `W`, which a private run with weights has from its run file; with example-level sampling their
    /// kept examples, `|D_sub|`.
    pub total_weight: f64,
    /// Users that took part.
    pub cohort_size: u64,
    /// ULS: examples that a user draws at most; ELS: examples of a user that are kept at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// ULS and ELS: examples whose gradients the sum was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// How many of them the released sum holds, where they can fail on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<u64>,
    /// Whether too few were left, so that nothing was released. Participation counts all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// Whether the parameters would not have been finite after the round, so that they stayed as they were. The round is spent all
    /// the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// Who contributed: the participants' pseudonyms, 16 hexadecimal digits each, under the run's salt.
    pub participants: Vec<ParticipantId>,
    /// Bound `S` on every user's update, with example-level sampling on every example's gradient; `None` without clipping.
    pub clip_norm: Option<f64>,
    /// Sensitivity of the released average (L2).
    pub sensitivity: Option<f64>,
    /// Noise standard deviation per coordinate of the released average; of correlated noise, of every entry of `Z`.
    pub noise_std: f64,
    /// What the accountant composes, `noise_std / sensitivity` (adaptive clipping: with the users' bits counted); `None`
    /// when not private.
    pub noise_multiplier: Option<f64>,
    /// A name of the key that the round's noise came from; no two sums were ever noised under one name and round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_key: Option<String>,
    /// SHA-256 of the parameters after the round (hex).
    pub parameters_sha256: String,
    /// SHA-256 of the line before (hex), of the run's settings for the first: whoever changes a line changes all after it.
    pub previous_sha256: String,
}

/// `privacy.json`: the guarantee and what it covers, in the form of Appendix A of \[Gboard\].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrivacyReport {
    /// Whether the run gives any guarantee at all.
    pub private: bool,
    /// What is protected and what is released, in sentences.
    pub statements: Vec<String>,
    /// Warnings: seeded noise, vocabulary from the training data, estimates, ...
    pub warnings: Vec<String>,
    /// Computed before training from the configuration.
    pub planned: Option<GuaranteeRecord>,
    /// Of the rounds that were made, for everyone who keeps to the declared participation schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_case: Option<GuaranteeRecord>,
    /// Recomputed from the ledger.
    pub observed: Option<GuaranteeRecord>,
    /// Of the run and the private choice of its vocabulary together: the observed guarantee composed with the vocabulary's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_vocabulary: Option<GuaranteeRecord>,
    /// Of everything together that is known to have read these people's text: the run, its private vocabulary, and the
    /// trainings on the same source of the model that the run started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_initial_model: Option<GuaranteeRecord>,
    /// The guarantee that a larger run with this noise would have (`[estimate]`); never the guarantee of this run.
    pub estimate: Option<GuaranteeRecord>,
}

/// One guarantee with how it was obtained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuaranteeRecord {
    /// Upper bound on eps.
    pub epsilon: f64,
    /// At this delta.
    pub delta: f64,
    /// Neighbouring relation.
    pub adjacency: String,
    /// Sampling assumption.
    pub sampling: String,
    /// Accountant.
    pub recipe: String,
    /// Rounds composed.
    pub rounds: u64,
    /// Population size.
    pub population: u64,
    /// Expected users a round; with example-level sampling at most so many.
    pub users_per_round: f64,
    /// Example-level sampling: `G`, examples kept of one user at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_size: Option<u32>,
    /// Noise multiplier of the first round.
    pub noise_multiplier: f64,
    /// The participation schema that it holds for, where it rests on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaRecord>,
    /// What the distance of the real sampler from ideal noise adds to delta; it is counted in `epsilon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler_delta: Option<f64>,
    /// Epsilon at other deltas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<GuaranteePoint>,
}

/// One point of a guarantee's curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GuaranteePoint {
    /// At this delta.
    pub delta: f64,
    /// Upper bound on eps.
    pub epsilon: f64,
}

/// A participation schema, the mechanism that was run under it, and what that costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemaRecord {
    /// The strategy, by name.
    pub mechanism: String,
    /// `b`: distance in rounds of two participations of one user (MinS + 1).
    pub min_sep: u64,
    /// Whether consecutive participations are exactly so far apart.
    pub exact_sep: bool,
    /// `k`: participations of one user (MaxP).
    pub max_part: u64,
    /// L2 sensitivity of the strategy under the schema, in clip norms.
    pub sensitivity: f64,
    /// Zero-concentrated differential privacy, `sensitivity^2 / (2 noise_multiplier^2)`.
    pub rho: f64,
}

impl SchemaRecord {
    /// The schema in words.
    #[must_use]
    pub fn participation(&self) -> String {
        if self.max_part == 1 {
            return "each user once (MaxP 1)".to_owned();
        }
        format!(
            "at most {} times (MaxP), {} {} rounds apart (MinS {})",
            self.max_part,
            if self.exact_sep { "exactly" } else { "at least" },
            self.min_sep,
            self.min_sep.saturating_sub(1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_no_run_writes_is_still_described() {
        let schema = SchemaRecord {
            mechanism: "tree".to_owned(),
            min_sep: 0,
            exact_sep: false,
            max_part: 2,
            sensitivity: 1.0,
            rho: 1.0,
        };
        assert!(
            schema
                .participation()
                .ends_with("at least 0 rounds apart (MinS 0)")
        );
    }
}

//! The lines and files of a run directory, as types: what a run writes and what reports read back.
//!
//! `metrics.jsonl` holds one [`MetricsLine`] a line, `ledger.jsonl` one [`LedgerEntry`] a line, `privacy.json` one
//! [`PrivacyReport`]. Reports are made from these files alone, so a report can be made again at any time.
//!
//! PRIVACY: only the parameters are a differentially private release. Metrics, ledger and report contain exact
//! statistics of the cohort (sizes, norms, losses) and belong to whoever runs the training.

use serde::{Deserialize, Serialize};

use crate::identity::ParameterCounts;
use crate::participation::ParticipantId;

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MetricsLine {
    /// What the run is and what it works on: the first line.
    Start(StartRecord),
    /// One finished round.
    Round(RoundRecord),
    /// One evaluation of the global model.
    Evaluation(EvaluationRecord),
}

/// The first line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartRecord {
    /// Run name.
    pub run: String,
    /// Model family.
    pub model: String,
    /// Number of parameters that are trained.
    pub parameters: usize,
    /// Number of parameters that stay as they are, beside adapters.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frozen_parameters: usize,
    /// Users in the training partition.
    pub train_users: usize,
    /// Tokens in the training partition after caps and filters.
    pub train_tokens: u64,
    /// Rounds that the run will make.
    pub rounds: u64,
    /// Histogram of tokens per training user.
    pub user_sizes: Histogram,
    /// Best reachable top-1 accuracy, where the source knows it (synthetic population).
    pub best_accuracy: Option<f64>,
    /// Top-1 accuracy on the evaluation partition of always predicting the most frequent training word.
    pub unigram_accuracy: Option<f64>,
    /// Why the run will come to nothing, and what would help, where its plan says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl StartRecord {
    /// How many parameters are trained, and of how many, in words.
    #[must_use]
    pub fn counts(&self) -> String {
        let counts = ParameterCounts {
            trained: self.parameters,
            frozen: self.frozen_parameters,
        };
        counts.to_string()
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One finished round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Round index, from 0.
    pub round: u64,
    /// Users that took part.
    pub cohort_size: usize,
    /// How many of them the sum holds, where they can fail on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<u64>,
    /// Whether too few were left, so that nothing was released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// Sum of the user weights `w_k`.
    pub cohort_weight: f64,
    /// ULS and ELS: examples whose gradients the sum was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Target tokens trained on.
    pub tokens: u64,
    /// Mean training loss (nats per token) over all local steps.
    #[serde(with = "crate::json_number")]
    pub train_loss: f64,
    /// Flat clip norm `S` of the round; `None` without clipping.
    pub clip_norm: Option<f64>,
    /// Users (ELS: examples) whose local training left the range of numbers and who contributed a zero vector.
    #[serde(default)]
    pub discarded: usize,
    /// Fraction of users whose update was clipped at its last local step; ELS: of examples whose gradient was.
    pub clipped_fraction: f64,
    /// Histogram of update norms before the last projection; ELS: of the norms of the examples' gradients.
    pub update_norms: Histogram,
    /// L2 norm of the released (noised) average update.
    #[serde(with = "crate::json_number")]
    pub release_norm: f64,
    /// Noise standard deviation per coordinate of the average; 0 when not private.
    pub noise_std: f64,
    /// Norm of the signal over the noise's, `noise_std * sqrt(d)`, estimated from the release alone: what its energy has
    /// beyond the noise's. `None` when not private.
    pub signal_to_noise: Option<f64>,
    /// Running guarantee after this round at the run's delta; `None` when not private. It is stated at every evaluation, and
    /// without correlated noise at a hundred rounds besides.
    pub epsilon: Option<f64>,
    /// Adaptive clipping: the private estimate of the norm's quantile after this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_clip_norm: Option<f64>,
    /// Digest of the round's line in the ledger, which names participants, keys and parameters that no file determines.
    /// Pre-training has no ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_sha256: Option<String>,
    /// Wall-clock seconds of the round.
    pub seconds: f64,
    /// Where they went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseSeconds>,
}

/// Wall-clock seconds of a round's parts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// The budget, and who takes part.
    pub cohort: f64,
    /// Local training, without clipping and adding to the sum.
    pub training: f64,
    /// Projections after local steps, the mean over the workers.
    pub clip: f64,
    /// Bounding updates and adding them to the sum, the mean over the workers.
    pub sum: f64,
    /// Averaging and noise.
    pub noise: f64,
    /// The server optimizer.
    pub server: f64,
    /// The ledger's line, with the digest of the parameters and what was spent.
    pub ledger: f64,
    /// Writing a checkpoint before this round, if one was written; not part of the round's seconds.
    pub checkpoint: f64,
}

/// One evaluation of the global model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Rounds finished when the model was evaluated.
    pub round: u64,
    /// Partition: `validation` or `test`.
    pub split: String,
    /// Seconds of training so far (evaluation excluded).
    pub train_seconds: f64,
    /// The measures.
    pub metrics: crate::evaluate::Metrics,
}

/// A histogram with explicit bin edges (`edges.len() == counts.len() + 1`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Bin edges, increasing.
    pub edges: Vec<f64>,
    /// Count per bin.
    pub counts: Vec<u64>,
}

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

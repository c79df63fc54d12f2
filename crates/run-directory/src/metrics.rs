//! The lines of `metrics.jsonl`, as types: a run writes them and reports read them back.
//!
//! Reports are made from the files of a run alone, so a report can be drawn again at any time.
//!
//! PRIVACY: only the parameters are a differentially private release. Metrics contain exact statistics of the cohort (sizes,
//! norms, losses) and belong to the operator of the training.

pub mod accuracy;
mod json_number;

use serde::{Deserialize, Serialize};

use undertone_coordinator::identity::ParameterCounts;

/// One line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MetricsLine {
    /// The run, its model and its data: the first line.
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
    /// Number of users in the training partition; of a task of the service its declared population.
    pub train_users: usize,
    /// Number of tokens in the training partition after caps and filters. A service never learns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_tokens: Option<u64>,
    /// Number of rounds that the run will make.
    pub rounds: u64,
    /// Histogram of tokens per training user. A service never learns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_sizes: Option<Histogram>,
    /// Best reachable top-1 accuracy, where the source knows it (synthetic population).
    pub best_accuracy: Option<f64>,
    /// Top-1 accuracy on the evaluation partition of always predicting the most frequent training word.
    pub unigram_accuracy: Option<f64>,
    /// Standard error of `unigram_accuracy` over the users of that partition; files of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unigram_standard_error: Option<f64>,
    /// The warning of the plan that the noise of the run leaves nothing of what is learnt, with changes that help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl StartRecord {
    /// The numbers of trained and of all parameters, in words.
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RoundRecord {
    /// Round index, from 0.
    pub round: u64,
    /// Number of users that took part.
    pub cohort_size: usize,
    /// Number of users in the sum, where users can fail on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survivors: Option<u64>,
    /// `true` if too few users were left, so that nothing was released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// Sum of the user weights `w_k`.
    pub cohort_weight: f64,
    /// ULS and ELS: number of examples whose gradients are in the sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Number of target tokens trained on. A service learns neither it nor the loss, the fraction that was clipped, the norms and the
    /// number of discarded updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Mean training loss (nats per token) over all local steps.
    #[serde(
        with = "json_number::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub train_loss: Option<f64>,
    /// Flat clip norm `S` of the round; `None` without clipping.
    pub clip_norm: Option<f64>,
    /// Number of users (ELS: examples) whose local training left the range of numbers, so that they contributed a zero vector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<usize>,
    /// Fraction of users whose update was clipped at its last local step; ELS: of examples whose gradient was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipped_fraction: Option<f64>,
    /// Histogram of update norms before the last projection; ELS: of the norms of the examples' gradients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_norms: Option<Histogram>,
    /// L2 norm of the released (noised) average update.
    #[serde(with = "json_number")]
    pub release_norm: f64,
    /// Noise standard deviation per coordinate of the average; 0 when not private.
    pub noise_std: f64,
    /// Norm of the signal over the noise's, `noise_std * sqrt(d)`, estimated from the release alone by its energy beyond the
    /// noise's. `None` when not private.
    pub signal_to_noise: Option<f64>,
    /// Running guarantee after this round at the run's delta; `None` when not private. It is stated at every evaluation, and
    /// without correlated noise at a hundred rounds besides.
    pub epsilon: Option<f64>,
    /// The private estimate of the norm's quantile after this round, where clipping is adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_clip_norm: Option<f64>,
    /// Digest of the round's line in the ledger, which names participants, keys and parameters that no file determines.
    /// Pre-training has no ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger_sha256: Option<String>,
    /// Wall-clock seconds of the round.
    pub seconds: f64,
    /// Seconds of the parts of the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseSeconds>,
}

/// Wall-clock seconds of a round's parts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// The budget check, and the sampling of the cohort.
    pub cohort: f64,
    /// Local training, without clipping and adding to the sum.
    pub training: f64,
    /// Projections after local steps, as the mean over the workers.
    pub clip: f64,
    /// Bounding updates and adding them to the sum, as the mean over the workers.
    pub sum: f64,
    /// Averaging and noise.
    pub noise: f64,
    /// The server optimizer.
    pub server: f64,
    /// The ledger's line, with the digest of the parameters and the spending.
    pub ledger: f64,
    /// Writing a checkpoint before this round, if one was written; not part of the round's seconds.
    pub checkpoint: f64,
}

/// One evaluation of the global model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// Number of rounds finished when the model was evaluated.
    pub round: u64,
    /// Partition: `validation` or `test`.
    pub split: String,
    /// Seconds of training so far (evaluation excluded).
    pub train_seconds: f64,
    /// The measures.
    pub metrics: Metrics,
}

/// A histogram with explicit bin edges (`edges.len() == counts.len() + 1`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Bin edges, increasing.
    pub edges: Vec<f64>,
    /// Count per bin.
    pub counts: Vec<u64>,
}

/// The measures of one evaluation.
///
/// Files of older versions lack the standard errors, `users`, `commonest_prediction` and `sample`.
///
/// # Source
/// \[DPLM\] Appendix B (AccuracyTop1) and Table 3 (head words).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Top-1 of a keyboard: fraction of targets for which the likeliest word is right. Candidates are the words (and EOS where EOS is
    /// a target): a keyboard never offers UNK. A target outside the vocabulary is always a mistake.
    pub top1: f64,
    /// Fraction of targets among the three likeliest candidates, with the same rule for targets outside the vocabulary.
    pub top3: f64,
    /// Fraction of targets among the five likeliest candidates, with the same rule.
    pub top5: f64,
    /// AccuracyTop1: top-1 when every id is a candidate, UNK, BOS and EOS among them: predicting UNK is then always a mistake.
    pub top1_all_ids: f64,
    /// Top-1 of a keyboard over the targets inside the vocabulary alone; `None` when there are none.
    pub in_vocab_top1: Option<f64>,
    /// Exponential of the mean loss over all targets, UNK taken as a word; infinite where it is beyond an `f64`.
    #[serde(with = "json_number")]
    pub perplexity: f64,
    /// Number of targets.
    pub targets: u64,
    /// Number of targets outside the vocabulary.
    pub out_of_vocabulary: u64,
    /// Number of users with a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// Standard error of `top1` over users: a sum over independent people. `None` with one user, as are the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top1_standard_error: Option<f64>,
    /// Standard error of `top3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top3_standard_error: Option<f64>,
    /// Standard error of `top5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top5_standard_error: Option<f64>,
    /// Standard error of `top1_all_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top1_all_ids_standard_error: Option<f64>,
    /// Standard error of `in_vocab_top1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_vocab_top1_standard_error: Option<f64>,
    /// Standard error of the mean loss, the logarithm of `perplexity`.
    #[serde(
        with = "json_number::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub loss_standard_error: Option<f64>,
    /// The candidate that was most often the likeliest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commonest_prediction: Option<CommonestPrediction>,
    /// The measures on the first of these users, those that the evaluations during a run read; `None` where they are all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Box<Metrics>>,
    /// Histograms of the top ten predictions that are among the most frequent words; only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_words: Option<HeadWords>,
}

impl Metrics {
    /// The measures on the users that all evaluations of a run read: a point of its curve.
    #[must_use]
    pub fn on_curve(&self) -> &Self {
        self.sample.as_deref().unwrap_or(self)
    }
}

/// A prediction and how often it was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CommonestPrediction {
    /// The id of the prediction.
    pub id: u32,
    /// The fraction of targets for which it was the likeliest candidate.
    pub share: f64,
}

/// Histograms of how many of the ten likeliest predictions are among the `n` most frequent words: bin `i` counts the
/// predictions with `i` of them, `0..=10`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HeadWords {
    /// `n = 10`.
    pub top10: Vec<u64>,
    /// `n = 50`.
    pub top50: Vec<u64>,
    /// `n = 100`.
    pub top100: Vec<u64>,
}

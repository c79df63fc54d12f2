//! The run file: a task with its data, its start and its seed, as one value.
//!
//! A run file is TOML; unknown keys are errors. The tables are the parts of \[DPLM\] Algorithm 1: `[data]`, `[model]`,
//! `[cohort]` (who is sampled), `[user_update]` (what a user computes), `[clip]`, `[estimator]`, `[privacy]` (noise and
//! budget), `[server]`, and beside them `[aggregation]`, `[[schedule]]`, `[estimate]`, `[evaluation]`, `[checkpoint]`, `[audit]`.

pub mod keys;
mod load;
pub mod public;
mod validate;
mod without_privacy;
mod wrong;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_models::ModelSpec;
use undertone_settings::EngineConfig;
use undertone_settings::{CorpusSpec, UserSettings};
use undertone_text::EosTargets;

use undertone_coordinator::plan::LaneSize;
use undertone_coordinator::task::{
    AggregationConfig, ClipConfig, CohortConfig, EstimateConfig, EstimatorConfig, ParticipationConfig,
    PrivacyConfig, SchedulePoint, ServerConfig, TaskConfig,
};

pub use load::is_of_session;
pub use load::refuse_session;
pub use load::{Override, parse_as, settings_from_value, syntax_error};
pub use validate::MAX_CANARIES;
pub use validate::{fits_context, token_limits};

/// A whole run: its task, its data, its initial model and its seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "RunText", into = "RunText")]
pub struct RunConfig {
    /// Everything that privacy depends on.
    pub task: TaskConfig,
    /// The seed that fixes cohorts, initial parameters and noise. Seeded runs are for study: anyone who knows the seed can
    /// subtract the noise.
    pub seed: Option<u64>,
    /// The corpus.
    pub data: CorpusSpec,
    /// Parameters to start from, such as those of `undertone pretrain`: a `model.safetensors` of the same model and words, or
    /// weights in GPT-2's layout. `model.lora` is added to them.
    pub initial_model: Option<PathBuf>,
    /// A folder with adapters in the layout of `peft`, on the model that `initial_model` names. A run with `model.lora` trains them
    /// further; one without starts from the sum.
    pub initial_adapters: Option<PathBuf>,
    /// The rounds and the text of evaluations.
    pub evaluation: EvaluationConfig,
    /// The rounds of checkpoints, from which the run can be resumed.
    pub checkpoint: CheckpointConfig,
    /// The coordinates beside the model that test the mechanism, where the run has some.
    pub audit: Option<AuditConfig>,
    /// The machine that trains users.
    pub engine: EngineConfig,
}

/// The text of a run file: one table, with the keys of `config.toml` in their order.
///
/// The genesis digest of a ledger covers the text of `config.toml`, so the order of these fields is part of the format.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RunText {
    /// Name of the run and of its folder below `runs/`.
    name: String,
    /// The seed that fixes cohorts, initial parameters and noise. Seeded runs are for study: anyone who knows the seed can subtract
    /// the noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Number of rounds.
    rounds: u64,
    /// `[data]`: the source of the text, the choice of users and the cut into examples.
    data: CorpusSpec,
    /// `[model]`: the family of the model and its sizes.
    model: ModelSpec,
    /// Parameters to start from, such as those of `undertone pretrain`: a `model.safetensors` of the same model and words, or
    /// weights in GPT-2's layout. `model.lora` is added to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_model: Option<PathBuf>,
    /// A folder with adapters in the layout of `peft`, on the model that `initial_model` names. A run with `model.lora` trains them
    /// further; one without starts from the sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_adapters: Option<PathBuf>,
    /// `[cohort]`: the users of a round, and how they are sampled.
    cohort: CohortConfig,
    /// `[user_update]`: the work of a user.
    user_update: UserSettings,
    /// `[clip]`: the bound on the update of a user. Default: norm 1 in a private run, and no bound elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<ClipConfig>,
    /// `[estimator]`: the average of the updates.
    #[serde(default)]
    estimator: EstimatorConfig,
    /// `[participation]`: how often a user may contribute, for noise that is correlated over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    participation: Option<ParticipationConfig>,
    /// `[privacy]`: noise and budget. A run without it is not private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    privacy: Option<PrivacyConfig>,
    /// `[aggregation]`: the sum of the updates, such as a secure one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregation: Option<AggregationConfig>,
    /// `[server]`: the optimizer that applies the noised average.
    #[serde(default)]
    server: ServerConfig,
    /// `[[schedule]]`: changes of the cohort and the noise at given rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    schedule: Vec<SchedulePoint>,
    /// `[estimate]`: the number of users, estimated with noise before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    estimate: Option<EstimateConfig>,
    /// `[evaluation]`: the rounds and the text of evaluations.
    #[serde(default)]
    evaluation: EvaluationConfig,
    /// `[checkpoint]`: the rounds of checkpoints, from which the run can be resumed.
    #[serde(default)]
    checkpoint: CheckpointConfig,
    /// `[audit]`: coordinates beside the model, whose releases test the mechanism of the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit: Option<AuditConfig>,
    /// `[engine]`: the machine that trains users.
    #[serde(default, skip_serializing_if = "EngineConfig::is_processor")]
    engine: EngineConfig,
}

impl From<RunText> for RunConfig {
    fn from(text: RunText) -> Self {
        Self {
            task: TaskConfig {
                name: text.name,
                rounds: text.rounds,
                model: text.model,
                cohort: text.cohort,
                user_update: text.user_update,
                clip: text
                    .clip
                    .unwrap_or_else(|| ClipConfig::by_default(text.privacy.is_some())),
                estimator: text.estimator,
                participation: text.participation,
                privacy: text.privacy,
                aggregation: text.aggregation,
                server: text.server,
                schedule: text.schedule,
                estimate: text.estimate,
            },
            seed: text.seed,
            data: text.data,
            initial_model: text.initial_model,
            initial_adapters: text.initial_adapters,
            evaluation: text.evaluation,
            checkpoint: text.checkpoint,
            audit: text.audit,
            engine: text.engine,
        }
    }
}

impl From<RunConfig> for RunText {
    fn from(config: RunConfig) -> Self {
        let task = config.task;
        Self {
            name: task.name,
            seed: config.seed,
            rounds: task.rounds,
            // PRIVACY: number and digest of a table's rows are exact functions of people's text.
            data: config.data.unnamed(),
            model: task.model,
            initial_model: config.initial_model,
            initial_adapters: config.initial_adapters,
            cohort: task.cohort,
            user_update: task.user_update,
            clip: Some(task.clip),
            estimator: task.estimator,
            participation: task.participation,
            privacy: task.privacy,
            aggregation: task.aggregation,
            server: task.server,
            schedule: task.schedule,
            estimate: task.estimate,
            evaluation: config.evaluation,
            checkpoint: config.checkpoint,
            audit: config.audit,
            engine: config.engine,
        }
    }
}

/// `[evaluation]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// Rounds between evaluations; the model is also evaluated at the end. 0: only at the end.
    pub every: u64,
    /// The partition.
    pub split: EvaluationSplit,
    /// Max number of tokens, approximately, for evaluations during the run: those of the first users of the partition, whose order is
    /// equal for every run. It counts as `final_max_tokens` where that is smaller.
    pub max_tokens: Option<u64>,
    /// Max number of tokens for the last evaluation, of the first users in that order; by default the whole partition.
    pub final_max_tokens: Option<u64>,
    /// `included` if the end of a sentence counts as a target.
    pub eos: EosTargets,
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        Self {
            every: 20,
            split: EvaluationSplit::Validation,
            max_tokens: Some(50_000),
            final_max_tokens: None,
            eos: EosTargets::Excluded,
        }
    }
}

impl EvaluationConfig {
    /// Max number of tokens for evaluations during the run. They never read more than the last one, so each is a part of it.
    #[must_use]
    pub fn sample_tokens(&self) -> Option<u64> {
        [self.max_tokens, self.final_max_tokens]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The partition an evaluation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EvaluationSplit {
    /// Held-out users.
    #[default]
    Validation,
    /// The test partition.
    Test,
}

impl EvaluationSplit {
    /// The name used in run files, metrics and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

/// `[checkpoint]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Rounds between checkpoints; the last round always makes one.
    pub every: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: 10 }
    }
}

/// `[audit]`: coordinates beside the model, whose releases test the mechanism of the run itself.
///
/// No user contributes to them. They are summed, averaged and noised with the coordinates of the model, and cut off before the
/// optimizer sees a release. So `model.safetensors` has the bytes that it has without the table, unless [`holdback`](Self::holdback) keeps
/// texts out of the training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// Number of canaries, each with a coordinate of its own. A secret coin says of each whether it contributes.
    pub lane: u64,
    /// Number of coordinates without any contribution, whose noise is tested. With `replay_every` or `holdback` it may be 0.
    pub noise_probe: u64,
    /// One round in so many is replayed beside the neighbour of one of its users, while its keys exist; 0 replays none.
    #[serde(skip_serializing_if = "is_default")]
    pub replay_every: u64,
    /// The fraction of each user's texts, the last ones, that the run is not trained on. An attack by user inference has them.
    #[serde(skip_serializing_if = "is_default")]
    pub holdback: f64,
}

fn is_default<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            lane: 0,
            noise_probe: 256,
            replay_every: 0,
            holdback: 0.0,
        }
    }
}

impl AuditConfig {
    /// A table that holds texts back and does nothing else.
    #[must_use]
    pub fn holding_back(fraction: f64) -> Self {
        Self {
            lane: 0,
            noise_probe: 0,
            replay_every: 0,
            holdback: fraction,
        }
    }
}

impl RunConfig {
    /// The coordinates beside the model; none without `[audit]`.
    #[must_use]
    pub fn lane_size(&self) -> LaneSize {
        self.audit.map_or(LaneSize::default(), |audit| LaneSize {
            canaries: audit.lane as usize,
            probes: audit.noise_probe as usize,
        })
    }

    /// The fraction of each user's texts that the run is not trained on; 0 without `[audit]`.
    #[must_use]
    pub fn holdback(&self) -> f64 {
        self.audit.map_or(0.0, |audit| audit.holdback)
    }

    /// Leaves lane and replays out. The run is trained on the same text as before.
    pub fn leave_audits_out(&mut self) {
        let fraction = self.holdback();
        self.audit = (fraction > 0.0).then(|| AuditConfig::holding_back(fraction));
    }

    /// `true` if the run has a lane.
    #[must_use]
    pub fn has_lane(&self) -> bool {
        self.lane_size() != LaneSize::default()
    }

    /// The folder of the run file, where its relative paths start.
    #[must_use]
    pub fn base_of(file: &Path) -> &Path {
        file.parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    }
}

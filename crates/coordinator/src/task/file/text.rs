//! The text of a task file: one table, with the keys in their order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use undertone_models::ModelSpec;
use undertone_settings::{Algorithm, Batching, UserSettings};

use super::super::{
    AggregationConfig, ClipConfig, CohortConfig, EstimatorConfig, ParticipationConfig, PrivacyConfig,
    SchedulePoint, ServerConfig, ServiceConfig, TaskConfig,
};
use super::{TaskFile, TaskPurpose, TaskVocabulary, TextRules};
use crate::error::check::exclude;
use crate::error::{CoordinatorError, Result};

/// The text of a task file. The canonical form has these fields in this order, so the order is part of the format.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct TaskText {
    /// The purpose of the task: training, or the evaluation of another task's model.
    #[serde(default, skip_serializing_if = "Kind::is_train")]
    kind: Kind,
    /// The task whose model is evaluated; only for `kind = "evaluate"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    /// Cap on the loss of a user's mean target, in nats; only for `kind = "evaluate"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_cap: Option<f64>,
    /// Name of the task.
    name: String,
    /// The seed of a parity test, which fixes cohorts and noise. No other task may have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Number of rounds.
    rounds: u64,
    /// `[vocabulary]`: the words of the model.
    vocabulary: TaskVocabulary,
    /// `[text]`: the rules that cut a device's text into examples.
    #[serde(default)]
    text: TextRules,
    /// `[model]`: the family of the model and its sizes.
    model: ModelSpec,
    /// Parameters to start from: a `model.safetensors` of the same model and words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_model: Option<PathBuf>,
    /// `[cohort]`: the devices of a round.
    cohort: CohortConfig,
    /// `[user_update]`: the work of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_update: Option<UserSettings>,
    /// `[clip]`: the bound on the update of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<ClipConfig>,
    /// `[estimator]`: the average of the updates.
    #[serde(default)]
    estimator: EstimatorConfig,
    /// `[participation]`: how often a device may contribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    participation: Option<ParticipationConfig>,
    /// `[privacy]`: noise and budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    privacy: Option<PrivacyConfig>,
    /// `[aggregation]`: the sum of the updates, such as a secure one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregation: Option<AggregationConfig>,
    /// `[server]`: the optimizer that applies the noised average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<ServerConfig>,
    /// `[[schedule]]`: changes of the cohort and the noise at given rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    schedule: Vec<SchedulePoint>,
    /// `[service]`: devices, their deadlines and their eligibility.
    service: ServiceConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Devices train a model.
    #[default]
    Train,
    /// Devices measure the model of another task.
    Evaluate,
}

impl Kind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
    fn is_train(&self) -> bool {
        *self == Self::Train
    }
}

/// Default cap on the loss of a user's mean target, in nats: that of one word among 22,000 at random.
const LOSS_CAP: f64 = 10.0;

/// The bound on the update of an evaluation: three rates from 0 to 1, each over the root of three.
const RATES_NORM: f64 = 1.0;

/// The local work of an evaluation, which trains nothing.
fn no_training() -> UserSettings {
    UserSettings {
        algorithm: Algorithm::FedAvg,
        batching: Batching::Sentences,
        batch_size: Some(16),
        group_size: None,
        unroll: 10,
        epochs: 1,
        learning_rate: Some(1.0),
        max_steps: None,
        clip_every_step: false,
        max_examples: None,
        weight_cap: None,
    }
}

impl TryFrom<TaskText> for TaskFile {
    type Error = CoordinatorError;

    fn try_from(text: TaskText) -> Result<Self> {
        let (purpose, user_update, clip, server) = match text.kind {
            Kind::Train => text.training()?,
            Kind::Evaluate => text.evaluation()?,
        };
        Ok(Self {
            purpose,
            task: TaskConfig {
                name: text.name,
                rounds: text.rounds,
                model: text.model,
                cohort: text.cohort,
                user_update,
                clip,
                estimator: text.estimator,
                participation: text.participation,
                privacy: text.privacy,
                aggregation: text.aggregation,
                server,
                schedule: text.schedule,
                estimate: None,
            },
            seed: text.seed,
            vocabulary: text.vocabulary,
            text: text.text,
            service: text.service,
        })
    }
}

impl TaskText {
    fn training(&self) -> Result<(TaskPurpose, UserSettings, ClipConfig, ServerConfig)> {
        for (key, given) in [("of", self.of.is_some()), ("loss_cap", self.loss_cap.is_some())] {
            let reason = "only a task with `kind = \"evaluate\"` has this key";
            exclude(given, key, reason)?;
        }
        let Some(user_update) = self.user_update.clone() else {
            return Err(CoordinatorError::missing(
                "user_update",
                "a table with the local training of a device",
            ));
        };
        let purpose = TaskPurpose::Train {
            initial_model: self.initial_model.clone(),
        };
        let clip = self
            .clip
            .clone()
            .unwrap_or_else(|| ClipConfig::by_default(self.privacy.is_some()));
        Ok((purpose, user_update, clip, self.server.unwrap_or_default()))
    }

    fn evaluation(&self) -> Result<(TaskPurpose, UserSettings, ClipConfig, ServerConfig)> {
        for (key, given) in [
            ("initial_model", self.initial_model.is_some()),
            ("user_update", self.user_update.is_some()),
            ("clip", self.clip.is_some()),
            ("server", self.server.is_some()),
            ("schedule", !self.schedule.is_empty()),
        ] {
            let reason = "a task with `kind = \"evaluate\"` trains nothing, and its three rates have the norm 1 at most";
            exclude(given, key, reason)?;
        }
        let Some(of) = self.of.clone() else {
            return Err(CoordinatorError::missing(
                "of",
                "the name of the task whose model `kind = \"evaluate\"` measures",
            ));
        };
        let purpose = TaskPurpose::Evaluate {
            of,
            loss_cap: self.loss_cap.unwrap_or(LOSS_CAP),
        };
        let clip = ClipConfig::Flat {
            norm: RATES_NORM,
            normalised: false,
        };
        Ok((purpose, no_training(), clip, ServerConfig::default()))
    }
}

impl From<TaskFile> for TaskText {
    fn from(file: TaskFile) -> Self {
        let task = file.task;
        let mut text = Self {
            kind: Kind::Train,
            of: None,
            loss_cap: None,
            name: task.name,
            seed: file.seed,
            rounds: task.rounds,
            vocabulary: file.vocabulary,
            text: file.text,
            model: task.model,
            initial_model: None,
            cohort: task.cohort,
            user_update: Some(task.user_update),
            clip: Some(task.clip),
            estimator: task.estimator,
            participation: task.participation,
            privacy: task.privacy,
            aggregation: task.aggregation,
            server: Some(task.server),
            schedule: task.schedule,
            service: file.service,
        };
        match file.purpose {
            TaskPurpose::Train { initial_model } => text.initial_model = initial_model,
            TaskPurpose::Evaluate { of, loss_cap } => {
                (text.kind, text.of, text.loss_cap) = (Kind::Evaluate, Some(of), Some(loss_cap));
                (text.user_update, text.clip, text.server) = (None, None, None);
            }
        }
        text
    }
}

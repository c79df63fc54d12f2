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
#[serde(deny_unknown_fields)]
pub(super) struct TaskText {
    #[serde(default, skip_serializing_if = "Kind::is_train")]
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_cap: Option<f64>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    rounds: u64,
    vocabulary: TaskVocabulary,
    #[serde(default)]
    text: TextRules,
    model: ModelSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_model: Option<PathBuf>,
    cohort: CohortConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_update: Option<UserSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<ClipConfig>,
    #[serde(default)]
    estimator: EstimatorConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    participation: Option<ParticipationConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    privacy: Option<PrivacyConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aggregation: Option<AggregationConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<ServerConfig>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    schedule: Vec<SchedulePoint>,
    service: ServiceConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Train,
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

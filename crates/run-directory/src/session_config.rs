//! The settings of a session: those of a run file without data, model, server and evaluation, which the other program has.

mod claims;

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::{
    ClipConfig, CohortConfig, EstimatorConfig, ParticipationConfig, PrivacyConfig, SchedulePoint,
    ServerConfig, TaskConfig, at_least_one,
};
use undertone_models::{ExternalTensor, ModelSpec};
use undertone_settings::{Algorithm, Batching, UserSettings};

use crate::config::{CheckpointConfig, parse_as};
use crate::error::{DirectoryError, Result};

pub use claims::{claims, described, max_model_bytes, population, reads_counts};

/// The settings of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "SessionText", into = "SessionText")]
pub struct SessionConfig {
    /// Everything that privacy depends on. The model is [`ModelSpec::External`].
    pub task: TaskConfig,
    /// The seed that fixes cohorts and noise. Seeded sessions are for study: anyone who knows the seed can subtract the noise.
    pub seed: Option<u64>,
    /// The origin of the random numbers of units.
    pub unit_rng: UnitRng,
    /// Number of users in the population. It is taken as public.
    pub users: u64,
    /// The rounds of checkpoints.
    pub checkpoint: CheckpointConfig,
}

/// The origin of the random numbers by which the other program computes the update of a unit, such as those of dropout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitRng {
    /// Each unit has a generator of its own from fresh entropy.
    #[default]
    Own,
    /// The program draws from generators of its own, which it keeps from unit to unit.
    Caller,
}

impl UnitRng {
    /// The sentence of privacy reports about this origin, where it is a condition of the guarantee.
    pub(super) fn statement(self) -> Option<&'static str> {
        match self {
            Self::Own => None,
            Self::Caller => Some(FROM_THE_CALLER),
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in a reference")]
    fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// The condition of sessions whose program keeps its generators from unit to unit.
const FROM_THE_CALLER: &str = "Random numbers of units: the program that trained drew them from its own generators \
    (`unit_rng = \"caller\"`). The guarantee assumes that the numbers of a unit do not depend on which units came before it. One \
    generator that runs on from unit to unit breaks this: a user who leaves then changes the updates of all later users.";

/// The text of a session's `config.toml`: one table, with its keys in this order.
///
/// The genesis digest of a ledger covers that text, so the order of these fields is part of the format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionText {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(default, skip_serializing_if = "UnitRng::is_own")]
    unit_rng: UnitRng,
    rounds: u64,
    users: u64,
    model: ModelSpec,
    cohort: CohortConfig,
    #[serde(default)]
    user_update: UnitText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<ClipConfig>,
    #[serde(default)]
    estimator: EstimatorConfig,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    participation: Option<ParticipationConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    privacy: Option<PrivacyConfig>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    schedule: Vec<SchedulePoint>,
    #[serde(default)]
    checkpoint: CheckpointConfig,
}

/// `[user_update]`: the unit of a session. Everything else about an update is the other program's.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitText {
    #[serde(default)]
    algorithm: Algorithm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group_size: Option<u32>,
}

impl From<UnitText> for UserSettings {
    fn from(text: UnitText) -> Self {
        Self {
            algorithm: text.algorithm,
            batching: Batching::Sentences,
            // PRIVACY: a session bounds each contribution on its own. One of several examples would be bounded as one.
            batch_size: Some(1),
            group_size: text.group_size,
            unroll: 1,
            epochs: 1,
            learning_rate: (!text.algorithm.is_of_examples()).then_some(1.0),
            max_steps: None,
            clip_every_step: true,
            max_examples: None,
            weight_cap: None,
        }
    }
}

impl From<SessionText> for SessionConfig {
    fn from(text: SessionText) -> Self {
        let mut user_update = UserSettings::from(text.user_update);
        let clip = text
            .clip
            .unwrap_or_else(|| ClipConfig::by_default(text.privacy.is_some()));
        if let (Algorithm::FedAvg, ClipConfig::Adaptive { .. }) = (user_update.algorithm, &clip) {
            // A session bounds whole updates, and their norms are what the quantile is of.
            user_update.clip_every_step = false;
        }
        Self {
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
                aggregation: None,
                server: ServerConfig::default(),
                schedule: text.schedule,
                estimate: None,
            },
            seed: text.seed,
            unit_rng: text.unit_rng,
            users: text.users,
            checkpoint: text.checkpoint,
        }
    }
}

impl From<SessionConfig> for SessionText {
    fn from(config: SessionConfig) -> Self {
        let task = config.task;
        Self {
            name: task.name,
            seed: config.seed,
            unit_rng: config.unit_rng,
            rounds: task.rounds,
            users: config.users,
            model: task.model,
            cohort: task.cohort,
            user_update: UnitText {
                algorithm: task.user_update.algorithm,
                group_size: task.user_update.group_size,
            },
            clip: Some(task.clip),
            estimator: task.estimator,
            participation: task.participation,
            privacy: task.privacy,
            schedule: task.schedule,
            checkpoint: config.checkpoint,
        }
    }
}

/// Settings as JSON, such as another program's dictionary, as the text of a configuration.
///
/// # Errors
/// [`DirectoryError::ConfigSyntax`] for text that is no JSON object, and naming the key for a null.
pub fn text_of_json(json: &str) -> Result<String> {
    let syntax = |message: String| DirectoryError::ConfigSyntax {
        file: "config".into(),
        message,
    };
    let value: serde_json::Value = serde_json::from_str(json).map_err(|error| syntax(error.to_string()))?;
    if let Some(key) = null_in(&value) {
        return Err(syntax(format!("the key `{key}` has no value: leave it out")));
    }
    let table: toml::Table = serde_json::from_value(value).map_err(|error| syntax(error.to_string()))?;
    toml::to_string(&table).map_err(|error| syntax(error.to_string()))
}

/// The dotted key of the first null.
fn null_in(value: &serde_json::Value) -> Option<String> {
    let inner = |(key, value): (String, &serde_json::Value)| {
        if value.is_null() {
            return Some(key);
        }
        null_in(value).map(|rest| format!("{key}.{rest}"))
    };
    match value {
        serde_json::Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .find_map(inner),
        serde_json::Value::Array(items) => {
            let numbered = items.iter().enumerate();
            numbered
                .map(|(index, value)| (index.to_string(), value))
                .find_map(inner)
        }
        _ => None,
    }
}

impl SessionConfig {
    /// Parses and checks settings that say neither the number of users nor the shapes of the parameters, which come beside them.
    /// `path` only names the text in errors.
    ///
    /// # Errors
    /// [`DirectoryError::ConfigSyntax`] with line and column, or with the key; the errors of [`validate`](Self::validate).
    pub fn new(text: &str, path: &Path, users: u64, tensors: &[ExternalTensor]) -> Result<Self> {
        let syntax = |message: String| DirectoryError::ConfigSyntax {
            file: path.to_owned(),
            message,
        };
        let mut given: toml::Table = parse_as(text, path, &[])?;
        for key in ["users", "model"] {
            if given.contains_key(key) {
                return Err(syntax(format!(
                    "the key `{key}` is given beside the configuration, and must be left out of it"
                )));
            }
        }
        let model = ModelSpec::External {
            tensors: tensors.to_vec(),
        };
        let model = toml::Value::try_from(model).map_err(|error| syntax(error.to_string()))?;
        let users = i64::try_from(users)
            .map_err(|_| DirectoryError::value("users", "at most 9,223,372,036,854,775,807", users))?;
        given.insert("users".to_owned(), users.into());
        given.insert("model".to_owned(), model);
        // With the key in place of a line: what was given may have been no text.
        let read: std::result::Result<Self, toml::de::Error> = toml::Value::Table(given).try_into();
        let config = read.map_err(|error| syntax(error.to_string().trim().replace('\n', " ")))?;
        config.validate()?;
        Ok(config)
    }

    /// Parses and checks the text of a session's `config.toml`.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let config: Self = parse_as(text, path, &[])?;
        config.validate()?;
        Ok(config)
    }

    /// `true` if a text is that of a session's `config.toml`, and not that of a run: its model is trained by another program.
    #[must_use]
    pub fn is_of_session(text: &str) -> bool {
        crate::config::is_of_session(text)
    }

    /// Checks each value that its type alone does not.
    ///
    /// # Errors
    /// [`DirectoryError::Coordinator`] naming the key.
    pub fn validate(&self) -> Result<()> {
        at_least_one("users", usize::try_from(self.users).unwrap_or(usize::MAX))?;
        if !self.task.model.is_external() {
            let family = self.task.model.family();
            return Err(DirectoryError::value(
                "model.family",
                "`external` in a session",
                family,
            ));
        }
        if self.task.cohort.sampling == Sampling::CheckIn {
            let expected = "a scheme that a session can draw (`device_timers` simulates devices)";
            return Err(DirectoryError::value("cohort.sampling", expected, "check_in"));
        }
        at_least_one("checkpoint.every", self.checkpoint.every as usize)?;
        Ok(self.task.validate()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"s\"\nrounds = 4\n[cohort]\nusers_per_round = 2\n[user_update]\nalgorithm = \"uls\"\ngroup_size = 3\n\
        [privacy]\nnoise_multiplier = 1.5\n";

    fn read(text: &str) -> Result<SessionConfig> {
        let tensors = [ExternalTensor {
            name: "w".to_owned(),
            shape: vec![2, 3],
        }];
        SessionConfig::new(text, Path::new("config"), 10, &tensors)
    }

    #[test]
    fn the_text_of_a_session_is_read_back_as_it_was_written() {
        let config = read(TEXT).unwrap();
        let text = toml::to_string(&config).unwrap();
        assert!(SessionConfig::is_of_session(&text), "{text}");
        assert!(!SessionConfig::is_of_session(TEXT));
        assert_eq!(
            SessionConfig::parse(&text, Path::new("config.toml")).unwrap(),
            config
        );
        assert_eq!(
            (config.users, config.task.model.layout(0).unwrap().len()),
            (10, 6)
        );
    }

    #[test]
    fn generators_of_the_caller_are_named_in_the_settings_and_the_default_leaves_no_trace() {
        let own = toml::to_string(&read(TEXT).unwrap()).unwrap();
        assert!(!own.contains("unit_rng"), "{own}");
        assert_eq!(
            read(&format!("unit_rng = \"own\"\n{TEXT}")).unwrap(),
            read(TEXT).unwrap()
        );
        let config = read(&format!("unit_rng = \"caller\"\n{TEXT}")).unwrap();
        let text = toml::to_string(&config).unwrap();
        assert!(text.contains("unit_rng = \"caller\""), "{text}");
        assert_eq!(
            SessionConfig::parse(&text, Path::new("config.toml")).unwrap(),
            config
        );
        assert!(
            config
                .unit_rng
                .statement()
                .unwrap()
                .starts_with("Random numbers of units: ")
        );
        let error = read(&format!("unit_rng = \"global\"\n{TEXT}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("unit_rng") && error.contains("global"), "{error}");
    }

    #[test]
    fn a_dictionary_is_read_as_the_text_that_it_stands_for() {
        let json = r#"{"name": "s", "rounds": 4, "cohort": {"users_per_round": 2}, "privacy": {"noise_multiplier": 1.5},
            "user_update": {"algorithm": "uls", "group_size": 3}}"#;
        assert_eq!(read(&text_of_json(json).unwrap()).unwrap(), read(TEXT).unwrap());
        let error = text_of_json(r#"{"a": {"b": [1, null]}}"#)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "config: the key `a.b.1` has no value: leave it out");
        assert!(text_of_json("[1]").is_err());
    }

    #[test]
    fn what_a_session_cannot_do_is_refused_by_its_key() {
        for (change, expected) in [
            ("rounds = 4\n", "missing field `rounds`"),
            ("name = \"s\"\n", "missing field `name`"),
            ("group_size = 3\n", "`user_update.group_size`"),
            ("noise_multiplier = 1.5\n", "`privacy.noise_multiplier`"),
        ] {
            let error = read(&TEXT.replace(change, "")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for (added, expected) in [
            ("users = 3", "the key `users` is given beside the configuration"),
            ("[server]\nlearning_rate = 1.0", "unknown field `server`"),
            ("[data]\nx = 1", "unknown field `data`"),
            ("[checkpoint]\nevery = 0", "`checkpoint.every`"),
            // The norm changes where a tree restarts, and this session has no tree.
            ("[clip]\nkind = \"adaptive\"\ninitial_norm = 1.0", "`clip.kind`"),
        ] {
            // Plain keys stand before the first table.
            let text = match added.starts_with('[') {
                true => format!("{TEXT}{added}\n"),
                false => format!("{added}\n{TEXT}"),
            };
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

//! A task file: everything about a task of the service, as one value with one digest.

mod text;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_aggregation::ParamLayout;
use undertone_mechanisms::{Mechanism, Strategy};
use undertone_secagg::assurance::Assumptions;
use undertone_secagg::{Digest32, ThreatModel};
use undertone_text::TextRules;

use super::validate::{check_initial_model, trained_here};
use super::{ClipConfig, IdentityLevel, LedgerPlace, ServiceConfig, SumName, TaskConfig};
use crate::error::check::{at_least_one, positive, require};
use crate::error::{CoordinatorError, Result};
use crate::plan::{Begun, Population, PrivacyPlan};
use crate::sampling::Sampling;

/// A task of the service: its settings with the vocabulary, the rules of examples, and the service around it.
///
/// The file is TOML with the tables of a run file but for the source of data, and `[vocabulary]`, `[text]` and `[service]`. Its
/// canonical form is JSON of all settings, defaults included, in one order; identifier and digest are made from that form.
/// A key that is added later is left out while it has its default, so that tasks that exist keep their identifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "text::TaskText", into = "text::TaskText")]
pub struct TaskFile {
    /// The purpose of the task.
    pub purpose: TaskPurpose,
    /// Everything that privacy depends on.
    pub task: TaskConfig,
    /// The seed of a parity test, which fixes cohorts and noise. No other task may have one.
    pub seed: Option<u64>,
    /// The words of the model.
    pub vocabulary: TaskVocabulary,
    /// The rules that cut a device's text into examples.
    pub text: TextRules,
    /// The service around the task.
    pub service: ServiceConfig,
}

/// The purpose of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskPurpose {
    /// The task trains a model.
    Train {
        /// Parameters to start from; random ones where there is none.
        initial_model: Option<PathBuf>,
    },
    /// The task measures the released model of another task: each device reports three rates. The model, vocabulary and text rules
    /// of the file are those of that task.
    Evaluate {
        /// The name of the task that trains the model.
        of: String,
        /// The loss per token at which the mean loss of a user is capped, in nats.
        loss_cap: f64,
    },
}

/// `[vocabulary]`: the words of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskVocabulary {
    /// One word per line, most frequent first. That the words were chosen without the population's text is the author's claim.
    File {
        /// The file.
        path: PathBuf,
    },
}

/// The treatment of a seed in a task file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeding {
    /// A seed is refused: noise comes from the operating system.
    Refused,
    /// A seed is required, for a test that repeats a simulation.
    ParityTest,
}

/// The max clip norm over the initial one, where a task names no other.
const ROOM_OF_THE_NORM: f64 = 100.0;

/// The rates that a device of an evaluation reports.
const RATES: [&str; 3] = ["top1", "capped_loss", "in_vocabulary_top1"];

impl TaskFile {
    /// Checks each value that its type alone does not, and the tables against one another.
    ///
    /// # Errors
    /// [`CoordinatorError`] naming the key, the expected and the actual value, or the reason for which it must be left out.
    pub fn validate(&self, seeding: Seeding) -> Result<()> {
        match (seeding, self.seed) {
            (Seeding::Refused, Some(_)) => {
                return Err(CoordinatorError::left_out(
                    "seed",
                    "anyone who knows the seed can subtract the noise; only the parity tests of the service take one",
                ));
            }
            (Seeding::ParityTest, Some(_)) if self.service.ledger == LedgerPlace::Device => {
                return Err(CoordinatorError::value(
                    "service.ledger",
                    "`server` in a parity test, which names the subjects of a simulation",
                    "device",
                ));
            }
            (Seeding::ParityTest, None) => {
                return Err(CoordinatorError::missing("seed", "a number in a parity test"));
            }
            _ => {}
        }
        let sampling = self.task.cohort.sampling;
        let holds = sampling == Sampling::CheckIn;
        let expected = "`check_in` in a task of the service (`undertone train` draws the other schemes)";
        require(holds, "cohort.sampling", expected, sampling.name())?;
        trained_here(&self.task.model)?;
        self.task.validate()?;
        self.service.validate()?;
        self.validate_max_clip_norm()?;
        self.validate_text()?;
        match &self.purpose {
            TaskPurpose::Train { initial_model } => {
                check_initial_model(&self.task.model, initial_model.is_some())?;
            }
            TaskPurpose::Evaluate { of, loss_cap } => {
                let holds = !of.is_empty() && *of != self.task.name;
                let expected = "the name of another task";
                let got = format!("{of:?}");
                require(holds, "of", expected, got)?;
                positive("loss_cap", *loss_cap)?;
            }
        }
        self.validate_floors()
    }

    /// The max clip norm that a device accepts, with adaptive clipping; `None` where the norm is fixed.
    #[must_use]
    pub fn max_clip_norm(&self) -> Option<f64> {
        match self.task.clip {
            ClipConfig::Adaptive { initial_norm, .. } => Some(
                self.service
                    .max_clip_norm
                    .unwrap_or(ROOM_OF_THE_NORM * initial_norm),
            ),
            _ => None,
        }
    }

    fn validate_max_clip_norm(&self) -> Result<()> {
        let key = "service.max_clip_norm";
        match (self.service.max_clip_norm, &self.task.clip) {
            (None, _) => Ok(()),
            (Some(max), ClipConfig::Adaptive { initial_norm, .. })
                if max.is_finite() && max >= *initial_norm =>
            {
                Ok(())
            }
            (Some(max), ClipConfig::Adaptive { initial_norm, .. }) => Err(CoordinatorError::value(
                key,
                format!("a number of at least clip.initial_norm = {initial_norm}"),
                max,
            )),
            (Some(_), _) => Err(CoordinatorError::left_out(
                key,
                "only `clip.kind = \"adaptive\"` moves the clip norm",
            )),
        }
    }

    fn validate_text(&self) -> Result<()> {
        let TextRules {
            max_sentence_tokens,
            max_example_tokens,
            ..
        } = self.text;
        at_least_one("text.max_sentence_tokens", max_sentence_tokens)?;
        at_least_one("text.max_example_tokens", max_example_tokens)?;
        match self.task.model.context() {
            // EOS, or BOS, is one more.
            Some(context) if self.text.longest() >= context => Err(CoordinatorError::value(
                "text",
                format!("examples of fewer targets than model.context = {context}"),
                self.text.longest(),
            )),
            _ => Ok(()),
        }
    }

    /// Checks the floors of sums, and the room of the modulus for all sessions of an attempt.
    fn validate_floors(&self) -> Result<()> {
        let min = self.service.group.min;
        let goal = self.task.cohort.users_per_round.unwrap_or(f64::NAN);
        if min as f64 > goal {
            return Err(CoordinatorError::value(
                "service.group.min",
                format!("at most cohort.users_per_round = {goal}"),
                min,
            ));
        }
        let Some(aggregation) = &self.task.aggregation else {
            return Ok(());
        };
        let clients = aggregation.min_clients;
        let holds = clients >= min;
        let expected =
            format!("at least service.group.min = {min}, the floor of any sum that the server sees");
        require(holds, "aggregation.min_clients", expected, clients)?;
        // PRIVACY: each group's sum is seen on its own, so the noise that clients add must suffice for one group.
        if self.task.encoding_is_noisy() && aggregation.min_clients > min {
            return Err(CoordinatorError::value(
                "aggregation.min_clients",
                format!(
                    "at most service.group.min = {min} with noise that clients add: the server sees the sum of each group \
                     on its own"
                ),
                aggregation.min_clients,
            ));
        }
        let sessions = self.sessions();
        let max = aggregation.max_clients.unwrap_or(0);
        let holds = aggregation.sum != SumName::SecAgg || max >= sessions;
        let expected = format!(
            "at least the {sessions} sessions of an attempt (service.over_selection times cohort.users_per_round)"
        );
        require(holds, "aggregation.max_clients", expected, max)
    }

    /// The report goal of a round, `m`.
    #[must_use]
    pub fn goal(&self) -> u64 {
        self.task.cohort.users_per_round.unwrap_or(0.0) as u64
    }

    /// Sessions of an attempt that may be open or reported at one time.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        (self.service.over_selection * self.goal() as f64).ceil() as u64
    }

    /// Min number of users in a release.
    #[must_use]
    pub fn floor(&self) -> u64 {
        let aggregation = self.task.aggregation.as_ref();
        aggregation.map_or(self.service.group.min, |aggregation| aggregation.min_clients)
    }

    /// The threat model of the task's secure sums: a server that lies, unless nobody vouches for the devices.
    #[must_use]
    pub(crate) fn threat_model(&self) -> ThreatModel {
        match self.service.identity {
            IdentityLevel::Dev => ThreatModel::HonestButCurious,
            IdentityLevel::Certificate | IdentityLevel::Attested => ThreatModel::Active,
        }
    }

    /// The assumptions of `aggregation.graph` under the threat model of the task; `None` for a full graph.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the table.
    pub fn assumptions(&self) -> Result<Option<Assumptions>> {
        let graph = self
            .task
            .aggregation
            .as_ref()
            .and_then(|aggregation| aggregation.graph);
        graph
            .map(|graph| graph.assumptions_of(self.threat_model()))
            .transpose()
    }

    /// The declared population. No cost depends on it; reports name it.
    #[must_use]
    pub fn population(&self) -> Population {
        let users = self.task.cohort.population.unwrap_or(0);
        Population {
            users,
            total_weight: users as f64,
        }
    }

    /// The layout of a device's update: the parameters of the model with this number of words, or the rates of an evaluation.
    ///
    /// # Errors
    /// Sizes of the model that are out of range.
    pub fn layout(&self, vocab_len: usize) -> Result<ParamLayout> {
        Ok(match self.purpose {
            TaskPurpose::Train { .. } => self.task.model.layout(vocab_len)?,
            TaskPurpose::Evaluate { .. } => {
                let rates = RATES.iter().map(|name| ((*name).to_owned(), vec![1])).collect();
                ParamLayout::with_tensor_groups(rates)?
            }
        })
    }

    /// The privacy plan of a new task. `read` is the strategy of the file that `privacy.mechanism.file` names.
    ///
    /// # Errors
    /// The errors of [`PrivacyPlan::new`]; a clip norm whose sum may be out of range.
    pub fn plan(&self, read: Option<&Strategy>, vocab_len: usize) -> Result<PrivacyPlan> {
        let layout = self.layout(vocab_len)?;
        let plan = PrivacyPlan::new(&self.task, read, &layout, self.population())?;
        plan.check_sum(1)?;
        Ok(plan)
    }

    /// The privacy plan of a task that was created with this `mechanism.json`.
    ///
    /// # Errors
    /// The errors of [`PrivacyPlan::of_begun`].
    pub fn plan_with(&self, mechanism: Option<&Mechanism>, vocab_len: usize) -> Result<PrivacyPlan> {
        let layout = self.layout(vocab_len)?;
        let begun = mechanism.map_or_else(Begun::default, Begun::with);
        PrivacyPlan::of_begun(&self.task, &begun, &layout, self.population())
    }

    /// The canonical form: JSON of all settings, defaults included.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for a number that JSON cannot hold.
    pub fn canonical(&self) -> Result<String> {
        let fail = |got: String| CoordinatorError::value("task", "values that JSON can hold", got);
        let text = serde_json::to_string(self).map_err(|error| fail(error.to_string()))?;
        // A number that is not finite is written as nothing.
        match Self::from_canonical(&text) {
            Ok(again) if again == *self => Ok(text),
            Ok(_) => Err(fail("a value that reads back as another".to_owned())),
            Err(error) => Err(fail(error.to_string())),
        }
    }

    /// Reads the canonical form. The result is not validated.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for text that is no task.
    pub fn from_canonical(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| CoordinatorError::value("task", "the canonical form of a task", error))
    }

    /// SHA-256 of the canonical form.
    ///
    /// # Errors
    /// The errors of [`canonical`](Self::canonical).
    pub fn digest(&self) -> Result<Digest32> {
        Ok(Sha256::digest(self.canonical()?).into())
    }

    /// The identifier of the task in a population: SHA-256 of the population, the name and the canonical form, each after its
    /// length.
    ///
    /// # Errors
    /// The errors of [`canonical`](Self::canonical).
    pub fn id(&self, population: &str) -> Result<Digest32> {
        let mut hash = Sha256::new();
        hash.update(b"undertone task\0");
        for part in [population, &self.task.name, &self.canonical()?] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Ok(hash.finalize().into())
    }

    /// Checks that an evaluation measures the model of a training task.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming the first key in which the two differ.
    pub fn check_evaluates(&self, training: &Self) -> Result<()> {
        let TaskPurpose::Evaluate { of, .. } = &self.purpose else {
            return Err(CoordinatorError::value("kind", "evaluate", "train"));
        };
        let holds = matches!(training.purpose, TaskPurpose::Train { .. }) && *of == training.task.name;
        let expected = "the name of a training task";
        let got = format!("{:?}", training.task.name);
        require(holds, "of", expected, got)?;
        let differs = [
            ("model", self.task.model != training.task.model),
            ("vocabulary", self.vocabulary != training.vocabulary),
            ("text", self.text != training.text),
        ];
        match differs.into_iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((key, _)) => Err(CoordinatorError::value(
                key,
                format!("that of the task {of:?}, whose model is measured"),
                "a different one",
            )),
        }
    }
}

#[cfg(test)]
mod tests;

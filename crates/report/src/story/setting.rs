//! The facts of a run beside its accuracies: settings, guarantee, time, and the same run without privacy.

use std::path::{Path, PathBuf};

use undertone_coordinator::record::PrivacyReport;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::files;
use undertone_run_directory::files::names::{CONFIG_FILE, PRIVACY_FILE};
use undertone_run_directory::metrics::{EvaluationRecord, Metrics, StartRecord};
use undertone_run_directory::plan_inputs::vocabulary_of;
use undertone_run_directory::read::{RunData, read};

use super::Command;
use crate::Result;

/// The part of a run's files that its story needs.
#[derive(Debug, Clone)]
pub struct Setting {
    directory: PathBuf,
    /// `None` for pre-training, and for a task of a service.
    config: Option<RunConfig>,
    privacy: Option<PrivacyReport>,
    /// Seconds that all rounds take.
    seconds: Option<f64>,
}

impl Setting {
    /// The setting of a run directory; a published one has no metrics.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn open(run_dir: &Path) -> Result<Self> {
        if let Ok(run) = read(run_dir) {
            return Ok(Self::of(&run));
        }
        let text = files::read_if_there(&run_dir.join(CONFIG_FILE))?;
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Self {
            directory: run_dir.to_owned(),
            config: text.and_then(|text| config_of(&text)),
            privacy: files::document(&run_dir.join(PRIVACY_FILE), "a privacy report")?,
            seconds: None,
        })
    }

    pub(super) fn of(run: &RunData) -> Self {
        let done = run.rounds.len() as f64;
        let seconds: f64 = run.rounds.iter().map(|round| round.seconds).sum();
        Self {
            directory: run.directory.clone(),
            config: run.config.as_deref().and_then(config_of),
            privacy: run.privacy.clone(),
            seconds: (done > 0.0).then(|| seconds / done * run.start.rounds as f64),
        }
    }

    pub(super) fn privacy(&self) -> Option<&PrivacyReport> {
        self.privacy.as_ref()
    }

    /// `true` for a run that adds noise, by its report or, before there is one, by its settings.
    pub(super) fn is_private(&self) -> bool {
        let by_settings = || {
            self.config
                .as_ref()
                .is_some_and(|config| config.task.privacy.is_some())
        };
        self.privacy
            .as_ref()
            .map_or_else(by_settings, |privacy| privacy.private)
    }

    /// `true` for a run that starts from random parameters; `None` where the files do not say.
    pub(super) fn starts_at_random(&self) -> Option<bool> {
        let config = self.config.as_ref()?;
        Some(config.initial_model.is_none())
    }

    /// The command that trains the run without privacy. The function `train` of Python alone reads a table in memory.
    pub(super) fn command(&self) -> Option<Command> {
        let config = self.config.as_ref()?;
        (!config.has_table()).then(|| Command {
            command: "undertone train RUN_FILE --without-privacy".to_owned(),
            minutes: self.seconds.map(|seconds| seconds / 60.0),
        })
    }

    /// The folder of the same run without privacy, beside this one. Its settings differ in privacy alone, and it is finished.
    #[must_use]
    pub fn twin(&self) -> Option<PathBuf> {
        Some(self.read_twin()?.directory)
    }

    fn read_twin(&self) -> Option<RunData> {
        let config = self
            .config
            .as_ref()
            .filter(|config| config.task.privacy.is_some())?;
        let twin = config.clone().without_privacy();
        // Made absolute, so that the folder above `.` is known too.
        let folder = self.directory.canonicalize().ok()?;
        let run = read(&folder.parent()?.join(&twin.task.name)).ok()?;
        let same = run.config.as_deref().and_then(config_of)? == twin;
        let finished = run.evaluations.last()?.round == run.start.rounds;
        (same && finished).then_some(run)
    }

    /// The last measures of the same run without privacy, if it has the same text and was measured on equal targets.
    pub(super) fn twin_of(&self, run: &RunData) -> Option<Metrics> {
        let twin = self.read_twin()?;
        let (own, other) = (run.evaluations.last()?, twin.evaluations.last()?);
        let equal = text_of(&run.start) == text_of(&twin.start) && targets_of(own) == targets_of(other);
        equal.then(|| other.metrics.clone())
    }

    /// The word that the model says most often, where the words of the run are known.
    pub(super) fn word(&self, metrics: &Metrics) -> Option<String> {
        let id = metrics.commonest_prediction?.id;
        let words = vocabulary_of(&self.directory, &self.config.as_ref()?.data).ok()?;
        ((id as usize) < words.len()).then(|| words.word(id).to_owned())
    }
}

fn config_of(text: &str) -> Option<RunConfig> {
    RunConfig::parse(text, Path::new(CONFIG_FILE), &[]).ok()
}

/// The counts of a text: all of a start but what privacy changes.
fn text_of(start: &StartRecord) -> StartRecord {
    StartRecord {
        run: String::new(),
        warning: None,
        ..start.clone()
    }
}

fn targets_of(evaluation: &EvaluationRecord) -> (&str, u64, u64, Option<u64>) {
    let metrics = &evaluation.metrics;
    let (targets, unknown) = (metrics.targets, metrics.out_of_vocabulary);
    (&evaluation.split, targets, unknown, metrics.users)
}

//! Reading a run directory, finished or not.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::config::{is_of_session, parse_as};
use crate::error::{DirectoryError, Result};
use crate::files::names::{CONFIG_FILE, LEDGER_FILE, METRICS_FILE, PRIVACY_FILE, TASK_FILE};
use crate::files::{self, Lines};
use crate::metrics::Metrics;
use crate::metrics::{EvaluationRecord, MetricsLine, RoundRecord, StartRecord};
use undertone_coordinator::record::{LedgerEntry, PrivacyReport};
use undertone_models::ModelSpec;

/// The data of a run directory for a report.
#[derive(Debug, Clone, PartialEq)]
pub struct RunData {
    /// The run directory.
    pub directory: PathBuf,
    /// The text of `config.toml`, or of an exported task's `task.toml`, where there is one.
    pub config: Option<String>,
    /// The first line of the metrics; of a session, what its configuration states.
    pub start: StartRecord,
    /// The finished rounds, in order; of a session, what its ledger states.
    pub rounds: Vec<RoundRecord>,
    /// The evaluations, in order.
    pub evaluations: Vec<EvaluationRecord>,
    /// The content of `privacy.json`, where the run has come so far.
    pub privacy: Option<PrivacyReport>,
}

impl RunData {
    /// `true` for a session. The program that trained its model has its text, losses and times.
    #[must_use]
    pub fn is_of_session(&self) -> bool {
        let config = self.config.as_deref();
        config.is_some_and(is_of_session)
    }

    /// The evaluation of the initial model, where there is one and the run has gone on from it.
    #[must_use]
    pub fn initial(&self) -> Option<&Metrics> {
        match &self.evaluations[..] {
            [first, _, ..] if first.round == 0 => Some(&first.metrics),
            _ => None,
        }
    }
}

/// Reads `metrics.jsonl`, `config.toml` and `privacy.json`; the last two may be missing. A session has no metrics, and `ledger.jsonl` is
/// read in their place.
///
/// A crash can leave a last line without its newline; it is left out if it cannot be understood.
///
/// # Errors
/// [`DirectoryError`] naming file and line.
pub fn read(run_dir: &Path) -> Result<RunData> {
    let config = match files::read_if_there(&run_dir.join(CONFIG_FILE))? {
        None => files::read_if_there(&run_dir.join(TASK_FILE))?,
        found => found,
    };
    let config = config.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let (start, rounds, evaluations) = match &config {
        Some(text) if is_of_session(text) => of_session(run_dir, text)?,
        _ => of_run(run_dir)?,
    };
    Ok(RunData {
        directory: run_dir.to_owned(),
        config,
        start,
        rounds,
        evaluations,
        privacy: files::document(&run_dir.join(PRIVACY_FILE), "a privacy report")?,
    })
}

type Records = (StartRecord, Vec<RoundRecord>, Vec<EvaluationRecord>);

/// The lines of `metrics.jsonl`.
fn of_run(run_dir: &Path) -> Result<Records> {
    let file = run_dir.join(METRICS_FILE);
    let (mut start, mut rounds, mut evaluations) = (None, Vec::new(), Vec::new());
    let expected = "one record of a start, a round or an evaluation";
    each_line(&file, expected, |line: MetricsLine| match line {
        MetricsLine::Start(record) => start = Some(record),
        MetricsLine::Round(record) => rounds.push(record),
        MetricsLine::Evaluation(record) => evaluations.push(record),
    })?;
    match start {
        Some(start) => Ok((start, rounds, evaluations)),
        None => Err(DirectoryError::NotStarted { file }),
    }
}

/// The part of a session's configuration that a start states.
#[derive(Deserialize)]
struct SessionStart {
    name: String,
    rounds: u64,
    users: u64,
    model: ModelSpec,
}

/// The configuration of a session and the lines of its ledger, as records.
fn of_session(run_dir: &Path, config: &str) -> Result<Records> {
    let config: SessionStart = parse_as(config, &run_dir.join(CONFIG_FILE), &[])?;
    let start = StartRecord {
        model: config.model.family().to_owned(),
        parameters: config.model.layout(0)?.len(),
        run: config.name,
        frozen_parameters: 0,
        train_users: usize::try_from(config.users).unwrap_or(usize::MAX),
        train_tokens: None,
        rounds: config.rounds,
        user_sizes: None,
        best_accuracy: None,
        unigram_accuracy: None,
        unigram_standard_error: None,
        warning: None,
    };
    let mut rounds = Vec::new();
    let expected = "one round of a session";
    each_line(&run_dir.join(LEDGER_FILE), expected, |entry: LedgerEntry| {
        rounds.push(RoundRecord {
            round: entry.round,
            cohort_size: usize::try_from(entry.cohort_size).unwrap_or(usize::MAX),
            examples: entry.examples,
            clip_norm: entry.clip_norm,
            noise_std: entry.noise_std,
            ..RoundRecord::default()
        });
    })?;
    Ok((start, rounds, Vec::new()))
}

/// Hands out the records of a file, each on its line. `expected` names a line in errors.
fn each_line<T: DeserializeOwned>(
    file: &Path,
    expected: &'static str,
    mut take: impl FnMut(T),
) -> Result<()> {
    let mut lines = Lines::open(file).map_err(|error| match error {
        DirectoryError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            let message = "no such file; a run directory has one";
            DirectoryError::io("read", file, Error::new(ErrorKind::NotFound, message))
        }
        other => other,
    })?;
    while let Some(line) = lines.next()? {
        match serde_json::from_slice(line.bytes) {
            Ok(record) => take(record),
            Err(_) if !line.whole => {}
            Err(error) => {
                return Err(DirectoryError::Line {
                    file: file.to_owned(),
                    line: line.number,
                    expected,
                    message: error.to_string(),
                });
            }
        }
    }
    Ok(())
}

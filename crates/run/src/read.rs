//! Reading a run directory, finished or not.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::audit::record::Audit;
use crate::error::{Result, RunError};
use crate::evaluate::Metrics;
use crate::files::names::{CONFIG_FILE, METRICS_FILE, PRIVACY_FILE, TASK_FILE};
use crate::files::{self, Lines};
use crate::metrics::{EvaluationRecord, MetricsLine, RoundRecord, StartRecord};
use undertone_coordinator::record::PrivacyReport;

/// The data of a run directory for a report.
#[derive(Debug, Clone, PartialEq)]
pub struct RunData {
    /// The run directory.
    pub directory: PathBuf,
    /// The text of `config.toml`, or of an exported task's `task.toml`, where there is one.
    pub config: Option<String>,
    /// The first line of the metrics.
    pub start: StartRecord,
    /// The finished rounds, in order.
    pub rounds: Vec<RoundRecord>,
    /// The evaluations, in order.
    pub evaluations: Vec<EvaluationRecord>,
    /// The content of `privacy.json`, where the run has come so far.
    pub privacy: Option<PrivacyReport>,
    /// The content of `audit.json`, where somebody has recorded an audit.
    pub audit: Option<Audit>,
}

impl RunData {
    /// The evaluation of the initial model, where there is one and the run has gone on from it.
    #[must_use]
    pub fn initial(&self) -> Option<&Metrics> {
        match &self.evaluations[..] {
            [first, _, ..] if first.round == 0 => Some(&first.metrics),
            _ => None,
        }
    }
}

/// Reads `metrics.jsonl`, `config.toml` and `privacy.json`; the last two may be missing.
///
/// A crash can leave a last line without its newline; it is left out if it cannot be understood.
///
/// # Errors
/// [`RunError`] naming file and line.
pub fn read(run_dir: &Path) -> Result<RunData> {
    let file = run_dir.join(METRICS_FILE);
    let (mut start, mut rounds, mut evaluations) = (None, Vec::new(), Vec::new());
    let mut lines = Lines::open(&file).map_err(|error| match error {
        RunError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            let message = "no such file; a run directory has one";
            RunError::io("read", &file, Error::new(ErrorKind::NotFound, message))
        }
        other => other,
    })?;
    while let Some(line) = lines.next()? {
        match serde_json::from_slice(line.bytes) {
            Ok(MetricsLine::Start(record)) => start = Some(record),
            Ok(MetricsLine::Round(record)) => rounds.push(record),
            Ok(MetricsLine::Evaluation(record)) => evaluations.push(record),
            Err(_) if !line.whole => {}
            Err(error) => {
                return Err(RunError::Line {
                    file,
                    line: line.number,
                    expected: "one record of a start, a round or an evaluation",
                    message: error.to_string(),
                });
            }
        }
    }
    let Some(start) = start else {
        return Err(RunError::NotStarted { file });
    };
    let config = match files::read_if_there(&run_dir.join(CONFIG_FILE))? {
        None => files::read_if_there(&run_dir.join(TASK_FILE))?,
        found => found,
    };
    Ok(RunData {
        directory: run_dir.to_owned(),
        config: config.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        start,
        rounds,
        evaluations,
        privacy: document(&run_dir.join(PRIVACY_FILE), "a privacy report")?,
        audit: crate::audit::read(run_dir)?,
    })
}

fn document<T: DeserializeOwned>(file: &Path, expected: &'static str) -> Result<Option<T>> {
    let Some(bytes) = files::read_if_there(file)? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let (line, message) = (error.line(), error.to_string());
        RunError::Line {
            file: file.to_owned(),
            line,
            expected,
            message,
        }
    })
}

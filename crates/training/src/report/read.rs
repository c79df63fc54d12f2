//! Reading a run directory, finished or not.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::{ReportError, Result};
use crate::record::{EvaluationRecord, MetricsLine, PrivacyReport, RoundRecord, StartRecord};

/// What a run directory holds for a report.
#[derive(Debug, Clone, PartialEq)]
pub struct RunData {
    /// The run directory.
    pub directory: PathBuf,
    /// The text of `config.toml`, where there is one.
    pub config: Option<String>,
    /// What the run is.
    pub start: StartRecord,
    /// The finished rounds, in order.
    pub rounds: Vec<RoundRecord>,
    /// The evaluations, in order.
    pub evaluations: Vec<EvaluationRecord>,
    /// `privacy.json`, where the run has come so far.
    pub privacy: Option<PrivacyReport>,
}

/// Reads `metrics.jsonl`, `config.toml` and `privacy.json`; the last two may be missing.
///
/// A last line without its newline is what a crash leaves; it is left out if it cannot be understood.
///
/// # Errors
/// [`ReportError`] naming file and line.
pub fn read(run_dir: &Path) -> Result<RunData> {
    let file = run_dir.join("metrics.jsonl");
    let text = text(&file)?.ok_or_else(|| ReportError::Read {
        file: file.clone(),
        source: std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "no such file; a run directory has one",
        ),
    })?;
    let (mut start, mut rounds, mut evaluations) = (None, Vec::new(), Vec::new());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(line) {
            Ok(MetricsLine::Start(record)) => start = Some(record),
            Ok(MetricsLine::Round(record)) => rounds.push(record),
            Ok(MetricsLine::Evaluation(record)) => evaluations.push(record),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => {
                let expected = "one record of a start, a round or an evaluation";
                return Err(ReportError::Line {
                    file,
                    line: index + 1,
                    expected,
                    message: error.to_string(),
                });
            }
        }
    }
    let Some(start) = start else {
        return Err(ReportError::NotStarted { file });
    };
    Ok(RunData {
        directory: run_dir.to_owned(),
        config: self::text(&run_dir.join("config.toml"))?,
        start,
        rounds,
        evaluations,
        privacy: document(&run_dir.join("privacy.json"), "a privacy report")?,
    })
}

/// The text of a file, or nothing where there is no such file. Bytes that are not UTF-8 become replacement characters:
/// inside JSON they can only be the torn end of a line.
fn text(file: &Path) -> Result<Option<String>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReportError::Read {
            file: file.to_owned(),
            source,
        }),
    }
}

fn document<T: DeserializeOwned>(file: &Path, expected: &'static str) -> Result<Option<T>> {
    let Some(text) = text(file)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let (line, message) = (error.line(), error.to_string());
        ReportError::Line {
            file: file.to_owned(),
            line,
            expected,
            message,
        }
    })
}

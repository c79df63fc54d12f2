//! `ledger.jsonl` of a simulation: one released round per line, its participants by their pseudonyms.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::participation::timers::SimulatedRound;
use undertone_run::{Result, RunError};
use undertone_run_directory::files::{self, Line, Lines};

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedRoundLine {
    /// Number of the round among the released ones, from 0.
    pub round: u64,
    /// Simulated seconds from midnight UTC to the begin of the round.
    pub started: u64,
    /// Simulated seconds from midnight UTC to the release of the round.
    pub ended: u64,
    /// Number of attempts that were abandoned before the round.
    pub abandoned: u64,
    /// Number of participants.
    pub cohort_size: u64,
    /// The participants, in the order of the pseudonyms.
    pub participants: Vec<ParticipantId>,
}

impl SimulatedRoundLine {
    pub(super) fn new(round: &SimulatedRound, participants: Vec<ParticipantId>) -> Self {
        Self {
            round: round.round,
            started: round.started,
            ended: round.ended,
            abandoned: round.abandoned,
            cohort_size: participants.len() as u64,
            participants,
        }
    }
}

/// Lines that take the file's name when all are written.
#[derive(Debug)]
pub(super) struct LedgerWriter {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl LedgerWriter {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = files::temporary_beside(path)?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 16, file),
        })
    }

    pub(super) fn append(&mut self, line: &SimulatedRoundLine) -> Result<()> {
        serde_json::to_writer(&mut self.file, line)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|source| RunError::io("write", &self.path, source))
    }

    pub(super) fn finish(self) -> Result<()> {
        let fail = |source| RunError::io("write", &self.path, source);
        let file = self.file.into_inner().map_err(|error| fail(error.into_error()))?;
        file.persist(&self.path)
            .map(drop)
            .map_err(|error| fail(error.error))
    }
}

/// Reads a ledger, line by line.
///
/// # Errors
/// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io); [`DirectoryError::Damaged`](undertone_run_directory::error::DirectoryError::Damaged) naming the line, also where a line's size is not its number of
/// participants; what `on_line` returns.
pub fn read(path: &Path, mut on_line: impl FnMut(SimulatedRoundLine) -> Result<()>) -> Result<()> {
    let mut lines = Lines::open_given(path)?;
    while let Some(Line { number, bytes, .. }) = lines.next()? {
        let damaged = |message: String| RunError::damaged(path, format!("line {number}: {message}"));
        let line: SimulatedRoundLine =
            serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        let came = line.participants.len() as u64;
        if came != line.cohort_size {
            return Err(damaged(format!(
                "expected cohort_size = {} participants, got {came}",
                line.cohort_size
            )));
        }
        on_line(line)?;
    }
    Ok(())
}

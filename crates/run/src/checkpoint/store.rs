//! The durable state of a training that one process drives: the lines of its ledger, and the state to go on from.

use std::path::{Path, PathBuf};

use undertone_coordinator::chain::Chain;
use undertone_coordinator::head::RunHead;
use undertone_coordinator::record::LedgerEntry;

use crate::checkpoint::{Snapshot, State};
use crate::error::Result;
use undertone_run_directory::files::JsonLines;
use undertone_run_directory::files::names::LEDGER_FILE;
use undertone_run_directory::ledger::{self, read_chain};

/// The place where a driver keeps what a crash must not lose.
///
/// # Guarantee
/// A state is never durable before the lines of the rounds in it. So no model can be read whose cost is not in the ledger.
pub(crate) trait RunStore {
    /// Appends the line of a closed round.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io); the ledger then ends with its last whole line.
    fn append(&mut self, line: &[u8]) -> Result<()>;

    /// The lines of all closed rounds, made durable and read back.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io); [`DirectoryError::Damaged`](undertone_run_directory::error::DirectoryError::Damaged) for a line that is not the written one.
    fn lines(&mut self) -> Result<Vec<LedgerEntry>>;

    /// Makes all lines durable, and then this state with the parameters, the optimizer and the noise of the head. The store fills in
    /// how much of the ledger belongs to it.
    ///
    /// PRIVACY: a training that is over keeps no noise.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io); from the noise. The state is then the one before.
    fn checkpoint(&mut self, state: State, head: &RunHead) -> Result<()>;
}

/// The files of a run directory: `ledger.jsonl` and `checkpoint/`.
#[derive(Debug)]
pub(crate) struct FileStore {
    run_dir: PathBuf,
    genesis: String,
    lines: JsonLines,
}

impl FileStore {
    /// Opens or creates the store of a run directory and cuts the ledger to `length` bytes. Returns the lines up to there, and their
    /// end. `genesis` is the digest that the first line follows.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io); [`DirectoryError::Damaged`](undertone_run_directory::error::DirectoryError::Damaged) naming the first line that is not the
    /// written one.
    pub(crate) fn open(
        run_dir: &Path,
        genesis: &str,
        length: u64,
    ) -> Result<(Self, Vec<LedgerEntry>, Chain)> {
        let path = run_dir.join(LEDGER_FILE);
        let lines = JsonLines::open(&path, length)?;
        let (entries, head) = read_chain(&path, genesis)?;
        let store = Self {
            run_dir: run_dir.to_owned(),
            genesis: genesis.to_owned(),
            lines,
        };
        Ok((store, entries, Chain::at(head)))
    }
}

impl FileStore {
    /// Makes all lines durable.
    ///
    /// # Errors
    /// [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io).
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.lines.sync()?)
    }
}

impl RunStore for FileStore {
    fn append(&mut self, line: &[u8]) -> Result<()> {
        Ok(self.lines.append_bytes(line)?)
    }

    fn lines(&mut self) -> Result<Vec<LedgerEntry>> {
        self.lines.sync()?;
        Ok(ledger::read(&self.run_dir.join(LEDGER_FILE), &self.genesis)?.entries)
    }

    fn checkpoint(&mut self, state: State, head: &RunHead) -> Result<()> {
        self.lines.sync()?;
        // The model of a session is with the program that trains it.
        let (parameters, steps, first, second): (&[f32], _, &[f32], &[f32]) = match head.trained() {
            Some(trained) => {
                let (steps, [(_, first), (_, second)]) = trained.optimizer.state();
                (&trained.parameters, steps, first, second)
            }
            None => (&[], 0, &[], &[]),
        };
        let snapshot = Snapshot {
            state: State {
                rounds: head.round(),
                steps,
                ledger_bytes: self.lines.length(),
                adaptive_clip: head.clip(),
                ..state
            },
            parameters,
            first,
            second,
        };
        snapshot.write(&self.run_dir, (!head.is_over()).then_some(head))
    }
}

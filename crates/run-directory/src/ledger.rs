//! `ledger.jsonl`: one line per round, each holding the digest of the line before.

use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::config::public::public;
use crate::error::{DirectoryError, Result};
use crate::files::names::{
    CONFIG_FILE, INITIAL_MODEL_FILE, LEDGER_FILE, MECHANISM_FILE, PUBLIC_LEDGER_FILE, SOURCE_FILE,
    SWEEP_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_PRIVACY_FILE,
};
use crate::files::{self, Line, Lines, vocabulary_file};
use undertone_coordinator::record::{LedgerEnd, LedgerEntry, LedgerLine};
use undertone_present::numbers::hex;

/// The settings of a run, as its directory holds them.
#[derive(Debug, Clone, Copy, Default)]
pub struct GenesisFiles<'a> {
    /// The run file, with its private parts blank. Earlier versions took all of it.
    pub config: &'a [u8],
    /// The mechanism, where the run made or read one.
    pub mechanism: Option<&'a [u8]>,
    /// The vocabulary; empty for a session.
    pub vocabulary: &'a [u8],
    /// The record of a vocabulary that is not public: its guarantee, or that it has none.
    pub vocabulary_privacy: Option<&'a [u8]>,
    /// The trainings of an initial model.
    pub initial_model: Option<&'a [u8]>,
    /// The private sweep that chose the settings.
    pub sweep: Option<&'a [u8]>,
    /// The public name of the text.
    pub source: Option<&'a [u8]>,
}

impl GenesisFiles<'_> {
    /// The digest that the first line of a ledger is chained to.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"undertone ledger\0");
        let parts = [self.config, self.mechanism.unwrap_or_default(), self.vocabulary];
        // A name tells what an initial model or a sweep says from a vocabulary's privacy record.
        let initial_model = self.initial_model.map(|part| [b"initial model".as_slice(), part]);
        let sweep = self.sweep.map(|part| [b"private sweep".as_slice(), part]);
        let source = self.source.map(|part| [b"source".as_slice(), part]);
        let named = initial_model.into_iter().chain(sweep).chain(source).flatten();
        let optional = self.vocabulary_privacy.into_iter().chain(named);
        for part in parts.into_iter().chain(optional) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex(&hash.finalize())
    }
}

/// Digest of the files that say what a run is.
pub fn genesis_of(folder: &Path) -> Result<String> {
    genesis_with(folder, &files::read(&vocabulary_file(folder))?)
}

/// Digest of the files that say what a session is, which has no vocabulary.
pub fn genesis_of_session(folder: &Path) -> Result<String> {
    genesis_with(folder, &[])
}

fn genesis_with(folder: &Path, vocabulary: &[u8]) -> Result<String> {
    let optional = |name: &str| files::read_if_there(&folder.join(name));
    let path = folder.join(CONFIG_FILE);
    let (config, mechanism) = (files::read(&path)?, optional(MECHANISM_FILE)?);
    // A directory has words or a tokenizer.
    let vocabulary_privacy = match optional(VOCAB_PRIVACY_FILE)? {
        Some(record) => Some(record),
        None => optional(TOKENIZER_PRIVACY_FILE)?,
    };
    let initial_model = optional(INITIAL_MODEL_FILE)?;
    let (sweep, source) = (optional(SWEEP_FILE)?, optional(SOURCE_FILE)?);
    let files = GenesisFiles {
        config: &config,
        mechanism: mechanism.as_deref(),
        vocabulary,
        vocabulary_privacy: vocabulary_privacy.as_deref(),
        initial_model: initial_model.as_deref(),
        sweep: sweep.as_deref(),
        source: source.as_deref(),
    };
    let as_written = files.digest();
    // A published folder holds the public text, and so does a folder without private parts.
    let Some(text) = std::str::from_utf8(&config)
        .ok()
        .filter(|_| !files::exists(&folder.join(PUBLIC_LEDGER_FILE)))
    else {
        return Ok(as_written);
    };
    let public = public(text, &path)?;
    // Earlier versions had the ledger follow all of the file.
    let first = first_line(folder)?;
    if public == text || first.is_some_and(|first| first.previous_sha256 == as_written) {
        return Ok(as_written);
    }
    let files = GenesisFiles {
        config: public.as_bytes(),
        ..files
    };
    Ok(files.digest())
}

/// The start of a ledger.
#[derive(Debug, Deserialize)]
pub struct First {
    /// The digest that it follows.
    previous_sha256: String,
    /// The weight of the population in its first round; an end has none.
    pub total_weight: Option<f64>,
    /// The noise multiplier of its first round, where that has noise.
    pub noise_multiplier: Option<f64>,
}

/// The first line of the ledger of a folder; `None` without one that can be read.
pub fn first_line(folder: &Path) -> Result<Option<First>> {
    let path = folder.join(LEDGER_FILE);
    if !files::exists(&path) {
        return Ok(None);
    }
    let mut lines = Lines::open(&path)?;
    let first = lines.next()?;
    // A line that cannot be read is named by the reader of the chain.
    Ok(first.and_then(|line| serde_json::from_slice(line.bytes).ok()))
}

/// All entries of a ledger, and the digest of its last line.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::Damaged`] naming the first line that is no entry, is of a different round than its place
/// says, or does not follow the line before it.
pub fn read_chain(path: &Path, genesis: &str) -> Result<(Vec<LedgerEntry>, String)> {
    match read(path, genesis)? {
        Ledger {
            entries,
            end: None,
            head,
        } => Ok((entries, head)),
        Ledger { entries, .. } => Err(DirectoryError::Damaged {
            path: path.to_owned(),
            message: format!(
                "line {}: expected a round, got the end of a task of the service",
                entries.len() + 1
            ),
        }),
    }
}

/// A ledger as values.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    /// The rounds.
    pub entries: Vec<LedgerEntry>,
    /// The last line of a task of the service that has ended.
    pub end: Option<LedgerEnd>,
    /// The digest of the last line, in hexadecimal digits.
    pub head: String,
}

/// Reads the ledger of a run or of a task of the service.
///
/// # Errors
/// The errors of [`read_chain`], and [`DirectoryError::Damaged`] for a line after the end.
pub fn read(path: &Path, genesis: &str) -> Result<Ledger> {
    let mut head = genesis.to_owned();
    let mut entries: Vec<LedgerEntry> = Vec::new();
    let mut end: Option<LedgerEnd> = None;
    let mut lines = Lines::open(path)?;
    while let Some(Line { number, bytes, .. }) = lines.next()? {
        let index = entries.len();
        let damaged = |message: String| DirectoryError::damaged(path, format!("line {number}: {message}"));
        if end.is_some() {
            return Err(damaged("expected nothing after the end of the task".to_owned()));
        }
        let line = LedgerLine::read(bytes).map_err(|error| damaged(error.to_string()))?;
        let (place, got, previous) = match &line {
            LedgerLine::Round(entry) => ("round", entry.round, &entry.previous_sha256),
            LedgerLine::End(end) => ("an end after rounds", end.rounds, &end.previous_sha256),
        };
        if got != index as u64 {
            return Err(damaged(format!("expected {place} {index}, got {got}")));
        }
        if *previous != head {
            let what = if index == 0 {
                "the run's config.toml, mechanism.json, initial_model.json and vocab.txt or tokenizer.json, or the task's task.toml and \
                 service.json"
            } else {
                "the line before"
            };
            return Err(damaged(format!(
                "expected to follow {what} (previous_sha256 {head}), got {previous}"
            )));
        }
        head = hex(&Sha256::digest(bytes));
        match line {
            LedgerLine::Round(entry) => entries.push(*entry),
            LedgerLine::End(found) => end = Some(found),
        }
    }
    Ok(Ledger { entries, end, head })
}

//! `ledger.jsonl`: one line per round, each holding the digest of the line before.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Result, RunError};
use crate::files::{Line, Lines};
use undertone_coordinator::record::LedgerEntry;
use undertone_present::numbers::hex;

/// The digest that the first line is chained to: that of the settings of the run, as its directory holds them.
#[must_use]
pub fn genesis(
    config: &[u8],
    mechanism: Option<&[u8]>,
    vocabulary: &[u8],
    vocabulary_privacy: Option<&[u8]>,
    initial_model: Option<&[u8]>,
) -> String {
    let mut hash = Sha256::new();
    hash.update(b"undertone ledger\0");
    let parts = [config, mechanism.unwrap_or_default(), vocabulary];
    // The name tells what an initial model says from a vocabulary's privacy record.
    let initial_model = initial_model.map(|part| [b"initial model".as_slice(), part]);
    let optional = vocabulary_privacy
        .into_iter()
        .chain(initial_model.into_iter().flatten());
    for part in parts.into_iter().chain(optional) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// All entries of a ledger, and the digest of its last line.
///
/// # Errors
/// [`RunError::Io`]; [`RunError::Damaged`] naming the first line that is no entry, is of a different round than its place
/// says, or does not follow the line before it.
pub fn read_chain(path: &Path, genesis: &str) -> Result<(Vec<LedgerEntry>, String)> {
    let mut head = genesis.to_owned();
    let mut entries = Vec::new();
    let mut lines = Lines::open(path)?;
    while let Some(Line { number, bytes, .. }) = lines.next()? {
        let index = entries.len();
        let damaged = |message: String| RunError::damaged(path, format!("line {number}: {message}"));
        let entry: LedgerEntry = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if entry.round != index as u64 {
            return Err(damaged(format!("expected round {index}, got {}", entry.round)));
        }
        if entry.previous_sha256 != head {
            let what = if index == 0 {
                "the run's config.toml, mechanism.json, initial_model.json and vocab.txt or tokenizer.json"
            } else {
                "the line before"
            };
            return Err(damaged(format!(
                "expected to follow {what} (previous_sha256 {head}), got {}",
                entry.previous_sha256
            )));
        }
        head = hex(&Sha256::digest(bytes));
        entries.push(entry);
    }
    Ok((entries, head))
}

//! The journal of a session: the entropy of each round since the last state, so that its row of noise can be drawn again, and the clip
//! norms after the round where clipping is adaptive.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_coordinator::adaptive_clip::AdaptiveClip;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head;
use undertone_present::numbers::hex;

use crate::error::{Result, RunError};
use undertone_run_directory::files::names::JOURNAL_FILE;
use undertone_run_directory::files::{self, JsonLines, Lines};

/// The lines of a journal, in the folder of the checkpoint.
///
/// PRIVACY: it is as secret as the noise. Its owner alone can read it, and it is cut at every state.
pub(super) struct Journal {
    lines: JsonLines,
}

/// A line of a journal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    round: u64,
    /// 64 hexadecimal digits; `None` where the noise follows from the seed of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entropy: Option<String>,
    /// The clip norms after the round; `None` unless clipping is adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip: Option<AdaptiveClip>,
}

/// 32 bytes of the operating system for one round, or the seed of a session.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Bytes([u8; 32]),
    Seed(u64),
}

impl Source {
    pub(super) fn entropy(self) -> RoundEntropy {
        match self {
            Self::Bytes(bytes) => RoundEntropy::fresh(bytes),
            Self::Seed(seed) => RoundEntropy::seeded(seed),
        }
    }
}

fn path(run_dir: &Path) -> PathBuf {
    crate::checkpoint::path(run_dir).with_file_name(JOURNAL_FILE)
}

impl Journal {
    /// Opens or creates the journal, and keeps its rows.
    pub(super) fn open(run_dir: &Path) -> Result<Self> {
        let path = path(run_dir);
        files::secret_folder(files::folder_of(&path))?;
        let lines = JsonLines::open_secret(&path)?;
        Ok(Self { lines })
    }

    /// Forgets all rows: a state that is durable has what later rounds need.
    pub(super) fn cut(&mut self) -> Result<()> {
        self.lines.cut()?;
        Ok(self.lines.sync()?)
    }

    /// Writes the entropy of a round and the clip norms after it, durably. Where that fails, the journal is as before.
    pub(super) fn append(&mut self, round: u64, source: Source, clip: Option<AdaptiveClip>) -> Result<()> {
        let entropy = match source {
            Source::Bytes(bytes) => Some(hex(&bytes)),
            Source::Seed(_) => None,
        };
        self.lines.append(&Row { round, entropy, clip })?;
        Ok(self.lines.sync()?)
    }

    /// The rows of the rounds from `state` on, for a ledger of this many rounds. A row without a line was never released, and is
    /// left out.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`](undertone_run_directory::error::DirectoryError::Damaged) where a round of the ledger has no row; for a line that is none, and for rows of a seed in a session
    /// without one.
    pub(super) fn rows(run_dir: &Path, state: u64, ledger: u64, seed: Option<u64>) -> Result<Vec<head::Row>> {
        let path = path(run_dir);
        let damaged = |message: String| RunError::damaged(&path, message);
        let mut rows = Vec::new();
        if files::exists(&path) {
            let mut lines = Lines::open(&path)?;
            while let Some(line) = lines.next()? {
                if !line.whole {
                    break;
                }
                let place = |message: &str| damaged(format!("line {}: {message}", line.number));
                let row: Row =
                    serde_json::from_slice(line.bytes).map_err(|error| place(&error.to_string()))?;
                if row.round < state || row.round >= ledger {
                    continue;
                }
                let expected = state + rows.len() as u64;
                if row.round != expected {
                    return Err(place(&format!("expected round {expected}, got {}", row.round)));
                }
                let source = match (row.entropy, seed) {
                    (None, Some(seed)) => Source::Seed(seed),
                    (Some(digits), None) => Source::Bytes(
                        bytes_of(&digits)
                            .ok_or_else(|| place("entropy: expected 64 lower-case hexadecimal digits"))?,
                    ),
                    (None, None) => return Err(place("entropy: missing in a session without a seed")),
                    (Some(_), Some(_)) => return Err(place("entropy: a session with a seed has none")),
                };
                rows.push(head::Row {
                    entropy: source.entropy(),
                    clip: row.clip,
                });
            }
        }
        let known = state + rows.len() as u64;
        if known < ledger {
            return Err(damaged(format!(
                "it ends before round {known}, and ledger.jsonl has {ledger} rounds: without the entropy of a round its noise is lost, \
                 and later noise would not fit to it"
            )));
        }
        Ok(rows)
    }
}

fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 64 || !digits.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

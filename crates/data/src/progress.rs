//! Progress of long work, as a callback.

use std::fmt;

use crate::error::{DataError, Result};

/// A stage of opening or importing a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Hashing the source, in bytes.
    Hashing,
    /// Counting words for a vocabulary, in rows.
    Counting,
    /// Choosing the merges of a tokenizer; its length is not known.
    Merging,
    /// Reading and tokenising, in rows.
    Reading,
    /// Grouping by user and writing, in users.
    Writing,
    /// Dividing rows by their users' hashes, in rows.
    Partitioning,
    /// Sorting the rows of users together and writing them, in rows.
    Sorting,
    /// Comparing public rows with private ones, in rows.
    Comparing,
    /// Scoring the best possible predictor on a synthetic population, in users.
    Scoring,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Hashing => "hashing source",
            Stage::Counting => "counting words",
            Stage::Merging => "choosing merges",
            Stage::Reading => "reading and tokenising",
            Stage::Writing => "grouping by user",
            Stage::Partitioning => "partitioning",
            Stage::Sorting => "sorting by user",
            Stage::Comparing => "comparing",
            Stage::Scoring => "scoring the best predictor",
        })
    }
}

/// Receives progress, and can end the work.
pub trait Progress: Send + Sync {
    /// `done` of `total` units of `stage` are finished; `total` is `None` where the source does not tell. Called from one thread at a
    /// time, at most a few times per second and stage on large inputs.
    fn update(&self, stage: Stage, done: u64, total: Option<u64>);

    /// `true` ends the work with [`DataError::Interrupted`] at the next block of a file or batch of rows. Called from any thread.
    fn stop(&self) -> bool {
        false
    }
}

/// Ends the work where the caller asks for it.
pub(crate) fn proceed(progress: &dyn Progress) -> Result<()> {
    match progress.stop() {
        true => Err(DataError::Interrupted),
        false => Ok(()),
    }
}

/// Ignores progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: Stage, _: u64, _: Option<u64>) {}
}

//! The chain of a ledger: each line holds the digest of the line before.

use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone_present::numbers::hex;

use crate::error::{CoordinatorError, Result};
use crate::record::{LedgerEnd, LedgerEntry};

/// The end of a ledger, by the digest of its last line; before the first line, by the digest of the settings of the run.
///
/// # Guarantee
/// Lines are chained by SHA-256 from the settings on: a line that was changed, left out or put elsewhere shows in every reading.
/// A person who can rewrite all lines after it, and `privacy.json`, can still forge a run as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    head: String,
}

impl Chain {
    /// The chain that ends with this digest, in hexadecimal digits.
    #[must_use]
    pub fn at(head: impl Into<String>) -> Self {
        Self { head: head.into() }
    }

    /// The digest of the last line, in hexadecimal digits.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// The line of an entry, without its line feed, and the chain with that line at its end. Sets the link of the entry to the
    /// line before.
    ///
    /// # Errors
    /// A number that JSON cannot hold.
    pub fn line(&self, entry: &mut LedgerEntry) -> Result<(Vec<u8>, Self)> {
        entry.previous_sha256.clone_from(&self.head);
        self.followed_by(entry)
    }

    /// The line that ends a task, without its line feed, and the chain with that line at its end. Sets its link to the line before.
    ///
    /// # Errors
    /// Values that JSON cannot hold.
    pub fn end(&self, end: &mut LedgerEnd) -> Result<(Vec<u8>, Self)> {
        end.previous_sha256.clone_from(&self.head);
        self.followed_by(end)
    }

    #[expect(clippy::unused_self, reason = "a line follows the chain whose head it names")]
    fn followed_by(&self, line: &impl Serialize) -> Result<(Vec<u8>, Self)> {
        let line = serde_json::to_vec(line)
            .map_err(|error| CoordinatorError::value("ledger", "values that JSON can hold", error))?;
        let head = hex(&Sha256::digest(&line));
        Ok((line, Self { head }))
    }
}

//! Errors of the store.

use undertone_coordinator::participation::Violation;

/// A transaction that was not made. Nothing of it is in the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The row is not in the state that the transaction needs.
    #[error("{what}: expected {expected}, got {got}")]
    Conflict {
        /// The row.
        what: String,
        /// The state that the transaction needs.
        expected: String,
        /// State that the row is in.
        got: String,
    },
    /// A later lease has the task, or the lease was handed back.
    #[error(
        "the lease with fence {fence} is void: the last lease has fence {current}, or the lease was handed back"
    )]
    Fenced {
        /// The fence of the caller.
        fence: u64,
        /// The fence of the task.
        current: u64,
    },
    /// The release would break the participation schema. PRIVACY: this is a bug of admission, and the task must stop.
    #[error("the release would break the participation schema: {0}")]
    Refused(Violation),
    /// There is nothing under this name.
    #[error("the store has no {what} {name}")]
    Missing {
        /// The kind of row.
        what: &'static str,
        /// Name of the missing row.
        name: String,
    },
    /// The database has a schema of another version.
    #[error("{place}: expected a database of schema {expected}, got {got}; {hint}")]
    Schema {
        /// The database.
        place: String,
        /// Schema version of this program.
        expected: u32,
        /// Schema version of the database.
        got: u32,
        /// The remedy.
        hint: &'static str,
    },
    /// Another process has the database.
    #[error("{place} is in use by another process")]
    Locked {
        /// The database.
        place: String,
    },
    /// The database cannot be reached, or cannot write. The outcome of the transaction may be unknown.
    #[error("{place}: {reason}")]
    Unavailable {
        /// The database.
        place: String,
        /// The reason.
        reason: String,
    },
    /// A value in the database is none that this program writes.
    #[error("{what} in the database is damaged: {reason}")]
    Damaged {
        /// The value.
        what: String,
        /// The reason.
        reason: String,
    },
}

/// A result of this crate.
pub type Result<T, E = StoreError> = core::result::Result<T, E>;

//! Errors of the device, and its reasons to refuse an offer.

use std::path::{Path, PathBuf};

use undertone_protocol::ProtocolError;
use undertone_secagg::SecAggError;

/// Result of this crate's functions.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// A failure of the device itself: its files, its keys, or its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A file cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The database refused an operation.
    #[error("the database of the device: {0}")]
    Database(#[from] rusqlite::Error),
    /// The database was written by another version of this crate.
    #[error("the database has schema {got}; this version reads schema {expected}")]
    Schema {
        /// The schema of this version.
        expected: i64,
        /// The schema of the file.
        got: i64,
    },
    /// Another device object has the folder open.
    #[error("the folder {} is open in another process", .0.display())]
    Busy(PathBuf),
    /// The key store does not hold the keys that this folder was made with.
    #[error(
        "the key store has another key than the one that sealed this folder; forget the folder to start anew"
    )]
    OtherKey,
    /// A sealed row does not open.
    #[error("a sealed row of the table {0} was changed or damaged")]
    Sealed(&'static str),
    /// The key store failed.
    #[error("the key store: {0}")]
    KeyStore(String),
    /// An input exceeds a cap of the device.
    #[error("{name} must be {expected}, got {got}")]
    Value {
        /// The input.
        name: &'static str,
        /// A description of a usable value.
        expected: String,
        /// The value found.
        got: String,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Entropy(String),
    /// A message of the service cannot be read or trusted.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The service refused an enrolment.
    #[error("the service refused the enrolment with {code}: {message}")]
    Enrolment {
        /// The name of the code.
        code: &'static str,
        /// The sentence of the service, shortened and without control characters.
        message: String,
    },
    /// The device holds no released model, or its cache has lost a part of it.
    #[error("the device holds no model; a session that trains brings the model of its round")]
    NoModel,
    /// The network failed.
    #[error("the service cannot be reached: {0}")]
    Network(String),
}

impl DeviceError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn value(
        name: &'static str,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Value {
            name,
            expected: expected.into(),
            got: got.to_string(),
        }
    }
}

/// The reason why a device refuses an offer of the service. Nothing about the person's text is in it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A message cannot be read or trusted.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A value of a plan or of an assignment is not usable.
    #[error("{name} must be {expected}, got {got}")]
    Value {
        /// The value, by its name in the message.
        name: &'static str,
        /// A description of a usable value.
        expected: String,
        /// The value found.
        got: String,
    },
    /// The offer is weaker than the floors of this device.
    #[error("{name} must be {expected} on this device, got {got}")]
    Floor {
        /// The floor.
        name: &'static str,
        /// The demand.
        expected: String,
        /// The value found.
        got: String,
    },
    /// The assignment is for a round before one that this device has seen.
    #[error("round {got} was offered, but round {seen} of this task was seen before")]
    OldRound {
        /// The highest round seen.
        seen: u64,
        /// The round of the assignment.
        got: u64,
    },
    /// The assignment has another head of a round that this device has seen.
    #[error("round {round} was offered with another head of the ledger than before")]
    OtherHead {
        /// The round.
        round: u64,
    },
    /// The machine of secure sums refused a message.
    #[error("secure sum: {0}")]
    SecAgg(#[from] SecAggError),
    /// The service asked for a step that is not the next one.
    #[error("{got} came where {expected} was expected")]
    OutOfTurn {
        /// The expected message.
        expected: &'static str,
        /// The message.
        got: &'static str,
    },
}

impl Refusal {
    pub(crate) fn value(
        name: &'static str,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Value {
            name,
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    pub(crate) fn floor(
        name: &'static str,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Floor {
            name,
            expected: expected.into(),
            got: got.to_string(),
        }
    }
}

/// A sentence of the service as it may stand in a log: at most 200 characters, none of them a control character.
pub(crate) fn shown(message: &str) -> String {
    message
        .chars()
        .take(200)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

//! Errors of the service.

use std::path::{Path, PathBuf};

use undertone_aggregation::AggregationError;
use undertone_coordinator::CoordinatorError;
use undertone_protocol::ProtocolError;
use undertone_run_directory::error::DirectoryError;
use undertone_secagg::SecAggError;
use undertone_store::{BlobError, StoreError};

/// A failure of the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A file or a socket failed.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// The act that failed.
        verb: &'static str,
        /// The file or the address.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The key file cannot be used.
    #[error("{}: {reason}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The operating system gave no entropy.
    #[error("no entropy of the operating system: {0}")]
    Entropy(String),
    /// Sealed bytes do not open.
    #[error("the sealed state is damaged, or was sealed under another key")]
    Sealed,
    /// A setting cannot be used.
    #[error("{key} must be {expected}, got {got}")]
    Value {
        /// The setting.
        key: String,
        /// The range of the setting.
        expected: String,
        /// The value of the setting.
        got: String,
    },
    /// The store and the published heads disagree. PRIVACY: going on could release a round twice.
    #[error("task {task} is halted: {reason}")]
    Halted {
        /// The name of the task.
        task: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// A change of an attempt was left half made. The process leads the task anew, which abandons the attempt.
    #[error("the attempt cannot go on after a failure: {reason}")]
    Broken {
        /// The failure.
        reason: String,
    },
    /// A later process has the name of this one.
    #[error(
        "another process runs under the name {name}; this one takes no new work. Give each process a name of its own"
    )]
    Replaced {
        /// The name.
        name: String,
    },
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the blobs.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// An error of the coordinator.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// An error of the files of a run.
    #[error(transparent)]
    Run(#[from] DirectoryError),
    /// An error of secure aggregation.
    #[error(transparent)]
    SecAgg(#[from] SecAggError),
    /// An error of the sum.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
    /// An error of a message.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl ServiceError {
    /// `true` for a failure that may pass by itself or with room on a disk, so that a later try goes on; `false` for damage.
    pub(crate) fn passes(&self) -> bool {
        match self {
            // A task that is halted needs no second reason.
            Self::Entropy(_) | Self::Io { .. } | Self::Halted { .. } | Self::Broken { .. } => true,
            Self::Store(error) => !matches!(error, StoreError::Damaged { .. }),
            Self::Blob(error) => matches!(error, BlobError::Io { .. }),
            Self::Run(error) => matches!(error, DirectoryError::Io { .. }),
            _ => false,
        }
    }

    /// An operation on a file that failed; `verb` says which, such as "read".
    #[must_use]
    pub fn io(verb: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            verb,
            path: path.to_owned(),
            source,
        }
    }
}

/// A result of this crate.
pub type Result<T, E = ServiceError> = core::result::Result<T, E>;

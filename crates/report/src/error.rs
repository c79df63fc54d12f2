//! Errors of the report of a run.

use undertone_run::error::RunError;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A picture could not be drawn.
    #[error("cannot draw {picture}: {message}")]
    Picture {
        /// Its file name.
        picture: String,
        /// The drawing library's reason.
        message: String,
    },
    /// A file of the run directory could not be read, understood or written.
    #[error(transparent)]
    Run(#[from] RunError),
}

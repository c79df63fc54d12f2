//! Errors of the report of a run.

use undertone_run::RunError;
use undertone_run_directory::error::DirectoryError;

/// An error of making a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A picture could not be drawn.
    #[error("cannot draw {picture}: {message}")]
    Picture {
        /// The file name of the picture.
        picture: String,
        /// The drawing library's reason.
        message: String,
    },
    /// A file of the run directory could not be read, understood or written.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<DirectoryError> for ReportError {
    fn from(error: DirectoryError) -> Self {
        RunError::from(error).into()
    }
}

//! Errors of the report of a run.

use std::path::PathBuf;

use super::TrainingError;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A line of a file of the run directory is not what a run writes.
    #[error("{file}, line {line}: expected {expected}: {message}")]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The expected content of the line.
        expected: &'static str,
        /// The parser's reason.
        message: String,
    },
    /// The run has not written its first line yet, or the folder is no run directory.
    #[error("{file} has no start line: the run has not begun, or its folder is not a run directory")]
    NotStarted {
        /// The file.
        file: PathBuf,
    },
    /// A picture could not be drawn.
    #[error("cannot draw {picture}: {message}")]
    Picture {
        /// Its file name.
        picture: String,
        /// The drawing library's reason.
        message: String,
    },
    /// A file of the run directory could not be read or written.
    #[error(transparent)]
    File(Box<TrainingError>),
}

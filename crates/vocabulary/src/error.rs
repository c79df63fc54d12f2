//! The one error type of the crate.

use std::fmt;
use std::path::PathBuf;

use undertone_text::{quoted, shortened};

/// Result of this crate's functions.
pub type Result<T, E = VocabularyError> = std::result::Result<T, E>;

/// The reason why a vocabulary or a record cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VocabularyError {
    /// A line of a list of words holds something else than a word.
    #[error("{}, line {line}: word: expected {expected}, got {}", file.display(), words(got))]
    BadValue {
        /// The vocabulary file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// A description of a usable word.
        expected: String,
        /// The text found.
        got: String,
    },
    /// A vocabulary lists a word twice.
    #[error("{}, line {line}: the word {} is already listed on line {first_line}", file.display(), quoted(word))]
    DuplicateWord {
        /// The vocabulary file.
        file: PathBuf,
        /// Second occurrence.
        line: u64,
        /// First occurrence.
        first_line: u64,
        /// The word.
        word: String,
    },
    /// A list of words is empty.
    #[error("{} holds no words", path.display())]
    Empty {
        /// The vocabulary file.
        path: PathBuf,
    },
    /// A file is not a usable tokenizer.
    #[error("{} is not a usable tokenizer: {}", path.display(), words(detail))]
    BadTokenizer {
        /// The file.
        path: PathBuf,
        /// The reason for the refusal.
        detail: String,
    },
    /// A privacy record cannot be used.
    #[error("{} is no usable privacy record: {}", path.display(), words(detail))]
    BadPrivacyRecord {
        /// The record.
        path: PathBuf,
        /// The reason for the refusal.
        detail: String,
    },
    /// The operating system refused an operation on a path.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the attempted action.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file is larger than this program reads, or no regular file.
    #[error("{}: expected a regular file of at most {limit} bytes, got {got}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The maximum number of bytes that are read.
        limit: u64,
        /// A description of the value found.
        got: String,
    },
    /// A setting of a choice of words has a value outside its range.
    #[error(transparent)]
    Setting(#[from] undertone_settings::SettingsError),
    /// A guarantee could not be computed.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
    /// Noise could not be made.
    #[error(transparent)]
    Mechanism(#[from] undertone_mechanisms::MechanismError),
}

/// The words of a library for a message: longer ones than [`quoted`] allows.
fn words(text: &str) -> String {
    shortened(text, 4 * 80)
}

/// Turns an operating-system error into [`VocabularyError::Io`].
pub(crate) fn io(
    action: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(std::io::Error) -> VocabularyError {
    let path = path.into();
    move |source| VocabularyError::Io { action, path, source }
}

/// A setting whose value cannot be used.
pub(crate) fn invalid(
    key: &'static str,
    expected: impl Into<String>,
    got: impl fmt::Display,
) -> VocabularyError {
    undertone_settings::SettingsError::invalid(key, expected, got).into()
}

//! The one error type of the crate. Each error names a key of a run file, the expected value and the value found.

use std::fmt;

use undertone_text::shortened;

/// Result of this crate's functions.
pub type Result<T, E = SettingsError> = std::result::Result<T, E>;

/// The reason for which settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A setting has a value outside its range, or does not fit another setting.
    #[error("{key}: expected {expected}, got {}", shortened(got, MAX_SHOWN))]
    Invalid {
        /// The setting, as a path in the run file.
        key: String,
        /// The accepted values.
        expected: String,
        /// The value found.
        got: String,
    },
    /// A setting that the other settings need is missing.
    #[error("{key} is missing: expected {expected}")]
    Missing {
        /// The setting, as a path in the run file.
        key: String,
        /// A value that would be valid.
        expected: String,
    },
    /// A setting that the other settings rule out.
    #[error("{key} must be left out: {reason}")]
    Conflict {
        /// The setting, as a path in the run file.
        key: String,
        /// The reason.
        reason: String,
    },
}

/// Max number of bytes of a value that a message shows.
const MAX_SHOWN: usize = 4 * 80;

impl SettingsError {
    /// A setting whose value cannot be used.
    #[must_use]
    pub fn invalid(key: impl Into<String>, expected: impl Into<String>, got: impl fmt::Display) -> Self {
        Self::Invalid {
            key: key.into(),
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    /// A setting that the others need.
    #[must_use]
    pub fn missing(key: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Missing {
            key: key.into(),
            expected: expected.into(),
        }
    }

    /// A setting that the others rule out.
    #[must_use]
    pub fn conflict(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Conflict {
            key: key.into(),
            reason: reason.into(),
        }
    }
}

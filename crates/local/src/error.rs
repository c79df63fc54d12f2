//! Errors of the work of one user.

use undertone_aggregation::AggregationError;
use undertone_models::ModelError;

/// Result of this crate's functions.
pub type Result<T, E = LocalError> = std::result::Result<T, E>;

/// The reason why a user's contribution could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// A setting is outside its range or contradicts another.
    #[error("configuration key `{key}`: expected {expected}, got {got}")]
    Setting {
        /// The dotted key of a run file.
        key: String,
        /// A description of a usable value.
        expected: String,
        /// The value found.
        got: String,
    },
    /// A setting that the others need is missing.
    #[error("configuration key `{key}` is missing: expected {expected}")]
    Missing {
        /// The dotted key of a run file.
        key: String,
        /// A description of a usable value.
        expected: String,
    },
    /// A setting that the others rule out.
    #[error("configuration key `{key}` must be left out: {reason}")]
    Conflict {
        /// The dotted key of a run file.
        key: String,
        /// The setting that it conflicts with, and the reason.
        reason: String,
    },
    /// An engine delivered a piece of work twice, or one that was not requested.
    #[error("the engine delivered piece {place}: expected each of {pieces} pieces once")]
    Delivery {
        /// The place of the user, or the number of the microbatch.
        place: usize,
        /// The number of requested pieces.
        pieces: usize,
    },
    /// An engine ended without an error and left a piece of work out.
    #[error("the engine never delivered piece {place} of {pieces}")]
    Undelivered {
        /// The place of the user, or the number of the microbatch.
        place: usize,
        /// The number of requested pieces.
        pieces: usize,
    },
    /// The round was given up on request.
    #[error("interrupted: the round was given up before its release")]
    Interrupted,
    /// An error of the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An error of clipping.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
}

impl LocalError {
    #[allow(clippy::needless_pass_by_value)] // numbers and strings alike, without `&` at every call
    pub(crate) fn setting(key: &str, expected: impl Into<String>, got: impl ToString) -> Self {
        Self::Setting {
            key: key.to_owned(),
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    pub(crate) fn missing(key: &str, expected: impl Into<String>) -> Self {
        Self::Missing {
            key: key.to_owned(),
            expected: expected.into(),
        }
    }

    pub(crate) fn conflict(key: &str, reason: impl Into<String>) -> Self {
        Self::Conflict {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    /// `true` if the numbers of one user's training left their range. Any other error is a mistake in the set-up.
    #[must_use]
    pub(crate) fn is_overflow(&self) -> bool {
        matches!(
            self,
            Self::Model(ModelError::NonFiniteLoss { .. })
                | Self::Aggregation(AggregationError::NotFinite { .. })
        )
    }
}

//! Errors of the work of one user.

use undertone_aggregation::AggregationError;
use undertone_models::ModelError;

/// Result of this crate's functions.
pub type Result<T, E = LocalError> = std::result::Result<T, E>;

/// The reason why a user's contribution could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// A setting that the engine cannot train with.
    #[error(transparent)]
    Setting(#[from] undertone_settings::SettingsError),
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

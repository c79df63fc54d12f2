use undertone_accounting::AccountingError;
use undertone_aggregation::AggregationError;
use undertone_mechanisms::MechanismError;
use undertone_models::ModelError;
use undertone_run::RunError;
use undertone_secagg::SecAggError;

/// An error that stops a check. A number that does not match is a result, not an error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReproduceError {
    /// No check has this name.
    #[error("check: expected one of {known}, got '{got}'")]
    UnknownCheck {
        /// The names there are, separated by commas.
        known: String,
        /// The name that came.
        got: String,
    },
    /// The accountant refused.
    #[error(transparent)]
    Accounting(#[from] AccountingError),
    /// A mechanism or an optimiser refused.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// The finder of parameters of secure aggregation refused.
    #[error(transparent)]
    SecureAggregation(#[from] SecAggError),
    /// The network refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An encoding refused.
    #[error(transparent)]
    Aggregation(#[from] AggregationError),
    /// A corpus, a pre-training or a measurement failed, in its own words.
    #[error("training: {0}")]
    Training(String),
    /// A sum that should carry the clients' noise.
    #[error("decoding: expected a sum with the noise of the clients, got a sum without noise")]
    WithoutNoise,
    /// A training round without clients.
    #[error("training: expected at least 1 client per round, got 0")]
    NobodyCame,
}

impl ReproduceError {
    /// A temporary folder could not be used.
    pub(crate) fn folder(error: &std::io::Error) -> Self {
        Self::Training(format!("a temporary folder: {error}"))
    }
}

// Not the error itself: it can be neither cloned nor compared.
impl From<RunError> for ReproduceError {
    fn from(error: RunError) -> Self {
        Self::Training(error.to_string())
    }
}

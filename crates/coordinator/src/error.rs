//! The errors of the coordinator. Each variant names the key or the round, what was expected and what was found.

pub(crate) mod check;

use undertone_present::numbers::upper_bound;
use undertone_settings::SettingsError;

/// Result of this crate's functions.
pub type Result<T, E = CoordinatorError> = std::result::Result<T, E>;

/// An error of a plan, of a round, or of a ledger that is not that of the task.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// A value of the run file is outside its range or contradicts another.
    #[error("configuration key `{key}`: expected {expected}, got {got}")]
    ConfigValue {
        /// The dotted key.
        key: String,
        /// The expected value.
        expected: String,
        /// The actual value.
        got: String,
    },
    /// A key that the rest of the run file needs is missing.
    #[error("configuration key `{key}` is missing: expected {expected}")]
    ConfigMissing {
        /// The dotted key.
        key: String,
        /// A value that would be valid.
        expected: String,
    },
    /// A key or table that the rest of the run file rules out.
    #[error("configuration key `{key}` must be left out: {reason}")]
    ConfigConflict {
        /// The dotted key.
        key: String,
        /// The setting that it conflicts with, and the reason.
        reason: String,
    },
    /// Two keys that exclude each other, where each may stand without the other one.
    #[error("`{key}` cannot be combined with `{with}`; {remedy}")]
    ConfigCombination {
        /// The dotted key.
        key: String,
        /// The dotted key, or the key with its value, that it cannot be combined with.
        with: String,
        /// The act that ends the conflict, and where it helps the reason.
        remedy: String,
    },
    /// The next round would exceed the privacy budget.
    #[error(
        "round {round} would raise epsilon to {} at delta {delta:e}, above the budget of {budget}; the run has spent {}{}",
        upper_bound(*next),
        upper_bound(*spent),
        before_training(*vocabulary, *initial_model)
    )]
    BudgetExceeded {
        /// The round that is refused.
        round: u64,
        /// Epsilon after the round.
        next: f64,
        /// The budget.
        budget: f64,
        /// Epsilon before the round.
        spent: f64,
        /// The delta of both.
        delta: f64,
        /// Part of both that the private choice of the words took.
        vocabulary: f64,
        /// Part of both that the initial model took.
        initial_model: f64,
    },
    /// The participation schema leaves too few users for a round.
    #[error("round {round}: expected at least {expected} users who may take part again, found {eligible}")]
    TooFewEligible {
        /// The round.
        round: u64,
        /// Number of users per round.
        expected: usize,
        /// Users that the schema admits.
        eligible: usize,
    },
    /// The model diverged.
    #[error(
        "round {round}: the parameters are not finite after the server step; lower `server.learning_rate` or \
         `user_update.learning_rate`"
    )]
    Diverged {
        /// The round.
        round: u64,
    },
    /// A round was opened by another head, or by this one before another round was closed.
    #[error("the opened round is not the next one: expected {expected}, got {got}")]
    ForeignRound {
        /// The place of the head.
        expected: String,
        /// The place of the opened round.
        got: String,
    },
    /// A sum that is not of the kind, or has not the bound, that the task asks for.
    #[error("round {round}: expected {expected}, got {got}")]
    ForeignSum {
        /// The round.
        round: u64,
        /// The kind or bound that the task asks for.
        expected: String,
        /// The actual value.
        got: String,
    },
    /// A round's participants do not keep to the declared schema.
    #[error(transparent)]
    Participation(#[from] crate::violation::Violation),
    /// An error of the model.
    #[error(transparent)]
    Model(#[from] undertone_models::ModelError),
    /// An error of clipping and summing.
    #[error(transparent)]
    Aggregation(#[from] undertone_aggregation::AggregationError),
    /// An error of secure aggregation.
    #[error(transparent)]
    SecAgg(#[from] undertone_secagg::SecAggError),
    /// An error of the noise.
    #[error(transparent)]
    Mechanism(#[from] undertone_mechanisms::MechanismError),
    /// An error of the accountant.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
    /// A line of the ledger is not one of this task.
    #[error("ledger.jsonl is damaged: {message}")]
    Ledger {
        /// The reason for which it is refused.
        message: String,
    },
}

/// The spending before the first round, in words.
fn before_training(vocabulary: f64, initial_model: f64) -> String {
    let part = |epsilon: f64, what: &str| match epsilon > 0.0 {
        true => format!(", {} of it on {what}", upper_bound(epsilon)),
        false => String::new(),
    };
    part(vocabulary, "the private choice of its words")
        + &part(initial_model, "the training of its initial model")
}

impl From<SettingsError> for CoordinatorError {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Invalid { key, expected, got } => Self::ConfigValue { key, expected, got },
            SettingsError::Missing { key, expected } => Self::ConfigMissing { key, expected },
            SettingsError::Conflict { key, reason } => Self::ConfigConflict { key, reason },
        }
    }
}

impl CoordinatorError {
    /// A required key that is missing.
    #[must_use]
    pub fn missing(key: &str, expected: impl Into<String>) -> Self {
        Self::ConfigMissing {
            key: key.to_owned(),
            expected: expected.into(),
        }
    }

    /// Two keys that exclude each other. Both are named as the file has them.
    #[must_use]
    pub fn conflict(key: &str, with: &str, remedy: &str) -> Self {
        Self::ConfigCombination {
            key: key.to_owned(),
            with: with.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// A key that the rest of the configuration rules out.
    #[must_use]
    pub fn left_out(key: &str, reason: impl Into<String>) -> Self {
        Self::ConfigConflict {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    /// A sum that a round does not take.
    pub(crate) fn foreign_sum(round: u64, expected: &str, got: &str) -> Self {
        Self::ForeignSum {
            round,
            expected: expected.to_owned(),
            got: got.to_owned(),
        }
    }

    /// A value outside its range.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // numbers and strings alike, without `&` at every call
    pub fn value(key: &str, expected: impl Into<String>, got: impl ToString) -> Self {
        Self::ConfigValue {
            key: key.to_owned(),
            expected: expected.into(),
            got: got.to_string(),
        }
    }
}

/// Makes errors of the crates below, which a coordinator meets too, those of the coordinator in the error of a crate above.
///
/// That error must be made [`From`] a [`CoordinatorError`], and its crate must depend on the crates that the list names.
#[macro_export]
macro_rules! by_the_coordinator {
    ($above:ty) => {
        $crate::by_the_coordinator!(
            $above:
            $crate::participation::Violation,
            undertone_accounting::AccountingError,
            undertone_aggregation::AggregationError,
            undertone_mechanisms::MechanismError,
            undertone_models::ModelError,
            undertone_secagg::SecAggError,
            undertone_settings::SettingsError,
        );
    };
    ($above:ty: $($error:ty),+ $(,)?) => {
        $(impl From<$error> for $above {
            fn from(error: $error) -> Self {
                $crate::CoordinatorError::from(error).into()
            }
        })+
    };
}

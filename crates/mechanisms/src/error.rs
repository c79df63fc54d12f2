//! Errors between a raw sum and its noised release.

/// Every error of this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MechanismError {
    /// A setting is outside its range.
    #[error("{name} must be {expected}, got {got}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// The admissible range, in words.
        expected: &'static str,
        /// The value received.
        got: f64,
    },
    /// The noise is so small that the fixed-point grid would show through it.
    #[error(
        "noise with standard deviation {got:e} per coordinate is too small for the fixed-point grid: the min is {minimum:e}"
    )]
    NoiseBelowGrid {
        /// The requested standard deviation.
        got: f64,
        /// Smallest standard deviation that the mechanism accepts.
        minimum: f64,
    },
    /// The noise is so large that its samples would not reach every point of the fixed-point grid.
    #[error(
        "noise with standard deviation {got:e} per coordinate is too large for the fixed-point grid: the max is {maximum:e}"
    )]
    NoiseAboveGrid {
        /// The requested standard deviation.
        got: f64,
        /// Largest standard deviation that the mechanism accepts.
        maximum: f64,
    },
    /// The average has no sensitivity bound, so noise around it would guarantee nothing.
    #[error(
        "an average over the observed weight has no bound on its sensitivity; use a fixed or floored denominator, or release \
         it as non-private"
    )]
    UnboundedSensitivity,
    /// The sum of the weights is not positive, so no average can be formed.
    #[error(
        "the sum of the weights is {got}, so the average is undefined; use a fixed or floored denominator"
    )]
    NoWeight {
        /// The sum of the weights, as a plain number.
        got: f64,
    },
    /// A stream's memory does not fit.
    #[error("{vectors} vectors of {dimension} numbers do not fit into memory")]
    StateTooLarge {
        /// Vectors that the recurrence keeps.
        vectors: usize,
        /// Numbers per vector.
        dimension: usize,
    },
    /// A recurrence over earlier outputs cannot make its history again from keys, and rows that the caller brings cannot
    /// be made again at all.
    #[error("the recurrence needs earlier noise that cannot be recomputed; keep the history instead")]
    HistoryNotRemade,
    /// A sum with the noise of fewer clients than its guarantee counts on, or of more than it allows.
    #[error("the sum holds the noise of {got} clients; its guarantee needs from {min} to {max} clients")]
    WrongClients {
        /// Minimum number of clients, whose noise together is the stated noise.
        min: u64,
        /// Maximum number of clients in a sum.
        max: u64,
        /// Clients in the sum.
        got: u64,
    },
    /// A vector has another length than the model.
    #[error("expected a vector of {expected} coordinates, got {got}")]
    WrongDimension {
        /// Coordinates of the model.
        expected: usize,
        /// Coordinates received.
        got: usize,
    },
    /// All rounds of the mechanism are finished.
    #[error("all {rounds} rounds of the plan are finished")]
    NoMoreRounds {
        /// Number of rounds.
        rounds: usize,
    },
    /// A release for another round than the next one.
    #[error("expected the release of round {expected}, got round {got}")]
    WrongRound {
        /// The next round.
        expected: u64,
        /// The round received.
        got: u64,
    },
    /// The sampler's distance from the ideal one alone costs more than the requested delta.
    #[error(
        "the distance of the sampler from an ideal sampler adds {sampler:e} to delta, more than half of {delta:e}"
    )]
    SamplerExceedsDelta {
        /// The requested delta.
        delta: f64,
        /// The part of delta that the sampler adds.
        sampler: f64,
    },
    /// An average on another grid than the mechanism's.
    #[error("expected averages in steps of {expected:e}, got steps of {got:e}: the denominators differ")]
    WrongGrid {
        /// Value of one step of the mechanism's grid.
        expected: f64,
        /// Value of one step of the average.
        got: f64,
    },
    /// A release failed half way, so the memory belongs to no round any more.
    #[error(
        "an earlier release failed before it was complete; continue from the state saved before that release"
    )]
    Interrupted,
    /// A matrix cannot be computed from its inverse: cancellation leaves no digits, and no bound on the error.
    #[error(
        "the matrix cannot be computed from its inverse in double precision: the computed coefficient {index} is {value:e} \
         without a bound on its error; expected taps that do not cancel"
    )]
    UncertainInverse {
        /// First coefficient without a bound.
        index: usize,
        /// The computed coefficient.
        value: f64,
    },
    /// A saved state cannot be continued here.
    #[error("the saved state has a different {what}: expected {expected}, got {got}")]
    StateMismatch {
        /// The property that differs.
        what: &'static str,
        /// The value that this mechanism needs.
        expected: String,
        /// The value in the state.
        got: String,
    },
    /// A saved state is cut short or changed.
    #[error("the saved state is damaged: {what}")]
    StateDamaged {
        /// The damage, in words.
        what: &'static str,
    },
    /// A saved state could not be read or written.
    #[error("the saved state could not be {action}: {message}")]
    StateIo {
        /// "read" or "written".
        action: &'static str,
        /// Kind of the error.
        kind: std::io::ErrorKind,
        /// The reader's or writer's message.
        message: String,
    },
    /// A description cannot be read.
    #[error("the description of the mechanism cannot be used: {message}")]
    Description {
        /// The reason, in words.
        message: String,
    },
    /// The accountant refused a quantity of the event.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
}

/// Shorthand for results of this crate.
pub type Result<T, E = MechanismError> = std::result::Result<T, E>;

/// [`MechanismError::Setting`], to be returned.
pub(crate) const fn setting(name: &'static str, expected: &'static str, got: f64) -> MechanismError {
    MechanismError::Setting { name, expected, got }
}

/// The value `got` if it is in its range, otherwise the refusal.
pub(crate) fn ensure(holds: bool, name: &'static str, expected: &'static str, got: f64) -> Result<f64> {
    if holds {
        Ok(got)
    } else {
        Err(setting(name, expected, got))
    }
}

/// A setting that has to be positive and finite.
///
/// # Errors
/// [`MechanismError::Setting`] for anything else.
pub(crate) fn positive(name: &'static str, value: f64) -> Result<f64> {
    let holds = value > 0.0 && value.is_finite();
    ensure(holds, name, "positive and finite", value)
}

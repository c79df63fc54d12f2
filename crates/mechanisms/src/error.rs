//! What can go wrong between a raw sum and its noised release.

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
        "noise of std {got:e} per coordinate is too small for the fixed-point grid: it needs at least {minimum:e}"
    )]
    NoiseBelowGrid {
        /// Standard deviation asked for.
        got: f64,
        /// Smallest standard deviation that the mechanism accepts.
        minimum: f64,
    },
    /// The noise is so large that its samples would not reach every point of the fixed-point grid.
    #[error(
        "noise of std {got:e} per coordinate is too large for the fixed-point grid: it allows at most {maximum:e}"
    )]
    NoiseAboveGrid {
        /// Standard deviation asked for.
        got: f64,
        /// Largest standard deviation that the mechanism accepts.
        maximum: f64,
    },
    /// The average has no sensitivity bound, so noise around it would guarantee nothing.
    #[error(
        "an average over the observed weight has no sensitivity bound; release it with a fixed or floored \
         denominator, or as non-private"
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
    /// An average or a noised value left the range of the fixed-point grid.
    #[error("coordinate {index} leaves the fixed-point range of +-{limit}")]
    Overflow {
        /// First offending coordinate.
        index: usize,
        /// Largest magnitude that fits.
        limit: f64,
    },
    /// The accountant refused a quantity of the event.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
}

/// Shorthand for results of this crate.
pub type Result<T, E = MechanismError> = std::result::Result<T, E>;

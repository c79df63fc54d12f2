//! Privacy quantities as types: a value that exists is a value in its domain.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::AccountingError;
use crate::error::ensure;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $label:literal, $expected:literal, $holds:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            #[doc = concat!("Validates `value`: ", $expected, ".")]
            ///
            /// # Errors
            /// [`AccountingError::OutOfRange`] for anything else, NaN and infinities included.
            pub fn new(value: f64) -> Result<Self, AccountingError> {
                let holds: fn(f64) -> bool = $holds;
                ensure(value.is_finite() && holds(value), $label, $expected, value)?;
                Ok(Self(value))
            }

            /// The number itself.
            #[must_use]
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = AccountingError;

            fn try_from(value: f64) -> Result<Self, AccountingError> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

quantity!(
    /// Bound on the privacy loss (nats).
    Epsilon, "epsilon", "a finite number >= 0", |value| value >= 0.0
);
quantity!(
    /// Probability mass on which the epsilon bound may fail.
    Delta, "delta", "a number in (0, 1)", |value| value > 0.0 && value < 1.0
);
quantity!(
    /// Zero-concentrated differential privacy: Renyi divergence of order `a` is at most `rho a`.
    Rho, "rho", "a finite number >= 0", |value| value >= 0.0
);
quantity!(
    /// Noise standard deviation divided by the sensitivity of what the noise is added to (`z`).
    NoiseMultiplier, "noise_multiplier", "a finite number > 0", |value| value > 0.0
);
quantity!(
    /// Probability `q` with which every user independently joins a round.
    SamplingProbability, "sampling_probability", "a number in (0, 1]", |value| value > 0.0 && value <= 1.0
);

quantity!(
    /// Squared L2 sensitivity, in units of the squared clip norm.
    SquaredSensitivity, "squared_sensitivity", "a finite number >= 0", |value| value >= 0.0
);

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T>(result: Result<T, AccountingError>, message: &str) {
        assert_eq!(result.err().map(|e| e.to_string()).as_deref(), Some(message));
    }

    #[test]
    fn values_outside_their_domain_are_refused() {
        check(
            Epsilon::new(-1.0),
            "epsilon: expected a finite number >= 0, got -1",
        );
        check(
            Epsilon::new(f64::INFINITY),
            "epsilon: expected a finite number >= 0, got inf",
        );
        check(Delta::new(0.0), "delta: expected a number in (0, 1), got 0");
        check(Delta::new(1.0), "delta: expected a number in (0, 1), got 1");
        check(
            Delta::new(f64::NAN),
            "delta: expected a number in (0, 1), got NaN",
        );
        check(
            NoiseMultiplier::new(0.0),
            "noise_multiplier: expected a finite number > 0, got 0",
        );
        check(
            SamplingProbability::new(1.5),
            "sampling_probability: expected a number in (0, 1], got 1.5",
        );
        check(
            SamplingProbability::new(-0.0),
            "sampling_probability: expected a number in (0, 1], got -0",
        );
        check(Rho::new(f64::NAN), "rho: expected a finite number >= 0, got NaN");
        assert_eq!(Epsilon::new(0.0).unwrap().get(), 0.0);
        assert_eq!(SamplingProbability::new(1.0).unwrap().get(), 1.0);
    }

    #[test]
    fn serde_refuses_a_delta_outside_its_domain() {
        assert_eq!(serde_json::to_string(&Delta::new(1e-9).unwrap()).unwrap(), "1e-9");
        assert!(serde_json::from_str::<Delta>("2.0").is_err());
        assert_eq!(serde_json::from_str::<Delta>("0.5").unwrap().get(), 0.5);
    }
}

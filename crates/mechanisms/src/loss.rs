//! Errors and losses: the noise that a strategy leaves in the iterates, alone and at equal privacy.

use std::fmt;

use serde::{Deserialize, Serialize};
use undertone_accounting::AccountingError;
use undertone_accounting::sensitivity::SquaredSensitivity;

use crate::error::Result;

/// Standard deviation of the noise in the iterates, for noise of standard deviation 1 in every entry of `Z`.
///
/// # Source
/// \[BLT\] section 2: `B = A C^-1`; `MaxError` is the largest row norm of `B`, `RmsError` its Frobenius norm over the
/// root of the number of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// The largest error over the rounds.
    pub max_error: f64,
    /// The root mean square of the errors over the rounds.
    pub rms_error: f64,
}

impl Errors {
    /// The errors of iterates whose noise has the given variances: squared row norms of `B`, at least one.
    #[must_use]
    pub fn from_variances(variances: impl IntoIterator<Item = f64>) -> Self {
        let (mut largest, mut sum, mut rounds) = (0.0f64, 0.0, 0u64);
        for variance in variances {
            largest = largest.max(variance);
            sum += variance;
            rounds += 1;
        }
        Self {
            max_error: largest.sqrt(),
            rms_error: (sum / rounds as f64).sqrt(),
        }
    }

    /// The losses at a sensitivity.
    #[must_use]
    pub fn losses(self, squared: SquaredSensitivity) -> Losses {
        let sensitivity = squared.sensitivity();
        Losses {
            sensitivity,
            max_loss: sensitivity * self.max_error,
            rms_loss: sensitivity * self.rms_error,
        }
    }
}

/// Error times sensitivity, by which mechanisms are compared at equal privacy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// L2 sensitivity per unit of clip norm.
    pub sensitivity: f64,
    /// Sensitivity times [`Errors::max_error`].
    pub max_loss: f64,
    /// Sensitivity times [`Errors::rms_error`].
    pub rms_loss: f64,
}

impl Losses {
    /// The loss that `objective` minimises.
    #[must_use]
    pub fn get(&self, objective: Objective) -> f64 {
        match objective {
            Objective::MaxLoss => self.max_loss,
            Objective::RmsLoss => self.rms_loss,
        }
    }
}

/// The loss that an optimiser minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The noise in the worst iterate.
    MaxLoss,
    /// The root mean square over the iterates.
    RmsLoss,
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Objective::MaxLoss => "MaxLoss",
            Objective::RmsLoss => "RmsLoss",
        })
    }
}

/// Relative to the sensitivity, the uncertainty of a value that is still called exact: that of sums in `f64`.
const EXACT: f64 = 1e-9;

/// A squared sensitivity and whether it is exact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CertifiedSensitivity {
    /// Squared sensitivity per squared unit of clip norm. The true value is never larger.
    pub squared: SquaredSensitivity,
    /// True if some participation set of the schema attains it.
    pub exact: bool,
}

impl CertifiedSensitivity {
    /// A squared sensitivity that is attained.
    #[must_use]
    pub fn exact(squared: SquaredSensitivity) -> Self {
        Self { squared, exact: true }
    }

    /// A squared sensitivity that is proved never to be exceeded.
    #[must_use]
    pub fn upper_bound(squared: SquaredSensitivity) -> Self {
        Self {
            squared,
            exact: false,
        }
    }

    /// The exact value where one is known, otherwise the bound.
    pub(crate) fn known(
        exact: Result<SquaredSensitivity, AccountingError>,
        bound: impl FnOnce() -> Result<SquaredSensitivity, AccountingError>,
    ) -> Result<Self> {
        match exact {
            Ok(squared) => Ok(Self::exact(squared)),
            Err(AccountingError::NoExactSensitivity { .. } | AccountingError::SensitivityTooLarge { .. }) => {
                Ok(Self::upper_bound(bound()?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The sensitivity (not squared) larger by what the matrix that was looked at may lack.
    pub(crate) fn widened(self, by: f64) -> Result<Self> {
        let sensitivity = self.squared.sensitivity() + by;
        Ok(Self {
            squared: SquaredSensitivity::new(sensitivity * sensitivity)?,
            exact: self.exact && by <= EXACT * sensitivity,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_widened_sensitivity_is_exact_only_within_rounding() {
        let four = CertifiedSensitivity::exact(SquaredSensitivity::new(4.0).unwrap());
        assert_eq!(four.widened(0.0).unwrap(), four);
        let wide = four.widened(1.0).unwrap();
        assert_eq!((wide.squared.get(), wide.exact), (9.0, false));
        assert!(four.widened(1e-10).unwrap().exact && !four.widened(1e-8).unwrap().exact);
        assert!(four.widened(f64::NAN).is_err() && four.widened(f64::INFINITY).is_err());
    }

    #[test]
    fn losses_are_errors_times_the_sensitivity() {
        let errors = Errors::from_variances([1.0, 4.0, 9.0, 2.0]);
        assert_eq!((errors.max_error, errors.rms_error), (3.0, 2.0));
        let losses = errors.losses(SquaredSensitivity::new(4.0).unwrap());
        assert_eq!(losses.get(Objective::MaxLoss), 6.0);
        assert_eq!(losses.get(Objective::RmsLoss), 4.0);
        assert_eq!(Objective::MaxLoss.to_string(), "MaxLoss");
    }
}

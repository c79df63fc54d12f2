//! Matrices with a banded Toeplitz inverse, their columns scaled to norm one.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;

use super::identity::positive;
use super::inverse_toeplitz::InverseToeplitz;
use super::normalised_toeplitz::normalised_certified;
use crate::error::Result;
use crate::iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::toeplitz;
use crate::workload::Workload;

/// The matrix `C = T D^-1` over a fixed number of rounds: `T` the matrix of an [`InverseToeplitz`], `D` the norms of
/// its columns. `C^-1 = D T^-1` is banded like `T^-1`; one more factor per round.
///
/// # Guarantee
/// As [`NormalisedToeplitz`](crate::NormalisedToeplitz).
///
/// # Source
/// "DP-lambda-CGD" (2026), the column-normalised form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct NormalisedInverseToeplitz {
    pub(super) rounds: usize,
    inverse: InverseToeplitz,
}

read_by!(new(rounds, inverse) of NormalisedInverseToeplitz { rounds: usize, inverse: InverseToeplitz });

impl NormalisedInverseToeplitz {
    /// Normalises over `rounds` rounds.
    ///
    /// # Errors
    /// No rounds, or a matrix that overflows within them.
    pub fn new(rounds: usize, inverse: InverseToeplitz) -> Result<Self> {
        positive(rounds)?;
        inverse.strategy_coefficients(rounds)?;
        Ok(Self { rounds, inverse })
    }

    /// First column of `T^-1`, up to its last band.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        self.inverse.coefficients()
    }

    /// The diagonal of `D`: norms of the columns of `T`, one per round.
    ///
    /// # Errors
    /// None that construction did not see.
    pub fn column_norms(&self) -> Result<Vec<f64>> {
        let coefficients = self.inverse.strategy_coefficients(self.rounds)?;
        Ok(toeplitz::column_norms(&coefficients, self.rounds))
    }

    pub(super) fn name(&self) -> String {
        format!("normalised {}", self.inverse.name())
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let coefficients = self.inverse.strategy_coefficients(self.rounds)?;
        let errors = self.inverse.coefficient_errors(&coefficients)?;
        let max_par = participation
            .effective(rounds as u64)?
            .participation
            .max_participation();
        let missing = max_par as f64 * largest_share(&errors, &coefficients);
        normalised_certified(coefficients, rounds, participation)?.widened(missing)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        iterates::of_toeplitz(self.coefficients(), &self.column_norms()?, rounds, workload)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        let mut scale = self.column_norms()?;
        scale.truncate(rounds);
        Ok(Recurrence::Taps {
            coefficients: self.coefficients().to_vec(),
            scale,
        })
    }
}

/// The largest norm of what rounding took from a column, over the norm that the column is divided by.
///
/// PRIVACY: the factors of the rounds are the computed norms, so the matrix that is run is the exact `T` over these. One
/// user's columns together lack at most the sum of these norms.
fn largest_share(errors: &[f64], coefficients: &[f64]) -> f64 {
    let (mut missing, mut norm, mut largest) = (0.0, 0.0, 0.0f64);
    for (error, coefficient) in errors.iter().zip(coefficients) {
        missing += error * error;
        norm += coefficient * coefficient;
        let share = f64::sqrt(missing / norm);
        // Not a number stays one, and is refused.
        largest = if share <= largest { largest } else { share };
    }
    largest
}

#[cfg(test)]
mod tests {
    use undertone_accounting::sensitivity::normalised::NormalisedToeplitz;

    use super::*;
    use crate::testing::at_least;
    use crate::toeplitz::exact;

    #[test]
    fn taps_that_cancel_are_not_certified_too_low() {
        let twice = at_least(4, 6);
        let mut widened = 0;
        for step in 0..40 {
            let ratio = 2.7 + 0.007 * f64::from(step);
            let taps = toeplitz::inverse(&[1.0, ratio, 0.5, 0.25], 25).unwrap();
            let strategy =
                NormalisedInverseToeplitz::new(25, InverseToeplitz::new(taps.clone()).unwrap()).unwrap();
            let certified = strategy.squared_sensitivity(25, &twice).unwrap();
            // One user in rounds 0, 4, .. of the exact matrix over the factors of the rounds.
            let exact = exact::inverse(&taps, 25);
            let norms = strategy.column_norms().unwrap();
            let squared: f64 = (0..25)
                .map(|t| {
                    let columns = (0..=t).step_by(4).filter(|j| *j < 24);
                    columns.map(|j| exact[t - j].0 / norms[j]).sum::<f64>().powi(2)
                })
                .sum();
            assert!(
                certified.squared.get() >= squared,
                "{certified:?} below {squared}"
            );
            let computed = strategy.inverse.strategy_coefficients(25).unwrap();
            let plain = NormalisedToeplitz::new(computed).unwrap();
            widened += u32::from(plain.squared_sensitivity_bound(25, &twice).unwrap() < certified.squared);
        }
        assert_eq!(widened, 40);
    }
}

//! Toeplitz matrices whose inverse is banded: BISR, BandInvMF, DP-lambda-CGD.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::toeplitz::Toeplitz;

use super::banded_toeplitz::certified;
use super::coefficients::Coefficients;
use crate::error::{Result, ensure};
use crate::iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::toeplitz::{self, enclosure};
use crate::workload::Workload;

/// Toeplitz `C` given by the first column of `C^-1`, for any number of rounds: each round's noise is a fixed combination
/// of the last few independent rows, which can be made again from their keys.
///
/// # Guarantee
/// The sensitivity is that of `C`, the inverse series over the rounds: exact for coefficients that are non-negative and
/// never grow, otherwise a proved bound. It covers what rounding can take from the computed inverse; where taps cancel, that
/// makes it a bound, and where they leave no digits, it is refused.
///
/// # Source
/// Kalinin, McMahan, Upadhyay, Lampert, "Back to Square Roots" (2025) (BISR, BandInvMF); "DP-lambda-CGD" (2026).
///
/// # Example
/// ```
/// use undertone_mechanisms::{InverseToeplitz, Strategy, Workload};
///
/// let strategy = Strategy::InverseToeplitz(InverseToeplitz::square_root(4)?);
/// let errors = strategy.errors(64, &Workload::prefix_sum())?;
/// assert!((errors.max_error - 2.710_656_055_275_18).abs() < 1e-9);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InverseToeplitz {
    coefficients: Coefficients,
}

impl InverseToeplitz {
    /// Creates the matrix from the first column of its inverse; zeros at the end of the column count as bands.
    ///
    /// # Errors
    /// No coefficients, one that is not finite, or a first one that is not positive.
    pub fn new(coefficients: Vec<f64>) -> Result<Self> {
        let coefficients = Coefficients::new(coefficients)?;
        Ok(Self { coefficients })
    }

    /// BISR for prefix sums: the first coefficients of `sqrt(1 - x)`, the inverse of the square root.
    ///
    /// # Errors
    /// No bands.
    pub fn square_root(bands: usize) -> Result<Self> {
        Self::square_root_of(&vec![1.0; bands])
    }

    /// BISR for a Toeplitz workload given by its first column: as many bands as entries, the first coefficients of the
    /// inverse of its square root. See [`Workload::coefficients`].
    ///
    /// # Errors
    /// No entries, a first one that is not positive, or a root that overflows.
    pub fn square_root_of(workload: &[f64]) -> Result<Self> {
        let bands = workload.len();
        let root = toeplitz::square_root(workload, bands)?;
        Self::new(toeplitz::inverse(&root, bands)?)
    }

    /// DP-lambda-CGD: `C^-1 = I - lambda shift`, each round takes back a share of the last round's noise.
    ///
    /// # Errors
    /// A lambda outside `[0, 1]`.
    pub fn lambda(lambda: f64) -> Result<Self> {
        ensure((0.0..=1.0).contains(&lambda), "lambda", "in [0, 1]", lambda)?;
        Self::new(vec![1.0, -lambda])
    }

    /// First column of the inverse, up to the last band.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// First column of the matrix itself, one number per round.
    ///
    /// # Errors
    /// A series that overflows.
    pub fn strategy_coefficients(&self, rounds: usize) -> Result<Vec<f64>> {
        toeplitz::inverse(&self.coefficients, rounds)
    }

    /// Bounds on the distance of each of these computed coefficients of the matrix from the exact one.
    pub(super) fn coefficient_errors(&self, coefficients: &[f64]) -> Result<Vec<f64>> {
        enclosure::inverse_errors(&self.coefficients, coefficients)
    }

    pub(super) fn name(&self) -> String {
        match self.coefficients[..] {
            [1.0, taken] if taken != -0.5 => format!("DP-lambda-CGD({})", readable(-taken)),
            _ if Self::square_root(self.coefficients.len()).as_ref() == Ok(self) => {
                format!("BISR({})", self.coefficients.len())
            }
            _ => format!("BandInvMF({})", self.coefficients.len()),
        }
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let coefficients = self.strategy_coefficients(rounds)?;
        // PRIVACY: the noise is made from the inverse, so the matrix that is run is the exact one, and what rounding took
        // from the computed one counts.
        let missing = Toeplitz::new(self.coefficient_errors(&coefficients)?)?
            .squared_sensitivity_bound(participation)?
            .sensitivity();
        certified(&Toeplitz::new(coefficients)?, participation)?.widened(missing)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        iterates::of_toeplitz(&self.coefficients, &[], rounds, workload)
    }

    pub(super) fn recurrence(&self, _rounds: usize) -> Result<Recurrence> {
        Ok(Recurrence::Taps {
            coefficients: self.coefficients.to_vec(),
            scale: Vec::new(),
        })
    }
}

/// Four decimals are enough to tell optima apart in a table; the description has all digits.
fn readable(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::testing::at_least;
    use crate::toeplitz::exact;

    #[test]
    fn names_have_a_readable_number_of_digits() {
        let name = |lambda: f64| InverseToeplitz::lambda(lambda).unwrap().name();
        assert_eq!(name(0.7), "DP-lambda-CGD(0.7)");
        assert_eq!(name(2.0 / 3.0), "DP-lambda-CGD(0.6667)");
        assert_eq!(name(0.5), "BISR(2)");
    }

    /// Taps near 1e11 that leave a small matrix, given by its own coefficients: what is certified for the taps is never
    /// below what the exact inverse of the taps costs, although the computed inverse alone would be.
    #[test]
    fn taps_that_cancel_are_not_certified_too_low() {
        let twice = at_least(4, 6);
        let (mut too_low, mut widest) = (0, 0.0f64);
        for step in 0..40 {
            let ratio = 2.7 + 0.007 * f64::from(step);
            let taps = toeplitz::inverse(&[1.0, ratio, 0.5, 0.25], 25).unwrap();
            let strategy = InverseToeplitz::new(taps.clone()).unwrap();
            let certified = strategy.squared_sensitivity(25, &twice).unwrap();
            let computed = strategy.strategy_coefficients(25).unwrap();
            let plain = super::certified(&Toeplitz::new(computed.clone()).unwrap(), &twice).unwrap();
            let errors = strategy.coefficient_errors(&computed).unwrap();
            let exact: Vec<f64> = exact::inverse(&taps, 25).iter().map(|value| value.0).collect();
            for ((exact, computed), error) in exact.iter().zip(&computed).zip(&errors) {
                assert!((exact - computed).abs() <= *error + f64::EPSILON * exact.abs());
            }
            let truth = super::certified(&Toeplitz::new(exact).unwrap(), &twice).unwrap();
            assert!(
                certified.squared >= truth.squared,
                "{certified:?} below {truth:?}"
            );
            assert!(!certified.exact);
            too_low += u32::from(plain.squared < truth.squared);
            widest = widest.max(certified.squared.sensitivity() / truth.squared.sensitivity() - 1.0);
        }
        assert!(too_low > 5 && widest < 1e-2, "{too_low} {widest}");
    }
}

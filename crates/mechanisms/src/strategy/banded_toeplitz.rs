//! Banded Toeplitz matrices: BandToep with optimised coefficients, BandFHU with those of the square root.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::toeplitz::Toeplitz;

use super::coefficients::Coefficients;
use crate::error::Result;
use crate::iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::toeplitz;
use crate::workload::Workload;

/// Lower-triangular Toeplitz `C` with as many bands as coefficients, for any number of rounds.
///
/// # Guarantee
/// The sensitivity is exact for non-negative coefficients that never grow, and for any where no two columns of a
/// participation set meet (no more bands than the gap); otherwise a proved bound.
///
/// # Source
/// McKenna, "Scaling up the Banded Matrix Factorization Mechanism for Differentially Private ML" (2024) (BandToep);
/// Kalinin and Lampert (2024) (BandFHU).
///
/// # Example
/// ```
/// use undertone_mechanisms::{BandedToeplitz, Strategy, Workload};
///
/// let strategy = Strategy::BandedToeplitz(BandedToeplitz::fhu(8)?);
/// let errors = strategy.errors(64, &Workload::prefix_sum())?;
/// assert!((errors.rms_error - 2.074_523_751_888_566).abs() < 1e-9);
/// # Ok::<(), undertone_mechanisms::MechanismError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandedToeplitz {
    coefficients: Coefficients,
}

impl BandedToeplitz {
    /// Creates the matrix from its first column; zeros at the end of the column count as bands.
    ///
    /// # Errors
    /// No coefficients, one that is not finite, or a first one that is not positive.
    pub fn new(coefficients: Vec<f64>) -> Result<Self> {
        let coefficients = Coefficients::new(coefficients)?;
        Ok(Self { coefficients })
    }

    /// BandFHU: the first coefficients of the square root of the prefix sum.
    ///
    /// # Errors
    /// No bands.
    pub fn fhu(bands: usize) -> Result<Self> {
        Self::new(toeplitz::fhu(bands))
    }

    /// First column of the matrix, up to the last band.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    pub(super) fn name(&self) -> String {
        let bands = self.coefficients.len();
        if *self.coefficients == toeplitz::fhu(bands) {
            format!("BandFHU({bands})")
        } else {
            format!("BandToep({bands})")
        }
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        certified(
            &Toeplitz::banded(self.coefficients.to_vec(), rounds)?,
            participation,
        )
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        let inverse = toeplitz::inverse(&self.coefficients, rounds)?;
        iterates::of_toeplitz(&inverse, &[], rounds, workload)
    }

    pub(super) fn recurrence(&self, _rounds: usize) -> Result<Recurrence> {
        Ok(Recurrence::Bands {
            coefficients: self.coefficients.to_vec(),
            scale: Vec::new(),
        })
    }
}

/// Exact where that is known, otherwise the bound.
pub(super) fn certified(matrix: &Toeplitz, participation: &Participation) -> Result<CertifiedSensitivity> {
    CertifiedSensitivity::known(matrix.squared_sensitivity(participation), || {
        matrix.squared_sensitivity_bound(participation)
    })
}

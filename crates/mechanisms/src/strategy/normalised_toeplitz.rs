//! Toeplitz matrices with columns scaled to norm one.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::normalised;

use super::coefficients::Coefficients;
use super::identity::positive;
use crate::error::Result;
use crate::iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::toeplitz;
use crate::workload::Workload;

/// `C = T D^-1` over a fixed number of rounds: `T` Toeplitz, `D` the norms of its columns, which the end of the run cuts
/// shorter and shorter. Late rounds get less noise at the same sensitivity of one participation.
///
/// # Guarantee
/// The sensitivity is that of the matrix really run: exact where columns of a set do not meet, where the coefficients are
/// positive, fall and are log-convex, and where a set attains the bound of Algorithm 4; otherwise that bound.
///
/// # Source
/// "Normalized Square Root" (2025) for `T` the square root of the prefix sum; McKenna (2024) for banded ones.
///
/// # Example
/// ```
/// use undertone_accounting::participation::Participation;
/// use undertone_mechanisms::{NormalisedToeplitz, Strategy, Workload};
///
/// let strategy = Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(512)?);
/// let squared = strategy.squared_sensitivity(512, &Participation::single())?.squared;
/// let losses = strategy.errors(512, &Workload::prefix_sum())?.losses(squared);
/// assert!((losses.max_loss - 2.862_613_800_472_911).abs() < 1e-8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct NormalisedToeplitz {
    pub(super) rounds: usize,
    coefficients: Coefficients,
}

read_by!(new(rounds, coefficients) of NormalisedToeplitz { rounds: usize, coefficients: Vec<f64> });

impl NormalisedToeplitz {
    /// Creates the matrix from the first column of `T`, which is cut at the last round and has zeros after its last entry.
    ///
    /// # Errors
    /// No rounds, no coefficients, one that is not finite, or a first one that is not positive.
    pub fn new(rounds: usize, coefficients: Vec<f64>) -> Result<Self> {
        positive(rounds)?;
        let coefficients = Coefficients::new(coefficients)?.first(rounds);
        Ok(Self { rounds, coefficients })
    }

    /// The normalised square root of the prefix sum.
    ///
    /// # Errors
    /// No rounds.
    pub fn square_root(rounds: usize) -> Result<Self> {
        Self::new(rounds, toeplitz::fhu(rounds))
    }

    /// First column of `T`, up to its last band.
    #[must_use]
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// The diagonal of `D`: norms of the columns of `T`, one per round.
    #[must_use]
    pub fn column_norms(&self) -> Vec<f64> {
        toeplitz::column_norms(&self.coefficients, self.rounds)
    }

    pub(super) fn name(&self) -> String {
        let bands = self.coefficients.len();
        match (bands == self.rounds, *self.coefficients == toeplitz::fhu(bands)) {
            (true, true) => "normalised square root".to_owned(),
            (false, true) => format!("normalised BandFHU({bands})"),
            _ => format!("normalised BandToep({bands})"),
        }
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let mut coefficients = self.coefficients.to_vec();
        coefficients.resize(self.rounds, 0.0);
        normalised_certified(coefficients, rounds, participation)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        let inverse = toeplitz::inverse(&self.coefficients, rounds)?;
        iterates::of_toeplitz(&inverse, &self.column_norms(), rounds, workload)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        let mut scale = self.column_norms();
        scale.truncate(rounds);
        Ok(Recurrence::Bands {
            coefficients: self.coefficients.to_vec(),
            scale,
        })
    }
}

/// The certified squared sensitivity of the first `rounds` rounds of `T D^-1`, from one coefficient per round of the
/// whole run.
pub(super) fn normalised_certified(
    coefficients: Vec<f64>,
    rounds: usize,
    participation: &Participation,
) -> Result<CertifiedSensitivity> {
    let matrix = normalised::NormalisedToeplitz::new(coefficients)?;
    CertifiedSensitivity::known(matrix.squared_sensitivity(rounds, participation), || {
        matrix.squared_sensitivity_bound(rounds, participation)
    })
}

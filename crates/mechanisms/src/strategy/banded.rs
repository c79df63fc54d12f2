//! Banded matrices with entries of their own in every round: BandMF.

use serde::{Deserialize, Serialize};
use undertone_accounting::AccountingError;
use undertone_accounting::participation::Participation;
use undertone_accounting::sensitivity::general::LowerTriangular;

use crate::error::Result;
use crate::iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::triangular::Triangular;
use crate::workload::Workload;

/// Lower-triangular `C` over a fixed number of rounds whose entries `(i, j)` vanish for `i - j >= bands`.
///
/// # Guarantee
/// The sensitivity is computed from the entries themselves, whatever found them: exact for no more bands than the gap and
/// where a participation set attains the bound, otherwise the bound of Algorithm 4.
///
/// # Source
/// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023).
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::{Banded, Strategy};
///
/// let strategy = Strategy::Banded(Banded::new(3, 2, vec![0.8, 0.6, 0.8, 0.6, 1.0])?);
/// let twice = Participation::at_least(Gap::new(2)?, 2)?;
/// assert!((strategy.squared_sensitivity(3, &twice)?.squared.get() - 2.0).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Banded {
    pub(super) matrix: Triangular,
}

read_by!(#[derive(Serialize)] new(rounds, bands, entries) of Banded { rounds: usize, bands: usize, entries: Vec<f64> });

impl From<Banded> for Unchecked {
    fn from(value: Banded) -> Self {
        Self {
            rounds: value.matrix.rounds(),
            bands: value.matrix.bands(),
            entries: value.matrix.entries().to_vec(),
        }
    }
}

impl Banded {
    /// `entries` holds the rows one after another, each from its first column within the band to the diagonal: row `t`
    /// has `min(t + 1, bands)` numbers.
    ///
    /// # Errors
    /// No rounds, no bands or more than rounds, another number of entries, one that is not finite, or a diagonal that is
    /// not positive.
    pub fn new(rounds: usize, bands: usize, entries: Vec<f64>) -> Result<Self> {
        Ok(Self {
            matrix: Triangular::new(rounds, bands, entries)?,
        })
    }

    pub(crate) fn from_triangular(matrix: Triangular) -> Self {
        Self { matrix }
    }

    /// Width: diagonals that may be non-zero.
    #[must_use]
    pub fn bands(&self) -> usize {
        self.matrix.bands()
    }

    /// Row `t` from its first column within the band to the diagonal; empty beyond the last round.
    #[must_use]
    pub fn row(&self, t: usize) -> &[f64] {
        if t < self.matrix.rounds() {
            self.matrix.row(t)
        } else {
            &[]
        }
    }

    pub(super) fn name(&self) -> String {
        format!("BandMF({})", self.matrix.bands())
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        squared_sensitivity(&self.matrix, rounds, participation)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        iterates::of_triangular(&self.matrix, rounds, workload)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        let bands = self.matrix.bands();
        let mut entries = vec![0.0; rounds * bands];
        for (t, row) in entries.chunks_exact_mut(bands).enumerate() {
            for (entry, value) in row.iter_mut().zip(self.matrix.row(t).iter().rev()) {
                *entry = *value;
            }
        }
        Ok(Recurrence::Rows { bands, entries })
    }
}

/// The sensitivity of the first rounds of a matrix that is given entry by entry: exact where a method is known or an evenly spaced set attains the bound, otherwise the bound.
pub(super) fn squared_sensitivity(
    matrix: &Triangular,
    rounds: usize,
    participation: &Participation,
) -> Result<CertifiedSensitivity> {
    let matrix = LowerTriangular::from_columns(matrix.columns(rounds))?;
    match matrix.squared_sensitivity(participation) {
        Ok(squared) => return Ok(CertifiedSensitivity::exact(squared)),
        Err(AccountingError::NoExactSensitivity { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let squared = matrix.squared_sensitivity_bound(participation)?;
    let reached = matrix.squared_sensitivity_reached(participation)?;
    Ok(CertifiedSensitivity {
        squared,
        // The sums run in different orders.
        exact: reached.get() >= squared.get() * (1.0 - 1e-12),
    })
}

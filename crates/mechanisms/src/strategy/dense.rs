//! Any lower-triangular matrix, given whole: dense optimal factorisations of short runs.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;

use super::first_rounds;
use crate::error::{MechanismError, Result};
use crate::loss::{Certified, Errors};
use crate::recurrence::Recurrence;
use crate::triangular::{LANES, Triangular};
use crate::workload::Workload;

/// A lower-triangular `C` over a fixed number of rounds. Its noise needs all earlier rows again in every round.
///
/// # Guarantee
/// The sensitivity is computed from the entries, as for [`Banded`](crate::Banded).
///
/// # Source
/// Denisov et al. (2022); Choquette-Choo et al., "Multi-Epoch Matrix Factorization Mechanisms" (2022).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Dense {
    matrix: Triangular,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    rounds: usize,
    entries: Vec<f64>,
}

impl TryFrom<Unchecked> for Dense {
    type Error = MechanismError;

    fn try_from(value: Unchecked) -> Result<Self> {
        Self::new(value.rounds, value.entries)
    }
}

impl From<Dense> for Unchecked {
    fn from(value: Dense) -> Self {
        Self {
            rounds: value.matrix.rounds(),
            entries: value.matrix.entries().to_vec(),
        }
    }
}

impl Dense {
    /// `entries` holds the lower triangle, row after row: row `t` has `t + 1` numbers.
    ///
    /// # Errors
    /// No rounds, another number of entries, one that is not finite, or a diagonal that is not positive.
    pub fn new(rounds: usize, entries: Vec<f64>) -> Result<Self> {
        Ok(Self {
            matrix: Triangular::new(rounds, rounds, entries)?,
        })
    }

    /// From a matrix that has all its bands.
    pub(crate) fn from_triangular(matrix: Triangular) -> Self {
        Self { matrix }
    }

    /// Row `t` up to the diagonal; empty beyond the last round.
    #[must_use]
    pub fn row(&self, t: usize) -> &[f64] {
        if t < self.matrix.rounds() {
            self.matrix.row(t)
        } else {
            &[]
        }
    }

    pub(super) fn name(&self) -> String {
        "dense".to_owned()
    }

    pub(super) fn rounds(&self) -> Option<usize> {
        Some(self.matrix.rounds())
    }

    /// None: earlier rows are made again from their keys.
    pub(super) fn kept_vectors(&self, _rounds: usize) -> usize {
        0
    }

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<Certified> {
        first_rounds::squared_sensitivity(&self.matrix, rounds, participation)
    }

    pub(super) fn errors(&self, rounds: usize, workload: &Workload) -> Result<Errors> {
        first_rounds::errors(&self.matrix, rounds, workload)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
        first_rounds::check(&self.matrix, rounds)?;
        let mut entries = vec![0.0; rounds * (rounds + 1) / 2];
        for start in (0..rounds).step_by(LANES) {
            let inverse = self.matrix.inverse_columns(start, rounds);
            for (t, row) in (start..rounds).zip(inverse.chunks_exact(LANES)) {
                let begin = t * (t + 1) / 2 + start;
                let count = (t + 1 - start).min(LANES);
                entries[begin..begin + count].copy_from_slice(&row[..count]);
            }
        }
        Ok(Recurrence::Dense { rounds, entries })
    }
}

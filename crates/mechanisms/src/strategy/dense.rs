//! Any lower-triangular matrix, given whole: dense optimal factorisations of short runs.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::Participation;

use super::banded;
use crate::error::{Result, ensure};
use crate::iterates;
use crate::loss::CertifiedSensitivity;
use crate::recurrence::Recurrence;
use crate::triangular::{LANES, Triangular};
use crate::workload::Workload;

/// A lower-triangular `C` over a fixed number of rounds. Its noise needs all earlier rows again in every round.
///
/// # Guarantee
/// The sensitivity is computed from the entries, as for [`Banded`](crate::Banded), and larger by what rounding the inverse can
/// cost; a matrix whose rounded inverse would be another matrix's is refused.
///
/// # Source
/// Denisov et al. (2022); Choquette-Choo et al., "Multi-Epoch Matrix Factorization Mechanisms" (2022).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Dense {
    pub(super) matrix: Triangular,
}

read_by!(#[derive(Serialize)] new(rounds, entries) of Dense { rounds: usize, entries: Vec<f64> });

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

    /// Creates the strategy from a matrix that has all its bands.
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

    pub(super) fn squared_sensitivity(
        &self,
        rounds: usize,
        participation: &Participation,
    ) -> Result<CertifiedSensitivity> {
        let certified = banded::squared_sensitivity(&self.matrix, rounds, participation)?;
        let residual = self.residual_of_inverse(rounds)?;
        certified.widened(certified.squared.sensitivity() * residual / (1.0 - residual))
    }

    /// A bound on the Frobenius norm of `R = C X - I` for the computed inverse `X`.
    ///
    /// PRIVACY: the noise is made with `X`, so what is run is `X^-1 = C - R X^-1`. Its sensitivity `s'` is at most
    /// `s + |R| s'`, that is `s / (1 - |R|)`.
    ///
    /// Columns of `X` come by forward substitution: `|R| <= gamma_n |C| |X|` entry by entry (Higham, "Accuracy and Stability
    /// of Numerical Algorithms", 2002, theorem 8.5).
    fn residual_of_inverse(&self, rounds: usize) -> Result<f64> {
        let squares = |entries: &[f64]| entries.iter().map(|entry| entry * entry).sum::<f64>();
        let norm = (0..rounds)
            .map(|t| squares(self.matrix.row(t)))
            .sum::<f64>()
            .sqrt();
        let inverse = (0..rounds)
            .step_by(LANES)
            .map(|start| squares(&self.matrix.inverse_columns(start, rounds)))
            .sum::<f64>()
            .sqrt();
        // Two more operations for the division and for rounding in the norms.
        let residual = 0.5 * (rounds + 2) as f64 * f64::EPSILON * norm * inverse;
        // Not a number is not below, either.
        let expected = "far below 2^53 over the rounds: the inverse in double precision is another matrix's";
        let name = "norm of a dense matrix times that of its inverse";
        ensure(residual < 0.5, name, expected, norm * inverse)?;
        Ok(residual)
    }

    pub(super) fn variances(&self, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
        iterates::of_triangular(&self.matrix, rounds, workload)
    }

    pub(super) fn recurrence(&self, rounds: usize) -> Result<Recurrence> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toeplitz::exact;

    /// Toeplitz matrices whose inverses grow to 1e10: what is run is the exact inverse of the rounded one.
    #[test]
    fn matrices_with_large_inverses_are_not_certified_too_low() {
        let rounds = 22;
        let mut too_low = 0;
        for step in 0..40 {
            let column = [1.0, 2.7 + 0.007 * f64::from(step), 0.37, 0.11];
            let entry = |t: usize, j: usize| column.get(t - j).copied().unwrap_or(0.0);
            let lower = (0..rounds).flat_map(|t| (0..=t).map(move |j| entry(t, j)));
            let dense = Dense::new(rounds, lower.collect()).unwrap();
            let certified = dense
                .squared_sensitivity(rounds, &Participation::single())
                .unwrap();
            let Recurrence::Dense { entries, .. } = dense.recurrence(rounds).unwrap() else {
                panic!("another recurrence")
            };
            let inverse = |t: usize, j: usize| entries[t * (t + 1) / 2 + j];
            let first: Vec<f64> = (0..rounds).map(|t| inverse(t, 0)).collect();
            assert!((0..rounds).all(|t| (0..=t).all(|j| inverse(t, j) == first[t - j])));
            let run = exact::inverse(&first, rounds);
            let truth: f64 = run.iter().map(|value| value.0 * value.0).sum();
            assert!(certified.squared.get() >= truth, "{certified:?} below {truth}");
            assert!(certified.squared.get() < truth * 1.1);
            too_low += u32::from(column.iter().map(|entry| entry * entry).sum::<f64>() < truth);
        }
        assert!(too_low > 5, "{too_low}");
    }

    #[test]
    fn what_has_no_inverse_in_double_precision_is_refused() {
        let rounds = 80;
        let entry = |t: usize, j: usize| [1.0, 9.0].get(t - j).copied().unwrap_or(0.0);
        let lower = (0..rounds).flat_map(|t| (0..=t).map(move |j| entry(t, j)));
        let dense = Dense::new(rounds, lower.collect()).unwrap();
        let error = dense
            .squared_sensitivity(rounds, &Participation::single())
            .unwrap_err();
        assert!(error.to_string().contains("norm of a dense matrix"), "{error}");
        // Its first rounds have one.
        let few = dense.squared_sensitivity(5, &Participation::single()).unwrap();
        assert!(few.exact && (few.squared.get() - 82.0).abs() < 1e-6);
    }
}

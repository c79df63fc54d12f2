//! Any lower-triangular strategy, given by its entries.

use super::separated::{largest_sum, suffix_sums};
use crate::AccountingError;
use crate::error::{ensure, out_of_range};
use crate::participation::{Participation, Spacing, positive};
use crate::sensitivity::{SquaredSensitivity, sizes};

/// An explicit lower-triangular strategy matrix.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::general::LowerTriangular;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let prefix_sums = LowerTriangular::new(3, &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])?;
/// assert_eq!(prefix_sums.squared_sensitivity(&Participation::single())?.get(), 3.0);
/// let twice = Participation::at_least(Gap::new(1)?, 2)?;
/// assert_eq!(prefix_sums.squared_sensitivity(&twice)?.get(), 9.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LowerTriangular {
    rounds: usize,
    /// Column `j` from its diagonal entry down, one after another.
    columns: Vec<Vec<f64>>,
}

impl LowerTriangular {
    /// Reads `rounds * rounds` entries, one row after another.
    ///
    /// # Errors
    /// [`AccountingError::Size`] for another number of entries; [`AccountingError::OutOfRange`] for no rounds, an
    /// entry that is not finite, one above the diagonal that is not 0, or a column whose squared norm overflows.
    pub fn new(rounds: usize, entries: &[f64]) -> Result<Self, AccountingError> {
        positive(rounds as u64, "rounds")?;
        if rounds.checked_mul(rounds) != Some(entries.len()) {
            return Err(AccountingError::Size {
                quantity: "entries of a strategy matrix",
                expected: format!("{rounds} x {rounds}"),
                got: entries.len() as u64,
            });
        }
        for (i, row) in entries.chunks(rounds).enumerate() {
            for (j, &entry) in row.iter().enumerate() {
                let (holds, expected) = if j > i {
                    (entry == 0.0, "0 above the diagonal")
                } else {
                    (entry.is_finite(), "a finite number")
                };
                ensure(holds, "entry of a strategy matrix", expected, entry)?;
            }
        }
        let column = |j: usize| (j..rounds).map(|i| entries[i * rounds + j]).collect();
        let matrix = Self {
            rounds,
            columns: (0..rounds).map(column).collect(),
        };
        for j in 0..rounds {
            SquaredSensitivity::new(matrix.product(j, j))?;
        }
        Ok(matrix)
    }

    /// A matrix from one column per round, each from its diagonal entry down. Missing entries at the end of a column
    /// are 0; entries beyond the last row are dropped.
    ///
    /// # Errors
    /// As [`LowerTriangular::new`].
    pub fn from_columns(mut columns: Vec<Vec<f64>>) -> Result<Self, AccountingError> {
        let rounds = columns.len();
        positive(rounds as u64, "rounds")?;
        for (j, column) in columns.iter_mut().enumerate() {
            column.truncate(rounds - j);
            if let Some(&got) = column.iter().find(|entry| !entry.is_finite()) {
                return Err(out_of_range("entry of a strategy matrix", "a finite number", got));
            }
        }
        let matrix = Self { rounds, columns };
        for j in 0..rounds {
            SquaredSensitivity::new(matrix.product(j, j))?;
        }
        Ok(matrix)
    }

    /// Rounds of the run.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Inner product of two columns.
    fn product(&self, i: usize, j: usize) -> f64 {
        let (early, late) = (i.min(j), i.max(j));
        let tail = self.columns[early].get(late - early..).unwrap_or(&[]);
        dot(tail, &self.columns[late])
    }

    /// The exact squared sensitivity, where a polynomial method is known: one or two participations; columns
    /// that are orthogonal from the gap on (banded `C^T C`); fixed epochs with no negative inner product.
    ///
    /// # Guarantee
    /// Exact under the zero-out relation, with users free to move every round in any direction.
    ///
    /// # Errors
    /// [`AccountingError::NoExactSensitivity`] in every other case (the problem is a quadratic program over
    /// sets); [`LowerTriangular::squared_sensitivity_bound`] still answers.
    ///
    /// # Source
    /// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), section 4 and Theorem 2.
    pub fn squared_sensitivity(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let schema = participation.effective(self.rounds as u64)?.participation;
        let (gap, max_par) = sizes(&schema, self.rounds);
        if max_par == 1 {
            return self.largest_norm();
        }
        if max_par == 2 {
            return self.best_pair(gap, schema.spacing());
        }
        let far = |i: usize| (i + gap..self.rounds).map(move |j| (i, j));
        let mut products = (0..self.rounds)
            .flat_map(far)
            .map(|(i, j)| (i, self.product(i, j)));
        match schema.spacing() {
            Spacing::AtLeast => match products.find(|(_, product)| *product != 0.0) {
                None => {
                    let norms = self.squared_norms();
                    let most = schema.max_participation();
                    SquaredSensitivity::new(largest_sum(&norms, Spacing::AtLeast, schema.gap(), most))
                }
                Some((position, found)) => Err(AccountingError::NoExactSensitivity {
                    expected: "columns that are orthogonal when the gap or more apart",
                    position,
                    found,
                }),
            },
            Spacing::Exactly => match products.find(|(_, product)| *product < 0.0) {
                None => self.best_progression(gap, max_par),
                Some((position, found)) => Err(AccountingError::NoExactSensitivity {
                    expected: "inner products of columns that are zero or above",
                    position,
                    found,
                }),
            },
        }
    }

    /// An upper bound on the squared sensitivity, for any entries.
    ///
    /// # Guarantee
    /// Never below the true value. For a set P and moves `u_i` of norm at most one,
    /// `|| C u ||^2 <= sum_{i in P} sum_{j in P} |<c_i, c_j>|`; the inner sum is at most its maximum `s_i` over
    /// all sets that hold `i`, and the outer sum of `s_i` at most its maximum over all sets. Equal to
    /// [`LowerTriangular::squared_sensitivity`] for one participation and for banded `C^T C`.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if the result overflows.
    ///
    /// # Source
    /// Choquette-Choo et al. (2023), Algorithm 4; theirs does not insist that the inner set holds `i`, which is
    /// looser.
    pub fn squared_sensitivity_bound(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let schema = participation.effective(self.rounds as u64)?.participation;
        let (gap, max_par) = sizes(&schema, self.rounds);
        let shares: Vec<f64> = (0..self.rounds)
            .map(|i| {
                let row: Vec<f64> = (0..self.rounds).map(|j| self.product(i, j).abs()).collect();
                match schema.spacing() {
                    Spacing::AtLeast => share_at_least(&row, i, gap, max_par),
                    Spacing::Exactly => share_exactly(&row, i, gap, max_par),
                }
            })
            .collect();
        SquaredSensitivity::new(largest_sum(
            &shares,
            schema.spacing(),
            schema.gap(),
            schema.max_participation(),
        ))
    }

    /// The largest squared norm that a user reaches with evenly spaced participations of equal moves: a lower bound on
    /// the squared sensitivity. Where it meets [`LowerTriangular::squared_sensitivity_bound`] that bound is exact.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if the result overflows.
    pub fn squared_sensitivity_reached(
        &self,
        participation: &Participation,
    ) -> Result<SquaredSensitivity, AccountingError> {
        let schema = participation.effective(self.rounds as u64)?.participation;
        let (gap, max_par) = sizes(&schema, self.rounds);
        self.best_progression(gap, max_par)
    }

    fn squared_norms(&self) -> Vec<f64> {
        (0..self.rounds).map(|j| self.product(j, j)).collect()
    }

    fn largest_norm(&self) -> Result<SquaredSensitivity, AccountingError> {
        SquaredSensitivity::new(self.squared_norms().into_iter().fold(0.0, f64::max))
    }

    /// Two moves of unit norm do most together: `|c_i|^2 + |c_j|^2 + 2 |<c_i, c_j>|`.
    fn best_pair(&self, gap: usize, spacing: Spacing) -> Result<SquaredSensitivity, AccountingError> {
        let norms = self.squared_norms();
        let mut best = norms.iter().copied().fold(0.0, f64::max);
        for i in 0..self.rounds.saturating_sub(gap) {
            let last = match spacing {
                Spacing::AtLeast => self.rounds - 1,
                Spacing::Exactly => i + gap,
            };
            for j in i + gap..=last {
                best = f64::max(best, norms[i] + norms[j] + 2.0 * self.product(i, j).abs());
            }
        }
        SquaredSensitivity::new(best)
    }

    /// Every place of the first participation; later ones only add.
    fn best_progression(&self, gap: usize, max_par: usize) -> Result<SquaredSensitivity, AccountingError> {
        let mut best = 0.0;
        for start in 0..self.rounds {
            let set: Vec<usize> = (start..self.rounds).step_by(gap).take(max_par).collect();
            let pairs = set.iter().flat_map(|&i| set.iter().map(move |&j| (i, j)));
            best = f64::max(best, pairs.map(|(i, j)| self.product(i, j)).sum());
        }
        SquaredSensitivity::new(best)
    }
}

/// Inner product of the common part. Several partial sums, so that it runs at the speed of vectors.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    const LANES: usize = 8;
    let length = x.len().min(y.len());
    let (x, y) = (&x[..length], &y[..length]);
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest = xs.remainder().iter().zip(ys.remainder());
    let tail: f64 = rest.map(|(x, y)| x * y).sum();
    let mut sums = [0.0; LANES];
    for (x, y) in xs.zip(ys) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f64>() + tail
}

/// The largest sum of `row` over sets that hold `i`: the others split over what lies before and after it.
pub(super) fn share_at_least(row: &[f64], i: usize, gap: usize, max_par: usize) -> f64 {
    let before: Vec<f64> = row[..(i + 1).saturating_sub(gap)].iter().rev().copied().collect();
    let after = &row[(i + gap).min(row.len())..];
    let best = |weights: &[f64]| -> Vec<f64> {
        let fitting = weights.len().div_ceil(gap).min(max_par - 1);
        suffix_sums(weights, gap, fitting)
            .iter()
            .map(|tail| tail[0])
            .collect()
    };
    let (before, after) = (best(&before), best(after));
    let others = before.iter().enumerate().map(|(count, sum)| {
        let rest = (max_par - 1).saturating_sub(count).min(after.len() - 1);
        sum + after[rest]
    });
    row[i] + others.fold(0.0, f64::max)
}

/// The largest sum of `row` over runs of at most `max_par` indices, `gap` apart, that hold `i`.
pub(super) fn share_exactly(row: &[f64], i: usize, gap: usize, max_par: usize) -> f64 {
    let starts = (0..max_par).map_while(|back| i.checked_sub(back.checked_mul(gap)?));
    let sums = starts.map(|start| row[start..].iter().step_by(gap).take(max_par).sum());
    sums.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sensitivity::exhaustive::{self, at_least};
    use crate::sensitivity::toeplitz::Toeplitz;

    #[test]
    fn matrices_that_are_not_lower_triangular_are_refused() {
        let message =
            |rounds, entries: &[f64]| LowerTriangular::new(rounds, entries).unwrap_err().to_string();
        assert_eq!(
            message(2, &[1.0; 3]),
            "entries of a strategy matrix: expected 2 x 2, got 3"
        );
        assert!(message(2, &[1.0; 4]).contains("expected 0 above the diagonal, got 1"));
        assert!(message(1, &[f64::NAN]).contains("expected a finite number, got NaN"));
        assert!(message(1, &[1e200]).contains("squared_sensitivity"));
        assert!(LowerTriangular::new(0, &[]).is_err());
        let ones = LowerTriangular::new(3, &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
        let error = ones.squared_sensitivity(&at_least(1, 3)).unwrap_err().to_string();
        assert!(
            error.contains("orthogonal") && error.contains("_bound"),
            "{error}"
        );
        assert_eq!(
            ones.squared_sensitivity_bound(&at_least(1, 3)).unwrap().get(),
            14.0
        );
    }

    #[test]
    fn as_the_toeplitz_theorem_for_two() {
        let strategy = Toeplitz::buffered(&[0.9, 0.5], &[0.3, 0.2], 40).unwrap();
        let entry = |i: usize, j: usize| i.checked_sub(j).map_or(0.0, |lag| strategy.coefficients()[lag]);
        let entries: Vec<f64> = (0..40)
            .flat_map(|i| (0..40).map(move |j| (i, j)))
            .map(|(i, j)| entry(i, j))
            .collect();
        let dense = LowerTriangular::new(40, &entries).unwrap();
        for gap in [1, 7, 39, 50] {
            let schema = at_least(gap, 2);
            let (want, got) = (
                strategy.squared_sensitivity(&schema),
                dense.squared_sensitivity(&schema),
            );
            assert!(
                (got.unwrap().get() / want.unwrap().get() - 1.0).abs() < 1e-13,
                "{gap}"
            );
        }
    }

    fn matrix(low: f64) -> impl Strategy<Value = (usize, Vec<f64>)> {
        (1usize..=9).prop_flat_map(move |rounds| {
            prop::collection::vec(prop_oneof![1 => Just(0.0), 3 => low..1.0], rounds * rounds).prop_map(
                move |mut entries| {
                    for (index, entry) in entries.iter_mut().enumerate() {
                        if index % rounds > index / rounds {
                            *entry = 0.0;
                        }
                    }
                    (rounds, entries)
                },
            )
        })
    }

    #[test]
    fn columns_give_the_products_of_rows() {
        let rows = LowerTriangular::new(3, &[1.0, 0.0, 0.0, 0.5, 2.0, 0.0, 0.0, 0.25, 3.0]).unwrap();
        let short = vec![vec![1.0, 0.5], vec![2.0, 0.25, 9.0], vec![3.0]];
        let columns = LowerTriangular::from_columns(short).unwrap();
        for (i, j) in (0..3).flat_map(|i| (0..3).map(move |j| (i, j))) {
            assert_eq!(rows.product(i, j), columns.product(i, j));
        }
        for bad in [vec![], vec![vec![f64::NAN]], vec![vec![1e200]]] {
            assert!(LowerTriangular::from_columns(bad).is_err());
        }
        let x: Vec<f64> = (0..21).map(f64::from).collect();
        assert_eq!(dot(&x, &x[..19]), (0..19).map(|i| f64::from(i * i)).sum::<f64>());
    }

    /// The largest `|| C u ||^2` over sets and all signs of the moves.
    fn over_signs(rounds: usize, entries: &[f64], schema: &Participation) -> f64 {
        exhaustive::maximum(rounds, schema, |set| {
            let signed = |mask: u32| -> f64 {
                let sign = |place: usize| if mask >> place & 1 == 1 { -1.0 } else { 1.0 };
                let row = |i: usize| -> f64 {
                    set.iter()
                        .enumerate()
                        .map(|(place, &j)| sign(place) * entries[i * rounds + j])
                        .sum()
                };
                (0..rounds).map(|i| row(i) * row(i)).sum()
            };
            (0..1 << set.len()).map(signed).fold(0.0, f64::max)
        })
    }

    fn check(rounds: usize, entries: &[f64], schema: &Participation) -> Result<(), TestCaseError> {
        let want = over_signs(rounds, entries, schema);
        let matrix = LowerTriangular::new(rounds, entries).unwrap();
        let bound = matrix.squared_sensitivity_bound(schema).unwrap().get();
        prop_assert!(bound >= want * (1.0 - 1e-12), "{} {}", bound, want);
        let reached = matrix.squared_sensitivity_reached(schema).unwrap().get();
        prop_assert!(reached <= want * (1.0 + 1e-12), "{} {}", reached, want);
        if let Ok(got) = matrix.squared_sensitivity(schema) {
            prop_assert!((got.get() - want).abs() <= 1e-12 * want, "{} {}", got, want);
            prop_assert!(bound >= got.get() * (1.0 - 1e-12));
        } else {
            prop_assert!(
                schema
                    .effective(rounds as u64)
                    .unwrap()
                    .participation
                    .max_participation()
                    > 2
            );
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn non_negative_entries_are_exact_under_exact_spacing(
            (rounds, entries) in matrix(0.0), schema in exhaustive::schema(5, 4),
        ) {
            check(rounds, &entries, &schema)?;
            if schema.spacing() == Spacing::Exactly {
                let matrix = LowerTriangular::new(rounds, &entries).unwrap();
                prop_assert!(matrix.squared_sensitivity(&schema).is_ok());
            }
        }

        #[test]
        fn bounds_hold_for_any_signs((rounds, entries) in matrix(-1.0), schema in exhaustive::schema(5, 4)) {
            check(rounds, &entries, &schema)?;
        }

        #[test]
        fn the_bound_is_exact_for_banded_matrices(
            (rounds, mut entries) in matrix(-1.0), gap in 1u64..5, max_par in 1u64..5,
        ) {
            for (index, entry) in entries.iter_mut().enumerate() {
                if (index / rounds).saturating_sub(index % rounds) >= gap as usize {
                    *entry = 0.0;
                }
            }
            let (matrix, schema) = (LowerTriangular::new(rounds, &entries).unwrap(), at_least(gap, max_par));
            let exact = matrix.squared_sensitivity(&schema).unwrap().get();
            let bound = matrix.squared_sensitivity_bound(&schema).unwrap().get();
            prop_assert!((exact - bound).abs() <= 1e-12 * bound);
            check(rounds, &entries, &schema)?;
        }
    }
}

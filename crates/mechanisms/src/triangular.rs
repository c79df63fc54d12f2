//! Lower-triangular matrices, dense or banded, by rows.

use crate::error::{Result, setting};

/// Columns that the kernels work on at once: eight vectors of eight numbers.
pub(crate) const LANES: usize = 64;

/// A lower-triangular matrix with a positive diagonal whose entries `(i, j)` vanish for `i - j >= bands`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Triangular {
    rounds: usize,
    bands: usize,
    /// Row after row, each from its first column within the band to the diagonal.
    entries: Vec<f64>,
}

impl Triangular {
    /// Checks the number of entries, that all are finite, and that the diagonal is positive.
    pub(crate) fn new(rounds: usize, bands: usize, entries: Vec<f64>) -> Result<Self> {
        let wrong = |name, expected, got| Err(setting(name, expected, got));
        if rounds == 0 {
            return wrong("rounds", "at least 1", 0.0);
        }
        if bands == 0 || bands > rounds {
            return wrong("bands", "at least 1 and at most the rounds", bands as f64);
        }
        if length(rounds, bands) != Some(entries.len()) {
            let expected = "those within the bands of a lower triangle";
            return wrong("number of entries of a matrix", expected, entries.len() as f64);
        }
        if let Some(&got) = entries.iter().find(|entry| !entry.is_finite()) {
            return wrong("entry of a matrix", "a finite number", got);
        }
        let matrix = Self {
            rounds,
            bands,
            entries,
        };
        let mut diagonal = (0..rounds).map(|t| matrix.diagonal(t));
        if let Some(got) = diagonal.find(|entry| *entry <= 0.0) {
            return wrong("diagonal entry of a matrix", "positive", got);
        }
        Ok(matrix)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    pub(crate) fn bands(&self) -> usize {
        self.bands
    }

    pub(crate) fn entries(&self) -> &[f64] {
        &self.entries
    }

    /// First column of row `t` within the band.
    pub(crate) fn first(&self, t: usize) -> usize {
        (t + 1).saturating_sub(self.bands)
    }

    /// Row `t` from its first column within the band to the diagonal.
    pub(crate) fn row(&self, t: usize) -> &[f64] {
        let start = offset(t, self.bands);
        &self.entries[start..start + (t + 1).min(self.bands)]
    }

    /// Row `t`; to change within the bounds of [`Triangular::new`].
    pub(crate) fn row_mut(&mut self, t: usize) -> &mut [f64] {
        let start = offset(t, self.bands);
        &mut self.entries[start..start + (t + 1).min(self.bands)]
    }

    /// All rows; to change within the bounds of [`Triangular::new`].
    pub(crate) fn entries_mut(&mut self) -> &mut [f64] {
        &mut self.entries
    }

    pub(crate) fn diagonal(&self, t: usize) -> f64 {
        self.row(t)[t - self.first(t)]
    }

    /// Columns of the first `rounds` rows, each from its diagonal entry down.
    pub(crate) fn columns(&self, rounds: usize) -> Vec<Vec<f64>> {
        let mut columns = vec![Vec::new(); rounds];
        for t in 0..rounds {
            for (entry, column) in self.row(t).iter().zip(&mut columns[self.first(t)..]) {
                column.push(*entry);
            }
        }
        columns
    }

    /// `LANES` columns of the inverse, from column `start` on: rows `start..rounds`, each of `LANES` numbers.
    pub(crate) fn inverse_columns(&self, start: usize, rounds: usize) -> Vec<f64> {
        let mut result = vec![0.0; (rounds - start) * LANES];
        for t in start..rounds {
            let row = self.row(t);
            let first = self.first(t).max(start);
            let coefficients = &row[first - self.first(t)..row.len() - 1];
            let (done, current) = result.split_at_mut((t - start) * LANES);
            let current = &mut current[..LANES];
            if let Some(one) = current.get_mut(t - start) {
                *one = 1.0;
            }
            subtract_product(coefficients, &done[(first - start) * LANES..], current);
            let factor = 1.0 / row[row.len() - 1];
            current.iter_mut().for_each(|entry| *entry *= factor);
        }
        result
    }
}

/// Entries before row `t`.
fn offset(t: usize, bands: usize) -> usize {
    let full = t.saturating_sub(bands);
    let growing = t - full;
    growing * (growing + 1) / 2 + full * bands
}

/// Entries of the whole matrix.
fn length(rounds: usize, bands: usize) -> Option<usize> {
    rounds.checked_mul(bands)?;
    Some(offset(rounds, bands))
}

undertone_simd::vectorised! {
    /// `sum <- sum - coefficients * rows`: one number a coefficient, one row of `LANES` numbers each.
    pub(crate) fn subtract_product(coefficients: &[f64], rows: &[f64], sum: &mut [f64]) {
        let mut lanes = [0.0; LANES];
        for (coefficient, row) in coefficients.iter().zip(rows.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                lanes[lane] += coefficient * row[lane];
            }
        }
        for (entry, lane) in sum.iter_mut().zip(&lanes) {
            *entry -= lane;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rounds: usize, bands: usize) {
        let count = length(rounds, bands).unwrap();
        let entries: Vec<f64> = (0..count).map(|i| 1.0 + (i as f64 * 0.7).sin() * 0.5).collect();
        let matrix = Triangular::new(rounds, bands, entries).unwrap();
        let columns = matrix.columns(rounds);
        let entry = |t: usize, j: usize| columns[j].get(t - j).copied().unwrap_or(0.0);
        for start in (0..rounds).step_by(LANES) {
            let inverse = matrix.inverse_columns(start, rounds);
            for column in start..rounds.min(start + LANES) {
                for t in column..rounds {
                    let terms =
                        (column..=t).map(|j| entry(t, j) * inverse[(j - start) * LANES + column - start]);
                    let want = f64::from(u8::from(t == column));
                    assert!((terms.sum::<f64>() - want).abs() < 1e-9, "{t} {column}");
                }
            }
        }
    }

    #[test]
    fn inverses_multiply_to_the_identity() {
        check(1, 1);
        check(7, 3);
        check(7, 7);
        check(100, 2);
    }

    #[test]
    fn sizes_that_do_not_fit_and_zero_diagonals_are_refused() {
        for (rounds, bands, entries) in [
            (0, 1, vec![]),
            (2, 0, vec![]),
            (2, 3, vec![1.0; 3]),
            (2, 2, vec![1.0; 4]),
            (2, 2, vec![1.0, f64::NAN, 1.0]),
            (2, 2, vec![1.0, 1.0, 0.0]),
        ] {
            assert!(
                Triangular::new(rounds, bands, entries).is_err(),
                "{rounds} {bands}"
            );
        }
    }
}

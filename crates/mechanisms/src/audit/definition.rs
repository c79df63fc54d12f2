//! Strategy matrices by their definition, apart from the recurrences that make their noise.

use crate::InverseToeplitz;
use crate::error::{MechanismError, Result, setting};
use crate::strategy::Strategy;

/// The matrix `C` of a strategy over a number of rounds, as its rows.
///
/// The rows come from the definition of the strategy and never from its recurrence, so a wrong recurrence shows: the noise of a run,
/// multiplied by `C`, must be independent again.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Row `t` with `t + 1` entries.
    rows: Vec<Vec<f64>>,
}

impl Definition {
    /// The matrix of a strategy over `rounds` rounds. It takes `4 rounds^2` bytes of memory.
    ///
    /// # Errors
    /// More rounds than the strategy has; [`MechanismError::NoDefinition`] for trees;
    /// [`MechanismError::Setting`] for more than 20,000 rounds.
    pub fn new(strategy: &Strategy, rounds: usize) -> Result<Self> {
        if rounds == 0 || rounds > 20_000 || strategy.rounds().is_some_and(|most| rounds > most) {
            let expected = "at least 1, at most 20,000 and at most those of the matrix";
            return Err(setting("rounds", expected, rounds as f64));
        }
        let toeplitz = |column: &[f64], norms: Option<Vec<f64>>| {
            let entry = |t: usize, s: usize| {
                let value = column.get(t - s).copied().unwrap_or(0.0);
                norms.as_ref().map_or(value, |norms| value / norms[s])
            };
            (0..rounds)
                .map(|t| (0..=t).map(|s| entry(t, s)).collect())
                .collect()
        };
        let rows = match strategy {
            Strategy::Independent(_) => toeplitz(&[1.0], None),
            Strategy::Blt(blt) => toeplitz(&blt.coefficients(rounds), None),
            Strategy::NormalisedBlt(normalised) => {
                let column = normalised.blt().coefficients(rounds);
                toeplitz(&column, Some(normalised.column_norms()?))
            }
            Strategy::BandedToeplitz(banded) => toeplitz(banded.coefficients(), None),
            Strategy::NormalisedToeplitz(normalised) => {
                toeplitz(normalised.coefficients(), Some(normalised.column_norms()))
            }
            Strategy::InverseToeplitz(inverse) => toeplitz(&inverse.strategy_coefficients(rounds)?, None),
            Strategy::NormalisedInverseToeplitz(normalised) => {
                let inverse = InverseToeplitz::new(normalised.coefficients().to_vec())?;
                let column = inverse.strategy_coefficients(rounds)?;
                toeplitz(&column, Some(normalised.column_norms()?))
            }
            Strategy::Banded(banded) => (0..rounds).map(|t| padded(banded.row(t), t)).collect(),
            Strategy::Dense(dense) => (0..rounds).map(|t| padded(dense.row(t), t)).collect(),
            Strategy::Tree(_) | Strategy::TreeFull(_) => {
                return Err(MechanismError::NoDefinition {
                    strategy: strategy.name(),
                });
            }
        };
        Ok(Self { rows })
    }

    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rows.len()
    }

    /// Column `round` of the matrix, one number per round.
    ///
    /// # Errors
    /// [`MechanismError::Setting`] for a round outside the matrix.
    pub fn column(&self, round: usize) -> Result<Vec<f64>> {
        if round >= self.rows.len() {
            return Err(setting("round", "below the rounds of the matrix", round as f64));
        }
        Ok(self
            .rows
            .iter()
            .map(|row| row.get(round).copied().unwrap_or(0.0))
            .collect())
    }

    /// `C x` for the rows of a matrix with one row per round, `columns` numbers each: releases become independent again.
    ///
    /// # Errors
    /// [`MechanismError::Setting`] unless `releases` has `columns` numbers per round.
    pub fn whiten(&self, releases: &[f32], columns: usize) -> Result<Vec<f64>> {
        if columns == 0 || releases.len() != columns * self.rows.len() {
            let expected = "one row of values per round";
            return Err(setting(
                "number of released values",
                expected,
                releases.len() as f64,
            ));
        }
        let mut whitened = vec![0.0; releases.len()];
        for (row, out) in self.rows.iter().zip(whitened.chunks_mut(columns)) {
            for (&factor, values) in row.iter().zip(releases.chunks(columns)) {
                if factor != 0.0 {
                    for (out, &value) in out.iter_mut().zip(values) {
                        *out += factor * f64::from(value);
                    }
                }
            }
        }
        Ok(whitened)
    }
}

/// Row `t` of a banded matrix with the zeros before its band.
fn padded(band: &[f64], t: usize) -> Vec<f64> {
    let mut row = vec![0.0; (t + 1).saturating_sub(band.len())];
    row.extend(band);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::reference;
    use crate::{Banded, BandedToeplitz, Blt, Dense, IdentityMatrix};
    use crate::{NormalisedBlt, NormalisedInverseToeplitz, NormalisedToeplitz, Tree};

    /// The definition times the noise of the recurrence is the identity: two paths from one strategy.
    #[test]
    fn definition_and_recurrence_are_inverses() {
        let rounds = 9;
        let blt = || Blt::new(&[0.9, 0.5], &[0.3, 0.2]).unwrap();
        let inverse = || InverseToeplitz::square_root(4).unwrap();
        let lower: Vec<f64> = (0..rounds * (rounds + 1) / 2)
            .map(|i| 1.0 + (i * 7 % 5) as f64)
            .collect();
        let band: Vec<f64> = (0..2 * rounds - 1).map(|i| 1.0 + (i % 3) as f64).collect();
        let strategies = [
            Strategy::Independent(IdentityMatrix),
            Strategy::Blt(blt()),
            Strategy::NormalisedBlt(NormalisedBlt::new(blt(), rounds).unwrap()),
            Strategy::BandedToeplitz(BandedToeplitz::new(vec![1.0, 0.5, 0.25]).unwrap()),
            Strategy::NormalisedToeplitz(NormalisedToeplitz::square_root(rounds).unwrap()),
            Strategy::InverseToeplitz(inverse()),
            Strategy::NormalisedInverseToeplitz(NormalisedInverseToeplitz::new(rounds, inverse()).unwrap()),
            Strategy::Banded(Banded::new(rounds, 2, band).unwrap()),
            Strategy::Dense(Dense::new(rounds, lower).unwrap()),
        ];
        for strategy in strategies {
            let definition = Definition::new(&strategy, rounds).unwrap();
            let noise = reference::matrix(&strategy.recurrence(rounds).unwrap(), rounds);
            for (t, row) in definition.rows.iter().enumerate() {
                for s in 0..rounds {
                    let got: f64 = row.iter().zip(&noise).map(|(c, noise)| c * noise[s]).sum();
                    let want = f64::from(u8::from(s == t));
                    assert!((got - want).abs() < 1e-9, "{}: {t} {s}: {got}", strategy.name());
                }
            }
        }
    }

    #[test]
    fn whitening_multiplies_rows() {
        let strategy = Strategy::BandedToeplitz(BandedToeplitz::new(vec![1.0, 0.5]).unwrap());
        let definition = Definition::new(&strategy, 3).unwrap();
        let whitened = definition.whiten(&[1.0, 10.0, 2.0, 20.0, 4.0, 40.0], 2).unwrap();
        assert_eq!(whitened, [1.0, 10.0, 2.5, 25.0, 5.0, 50.0]);
        assert_eq!(definition.column(1).unwrap(), [0.0, 1.0, 0.5]);
        assert!(definition.whiten(&[0.0; 5], 2).is_err() && definition.column(3).is_err());
    }

    #[test]
    fn trees_are_refused_by_name() {
        let error = Definition::new(&Strategy::Tree(Tree::new()), 4).unwrap_err();
        assert!(error.to_string().contains("square matrix"), "{error}");
    }
}

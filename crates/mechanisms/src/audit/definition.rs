//! Strategy matrices by their definition, apart from the recurrences that make their noise.

use std::ops::Range;

use crate::InverseToeplitz;
use crate::error::{MechanismError, Result, setting};
use crate::strategy::Strategy;

/// The matrix `C` of a strategy over a number of rounds: its rows, or the nodes of its trees.
///
/// The rows come from the definition of the strategy and never from its recurrence, so a wrong recurrence shows: the noise of a run,
/// multiplied by `C`, must be independent again.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Row `t` with `t + 1` entries; no rows for trees.
    rows: Vec<Vec<f64>>,
    /// The rounds of each noised node of the trees: a row of ones over its rounds.
    nodes: Vec<Range<usize>>,
    rounds: usize,
}

impl Definition {
    /// The matrix of a strategy over `rounds` rounds. It takes `4 rounds^2` bytes of memory.
    ///
    /// # Errors
    /// More rounds than the strategy has; [`MechanismError::NoDefinition`] for trees that are decoded in full;
    /// [`MechanismError::Setting`] for more than 20,000 rounds.
    pub fn new(strategy: &Strategy, rounds: usize) -> Result<Self> {
        if rounds == 0 || rounds > 20_000 || strategy.rounds().is_some_and(|most| rounds > most) {
            let expected = "at least 1, at most 20,000 and at most those of the matrix";
            return Err(setting("rounds", expected, rounds as f64));
        }
        // Norms of the columns as defined, whatever the recurrence divides by.
        let column_norms = |column: &[f64], of: usize| -> Vec<f64> {
            let norm = |s: usize| {
                let entries = (0..of - s).map(|i| column.get(i).copied().unwrap_or(0.0));
                entries.map(|entry| entry * entry).sum::<f64>().sqrt()
            };
            (0..of).map(norm).collect()
        };
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
                let all = normalised.column_norms().len();
                let norms = column_norms(normalised.coefficients(), all);
                toeplitz(normalised.coefficients(), Some(norms))
            }
            Strategy::InverseToeplitz(inverse) => toeplitz(&inverse.strategy_coefficients(rounds)?, None),
            Strategy::NormalisedInverseToeplitz(normalised) => {
                let inverse = InverseToeplitz::new(normalised.coefficients().to_vec())?;
                let column = inverse.strategy_coefficients(rounds)?;
                toeplitz(&column, Some(normalised.column_norms()?))
            }
            Strategy::Banded(banded) => (0..rounds).map(|t| padded(banded.row(t), t)).collect(),
            Strategy::Dense(dense) => (0..rounds).map(|t| padded(dense.row(t), t)).collect(),
            Strategy::Tree(tree) => {
                let nodes = nodes(&tree.tree_rounds(rounds)?);
                return Ok(Self {
                    rows: Vec::new(),
                    nodes,
                    rounds,
                });
            }
            Strategy::TreeFull(_) => return Err(no_definition(strategy.name())),
        };
        Ok(Self {
            rows,
            nodes: Vec::new(),
            rounds,
        })
    }

    /// `true` if the matrix is square, so that releases can be made independent again.
    #[must_use]
    pub fn is_square(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Column `round` of the matrix, one number per round, or per node of a tree.
    ///
    /// # Errors
    /// [`MechanismError::Setting`] for a round outside the matrix.
    pub fn column(&self, round: usize) -> Result<Vec<f64>> {
        if round >= self.rounds {
            return Err(setting("round", "below the rounds of the matrix", round as f64));
        }
        if !self.is_square() {
            let entry = |node: &Range<usize>| f64::from(u8::from(node.contains(&round)));
            return Ok(self.nodes.iter().map(entry).collect());
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
    /// [`MechanismError::Setting`] unless `releases` has `columns` numbers per round; [`MechanismError::NoDefinition`] for trees.
    pub fn whiten(&self, releases: &[f32], columns: usize) -> Result<Vec<f64>> {
        if !self.is_square() {
            return Err(no_definition("a tree".to_owned()));
        }
        if columns == 0 || releases.len() != columns * self.rounds {
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

    /// `C^-T a`: the noise `Z` of all rounds enters the sum of the releases `C^-1 Z`, each times its entry of `a`, as `(C^-T a)^T Z`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`] unless `a` has one number per round; [`MechanismError::NoDefinition`] for trees.
    pub fn solve_transposed(&self, a: &[f64]) -> Result<Vec<f64>> {
        if !self.is_square() {
            return Err(no_definition("a tree".to_owned()));
        }
        if a.len() != self.rounds {
            let expected = "one number per round";
            return Err(setting("number of factors", expected, a.len() as f64));
        }
        let mut x = a.to_vec();
        for (t, row) in self.rows.iter().enumerate().rev() {
            x[t] /= row[t];
            for s in 0..t {
                x[s] -= row[s] * x[t];
            }
        }
        Ok(x)
    }
}

fn no_definition(strategy: String) -> MechanismError {
    MechanismError::NoDefinition { strategy }
}

/// The rounds of all complete nodes of trees of these lengths, one after another.
fn nodes(trees: &[u64]) -> Vec<Range<usize>> {
    let mut nodes = Vec::new();
    let mut start = 0;
    for &length in trees {
        let length = length as usize;
        let mut size = 1;
        while size <= length {
            nodes.extend((0..length / size).map(|node| start + node * size..start + (node + 1) * size));
            size *= 2;
        }
        start += length;
    }
    nodes
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
    use crate::{NormalisedBlt, NormalisedInverseToeplitz, NormalisedToeplitz, Tree, TreeFull, TreeLayout};
    use undertone_accounting::participation::{Gap, Participation};

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
            let factors: Vec<f64> = (0..rounds).map(|t| 1.0 + (t % 4) as f64).collect();
            let solved = definition.solve_transposed(&factors).unwrap();
            for (s, solved) in solved.into_iter().enumerate() {
                let want: f64 = factors.iter().zip(&noise).map(|(a, noise)| a * noise[s]).sum();
                assert!((solved - want).abs() < 1e-9, "{}: {s}: {solved}", strategy.name());
            }
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
        assert!(definition.solve_transposed(&[0.0; 2]).is_err());
    }

    #[test]
    fn releases_of_trees_are_not_whitened() {
        let tree = Definition::new(&Strategy::Tree(Tree::new()), 4).unwrap();
        assert!(!tree.is_square() && tree.rounds() == 4);
        let full = TreeFull::new(4, TreeLayout::CompleteNodes).unwrap();
        let error = Definition::new(&Strategy::TreeFull(full), 4).unwrap_err();
        let solved = tree.solve_transposed(&[0.0; 4]).unwrap_err();
        for error in [tree.whiten(&[0.0; 4], 1).unwrap_err(), solved, error] {
            assert!(error.to_string().contains("square matrix"), "{error}");
        }
    }

    /// By brute force over all sets of rounds, the largest norm of summed columns is the certified sensitivity.
    #[test]
    fn the_nodes_of_trees_have_the_certified_sensitivity() {
        let schema = |gap, most| Participation::at_least(Gap::new(gap).unwrap(), most).unwrap();
        for (tree, rounds) in [
            (Tree::new(), 1),
            (Tree::new(), 7),
            (Tree::new(), 8),
            (Tree::new(), 11),
            (Tree::with_restarts(3, 4).unwrap(), 10),
        ] {
            for (gap, most) in [(1, 1), (2, 3), (3, 2)] {
                let strategy = Strategy::Tree(tree);
                let definition = Definition::new(&strategy, rounds).unwrap();
                let columns: Vec<Vec<f64>> = (0..rounds)
                    .map(|round| definition.column(round).unwrap())
                    .collect();
                let keeps = |set: &u32| {
                    let mut last = None;
                    let mut apart = (0..rounds).filter(|round| set >> round & 1 == 1).map(|round| {
                        last.replace(round)
                            .is_none_or(|last: usize| round - last >= gap as usize)
                    });
                    set.count_ones() <= most && apart.all(|holds| holds)
                };
                let square = |set: u32| -> f64 {
                    (0..columns[0].len())
                        .map(|node| {
                            let chosen = (0..rounds).filter(|round| set >> round & 1 == 1);
                            chosen.map(|round| columns[round][node]).sum::<f64>().powi(2)
                        })
                        .sum()
                };
                let largest = (0..1u32 << rounds).filter(keeps).map(square).fold(0.0, f64::max);
                let certified = strategy
                    .squared_sensitivity(rounds, &schema(gap, u64::from(most)))
                    .unwrap();
                assert_eq!(certified.squared.get(), largest, "{rounds} {gap} {most}");
            }
        }
    }
}

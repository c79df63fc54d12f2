//! Strategy matrices by their definition, apart from the recurrences that make their noise.

use std::ops::Range;

use crate::error::{Result, ensure};
use crate::strategy::Strategy;
use crate::{InverseToeplitz, TreeLayout};

/// The matrix `C` of a strategy over a number of rounds.
///
/// Its entries come from the definition of the strategy and never from its recurrence, so a wrong recurrence shows: the noise of a run,
/// multiplied by the matrix of its releases, must be independent again.
///
/// A tree has two matrices. One row per noised node gives the sensitivity. The releases are estimates from these nodes, and one row
/// per round makes them independent again. The other strategies have one square matrix for both.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Row `t` with `t + 1` entries, which makes the release of round `t` independent of those before.
    rows: Vec<Vec<f64>>,
    /// The rounds of each noised node of the trees: a row of ones over its rounds.
    nodes: Vec<Range<usize>>,
    rounds: usize,
}

/// Max number of rounds of trees that are decoded in full, whose matrix takes `rounds^3 / 3` products.
const MAX_FULL_ROUNDS: usize = 2048;

impl Definition {
    /// The matrix of a strategy over `rounds` rounds. It takes `4 rounds^2` bytes of memory.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for more rounds than the strategy has, for more than 20,000, and for more
    /// than 2,048 of trees that are decoded in full.
    pub fn new(strategy: &Strategy, rounds: usize) -> Result<Self> {
        Self::check(strategy, rounds)?;
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
                let trees = tree.tree_rounds(rounds)?;
                return Ok(Self {
                    rows: estimates_from_below(&trees),
                    nodes: nodes(&trees, rounds),
                    rounds,
                });
            }
            Strategy::TreeFull(tree) => {
                let nodes = match tree.layout() {
                    TreeLayout::CompleteNodes => nodes(&[rounds as u64], rounds),
                    TreeLayout::Trees { leaves } => {
                        nodes(&vec![leaves as u64; rounds.div_ceil(leaves)], rounds)
                    }
                };
                return Ok(Self {
                    rows: reverse_cholesky(&nodes, rounds),
                    nodes,
                    rounds,
                });
            }
        };
        Ok(Self {
            rows,
            nodes: Vec::new(),
            rounds,
        })
    }

    /// Refuses what [`new`](Self::new) refuses, without making the matrix.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) for these rounds.
    pub fn check(strategy: &Strategy, rounds: usize) -> Result<()> {
        let made = strategy.rounds().is_none_or(|most| rounds <= most);
        let holds = (1..=20_000).contains(&rounds) && made;
        let expected = "at least 1, at most 20,000 and at most those of the matrix";
        ensure(holds, "rounds", expected, rounds as f64)?;
        let holds = !matches!(strategy, Strategy::TreeFull(_)) || rounds <= MAX_FULL_ROUNDS;
        let expected = "at most 2,048 for trees that are decoded in full";
        ensure(holds, "rounds", expected, rounds as f64).map(|_| ())
    }

    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Column `round` of the matrix, whose norm is the sensitivity to that round: one number per round, or per node of a tree.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round outside the matrix.
    pub(crate) fn column(&self, round: usize) -> Result<Vec<f64>> {
        if self.nodes.is_empty() {
            return self.release_column(round);
        }
        self.check_round(round)?;
        let entry = |node: &Range<usize>| f64::from(u8::from(node.contains(&round)));
        Ok(self.nodes.iter().map(entry).collect())
    }

    /// Column `round` of the matrix of the releases, one number per round: what one contribution to `round` adds to
    /// [whitened](Self::whiten) releases. Its norm is at most the sensitivity to the round.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) for a round outside the matrix.
    pub fn release_column(&self, round: usize) -> Result<Vec<f64>> {
        self.check_round(round)?;
        let entry = |row: &Vec<f64>| row.get(round).copied().unwrap_or(0.0);
        Ok(self.rows.iter().map(entry).collect())
    }

    fn check_round(&self, round: usize) -> Result<()> {
        let expected = "below the rounds of the matrix";
        ensure(round < self.rounds, "round", expected, round as f64).map(|_| ())
    }

    /// The product of the matrix of the releases and `releases`, which has one row per round, `columns` numbers each. The noise of the
    /// releases becomes independent again, with one standard deviation for all.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) unless `releases` has `columns` numbers per round.
    pub fn whiten(&self, releases: &[f32], columns: usize) -> Result<Vec<f64>> {
        let (length, expected) = (releases.len(), "one row of values per round");
        let holds = columns > 0 && length == columns * self.rounds;
        ensure(holds, "number of released values", expected, length as f64)?;
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

    /// `C^-T a` for the matrix `C` of the releases: the noise `Z` of all rounds enters the sum of the releases `C^-1 Z`, each times its
    /// entry of `a`, as `(C^-T a)^T Z`.
    ///
    /// # Errors
    /// [`MechanismError::Setting`](crate::MechanismError::Setting) unless `a` has one number per round.
    pub fn solve_transposed(&self, a: &[f64]) -> Result<Vec<f64>> {
        let (holds, expected) = (a.len() == self.rounds, "one number per round");
        ensure(holds, "number of factors", expected, a.len() as f64)?;
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

/// The rounds of all complete nodes of trees of these lengths, one after another. A node that reaches beyond `rounds` has the rounds
/// that the run has.
fn nodes(trees: &[u64], rounds: usize) -> Vec<Range<usize>> {
    let mut nodes = Vec::new();
    let mut start = 0;
    for &length in trees {
        let length = length as usize;
        let mut size = 1;
        while size <= length {
            let of_size = (0..length / size).map(|node| start + node * size..start + (node + 1) * size);
            let within = of_size.filter(|node| node.start < rounds);
            nodes.extend(within.map(|node| node.start..node.end.min(rounds)));
            size *= 2;
        }
        start += length;
    }
    nodes
}

/// The rows that make releases by Honaker's estimates from below independent again.
///
/// A round ends one node that no node of the same end contains: the largest one of size `2^k`. The releases so far give its
/// estimate, which is the sum of the releases in it. That estimate is `1 - c_k` times the node's own sum plus `c_k` times the estimates of
/// its two halves, where `c_k = 1 / (1 + 2 v_(k-1))` and `v_k = 2 v_(k-1) c_k` is the variance. The right half ends at the same round, so
/// its estimate is taken apart in the same way. The left halves on the way down were known before. What is left is the noise of the
/// round: that of the nodes that end here, each times its factor.
fn estimates_from_below(trees: &[u64]) -> Vec<Vec<f64>> {
    let mut rows = Vec::new();
    let mut start = 0;
    for &length in trees {
        let length = length as usize;
        let heights = length.checked_ilog2().map_or(0, |height| height as usize + 1);
        let mut children = vec![0.0; heights];
        let mut variance = 1.0;
        for factor in children.iter_mut().skip(1) {
            *factor = 1.0 / (1.0 + 2.0 * variance);
            variance *= 2.0 * *factor;
        }
        for end in 1..=length {
            let mut row = vec![0.0; start + end];
            // The factor of the estimate that is taken apart, and the first round of its node.
            let (mut factor, mut square) = (1.0f64, 0.0f64);
            let mut node = start + end - (1 << end.trailing_zeros());
            for height in (1..=end.trailing_zeros() as usize).rev() {
                square += (factor * (1.0 - children[height])).powi(2);
                factor *= children[height];
                let half = node + (1 << (height - 1));
                row[node..half].fill(1.0 - factor);
                node = half;
            }
            square += factor * factor;
            row[node] = 1.0;
            row.iter_mut().for_each(|entry| *entry /= square.sqrt());
            rows.push(row);
        }
        start += length;
    }
    rows
}

/// The lower triangular `L` with `L^T L = C^T C`, where `C` has a row of ones per node: the releases of a tree that is decoded in full.
fn reverse_cholesky(nodes: &[Range<usize>], rounds: usize) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = (0..rounds).map(|t| vec![0.0; t + 1]).collect();
    for node in nodes {
        for t in node.clone() {
            rows[t][node.start..=t].iter_mut().for_each(|entry| *entry += 1.0);
        }
    }
    for t in (0..rounds).rev() {
        let (earlier, row) = rows.split_at_mut(t);
        let row = &mut row[0];
        let diagonal = row[t].sqrt();
        row.iter_mut().for_each(|entry| *entry /= diagonal);
        for (s, other) in earlier.iter_mut().enumerate() {
            for (entry, factor) in other.iter_mut().zip(&*row) {
                *entry -= row[s] * factor;
            }
        }
    }
    rows
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

    /// The definition makes the noise of the recurrence independent, with variance 1 in each round: two paths from one strategy.
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
            Strategy::Tree(Tree::new()),
            Strategy::Tree(Tree::with_restarts(4, 3).unwrap()),
            Strategy::TreeFull(TreeFull::new(rounds, TreeLayout::CompleteNodes).unwrap()),
            Strategy::TreeFull(TreeFull::new(rounds, TreeLayout::Trees { leaves: 4 }).unwrap()),
        ];
        for strategy in strategies {
            let definition = Definition::new(&strategy, rounds).unwrap();
            let noise = reference::matrix(&strategy.recurrence(rounds).unwrap(), rounds);
            let factors: Vec<f64> = (0..rounds).map(|t| 1.0 + (t % 4) as f64).collect();
            let solved = definition.solve_transposed(&factors).unwrap();
            // One number per drawn value: trees draw more values than rounds.
            let dot = |a: &[f64], s: usize| -> f64 { a.iter().zip(&noise).map(|(a, row)| a * row[s]).sum() };
            let square: f64 = (0..2 * rounds).map(|s| dot(&factors, s).powi(2)).sum();
            let of_solved: f64 = solved.iter().map(|x| x * x).sum();
            assert!(
                (square - of_solved).abs() < 1e-9 * square,
                "{}: {of_solved}",
                strategy.name()
            );
            let white: Vec<Vec<f64>> = (definition.rows.iter())
                .map(|row| (0..2 * rounds).map(|s| dot(row, s)).collect())
                .collect();
            for (t, row) in white.iter().enumerate() {
                for (s, other) in white.iter().enumerate() {
                    let got: f64 = row.iter().zip(other).map(|(x, y)| x * y).sum();
                    let want = f64::from(u8::from(s == t));
                    assert!((got - want).abs() < 1e-9, "{}: {t} {s}: {got}", strategy.name());
                    if definition.nodes.is_empty() {
                        assert!(
                            (row[s] - want).abs() < 1e-9,
                            "{}: {t} {s}: {row:?}",
                            strategy.name()
                        );
                        assert!((solved[s] - dot(&factors, s)).abs() < 1e-9);
                    }
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

    /// A release tells at most what the nodes tell, and trees that are decoded in full tell all of it.
    #[test]
    fn releases_of_trees_tell_no_more_than_their_nodes() {
        let square = |column: Vec<f64>| column.iter().map(|entry| entry * entry).sum::<f64>();
        for rounds in [1, 2, 7, 13, 16] {
            let online = Definition::new(&Strategy::Tree(Tree::new()), rounds).unwrap();
            let layout = TreeLayout::CompleteNodes;
            let full = Strategy::TreeFull(TreeFull::new(rounds, layout).unwrap());
            let full = Definition::new(&full, rounds).unwrap();
            for round in 0..rounds {
                let of_nodes = square(online.column(round).unwrap());
                assert!(square(online.release_column(round).unwrap()) <= of_nodes + 1e-9);
                assert!((square(full.release_column(round).unwrap()) - of_nodes).abs() < 1e-9);
            }
        }
        let large = TreeFull::new(4096, TreeLayout::CompleteNodes).unwrap();
        let error = Definition::new(&Strategy::TreeFull(large), 4096).unwrap_err();
        assert!(error.to_string().contains("2,048"), "{error}");
    }

    /// The largest norm of summed columns, by brute force over all sets of rounds, is the certified sensitivity.
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

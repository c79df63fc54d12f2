//! The first numbers of a strategy matrix and of its inverse.

use serde::Serialize;
use undertone_mechanisms::{Recurrence, Strategy, toeplitz};

use super::table::list;
use undertone_present::table::grid;

/// The top left corner of `C` and `C^-1`, in the form that says most.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "form", rename_all = "kebab-case")]
pub(super) enum Head {
    /// Toeplitz: first columns.
    Toeplitz {
        matrix: Vec<f64>,
        inverse: Vec<f64>,
        /// There are more numbers than these.
        more: bool,
    },
    /// Toeplitz with columns of norm one: first columns before that, and the norms they are divided by.
    Normalised {
        matrix: Vec<f64>,
        inverse: Vec<f64>,
        column_norms: Vec<f64>,
        last_norm: f64,
        more: bool,
    },
    /// Any lower-triangular matrix: rows.
    Corner {
        matrix: Vec<Vec<f64>>,
        inverse: Vec<Vec<f64>>,
        more: bool,
    },
    /// The online tree measures nodes, not rounds: it has no square matrix.
    Nodes { heights: usize },
}

impl Head {
    /// Head of the matrix of `rounds` rounds, with at most `count` numbers per column.
    pub(super) fn of(strategy: &Strategy, rounds: usize, count: usize) -> anyhow::Result<Self> {
        let head = rounds.min(count);
        let more = rounds > head;
        let toeplitz = |matrix: Vec<f64>, inverse: Vec<f64>| Self::Toeplitz {
            matrix,
            inverse,
            more,
        };
        let normalised = |matrix: Vec<f64>, inverse: Vec<f64>, norms: Vec<f64>| Self::Normalised {
            matrix,
            inverse,
            last_norm: norms.last().copied().unwrap_or(1.0),
            column_norms: norms[..head.min(norms.len())].to_vec(),
            more,
        };
        Ok(match strategy {
            Strategy::Independent(_) => {
                let mut one = vec![0.0; head];
                one[0] = 1.0;
                toeplitz(one.clone(), one)
            }
            Strategy::Blt(blt) => toeplitz(blt.coefficients(head), blt.inverse_coefficients(head)),
            Strategy::BandedToeplitz(banded) => toeplitz(
                padded(banded.coefficients(), head),
                toeplitz::inverse(banded.coefficients(), head)?,
            ),
            Strategy::InverseToeplitz(inverse) => toeplitz(
                inverse.strategy_coefficients(head)?,
                padded(inverse.coefficients(), head),
            ),
            Strategy::NormalisedBlt(strategy) => {
                let blt = strategy.blt();
                let (matrix, inverse) = (blt.coefficients(head), blt.inverse_coefficients(head));
                normalised(matrix, inverse, strategy.column_norms()?)
            }
            Strategy::NormalisedToeplitz(strategy) => normalised(
                padded(strategy.coefficients(), head),
                toeplitz::inverse(strategy.coefficients(), head)?,
                strategy.column_norms(),
            ),
            Strategy::NormalisedInverseToeplitz(strategy) => normalised(
                toeplitz::inverse(strategy.coefficients(), head)?,
                padded(strategy.coefficients(), head),
                strategy.column_norms()?,
            ),
            Strategy::Banded(banded) => {
                let first = |t: usize| (t + 1).saturating_sub(banded.bands());
                let row = |t: usize| [vec![0.0; first(t)], banded.row(t).to_vec()].concat();
                Self::corner((0..head).map(row).collect(), more)
            }
            Strategy::Dense(dense) => Self::corner((0..head).map(|t| dense.row(t).to_vec()).collect(), more),
            // Corners of inverses of lower-triangular matrices are inverses of corners.
            strategy => match strategy.recurrence(rounds)? {
                Recurrence::Blocks {
                    leaves,
                    diagonal,
                    weights,
                } => {
                    let inverse = blocks(leaves, &diagonal, &weights, head);
                    Self::Corner {
                        matrix: inverted(&inverse),
                        inverse,
                        more,
                    }
                }
                _ => Self::Nodes {
                    heights: strategy.kept_vectors(rounds),
                },
            },
        })
    }

    fn corner(matrix: Vec<Vec<f64>>, more: bool) -> Self {
        Self::Corner {
            inverse: inverted(&matrix),
            matrix,
            more,
        }
    }

    /// Rows of names and values.
    pub(super) fn rows(&self) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_owned(), value);
        match self {
            Self::Toeplitz {
                matrix,
                inverse,
                more,
            } => vec![
                row("coefficients", list(matrix, *more)),
                row("coefficients of the inverse", list(inverse, *more)),
            ],
            Self::Normalised {
                matrix,
                inverse,
                column_norms,
                last_norm,
                more,
            } => {
                let mut norms = list(column_norms, *more);
                if *more {
                    norms = format!("{norms} {}", list(&[*last_norm], false));
                }
                vec![
                    row("coefficients before normalisation", list(matrix, *more)),
                    row("coefficients of their inverse", list(inverse, *more)),
                    row("column norms", norms),
                ]
            }
            Self::Corner {
                matrix,
                inverse,
                more,
            } => [
                corner("first rows", matrix, *more),
                corner("first rows of the inverse", inverse, *more),
            ]
            .concat(),
            Self::Nodes { heights } => vec![row(
                "nodes",
                format!("{heights} heights; the noise is in tree nodes, so there is no square matrix"),
            )],
        }
    }
}

/// A row of values for each row of a matrix. The first one has the name.
fn corner(name: &str, matrix: &[Vec<f64>], more: bool) -> Vec<(String, String)> {
    let cells = matrix.iter().map(|row| {
        let numbers = list(row, false);
        numbers.split(' ').map(str::to_owned).collect()
    });
    let table = grid(Vec::<String>::new(), cells, 0);
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    let lines = table
        .lines()
        .filter(|line| !line.trim().is_empty())
        .chain(more.then_some("..."));
    names
        .zip(lines)
        .map(|(name, line)| (name.to_owned(), line.to_owned()))
        .collect()
}

fn padded(values: &[f64], length: usize) -> Vec<f64> {
    values
        .iter()
        .copied()
        .chain(std::iter::repeat(0.0))
        .take(length)
        .collect()
}

/// The inverse of a lower-triangular matrix by rows.
fn inverted(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut inverse: Vec<Vec<f64>> = Vec::new();
    for (t, row) in matrix.iter().enumerate() {
        let entry = |column: usize| {
            let one = f64::from(u8::from(column == t));
            let sum: f64 = (column..t).map(|s| row[s] * inverse[s][column]).sum();
            (one - sum) / row[t]
        };
        let next = (0..=t).map(entry).collect();
        inverse.push(next);
    }
    inverse
}

/// The first rows of the inverse that the recurrence over blocks stands for.
fn blocks(leaves: usize, diagonal: &[f64], weights: &[f64], count: usize) -> Vec<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut weights = weights.iter();
    for t in 0..count {
        let u = t % leaves;
        let mut row = vec![0.0; t + 1];
        row[t] = diagonal[t];
        let mut start = t - u;
        for height in (0..usize::BITS).rev().filter(|height| u >> height & 1 == 1) {
            let weight = weights.next().copied().unwrap_or(0.0);
            for earlier in &rows[start..start + (1 << height)] {
                for (entry, value) in row.iter_mut().zip(earlier) {
                    *entry -= weight * value;
                }
            }
            start += 1 << height;
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use undertone_mechanisms::{
        Banded, BandedToeplitz, Errors, InverseToeplitz, NormalisedToeplitz, Tree, TreeFull, TreeLayout,
        Workload,
    };

    use super::*;

    /// The inverse as rows, whatever the form.
    fn inverse_rows(head: &Head) -> Vec<Vec<f64>> {
        match head {
            Head::Toeplitz { inverse, .. } => {
                let row = |t: usize| inverse[..=t].iter().rev().copied().collect();
                (0..inverse.len()).map(row).collect()
            }
            Head::Normalised {
                inverse,
                column_norms,
                ..
            } => {
                let row = |t: usize| inverse[..=t].iter().rev().map(|c| c * column_norms[t]).collect();
                (0..inverse.len()).map(row).collect()
            }
            Head::Corner { inverse, .. } => inverse.clone(),
            Head::Nodes { .. } => Vec::new(),
        }
    }

    /// The errors of the shown inverse are those of the strategy.
    fn check(strategy: &Strategy) {
        let rounds = 11;
        let head = Head::of(strategy, rounds, 99).unwrap();
        let rows = inverse_rows(&head);
        let mut sums = vec![0.0; rounds];
        let variances = rows.iter().map(|row| {
            for (sum, entry) in sums.iter_mut().zip(row) {
                *sum += entry;
            }
            sums.iter().map(|sum| sum * sum).sum::<f64>()
        });
        let got = Errors::from_variances(variances.collect::<Vec<_>>());
        let want = strategy.errors(rounds, &Workload::prefix_sum()).unwrap();
        assert!(
            (got.rms_error / want.rms_error - 1.0).abs() < 1e-12,
            "{}: {head:?}",
            strategy.name()
        );
        assert!(
            (got.max_error / want.max_error - 1.0).abs() < 1e-12,
            "{}: {head:?}",
            strategy.name()
        );
        assert!(!head.rows().is_empty());
    }

    #[test]
    fn inverses_are_those_of_the_strategy() {
        check(&Strategy::BandedToeplitz(BandedToeplitz::fhu(3).unwrap()));
        check(&Strategy::InverseToeplitz(
            InverseToeplitz::square_root(3).unwrap(),
        ));
        check(&Strategy::NormalisedToeplitz(
            NormalisedToeplitz::square_root(11).unwrap(),
        ));
        for layout in [TreeLayout::CompleteNodes, TreeLayout::Trees { leaves: 4 }] {
            check(&Strategy::TreeFull(TreeFull::new(11, layout).unwrap()));
        }
        let mut entries = vec![1.0];
        entries.extend((1..11).flat_map(|t| [0.1 * f64::from(t), 0.8]));
        check(&Strategy::Banded(Banded::new(11, 2, entries).unwrap()));
    }

    #[test]
    fn trees_have_no_square_matrix() {
        let head = Head::of(&Strategy::Tree(Tree::new()), 9, 4).unwrap();
        assert_eq!(head, Head::Nodes { heights: 4 });
    }
}

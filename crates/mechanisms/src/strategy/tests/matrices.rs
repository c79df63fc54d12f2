//! Strategies as dense matrices, and what follows from those by brute force.

use undertone_accounting::participation::{Participation, Spacing};

use crate::recurrence::Recurrence;
use crate::stream::reference;

pub(crate) type Matrix = Vec<Vec<f64>>;

fn zeros(n: usize) -> Matrix {
    vec![vec![0.0; n]; n]
}

/// `C^-1`, without the rows of `Z` that only trees use.
pub(crate) fn noise(recurrence: &Recurrence, n: usize) -> Matrix {
    let mut rows = reference::matrix(recurrence, n);
    rows.iter_mut().for_each(|row| row.truncate(n));
    rows
}

/// The inverse of a lower-triangular matrix.
pub(crate) fn inverse(matrix: &Matrix) -> Matrix {
    let n = matrix.len();
    let mut result = zeros(n);
    for t in 0..n {
        let entry = |column: usize| {
            let sum: f64 = (column..t).map(|j| matrix[t][j] * result[j][column]).sum();
            (f64::from(u8::from(t == column)) - sum) / matrix[t][t]
        };
        let row: Vec<f64> = (0..=t).map(entry).collect();
        result[t][..=t].copy_from_slice(&row);
    }
    result
}

/// All non-empty sets of rounds that the schema admits.
fn sets(n: usize, schema: &Participation) -> Vec<Vec<usize>> {
    let gap = schema.gap().get() as usize;
    let mut sets: Vec<Vec<usize>> = (0..n).map(|t| vec![t]).collect();
    let mut begin = 0;
    for _ in 1..schema.max_participation() {
        let end = sets.len();
        for place in begin..end {
            let next = sets[place][sets[place].len() - 1] + gap;
            let last = match schema.spacing() {
                Spacing::AtLeast => n,
                _ => n.min(next + 1),
            };
            for t in next..last {
                let mut longer = sets[place].clone();
                longer.push(t);
                sets.push(longer);
            }
        }
        begin = end;
    }
    sets
}

/// The largest `|| C u ||^2` over all sets and signs of the moves.
pub(crate) fn brute_force(c: &Matrix, schema: &Participation) -> f64 {
    let n = c[0].len();
    let mut best = 0.0;
    for set in sets(n, schema) {
        for signs in 0..1u32 << (set.len() - 1) {
            let row = |i: usize| -> f64 {
                let terms = set.iter().enumerate();
                terms
                    .map(|(place, &j)| {
                        if signs >> place & 1 == 1 {
                            -c[i][j]
                        } else {
                            c[i][j]
                        }
                    })
                    .sum()
            };
            best = f64::max(best, (0..c.len()).map(|i| row(i) * row(i)).sum());
        }
    }
    best
}

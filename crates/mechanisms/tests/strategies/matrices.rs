//! Strategies as dense matrices, and what follows from those by brute force.

use undertone_accounting::participation::{Participation, Spacing};
use undertone_mechanisms::Recurrence;

pub(crate) type Matrix = Vec<Vec<f64>>;

fn zeros(n: usize) -> Matrix {
    vec![vec![0.0; n]; n]
}

/// `C^-1`: the recurrence run on the identity.
pub(crate) fn noise(recurrence: &Recurrence, n: usize) -> Matrix {
    let mut out = zeros(n);
    let factor = |scale: &[f64], t: usize| scale.get(t).copied().unwrap_or(1.0);
    let unit = |t: usize| -> Vec<f64> { (0..n).map(|j| f64::from(u8::from(j == t))).collect() };
    let mut plain = zeros(n);
    let mut blocks: Vec<(usize, Vec<f64>)> = Vec::new();
    let mut used = 0;
    let mut buffers: Vec<Vec<f64>> = Vec::new();
    for t in 0..n {
        let mut row = unit(t);
        let mut add = |c: f64, other: &[f64]| row.iter_mut().zip(other).for_each(|(x, y)| *x += c * y);
        match recurrence {
            Recurrence::Identity => {}
            Recurrence::Buffers {
                decay_complement,
                output,
                scale,
            } => {
                buffers.resize(output.len(), vec![0.0; n]);
                for (buffer, weight) in buffers.iter().zip(output) {
                    add(-weight, buffer);
                }
                for (buffer, complement) in buffers.iter_mut().zip(decay_complement) {
                    for (x, y) in buffer.iter_mut().zip(&row) {
                        *x = (1.0 - complement) * *x + y;
                    }
                }
                row.iter_mut().for_each(|x| *x *= factor(scale, t));
            }
            Recurrence::Bands { coefficients, scale } => {
                for (i, c) in coefficients.iter().enumerate().skip(1).take(t) {
                    add(-c, &plain[t - i]);
                }
                row.iter_mut().for_each(|x| *x /= coefficients[0]);
                plain[t] = row.clone();
                row.iter_mut().for_each(|x| *x *= factor(scale, t));
            }
            Recurrence::Rows { bands, entries } => {
                let entries = &entries[t * bands..(t + 1) * bands];
                for (i, c) in entries.iter().enumerate().skip(1).take(t) {
                    add(-c, &out[t - i]);
                }
                row.iter_mut().for_each(|x| *x /= entries[0]);
            }
            Recurrence::Taps { coefficients, scale } => {
                row = vec![0.0; n];
                for (i, c) in coefficients.iter().enumerate().take(t + 1) {
                    row[t - i] = c * factor(scale, t);
                }
            }
            Recurrence::Blocks {
                leaves,
                diagonal,
                weights,
            } => {
                let u = t % leaves;
                if u == 0 {
                    blocks.clear();
                }
                row[t] = diagonal[t];
                assert_eq!(blocks.len(), u.count_ones() as usize);
                for ((_, block), weight) in blocks.iter().zip(&weights[used..]) {
                    row.iter_mut().zip(block).for_each(|(x, y)| *x -= weight * y);
                }
                used += blocks.len();
                blocks.push((1, row.clone()));
                while blocks.len() > 1 && blocks[blocks.len() - 2].0 == blocks[blocks.len() - 1].0 {
                    let (size, late) = blocks.pop().unwrap();
                    let early = blocks.last_mut().unwrap();
                    early.0 += size;
                    early.1.iter_mut().zip(late).for_each(|(x, y)| *x += y);
                }
            }
            Recurrence::Dense { entries, .. } => {
                row = vec![0.0; n];
                row[..=t].copy_from_slice(&entries[t * (t + 1) / 2..(t + 1) * (t + 2) / 2]);
            }
            other => panic!("no matrix for {other:?}"),
        }
        out[t] = row;
    }
    out
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

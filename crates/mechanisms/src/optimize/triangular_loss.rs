//! Error of triangular strategies as a differentiable function of their entries.

use rayon::prelude::*;

use super::problem::Problem;
use crate::error::Result;
use crate::loss::Objective;
use crate::triangular::{LANES, Triangular, subtract_product};

/// The power mean of the iterates' variances that stands for their maximum.
const SHARPNESS: f64 = 24.0;

/// Parts of the work that are summed up in a fixed order, whatever the number of threads.
const PARTS: usize = 8;

/// The logarithm of the squared error of `A C^-1`, with its gradient.
pub(super) struct TriangularLoss<'a> {
    problem: &'a Problem,
    /// `A`, `LANES` rows at once: entry `(start + lane, j)` at `[start / LANES][j LANES + lane]`.
    workload: Vec<Vec<f64>>,
}

/// `LANES` rows of `B = A C^-1` side by side, laid out as the workload's.
type Rows = Vec<f64>;

impl<'a> TriangularLoss<'a> {
    pub(super) fn new(problem: &'a Problem) -> Result<Self> {
        let rounds = problem.rounds;
        let block = |start: usize| {
            let end = rounds.min(start + LANES);
            let mut block = vec![0.0; end * LANES];
            for t in start..end {
                for (j, entry) in problem.workload.row(t)?.into_iter().enumerate() {
                    block[j * LANES + t - start] = entry;
                }
            }
            Ok(block)
        };
        let workload = (0..rounds).step_by(LANES).map(block).collect::<Result<_>>()?;
        Ok(Self { problem, workload })
    }

    /// `log` of the objective's mean variance, and its gradient in the entries of `C`.
    pub(super) fn by_entries(&self, matrix: &Triangular, gradient: &mut [f64]) -> f64 {
        let (value, weights) = self.weigh(matrix);
        let mean = self.gradient(matrix, &weights, Side::Entries, gradient);
        value.unwrap_or(mean).ln_with(gradient)
    }

    /// The logarithm of the error and its gradient in the entries of `X = C^T C`: those of its lower triangle within
    /// the bands, each standing for two.
    pub(super) fn by_gram(&self, matrix: &Triangular, gradient: &mut [f64]) -> f64 {
        let (value, weights) = self.weigh(matrix);
        let mean = self.gradient(matrix, &weights, Side::Gram, gradient);
        value.unwrap_or(mean).ln_with(gradient)
    }

    /// The weights of the rounds' variances in the gradient, and the objective's value for [`Objective::MaxLoss`].
    fn weigh(&self, matrix: &Triangular) -> (Option<Scaled>, Vec<f64>) {
        let rounds = self.problem.rounds;
        if self.problem.objective == Objective::RmsLoss {
            return (None, vec![1.0 / rounds as f64; rounds]);
        }
        let columns = matrix.columns(rounds);
        let variances: Vec<f64> = (0..self.workload.len())
            .into_par_iter()
            .flat_map_iter(|chunk| self.variances(&self.rows(matrix, &columns, chunk), chunk))
            .collect();
        let largest = variances.iter().copied().fold(0.0, f64::max);
        let relative = |variance: &f64| variance / largest;
        let sum: f64 = variances.iter().map(|v| relative(v).powf(SHARPNESS)).sum();
        let weights = variances.iter().map(|v| relative(v).powf(SHARPNESS - 1.0) / sum);
        let value = Scaled {
            log: largest.ln() + (sum / rounds as f64).ln() / SHARPNESS,
            scale: largest,
        };
        (Some(value), weights.collect())
    }

    /// Rows of `B`, by substitution from the last column back.
    fn rows(&self, matrix: &Triangular, columns: &[Vec<f64>], chunk: usize) -> Rows {
        let mut rows = self.workload[chunk].clone();
        let count = rows.len() / LANES;
        for j in (0..count).rev() {
            let (head, tail) = rows.split_at_mut((j + 1) * LANES);
            let current = &mut head[j * LANES..];
            subtract_product(&columns[j][1..], tail, current);
            let factor = 1.0 / matrix.diagonal(j);
            current.iter_mut().for_each(|entry| *entry *= factor);
        }
        rows
    }

    /// Squared norms of the rows of a chunk, one for each round that it has.
    fn variances(&self, rows: &Rows, chunk: usize) -> Vec<f64> {
        let mut sums = vec![0.0; LANES];
        for row in rows.chunks_exact(LANES) {
            for (sum, entry) in sums.iter_mut().zip(row) {
                *sum += entry * entry;
            }
        }
        sums.truncate(self.problem.rounds - chunk * LANES);
        sums
    }

    /// Writes the gradient of `sum_t weights_t |B_t|^2`; the sum itself.
    ///
    /// `B` changes by `-B dC C^-1`, so the entry of `C` at `(i, j)` has `-2 sum_t weights_t B_ti W_tj` with
    /// `W_t = C^-1 B_t`; that of `X` at `(i, j)` has `-sum_t weights_t W_ti W_tj`.
    fn gradient(&self, matrix: &Triangular, weights: &[f64], side: Side, gradient: &mut [f64]) -> Scaled {
        let rounds = self.problem.rounds;
        let columns = matrix.columns(rounds);
        let parts: Vec<(Blocks, f64)> = (0..PARTS)
            .into_par_iter()
            .map(|part| {
                let mut blocks = Blocks::new(matrix);
                let mut sum = 0.0;
                for chunk in (part..self.workload.len()).step_by(PARTS) {
                    let rows = self.rows(matrix, &columns, chunk);
                    let weights = &weights[chunk * LANES..rounds.min((chunk + 1) * LANES)];
                    let variances = self.variances(&rows, chunk);
                    sum += variances.iter().zip(weights).map(|(v, w)| v * w).sum::<f64>();
                    // Where B ends, so does its product with the gradient's first factor.
                    let length = match side {
                        Side::Entries => rows.len() / LANES,
                        Side::Gram => rounds,
                    };
                    let mut products = rows.clone();
                    products.resize(length * LANES, 0.0);
                    for j in 0..length {
                        let (head, tail) = products.split_at_mut(j * LANES);
                        let row = matrix.row(j);
                        let before = &row[..row.len() - 1];
                        let current = &mut tail[..LANES];
                        subtract_product(before, &head[matrix.first(j) * LANES..], current);
                        let factor = 1.0 / matrix.diagonal(j);
                        current.iter_mut().for_each(|entry| *entry *= factor);
                    }
                    match side {
                        Side::Entries => blocks.subtract(&rows, &products, weights),
                        Side::Gram => blocks.subtract(&products, &products, weights),
                    }
                }
                (blocks, sum)
            })
            .collect();
        let mut sum = 0.0;
        gradient.fill(0.0);
        for (blocks, part) in &parts {
            sum += part;
            blocks.add_to(gradient);
        }
        gradient.iter_mut().for_each(|entry| *entry *= 2.0);
        if side == Side::Gram {
            // A diagonal entry stands for itself alone.
            let mut end = 0;
            for t in 0..rounds {
                end += matrix.row(t).len();
                gradient[end - 1] *= 0.5;
            }
        }
        Scaled {
            log: sum.ln(),
            scale: sum,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Entries,
    Gram,
}

/// A logarithm, and what the gradient has to be divided by.
struct Scaled {
    log: f64,
    scale: f64,
}

impl Scaled {
    fn ln_with(&self, gradient: &mut [f64]) -> f64 {
        let factor = 1.0 / self.scale;
        gradient.iter_mut().for_each(|entry| *entry *= factor);
        self.log
    }
}

/// A banded lower triangle in blocks of `LANES` columns, a little wider than the band.
struct Blocks {
    bands: usize,
    rounds: usize,
    /// Blocks of a row.
    width: usize,
    entries: Vec<f64>,
}

impl Blocks {
    fn new(matrix: &Triangular) -> Self {
        let (rounds, bands) = (matrix.rounds(), matrix.bands());
        let width = (bands - 1).div_ceil(LANES) + 1;
        Self {
            bands,
            rounds,
            width,
            entries: vec![0.0; rounds * width * LANES],
        }
    }

    /// First column block of row `i`.
    fn first(&self, i: usize) -> usize {
        (i + 1).saturating_sub(self.bands) / LANES
    }

    /// Entry `(i, j)` loses `sum_lane weight_lane left[i][lane] right[j][lane]`.
    fn subtract(&mut self, left: &[f64], right: &[f64], weights: &[f64]) {
        let (lefts, rights) = (left.len() / LANES, right.len() / LANES);
        let mut transposed = vec![0.0; LANES * LANES];
        for block in 0..rights.div_ceil(LANES) {
            let begin = block * LANES;
            transposed.fill(0.0);
            let columns = right[begin * LANES..].chunks_exact(LANES).take(LANES);
            for (column, values) in columns.enumerate() {
                for (lane, (value, weight)) in values.iter().zip(weights).enumerate() {
                    transposed[lane * LANES + column] = weight * value;
                }
            }
            // Rows whose band meets these columns.
            let last = (begin + LANES - 1).saturating_add(self.bands).min(lefts);
            for i in begin..last {
                let place = (i * self.width + block - self.first(i)) * LANES;
                subtract_product(
                    &left[i * LANES..(i + 1) * LANES],
                    &transposed,
                    &mut self.entries[place..place + LANES],
                );
            }
        }
    }

    /// Adds what lies within the bands to entries row after row.
    fn add_to(&self, entries: &mut [f64]) {
        let mut place = 0;
        for i in 0..self.rounds {
            let first = (i + 1).saturating_sub(self.bands);
            let count = i + 1 - first;
            let start = i * self.width * LANES + first - self.first(i) * LANES;
            for (entry, value) in entries[place..place + count]
                .iter_mut()
                .zip(&self.entries[start..start + count])
            {
                *entry += value;
            }
            place += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;

    use super::*;
    use crate::iterates;
    use crate::workload::Workload;

    fn matrix(rounds: usize, bands: usize) -> Triangular {
        let mut entries = Vec::new();
        for t in 0..rounds {
            for j in (t + 1).saturating_sub(bands)..=t {
                let wave = ((3 * t + 7 * j) as f64).sin() * 0.1;
                entries.push(if t == j {
                    0.8 + wave
                } else {
                    0.4 / (t - j + 1) as f64 + wave
                });
            }
        }
        Triangular::new(rounds, bands, entries).unwrap()
    }

    fn check(rounds: usize, bands: usize, objective: Objective, workload: &Workload) {
        let problem = Problem::new(rounds, Participation::single())
            .with_objective(objective)
            .with_workload(workload.clone());
        let loss = TriangularLoss::new(&problem).unwrap();
        let base = matrix(rounds, bands);
        let count = base.entries().len();
        let mut gradient = vec![0.0; count];
        let mut unused = vec![0.0; count];
        let value = loss.by_entries(&base, &mut gradient);
        let variances = iterates::of_triangular(&base, rounds, workload).unwrap();
        let mean = variances.iter().sum::<f64>() / rounds as f64;
        let largest = variances.iter().copied().fold(0.0, f64::max);
        match objective {
            Objective::RmsLoss => assert!((value - mean.ln()).abs() < 1e-12),
            Objective::MaxLoss => assert!(value <= largest.ln() + 1e-12 && value >= mean.ln() - 1e-12),
        }
        for place in (0..count).step_by(count / 40 + 1) {
            let mut at = |shift: f64| {
                let mut entries = base.entries().to_vec();
                entries[place] += shift;
                loss.by_entries(&Triangular::new(rounds, bands, entries).unwrap(), &mut unused)
            };
            let want = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!(
                (gradient[place] - want).abs() < 1e-7,
                "{place}: {} {want}",
                gradient[place]
            );
        }
        // The chain rule from X = C^T C to C: dC[i][j] has sum_k C[i][k] (G + G^T)[k][j].
        let mut gram = vec![0.0; count];
        assert!((loss.by_gram(&base, &mut gram) - value).abs() < 1e-12);
        let mut slopes = base.clone();
        slopes.entries_mut().copy_from_slice(&gram);
        let entry = |m: &Triangular, i: usize, j: usize| {
            if j > i || i - j >= bands {
                0.0
            } else {
                m.row(i)[j - m.first(i)]
            }
        };
        let symmetric = |k: usize, j: usize| {
            let half = entry(&slopes, k.max(j), k.min(j));
            if k == j { 2.0 * half } else { half }
        };
        let mut place = 0;
        for i in 0..rounds {
            for j in base.first(i)..=i {
                let want: f64 = (base.first(i)..=i)
                    .map(|k| entry(&base, i, k) * symmetric(k, j))
                    .sum();
                assert!((gradient[place] - want).abs() < 1e-10, "{i} {j}");
                place += 1;
            }
        }
    }

    #[test]
    #[ignore = "slow"]
    fn values_match_the_errors_and_gradients_finite_differences() {
        let rates: Vec<f64> = (0..130).map(|t| 1.0 / f64::from(t + 1)).collect();
        let scheduled = Workload::momentum(0.7)
            .unwrap()
            .with_learning_rates(rates)
            .unwrap();
        for objective in [Objective::RmsLoss, Objective::MaxLoss] {
            for (rounds, bands) in [(1, 1), (9, 3), (70, 5), (130, 70), (67, 67)] {
                check(rounds, bands, objective, &Workload::prefix_sum());
            }
            check(20, 4, objective, &scheduled);
        }
    }
}

//! Noise in the iterates: variances of the rows of `A C^-1`, whatever makes `C^-1`.

use crate::error::Result;
use crate::moments::Moments;
use crate::triangular::{LANES, Triangular};
use crate::workload::Workload;

/// Columns at once in [`scaled_columns`].
const WIDTH: usize = 8;

/// Variances of the iterates for `C^-1 = diag(scale) Toep(inverse)`; an empty scale is 1 in every round.
pub(crate) fn of_toeplitz(
    inverse: &[f64],
    scale: &[f64],
    rounds: usize,
    workload: &Workload,
) -> Result<Vec<f64>> {
    let mut column = inverse[..inverse.len().min(rounds)].to_vec();
    column.resize(rounds, 0.0);
    if workload.coefficients(1).is_some() && scale.is_empty() {
        // A product of Toeplitz matrices: every column is the first one, shifted down.
        workload.apply(&mut column)?;
        let mut sum = 0.0;
        return Ok(column
            .into_iter()
            .map(|entry| {
                sum += entry * entry;
                sum
            })
            .collect());
    }
    let rates: Vec<f64> = workload.rates(rounds)?.collect();
    let ones = vec![1.0; if scale.is_empty() { rounds } else { 0 }];
    let scale = if scale.is_empty() { &ones } else { &scale[..rounds] };
    let mut padded = vec![0.0; WIDTH - 1];
    padded.append(&mut column);
    let mut variances = vec![0.0; rounds];
    scaled_columns(&padded, scale, &rates, workload.decay(), &mut variances);
    Ok(variances)
}

undertone_simd::vectorised! {
    /// Columns `start + WIDTH - 1 - lane` side by side; `padded` holds `WIDTH - 1` zeros before the series.
    fn scaled_columns(padded: &[f64], scale: &[f64], rates: &[f64], decay: f64, variances: &mut [f64]) {
        let rounds = variances.len();
        for start in (0..rounds).step_by(WIDTH) {
            let (mut velocity, mut iterate) = ([0.0; WIDTH], [0.0; WIDTH]);
            for t in start..rounds {
                let series = &padded[t - start..t - start + WIDTH];
                let mut sum = 0.0;
                for lane in 0..WIDTH {
                    velocity[lane] = decay * velocity[lane] + scale[t] * series[lane];
                    iterate[lane] += rates[t] * velocity[lane];
                    sum += iterate[lane] * iterate[lane];
                }
                variances[t] += sum;
            }
        }
    }
}

/// Variances of the iterates for a `C` given by its entries.
pub(crate) fn of_triangular(matrix: &Triangular, rounds: usize, workload: &Workload) -> Result<Vec<f64>> {
    let rates: Vec<f64> = workload.rates(rounds)?.collect();
    let mut variances = vec![0.0; rounds];
    for start in (0..rounds).step_by(LANES) {
        let inverse = matrix.inverse_columns(start, rounds);
        let (mut velocity, mut iterate) = ([0.0; LANES], [0.0; LANES]);
        for ((row, rate), variance) in inverse
            .chunks_exact(LANES)
            .zip(&rates[start..])
            .zip(&mut variances[start..])
        {
            for lane in 0..LANES {
                velocity[lane] = workload.decay() * velocity[lane] + row[lane];
                iterate[lane] += rate * velocity[lane];
            }
            *variance += iterate.iter().map(|entry| entry * entry).sum::<f64>();
        }
    }
    Ok(variances)
}

/// Follows the variance of the iterates of a stream that keeps a few correlated numbers.
pub(crate) struct Iterates {
    /// The stream's own numbers first, then velocity and iterate.
    pub(crate) moments: Moments,
    velocity: usize,
    decay: f64,
}

impl Iterates {
    /// Creates the iterates of a stream of `size` numbers.
    pub(crate) fn new(size: usize, workload: &Workload) -> Self {
        Self {
            moments: Moments::new(size + 2),
            velocity: size,
            decay: workload.decay(),
        }
    }

    /// Takes the round's noise, a sum of the stream's numbers, at the round's learning rate; the variance of the iterate.
    pub(crate) fn step(&mut self, noise: &[(usize, f64)], rate: f64) -> f64 {
        let (velocity, iterate) = (self.velocity, self.velocity + 1);
        let mut terms = noise.to_vec();
        terms.push((velocity, self.decay));
        self.moments.assign(velocity, &terms, 0.0);
        self.moments
            .assign(iterate, &[(iterate, 1.0), (velocity, rate)], 0.0);
        self.moments.variance(iterate)
    }
}

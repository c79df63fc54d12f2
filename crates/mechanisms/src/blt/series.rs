//! Series and variances of a BLT by its own recursion, in time linear in rounds and buffers.
//!
//! Everything here is Algorithm 3 of \[BLT\] run on an impulse, or on second moments. It needs no inverse parameters, so
//! decays that coincide are as good as any.

use crate::error::Result;
use crate::workload::Workload;

/// Buffers of a BLT: complements `1 - theta` of the decays and output scales `omega`.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a> {
    pub(crate) complements: &'a [f64],
    pub(crate) outputs: &'a [f64],
}

impl Buffers<'_> {
    fn read(self, state: &[f64]) -> f64 {
        self.outputs.iter().zip(state).map(|(output, s)| output * s).sum()
    }

    /// Decays by subtraction of the complement, so that decays near 1 keep their digits.
    fn push(self, state: &mut [f64], value: f64) {
        for (s, complement) in state.iter_mut().zip(self.complements) {
            *s = *s - *s * complement + value;
        }
    }

    /// First column of the matrix: `1`, then `sum_j omega_j theta_j^(i - 1)`.
    ///
    /// Every term, and so the sum, never grows, in rounding too.
    pub(crate) fn coefficients(self, rounds: usize) -> Vec<f64> {
        let mut state = vec![0.0; self.outputs.len()];
        let next = |round: usize| {
            let value = if round == 0 { 1.0 } else { self.read(&state) };
            self.push(&mut state, if round == 0 { 1.0 } else { 0.0 });
            value
        };
        (0..rounds).map(next).collect()
    }

    /// First column of the inverse.
    pub(crate) fn inverse_coefficients(self, rounds: usize) -> Vec<f64> {
        let mut state = vec![0.0; self.outputs.len()];
        let next = |round: usize| {
            let value = if round == 0 { 1.0 } else { -self.read(&state) };
            self.push(&mut state, value);
            value
        };
        (0..rounds).map(next).collect()
    }

    /// Variance of every iterate of the workload when round `t` receives `scale[t] (C^-1 Z)_t` (an empty scale is 1).
    ///
    /// Second moments of the buffers with the round's noise come from impulse responses, those with the iterate and its
    /// velocity by recursion: no matrix of the size of the run.
    pub(crate) fn variances(self, scale: &[f64], workload: &Workload, rounds: usize) -> Result<Vec<f64>> {
        if workload.is_prefix_sum() && scale.is_empty() {
            let (mut sum, mut variance) = (0.0, 0.0);
            let prefix = |coefficient: f64| {
                sum += coefficient;
                variance += sum * sum;
                variance
            };
            return Ok(self
                .inverse_coefficients(rounds)
                .into_iter()
                .map(prefix)
                .collect());
        }
        let (beta, rates) = (workload.decay(), workload.rates(rounds)?);
        let zeros = || vec![0.0; self.outputs.len()];
        // Impulse response of the buffers; covariances of the buffers with the noise, the velocity and the iterate.
        let (mut impulse, mut with_noise, mut with_velocity, mut with_iterate) =
            (zeros(), zeros(), zeros(), zeros());
        let (mut noise, mut velocity, mut cross, mut iterate) = (0.0, 0.0, 0.0, 0.0);
        let mut variances = Vec::with_capacity(rounds);
        for (round, rate) in rates.enumerate() {
            let factor = scale.get(round).copied().unwrap_or(1.0);
            let response = if round == 0 { 1.0 } else { -self.read(&impulse) };
            for (moment, s) in with_noise.iter_mut().zip(&impulse) {
                *moment += response * s;
            }
            noise += response * response;
            let velocity_noise = -self.read(&with_velocity);
            let iterate_noise = -self.read(&with_iterate);
            let iterate_velocity = beta * cross + factor * iterate_noise;
            velocity = beta * beta * velocity + factor * (2.0 * beta * velocity_noise + factor * noise);
            cross = iterate_velocity + rate * velocity;
            iterate += rate * (2.0 * iterate_velocity + rate * velocity);
            for j in 0..self.outputs.len() {
                let theta = 1.0 - self.complements[j];
                let fresh = theta * with_noise[j] + noise;
                let moved = beta * (theta * with_velocity[j] + velocity_noise) + factor * fresh;
                with_velocity[j] = moved;
                with_iterate[j] = theta * with_iterate[j] + iterate_noise + rate * moved;
            }
            self.push(&mut impulse, response);
            variances.push(iterate);
        }
        Ok(variances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLEMENTS: [f64; 3] = [1e-7, 0.08, 0.6];
    const OUTPUTS: [f64; 3] = [0.02, 0.15, 0.3];
    const BUFFERS: Buffers<'static> = Buffers {
        complements: &COMPLEMENTS,
        outputs: &OUTPUTS,
    };

    #[test]
    fn series_are_inverse_to_each_other() {
        let (c, inverse) = (BUFFERS.coefficients(60), BUFFERS.inverse_coefficients(60));
        for t in 0..60 {
            let product: f64 = (0..=t).map(|i| c[i] * inverse[t - i]).sum();
            assert!((product - if t == 0 { 1.0 } else { 0.0 }).abs() < 1e-15, "{t}");
            let closed: f64 = (0..3)
                .map(|j| OUTPUTS[j] * (1.0 - COMPLEMENTS[j]).powi(t as i32 - 1))
                .sum();
            assert!(t == 0 || (c[t] - closed).abs() < 1e-14);
        }
    }

    /// Squared row norms of `A diag(scale) C^-1`, by the matrices.
    fn by_matrices(scale: &[f64], workload: &Workload, rounds: usize) -> Vec<f64> {
        let inverse = BUFFERS.inverse_coefficients(rounds);
        let norm = |t: usize| {
            let row = workload.row(t).unwrap();
            let entry = |s: usize| -> f64 {
                (s..=t)
                    .map(|i| row[i] * scale.get(i).copied().unwrap_or(1.0) * inverse[i - s])
                    .sum()
            };
            (0..=t).map(|s| entry(s).powi(2)).sum()
        };
        (0..rounds).map(norm).collect()
    }

    fn check(scale: &[f64], workload: &Workload) {
        let (got, want) = (
            BUFFERS.variances(scale, workload, 40).unwrap(),
            by_matrices(scale, workload, 40),
        );
        for (got, want) in got.into_iter().zip(want) {
            assert!((got / want - 1.0).abs() < 1e-13, "{got} {want}");
        }
    }

    #[test]
    fn variances_match_those_by_matrices() {
        let scale: Vec<f64> = (0..40).map(|t| 1.5 - f64::from(t) / 60.0).collect();
        let rates: Vec<f64> = (0..40).map(|t| 1.0 + f64::from(t).sin()).collect();
        let momentum = Workload::momentum(0.9).unwrap();
        let scheduled = momentum.clone().with_learning_rates(rates).unwrap();
        for workload in [Workload::prefix_sum(), momentum, scheduled] {
            check(&[], &workload);
            check(&scale, &workload);
        }
    }
}

//! Error of any workload, with scaled rounds or without, and its gradient: second moments forward, their adjoints back.
//!
//! The noise of a round is `n_t = D_t (C^-1 z)_t`, the velocity `v_t = beta v_{t-1} + n_t`, the iterate
//! `s_t = s_{t-1} + rate_t v_t`. The inverse has buffers `U_j <- tau_j U_j + z` of its own (`tau = theta_hat`), so the
//! moments that involve the velocity or the iterate follow a recursion of one number per buffer, and those of the
//! buffers themselves are partial sums of the inverse's coefficients.

use super::interlaced::{Interlaced, Places};
use crate::error::Result;
use crate::loss::Objective;
use crate::workload::Workload;

/// A workload with everything it needs from the run.
pub(super) struct Iterates {
    momentum: f64,
    rates: Vec<f64>,
    pub(super) objective: Objective,
}

/// Moments of one round, before it.
#[derive(Clone, Default)]
struct Moments {
    /// Inverse coefficient `c_hat_t`, and the sum of the squares up to it.
    coefficient: f64,
    noise: f64,
    /// Covariances of velocity and iterate with the round's unscaled noise.
    velocity_noise: f64,
    iterate_noise: f64,
}

impl Iterates {
    pub(super) fn new(workload: &Workload, rounds: usize, objective: Objective) -> Result<Self> {
        Ok(Self {
            momentum: workload.decay(),
            rates: workload.rates(rounds)?.collect(),
            objective,
        })
    }

    /// Logarithm of the error; gradients with respect to the logarithms of the chain's residues from place 0, to the
    /// chain, and to every factor of `scale` (one per round), each added up.
    ///
    /// The letters of the formulas are those of this module's page, with `D` and `rho` for factor and rate of the round at hand. `e_t` is
    /// its noise without the factor, `c_i` are the coefficients of the inverse, `w_j` and `r_j` output and residue of the inverse's buffer
    /// `j`, `tau_j = e^-lambda_j` its decay. Before a round, `V_j` and `S_j` are the covariances of its buffer with `v_{t-1}` and `s_{t-1}`. `L` is
    /// what the function returns: half the logarithm of the mean of `Var s_t`, or of the largest.
    pub(super) fn error(
        &self,
        chain: &Interlaced,
        residues: &Places,
        scale: &[f64],
        by_residue: &mut Places,
        by_log: &mut Places,
        by_scale: &mut [f64],
    ) -> f64 {
        let (rounds, d) = (self.rates.len(), chain.buffers);
        let place = |j: usize| 2 * j + 2;
        let decay: Vec<f64> = (0..d).map(|j| (-chain.logs[place(j)]).exp()).collect();
        let output: Vec<f64> = (0..d)
            .map(|j| -residues[place(j)] * chain.complement(place(j)))
            .collect();
        let beta = self.momentum;

        let mut moments = vec![Moments::default(); rounds];
        // A row of d numbers per round: tau^t, covariance of the buffers with the noise after the round, and with velocity
        // and iterate before it.
        let mut rows = vec![0.0; 4 * d * (rounds + 1)];
        rows[..d].fill(1.0);
        let (mut velocity, mut cross, mut iterate, mut noise) = (0.0, 0.0, 0.0, 0.0);
        let mut variances = Vec::with_capacity(rounds);
        // e_t = z_t + sum_j w_j U_j = sum_i c_i z_{t-i}, with c_0 = 1 and c_i = sum_j w_j tau_j^(i-1)
        // N = sum_{i<=t} c_i^2 = Var e_t, and P_j = sum_{i<=t} c_i tau_j^i = Cov(e_t, U_j after the round)
        // a = Cov(s_{t-1}, v_t) = beta k + D sum_j w_j S_j
        // v = Var v_t = beta^2 v + D (2 beta sum_j w_j V_j + D N)
        // k = Cov(s_t, v_t) = a + rho v, and Var s_t = Var s_{t-1} + rho (2 a + rho v)
        // V_j = Cov(v_t, U_j) = beta tau_j V_j + D P_j, and S_j = Cov(s_t, U_j) = tau_j S_j + rho V_j
        for t in 0..rounds {
            let (before, after) = rows.split_at_mut(4 * d * (t + 1));
            let (now, next) = (&mut before[4 * d * t..], &mut after[..4 * d]);
            let (factor, rate) = (scale[t], self.rates[t]);
            let (mut velocity_noise, mut iterate_noise, mut coefficient) = (0.0, 0.0, 0.0);
            for j in 0..d {
                velocity_noise += output[j] * now[2 * d + j];
                iterate_noise += output[j] * now[3 * d + j];
                // tau^(t - 1) is in the row before; its place in this row is taken by tau^t.
                coefficient += output[j] * now[j];
            }
            let coefficient = if t == 0 { 1.0 } else { coefficient };
            noise += coefficient * coefficient;
            let along = beta * cross + factor * iterate_noise;
            velocity = beta * beta * velocity + factor * (2.0 * beta * velocity_noise + factor * noise);
            cross = along + rate * velocity;
            iterate += rate * (2.0 * along + rate * velocity);
            for j in 0..d {
                // `now[j]` is tau^(t-1) from round 1 on and 1 in round 0.
                let power = if t == 0 { 1.0 } else { now[j] * decay[j] };
                now[d + j] += coefficient * power;
                next[j] = power;
                next[d + j] = now[d + j];
                next[2 * d + j] = beta * decay[j] * now[2 * d + j] + factor * now[d + j];
                next[3 * d + j] = decay[j] * now[3 * d + j] + rate * next[2 * d + j];
            }
            moments[t] = Moments {
                coefficient,
                noise,
                velocity_noise,
                iterate_noise,
            };
            variances.push(iterate);
        }

        let (total, worst) = match self.objective {
            Objective::RmsLoss => (variances.iter().sum::<f64>() / rounds as f64, rounds),
            Objective::MaxLoss => variances
                .iter()
                .enumerate()
                .fold((0.0, 0), |best, (t, v)| if *v > best.0 { (*v, t) } else { best }),
        };
        let seed = 0.5 / total;

        let (mut by_output, mut by_decay) = (vec![0.0; d], vec![0.0; d]);
        let mut by_own = vec![0.0; d];
        let (mut back_velocity, mut back_iterate) = (vec![0.0; d], vec![0.0; d]);
        let mut back_power = vec![0.0; d];
        let (mut of_iterate, mut of_cross, mut of_velocity, mut of_noise) = (0.0, 0.0, 0.0, 0.0);
        // Adjoints, with [x] = dL/dx, of the equations above in reverse:
        // [a] = [k] + 2 rho [s], [v] += rho [k] + rho^2 [s], [N] += D^2 [v], where [s] is that of Var s_t
        // [V_j] += rho [S_j], [P_j] += D [V_j], [c_t] = 2 c_t [N] + sum_j tau_j^t [P_j]
        // [D_t] = [a] sum_j w_j S_j + 2 [v] (beta sum_j w_j V_j + D N) + sum_j P_j [V_j]
        // [w_j] += D ([a] S_j + 2 beta [v] V_j) + tau_j^(t-1) [c_t]
        // For the round before: [S_j] = tau_j [S_j] + D [a] w_j, [V_j] = beta (tau_j [V_j] + 2 D [v] w_j), [k] = beta [a], [v] = beta^2 [v].
        for t in (0..rounds).rev() {
            let now = &rows[4 * d * t..4 * d * (t + 1)];
            let powers = &rows[4 * d * (t + 1)..4 * d * (t + 1) + d];
            let (factor, rate, m) = (scale[t], self.rates[t], &moments[t]);
            if worst == t {
                of_iterate += seed;
            } else if worst == rounds {
                of_iterate += seed / rounds as f64;
            }
            let of_along = of_cross + 2.0 * rate * of_iterate;
            of_velocity += rate * of_cross + rate * rate * of_iterate;
            let mut of_factor =
                of_along * m.iterate_noise + of_velocity * 2.0 * (beta * m.velocity_noise + factor * m.noise);
            of_noise += of_velocity * factor * factor;
            let mut of_coefficient = 2.0 * m.coefficient * of_noise;
            for j in 0..d {
                back_velocity[j] += rate * back_iterate[j];
                by_decay[j] += back_iterate[j] * now[3 * d + j] + beta * back_velocity[j] * now[2 * d + j];
                of_factor += back_velocity[j] * now[d + j];
                back_power[j] += factor * back_velocity[j];
                of_coefficient += back_power[j] * powers[j];
                by_own[j] -= t as f64 * powers[j] * back_power[j] * m.coefficient;
                by_output[j] +=
                    factor * (of_along * now[3 * d + j] + 2.0 * beta * of_velocity * now[2 * d + j]);
                back_iterate[j] = decay[j] * back_iterate[j] + factor * of_along * output[j];
                back_velocity[j] =
                    beta * (decay[j] * back_velocity[j] + 2.0 * factor * of_velocity * output[j]);
            }
            if t > 0 {
                for j in 0..d {
                    // `now[j]` is tau^(t-1).
                    by_output[j] += of_coefficient * now[j];
                    by_own[j] -= (t - 1) as f64 * output[j] * now[j] * of_coefficient;
                }
            }
            by_scale[t] += of_factor;
            of_cross = beta * of_along;
            of_velocity *= beta * beta;
        }
        // dL/d(ln r_j) = w_j [w_j], and dL/dlambda_j = own_j - tau_j ([tau_j] + r_j [w_j]), where own_j is that through the powers.
        for j in 0..d {
            let residue = residues[place(j)];
            by_residue[place(j)] += output[j] * by_output[j];
            by_log[place(j)] += by_own[j] - decay[j] * (by_decay[j] + residue * by_output[j]);
        }
        0.5 * total.ln()
    }
}

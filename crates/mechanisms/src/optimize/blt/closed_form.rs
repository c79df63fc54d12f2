//! Error of prefix sums and sensitivity of a BLT, with gradients, in time that does not depend on the rounds.
//!
//! Both are sums of squares of mixtures of exponentials with positive weights: double sums of geometric sums. Nothing
//! cancels.

use super::interlaced::{Interlaced, Places, SIZE};
use crate::loss::Objective;

/// Value of `rounds * exponent` up to which a geometric sum is computed by its series.
const SERIES_UP_TO: f64 = 0.02;

/// The factors of a geometric sum that depend on one decay: `1 - decay` and `1 - decay^terms`, for decay `e^-x`.
#[derive(Clone, Copy, Default)]
struct Factor {
    exponent: f64,
    complement: f64,
    tail: f64,
}

impl Factor {
    fn new(exponent: f64, terms: f64) -> Self {
        Self {
            exponent,
            complement: -(-exponent).exp_m1(),
            tail: -(-exponent * terms).exp_m1(),
        }
    }

    /// The product's decay.
    fn times(self, other: Self) -> Self {
        let both = |a: f64, b: f64| a + b - a * b;
        Self {
            exponent: self.exponent + other.exponent,
            complement: both(self.complement, other.complement),
            tail: both(self.tail, other.tail),
        }
    }

    /// `sum_{i < terms} e^(-x i)` and its derivative in `x`.
    fn geometric(self, terms: f64) -> (f64, f64) {
        if self.exponent * terms < SERIES_UP_TO {
            return self.series(terms, 1.0);
        }
        let ratio = 1.0 - self.complement;
        let sum = self.tail / self.complement;
        (sum, (terms * (1.0 - self.tail) - ratio * sum) / self.complement)
    }

    /// `sum_{i < terms} (1 - i / terms) e^(-x i)` and its derivative in `x`.
    fn descending(self, terms: f64) -> (f64, f64) {
        if self.exponent * terms < SERIES_UP_TO {
            let (sum, slope) = self.series(terms + 1.0, 2.0);
            return (sum / terms, slope / terms);
        }
        let ratio = 1.0 - self.complement;
        let (inner, inner_slope) = self.geometric(terms);
        let sum = (terms - ratio * inner) / self.complement;
        let slope = ratio * (inner - inner_slope - sum) / self.complement;
        (sum / terms, slope / terms)
    }

    /// `sum_k binomial(top, k + order) (-complement)^k`, for small complements.
    fn series(self, top: f64, order: f64) -> (f64, f64) {
        let mut binomial = if order == 1.0 {
            top
        } else {
            top * (top - 1.0) / 2.0
        };
        let (mut sum, mut slope, mut power) = (0.0, 0.0, 1.0);
        for k in 0..9 {
            let k = f64::from(k);
            sum += binomial * power;
            binomial *= (top - order - k) / (order + k + 1.0);
            slope -= (k + 1.0) * binomial * power;
            power *= -self.complement;
        }
        (sum, slope * (1.0 - self.complement))
    }
}

/// Logarithm of the error of prefix sums over `rounds`, its gradient added to `by_residue` (of the chain's residues from
/// place 0, in logarithms) and `by_log`.
pub(super) fn error(
    chain: &Interlaced,
    residues: &Places,
    rounds: usize,
    objective: Objective,
    by_residue: &mut Places,
    by_log: &mut Places,
) -> f64 {
    let rounds = rounds as f64;
    let mut factors = [Factor::default(); SIZE];
    for place in (0..chain.places()).step_by(2) {
        factors[place] = Factor::new(chain.logs[place], rounds);
    }
    let mut total = 0.0;
    let (mut weights, mut slopes): (Places, Places) = ([0.0; SIZE], [0.0; SIZE]);
    for i in (0..chain.places()).step_by(2) {
        for j in (i..chain.places()).step_by(2) {
            let product = factors[i].times(factors[j]);
            let (sum, slope) = match objective {
                Objective::MaxLoss => product.geometric(rounds),
                Objective::RmsLoss => product.descending(rounds),
            };
            let both = residues[i] * residues[j] * if i == j { 1.0 } else { 2.0 };
            total += both * sum;
            weights[i] += both * sum;
            weights[j] += both * sum;
            slopes[i] += both * slope;
            slopes[j] += both * slope;
        }
    }
    let half = 0.5 / total;
    for place in (0..chain.places()).step_by(2) {
        by_residue[place] += half * weights[place];
        by_log[place] += half * slopes[place];
    }
    0.5 * total.ln()
}

/// Logarithm of the sensitivity for `max_par` participations from round 0 on, `gap` apart, in `rounds` rounds; its gradient
/// added to `by_residue` (of the chain's residues from place 1, in logarithms) and `by_log`.
///
/// Between participation `s` and the next one, `u` rounds after it, the column is `sum_j omega_j E_sj theta_j^(u - 1)`
/// with `E_sj = sum_{q <= s} theta_j^(q gap)`; in the round of the participation it is one more.
///
/// The letters of the formulas: `g` is the gap, `theta_j = e^-lambda_j` the decay of buffer `j`, `r_j` its residue and `w_j` its output
/// scale, `omega_j` above. `E_j` is `E_sj` of the participation at hand, `E'_j` its derivative in `lambda_j`; `P` and `Q` add up products
/// over the participations before the last one, after which `l` rounds follow. `T` is the squared sensitivity, from 1 on for the first
/// participation, and `L = ln(T) / 2` is returned.
pub(super) fn sensitivity(
    chain: &Interlaced,
    residues: &Places,
    (rounds, gap, max_par): (usize, usize, usize),
    by_residue: &mut Places,
    by_log: &mut Places,
) -> f64 {
    let buffers = chain.buffers;
    let place = |j: usize| 2 * j + 1;
    let between = gap as f64 - 1.0;
    let last = (rounds - (max_par - 1) * gap) as f64 - 1.0;
    // Per buffer: output scale, decay over a gap, decay over a gap less one round, E_s and its derivative in lambda.
    let zero: Places = [0.0; SIZE];
    let (mut scale, mut decay, mut arrival) = (zero, zero, zero);
    let (mut sum, mut slope) = (zero, zero);
    // w_j = r_j theta_j, and E_j = 1
    for j in 0..buffers {
        let log = chain.logs[place(j)];
        scale[j] = residues[place(j)] * (-log).exp();
        decay[j] = (-log * gap as f64).exp();
        arrival[j] = (-log * between).exp();
        sum[j] = 1.0;
    }
    let mut pairs = [zero; SIZE];
    let mut pair_slopes = pairs;
    let mut total = 1.0;
    let (mut by_scale, mut by_own) = (zero, zero);
    // P_ij += E_i E_j, and Q_ij += E'_i E_j
    // a = 1 + sum_j w_j theta_j^(g-1) E_j, and T += a^2
    // E'_j = theta_j^g (E'_j - g E_j), then E_j = 1 + theta_j^g E_j
    for _ in 1..max_par {
        for i in 0..buffers {
            for j in 0..buffers {
                pairs[i][j] += sum[i] * sum[j];
                pair_slopes[i][j] += slope[i] * sum[j];
            }
        }
        let at_participation: f64 = 1.0 + (0..buffers).map(|j| scale[j] * arrival[j] * sum[j]).sum::<f64>();
        total += at_participation * at_participation;
        for j in 0..buffers {
            let weight = 2.0 * at_participation * arrival[j];
            by_scale[j] += weight * sum[j];
            by_own[j] += weight * scale[j] * (slope[j] - between * sum[j]);
            slope[j] = decay[j] * (slope[j] - gap as f64 * sum[j]);
            sum[j] = 1.0 + decay[j] * sum[j];
        }
    }
    let factors = |terms: f64| {
        let mut factors = [Factor::default(); SIZE];
        // factor_j = (lambda_j, 1 - theta_j, 1 - theta_j^n), for n terms.
        for (j, factor) in factors.iter_mut().enumerate().take(buffers) {
            *factor = Factor::new(chain.logs[place(j)], terms);
        }
        factors
    };
    let (inner, tail) = (factors(between), factors(last));
    // T += sum_ij w_i w_j (P_ij sum_{k<g-1} (theta_i theta_j)^k + E_i E_j sum_{k<l} (theta_i theta_j)^k)
    for i in 0..buffers {
        for j in 0..buffers {
            let mut add = |(geometric, by_exponent): (f64, f64), both: f64, one: f64| {
                let outputs = scale[i] * scale[j];
                total += outputs * both * geometric;
                by_scale[i] += 2.0 * scale[j] * both * geometric;
                by_own[i] += 2.0 * outputs * (one * geometric + both * by_exponent);
            };
            if max_par > 1 && between > 0.0 {
                add(
                    inner[i].times(inner[j]).geometric(between),
                    pairs[i][j],
                    pair_slopes[i][j],
                );
            }
            if last > 0.0 {
                add(
                    tail[i].times(tail[j]).geometric(last),
                    sum[i] * sum[j],
                    slope[i] * sum[j],
                );
            }
        }
    }
    let half = 0.5 / total;
    // dL/d(ln r_j) = w_j T_w / (2 T), where T_w = dT/dw_j
    // dL/dlambda_j = (T_lambda - w_j T_w) / (2 T), where T_lambda = dT/dlambda_j at fixed w_j
    for j in 0..buffers {
        let by_log_scale = half * scale[j] * by_scale[j];
        by_residue[place(j)] += by_log_scale;
        by_log[place(j)] += half * by_own[j] - by_log_scale;
    }
    0.5 * total.ln()
}

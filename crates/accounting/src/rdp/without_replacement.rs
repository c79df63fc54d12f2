//! Renyi divergence of a Gaussian on a fixed-size cohort drawn without replacement, under replace-one.
//!
//! # Source
//! Wang, Balle, Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical Moments Accountant"
//! (AISTATS 2019), Theorem 27 (the bound for Gaussians); the divergence is with respect to replacing one
//! user.

use std::f64::consts::{LN_2, PI};

use crate::NoiseMultiplier;
use crate::special::{LogSum, ln_1p_exp, ln_expm1};

/// Above this order only the plain term of the theorem's minimum is used, as in dp-accounting.
const MAX_TERNARY_ORDER: u32 = 256;

/// Divergences of one release at `orders` (> 1), for a cohort of `cohort_size` of `population` users.
///
/// # Guarantee
/// An upper bound under replace-one, with `noise_multiplier` = noise standard deviation / replace-one
/// sensitivity. At fractional orders the chord between the neighbouring integers of `(a - 1) D_a`, which is
/// convex.
pub(crate) fn curve(
    population: u64,
    cohort_size: u64,
    noise_multiplier: NoiseMultiplier,
    orders: &[f64],
) -> Vec<f64> {
    let z = noise_multiplier.get();
    if cohort_size == population {
        return orders.iter().map(|a| a / z / z * 0.5).collect();
    }
    let log_q = (cohort_size as f64 / population as f64).ln();
    let highest = orders.iter().fold(2.0, |highest: f64, a| highest.max(a.ceil())) as u32;
    // ln E[(e^u - 1)^l] for even l, at index l / 2 - 1.
    let central: Vec<f64> = (1..=highest.min(MAX_TERNARY_ORDER).div_ceil(2))
        .map(|half| log_central_moment(2 * half, z))
        .collect();
    orders
        .iter()
        .map(|&order| {
            let (low, share) = (order.floor() as u32, order.fract());
            let at = |n: u32| log_moment(log_q, z, n, &central);
            let value = if share == 0.0 {
                at(low)
            } else {
                (1.0 - share) * at(low) + share * at(low + 1)
            };
            value / (order - 1.0)
        })
        .collect()
}

/// `(n - 1) D_n` at an integer order.
fn log_moment(log_q: f64, z: f64, order: u32, central: &[f64]) -> f64 {
    let n = f64::from(order);
    let scale = 0.5 / z / z;
    let mut log_choose = n.ln();
    let mut excess = LogSum::new();
    for i in 2..=order {
        let index = f64::from(i);
        log_choose += ((n - index + 1.0) / index).ln();
        let plain = LN_2 + index * (index - 1.0) * scale;
        let bound = if i == 2 {
            plain.min(2.0 * LN_2 + ln_expm1(2.0 * scale))
        } else if order <= MAX_TERNARY_ORDER {
            let (below, above) = (
                central[(i / 2 - 1) as usize],
                central[(i.div_ceil(2) - 1) as usize],
            );
            plain.min(2.0 * LN_2 + 0.5 * (below + above))
        } else {
            plain
        };
        excess.add(log_choose + index * log_q + bound);
    }
    ln_1p_exp(excess.get())
}

/// `ln E_{x ~ N(0, z^2)} [(e^u - 1)^l]`, `u = (2x - 1) / (2 z^2)`, for even `l`.
///
/// The theorem states it as an l-th forward difference, whose alternating sum loses all digits for large z;
/// the expectation of a positive function does not. The step keeps the trapezoidal rule's error, e^{-2 pi^2
/// z^2 / step^2} times the sum of the magnitudes of that alternating sum, below 1e-17 of the result.
fn log_central_moment(l: u32, z: f64) -> f64 {
    // Below this z the expectation exceeds half of e^{l (l - 1) / (2 z^2)} for every l >= 4, so that the
    // theorem's minimum takes its plain term.
    if z < 0.4 {
        return f64::INFINITY;
    }
    let power = f64::from(l);
    let width = z * (power.sqrt() + 12.0);
    let (low, high) = (-width, power + width);
    let step = z * (2.0 * PI * PI / (42.0 + power * (1.0 + z.ln_1p()))).sqrt();
    let nodes = ((high - low) / step).ceil().clamp(16.0, 1e6);
    let step = (high - low) / nodes;
    let mut sum = LogSum::new();
    for k in 0..=(nodes as u32) {
        let x = low + f64::from(k) * step;
        let u = (x - 0.5) / z / z;
        let magnitude = if u > 0.0 { ln_expm1(u) } else { (-u.exp_m1()).ln() };
        sum.add(power * magnitude - 0.5 * (x / z) * (x / z));
    }
    sum.get() + (step / z).ln() - 0.5 * (2.0 * PI).ln()
}

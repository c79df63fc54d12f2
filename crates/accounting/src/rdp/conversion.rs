//! Conversion of Renyi divergences to (epsilon, delta).
//!
//! # Source
//! Canonne, Kamath, Steinke (2020), Proposition 12; `delta <= sqrt(1 - e^-KL)` is the Bretagnolle-Huber
//! inequality.

use crate::special::ln_1m_exp;

/// Smallest epsilon over `orders` at `delta = e^log_delta`, with the index it was found at.
///
/// `divergences[i]` is the total Renyi divergence at `orders[i]`. Returns `+inf` if no order gives a finite
/// value.
#[must_use]
pub fn epsilon(orders: &[f64], divergences: &[f64], log_delta: f64) -> (f64, usize) {
    best(orders, divergences, |order, divergence| {
        // PRIVACY: `max` below would turn a divergence that is no number into epsilon = 0.
        if divergence.is_nan() {
            return f64::INFINITY;
        }
        if 0.5 * ln_1m_exp(-divergence) <= log_delta {
            return 0.0; // the total variation distance is already below delta
        }
        (divergence + (-1.0 / order).ln_1p() - (log_delta + order.ln()) / (order - 1.0)).max(0.0)
    })
}

/// Smallest `ln delta` (at most 0) over `orders` at `epsilon`, with the index it was found at.
#[must_use]
pub fn log_delta(orders: &[f64], divergences: &[f64], epsilon: f64) -> (f64, usize) {
    best(orders, divergences, |order, divergence| {
        if divergence.is_nan() {
            return 0.0;
        }
        let tail = (order - 1.0) * (divergence - epsilon + (-1.0 / order).ln_1p()) - order.ln();
        tail.min(0.5 * ln_1m_exp(-divergence)).min(0.0)
    })
}

fn best(orders: &[f64], divergences: &[f64], value: impl Fn(f64, f64) -> f64) -> (f64, usize) {
    let values = orders
        .iter()
        .zip(divergences)
        .map(|(&order, &divergence)| value(order, divergence));
    values
        .enumerate()
        .fold((f64::INFINITY, 0), |best, (index, value)| {
            if value < best.0 { (value, index) } else { best }
        })
}

//! Renyi divergence of mechanisms whose privacy loss has a bounded range, such as the exponential mechanism.
//!
//! The privacy losses of two neighbours lie in `[t - epsilon, t]` for some `t`. By convexity the two-point pair with the
//! losses `t` and `t - epsilon` is worst, and the divergence is the largest over `t`. With `w = e^t`, `A = 1 - e^{-a epsilon}`
//! and `B = e^{-epsilon} - e^{-a epsilon}`, the moment of order `a` of this pair is
//! `(A w^{a - 1} - B w^a) / (1 - e^{-epsilon})`, which is largest at `w = A (a - 1) / (B a)`. There,
//! with `h(x) = ln(sinh(x / 2) / (x / 2))`, the divergence is
//!
//! `D_a = h(a epsilon) - h((a - 1) epsilon) + (h(a epsilon) - h(epsilon)) / (a - 1)`.
//!
//! # Source
//! The two-point pair: Dong, Durfee, Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms" (2020),
//! Lemma 3.2. The closed form is ours; at small `epsilon` it is `a epsilon^2 / 8`, the bound of Cesar and Rogers (2021).

use crate::error::finite_order;
use crate::special::ln_1m_exp;
use crate::{AccountingError, Epsilon};

/// Divergence at `order` (> 1) of a release whose losses lie in a range of length `epsilon`.
///
/// # Guarantee
/// The largest divergence of any such release, in both directions. It tends to `epsilon` as the order grows.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `order` is not a finite number > 1.
pub(super) fn rdp(epsilon: Epsilon, order: f64) -> Result<f64, AccountingError> {
    let (epsilon, order) = (epsilon.get(), finite_order(order)?);
    let excess = order - 1.0;
    let divergence = if order * epsilon < 0.25 {
        let whole = small_log_sinc(order * epsilon);
        whole - small_log_sinc(excess * epsilon) + (whole - small_log_sinc(epsilon)) / excess
    } else {
        // The halves of all arguments add up to epsilon.
        let whole = ln_1m_exp(-order * epsilon);
        let each = whole - ln_1m_exp(-excess * epsilon) + (-order.recip()).ln_1p();
        // PRIVACY: the margin covers the rounding of these logarithms.
        epsilon + each + (whole - ln_1m_exp(-epsilon) - order.ln()) / excess + 1e-15
    };
    let concentrated = order * epsilon * epsilon / 8.0;
    // PRIVACY: where nothing is a number, the range itself is the bound.
    let divergence = if divergence.is_nan() { epsilon } else { divergence };
    Ok(divergence.max(0.0).min(concentrated).min(epsilon))
}

/// `ln(sinh(x / 2) / (x / 2))` for `x` in `[0, 0.25]`; the first term that is left out is below 1e-14 of the sum.
fn small_log_sinc(x: f64) -> f64 {
    let square = x * x;
    let series = [1.0 / 9_676_800.0, 1.0 / 181_440.0, 1.0 / 2880.0, 1.0 / 24.0];
    square * series.iter().fold(0.0, |inner, term| term - square * inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn divergence(epsilon: f64, order: f64) -> f64 {
        rdp(Epsilon::new(epsilon).unwrap(), order).unwrap()
    }

    proptest! {
        /// No two-point pair is worse, and one of them attains the value.
        #[test]
        #[ignore = "slow"]
        fn the_closed_form_is_the_largest_of_the_two_point_pairs(
            epsilon in 0.02f64..6.0,
            order in 1.05f64..60.0,
        ) {
            let of_pair = |t: f64| {
                let q = ((-t).exp() - (-epsilon).exp()) / -(-epsilon).exp_m1();
                let terms = [q.ln() + order * t, (-q).ln_1p() + order * (t - epsilon)];
                let peak = terms[0].max(terms[1]);
                let sum: f64 = terms.iter().map(|term| (term - peak).exp()).sum();
                (peak + sum.ln()) / (order - 1.0)
            };
            let points = (1..20_000).map(|point| of_pair(epsilon * f64::from(point) / 20_000.0));
            let largest = points.fold(0.0, f64::max);
            let got = divergence(epsilon, order);
            prop_assert!((got / largest - 1.0).abs() < 1e-6, "{got} {largest}");
            prop_assert!(got >= largest * (1.0 - 1e-9));
            prop_assert!(got <= order * epsilon * epsilon / 8.0 * (1.0 + 1e-9));
        }
    }

    #[test]
    fn extremes_stay_within_the_range() {
        for epsilon in [0.0, 1e-300, 1e-9, 0.249, 0.251, 3.0, 1e6] {
            for order in [1.0 + 1e-9, 1.5, 2.0, 1e3, 1e12] {
                let got = divergence(epsilon, order);
                assert!((0.0..=epsilon).contains(&got), "{epsilon} {order}: {got}");
            }
        }
        assert!((divergence(3.0, 1e9) / 3.0 - 1.0).abs() < 1e-6);
        assert!((divergence(1e-4, 2.0) / 2.5e-9 - 1.0).abs() < 1e-6);
    }
}

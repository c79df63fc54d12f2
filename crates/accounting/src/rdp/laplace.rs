//! Renyi divergence of the Laplace mechanism. That of sampled Laplace noise follows from its loss distribution.
//!
//! # Source
//! Mironov, "Renyi Differential Privacy" (2017), Proposition 6.

use crate::AccountingError;
use crate::discrete::positive;
use crate::error::finite_order;
use crate::special::{LogSum, ln_1p_exp};

/// Divergence at `order` (> 1) of Laplace noise of `scale` = noise scale / L1 sensitivity.
///
/// # Guarantee
/// The exact value, the same in both directions, under the relation the sensitivity is stated for. It tends
/// to the pure epsilon `1 / scale` as the order grows.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `scale` is not a finite number > 0 or `order` not a finite number > 1.
pub(super) fn rdp(scale: f64, order: f64) -> Result<f64, AccountingError> {
    let epsilon = positive("scale", scale)?.recip();
    let order = finite_order(order)?;
    // E = (a e^{(a-1) eps} + (a-1) e^{-a eps}) / (2a - 1): the constant and linear terms of the two
    // exponentials add up to exactly 1, and what remains of each is positive.
    let mut excess = LogSum::new();
    excess.add(order.ln() + log_exponential_gap((order - 1.0) * epsilon));
    excess.add((order - 1.0).ln() + log_exponential_gap(-order * epsilon));
    let log_moment = ln_1p_exp(excess.get() - (2.0 * order - 1.0).ln());
    Ok((log_moment / (order - 1.0)).min(epsilon))
}

/// `ln(e^x - 1 - x)`.
fn log_exponential_gap(x: f64) -> f64 {
    if x.abs() < 0.3 {
        let mut term = 0.5 * x * x;
        let mut sum = 0.0;
        for k in 3..20 {
            sum += term;
            term *= x / f64::from(k);
        }
        sum.ln()
    } else if x < 30.0 {
        (x.exp_m1() - x).ln()
    } else {
        x + (-(1.0 + x) * (-x).exp()).ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The proposition evaluated by mpmath at 50 digits.
    #[test]
    fn divergences_match_high_precision_values() {
        let check = |scale, order, want: f64| {
            let got = rdp(scale, order).unwrap();
            assert!(
                (got - want).abs() <= 1e-13 * want,
                "{scale} {order}: {got} != {want}"
            );
        };
        check(1.0, 2.0, 0.619_123_629_998_592_8);
        check(0.01, 5.5, 99.867_147_333_165_42);
        check(100.0, 1.1, 5.481_702_405_479_97e-5);
        check(1e6, 2.0, 9.999_996_666_664_166e-13);
        check(1e8, 1.000001, 5.000_004_983_333_316e-17);
        check(3.0, 1024.0, 0.332_656_247_526_821_27);
        check(1e-3, 1e6, 999.999_999_306_852_6);
    }

    #[test]
    fn scales_and_orders_out_of_range_are_refused() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(rdp(value, 2.0).is_err() && rdp(1.0, value).is_err());
        }
        assert!(rdp(1.0, 1.0).is_err());
    }

    proptest! {
        #[test]
        fn rdp_is_monotone_and_below_pure_epsilon(
            log_scale in -6.0f64..8.0, order in 1.000_001f64..500.0, factor in 1.01f64..3.0,
        ) {
            let scale = log_scale.exp();
            let value = rdp(scale, order).unwrap();
            let (pure, slack) = (1.0 / scale, 1.0 + 1e-12);
            prop_assert!(value > 0.0 && value <= pure.min(0.5 * order * pure * pure) * slack);
            prop_assert!(rdp(scale * factor, order).unwrap() <= value * slack);
            prop_assert!(rdp(scale, order * factor).unwrap() * slack >= value);
        }
    }
}

//! Renyi divergence of randomised response.
//!
//! # Source
//! The definition of the divergence, on the probabilities of
//! [`discrete::randomized_response`](crate::discrete::randomized_response).

use crate::AccountingError;
use crate::discrete::randomized_response::buckets;
use crate::error::finite_order;
use crate::special::{LogSum, ln_1p_exp, log_power_gap};

/// Divergence at `order` (> 1) when the one true bucket is exchanged for another.
///
/// # Guarantee
/// The exact value, the same in both directions, under replace-one; `+inf` without noise.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `num_buckets` is 0, `noise_parameter` not in `[0, 1]`, or `order` not a
/// finite number > 1.
pub(super) fn rdp(num_buckets: u64, noise_parameter: f64, order: f64) -> Result<f64, AccountingError> {
    let order = finite_order(order)?;
    let probabilities = buckets(num_buckets, noise_parameter)?;
    if num_buckets == 1 {
        return Ok(0.0);
    }
    let spread = 1.0 - noise_parameter;
    let epsilon = (spread / probabilities.other).ln_1p();
    if epsilon == f64::INFINITY {
        return Ok(epsilon);
    }
    // E - 1 = (1 - p) (e^y - 1) + (p / k) (e^y + e^-y - 2) with y = (a - 1) epsilon; both terms positive.
    let y = (order - 1.0) * epsilon;
    let half_sinh = if y > 60.0 {
        y
    } else {
        2.0 * (2.0 * (0.5 * y).sinh()).ln()
    };
    let log_expm1 = if y > 60.0 { y } else { y.exp_m1().ln() };
    let mut excess = LogSum::new();
    excess.add(spread.ln() + log_expm1);
    excess.add(probabilities.other.ln() + half_sinh);
    Ok((ln_1p_exp(excess.get()) / (order - 1.0)).min(epsilon))
}

/// Divergence at `order` (> 1) when the record is blanked out and a uniform bucket is answered instead; the
/// larger of the two directions.
///
/// # Guarantee
/// The exact value under zero-out; `+inf` without noise.
///
/// # Errors
/// As [`rdp`].
pub(super) fn zero_out_rdp(
    num_buckets: u64,
    noise_parameter: f64,
    order: f64,
) -> Result<f64, AccountingError> {
    let order = finite_order(order)?;
    buckets(num_buckets, noise_parameter)?;
    if num_buckets == 1 || noise_parameter == 1.0 {
        return Ok(0.0);
    }
    if noise_parameter == 0.0 {
        return Ok(f64::INFINITY);
    }
    let (count, spread) = (num_buckets as f64, 1.0 - noise_parameter);
    // P / Q is 1 + (k - 1) (1 - p) on the truth and 1 - (1 - p) elsewhere, of mean 1 under Q.
    let gain = (count - 1.0) * spread;
    let log_elsewhere = if noise_parameter < 0.5 {
        noise_parameter.ln() // the difference from 1 has lost digits
    } else {
        (-spread).ln_1p()
    };
    let moment = |power: f64| {
        let mut excess = LogSum::new();
        excess.add(log_power_gap(gain, gain.ln_1p(), power) - count.ln());
        excess.add(log_power_gap(-spread, log_elsewhere, power) + ((count - 1.0) / count).ln());
        ln_1p_exp(excess.get())
    };
    Ok(moment(order).max(moment(1.0 - order)) / (order - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discrete::randomized_response::{outcomes, zero_out_outcomes};
    use proptest::prelude::*;

    /// The definition evaluated by mpmath at 60 digits.
    #[test]
    fn divergences_match_the_definition() {
        let check = |num_buckets, noise, order, replace: f64, zero: f64| {
            let got = rdp(num_buckets, noise, order).unwrap();
            assert!(
                (got - replace).abs() <= 1e-10 * replace,
                "{noise} {order}: {got} != {replace}"
            );
            let got = zero_out_rdp(num_buckets, noise, order).unwrap();
            assert!(
                (got - zero).abs() <= 1e-10 * zero,
                "{noise} {order}: {got} != {zero}"
            );
        };
        check(2, 0.5, 2.0, 0.847_297_860_387_203_6, 0.287_682_072_451_780_9);
        check(10, 0.1, 5.5, 4.489_901_577_775_327, 2.279_171_645_107_829);
        check(
            100,
            0.999_999,
            1.1,
            1.099_946_103_715_529_5e-10,
            5.444_839_924_826_559e-11,
        );
        check(1000, 0.3, 256.0, 7.754_084_574_029_288, 6.550_111_769_703_352);
        check(3, 1e-9, 40.0, 21.821_878_124_930_76, 20.712_869_295_712_867);
    }

    #[test]
    fn rdp_is_zero_or_infinite_at_the_extremes() {
        assert_eq!(rdp(7, 1.0, 3.0).unwrap(), 0.0);
        assert_eq!(rdp(1, 0.0, 3.0).unwrap(), 0.0);
        assert_eq!(rdp(7, 0.0, 3.0).unwrap(), f64::INFINITY);
        assert_eq!(zero_out_rdp(7, 1.0, 3.0).unwrap(), 0.0);
        assert_eq!(zero_out_rdp(7, 0.0, 3.0).unwrap(), f64::INFINITY);
        for (buckets, noise, order) in [(0, 0.5, 2.0), (2, 1.5, 2.0), (2, f64::NAN, 2.0), (2, 0.5, 1.0)] {
            assert!(rdp(buckets, noise, order).is_err() && zero_out_rdp(buckets, noise, order).is_err());
        }
    }

    proptest! {
        #[test]
        fn rdp_matches_the_divergence_of_the_outcomes(
            num_buckets in 2u64..1000, noise in 0.001f64..0.99, order in 1.01f64..300.0,
        ) {
            let pair = outcomes(num_buckets, noise).unwrap();
            let want = pair.renyi_divergence(order);
            let got = rdp(num_buckets, noise, order).unwrap();
            prop_assert!((got - want).abs() < 1e-10 * (1.0 + want) + 1e-14 / (order - 1.0), "{got} {want}");
            let pair = zero_out_outcomes(num_buckets, noise).unwrap();
            let want = pair.renyi_divergence(order).max(pair.reversed().renyi_divergence(order));
            let got = zero_out_rdp(num_buckets, noise, order).unwrap();
            prop_assert!((got - want).abs() < 1e-10 * (1.0 + want) + 1e-14 / (order - 1.0), "{got} {want}");
        }
    }
}

//! Randomised response over a fixed number of buckets: with probability `noise_parameter` a uniform bucket,
//! else the true one.
//!
//! # Source
//! Warner (1965); the parametrisation of dp-accounting, in which a uniform draw may also hit the truth.

use super::{Outcomes, at_least_one};
use crate::AccountingError;
use crate::error::ensure;

/// Outcomes when the one true bucket is exchanged for another (replace-one).
///
/// Buckets that are true under neither neighbour have loss 0 and are merged.
///
/// # Guarantee
/// Exact, under replace-one; pure epsilon is `ln(1 + k (1 - p) / p)`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `num_buckets` is 0 or `noise_parameter` is not in `[0, 1]`.
pub fn outcomes(num_buckets: u64, noise_parameter: f64) -> Result<Outcomes, AccountingError> {
    let Buckets { truth, other, rest } = buckets(num_buckets, noise_parameter)?;
    if num_buckets == 1 {
        return Ok(certain());
    }
    Ok(Outcomes {
        log_p: vec![truth.ln(), other.ln(), rest.ln()],
        log_q: vec![other.ln(), truth.ln(), rest.ln()],
        missing_p: 0.0,
        missing_q: 0.0,
    })
}

/// Outcomes when the record is blanked out: its neighbour answers with a uniform bucket.
///
/// # Guarantee
/// Exact, under zero-out (the neighbour's answer does not depend on any record); both directions count.
///
/// # Errors
/// As [`outcomes`].
pub(crate) fn zero_out_outcomes(num_buckets: u64, noise_parameter: f64) -> Result<Outcomes, AccountingError> {
    let Buckets { truth, .. } = buckets(num_buckets, noise_parameter)?;
    if num_buckets == 1 {
        return Ok(certain());
    }
    let count = num_buckets as f64;
    let share = (count - 1.0) / count;
    Ok(Outcomes {
        log_p: vec![truth.ln(), noise_parameter.ln() + share.ln()],
        log_q: vec![-count.ln(), share.ln()],
        missing_p: 0.0,
        missing_q: 0.0,
    })
}

/// Probabilities of the true bucket, of one other, and of all but two.
pub(crate) struct Buckets {
    pub(crate) truth: f64,
    pub(crate) other: f64,
    pub(crate) rest: f64,
}

pub(crate) fn buckets(num_buckets: u64, noise_parameter: f64) -> Result<Buckets, AccountingError> {
    at_least_one("num_buckets", num_buckets)?;
    let holds = (0.0..=1.0).contains(&noise_parameter);
    ensure(holds, "noise_parameter", "a number in [0, 1]", noise_parameter)?;
    let count = num_buckets as f64;
    let other = noise_parameter / count;
    Ok(Buckets {
        truth: (1.0 - noise_parameter) + other,
        other,
        rest: noise_parameter * ((count - 2.0).max(0.0) / count),
    })
}

/// One bucket: the answer is known beforehand.
fn certain() -> Outcomes {
    Outcomes {
        log_p: vec![0.0],
        log_q: vec![0.0],
        missing_p: 0.0,
        missing_q: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delta, Epsilon};
    use proptest::prelude::*;

    fn epsilon(outcomes: &Outcomes, delta: f64) -> Option<f64> {
        outcomes
            .epsilon(Delta::new(delta).unwrap())
            .ok()
            .map(Epsilon::get)
    }

    /// dp-accounting 0.6.0 reports 1.0986986666657776 for two buckets at 1/2; the exact value is `ln(3 -
    /// delta / P(other))`.
    #[test]
    fn two_buckets_have_the_epsilon_in_closed_form() {
        let got = epsilon(&outcomes(2, 0.5).unwrap(), 1e-6).unwrap();
        assert!((got - (3.0 - 4e-6f64).ln()).abs() < 1e-14, "{got}");
        assert!(got <= 1.098_698_666_665_777_6 && got > 1.098_698_666_665_777_6 - 1e-4);
    }

    #[test]
    fn epsilon_is_zero_or_absent_at_the_extremes() {
        assert_eq!(epsilon(&outcomes(5, 1.0).unwrap(), 1e-12), Some(0.0));
        assert_eq!(epsilon(&outcomes(1, 0.3).unwrap(), 1e-12), Some(0.0));
        assert_eq!(epsilon(&outcomes(5, 0.0).unwrap(), 1e-12), None);
        assert_eq!(epsilon(&zero_out_outcomes(5, 0.0).unwrap(), 1e-12), None);
        assert_eq!(epsilon(&zero_out_outcomes(1, 0.0).unwrap(), 1e-12), Some(0.0));
    }

    #[test]
    fn noise_and_buckets_out_of_range_are_refused() {
        for noise in [-0.1, 1.1, f64::NAN] {
            assert!(outcomes(3, noise).is_err() && zero_out_outcomes(3, noise).is_err());
        }
        assert!(outcomes(0, 0.5).is_err());
    }

    proptest! {
        #[test]
        fn zeroing_out_and_more_noise_never_raise_delta(
            num_buckets in 2u64..1000, noise in 0.0f64..1.0, epsilon in 0.0f64..8.0,
        ) {
            let (replace, zero) = (outcomes(num_buckets, noise).unwrap(), zero_out_outcomes(num_buckets, noise).unwrap());
            for logs in [&replace.log_p, &replace.log_q, &zero.log_p, &zero.log_q] {
                let total: f64 = logs.iter().map(|log| log.exp()).sum();
                prop_assert!((total - 1.0).abs() < 1e-12);
            }
            // Zeroing out moves less than replacing.
            let epsilon = Epsilon::new(epsilon).unwrap();
            prop_assert!(zero.delta(epsilon) <= replace.delta(epsilon) + 1e-12);
            let noisier = outcomes(num_buckets, noise + 0.1 * (1.0 - noise)).unwrap();
            prop_assert!(noisier.delta(epsilon) <= replace.delta(epsilon) + 1e-12);
        }
    }
}

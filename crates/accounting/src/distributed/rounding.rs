//! Sensitivity of a clipped vector after randomised rounding to a grid.
//!
//! # Source
//! Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
//! Aggregation" (ICML 2021), Proposition 22 and Algorithm 1.

use crate::AccountingError;
use crate::discrete::{at_least_one, positive};
use crate::error::ensure;

/// Largest norms of a vector of bounded L2 norm after every coordinate was rounded at random to one of its two
/// neighbours on a grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundedSensitivity {
    dimension: u64,
    granularity: f64,
    l2: f64,
    l1: f64,
}

impl RoundedSensitivity {
    /// Computes the sensitivity of vectors of L2 norm at most `clip_norm` in `dimension` coordinates. They are rounded to a grid of step
    /// `granularity` (`gamma`; the inverse of the scale).
    ///
    /// `conditional_beta` is the constant of conditional rounding: clients round again until the norm is at
    /// most `c^2 + d/4 + sqrt(2 ln(1/beta)) (c + sqrt(d)/2)` in grid steps. 0 means that every rounding is
    /// accepted, and the worst one counts.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `dimension` is 0, `clip_norm` or `granularity` is not a finite number
    /// > 0, or `conditional_beta` is not in `[0, 1)`.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::distributed::RoundedSensitivity;
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let rounded = RoundedSensitivity::new(1.0, 1e-3, 1024, (-0.5f64).exp())?;
    /// assert!(rounded.l2() > 1.0006 && rounded.l2() < 1.0007);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        clip_norm: f64,
        granularity: f64,
        dimension: u64,
        conditional_beta: f64,
    ) -> Result<Self, AccountingError> {
        positive("clip_norm", clip_norm)?;
        positive("granularity", granularity)?;
        at_least_one("dimension", dimension)?;
        let holds = (0.0..1.0).contains(&conditional_beta);
        ensure(holds, "conditional_beta", "a number in [0, 1)", conditional_beta)?;
        // c and d of the paper, in grid steps.
        let (c, d) = (clip_norm / granularity, dimension as f64);
        let worst = c + d.sqrt();
        let norm = if conditional_beta > 0.0 {
            let deviation = (-2.0 * conditional_beta.ln()).sqrt() * (c + 0.5 * d.sqrt());
            worst.min((c * c + 0.25 * d + deviation).sqrt())
        } else {
            worst
        };
        let l2 = positive("rounded norm", norm * granularity)?;
        Ok(Self {
            dimension,
            granularity,
            l2,
            // On integers |x| <= x^2, so the L1 norm is also at most the squared L2 norm.
            l1: l2 * d.sqrt().min(norm),
        })
    }

    /// An integer moved by `moved` steps of a grid of step 1: nothing left to round.
    #[cfg(test)]
    pub(super) fn on_grid_for_tests(moved: f64) -> Self {
        Self {
            dimension: 1,
            granularity: 1.0,
            l2: moved,
            l1: moved,
        }
    }

    /// Number of coordinates.
    #[must_use]
    pub fn dimension(&self) -> u64 {
        self.dimension
    }

    /// Step of the grid.
    #[must_use]
    pub(crate) fn granularity(&self) -> f64 {
        self.granularity
    }

    /// L2 norm after rounding, in the unit of the clip norm.
    #[must_use]
    pub fn l2(&self) -> f64 {
        self.l2
    }

    /// L1 norm after rounding, in the unit of the clip norm.
    #[must_use]
    pub fn l1(&self) -> f64 {
        self.l1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rounded(clip: f64, granularity: f64, dimension: u64, beta: f64) -> RoundedSensitivity {
        RoundedSensitivity::new(clip, granularity, dimension, beta).unwrap()
    }

    /// The formulas of google-research/federated, distributed_dp/accounting_utils.py.
    #[test]
    fn norms_match_the_reference_formulas() {
        let check = |sensitivity: RoundedSensitivity, l2: f64, l1: f64| {
            assert!((sensitivity.l2() - l2).abs() <= 1e-12 * l2, "{sensitivity:?}");
            assert!((sensitivity.l1() - l1).abs() <= 1e-12 * l1, "{sensitivity:?}");
        };
        let beta = (-0.5f64).exp();
        check(
            rounded(1.0, 1e-3, 1024, beta),
            1.000_635_797_880_527_6,
            32.020_345_532_176_88,
        );
        check(rounded(1.0, 0.1, 256, 0.0), 2.6, 41.6);
    }

    #[test]
    fn norms_steps_and_constants_out_of_range_are_refused() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(RoundedSensitivity::new(value, 1.0, 1, 0.0).is_err());
            assert!(RoundedSensitivity::new(1.0, value, 1, 0.0).is_err());
        }
        for beta in [-0.1, 1.0, f64::NAN] {
            assert!(RoundedSensitivity::new(1.0, 1.0, 1, beta).is_err());
        }
        assert!(RoundedSensitivity::new(1.0, 1.0, 0, 0.0).is_err());
        assert!(RoundedSensitivity::new(1e300, 1e-300, 1, 0.0).is_err());
    }

    proptest! {
        #[test]
        fn rounded_norms_rise_with_clip_norm_granularity_and_dimension(
            clip in 0.1f64..100.0, granularity in 0.001f64..1.0, d in 1u64..100_000, beta in 0.01f64..0.9,
        ) {
            let base = rounded(clip, granularity, d, beta);
            prop_assert!(base.l2() >= clip * (1.0 - 1e-12));
            prop_assert!(base.l1() >= base.l2() * (1.0 - 1e-12));
            prop_assert!(rounded(clip * 1.1, granularity, d, beta).l2() > base.l2());
            prop_assert!(rounded(clip, granularity * 1.1, d, beta).l2() >= base.l2());
            prop_assert!(rounded(clip, granularity, d + 1, beta).l2() >= base.l2());
            prop_assert!(rounded(clip, granularity, d, 0.5 * beta).l2() >= base.l2());
            prop_assert!(rounded(clip, granularity, d, 0.0).l2() >= base.l2());
        }
    }
}

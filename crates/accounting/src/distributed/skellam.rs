//! Skellam noise: the difference of two Poisson variables, closed under summation.
//!
//! # Source
//! Agarwal, Kairouz, Liu, "The Skellam Mechanism for Differentially Private Federated Learning" (NeurIPS
//! 2021), Corollary 4.1.

use super::RoundedSensitivity;
use crate::AccountingError;
use crate::discrete::positive;
use crate::error::finite_order;

/// Skellam noise on a grid. The noise of any number of clients adds up to it exactly, so only the total matters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistributedSkellam {
    sensitivity: RoundedSensitivity,
    central_stddev: f64,
}

impl DistributedSkellam {
    /// Noise of standard deviation `central_stddev` in all (in the unit of the clip norm), on the grid of
    /// `sensitivity`; `n` clients each add noise of standard deviation `central_stddev / sqrt(n)`.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `central_stddev` is not a finite number > 0.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::distributed::{DistributedSkellam, RoundedSensitivity};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let sensitivity = RoundedSensitivity::new(1.0, 1e-3, 1024, (-0.5f64).exp())?;
    /// let mechanism = DistributedSkellam::new(sensitivity, 1.0)?;
    /// assert!((mechanism.rdp(8.0)? - 4.005).abs() < 1e-3); // Gaussian on the rounded vector: 4.005
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(sensitivity: RoundedSensitivity, central_stddev: f64) -> Result<Self, AccountingError> {
        positive("central_stddev", central_stddev)?;
        Ok(Self {
            sensitivity,
            central_stddev,
        })
    }

    /// Renyi divergence of one noisy sum at `order` (> 1).
    ///
    /// # Guarantee
    /// An upper bound, under the relation of [`distributed`](crate::distributed). The corollary is proven at
    /// integer orders; between them the chord of `(a - 1) D_a` is taken, which is convex and 0 at order 1.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `order` is not a finite number > 1.
    pub fn rdp(&self, order: f64) -> Result<f64, AccountingError> {
        let order = finite_order(order)?;
        let (low, share) = (order.floor(), order.fract());
        if share == 0.0 {
            return Ok(self.at_integer(order));
        }
        let below = if low > 1.0 {
            (low - 1.0) * self.at_integer(low)
        } else {
            0.0
        };
        let above = low * self.at_integer(low + 1.0);
        Ok(((1.0 - share) * below + share * above) / (order - 1.0))
    }

    fn at_integer(&self, order: f64) -> f64 {
        let (l2, l1) = (self.sensitivity.l2(), self.sensitivity.l1());
        // mu: variance; s: grid steps per unit.
        let (mu, s) = (
            self.central_stddev * self.central_stddev,
            self.sensitivity.granularity().recip(),
        );
        let square = l2 * l2;
        let fine = ((2.0 * order - 1.0) * s * square + 6.0 * l1) / (4.0 * s * s * s * mu * mu);
        let coarse = 3.0 * l1 / (2.0 * s * mu);
        order * square / (2.0 * mu) + fine.min(coarse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discrete::Outcomes;
    use crate::distributed::tests::check_divergences;
    use proptest::prelude::*;

    fn mechanism(clip: f64, granularity: f64, d: u64, beta: f64, stddev: f64) -> DistributedSkellam {
        let sensitivity = RoundedSensitivity::new(clip, granularity, d, beta).unwrap();
        DistributedSkellam::new(sensitivity, stddev).unwrap()
    }

    /// The formulas of google-research/federated, distributed_dp/accounting_utils.py.
    #[test]
    fn divergences_match_the_reference_formulas() {
        let check = |mechanism: DistributedSkellam, steps, delta: f64, want: f64, at_8: f64| {
            check_divergences(|order| steps * mechanism.rdp(order).unwrap(), delta, want, at_8);
        };
        let fine = mechanism(1.0, 1e-3, 1024, (-0.5f64).exp(), 1.0);
        check(fine, 100.0, 1e-6, 112.556_496_095_296_23, 400.509_180_280_051_85);
        let coarse = mechanism(1.0, 0.1, 256, 0.0, 0.5);
        check(coarse, 1.0, 1e-5, 38.976_231_103_850_34, 113.214_400_000_000_01);
    }

    /// `ln P(X = x)`, `x >= 0`, for a Skellam variable of variance `mu`, by its power series: a sum over the
    /// smaller of the two Poisson variables.
    fn log_skellam(mu: f64, x: i64) -> f64 {
        let half = (0.5 * mu).ln();
        let mut sum = crate::special::LogSum::new();
        for k in 0..4000 {
            let (k, x) = (f64::from(k), x.abs() as f64);
            sum.add((2.0 * k + x) * half - libm::lgamma(k + 1.0) - libm::lgamma(k + x + 1.0));
        }
        sum.get() - mu
    }

    /// The bound against the divergence summed from the distribution, one coordinate.
    #[test]
    #[ignore = "slow"]
    fn the_bound_is_above_the_exact_divergence() {
        for (mu, shift) in [(0.5, 1), (1.0, 2), (4.0, 1), (30.0, 3), (200.0, 10)] {
            let reach = 60 + (20.0 * f64::sqrt(mu)) as i64;
            let pair = Outcomes {
                log_p: (-reach..=reach + shift).map(|x| log_skellam(mu, x)).collect(),
                log_q: (-reach..=reach + shift)
                    .map(|x| log_skellam(mu, x - shift))
                    .collect(),
                missing_p: 0.0,
                missing_q: 0.0,
            };
            let moved = shift as f64;
            // A vector already on the grid: its norm is the sensitivity.
            let sensitivity = RoundedSensitivity::on_grid_for_tests(moved);
            let mechanism = DistributedSkellam::new(sensitivity, mu.sqrt()).unwrap();
            for order in [1.2, 2.0, 2.5, 3.0, 5.0, 8.0, 8.4] {
                let (bound, exact) = (mechanism.rdp(order).unwrap(), pair.renyi_divergence(order));
                assert!(exact <= bound, "{mu} {shift} {order}: {exact} > {bound}");
            }
        }
    }

    #[test]
    fn deviations_and_orders_out_of_range_are_refused() {
        let sensitivity = RoundedSensitivity::new(1.0, 0.1, 10, 0.0).unwrap();
        for stddev in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(DistributedSkellam::new(sensitivity, stddev).is_err());
        }
        let mechanism = DistributedSkellam::new(sensitivity, 1.0).unwrap();
        for order in [1.0, 0.0, f64::NAN, f64::INFINITY] {
            assert!(mechanism.rdp(order).is_err());
        }
    }

    proptest! {
        #[test]
        fn rdp_rises_with_clip_norm_and_falls_with_noise(
            clip in 0.5f64..5.0, gamma in 0.001f64..0.5, d in 1u64..5000, stddev in 0.1f64..10.0, order in 1.1f64..100.0,
        ) {
            let rdp = |clip, gamma, d, stddev, order| mechanism(clip, gamma, d, 0.3, stddev).rdp(order).unwrap();
            let base = rdp(clip, gamma, d, stddev, order);
            prop_assert!(base > 0.0);
            prop_assert!(rdp(clip * 1.1, gamma, d, stddev, order) >= base);
            prop_assert!(rdp(clip, gamma * 1.1, d, stddev, order) >= base);
            prop_assert!(rdp(clip, gamma, d + 1, stddev, order) >= base);
            prop_assert!(rdp(clip, gamma, d, stddev * 1.1, order) <= base);
            prop_assert!(rdp(clip, gamma, d, stddev, order * 1.1) >= base * (1.0 - 1e-12));
        }
    }
}

//! Discrete Gaussian noise to which each client adds a part.
//!
//! # Source
//! Kairouz, Liu, Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
//! Aggregation" (ICML 2021), Proposition 14.

use std::f64::consts::PI;

use super::RoundedSensitivity;
use crate::AccountingError;
use crate::discrete::{at_least_one, positive};
use crate::error::{ensure, finite_order};

/// Discrete Gaussian noise of each of many clients on a grid; its sum is close to, but not itself, a discrete Gaussian.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistributedDiscreteGaussian {
    sensitivity: RoundedSensitivity,
    local_stddev: f64,
    clients: u64,
}

impl DistributedDiscreteGaussian {
    /// The noise of `clients` clients of standard deviation `local_stddev` each (in the unit of the clip norm), on the
    /// grid of `sensitivity`.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `clients` is 0 or `local_stddev` is not a finite number of at least half
    /// a grid step, below which the distance between the sum and a discrete Gaussian is not bounded.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::distributed::{DistributedDiscreteGaussian, RoundedSensitivity};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let sensitivity = RoundedSensitivity::new(1.0, 1e-3, 1024, (-0.5f64).exp())?;
    /// let mechanism = DistributedDiscreteGaussian::new(sensitivity, 0.1, 100)?;
    /// // Total noise 1 on a vector of norm 1: next to the Gaussian's a / 2.
    /// assert!((mechanism.rdp(8.0)? - 4.0).abs() < 0.01);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        sensitivity: RoundedSensitivity,
        local_stddev: f64,
        clients: u64,
    ) -> Result<Self, AccountingError> {
        at_least_one("clients", clients)?;
        positive("local_stddev", local_stddev)?;
        // PRIVACY: the proposition's bound on the sum of two shares needs sigma >= 1/2 on the integers.
        let holds = local_stddev >= 0.5 * sensitivity.granularity();
        let expected = "at least half the granularity";
        ensure(holds, "local_stddev", expected, local_stddev)?;
        Ok(Self {
            sensitivity,
            local_stddev,
            clients,
        })
    }

    /// The bound `tau` on the log-ratio per coordinate between the summed noise of the clients and one discrete
    /// Gaussian of the same variance.
    #[must_use]
    pub fn tau(&self) -> f64 {
        /// The terms fall; from here on the last one computed stands for each of the rest.
        const TERMS: u64 = 10_000;
        let ratio = self.local_stddev / self.sensitivity.granularity();
        let term = |k: u64| (-2.0 * PI * PI * ratio * ratio * (k as f64 / (k as f64 + 1.0))).exp();
        let pairs = self.clients - 1;
        let sum: f64 = (1..=pairs.min(TERMS)).map(term).sum();
        10.0 * (sum + pairs.saturating_sub(TERMS) as f64 * term(TERMS))
    }

    /// Renyi divergence of one noisy sum at `order` (> 1).
    ///
    /// # Guarantee
    /// An upper bound, under the relation of [`distributed`](crate::distributed).
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if `order` is not a finite number > 1.
    pub fn rdp(&self, order: f64) -> Result<f64, AccountingError> {
        let order = finite_order(order)?;
        let (d, tau) = (self.sensitivity.dimension() as f64, self.tau());
        let central = (self.clients as f64).sqrt() * self.local_stddev;
        let (l2, l1) = (self.sensitivity.l2() / central, self.sensitivity.l1() / central);
        let half = 0.5 * order;
        let apart = half * l2 * l2 + tau * d;
        let crossed = half * (l2 * l2 + 2.0 * l1 * tau + tau * tau * d);
        let together = half * (l2 + d.sqrt() * tau).powi(2);
        Ok(apart.min(crossed).min(together))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discrete::{self, Outcomes};
    use crate::distributed::tests::check_divergences;
    use proptest::prelude::*;

    fn mechanism(
        clip: f64,
        gamma: f64,
        d: u64,
        beta: f64,
        stddev: f64,
        clients: u64,
    ) -> DistributedDiscreteGaussian {
        let sensitivity = RoundedSensitivity::new(clip, gamma, d, beta).unwrap();
        DistributedDiscreteGaussian::new(sensitivity, stddev, clients).unwrap()
    }

    /// The formulas of google-research/federated, distributed_dp/accounting_utils.py.
    #[test]
    fn divergences_match_the_reference_formulas() {
        let check =
            |mechanism: DistributedDiscreteGaussian, steps, delta: f64, want: f64, at_8: f64, tau: f64| {
                check_divergences(|order| steps * mechanism.rdp(order).unwrap(), delta, want, at_8);
                let got = mechanism.tau();
                assert!((got - tau).abs() <= 1e-9 * tau, "{got} != {tau}");
            };
        let fine = mechanism(1.0, 1e-3, 1024, (-0.5f64).exp(), 0.1, 100);
        check(fine, 100.0, 1e-6, 112.556_416_196_844_4, 400.508_8, 0.0);
        let coarse = mechanism(1.0, 0.1, 256, 0.0, 0.2, 50);
        check(
            coarse,
            10.0,
            1e-5,
            43.926_631_103_850_376,
            135.200_000_000_000_16,
            7.157_179_647_609_446e-17,
        );
    }

    /// Two and three narrow shares summed outcome by outcome: the bound must hold where tau is not small.
    #[test]
    fn the_bound_is_above_the_enumerated_sum() {
        for (sigma, clients, order) in [(0.5, 2, 2.0), (0.5, 3, 8.0), (0.6, 2, 3.5), (0.9, 3, 16.0)] {
            let one = discrete::gaussian::outcomes(sigma, 1, -60.0).unwrap();
            // Probabilities of one share on [-reach, reach]; the last outcome belongs to Q alone.
            let share: Vec<f64> = one.log_p[..one.log_p.len() - 1]
                .iter()
                .map(|log| log.exp())
                .collect();
            let mut sum = vec![1.0];
            for _ in 0..clients {
                let mut next = vec![0.0; sum.len() + share.len() - 1];
                for (i, a) in sum.iter().enumerate() {
                    for (j, b) in share.iter().enumerate() {
                        next[i + j] += a * b;
                    }
                }
                sum = next;
            }
            let logs: Vec<f64> = sum.iter().map(|mass| mass.ln()).collect();
            let pair = Outcomes {
                log_p: logs[1..].to_vec(),
                log_q: logs[..logs.len() - 1].to_vec(),
                missing_p: 0.0,
                missing_q: 0.0,
            };
            let exact = pair.renyi_divergence(order);
            // A vector that is already on the grid: its norm is the sensitivity.
            let sensitivity = RoundedSensitivity::on_grid_for_tests(1.0);
            let mechanism = DistributedDiscreteGaussian::new(sensitivity, sigma, clients).unwrap();
            let bound = mechanism.rdp(order).unwrap();
            assert!(exact <= bound, "{sigma} {clients} {order}: {exact} > {bound}");
        }
    }

    #[test]
    fn many_clients_take_no_time() {
        let many = mechanism(1.0, 0.1, 10, 0.0, 0.1, u64::MAX);
        assert!(many.tau().is_finite() && many.tau() > 1e9);
        // Where the rest of the sum is bounded by its largest term, the bound is never below the sum.
        let some = mechanism(1.0, 0.1, 10, 0.0, 0.1, 20_000);
        let exact: f64 = (1..20_000)
            .map(|k| (-2.0 * PI * PI * (f64::from(k) / f64::from(k + 1))).exp())
            .sum();
        assert!(some.tau() >= 10.0 * exact * (1.0 - 1e-12) && some.tau() < 10.01 * exact);
    }

    #[test]
    fn noise_below_half_a_grid_step_is_refused() {
        let sensitivity = RoundedSensitivity::new(1.0, 0.1, 10, 0.0).unwrap();
        for stddev in [0.0, 0.049, f64::NAN, f64::INFINITY] {
            assert!(
                DistributedDiscreteGaussian::new(sensitivity, stddev, 5).is_err(),
                "{stddev}"
            );
        }
        assert!(DistributedDiscreteGaussian::new(sensitivity, 1.0, 0).is_err());
        let mechanism = DistributedDiscreteGaussian::new(sensitivity, 1.0, 1).unwrap();
        for order in [1.0, 0.0, f64::NAN, f64::INFINITY] {
            assert!(mechanism.rdp(order).is_err());
        }
    }

    proptest! {
        #[test]
        fn rdp_rises_with_clip_norm_and_falls_with_noise(
            clip in 0.5f64..5.0, gamma in 0.01f64..0.5, d in 1u64..5000, factor in 1.5f64..10.0, clients in 1u64..500,
            order in 1.1f64..100.0,
        ) {
            let stddev = gamma * factor;
            let rdp = |clip, gamma, d, stddev, order| {
                mechanism(clip, gamma, d, 0.3, stddev, clients).rdp(order).unwrap()
            };
            let base = rdp(clip, gamma, d, stddev, order);
            prop_assert!(base > 0.0);
            prop_assert!(rdp(clip * 1.1, gamma, d, stddev, order) >= base);
            prop_assert!(rdp(clip, gamma, d + 1, stddev, order) >= base);
            prop_assert!(rdp(clip, gamma, d, stddev * 1.1, order) <= base);
            prop_assert!(rdp(clip, gamma, d, stddev, order * 1.1) >= base);
        }
    }
}

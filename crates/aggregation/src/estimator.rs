//! Estimators of the weighted average update, with the sensitivity that each one has.

use undertone_mechanisms::{Denominator, RawAverage, RawSum};

use crate::error::{Result, positive};

/// The rule that turns a sum of weighted updates into an average.
///
/// # Source
/// \[DPLM\] section 2.2, `f_f` and `f_c`, and Lemma 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Estimator {
    /// Divides by the actual weight. Its sensitivity has no useful bound, so it is for runs without privacy.
    Exact,
    /// `f_f`: divides by the expected weight of a cohort. This estimator is unbiased.
    FixedDenominator {
        /// `q W`: sampling probability times the total weight of the population.
        expected_weight: f64,
    },
    /// `f_c`: divides by the actual weight, or by a floor if that is larger.
    ClippedDenominator {
        /// `q W_min`: the floor.
        min_weight: f64,
    },
}

impl Estimator {
    /// The L2 sensitivity of the average to one user, added or removed, whose update is clipped to `clip_norm` and
    /// whose weight is at most 1: `S / (q W)` or `2 S / (q W_min)`; `None` for the exact average.
    ///
    /// # Guarantee
    /// Holds for every pair of cohorts that differ by one user. `q W` and `q W_min` must be constants chosen without
    /// looking at the data. For the clipped denominator the average is truncated onto the fixed-point grid, which may
    /// add `sqrt(d) 2^-40`; the exact sensitivity is `2 S / (q W_min + 1)` at most, and the difference,
    /// `2 S / (q W_min (q W_min + 1))`, covers the truncation as long as `q W_min < sqrt(2 S 2^40 / sqrt(d))`
    /// (29,000 for S = 0.8 and four million parameters).
    ///
    /// # Source
    /// \[DPLM\] Lemma 1.
    ///
    /// # Example
    /// ```
    /// use undertone_aggregation::Estimator;
    /// let fixed = Estimator::FixedDenominator { expected_weight: 5000.0 };
    /// assert_eq!(fixed.sensitivity(1.0), Some(1.0 / 5000.0));
    /// assert_eq!(Estimator::Exact.sensitivity(1.0), None);
    /// ```
    #[must_use]
    pub fn sensitivity(&self, clip_norm: f64) -> Option<f64> {
        match self {
            Self::Exact => None,
            Self::FixedDenominator { expected_weight } => Some(clip_norm / expected_weight),
            Self::ClippedDenominator { min_weight } => Some(2.0 * clip_norm / min_weight),
        }
    }

    /// Turns the sum into the average.
    ///
    /// # Errors
    /// A denominator that is not positive and finite.
    pub fn apply(&self, sum: RawSum) -> Result<RawAverage> {
        Ok(sum.average(self.denominator()?)?)
    }

    /// The denominator of the average.
    ///
    /// # Errors
    /// A denominator that is not positive and finite.
    pub fn denominator(&self) -> Result<Denominator> {
        Ok(match *self {
            Self::Exact => Denominator::ObservedWeight,
            Self::FixedDenominator { expected_weight } => {
                Denominator::Fixed(positive("expected_weight", expected_weight)?)
            }
            Self::ClippedDenominator { min_weight } => {
                Denominator::FlooredWeight(positive("min_weight", min_weight)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::check_message;
    use crate::sum::FixedPointSum;
    use proptest::prelude::*;
    use undertone_mechanisms::NonPrivate;

    type User = ([f32; 2], f64);

    fn average(estimator: Estimator, users: &[User]) -> Vec<f64> {
        let sum = FixedPointSum::new(2);
        users
            .iter()
            .for_each(|(update, weight)| sum.add(update, *weight).unwrap());
        let average = estimator.apply(sum.into_raw().unwrap()).unwrap();
        NonPrivate
            .privatize(0, average)
            .unwrap()
            .values()
            .iter()
            .map(|&v| f64::from(v))
            .collect()
    }

    /// Largest change of the average over all ways of leaving one user out.
    fn largest_change(estimator: Estimator, users: &[User]) -> f64 {
        let all = average(estimator, users);
        let change = |left_out: usize| {
            let mut others = users.to_vec();
            others.remove(left_out);
            let without = average(estimator, &others);
            (all[0] - without[0]).hypot(all[1] - without[1])
        };
        (0..users.len()).map(change).fold(0.0, f64::max)
    }

    fn user() -> impl Strategy<Value = User> {
        // Half the users at full norm and full weight, where the bounds bite.
        let full = prop_oneof![Just(1.0), 0.0..1.0];
        let weight = prop_oneof![Just(1.0), 0.0..1.0];
        (0.0..std::f64::consts::TAU, full, weight).prop_map(|(angle, norm, weight): (f64, f64, f64)| {
            let s = 0.999_999 * norm;
            ([(s * angle.cos()) as f32, (s * angle.sin()) as f32], weight)
        })
    }

    const ROUNDING: f64 = 1e-6;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn no_user_moves_the_average_further_than_the_sensitivity(
            users in prop::collection::vec(user(), 1..8),
            denominator in 0.3..8.0f64,
        ) {
            let fixed = Estimator::FixedDenominator { expected_weight: denominator };
            let clipped = Estimator::ClippedDenominator { min_weight: denominator };
            for estimator in [fixed, clipped] {
                let bound = estimator.sensitivity(1.0).unwrap();
                let change = largest_change(estimator, &users);
                prop_assert!(change <= bound + ROUNDING, "{estimator:?}: {change} > {bound}");
            }
            // The sharper bound that the documentation claims for the clipped denominator.
            let sharp = 2.0 / (denominator + 1.0);
            let either = sharp.max(1.0 / denominator);
            prop_assert!(largest_change(clipped, &users) <= either + ROUNDING);
        }
    }

    #[test]
    fn bounds_are_attained() {
        let fixed = Estimator::FixedDenominator { expected_weight: 4.0 };
        assert!(largest_change(fixed, &[([1.0, 0.0], 1.0)]) > 0.25 - ROUNDING);
        // Opposite updates around the floor: 2 S / (F + 1), close to 2 S / F for a large floor.
        let mut users = vec![([1.0, 0.0], 1.0); 50];
        users.push(([-1.0, 0.0], 1.0));
        let clipped = Estimator::ClippedDenominator { min_weight: 50.0 };
        let ratio = largest_change(clipped, &users) / clipped.sensitivity(1.0).unwrap();
        assert!(ratio > 0.98 && ratio <= 1.0, "{ratio}");
    }

    #[test]
    fn undefined_averages_are_refused() {
        let check = |estimator: Estimator, expected: &str| {
            check_message(estimator.apply(RawSum::new(vec![1], 0)), expected);
        };
        check(Estimator::Exact, "average is undefined");
        check(
            Estimator::FixedDenominator { expected_weight: 0.0 },
            "expected_weight must be positive",
        );
        check(
            Estimator::ClippedDenominator { min_weight: f64::NAN },
            "min_weight must be positive",
        );
    }
}

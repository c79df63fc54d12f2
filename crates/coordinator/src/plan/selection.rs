//! The cost of a private sweep: a run that was chosen as the best of a secret number of candidates.
//!
//! # Source
//! Liu and Talwar, "Private Selection from Private Candidates" (STOC 2019); Papernot and Steinke, "Hyperparameter Tuning with Renyi
//! Differential Privacy" (ICLR 2022), Theorem 2, for the geometric distribution.

use rand_core::Rng;
use serde::{Deserialize, Serialize};
use undertone_accounting::rdp::repeat_and_select::{self, Repetitions};
use undertone_accounting::rdp::{conversion, default_orders};
use undertone_accounting::{Adjacency, Delta, Epsilon, Guarantee, OptimalOrder, Recipe, Sampling};
use undertone_mechanisms::{MechanismError, SamplerDistance};
use undertone_present::numbers::upper_bound;

use super::spending::other_points;
use super::{Basis, PrivacyPlan};
use crate::error::{CoordinatorError, Result};
use crate::record::GuaranteeRecord;

/// Largest expected number of candidates.
const MAX_MEAN: f64 = 1e6;

/// The law of the number of candidates of a private sweep: geometric, as the truncated negative binomial distribution of shape 1.
///
/// # Guarantee
/// [`draw`](Self::draw) has exactly the law that `repetitions` states, apart from a mean that is stated a part
/// in 10^15 too large: the coin of each candidate is an integer comparison.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SecretNumber {
    mean: f64,
}

impl SecretNumber {
    /// The law with this mean.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for a mean that is not above 1 and at most a million.
    pub fn new(mean: f64) -> Result<Self> {
        if mean > 1.0 && mean <= MAX_MEAN {
            return Ok(Self { mean });
        }
        let expected = "an expected number of runs above 1, at most 1,000,000";
        Err(CoordinatorError::value("private.mean_runs", expected, mean))
    }

    /// The expected number of candidates.
    #[must_use]
    pub fn mean(self) -> f64 {
        self.mean
    }

    /// The number of 2^64 words for which a candidate is the last one.
    fn threshold(self) -> u64 {
        // PRIVACY: rounded down, so the mean of the coin is never below the one that was asked for.
        (18_446_744_073_709_551_616.0 / self.mean) as u64
    }

    /// The law for the accountant.
    #[must_use]
    pub(crate) fn repetitions(self) -> Repetitions {
        let mean = 18_446_744_073_709_551_616.0 / self.threshold() as f64;
        Repetitions::TruncatedNegativeBinomial {
            shape: 1.0,
            mean: mean * (1.0 + 1e-15),
        }
    }

    /// Draws the number of candidates, at least 1. It must never be revealed.
    pub fn draw(self, generator: &mut impl Rng) -> u64 {
        let threshold = self.threshold();
        let mut number = 1;
        while generator.next_u64() >= threshold {
            number += 1;
        }
        number
    }
}

impl TryFrom<f64> for SecretNumber {
    type Error = CoordinatorError;

    fn try_from(mean: f64) -> Result<Self> {
        Self::new(mean)
    }
}

impl From<SecretNumber> for f64 {
    fn from(number: SecretNumber) -> f64 {
        number.mean
    }
}

/// The cost of a sweep over combinations of settings, of which each candidate draws one uniformly.
///
/// # Guarantee
/// PRIVACY: a candidate draws its combination without looking at data, so at each order its divergence is at most the largest of the
/// combinations'. The candidates are independent, and only the best one by a score that is computed from the released model
/// and public text is kept. Theorem 2 bounds the divergence of that selection. Real samples are within a total variation of ideal
/// ones, so all candidates together are within the expected number of candidates times that.
#[derive(Debug, Clone)]
pub struct SelectionCost {
    number: SecretNumber,
    combinations: usize,
    orders: Vec<f64>,
    selected: Vec<f64>,
    sampler: SamplerDistance,
    adjacency: Adjacency,
    sampling: Sampling,
}

impl SelectionCost {
    /// The cost of a sweep over runs with these plans.
    ///
    /// # Errors
    /// Plans without noise, whose guarantee does not rest on sampling, or of different relations; from the accountant.
    pub fn new(plans: &[PrivacyPlan], number: SecretNumber) -> Result<Self> {
        let orders = default_orders();
        let Some(first) = plans.first() else {
            return Err(CoordinatorError::value("axis", "at least one combination", 0));
        };
        let sampling = match first.sampling {
            crate::sampling::Sampling::Poisson => Sampling::Poisson,
            _ => Sampling::FixedSize,
        };
        let mut largest = vec![0.0_f64; orders.len()];
        let mut sampler = SamplerDistance::NONE;
        for plan in plans {
            let private = plan.private.as_ref();
            match private.map(|private| &private.basis) {
                Some(Basis::Sampling(_)) if !plan.is_estimate() => {}
                _ => {
                    return Err(CoordinatorError::value(
                        "privacy",
                        "noise of its own in every round, under a guarantee that rests on sampling, in every combination of a \
                         private sweep",
                        "other noise, or none",
                    ));
                }
            }
            if plan.adjacency() != first.adjacency() || plan.sampling != first.sampling {
                let expected = "one sampling in all combinations of a private sweep";
                return Err(CoordinatorError::value("cohort.sampling", expected, "several"));
            }
            let (curve, distance) = plan.spent_by_all()?.divergences(&orders)?;
            for (largest, one) in largest.iter_mut().zip(curve) {
                // PRIVACY: a divergence that is no number must not be passed over.
                *largest = if one.is_nan() { f64::NAN } else { largest.max(one) };
            }
            if distance.total_variation() > sampler.total_variation() {
                sampler = distance;
            }
        }
        Ok(Self {
            selected: repeat_and_select::curve(&orders, &largest, number.repetitions())?,
            orders,
            // Of all candidates together, by the expected number of them.
            sampler: sampler.times(number.mean().ceil() as u64 + 1),
            number,
            combinations: plans.len(),
            adjacency: first.adjacency(),
            sampling,
        })
    }

    /// The number of combinations.
    #[must_use]
    pub fn combinations(&self) -> usize {
        self.combinations
    }

    /// The law of the number of candidates.
    #[must_use]
    pub fn number(&self) -> SecretNumber {
        self.number
    }

    /// The guarantee of the selected run; `None` where none can be stated.
    fn at(&self, delta: Delta) -> Result<Option<Guarantee>> {
        let ideal = |delta: Delta| -> Result<Guarantee> {
            let (epsilon, index) = conversion::epsilon(&self.orders, &self.selected, delta.get().ln());
            Ok(Guarantee {
                epsilon: Epsilon::new(epsilon)?,
                delta,
                adjacency: self.adjacency,
                sampling: self.sampling,
                recipe: Recipe::Rdp,
                optimal_order: Some(OptimalOrder {
                    order: self.orders[index],
                    at_edge: index == 0 || index + 1 == self.orders.len(),
                }),
            })
        };
        match self.sampler.guarantee(delta, ideal) {
            Err(CoordinatorError::Mechanism(MechanismError::SamplerExceedsDelta { .. })) => Ok(None),
            other => other.map(Some),
        }
    }
}

impl PrivacyPlan {
    /// Adds the cost of the private sweep that the run is a candidate of.
    #[must_use]
    pub fn with_selection(mut self, cost: Option<SelectionCost>) -> Self {
        if let (Some(private), Some(cost)) = (&mut self.private, cost) {
            private.selection = Some(cost);
        }
        self
    }

    /// The cost of the private sweep that the run is a candidate of.
    #[must_use]
    pub fn selection(&self) -> Option<&SelectionCost> {
        self.private.as_ref()?.selection.as_ref()
    }

    /// The guarantee of the run as the best of its private sweep. It is `None` without a sweep, and where no epsilon can be stated.
    ///
    /// The figure counts all rounds of every combination, whatever the number of rounds that this run made.
    ///
    /// # Errors
    /// From the accountant.
    pub fn selected(&self) -> Result<Option<GuaranteeRecord>> {
        let (Some(private), Some(cost)) = (&self.private, self.selection()) else {
            return Ok(None);
        };
        let (Some(guarantee), Some(planned)) = (cost.at(private.delta)?, self.planned()?) else {
            return Ok(None);
        };
        let points = other_points(private.delta, |delta| cost.at(delta))?;
        Ok(Some(GuaranteeRecord {
            epsilon: guarantee.epsilon.get(),
            recipe: format!(
                "{}; the best of a geometric number of runs, {} expected",
                guarantee.recipe,
                cost.number.mean()
            ),
            sampler_delta: Some(cost.sampler.delta(guarantee.epsilon)),
            points,
            ..planned
        }))
    }

    /// Refuses a private sweep whose selected run would exceed the budget.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`]; from the accountant.
    pub fn check_selected(&self) -> Result<()> {
        let budget = self.private.as_ref().and_then(|private| private.max_epsilon);
        let (Some(budget), Some(_)) = (budget, self.selection()) else {
            return Ok(());
        };
        // PRIVACY: a sweep without a statable epsilon exceeds every budget.
        let epsilon = self
            .selected()?
            .map_or(f64::INFINITY, |selected| selected.epsilon);
        // Computed again on another machine, the last digits may differ.
        if epsilon * (1.0 - 1e-7) <= budget {
            return Ok(());
        }
        Err(CoordinatorError::value(
            "privacy.max_epsilon",
            format!("at least the {} of the private sweep", upper_bound(epsilon)),
            budget,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    /// False-alarm rate below 1e-5: each of ten counts is compared at five standard deviations, and the seed is fixed.
    #[test]
    fn the_number_of_candidates_is_geometric() {
        let number = SecretNumber::new(4.0).unwrap();
        let mut generator = ChaCha20Rng::from_seed([9; 32]);
        let draws = 20_000;
        let mut counts = [0_u32; 10];
        for _ in 0..draws {
            let drawn = number.draw(&mut generator);
            assert!(drawn >= 1);
            if let Some(count) = counts.get_mut(drawn as usize - 1) {
                *count += 1;
            }
        }
        for (count, k) in counts.iter().zip(0..) {
            let rate = 0.25 * 0.75_f64.powi(k);
            let deviation = (f64::from(draws) * rate * (1.0 - rate)).sqrt();
            let distance = (f64::from(*count) - f64::from(draws) * rate).abs();
            assert!(distance < 5.0 * deviation, "{k}: {count}");
        }
    }

    #[test]
    fn the_stated_mean_is_never_below_that_of_the_coin() {
        for mean in [1.000_001, 1.5, 3.0, 10.0, 1e6] {
            let number = SecretNumber::new(mean).unwrap();
            let Repetitions::TruncatedNegativeBinomial { shape, mean: stated } = number.repetitions() else {
                panic!("another law");
            };
            assert_eq!(shape, 1.0);
            // 1 / (threshold / 2^64), with the threshold as an integer.
            assert!(
                stated * (number.threshold() as f64 / f64::exp2(64.0)) >= 1.0,
                "{mean}"
            );
            assert!(stated >= mean && stated < mean * (1.0 + 1e-9), "{mean}: {stated}");
        }
        for mean in [1.0, 0.0, -3.0, f64::NAN, f64::INFINITY, 1e7] {
            assert!(SecretNumber::new(mean).is_err(), "{mean}");
        }
    }
}

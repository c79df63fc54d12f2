//! Curves of everything composed: Renyi divergences, and what a test can find out.

use super::{Accountant, LOG_TAIL_OF_DELTAS};
use crate::error::ensure;
use crate::pld::Composition;
use crate::search::minimum_within;
use crate::{AccountingError, Adjacency, Delta, Epsilon, Recipe, rdp};

/// The delta whose epsilon bounds the search for the best point of a trade-off curve.
const SMALLEST_DELTA: f64 = 1e-12;
/// Relative accuracy of that epsilon: the error of the rate is about its square.
const ACCURACY: f64 = 1e-5;
/// Max number of compositions in a search. Most end after three.
const MAX_COMPOSITIONS: usize = 12;

impl Accountant {
    /// Renyi divergences of everything composed at `orders`, by any recipe.
    ///
    /// # Errors
    /// The errors of [`rdp::curve`], for each event.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Event, NoiseMultiplier, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mut accountant = Accountant::new(Recipe::Pld);
    /// accountant.compose(&Event::Gaussian { noise_multiplier: NoiseMultiplier::new(2.0)? }, 10)?;
    /// assert_eq!(accountant.curve(&[2.0, 8.0])?, [2.5, 10.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn curve(&self, orders: &[f64]) -> Result<Vec<f64>, AccountingError> {
        let adjacency = self.adjacency.unwrap_or(Adjacency::AddOrRemoveOne);
        let mut total = vec![0.0; orders.len()];
        for (event, rounds) in self.events() {
            let once = rdp::curve_under(event, adjacency, orders)?;
            for (sum, value) in total.iter_mut().zip(once) {
                *sum += rounds as f64 * value;
            }
        }
        Ok(total)
    }

    /// An upper bound on the true positive rate of any test between two neighbours that raises a false alarm with
    /// probability `false_positive_rate`.
    ///
    /// # Guarantee
    /// Every epsilon with its delta bounds the rate by `e^epsilon a + delta` and by `1 - e^-epsilon (1 - a - delta)` at the
    /// false positive rate `a`. The answer is the smallest of those that a search of epsilon finds, so it holds wherever
    /// the search ends.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for a rate outside `[0, 1]`.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Event, NoiseMultiplier, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mut accountant = Accountant::new(Recipe::ExactGaussian);
    /// accountant.compose(&Event::Gaussian { noise_multiplier: NoiseMultiplier::new(1.0)? }, 1)?;
    /// // The best test of a shift by one standard deviation at 5 %.
    /// assert!((accountant.true_positive_rate(0.05)? - 0.259_511).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    pub fn true_positive_rate(&self, false_positive_rate: f64) -> Result<f64, AccountingError> {
        let alarm = false_positive_rate;
        ensure(
            (0.0..=1.0).contains(&alarm),
            "false_positive_rate",
            "a number in [0, 1]",
            alarm,
        )?;
        if self.rounds == 0 {
            return Ok(alarm);
        }
        // Without a finite epsilon there is nothing to search: a test may find out everything.
        let Ok((largest, _)) = self.epsilon(Delta::new(SMALLEST_DELTA)?) else {
            return Ok(1.0);
        };
        if !largest.is_finite() {
            return Ok(1.0);
        }
        let by_alarms = |epsilon: f64, delta: f64| epsilon.exp() * alarm + delta;
        let by_misses = |epsilon: f64, delta: f64| 1.0 - (-epsilon).exp() * (1.0 - alarm - delta);
        let smallest = if self.recipe == Recipe::Pld {
            let composition = self.composition(LOG_TAIL_OF_DELTAS)?;
            let smallest = |bound: &Bound<'_>| smallest_composed(&composition, largest, bound);
            smallest(&by_alarms).min(smallest(&by_misses))
        } else {
            let delta = |epsilon: f64| {
                let stated = Epsilon::new(epsilon).and_then(|epsilon| self.delta_for(epsilon));
                stated.map_or(1.0, |guarantee| guarantee.delta.get())
            };
            smallest(largest, &delta, &by_alarms)
                .0
                .min(smallest(largest, &delta, &by_misses).0)
        };
        Ok(smallest.clamp(alarm, 1.0))
    }
}

/// A bound on a rate from an epsilon and its delta.
type Bound<'a> = dyn Fn(f64, f64) -> f64 + 'a;

/// The smallest value of a bound over epsilons from 0 to `largest`, and its epsilon. A bound has one valley: delta is convex in
/// `e^epsilon`.
fn smallest(largest: f64, delta: &dyn Fn(f64) -> f64, bound: &Bound<'_>) -> (f64, f64) {
    let mut found = (bound(0.0, delta(0.0)), 0.0);
    minimum_within(0.0, largest, ACCURACY, |epsilon| {
        let value = bound(epsilon, delta(epsilon));
        if value < found.0 {
            found = (value, epsilon);
        }
        value
    });
    found
}

/// The smallest value of a bound by loss distributions.
///
/// A composition made for one epsilon bounds delta at every epsilon, and the bound is tight near that one. The search looks for the valley on
/// the curve of one composition. It then composes for the epsilon that it found, until it finds the same epsilon again.
fn smallest_composed(composition: &Composition, largest: f64, bound: &Bound<'_>) -> f64 {
    let (mut best, mut at) = (1.0f64, 0.5 * largest);
    for _ in 0..MAX_COMPOSITIONS {
        let (value, next) = composition.near(at, |log_delta| {
            let delta = |epsilon: f64| log_delta(epsilon).exp().max(f64::MIN_POSITIVE);
            smallest(largest, &delta, bound)
        });
        best = best.min(value);
        if (next - at).abs() <= ACCURACY * next.max(at) {
            break;
        }
        at = next;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, NoiseMultiplier, Recipe, SamplingProbability};

    /// The best test of one Laplace release: below the median its power is `e^{1/b} a`, above it the mirror image.
    #[test]
    #[ignore = "slow"]
    fn laplace_noise_has_its_trade_off_curve() {
        let mut accountant = Accountant::new(Recipe::Pld);
        accountant.compose(&Event::Laplace { scale: 0.8 }, 1).unwrap();
        let rise = f64::exp(1.0 / 0.8);
        for alarm in [0.0, 0.01, 0.1, 0.3, 0.6, 0.99, 1.0] {
            let want = if alarm < 0.5 / rise {
                rise * alarm
            } else if alarm < 0.5 {
                1.0 - 0.25 / (rise * alarm)
            } else {
                1.0 - (1.0 - alarm) / rise
            };
            let got = accountant.true_positive_rate(alarm).unwrap();
            assert!(got >= want - 1e-12 && got <= want + 1e-5, "{alarm}: {got} {want}");
        }
        assert!(accountant.true_positive_rate(1.1).is_err());
    }

    /// A search that composes anew for each epsilon, as the other recipes do it.
    #[test]
    fn a_rate_from_a_few_compositions_is_that_of_a_composition_per_epsilon() {
        let mut accountant = Accountant::new(Recipe::Pld);
        accountant.compose(&Event::Laplace { scale: 20.0 }, 50).unwrap();
        let composition = accountant.composition(LOG_TAIL_OF_DELTAS).unwrap();
        let delta = |epsilon: f64| {
            let stated = accountant.delta_for(Epsilon::new(epsilon).unwrap());
            stated.map_or(1.0, |guarantee| guarantee.delta.get())
        };
        let alarm = 0.01;
        let bound = |epsilon: f64, delta: f64| epsilon.exp() * alarm + delta;
        let (slow, at) = smallest(3.0, &delta, &bound);
        let fast = smallest_composed(&composition, 3.0, &bound);
        assert!(at > 0.1 && (fast / slow - 1.0).abs() < 1e-7, "{fast} {slow}");
    }

    #[test]
    fn curves_and_rates_of_nothing_and_of_everything() {
        let nothing = Accountant::new(Recipe::Pld);
        assert_eq!(nothing.curve(&[2.0]).unwrap(), [0.0]);
        assert_eq!(nothing.true_positive_rate(0.2).unwrap(), 0.2);
        let mut everything = nothing.clone();
        everything.compose(&Event::NonPrivate, 1).unwrap();
        assert_eq!(everything.true_positive_rate(0.2).unwrap(), 1.0);
        assert!(everything.curve(&[2.0]).is_err());
        let mut sampled = Accountant::new(Recipe::Rdp);
        let event = Event::PoissonGaussian {
            sampling_probability: SamplingProbability::new(0.1).unwrap(),
            noise_multiplier: NoiseMultiplier::new(2.0).unwrap(),
        };
        sampled.compose(&event, 30).unwrap();
        let once = rdp::curve(&event, &[3.0]).unwrap()[0];
        assert_eq!(sampled.curve(&[3.0]).unwrap(), [30.0 * once]);
    }
}

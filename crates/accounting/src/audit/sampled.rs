//! Canaries whose contributions to a round are drawn by independent coins that the attacker does not know.
//!
//! A whitened value `y` of a canary that is in has the law `sum_b w_b N(a b, s^2)`, in units of one contribution, where `w_b` is the
//! probability of `b` contributions. As stated, `a` is 1 and `s` is the noise multiplier. A scorer that knew the coins would rightly show
//! more than the claim.

use core::num::NonZeroU32;

use super::Significance;
use super::distributions::normal_quantile;
use crate::error::{ensure, ensure_any};
use crate::event::binomial;
use crate::{
    Accountant, AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
};

/// The coins that decide how much of a canary is in a round: each of its contributions is in with the same probability.
///
/// A user under Poisson sampling has one contribution. Under example-level sampling a user has one per kept example.
///
/// # Example
/// ```
/// use undertone_accounting::{NoiseMultiplier, SamplingProbability};
/// use undertone_accounting::audit::sampled::SecretCoins;
/// let coins = SecretCoins::poisson(SamplingProbability::new(0.5)?);
/// // ln(0.5 + 0.5 e^0.5), as 2 y - 1 is 1.
/// let score = coins.log_likelihood_ratio(NoiseMultiplier::new(1.0)?, [1.0]);
/// assert!((score - 0.280_929_9).abs() < 1e-7);
/// # Ok::<(), undertone_accounting::AccountingError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecretCoins {
    probability: SamplingProbability,
    contributions: NonZeroU32,
}

/// Probability of all numbers of contributions that no score looks at.
const NEGLECTED: f64 = 1e-15;

impl SecretCoins {
    /// The coins of a user under Poisson sampling.
    #[must_use]
    pub fn poisson(probability: SamplingProbability) -> Self {
        Self::of_examples(probability, NonZeroU32::MIN)
    }

    /// The coins of a user with so many examples, each of which is sampled with this probability.
    #[must_use]
    pub fn of_examples(probability: SamplingProbability, examples: NonZeroU32) -> Self {
        Self {
            probability,
            contributions: examples,
        }
    }

    /// The mean number of contributions to a round.
    #[must_use]
    pub fn mean(&self) -> f64 {
        f64::from(self.contributions.get()) * self.probability.get()
    }

    /// The variance of the number of contributions to a round.
    #[must_use]
    pub fn variance(&self) -> f64 {
        self.mean() * (1.0 - self.probability.get())
    }

    /// The numbers of contributions above zero, with their probabilities. At most one part in `10^15` is left out.
    fn numbers(&self) -> Vec<(f64, f64)> {
        let mut numbers = binomial(self.contributions.get(), self.probability.get());
        let mut rest = 0.0;
        while let Some(&(_, probability)) = numbers.last()
            && numbers.len() > 2
            && rest + probability < NEGLECTED
        {
            rest += probability;
            numbers.pop();
        }
        numbers.retain(|(number, _)| *number > 0.0);
        numbers
    }

    /// Number of terms in the law of one value. Scores and limits take time in proportion to it.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.numbers().len()
    }

    /// The log likelihood ratio of a canary's whitened values, in against out: `sum_t ln sum_b w_b exp((2 b y_t - b^2) / (2 z^2))`.
    #[must_use]
    pub fn log_likelihood_ratio(
        &self,
        noise_multiplier: NoiseMultiplier,
        whitened: impl IntoIterator<Item = f64>,
    ) -> f64 {
        let z = noise_multiplier.get();
        let (scale, numbers) = (0.5 / (z * z), self.numbers());
        let term = |y: f64| mixed(&numbers, |b| b * (2.0 * y - b) * scale);
        whitened.into_iter().map(term).sum()
    }
}

/// `ln(1 + sum_b w_b (e^(x_b) - 1))`: the logarithm of a mixture in which `b = 0` has the rest of the probability.
fn mixed(numbers: &[(f64, f64)], log: impl Fn(f64) -> f64) -> f64 {
    let largest = numbers.iter().map(|&(b, _)| log(b)).fold(0.0, f64::max);
    if largest > 700.0 {
        let scaled = |&(b, w): &(f64, f64)| w * (log(b) - largest).exp();
        // The part of no contribution is below the last digit.
        return largest + numbers.iter().map(scaled).sum::<f64>().ln();
    }
    numbers
        .iter()
        .map(|&(b, w)| w * log(b).exp_m1())
        .sum::<f64>()
        .ln_1p()
}

/// The step of a contribution over the noise, with its one-sided lower limit by profile likelihood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The most likely step, in standard deviations of the noise of one round.
    pub estimate: f64,
    /// The lower limit of the step.
    pub lower: f64,
    /// The most likely standard deviation of the noise, in units of one contribution.
    pub noise: f64,
}

/// The values of canaries, all rounds together.
struct Profile<'a> {
    numbers: Vec<(f64, f64)>,
    members: &'a [f64],
    square: f64,
    count: f64,
}

impl Profile<'_> {
    /// The largest log likelihood with a step of `step` standard deviations, and the standard deviation that reaches it.
    fn at(&self, step: f64, start: f64) -> (f64, f64) {
        let mut std = start;
        let mut value = f64::NEG_INFINITY;
        for _ in 0..50 {
            let (mut weighted, mut mixture) = (0.0, 0.0);
            for &y in self.members {
                let log = |b: f64| b * (step * y / std - 0.5 * b * step * step);
                let term = mixed(&self.numbers, log);
                mixture += term;
                // The mean number of contributions, given the value.
                let part = |&(b, w): &(f64, f64)| b * (w.ln() + log(b) - term).exp();
                weighted += y * self.numbers.iter().map(part).sum::<f64>();
            }
            value = mixture - 0.5 * self.square / (std * std) - self.count * std.ln();
            // The root of the derivative at these weights: an EM step.
            let pull = 0.5 * step * weighted / self.count;
            let next = (pull * pull + self.square / self.count).sqrt() - pull;
            let change = (next / std - 1.0).abs();
            std = next;
            if change < 1e-9 {
                break;
            }
        }
        (value, std)
    }
}

impl SecretCoins {
    /// The lower limit of the step from the values of canaries that were in and of those that were out.
    ///
    /// The limit is the smallest step that the likelihood ratio test accepts, with the noise as a nuisance parameter.
    ///
    /// # Errors
    /// [`AccountingError::Size`] without values of canaries that were in; [`AccountingError::OutOfRange`] for a value that is not finite.
    pub fn step(
        &self,
        members: &[f64],
        non_members: &[f64],
        significance: Significance,
    ) -> Result<Step, AccountingError> {
        ensure_any("values of canaries that were in", members)?;
        let both = || members.iter().chain(non_members);
        let square: f64 = both().map(|y| y * y).sum();
        ensure(
            square.is_finite() && square > 0.0,
            "sum of squares",
            "a finite number > 0",
            square,
        )?;
        let profile = Profile {
            numbers: self.numbers(),
            members,
            square,
            count: (members.len() + non_members.len()) as f64,
        };
        let start = (square / profile.count).sqrt();
        let value = |step: f64| profile.at(step, start).0;
        // The largest value on a doubling grid, then golden section around it.
        let mut high = 0.25;
        while value(2.0 * high) > value(high) && high < 64.0 {
            high *= 2.0;
        }
        let (mut low, mut high) = (0.0, 2.0 * high);
        let golden = 0.5 * (5f64.sqrt() - 1.0);
        let mut inner = (high - golden * (high - low), low + golden * (high - low));
        let mut values = (value(inner.0), value(inner.1));
        while high - low > 1e-4 {
            if values.0 >= values.1 {
                high = inner.1;
                inner = (high - golden * (high - low), inner.0);
                values = (value(inner.0), values.0);
            } else {
                low = inner.0;
                inner = (inner.1, low + golden * (high - low));
                values = (values.1, value(inner.1));
            }
        }
        let estimate = 0.5 * (low + high);
        let (best, noise) = profile.at(estimate, start);
        let limit = best - 0.5 * normal_quantile(significance.get()).powi(2);
        let mut lower = 0.0;
        if value(0.0) < limit {
            let mut accepted = estimate;
            while accepted - lower > 1e-4 * accepted {
                let middle = 0.5 * (lower + accepted);
                match value(middle) < limit {
                    true => lower = middle,
                    false => accepted = middle,
                }
            }
        }
        Ok(Step {
            estimate,
            lower,
            noise,
        })
    }

    /// The epsilon of `rounds` sampled releases with a step of `step` standard deviations, by the accountant of loss distributions.
    ///
    /// # Errors
    /// From the accountant.
    pub fn epsilon(&self, step: f64, rounds: u64, delta: Delta) -> Result<Epsilon, AccountingError> {
        if step <= 0.0 {
            return Epsilon::new(0.0);
        }
        let (sampling_probability, noise_multiplier) = (self.probability, NoiseMultiplier::new(1.0 / step)?);
        let event = match self.contributions.get() {
            1 => Event::PoissonGaussian {
                sampling_probability,
                noise_multiplier,
            },
            group_size => Event::ExampleLevelSampling {
                group_size,
                sampling_probability,
                noise_multiplier,
            },
        };
        let mut accountant = Accountant::new(Recipe::Pld);
        accountant.compose(&event, rounds)?;
        accountant.lower_bound(delta)
    }
}

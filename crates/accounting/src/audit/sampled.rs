//! Canaries whose rounds are drawn by independent coins that the attacker does not know.
//!
//! A whitened value `y` of a canary that is in has the law `(1 - q) N(0, s^2) + q N(a, s^2)`, in units of one contribution. As stated,
//! `a` is 1 and `s` is the noise multiplier. A scorer that knew the coins would rightly show more than the claim.

use super::Significance;
use super::distributions::normal_quantile;
use crate::error::{ensure, ensure_any};
use crate::{
    Accountant, AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
};

/// The log likelihood ratio of a canary's whitened values, in against out: `sum_t ln(1 - q + q exp((2 y_t - 1) / (2 z^2)))`.
#[must_use]
pub fn log_likelihood_ratio(
    sampling_probability: SamplingProbability,
    noise_multiplier: NoiseMultiplier,
    whitened: impl IntoIterator<Item = f64>,
) -> f64 {
    let (q, z) = (sampling_probability.get(), noise_multiplier.get());
    let scale = 0.5 / (z * z);
    let term = |y: f64| mixed(q, (2.0 * y - 1.0) * scale);
    whitened.into_iter().map(term).sum()
}

/// `ln(1 - q + q e^x)`.
fn mixed(q: f64, x: f64) -> f64 {
    if x > 700.0 {
        // The first part is below the last digit; at q = 1 it is absent.
        return q.ln() + x;
    }
    (q * x.exp_m1()).ln_1p()
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
    q: f64,
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
                let log = step * y / std - 0.5 * step * step;
                let term = mixed(self.q, log);
                mixture += term;
                weighted += y * (self.q.ln() + log - term).exp();
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

/// The lower limit of the step from the values of canaries that were in and of those that were out.
///
/// The limit is the smallest step that the likelihood ratio test accepts, with the noise as a nuisance parameter.
///
/// # Errors
/// [`AccountingError::Size`] without values of canaries that were in; [`AccountingError::OutOfRange`] for a value that is not finite.
pub fn step(
    sampling_probability: SamplingProbability,
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
        q: sampling_probability.get(),
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
pub fn epsilon(
    step: f64,
    sampling_probability: SamplingProbability,
    rounds: u64,
    delta: Delta,
) -> Result<Epsilon, AccountingError> {
    if step <= 0.0 {
        return Epsilon::new(0.0);
    }
    let event = Event::PoissonGaussian {
        sampling_probability,
        noise_multiplier: NoiseMultiplier::new(1.0 / step)?,
    };
    let mut accountant = Accountant::new(Recipe::Pld);
    accountant.compose(&event, rounds)?;
    accountant.lower_bound(delta)
}

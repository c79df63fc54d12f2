//! Calibration: from a target guarantee to the parameter that reaches it.
//!
//! Every function returns the safe side: the guarantee recomputed at the returned value is within the target. Every
//! accountant is monotone in the searched parameter. Loss distributions are costly. Their search starts where Renyi
//! divergences and coarse loss distributions, which cost less, predict the answer, so one or two values are tried.

mod parameter;
mod too_many;

use crate::error::{ensure, unreachable};
pub use crate::search::{Bisection, Precision, excess};
use crate::{
    Accountant, AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
    gaussian, pld::ACCURACY as LOSS_ACCURACY,
};

pub use parameter::{Range, parameter};
use too_many::TooMany;

/// Noise multipliers outside this range are not searched.
const NOISE_RANGE: (f64, f64) = (1e-6, 1e12);
/// Smallest sampling probability searched.
const MIN_PROBABILITY: f64 = 1e-15;
/// Numbers of rounds are `f64` while searched; up to here (and beyond) that is exact.
const MAX_ROUNDS: u64 = 1 << 52;
/// Precision at which a search over real numbers ends.
const EXACT: Precision = Precision::Real {
    width: 1e-9,
    close: 0.0,
};
/// Precision at which a search by loss distributions ends. Their epsilon is itself accurate to 8e-7.
const PLD: Precision = Precision::Real {
    width: 1e-7,
    close: 1e-6,
};
/// Precision at which the search for a start by Renyi divergences ends.
const START_PRECISION_RENYI: Precision = Precision::Real {
    width: 1e-3,
    close: 1e-3,
};
/// Precision at which the search for a start by coarse loss distributions ends.
const START_PRECISION_PLD: Precision = Precision::Real {
    width: 1e-3,
    close: 1e-2,
};
/// Relative accuracy of the epsilons that predict an answer first; they cost a fifth of the medium ones.
const COARSE_REL_TOL: f64 = 25.0 * MEDIUM_REL_TOL;
/// Relative accuracy of the epsilons that correct the prediction; they cost a fifth of the final ones.
const MEDIUM_REL_TOL: f64 = 25.0 * LOSS_ACCURACY;
/// Step in the logarithm of a value over which the slope of the predicted excess is taken.
const SLOPE_LOG_STEP: f64 = 5e-3;
/// A steeper slope than this is a jump of the coarse ones, and predicts nothing.
const MAX_SLOPE: f64 = 16.0;

/// The method that computes epsilon.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Recipe(Recipe),
    /// Loss distributions, to a relative accuracy.
    RoughLosses(f64),
}

impl By {
    fn recipe(self) -> Recipe {
        match self {
            Self::Recipe(recipe) => recipe,
            Self::RoughLosses(_) => Recipe::Pld,
        }
    }

    fn epsilon(self, accountant: &Accountant, delta: Delta) -> Result<f64, AccountingError> {
        match self {
            Self::Recipe(_) => Ok(accountant.epsilon(delta)?.0),
            Self::RoughLosses(accuracy) => accountant.rough_epsilon(delta, accuracy),
        }
    }

    /// The distance from a target: of the logarithms of delta where epsilon is 0.
    fn excess(self, accountant: &Accountant, target: (Epsilon, Delta)) -> Result<f64, AccountingError> {
        let (epsilon, delta) = target;
        if epsilon.get() == 0.0 {
            return accountant.excess_of_delta(delta);
        }
        Ok(excess(self.epsilon(accountant, delta)?, epsilon.get()))
    }
}

/// The smallest noise multiplier with which `rounds` Poisson-sampled rounds hold `target`.
///
/// # Guarantee
/// The target holds at the answer and fails at 1 - 1e-9 times the answer. By [`Recipe::Pld`], it fails at 1 - 1e-7
/// times the answer, or epsilon is at least 1 - 1e-6 times the target.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for zero rounds.
/// [`AccountingError::Unreachable`] with the best reachable epsilon: the recipe may have a floor that no
/// noise removes (the moments accountant cannot go below `ln(1/delta) / 32`).
///
/// # Example
/// ```
/// use undertone_accounting::{Delta, Epsilon, Recipe, SamplingProbability, calibrate};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let target = (Epsilon::new(2.0)?, Delta::new(1e-6)?);
/// let z = calibrate::noise_multiplier(target, SamplingProbability::new(0.01)?, 1000, Recipe::Rdp)?;
/// assert_eq!(format!("{:.4}", z.get()), "1.0939");
/// # Ok(())
/// # }
/// ```
pub fn noise_multiplier(
    target: (Epsilon, Delta),
    sampling_probability: SamplingProbability,
    rounds: u64,
    recipe: Recipe,
) -> Result<NoiseMultiplier, AccountingError> {
    noise_multiplier_of(target, rounds, recipe, |noise_multiplier| {
        Event::PoissonGaussian {
            sampling_probability,
            noise_multiplier,
        }
    })
}

/// The smallest noise multiplier that reaches the target, for any event with a noise multiplier (its guarantee must
/// improve with it).
///
/// # Errors
/// The errors of [`noise_multiplier`], and those of composing the event.
pub fn noise_multiplier_of(
    target: (Epsilon, Delta),
    rounds: u64,
    recipe: Recipe,
    event: impl Fn(NoiseMultiplier) -> Event,
) -> Result<NoiseMultiplier, AccountingError> {
    at_least_one(rounds)?;
    let (epsilon, delta) = target;
    let composed_at = |z: f64, by| composed(&event(NoiseMultiplier::new(z)?), rounds, by);
    let excess_at = |z: f64, by: By| by.excess(&composed_at(z, by)?, target);

    // rho with rho + 2 sqrt(rho ln(1/delta)) = epsilon, and the z of that rho per round, as if none were sampled.
    let log_term = -delta.get().ln();
    let root = epsilon.get() / ((log_term + epsilon.get()).sqrt() + log_term.sqrt());
    let search = Bisection {
        safe: NOISE_RANGE.1,
        risky: NOISE_RANGE.0,
        start: (0.5 * rounds as f64).sqrt() / root,
        slope: 2.0,
        precision: precision(recipe),
    };
    let central = |start: f64| -> Option<f64> {
        // Usually too little noise, as that of Renyi divergences is too much: start halfway.
        let sampled = NoiseMultiplier::new(start).map(&event);
        let Ok(Event::PoissonGaussian {
            sampling_probability, ..
        }) = sampled
        else {
            return None;
        };
        let central = central_noise(target, sampling_probability, rounds)?;
        if epsilon.get() > 0.0 {
            return Some((start * central).sqrt());
        }
        // Where large losses decide, the distances in total variation add up.
        let distance = delta.get() / (rounds as f64 * sampling_probability.get());
        let alone = gaussian::noise_multiplier(epsilon, Delta::new(distance).ok()?);
        Some(alone.map_or(central, |alone| alone.get().min(central)))
    };
    let search = started(search, recipe, epsilon, excess_at, central);
    let found = search.run(but_first_error(|z| excess_at(z, By::Recipe(recipe))))?;
    let Some(z) = found else {
        let by = By::Recipe(recipe);
        let best = by.epsilon(&composed_at(search.safe, by)?, delta)?;
        return Err(unreachable("noise_multiplier", target, best, search.safe));
    };
    NoiseMultiplier::new(z)
}

/// The largest number of Poisson-sampled rounds that holds `target`.
///
/// # Errors
/// [`AccountingError::Unreachable`] if one round already exceeds it.
pub fn rounds(
    target: (Epsilon, Delta),
    sampling_probability: SamplingProbability,
    noise_multiplier: NoiseMultiplier,
    recipe: Recipe,
) -> Result<u64, AccountingError> {
    let event = Event::PoissonGaussian {
        sampling_probability,
        noise_multiplier,
    };
    rounds_of(target, &event, recipe)
}

/// The largest number of rounds within the target, for any event.
///
/// # Errors
/// The errors of [`rounds`], and those of composing the event.
pub fn rounds_of(target: (Epsilon, Delta), event: &Event, recipe: Recipe) -> Result<u64, AccountingError> {
    let (epsilon, delta) = target;
    // One round at first: composing more on a clone adds an integer and keeps the curve.
    let once = |recipe| -> Result<Accountant, AccountingError> {
        let mut once = Accountant::new(recipe);
        once.compose(event, 1)?;
        Ok(once)
    };
    let once = (once(recipe)?, once(Recipe::Rdp));
    let composed_at = |rounds: f64, by: By| -> Result<Accountant, AccountingError> {
        let once = if by.recipe() == recipe {
            &once.0
        } else {
            once.1.as_ref().map_err(Clone::clone)?
        };
        let mut accountant = once.clone();
        accountant.compose(event, rounds.round() as u64 - 1)?;
        Ok(accountant)
    };
    let excess_at = |rounds: f64, by: By| by.excess(&composed_at(rounds, by)?, target);
    let search = Bisection {
        safe: 1.0,
        risky: MAX_ROUNDS as f64,
        start: 1.0,
        slope: 0.5,
        precision: Precision::Whole,
    };
    let exactly = By::Recipe(recipe);
    let search = started(search, recipe, epsilon, excess_at, |_| None);
    let mut too_many = TooMany::default();
    match search.run(|rounds| too_many.excess(rounds, excess_at(rounds, exactly)))? {
        Some(rounds) => {
            too_many.after(rounds)?;
            Ok(rounds as u64)
        }
        None => {
            let best = exactly.epsilon(&composed_at(1.0, exactly)?, delta)?;
            Err(unreachable("rounds", target, best, 1.0))
        }
    }
}

/// The largest sampling probability with which `rounds` rounds hold `target`.
///
/// # Guarantee
/// The target holds at the answer and fails at 1 + 1e-9 times the answer. By [`Recipe::Pld`], the tolerances of
/// [`noise_multiplier`] apply.
///
/// # Errors
/// [`AccountingError::Unreachable`] if even a vanishing probability exceeds it.
pub fn sampling_probability(
    target: (Epsilon, Delta),
    noise_multiplier: NoiseMultiplier,
    rounds: u64,
    recipe: Recipe,
) -> Result<SamplingProbability, AccountingError> {
    at_least_one(rounds)?;
    let (epsilon, delta) = target;
    let composed_at = |q: f64, by| {
        let event = Event::PoissonGaussian {
            sampling_probability: SamplingProbability::new(q)?,
            noise_multiplier,
        };
        composed(&event, rounds, by)
    };
    let excess_at = |q: f64, by: By| by.excess(&composed_at(q, by)?, target);
    let search = Bisection {
        safe: MIN_PROBABILITY,
        risky: 1.0,
        start: 1.0,
        slope: 1.0,
        precision: precision(recipe),
    };
    let central = |start: f64| -> Option<f64> {
        // Usually too much, as the answer by Renyi divergences is too little: by far, where epsilon is tiny. Large values
        // are tried sooner than small ones.
        let central = central_probability(target, noise_multiplier, rounds)?;
        if epsilon.get() == 0.0 {
            let whole = gaussian::delta(noise_multiplier, epsilon);
            return Some((delta.get() / (rounds as f64 * whole)).clamp(central, 1.0));
        }
        (central > start).then(|| (start * central).sqrt().max(0.5 * central))
    };
    let search = started(search, recipe, epsilon, excess_at, central);
    let found = search.run(but_first_error(|q| excess_at(q, By::Recipe(recipe))))?;
    let Some(q) = found else {
        let by = By::Recipe(recipe);
        let best = by.epsilon(&composed_at(search.safe, by)?, delta)?;
        return Err(unreachable("sampling_probability", target, best, search.safe));
    };
    SamplingProbability::new(q)
}

fn precision(recipe: Recipe) -> Precision {
    if recipe == Recipe::Pld { PLD } else { EXACT }
}

/// The search from the predicted answer, by loss distributions; other recipes keep their start. `improved` may know a
/// better start than the answer by Renyi divergences.
fn started<E>(
    search: Bisection,
    recipe: Recipe,
    epsilon: Epsilon,
    excess_at: impl Fn(f64, By) -> Result<f64, E>,
    improved: impl Fn(f64) -> Option<f64>,
) -> Bisection {
    if recipe != Recipe::Pld {
        return search;
    }
    // A start that is not found, or is far off, costs time only.
    let mut rough = Bisection {
        precision: START_PRECISION_RENYI,
        ..search
    };
    let by_renyi = rough.run(|value| excess_at(value, By::Recipe(Recipe::Rdp)));
    let start = by_renyi.ok().flatten().unwrap_or(search.start);
    rough.start = improved(start).unwrap_or(start);
    if epsilon.get() == 0.0 {
        // Deltas at epsilon 0 have no coarse answers that a fine one follows from.
        return Bisection {
            start: rough.start,
            ..search
        };
    }
    rough.precision = START_PRECISION_PLD;
    predicted(&rough, excess_at, search.precision.aim()).map_or(
        Bisection {
            start: rough.start,
            ..search
        },
        |(start, slope)| Bisection {
            start,
            slope,
            ..search
        },
    )
}

/// The value at which fine loss distributions should reach `aim`, and the slope there: predicted by coarse ones, what they
/// exceed fine ones by, and one of medium accuracy.
///
/// The excess at accuracy `a` is that at `a = 0` plus nearly the same multiple of `a` everywhere.
fn predicted<E>(
    rough: &Bisection,
    excess_at: impl Fn(f64, By) -> Result<f64, E>,
    aim: f64,
) -> Option<(f64, f64)> {
    let excess_at = |value, accuracy| excess_at(value, By::RoughLosses(accuracy));
    let mut tried = Vec::new();
    let found = rough.run(|value| {
        let excess = excess_at(value, COARSE_REL_TOL)?;
        tried.push((value, excess));
        Ok::<_, E>(excess)
    });
    let found = found.ok()??;
    let (value, here) = tried.into_iter().find(|(value, _)| *value == found)?;
    let nearby = excess_at(value * SLOPE_LOG_STEP.exp(), COARSE_REL_TOL).ok()?;
    let slope = (nearby - here) / SLOPE_LOG_STEP;
    if slope.abs() > MAX_SLOPE {
        return Some((value, rough.slope));
    }
    // Where rough ones exceed fine ones by as much as they may.
    let closer = value * ((aim + COARSE_REL_TOL - here) / slope).exp();
    let there = excess_at(closer, MEDIUM_REL_TOL).ok()?;
    let multiple = (aim + COARSE_REL_TOL - there) / (COARSE_REL_TOL - MEDIUM_REL_TOL);
    let fine = there - multiple * (MEDIUM_REL_TOL - LOSS_ACCURACY);
    let start = closer * ((aim - fine) / slope).exp();
    (start.is_normal() && slope.is_normal()).then_some((start, slope.abs()))
}

/// An estimate of the noise multiplier that reaches the target if a sum of losses is normal: neither bound nor answer.
///
/// # Source
/// Bu, Dong, Long, Su, "Deep Learning with Gaussian Differential Privacy" (2020): `mu = q sqrt(T (e^{1/z^2} - 1))`.
fn central_noise(target: (Epsilon, Delta), q: SamplingProbability, rounds: u64) -> Option<f64> {
    let z = (central_mu(target)? / q.get()).powi(2) / rounds as f64;
    Some(z.ln_1p().sqrt().recip()).filter(|z| z.is_normal())
}

/// An estimate of the sampling probability that reaches the target, with the formula of [`central_noise`].
fn central_probability(target: (Epsilon, Delta), z: NoiseMultiplier, rounds: u64) -> Option<f64> {
    let q = central_mu(target)? / (rounds as f64 * z.get().powi(-2).exp_m1()).sqrt();
    Some(q.min(1.0)).filter(|q| q.is_normal())
}

/// The `mu` of a Gaussian that reaches the target.
fn central_mu((epsilon, delta): (Epsilon, Delta)) -> Option<f64> {
    Some(gaussian::noise_multiplier(epsilon, delta).ok()?.get().recip())
}

/// Passes on an error of the first value, where the event cannot be composed at all, and of a composition that would take too long; at a
/// later value any other error means that the target is missed there.
fn but_first_error(
    excess_at: impl Fn(f64) -> Result<f64, AccountingError>,
) -> impl FnMut(f64) -> Result<f64, AccountingError> {
    let mut first = true;
    move |value| {
        let excess = excess_at(value);
        let first = std::mem::take(&mut first);
        match excess {
            Err(error) if first || matches!(error, AccountingError::TooLarge { .. }) => Err(error),
            excess => Ok(excess.unwrap_or(f64::INFINITY)),
        }
    }
}

/// Refuses zero rounds, over which any noise holds any target: a plan without rounds is a mistake.
fn at_least_one(rounds: u64) -> Result<(), AccountingError> {
    ensure(rounds > 0, "rounds", "at least 1", 0.0).map(|_| ())
}

fn composed(event: &Event, rounds: u64, by: By) -> Result<Accountant, AccountingError> {
    let mut accountant = Accountant::new(by.recipe());
    accountant.compose(event, rounds)?;
    Ok(accountant)
}

//! From a target guarantee to the parameter that reaches it.
//!
//! Every function returns the safe side: the guarantee recomputed at the returned value is within the target.
//! Every accountant is monotone in what is searched. Loss distributions are costly, and never worse than the Renyi
//! divergences of the same events, which are not: their search starts at the answer by Renyi divergences.

pub use crate::search::{Precision, Search, excess};
use crate::{
    Accountant, AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
    gaussian,
};

/// Noise multipliers outside this range are not searched.
const NOISE_RANGE: (f64, f64) = (1e-6, 1e12);
/// Smallest sampling probability searched.
const MIN_PROBABILITY: f64 = 1e-15;
/// Numbers of rounds are `f64` while searched; up to here (and beyond) that is exact.
const MAX_ROUNDS: u64 = 1 << 52;
/// Where a search over real numbers ends.
const EXACT: Precision = Precision::Real {
    width: 1e-9,
    close: 0.0,
};
/// The same for loss distributions, whose epsilon is itself accurate to 8e-7.
const PLD: Precision = Precision::Real {
    width: 1e-7,
    close: 1e-6,
};
/// The same for where to start.
const ROUGH: Precision = Precision::Real {
    width: 1e-3,
    close: 1e-3,
};

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

/// As [`noise_multiplier`], for any event with a noise multiplier (its guarantee must improve with it).
///
/// # Errors
/// As [`noise_multiplier`], and whatever composing the event gives.
pub fn noise_multiplier_of(
    target: (Epsilon, Delta),
    rounds: u64,
    recipe: Recipe,
    event: impl Fn(NoiseMultiplier) -> Event,
) -> Result<NoiseMultiplier, AccountingError> {
    at_least_one(rounds)?;
    let (epsilon, delta) = target;
    let epsilon_at = |z: f64, recipe| epsilon_of(&event(NoiseMultiplier::new(z)?), rounds, delta, recipe);
    let excess_at = |z: f64, recipe| Ok(excess(epsilon_at(z, recipe)?, epsilon.get()));

    // rho with rho + 2 sqrt(rho ln(1/delta)) = epsilon, and the z of that rho per round, as if none were sampled.
    let log_term = -delta.get().ln();
    let root = epsilon.get() / ((log_term + epsilon.get()).sqrt() + log_term.sqrt());
    let search = Search {
        safe: NOISE_RANGE.1,
        risky: NOISE_RANGE.0,
        start: (0.5 * rounds as f64).sqrt() / root,
        slope: 2.0,
        precision: precision(recipe),
    };
    let mut search = started(search, recipe, excess_at);
    let sampled = NoiseMultiplier::new(search.start).map(&event);
    if let (
        Recipe::Pld,
        Ok(Event::PoissonGaussian {
            sampling_probability, ..
        }),
    ) = (recipe, sampled)
    {
        // Usually too little noise, as that of Renyi divergences is too much: start halfway.
        let central = central_limit(target, sampling_probability, rounds);
        search.start = central.map_or(search.start, |central| (search.start * central).sqrt());
    }
    let found = search.run(but_first_error(|z| excess_at(z, recipe)))?;
    let Some(z) = found else {
        let best = epsilon_at(search.safe, recipe)?;
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

/// As [`rounds`], for any event.
///
/// # Errors
/// As [`rounds`], and whatever composing the event gives.
pub fn rounds_of(target: (Epsilon, Delta), event: &Event, recipe: Recipe) -> Result<u64, AccountingError> {
    let (epsilon, delta) = target;
    // One round at first: composing more on a clone adds an integer and keeps the curve.
    let once = |recipe| -> Result<Accountant, AccountingError> {
        let mut once = Accountant::new(recipe);
        once.compose(event, 1)?;
        Ok(once)
    };
    let once = (once(recipe)?, once(Recipe::Rdp));
    let epsilon_at = |rounds: f64, by: Recipe| -> Result<f64, AccountingError> {
        let once = if by == recipe {
            &once.0
        } else {
            once.1.as_ref().map_err(Clone::clone)?
        };
        let mut accountant = once.clone();
        accountant.compose(event, rounds.round() as u64 - 1)?;
        Ok(accountant.epsilon(delta)?.0)
    };
    let excess_at = |rounds: f64, by| Ok(excess(epsilon_at(rounds, by)?, epsilon.get()));
    let search = Search {
        safe: 1.0,
        risky: MAX_ROUNDS as f64,
        start: 1.0,
        slope: 0.5,
        precision: Precision::Whole,
    };
    let found = started(search, recipe, excess_at).run(|rounds| excess_at(rounds, recipe))?;
    match found {
        Some(rounds) => Ok(rounds as u64),
        None => Err(unreachable("rounds", target, epsilon_at(1.0, recipe)?, 1.0)),
    }
}

/// The largest sampling probability with which `rounds` rounds hold `target`.
///
/// # Guarantee
/// As [`noise_multiplier`], failing at as much more.
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
    let epsilon_at = |q: f64, recipe| {
        let event = Event::PoissonGaussian {
            sampling_probability: SamplingProbability::new(q)?,
            noise_multiplier,
        };
        epsilon_of(&event, rounds, delta, recipe)
    };
    let excess_at = |q: f64, recipe| Ok(excess(epsilon_at(q, recipe)?, epsilon.get()));
    let search = Search {
        safe: MIN_PROBABILITY,
        risky: 1.0,
        start: 1.0,
        slope: 1.0,
        precision: precision(recipe),
    };
    let search = started(search, recipe, excess_at);
    let found = search.run(but_first_error(|q| excess_at(q, recipe)))?;
    let Some(q) = found else {
        let best = epsilon_at(search.safe, recipe)?;
        return Err(unreachable("sampling_probability", target, best, search.safe));
    };
    SamplingProbability::new(q)
}

fn precision(recipe: Recipe) -> Precision {
    if recipe == Recipe::Pld { PLD } else { EXACT }
}

/// By loss distributions: the same search from where Renyi divergences find the answer.
fn started(
    search: Search,
    recipe: Recipe,
    excess_at: impl Fn(f64, Recipe) -> Result<f64, AccountingError>,
) -> Search {
    if recipe != Recipe::Pld {
        return search;
    }
    let rough = Search {
        precision: ROUGH,
        ..search
    };
    // A start that is not found, or is far off, costs time only.
    let found = rough.run(|value| excess_at(value, Recipe::Rdp));
    let start = found.ok().flatten().unwrap_or(search.start);
    Search { start, ..search }
}

/// About the noise multiplier that reaches the target if a sum of losses is normal: neither bound nor answer.
///
/// # Source
/// Bu, Dong, Long, Su, "Deep Learning with Gaussian Differential Privacy" (2020): `mu = q sqrt(T (e^{1/z^2} - 1))`.
fn central_limit((epsilon, delta): (Epsilon, Delta), q: SamplingProbability, rounds: u64) -> Option<f64> {
    let mu = gaussian::noise_multiplier(epsilon, delta).ok()?.get().recip();
    let z = (mu / q.get()).powi(2) / rounds as f64;
    Some(z.ln_1p().sqrt().recip()).filter(|z| z.is_normal())
}

/// An event that cannot be composed at all is that error, not an unreachable target; one that cannot be composed
/// with some values holds no target there.
fn but_first_error(
    excess_at: impl Fn(f64) -> Result<f64, AccountingError>,
) -> impl FnMut(f64) -> Result<f64, AccountingError> {
    let mut first = true;
    move |value| {
        let excess = excess_at(value);
        if std::mem::take(&mut first) {
            excess
        } else {
            Ok(excess.unwrap_or(f64::INFINITY))
        }
    }
}

/// Any noise holds any target over no rounds: a plan without rounds is a mistake.
fn at_least_one(rounds: u64) -> Result<(), AccountingError> {
    if rounds == 0 {
        return Err(AccountingError::OutOfRange {
            quantity: "rounds",
            expected: "at least 1",
            got: 0.0,
        });
    }
    Ok(())
}

fn epsilon_of(event: &Event, rounds: u64, delta: Delta, recipe: Recipe) -> Result<f64, AccountingError> {
    let mut accountant = Accountant::new(recipe);
    accountant.compose(event, rounds)?;
    Ok(accountant.epsilon(delta)?.0)
}

fn unreachable(
    quantity: &'static str,
    (epsilon, delta): (Epsilon, Delta),
    best_epsilon: f64,
    at: f64,
) -> AccountingError {
    AccountingError::Unreachable {
        quantity,
        target_epsilon: epsilon.get(),
        delta: delta.get(),
        best_epsilon,
        at,
    }
}

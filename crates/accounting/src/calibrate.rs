//! From a target guarantee to the parameter that reaches it.
//!
//! Every function returns the safe side: the guarantee recomputed at the returned value is within the target.
//! Searches start from the bound of the unsampled Gaussian, which costs nothing to evaluate, and every
//! accountant is monotone in what is searched.

use crate::search::first_true;
use crate::{
    Accountant, AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
};

/// Relative width at which a search over real numbers ends.
const RELATIVE: f64 = 1e-9;
/// Noise multipliers outside this range are not searched.
const NOISE_RANGE: (f64, f64) = (1e-6, 1e12);
/// Smallest sampling probability searched.
const MIN_PROBABILITY: f64 = 1e-15;

/// The smallest noise multiplier (to 1e-9, relative) with which `rounds` Poisson-sampled rounds hold
/// `target`.
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
    let evaluate = |z: f64| epsilon_of(&event(NoiseMultiplier::new(z)?), rounds, delta, recipe);
    let holds = |z: f64| evaluate(z).is_ok_and(|value| value <= epsilon.get());

    // rho with rho + 2 sqrt(rho ln(1/delta)) = epsilon, and the z of that rho per round.
    let log_term = -delta.get().ln();
    let root = epsilon.get() / ((log_term + epsilon.get()).sqrt() + log_term.sqrt());
    let mut high = (0.5 * rounds as f64).sqrt() / root;
    high = if high.is_finite() {
        high.clamp(NOISE_RANGE.0, NOISE_RANGE.1)
    } else {
        NOISE_RANGE.1
    };
    evaluate(high)?; // an event that cannot be composed at all is that error, not an unreachable target
    while !holds(high) {
        if high >= NOISE_RANGE.1 {
            return Err(unreachable("noise_multiplier", target, evaluate(high)?, high));
        }
        high = (high * 4.0).min(NOISE_RANGE.1);
    }
    let mut low = high;
    while holds(low) {
        if low <= NOISE_RANGE.0 {
            return NoiseMultiplier::new(low);
        }
        (low, high) = ((low * 0.5).max(NOISE_RANGE.0), low);
    }
    NoiseMultiplier::new(first_true(low, high, RELATIVE, holds))
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
    let mut one = Accountant::new(recipe);
    one.compose(event, 1)?;
    // Doubling shares the cached curve: composing on a clone adds an integer.
    let evaluate = |rounds: u64| -> Result<f64, AccountingError> {
        let mut accountant = one.clone();
        accountant.compose(event, rounds - 1)?;
        Ok(accountant.epsilon(delta)?.0)
    };
    let first = evaluate(1)?;
    if first > epsilon.get() {
        return Err(unreachable("rounds", target, first, 1.0));
    }
    let (mut low, mut high) = (1u64, 2u64);
    while evaluate(high)? <= epsilon.get() {
        if high >= 1 << 52 {
            return Ok(high);
        }
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if evaluate(middle)? <= epsilon.get() {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// The largest sampling probability (to 1e-9, relative) with which `rounds` rounds hold `target`.
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
    let evaluate = |q: f64| -> Result<f64, AccountingError> {
        let sampling_probability = SamplingProbability::new(q)?;
        epsilon_of(
            &Event::PoissonGaussian {
                sampling_probability,
                noise_multiplier,
            },
            rounds,
            delta,
            recipe,
        )
    };
    let exceeds = |q: f64| !evaluate(q).is_ok_and(|value| value <= epsilon.get());
    if !exceeds(1.0) {
        return SamplingProbability::new(1.0);
    }
    if exceeds(MIN_PROBABILITY) {
        return Err(unreachable(
            "sampling_probability",
            target,
            evaluate(MIN_PROBABILITY)?,
            MIN_PROBABILITY,
        ));
    }
    // The first probability that exceeds the target is the unsafe end; step back by more than the search's
    // width.
    let mut q = first_true(MIN_PROBABILITY, 1.0, RELATIVE, exceeds);
    while exceeds(q) {
        q *= 1.0 - 2.0 * RELATIVE;
    }
    SamplingProbability::new(q)
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

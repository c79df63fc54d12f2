//! Calibration of any parameter of any composition.

use super::{By, Precision, TooMany, precision, started};
use crate::error::{out_of_range, unreachable};
use crate::search::Bisection;
use crate::{Accountant, AccountingError, Adjacency, Delta, Epsilon, Event, Recipe};

/// The range of a parameter that [`parameter`] searches.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// The end at which the target holds if it does anywhere: a positive number.
    pub safe: f64,
    /// The end that is best, if the target holds there: a positive number.
    pub risky: f64,
    /// True if only whole numbers count.
    pub whole: bool,
}

/// The value nearest to `range.risky` with which everything that `events` states for it holds `target`.
///
/// `events` names the releases and their numbers for a value. Epsilon must be monotone in the value. An error of
/// `events` ends the search. A value at which the events cannot be composed, or have no finite epsilon, counts as one
/// that misses the target, except for the first value tried.
///
/// # Guarantee
/// The target holds at the answer. It fails at the next whole number, or within 1e-9 of a real answer, relatively. By
/// [`Recipe::Pld`], the tolerances of [`noise_multiplier`](super::noise_multiplier) apply.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for an end that is not a positive finite number, or is not whole where it must be;
/// [`AccountingError::Unreachable`] if even the safe end misses the target; the errors of `events`.
///
/// # Example
/// ```
/// use undertone_accounting::calibrate::{Range, parameter};
/// use undertone_accounting::{AccountingError, Delta, Epsilon, Event, NoiseMultiplier, Recipe};
/// # fn main() -> Result<(), AccountingError> {
/// let target = (Epsilon::new(2.0)?, Delta::new(1e-6)?);
/// let range = Range { safe: 100.0, risky: 0.1, whole: false };
/// // One Gaussian for the sum, and one with twice the noise for the count.
/// let z = parameter(target, range, Recipe::ExactGaussian, None, |z| {
///     let noise = |z| Ok::<_, AccountingError>(Event::Gaussian { noise_multiplier: NoiseMultiplier::new(z)? });
///     Ok::<_, AccountingError>(vec![(noise(z)?, 10), (noise(2.0 * z)?, 10)])
/// })?;
/// assert_eq!(format!("{z:.3}"), "7.886");
/// # Ok(())
/// # }
/// ```
pub fn parameter<E: From<AccountingError>>(
    target: (Epsilon, Delta),
    range: Range,
    recipe: Recipe,
    adjacency: Option<Adjacency>,
    events: impl Fn(f64) -> Result<Vec<(Event, u64)>, E>,
) -> Result<f64, E> {
    let (epsilon, delta) = target;
    for end in [range.safe, range.risky] {
        let holds = end.is_finite() && end > 0.0 && !(range.whole && end.fract() != 0.0);
        if !holds {
            let expected = if range.whole {
                "a whole number >= 1"
            } else {
                "a finite number > 0"
            };
            return Err(out_of_range("end of the range", expected, end).into());
        }
    }
    let composed = |events: &[(Event, u64)], by: By| -> Result<Accountant, AccountingError> {
        let mut accountant = match adjacency {
            Some(adjacency) => Accountant::under(by.recipe(), adjacency),
            None => Accountant::new(by.recipe()),
        };
        for (event, rounds) in events {
            accountant.compose(event, *rounds)?;
        }
        Ok(accountant)
    };
    let excess_of = |events: &[(Event, u64)], by: By| by.excess(&composed(events, by)?, target);
    let excess_at = |value: f64, by: By| -> Result<f64, E> { Ok(excess_of(&events(value)?, by)?) };
    let search = Bisection {
        safe: range.safe,
        risky: range.risky,
        start: (range.safe.ln() * 0.5 + range.risky.ln() * 0.5).exp(),
        slope: 1.0,
        precision: if range.whole {
            Precision::Whole
        } else {
            precision(recipe)
        },
    };
    let search = started(search, recipe, epsilon, excess_at, |_| None);
    let (exactly, mut first) = (By::Recipe(recipe), true);
    let (grows, mut too_many) = (range.whole && range.safe < range.risky, TooMany::default());
    let found = search.run(|value| {
        let first = std::mem::take(&mut first);
        let mut excess = excess_of(&events(value)?, exactly);
        if grows {
            excess = too_many.excess(value, excess);
        }
        match excess {
            Err(error) if first || matches!(error, AccountingError::TooLarge { .. }) => Err(E::from(error)),
            excess => Ok(excess.unwrap_or(f64::INFINITY)),
        }
    })?;
    match found {
        Some(value) => {
            too_many.after(value)?;
            Ok(value)
        }
        None => {
            let best = exactly.epsilon(&composed(&events(range.safe)?, exactly)?, delta)?;
            Err(unreachable("parameter", target, best, range.safe).into())
        }
    }
}

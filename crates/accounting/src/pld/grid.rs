//! Privacy losses on a grid of fixed step: distributions that a caller builds, composes and reads.
//!
//! No figure of an [`Accountant`](crate::Accountant) comes from here. The grid serves programs that bring a loss distribution of their
//! own. Every operation on a pessimistic distribution keeps it an upper bound, and every operation on another keeps it a lower bound, up to
//! the rounding of 64-bit numbers and of the Fourier transform.

mod compose;
mod connect;
mod convolve;
mod readout;

pub use compose::self_convolution_bounds;
pub use convolve::{convolve, self_convolve};

/// More points than this are refused: 1 GiB of probabilities.
const MAX_POINTS: usize = 1 << 27;

/// A grid that cannot be built, or two grids that cannot be united.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GridError {
    /// A number outside its domain.
    #[error("{quantity}: expected {expected}, got {got}")]
    OutOfRange {
        /// The quantity, in words.
        quantity: &'static str,
        /// Domain of the quantity, in words.
        expected: &'static str,
        /// The value received.
        got: f64,
    },
    /// More points than memory should hold.
    #[error("grid: expected at most {MAX_POINTS} points, got {points}; take a larger step")]
    TooManyPoints {
        /// Points that the grid would have.
        points: u128,
    },
    /// Two lists of unequal length, or without entries.
    #[error("{what}: the lengths are unequal or zero, got {first} and {second}")]
    Lengths {
        /// The two lists, in words.
        what: &'static str,
        /// Length of the first list.
        first: usize,
        /// Length of the second list.
        second: usize,
    },
    /// Epsilons that do not rise.
    #[error("epsilons are not in strictly increasing order, got {next} after {previous}")]
    Unsorted {
        /// An epsilon, as a multiple of the step.
        previous: i64,
        /// The one that follows.
        next: i64,
    },
    /// Deltas that rise with epsilon.
    #[error("deltas are not in non-increasing order, got {next} after {previous}")]
    RisingDeltas {
        /// A delta.
        previous: f64,
        /// The one that follows.
        next: f64,
    },
    /// Two distributions with different steps.
    #[error("Discretization intervals are different: {first} != {second}")]
    Steps {
        /// Step of the first distribution.
        first: f64,
        /// Step of the second distribution.
        second: f64,
    },
    /// An upper bound and a lower bound.
    #[error("Estimation types are different: {first} != {second}")]
    Estimates {
        /// True if the first distribution is pessimistic.
        first: bool,
        /// True if the second distribution is pessimistic.
        second: bool,
    },
}

/// The distribution of a privacy loss: probabilities at multiples of a step, and the probability of an infinite loss.
///
/// # Example
/// ```
/// use undertone_accounting::grid::GridPld;
/// # fn main() -> Result<(), undertone_accounting::grid::GridError> {
/// // Randomised response between two answers, the true one with probability 3/4.
/// let loss = 3f64.ln();
/// let once = GridPld::rounded(1e-4, &[loss, -loss], &[0.75, 0.25], 0.0, true)?;
/// assert!((once.delta(0.0) - 0.5).abs() < 1e-4);
/// let thrice = once.self_compose(3, 0.0)?;
/// assert!((thrice.epsilon(0.0) - 3.0 * loss).abs() < 1e-3);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GridPld {
    step: f64,
    lower: i64,
    probabilities: Vec<f64>,
    infinity: f64,
    pessimistic: bool,
}

fn out_of_range(quantity: &'static str, expected: &'static str, got: f64) -> GridError {
    GridError::OutOfRange {
        quantity,
        expected,
        got,
    }
}

/// The number of points from `first` to `last`.
fn points(first: i64, last: i64) -> Result<usize, GridError> {
    let points = (i128::from(last) - i128::from(first) + 1).max(0) as u128;
    if points > MAX_POINTS as u128 {
        return Err(GridError::TooManyPoints { points });
    }
    Ok(points as usize)
}

impl GridPld {
    /// The distribution with `probabilities[i]` at the loss `step * (lower + i)`.
    ///
    /// # Errors
    /// A step that is not a finite number above 0; a probability that is negative or not finite; too many points.
    pub fn new(
        step: f64,
        lower: i64,
        probabilities: Vec<f64>,
        infinity: f64,
        pessimistic: bool,
    ) -> Result<Self, GridError> {
        if !(step > 0.0 && step.is_finite()) {
            return Err(out_of_range("step", "a finite number > 0", step));
        }
        let unfit = |probability: &&f64| !(**probability >= 0.0 && probability.is_finite());
        if let Some(&wrong) = probabilities.iter().chain([&infinity]).find(unfit) {
            return Err(out_of_range("probability", "a finite number >= 0", wrong));
        }
        points(0, probabilities.len() as i64 - 1)?;
        if lower.checked_add(probabilities.len() as i64).is_none() {
            return Err(out_of_range("lower", "losses within 2^63 steps", lower as f64));
        }
        Ok(Self {
            step,
            lower,
            probabilities,
            infinity,
            pessimistic,
        })
    }

    /// Outcomes with these losses and probabilities, each loss rounded to the grid: up if `pessimistic`, else down.
    ///
    /// An outcome of infinite loss joins `infinity`. One of loss minus infinity never adds to a delta and is left out.
    ///
    /// # Errors
    /// The errors of [`GridPld::new`], lists of unequal length and a loss that is not a number.
    pub fn rounded(
        step: f64,
        losses: &[f64],
        probabilities: &[f64],
        infinity: f64,
        pessimistic: bool,
    ) -> Result<Self, GridError> {
        if losses.len() != probabilities.len() {
            return Err(GridError::Lengths {
                what: "losses and probabilities",
                first: losses.len(),
                second: probabilities.len(),
            });
        }
        let place = |loss: f64| {
            let place = loss / step;
            if pessimistic { place.ceil() } else { place.floor() }
        };
        let (mut first, mut last, mut infinity) = (i64::MAX, i64::MIN, infinity);
        for (&loss, &probability) in losses.iter().zip(probabilities) {
            if loss.is_nan() {
                return Err(out_of_range("loss", "a number", loss));
            }
            if loss == f64::INFINITY {
                infinity += probability;
            } else if loss.is_finite() && probability != 0.0 {
                first = first.min(place(loss) as i64);
                last = last.max(place(loss) as i64);
            }
        }
        let first = if first > last { 0 } else { first };
        let mut sums = vec![0.0; if first > last { 0 } else { points(first, last)? }];
        for (&loss, &probability) in losses.iter().zip(probabilities) {
            if loss.is_finite() && probability != 0.0 {
                sums[(place(loss) as i64 - first) as usize] += probability;
            }
        }
        Self::new(step, first, sums, infinity, pessimistic)
    }

    /// Distance of two neighbouring losses.
    #[must_use]
    pub fn step(&self) -> f64 {
        self.step
    }

    /// The lowest loss, as a multiple of the step.
    #[must_use]
    pub fn lower(&self) -> i64 {
        self.lower
    }

    /// Probabilities of the finite losses, from the lowest on.
    #[must_use]
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// Probability of an infinite loss.
    #[must_use]
    pub fn infinity(&self) -> f64 {
        self.infinity
    }

    /// True if deltas are upper bounds, false if they are lower bounds.
    #[must_use]
    pub fn is_pessimistic(&self) -> bool {
        self.pessimistic
    }

    /// Refuses another distribution with a different step or of the other kind of bound.
    ///
    /// # Errors
    /// The difference.
    pub(crate) fn check_alike(&self, other: &Self) -> Result<(), GridError> {
        if self.step.to_bits() != other.step.to_bits() {
            return Err(GridError::Steps {
                first: self.step,
                second: other.step,
            });
        }
        if self.pessimistic != other.pessimistic {
            return Err(GridError::Estimates {
                first: self.pessimistic,
                second: other.pessimistic,
            });
        }
        Ok(())
    }

    /// The loss of a mechanism that runs this one with probability `weight`, else `other`, and says which.
    ///
    /// # Errors
    /// Distributions that are not alike; a weight outside `[0, 1]`; too many points.
    pub fn mixture(&self, other: &Self, weight: f64) -> Result<Self, GridError> {
        self.check_alike(other)?;
        if !(0.0..=1.0).contains(&weight) {
            return Err(out_of_range("weight", "weight should be in [0, 1]", weight));
        }
        let parts = [(self, weight), (other, 1.0 - weight)];
        let kept = || {
            parts
                .iter()
                .filter(|(part, weight)| *weight > 0.0 && !part.probabilities.is_empty())
        };
        let first = kept().map(|(part, _)| part.lower).min().unwrap_or(0);
        let end = |part: &Self| part.lower + part.probabilities.len() as i64;
        let last = kept().map(|(part, _)| end(part)).max().unwrap_or(0) - 1;
        let mut sums = vec![0.0; points(first, last)?];
        for (part, weight) in kept() {
            let start = (part.lower - first) as usize;
            for (sum, probability) in sums[start..].iter_mut().zip(&part.probabilities) {
                *sum += weight * probability;
            }
        }
        let infinity = weight * self.infinity + (1.0 - weight) * other.infinity;
        Self::new(self.step, first, sums, infinity, self.pessimistic)
    }
}

#[cfg(test)]
mod tests;

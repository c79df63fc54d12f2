//! Compositions of distributions on one grid, with rare losses cut off on the safe side.

use super::convolve::{convolve, self_convolve};
use super::{GridError, GridPld, out_of_range, points};

/// A self-composition whose outcomes, told apart, are no more than this is done term by term.
const FEW: usize = 1000;

impl GridPld {
    /// The loss of both releases together. Tails of at most `tail / 2` on each side are cut off.
    ///
    /// # Errors
    /// Distributions that are not alike; a tail that is negative or not a number; too many points.
    pub fn compose(&self, other: &Self, tail: f64) -> Result<Self, GridError> {
        self.check_alike(other)?;
        check_tail(tail)?;
        let lengths = self.probabilities.len() + other.probabilities.len();
        points(1, lengths as i64)?;
        let sums = convolve(&self.probabilities, &other.probabilities);
        let lower = self.lower.saturating_add(other.lower);
        let infinity = self.infinity + other.infinity - self.infinity * other.infinity;
        Self::new(self.step, lower, sums, infinity, self.pessimistic).map(|sum| sum.cut(tail))
    }

    /// The loss of `times` releases. Tails of at most `tail / 2` on each side are cut off.
    ///
    /// # Errors
    /// No releases; a tail that is negative or not a number; too many points.
    pub fn self_compose(&self, times: u64, tail: f64) -> Result<Self, GridError> {
        check_tail(tail)?;
        if times == 0 {
            return Err(out_of_range("times", "a number of releases >= 1", 0.0));
        }
        let infinity = -(times as f64 * (-self.infinity).ln_1p()).exp_m1();
        let total = |lower: i64| {
            let product = i128::from(lower) * i128::from(times);
            i64::try_from(product)
                .map_err(|_| out_of_range("lower", "losses within 2^63 steps", product as f64))
        };
        let support = self.probabilities.iter().filter(|value| **value != 0.0).count();
        let is_few = support
            .checked_pow(times.min(64) as u32)
            .is_some_and(|outcomes| outcomes <= FEW);
        if is_few && times <= FEW as u64 {
            let length = (self.probabilities.len().max(1) as i64 - 1).saturating_mul(times as i64);
            points(0, length)?;
            let sums = (1..times).fold(self.probabilities.clone(), |sums, _| {
                convolve(&sums, &self.probabilities)
            });
            let sum = Self::new(self.step, total(self.lower)?, sums, infinity, self.pessimistic)?;
            return Ok(sum.cut(tail));
        }
        let (first, last) = self_convolution_bounds(&self.probabilities, times, tail, None);
        points(first as i64, last as i64)?;
        let mut sums = self_convolve(&self.probabilities, times, first as usize, last as usize);
        let full = (self.probabilities.len() as u64 - 1).saturating_mul(times);
        let (below, above) = (first > 0, last < full);
        let lower = total(self.lower)?.saturating_add(first as i64);
        let mut infinity = infinity;
        // The cut tails, of at most `tail / 2` each, were wrapped around into the window.
        if self.pessimistic {
            infinity += 0.5 * tail * (f64::from(u8::from(below)) + f64::from(u8::from(above)));
        } else if below {
            // PRIVACY: low losses that came in at the top must not raise a lower bound.
            let mut left = 0.5 * tail;
            for value in sums.iter_mut().rev() {
                let taken = value.min(left);
                *value -= taken;
                left -= taken;
                if left <= 0.0 {
                    break;
                }
            }
        }
        Self::new(self.step, lower, sums, infinity.min(1.0), self.pessimistic)
    }

    /// The distribution without its rarest losses at both ends, of at most `tail / 2` each, put where the bound stays one.
    fn cut(mut self, tail: f64) -> Self {
        if tail <= 0.0 || self.probabilities.is_empty() {
            return self;
        }
        let half = 0.5 * tail;
        let end = self.probabilities.len() - 1;
        let (mut first, mut below) = (0, 0.0);
        while first < end && below + self.probabilities[first] <= half {
            below += self.probabilities[first];
            first += 1;
        }
        let (mut last, mut above) = (end, 0.0);
        while last > first && above + self.probabilities[last] <= half {
            above += self.probabilities[last];
            last -= 1;
        }
        if self.pessimistic {
            self.probabilities[first] += below;
            self.infinity += above;
        } else {
            self.probabilities[last] += above;
        }
        self.probabilities.truncate(last + 1);
        self.probabilities.drain(..first);
        self.lower += first as i64;
        self
    }
}

fn check_tail(tail: f64) -> Result<(), GridError> {
    if tail >= 0.0 {
        return Ok(());
    }
    Err(out_of_range("tail_mass_truncation", "a number >= 0", tail))
}

/// The first and the last place of the `times`-fold convolution outside which at most `tail / 2` lies on each side, by Chernoff's bound at
/// the best of `orders`, or at the best of all where none are given.
///
/// Negative orders bound the lower end, positive ones the upper end.
#[must_use]
pub fn self_convolution_bounds(values: &[f64], times: u64, tail: f64, orders: Option<&[f64]>) -> (u64, u64) {
    let full = (values.len().max(1) as u64 - 1).saturating_mul(times);
    if tail <= 0.0 || values.is_empty() {
        return (0, full);
    }
    let spare = -(0.5 * tail).ln();
    // The end that one order proves: `(times ln E e^(order X) + spare) / order`.
    let end = |order: f64| (times as f64 * log_moment(values, order) + spare) / order;
    let (low, high) = match orders {
        Some(orders) => {
            let of = |wanted: fn(&f64) -> bool| {
                orders
                    .iter()
                    .copied()
                    .filter(wanted)
                    .map(end)
                    .collect::<Vec<f64>>()
            };
            let lows = of(|order| *order < 0.0);
            let highs = of(|order| *order > 0.0);
            (
                lows.into_iter().fold(0.0, f64::max),
                highs.into_iter().fold(full as f64, f64::min),
            )
        }
        None => (
            best(|order| -end(-order)).map_or(0.0, |found| -found),
            best(end).unwrap_or(full as f64),
        ),
    };
    let low = low.floor().clamp(0.0, full as f64) as u64;
    let high = high.ceil().clamp(0.0, full as f64) as u64;
    (low, high.max(low))
}

/// The smallest value of `bound` over positive orders; it falls and then rises with the order's logarithm.
fn best(bound: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut left, mut right) = (-25.0, 5.0);
    let at = |log: f64| bound(f64::exp(log));
    for _ in 0..40 {
        let third = (right - left) / 3.0;
        let (inner, outer) = (left + third, right - third);
        if at(inner) < at(outer) {
            right = outer;
        } else {
            left = inner;
        }
        if right - left < 1e-3 {
            break;
        }
    }
    let found = at(0.5 * (left + right));
    found.is_finite().then_some(found)
}

/// `ln` of the sum of `values[i] e^(order i)`.
fn log_moment(values: &[f64], order: f64) -> f64 {
    let exponents = || {
        let numbered = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
        numbered.map(|(place, value)| (order * place as f64, *value))
    };
    let peak = exponents()
        .map(|(exponent, _)| exponent)
        .fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = exponents()
        .map(|(exponent, value)| value * (exponent - peak).exp())
        .sum();
    peak + sum.ln()
}

//! One-dimensional searches.

/// A search for the last value that still holds a target, between one end that is safe and one that is not.
///
/// The caller states how far each value is off: its *excess* (see [`excess`]), at most 0 where the target holds
/// and growing from `safe` to `risky`. Values are tried along the logarithm, where an excess is nearly a straight
/// line. All values are positive.
///
/// # Example
/// ```
/// use undertone_accounting::calibrate::{Precision, Bisection, excess};
/// // Of f(x) = 6 / x^2, the smallest x with f(x) <= 1.5.
/// let precision = Precision::Real { width: 1e-9, close: 0.0 };
/// let search = Bisection { safe: 1e6, risky: 1e-6, start: 1.0, slope: 1.0, precision };
/// let found = search.run(|x| Ok::<_, std::convert::Infallible>(excess(6.0 / (x * x), 1.5))).unwrap();
/// assert!((2.0..2.000_000_01).contains(&found.unwrap()));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Bisection {
    /// The end at which the target holds if it does anywhere.
    pub safe: f64,
    /// The end that is best, if the target holds there.
    pub risky: f64,
    /// The value that is tried first. The nearer it is to the answer, the fewer values are tried.
    pub start: f64,
    /// Approximate change of the excess at `start` when the logarithm of the value changes by one (without sign).
    pub slope: f64,
    /// Condition under which the search stops.
    pub precision: Precision,
}

/// Condition under which a [`Bisection`] stops.
#[derive(Debug, Clone, Copy)]
pub enum Precision {
    /// Whole numbers: the target holds at the answer and fails at the next number.
    Whole,
    /// Real numbers: the target fails within `width` of the answer, relatively, or its excess there is at most `close` below 0. Where the
    /// excess changes by less than the logarithm of the value does, it is closer by that factor.
    Real {
        /// Relative distance to a value that fails.
        width: f64,
        /// Distance of the excess below 0.
        close: f64,
    },
}

/// Distance of `epsilon` from its target: the logarithm of their ratio, at most 0 if and only if the target holds.
#[must_use]
pub fn excess(epsilon: f64, target: f64) -> f64 {
    let ratio = (epsilon.max(f64::MIN_POSITIVE) / target.max(f64::MIN_POSITIVE)).ln();
    // PRIVACY: the sign is that of the comparison itself; NaN fails.
    if epsilon <= target {
        ratio.min(0.0)
    } else {
        ratio.max(f64::MIN_POSITIVE)
    }
}

/// A value that was tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    value: f64,
    excess: f64,
}

impl Trial {
    fn holds(self) -> bool {
        self.excess <= 0.0
    }
}

impl Precision {
    /// The smallest step worth trying from `value`.
    fn step(self, value: f64) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Real { width, .. } => (0.5 * width).max(f64::EPSILON) * value,
        }
    }

    /// The excess that is aimed at: halfway between those at which a search ends.
    pub(crate) fn aim(self) -> f64 {
        -0.5 * self.close()
    }

    fn close(self) -> f64 {
        match self {
            Self::Whole => 0.0,
            Self::Real { close, .. } => close,
        }
    }

    /// Returns true if nothing is left to try between two values, one that holds and one that fails.
    fn is_narrow(self, a: f64, b: f64) -> bool {
        (a - b).abs() < 2.0 * self.step(a.min(b))
    }

    fn round(self, value: f64) -> f64 {
        match self {
            Self::Whole => value.round(),
            Self::Real { .. } => value,
        }
    }

    /// The value nearest to `value` that is a step away from both ends.
    fn between(self, value: f64, a: f64, b: f64) -> f64 {
        let (low, high) = (a.min(b), a.max(b));
        let value = self.round(value).max(low + self.step(low));
        value.min(high - self.step(high))
    }
}

impl Bisection {
    /// The value nearest to `risky` at which the target holds; `None` if it fails even at `safe`.
    ///
    /// # Errors
    /// The first error of `excess_at`.
    pub fn run<E>(&self, mut excess_at: impl FnMut(f64) -> Result<f64, E>) -> Result<Option<f64>, E> {
        let mut attempt = |value: f64| -> Result<Trial, E> {
            Ok(Trial {
                value,
                excess: excess_at(value)?,
            })
        };
        let (low, high) = (self.safe.min(self.risky), self.safe.max(self.risky));
        let mut trials = vec![attempt(self.precision.round(self.start).clamp(low, high))?];
        // Outwards until the answer lies between the last two.
        let (mut good, mut fails) = loop {
            let newest = trials[trials.len() - 1];
            let end = if newest.holds() { self.risky } else { self.safe };
            if self.is_close(&trials, newest) || newest.value == end {
                return Ok(newest.holds().then_some(newest.value));
            }
            let next = attempt(self.outwards(&trials, end))?;
            trials.push(next);
            match (newest.holds(), next.holds()) {
                (true, false) => break (newest, next),
                (false, true) => break (next, newest),
                _ => {}
            }
        };
        let width = |good: Trial, fails: Trial| (good.value / fails.value).ln().abs();
        let mut widths = [f64::INFINITY; 2];
        while !self.is_close(&trials, good) && !self.precision.is_narrow(good.value, fails.value) {
            // Two steps that leave more than this of the bracket are followed by one that halves it.
            let slow = width(good, fails) > 0.4 * widths[0];
            widths = [widths[1], width(good, fails)];
            let next = attempt(self.inwards(&mut trials, good, fails, slow))?;
            trials.push(next);
            if next.holds() {
                good = next;
            } else {
                fails = next;
            }
        }
        Ok(Some(good.value))
    }

    /// Returns true if a trial holds and is so close below the target that its value is as close to the answer. Where the excess hardly
    /// changes with the value, it must be the closer.
    fn is_close(&self, trials: &[Trial], trial: Trial) -> bool {
        let distance = |other: &Trial| (other.value / trial.value).ln().abs();
        let others = trials
            .iter()
            .filter(|other| other.value != trial.value && other.excess.is_finite());
        let nearest = others.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let slope = nearest.map_or(self.slope, |other| {
            ((other.excess - trial.excess) / distance(other)).abs()
        });
        trial.holds() && trial.excess >= -self.precision.close() * slope.min(1.0)
    }

    /// Position of a trial: logarithm of the value, and distance from the excess that is aimed at.
    fn point(&self, trial: Trial) -> (f64, f64) {
        (trial.value.ln(), trial.excess - self.precision.aim())
    }

    /// The next value towards `end`: where a straight line through the last two trials meets the target.
    fn outwards(&self, trials: &[Trial], end: f64) -> f64 {
        let newest = trials[trials.len() - 1];
        let (x, y) = self.point(newest);
        let slope = trials.iter().rev().nth(1).map_or(self.slope, |before| {
            let (x0, y0) = self.point(*before);
            (y - y0) / (x - x0)
        });
        let aim = if (y / slope).is_finite() {
            (y / slope).abs()
        } else {
            f64::INFINITY
        };
        // Every step may be twice as long as the one before, and must be four times as long as the shortest one:
        // neither a flat nor a jagged excess takes long.
        let reach = 2f64.powi(trials.len().min(500) as i32 - 1);
        let min_step = (self.precision.step(newest.value) / newest.value).ln_1p();
        let distance = aim.min(4f64.ln() * reach).max(min_step * reach * reach);
        if end > newest.value {
            let value = newest.value * distance.exp();
            let value = self.precision.between(value, newest.value, f64::INFINITY);
            value.min(end)
        } else {
            let value = newest.value * (-distance).exp();
            self.precision.between(value, 0.0, newest.value).max(end)
        }
    }

    /// The next value between two trials: by inverse interpolation through the four trials nearest to the target, else
    /// by the straight line between the two; the middle of the two if that is `slow`.
    fn inwards(&self, trials: &mut [Trial], good: Trial, fails: Trial, slow: bool) -> f64 {
        let ((a, fa), (b, fb)) = (self.point(good), self.point(fails));
        let inside = |x: &f64| !slow && (*x - a) * (*x - b) < 0.0;
        trials.sort_by(|s, t| self.point(*s).1.abs().total_cmp(&self.point(*t).1.abs()));
        let nearest: Vec<_> = trials.iter().take(4).map(|trial| self.point(*trial)).collect();
        let line = a + (b - a) * fa / (fa - fb);
        let x = Some(inverse(nearest))
            .filter(inside)
            .or(Some(line).filter(inside));
        let x = x.unwrap_or(0.5 * (a + b));
        self.precision.between(x.exp(), good.value, fails.value)
    }
}

/// The `x` at which the polynomial in `y` through `points` (x, y) meets `y = 0`, by Neville's scheme.
fn inverse(mut points: Vec<(f64, f64)>) -> f64 {
    let y: Vec<f64> = points.iter().map(|point| point.1).collect();
    for span in 1..y.len() {
        for i in 0..y.len() - span {
            let (low, high) = (points[i].0, points[i + 1].0);
            points[i].0 = low + (high - low) * y[i] / (y[i] - y[i + span]);
        }
    }
    points[0].0
}

/// Narrows `[low, high]` for a predicate that is false at `low`, true at `high` and switches once; returns
/// the true end when the two are neighbours or within `relative` of each other.
pub(crate) fn first_true(
    mut low: f64,
    mut high: f64,
    relative: f64,
    mut holds: impl FnMut(f64) -> bool,
) -> f64 {
    while high - low > relative * high.abs() {
        // Geometric steps while the bracket spans magnitudes.
        let middle = if low > 0.0 && high > 4.0 * low {
            (low * high).sqrt()
        } else {
            low + 0.5 * (high - low)
        };
        if middle <= low || middle >= high {
            break;
        }
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// Smallest value of a function with one valley on `[low, high]`, by golden sections.
pub(crate) fn minimum(low: f64, high: f64, f: impl FnMut(f64) -> f64) -> f64 {
    minimum_within(low, high, 1e-12, f)
}

/// [`minimum`], until the bracket is as narrow as `width`, relatively.
pub(crate) fn minimum_within(mut low: f64, mut high: f64, width: f64, mut f: impl FnMut(f64) -> f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut f_left, mut f_right) = (f(left), f(right));
    let mut best = f_left.min(f_right);
    for _ in 0..200 {
        if high - low <= width * (low.abs() + high.abs()) {
            break;
        }
        if f_left <= f_right {
            high = right;
            (right, f_right) = (left, f_left);
            left = high - GOLDEN * (high - low);
            f_left = f(left);
            best = best.min(f_left);
        } else {
            low = left;
            (left, f_left) = (right, f_right);
            right = low + GOLDEN * (high - low);
            f_right = f(right);
            best = best.min(f_right);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const REAL: Precision = Precision::Real {
        width: 1e-9,
        close: 0.0,
    };
    const CLOSE: Precision = Precision::Real {
        width: 1e-9,
        close: 1e-6,
    };

    /// Searches from `start`; returns the answer and the number of values tried.
    fn find(
        ends: (f64, f64),
        start: f64,
        precision: Precision,
        excess: impl Fn(f64) -> f64,
    ) -> (Option<f64>, u32) {
        let mut tried = 0;
        let (safe, risky) = ends;
        let search = Bisection {
            safe,
            risky,
            start,
            slope: 1.0,
            precision,
        };
        let found = search.run(|value| {
            tried += 1;
            assert!(
                (safe.min(risky)..=safe.max(risky)).contains(&value),
                "{value} tried"
            );
            Ok::<_, Infallible>(excess(value))
        });
        (found.unwrap_or(None), tried)
    }

    fn check(root: f64, slope: f64, start: f64, precision: Precision, max_tried: u32) {
        let excess = |x: f64| slope * (x / root).ln() + 0.1 * slope.signum() * (x / root).ln().powi(3);
        let ends = if slope < 0.0 { (1e12, 1e-12) } else { (1e-12, 1e12) };
        let (found, tried) = find(ends, start, precision, excess);
        let found = found.unwrap();
        let off = (found / root - 1.0).abs();
        assert!(excess(found) <= 0.0, "{found} is past {root}");
        assert!(off <= 1e-6, "{found} is off {root} by {off:e}");
        if precision.close() == 0.0 {
            assert!(off <= 1e-9, "{found} is off {root} by {off:e}");
        }
        assert!(tried <= max_tried, "{tried} values tried for {root}");
    }

    #[test]
    fn roots_are_found_from_the_safe_side() {
        check(1.0, -1.0, 1.3, CLOSE, 5);
        check(7.3, -4.0, 9.0, CLOSE, 8);
        check(7.3, -4.0, 5.0, CLOSE, 8);
        check(1e-4, 1.0, 1e-5, CLOSE, 8);
        check(1.0, -1.0, 1.3, REAL, 8);
        check(7.3, -1.4, 1e9, REAL, 20);
        check(7.3, -1.4, 1e-9, REAL, 20);
        check(1e-4, 5.0, 1.0, REAL, 20);
    }

    #[test]
    fn the_next_whole_number_fails() {
        for (root, start) in [
            (3000.4, 2000.0),
            (3000.0, 1.0),
            (1.2, 50.0),
            (123_456_789.9, 1.0),
            (7.5, 7.0),
        ] {
            let excess = |x: f64| 0.5 * (x / root).ln() + 1e-3 * (x / root - 1.0);
            let (found, tried) = find((1.0, 2f64.powi(52)), start, Precision::Whole, excess);
            assert_eq!(found, Some(f64::floor(root)));
            assert!(tried <= 14, "{tried} values tried for {root}");
        }
    }

    #[test]
    fn flat_and_broken_curves_are_searched_in_few_tries() {
        let check = |precision, start, excess: &dyn Fn(f64) -> f64, expected: Option<f64>, max_tried: u32| {
            let (found, tried) = find((1e6, 1e-6), start, precision, excess);
            let near = found
                .zip(expected)
                .map(|(found, expected)| found / expected - 1.0);
            assert!(
                near.map_or(found == expected, |off| (0.0..1e-6).contains(&off)),
                "{found:?} {expected:?}"
            );
            assert!(tried <= max_tried, "{tried} values tried for {expected:?}");
        };
        check(REAL, 1.0, &|_| 0.5, None, 20);
        check(REAL, 1.0, &|_| f64::INFINITY, None, 20);
        check(REAL, 1.0, &|_| f64::NAN, None, 20);
        check(REAL, 1.0, &|_| -0.5, Some(1e-6), 20);
        check(
            REAL,
            3.0,
            &|x| if x < 0.9 { f64::INFINITY } else { -x.ln() },
            Some(1.0),
            20,
        );
        check(
            CLOSE,
            8.0,
            &|x| if x < 0.9 { f64::INFINITY } else { -x.ln() },
            Some(1.0),
            12,
        );
        check(REAL, 1.0, &|x| if x < 2.5 { 1.0 } else { -1.0 }, Some(2.5), 70);
        check(CLOSE, 1.0, &|x| if x < 2.5 { 1e-3 } else { -1.0 }, Some(2.5), 70);
    }

    #[test]
    fn sign_of_the_excess_is_the_comparison() {
        let close: f64 = 0.3;
        for (epsilon, target, holds) in [
            (close, close, true),
            (close.next_up(), close, false),
            (0.0, 0.0, true),
            (f64::from_bits(1), 0.0, false),
            (f64::NAN, 1.0, false),
            (f64::INFINITY, 1.0, false),
            (0.0, 1.0, true),
        ] {
            assert_eq!(excess(epsilon, target) <= 0.0, holds, "{epsilon} {target}");
        }
    }
}

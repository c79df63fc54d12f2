//! Unconstrained minimisation of smooth functions that may be infinite outside their domain.

use std::collections::VecDeque;

/// Limited-memory quasi-Newton descent with a line search by bisection, which accepts kinks and infinities.
///
/// # Source
/// Nocedal and Wright, "Numerical Optimization" (2006), algorithm 7.4; Lewis and Overton, "Nonsmooth optimization via
/// quasi-Newton methods" (2013), algorithm 2.6 (line search).
#[derive(Debug, Clone, Copy)]
pub(super) struct Descent {
    /// Pairs of steps and gradient changes that are remembered.
    pub(super) memory: usize,
    /// Most steps.
    pub(super) steps: usize,
    /// Ends when this many steps in a row gain less than `tolerance`.
    pub(super) patience: usize,
    /// Absolute tolerance of the function's value.
    pub(super) tolerance: f64,
}

impl Default for Descent {
    fn default() -> Self {
        Self {
            memory: 12,
            steps: 500,
            patience: 3,
            tolerance: 1e-10,
        }
    }
}

/// The progress of an optimiser.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Steps taken.
    pub steps: usize,
    /// Estimate of the share of the way, in `[0, 1]`; it never falls. Gains shrink by orders of magnitude toward the minimum, so
    /// it goes by how many of them the gain of a step still has to lose.
    pub fraction: f64,
}

/// Gains between the largest and the one that counts as none.
struct Way {
    tolerance: f64,
    largest: f64,
    share: f64,
}

impl Way {
    fn new(tolerance: f64) -> Self {
        Self {
            tolerance,
            largest: tolerance,
            share: 0.0,
        }
    }

    fn share(&mut self, gain: f64) -> f64 {
        self.largest = self.largest.max(gain);
        let all = (self.largest / self.tolerance).ln();
        let gone = (self.largest / gain.max(self.tolerance)).ln();
        if all > 0.0 {
            self.share = self.share.max((gone / all).clamp(0.0, 1.0));
        }
        self.share
    }
}

/// A point with its value and gradient.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) x: Vec<f64>,
    pub(super) value: f64,
    pub(super) gradient: Vec<f64>,
}

impl Descent {
    /// Goes down from `x`. `function` returns the value and writes the gradient, or returns infinity or NaN outside its
    /// domain; never ends above the value at `x`.
    pub(super) fn minimise(&self, x: Vec<f64>, function: impl FnMut(&[f64], &mut [f64]) -> f64) -> Point {
        self.minimise_watched(x, function, &mut |_| ())
    }

    /// Minimises, and calls `watch` after every step.
    pub(super) fn minimise_watched(
        &self,
        x: Vec<f64>,
        mut function: impl FnMut(&[f64], &mut [f64]) -> f64,
        watch: &mut dyn FnMut(Progress),
    ) -> Point {
        let mut gradient = vec![0.0; x.len()];
        let value = function(&x, &mut gradient);
        let mut point = Point { x, value, gradient };
        let mut pairs: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::new();
        let mut idle = 0;
        let mut way = Way::new(self.tolerance);
        for steps in 1..=self.steps {
            let mut direction = direction(&point.gradient, &pairs);
            let mut slope = dot(&direction, &point.gradient);
            // Not below 0, or not a number: begin again with the gradient itself.
            if slope.partial_cmp(&0.0) != Some(std::cmp::Ordering::Less) {
                pairs.clear();
                direction = point.gradient.iter().map(|entry| -entry).collect();
                slope = dot(&direction, &point.gradient);
            }
            if slope.partial_cmp(&0.0) != Some(std::cmp::Ordering::Less) {
                break;
            }
            // The gradient has no scale of its own.
            let first = if pairs.is_empty() {
                0.1 / (-slope).sqrt().max(0.1)
            } else {
                1.0
            };
            let Some(next) = search(&point, &direction, slope, first, &mut function) else {
                if pairs.is_empty() {
                    break;
                }
                pairs.clear();
                continue;
            };
            let gain = point.value - next.value;
            let step: Vec<f64> = next.x.iter().zip(&point.x).map(|(a, b)| a - b).collect();
            let change: Vec<f64> = next
                .gradient
                .iter()
                .zip(&point.gradient)
                .map(|(a, b)| a - b)
                .collect();
            let curvature = dot(&step, &change);
            if curvature > 1e-14 * (dot(&step, &step) * dot(&change, &change)).sqrt() {
                if pairs.len() == self.memory {
                    pairs.pop_front();
                }
                pairs.push_back((step, change, curvature));
            }
            point = next;
            let fraction = way.share(gain).max(steps as f64 / self.steps as f64);
            watch(Progress { steps, fraction });
            idle = if gain < self.tolerance { idle + 1 } else { 0 };
            if idle >= self.patience {
                break;
            }
        }
        point
    }
}

/// Minus the inverse Hessian, as the pairs tell it, times the gradient.
fn direction(gradient: &[f64], pairs: &VecDeque<(Vec<f64>, Vec<f64>, f64)>) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().map(|entry| -entry).collect();
    let mut shares = Vec::with_capacity(pairs.len());
    for (step, change, curvature) in pairs.iter().rev() {
        let share = dot(step, &q) / curvature;
        add(&mut q, -share, change);
        shares.push(share);
    }
    if let Some((_, change, curvature)) = pairs.back() {
        let scale = curvature / dot(change, change);
        q.iter_mut().for_each(|entry| *entry *= scale);
    }
    for ((step, change, curvature), share) in pairs.iter().zip(shares.into_iter().rev()) {
        let back = dot(change, &q) / curvature;
        add(&mut q, share - back, step);
    }
    q
}

/// A step that falls enough and flattens the slope; the best that falls enough if none does both.
fn search(
    point: &Point,
    direction: &[f64],
    slope: f64,
    first: f64,
    function: &mut impl FnMut(&[f64], &mut [f64]) -> f64,
) -> Option<Point> {
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, first);
    let mut best: Option<Point> = None;
    for _ in 0..40 {
        let mut x = point.x.clone();
        add(&mut x, length, direction);
        let mut gradient = vec![0.0; x.len()];
        let value = function(&x, &mut gradient);
        if value <= point.value + 1e-4 * length * slope {
            let flat = dot(&gradient, direction) >= 0.9 * slope;
            if best.as_ref().is_none_or(|best| value <= best.value) {
                best = Some(Point { x, value, gradient });
            }
            if flat {
                break;
            }
            low = length;
        } else {
            high = length;
        }
        length = if high.is_finite() {
            0.5 * (low + high)
        } else {
            2.0 * low
        };
        if high.is_finite() && (high - low) <= 1e-14 * high {
            break;
        }
    }
    best
}

undertone_simd::vectorised! {
    /// Inner product, with partial sums.
    pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
        let mut sums = [0.0; 16];
        let (xs, ys) = (x.chunks_exact(16), y.chunks_exact(16));
        let rest: f64 = xs.remainder().iter().zip(ys.remainder()).map(|(a, b)| a * b).sum();
        for (a, b) in xs.zip(ys) {
            for lane in 0..16 {
                sums[lane] += a[lane] * b[lane];
            }
        }
        sums.iter().sum::<f64>() + rest
    }
}

undertone_simd::vectorised! {
    /// `x <- x + factor y`.
    fn add(x: &mut [f64], factor: f64, y: &[f64]) {
        for (entry, other) in x.iter_mut().zip(y) {
            *entry += factor * other;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curved_valley_is_followed_to_its_minimum() {
        let rosenbrock = |x: &[f64], g: &mut [f64]| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            g[0] = -2.0 * a - 400.0 * x[0] * b;
            g[1] = 200.0 * b;
            a * a + 100.0 * b * b
        };
        let found = Descent::default().minimise(vec![-1.2, 1.0], rosenbrock);
        assert!(found.value < 1e-12, "{found:?}");
    }

    #[test]
    fn progress_never_falls_and_reaches_the_end() {
        let mut shares = Vec::new();
        let bowl = |x: &[f64], g: &mut [f64]| {
            for (i, (g, x)) in g.iter_mut().zip(x).enumerate() {
                *g = 2.0 * (i + 1) as f64 * x;
            }
            g.iter().zip(x).map(|(g, x)| 0.5 * g * x).sum()
        };
        let watch = &mut |progress: Progress| {
            assert_eq!(progress.steps, shares.len() + 1);
            shares.push(progress.fraction);
        };
        let plain = Descent::default().minimise(vec![9.0; 30], bowl);
        let watched = Descent::default().minimise_watched(vec![9.0; 30], bowl, watch);
        assert_eq!(plain.x, watched.x);
        assert!(shares.len() > 5 && shares.is_sorted(), "{shares:?}");
        assert!(shares[0] < 0.5 && shares.last() == Some(&1.0), "{shares:?}");
    }

    #[test]
    fn a_wall_does_not_hide_the_minimum() {
        // x - ln x has its minimum at 1 and ends at 0.
        let barrier = |x: &[f64], g: &mut [f64]| {
            if x[0] <= 0.0 {
                return f64::INFINITY;
            }
            g[0] = 1.0 - 1.0 / x[0];
            x[0] - x[0].ln()
        };
        for start in [1e-3, 30.0] {
            let found = Descent::default().minimise(vec![start], barrier);
            assert!((found.x[0] - 1.0).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn a_minimum_at_a_kink_is_found() {
        let kink = |x: &[f64], g: &mut [f64]| {
            g[0] = 2.0 * x[0] + x[0].signum();
            g[1] = 2.0 * (x[1] - 1.0);
            x[0] * x[0] + x[0].abs() + (x[1] - 1.0).powi(2)
        };
        let found = Descent::default().minimise(vec![3.0, -2.0], kink);
        assert!(found.value < 1e-6, "{found:?}");
    }
}

//! Pairs of Gaussian mixtures of one standard deviation: the plain, the Poisson-sampled, the binomially
//! shifted Gaussian, under any relation.
//!
//! `P = sum_i a_i N(mu_i, sigma^2)` with all `mu_i >= 0` against `Q = sum_j b_j N(nu_j, sigma^2)` with all
//! `nu_j <= 0`. Then `P / N(0, sigma^2)` never falls and `Q / N(0, sigma^2)` never rises in `x`, so the loss
//! `L(x) = ln P/Q` never falls, and the outcomes of loss above any level are a half line.

use super::loss_range::Node;
use crate::special::{LogSum, ln_normal_cdf};

/// Gauss-Legendre with three nodes on `[0, 1]`.
const NODES: [f64; 3] = [0.112_701_665_379_258_3, 0.5, 0.887_298_334_620_741_7];
const WEIGHTS: [f64; 3] = [5.0 / 18.0, 8.0 / 18.0, 5.0 / 18.0];
/// Losses up to here are differences of ratios near 1, and computed as such.
pub(super) const SMALL: f64 = 0.5;

/// `e^x` is 0 for smaller numbers.
const VANISHING: f64 = -746.0;

/// One component: a shift (in standard deviations) and its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Component {
    pub(crate) shift: f64,
    pub(crate) probability: f64,
}

/// An outcome, with its loss and how fast the loss grows there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) x: f64,
    pub(super) loss: f64,
    pub(super) slope: f64,
    /// Derivative of the slope.
    pub(super) curvature: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GaussianMixtures {
    /// Shifts `>= 0`, in standard deviations; probabilities add up to 1.
    pub(super) high: Vec<Component>,
    /// Shifts `<= 0`.
    pub(super) low: Vec<Component>,
}

impl GaussianMixtures {
    /// Gaussians of both mixtures.
    pub(super) fn components(&self) -> usize {
        self.high.len() + self.low.len()
    }

    /// Shifts are given as distances `>= 0`: `high` to the right, `low` to the left, both in units in which the
    /// noise has standard deviation `noise_multiplier`.
    pub(crate) fn new(noise_multiplier: f64, high: &[(f64, f64)], low: &[(f64, f64)]) -> Self {
        let scaled = |components: &[(f64, f64)], sign: f64| {
            let used = components.iter().filter(|(_, probability)| *probability > 0.0);
            used.map(|&(shift, probability)| Component {
                shift: sign * shift / noise_multiplier,
                probability,
            })
            .collect()
        };
        Self {
            high: scaled(high, 1.0),
            low: scaled(low, -1.0),
        }
    }

    /// `L(x)`, `dL/dx >= 0` and the next derivative, with `x` in standard deviations.
    pub(super) fn edge(&self, x: f64) -> Edge {
        let (high, low) = (log_ratio(&self.high, x), log_ratio(&self.low, x));
        Edge {
            x,
            loss: high.value - low.value,
            slope: high.slope - low.slope,
            curvature: high.curvature - low.curvature,
        }
    }

    /// The intervals, from left to right, outside which `P` and `Q` each have mass below `e^log_tail` times the number
    /// of components. One, unless components lie further apart than any outcome strays.
    pub(super) fn intervals(&self, log_tail: f64) -> Vec<(f64, f64)> {
        let mut half_width = 1.0;
        while ln_normal_cdf(-half_width) > log_tail {
            half_width *= 1.5;
        }
        let half_width = crate::search::first_true(0.0, half_width, 1e-3, |x| ln_normal_cdf(-x) <= log_tail);
        let mut centres: Vec<f64> = self.high.iter().chain(&self.low).map(|c| c.shift).collect();
        centres.sort_by(f64::total_cmp);
        let mut intervals: Vec<(f64, f64)> = Vec::new();
        for centre in centres {
            match intervals.last_mut() {
                Some(last) if centre - half_width <= last.1 => last.1 = centre + half_width,
                _ => intervals.push((centre - half_width, centre + half_width)),
            }
        }
        intervals
    }

    /// `(P, Q)` of outcomes outside `intervals`.
    pub(super) fn outside(&self, intervals: &[(f64, f64)]) -> (f64, f64) {
        let ends = intervals
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |ends, interval| {
                (ends.0.min(interval.0), ends.1.max(interval.1))
            });
        let beyond = |components: &[Component]| -> f64 {
            let mass = |c: &Component| {
                let gaps = intervals.windows(2).map(|pair| {
                    let (from, to) = (pair[0].1 - c.shift, pair[1].0 - c.shift);
                    // The nearer end of the gap bounds it.
                    ln_normal_cdf(-from.max(-to)).exp()
                });
                let outer = ln_normal_cdf(c.shift - ends.1).exp() + ln_normal_cdf(ends.0 - c.shift).exp();
                c.probability * (outer + gaps.sum::<f64>())
            };
            components.iter().map(mass).sum()
        };
        (beyond(&self.high), beyond(&self.low))
    }

    /// The noise multiplier, where the pair is that of the plain Gaussian.
    pub(crate) fn as_gaussian(&self) -> Option<f64> {
        match (self.high.as_slice(), self.low.as_slice()) {
            ([high], [low]) => Some((high.shift - low.shift).recip()),
            _ => None,
        }
    }

    /// The largest loss of this direction, rounded up; `+inf` where there is none.
    ///
    /// A mixture without a shift is the noise itself, and the other mixture is at least its own part without a shift, at every outcome.
    pub(crate) fn max_loss(&self, reversed: bool) -> f64 {
        let (worst, other) = if reversed {
            (&self.low, &self.high)
        } else {
            (&self.high, &self.low)
        };
        if worst.iter().any(|component| component.shift != 0.0) {
            return f64::INFINITY;
        }
        let (kept, moved): (Vec<&Component>, Vec<&Component>) =
            other.iter().partition(|component| component.shift == 0.0);
        let sum = |components: Vec<&Component>| -> f64 { components.iter().map(|c| c.probability).sum() };
        let (kept, moved) = (sum(kept), sum(moved));
        // PRIVACY: a probability next to 1 holds too few digits of what is missing.
        let loss = (-kept.ln()).max(-(-moved).ln_1p());
        loss * (1.0 + 4.0 * f64::EPSILON)
    }

    /// The largest distance between two components.
    pub(crate) fn largest_shift(&self) -> f64 {
        let largest = |components: &[Component]| components.iter().map(|c| c.shift.abs()).fold(0.0, f64::max);
        largest(&self.high) + largest(&self.low)
    }

    /// Points of the trapezoid rule for integrals over `P` and `Q`.
    pub(crate) fn probe(&self, log_tail: f64) -> Vec<Node> {
        const STEP: f64 = 0.125;
        let log_weight = STEP.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        let node = |x: f64| {
            let edge = self.edge(x);
            Node {
                loss: edge.loss,
                log_p: log_weight - 0.5 * x * x + log_ratio(&self.high, x).value,
                slope: edge.slope,
                width: 0.0,
            }
        };
        let points = |(left, right): (f64, f64)| {
            let count = ((right - left) / STEP).ceil() as usize + 1;
            (0..count).map(move |index| left + STEP * index as f64)
        };
        self.intervals(log_tail)
            .into_iter()
            .flat_map(points)
            .map(node)
            .collect()
    }

    /// The point of `[low, high]` at which the loss is `loss`, with the slope there (safeguarded Newton steps).
    pub(super) fn inverse(&self, loss: f64, start: f64, (from, to): (f64, f64)) -> Edge {
        let (mut low, mut high) = (from, to);
        let mut here = self.edge(start.clamp(from, to));
        for _ in 0..100 {
            let error = here.loss - loss;
            if error.abs() <= 1e-15 * loss.abs() {
                break;
            }
            if error > 0.0 {
                high = here.x;
            } else {
                low = here.x;
            }
            let newton = here.x - error / here.slope;
            let inside = newton >= low && newton <= high;
            let next = if inside { newton } else { 0.5 * (low + high) };
            let moved = (next - here.x).abs();
            // Newton's step squares the error: after one this short nothing is left of it.
            let left = moved * moved * (here.curvature / here.slope).abs();
            let short = moved <= 1e-4 * (next - from) && left <= 1e-16 * (next - from);
            if inside && short || moved <= 1e-15 * (1.0 + next.abs()) {
                here.x = next;
                break;
            }
            here = self.edge(next);
        }
        Edge { loss, ..here }
    }

    /// `ln` of the hockey-stick divergence `sup_S P(S) - e^epsilon Q(S)` of one release, by quadrature.
    pub(crate) fn log_hockey_stick(&self, epsilon: f64, log_tail: f64) -> f64 {
        let mut sum = LogSum::new();
        for (left, right) in self.intervals(log_tail) {
            if self.edge(right).loss <= epsilon {
                continue;
            }
            let first = self.edge(left);
            let first = if first.loss >= epsilon {
                first
            } else {
                self.inverse(epsilon, right, (left, right))
            };
            // Panels grow from the kink at the start, where the integrand rises from zero.
            let mut edge = first.x;
            let mut width = (0.1 / first.slope).min(1e-3);
            while edge < right {
                width = width.min(right - edge).max(1e-15 * (1.0 + edge.abs()));
                for (node, weight) in NODES.iter().zip(WEIGHTS) {
                    let x = edge + width * node;
                    let high = log_ratio(&self.high, x).value;
                    let loss = high - log_ratio(&self.low, x).value;
                    if loss > epsilon {
                        sum.add(
                            (weight * width).ln() - 0.5 * x * x + high + (-(epsilon - loss).exp_m1()).ln(),
                        );
                    }
                }
                edge += width;
                width = (1.5 * width).min(0.05);
            }
        }
        sum.get() - 0.5 * (2.0 * std::f64::consts::PI).ln()
    }

    /// The value of [`GaussianMixtures::log_hockey_stick`] for the pair `(Q, P)`.
    pub(crate) fn log_hockey_stick_reversed(&self, epsilon: f64, log_tail: f64) -> f64 {
        let mirrored = Self {
            high: self.low.iter().map(Component::mirrored).collect(),
            low: self.high.iter().map(Component::mirrored).collect(),
        };
        mirrored.log_hockey_stick(epsilon, log_tail)
    }
}

impl Component {
    fn mirrored(&self) -> Self {
        Self {
            shift: -self.shift,
            probability: self.probability,
        }
    }
}

/// A function of the outcome at one point, with its derivatives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Local {
    pub(super) value: f64,
    pub(super) slope: f64,
    pub(super) curvature: f64,
}

/// `A(x) - 1` with its derivatives, for `A = sum_i a_i e^{x mu_i - mu_i^2 / 2}`, without cancellation.
#[inline]
pub(super) fn excess(components: &[Component], x: f64) -> Local {
    let (mut value, mut slope, mut curvature) = (0.0, 0.0, 0.0);
    // A component that is not shifted adds to neither.
    for c in components.iter().filter(|c| c.shift != 0.0) {
        let rise = (c.shift * (x - 0.5 * c.shift)).exp_m1();
        value += c.probability * rise;
        slope += c.probability * c.shift * (1.0 + rise);
        curvature += c.probability * c.shift * c.shift * (1.0 + rise);
    }
    Local {
        value,
        slope,
        curvature,
    }
}

/// `A(x) = e^peak sum`, where nothing overflows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaled {
    pub(super) peak: f64,
    pub(super) sum: f64,
    /// The sum with each term times its shift.
    weighted: f64,
    /// The sum with each term times the square of its shift.
    squared: f64,
}

impl Scaled {
    #[inline]
    pub(super) fn new(components: &[Component], x: f64) -> Self {
        let exponent = |c: &Component| c.shift * (x - 0.5 * c.shift);
        if let [only] = components {
            return Self {
                peak: exponent(only),
                sum: 1.0,
                weighted: only.shift,
                squared: only.shift * only.shift,
            };
        }
        let peak = components.iter().map(exponent).fold(f64::NEG_INFINITY, f64::max);
        let (mut sum, mut weighted, mut squared) = (0.0, 0.0, 0.0);
        for c in components {
            let below = exponent(c) - peak;
            // No number is that small, and the library takes long to say so.
            if below < VANISHING {
                continue;
            }
            let weight = c.probability * if below == 0.0 { 1.0 } else { below.exp() };
            sum += weight;
            weighted += weight * c.shift;
            squared += weight * c.shift * c.shift;
        }
        Self {
            peak,
            sum,
            weighted,
            squared,
        }
    }

    /// `ln A(x)`, whose derivatives are the mean and the variance of the shift under the posterior at `x`.
    fn log(self) -> Local {
        let slope = self.weighted / self.sum;
        Local {
            value: if self.sum == 1.0 {
                self.peak
            } else {
                self.peak + self.sum.ln()
            },
            slope,
            curvature: self.squared / self.sum - slope * slope,
        }
    }
}

/// `ln A(x)` with its derivatives.
pub(super) fn log_ratio(components: &[Component], x: f64) -> Local {
    let largest = components
        .iter()
        .map(|c| c.shift * (x - 0.5 * c.shift))
        .fold(f64::NEG_INFINITY, f64::max);
    if components.len() > 1 && largest < SMALL {
        let excess = excess(components, x);
        // Further down, what the probabilities lack of a sum of 1 would count.
        if excess.value > -SMALL {
            let slope = excess.slope / (1.0 + excess.value);
            return Local {
                value: excess.value.ln_1p(),
                slope,
                curvature: excess.curvature / (1.0 + excess.value) - slope * slope,
            };
        }
    }
    Scaled::new(components, x).log()
}

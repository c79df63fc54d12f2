//! Pairs of Gaussian mixtures of one standard deviation: the plain, the Poisson-sampled, the binomially
//! shifted Gaussian, under any relation.
//!
//! `P = sum_i a_i N(mu_i, sigma^2)` with all `mu_i >= 0` against `Q = sum_j b_j N(nu_j, sigma^2)` with all
//! `nu_j <= 0`. Then `P / N(0, sigma^2)` never falls and `Q / N(0, sigma^2)` never rises in `x`, so the loss
//! `L(x) = ln P/Q` never falls, and the outcomes of loss above any level are a half line.

use super::atoms::{Atoms, Bound};
use super::pair::Resolution;
use super::probe::Node;
use crate::special::{LogSum, ln_normal_cdf};

/// Gauss-Legendre with three nodes on `[0, 1]`.
const NODES: [f64; 3] = [0.112_701_665_379_258_3, 0.5, 0.887_298_334_620_741_7];
const WEIGHTS: [f64; 3] = [5.0 / 18.0, 8.0 / 18.0, 5.0 / 18.0];
/// Quadrature panels: at most this many standard deviations wide. Both densities are mixtures of Gaussians, so that is
/// narrow whatever the loss does.
const PANEL: f64 = 0.08;
/// Losses up to here are differences of ratios near 1, and computed as such.
const SMALL: f64 = 0.5;

/// One component: a shift (in standard deviations) and its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Component {
    pub(crate) shift: f64,
    pub(crate) probability: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GaussianMixtures {
    /// Shifts `>= 0`, in standard deviations; probabilities add up to 1.
    high: Vec<Component>,
    /// Shifts `<= 0`.
    low: Vec<Component>,
}

impl GaussianMixtures {
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

    /// `L(x)`, with `x` in standard deviations.
    fn loss(&self, x: f64) -> f64 {
        log_ratio(&self.high, x) - log_ratio(&self.low, x)
    }

    /// `dL/dx >= 0`.
    fn slope(&self, x: f64) -> f64 {
        mean_shift(&self.high, x) - mean_shift(&self.low, x)
    }

    /// The intervals, from left to right, outside which `P` and `Q` each have mass below `e^log_tail` times the number
    /// of components. One, unless components lie further apart than any outcome strays.
    fn intervals(&self, log_tail: f64) -> Vec<(f64, f64)> {
        let mut reach = 1.0;
        while ln_normal_cdf(-reach) > log_tail {
            reach *= 1.5;
        }
        let reach = crate::search::first_true(0.0, reach, 1e-3, |x| ln_normal_cdf(-x) <= log_tail);
        let mut centres: Vec<f64> = self.high.iter().chain(&self.low).map(|c| c.shift).collect();
        centres.sort_by(f64::total_cmp);
        let mut intervals: Vec<(f64, f64)> = Vec::new();
        for centre in centres {
            match intervals.last_mut() {
                Some(last) if centre - reach <= last.1 => last.1 = centre + reach,
                _ => intervals.push((centre - reach, centre + reach)),
            }
        }
        intervals
    }

    /// `(P, Q)` of outcomes outside `intervals`.
    fn outside(&self, intervals: &[(f64, f64)]) -> (f64, f64) {
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

    /// The largest distance between two components.
    pub(crate) fn largest_shift(&self) -> f64 {
        let most = |components: &[Component]| components.iter().map(|c| c.shift.abs()).fold(0.0, f64::max);
        most(&self.high) + most(&self.low)
    }

    /// Points of the trapezoid rule for integrals over `P` and `Q`.
    pub(crate) fn probe(&self, log_tail: f64) -> Vec<Node> {
        const STEP: f64 = 0.125;
        let log_weight = STEP.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        let node = |x: f64| Node {
            loss: self.loss(x),
            log_p: log_weight - 0.5 * x * x + log_ratio(&self.high, x),
            slope: self.slope(x),
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

    /// The pair as atoms. Cells end where the loss is a multiple of `step` ([`Bound::Upper`]) or half way
    /// between two ([`Bound::Lower`]); a cell spans several steps where it would be narrower than the width of the
    /// resolution.
    pub(crate) fn atoms(&self, bound: Bound, resolution: &Resolution) -> Atoms {
        let Resolution {
            step,
            width,
            decisive,
            log_tail,
            bulk,
            rare_step,
        } = *resolution;
        let offset = match bound {
            Bound::Upper => 0.0,
            Bound::Lower => 0.5,
        };
        let mut atoms = Atoms::default();
        let intervals = self.intervals(log_tail);
        for &(left, right) in &intervals {
            let mut edge = left;
            let mut edge_loss = self.loss(left);
            let last_loss = self.loss(right);
            while edge < right {
                let rare = edge_loss < bulk.0 || edge_loss >= bulk.1;
                let step = if rare { rare_step } else { step };
                // The next end: the last multiple of the step within reach.
                let steps = edge_loss / step - offset;
                // A loss that is a multiple up to rounding counts as one, or the cell would have no width.
                let next = (steps + 1e-9 + 4.0 * f64::EPSILON * steps.abs()).floor() + 1.0;
                // Outcomes merged over several steps round down by up to one: only where that hardly ever happens.
                let decisive = edge_loss >= decisive.0 && edge_loss <= decisive.1;
                let single = rare || bound == Bound::Lower && decisive;
                let width = if single { 1e-12 } else { width };
                let mut reach = if single { step / self.slope(edge) } else { width };
                let (end, end_loss) = loop {
                    let x = (edge + reach).min(right);
                    let loss = if x < right { self.loss(x) } else { last_loss };
                    let index = (loss / step - offset).floor();
                    if index >= next {
                        // A cell wider than asked for ends at the first multiple.
                        let index = if reach > width { next } else { index };
                        let loss = (index + offset) * step;
                        // A wide cell of rare losses does not reach into the bulk.
                        let loss = if rare && edge_loss < bulk.0 {
                            loss.min(bulk.0)
                        } else {
                            loss
                        };
                        break (self.inverse(loss, edge, x).max(edge), loss);
                    }
                    if x >= right {
                        break (right, last_loss);
                    }
                    reach *= 2.0;
                };
                let (log_p, rise) = self.masses(edge, end, edge_loss, end_loss);
                atoms.push_cell(bound, edge_loss, end_loss, log_p, rise);
                (edge, edge_loss) = (end, end_loss);
            }
        }
        if bound == Bound::Upper {
            // PRIVACY: what was cut off counts as lost, whole.
            (atoms.infinite_p, atoms.infinite_q) = self.outside(&intervals);
        }
        atoms
    }

    /// `ln` of the mass under `P` of outcomes between `from` and `to`, and how they rise between the losses at
    /// the ends (see [`Atoms::push_cell`]).
    fn masses(&self, from: f64, to: f64, from_loss: f64, to_loss: f64) -> (f64, f64) {
        let span = to_loss - from_loss;
        let panels = ((to - from) / PANEL).ceil().max(1.0);
        let width = (to - from) / panels;
        let small = from_loss.abs() < SMALL && to_loss.abs() < SMALL;
        let shrink = from_loss.exp_m1();
        // Sums in units of e^peak, which rises with the largest term so far.
        let (mut peak, mut p, mut rise) = (f64::NEG_INFINITY, 0.0, 0.0);
        for panel in 0..panels as u64 {
            for (node, weight) in NODES.iter().zip(WEIGHTS) {
                let x = from + width * (panel as f64 + node);
                // `P - e^from_loss Q` over the density of N(0, 1), and `P` over it, in units of e^scale.
                let (scale, mass, above) = if small {
                    // Without cancellation: both ratios minus one are known precisely.
                    let (high, low) = (excess(&self.high, x), excess(&self.low, x));
                    (0.0, 1.0 + high, high - low - shrink * (1.0 + low))
                } else {
                    let high = log_ratio(&self.high, x);
                    let loss = high - log_ratio(&self.low, x);
                    (high, 1.0, -(from_loss - loss).exp_m1())
                };
                let exponent = scale - 0.5 * x * x;
                if exponent > peak {
                    let shrunk = (peak - exponent).exp();
                    p *= shrunk;
                    rise *= shrunk;
                    peak = exponent;
                }
                let density = weight * (exponent - peak).exp();
                p += density * mass;
                rise += density * above;
            }
        }
        let log_p = peak + (p * width).ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        let full = -(-span).exp_m1();
        let rise = if span > 0.0 && p > 0.0 {
            (rise / p / full).clamp(0.0, 1.0)
        } else {
            0.5
        };
        (log_p, rise)
    }

    /// The point of `[low, high]` at which the loss is `loss` (safeguarded Newton steps from above).
    fn inverse(&self, loss: f64, mut low: f64, mut high: f64) -> f64 {
        let mut x = high;
        for _ in 0..60 {
            let error = self.loss(x) - loss;
            if error.abs() <= 1e-15 * loss.abs() {
                break;
            }
            if error > 0.0 {
                high = x;
            } else {
                low = x;
            }
            let newton = x - error / self.slope(x);
            let next = if newton >= low && newton <= high {
                newton
            } else {
                0.5 * (low + high)
            };
            if (next - x).abs() <= 1e-15 * (1.0 + x.abs()) {
                break;
            }
            x = next;
        }
        x
    }

    /// `ln` of the hockey-stick divergence `sup_S P(S) - e^epsilon Q(S)` of one release, by quadrature.
    pub(crate) fn log_hockey_stick(&self, epsilon: f64, log_tail: f64) -> f64 {
        let mut sum = LogSum::new();
        for (left, right) in self.intervals(log_tail) {
            if self.loss(right) <= epsilon {
                continue;
            }
            let mut edge = if self.loss(left) >= epsilon {
                left
            } else {
                self.inverse(epsilon, left, right)
            };
            // Panels grow from the kink at the start, where the integrand rises from zero.
            let mut width = (0.1 / self.slope(edge)).min(1e-3);
            while edge < right {
                width = width.min(right - edge).max(1e-15 * (1.0 + edge.abs()));
                for (node, weight) in NODES.iter().zip(WEIGHTS) {
                    let x = edge + width * node;
                    let high = log_ratio(&self.high, x);
                    let loss = high - log_ratio(&self.low, x);
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

    /// As [`GaussianMixtures::log_hockey_stick`] for the pair `(Q, P)`.
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

/// `A(x) - 1` for `A = sum_i a_i e^{x mu_i - mu_i^2 / 2}`, without cancellation.
fn excess(components: &[Component], x: f64) -> f64 {
    components
        .iter()
        .map(|c| c.probability * (c.shift * (x - 0.5 * c.shift)).exp_m1())
        .sum()
}

/// `ln A(x)`.
fn log_ratio(components: &[Component], x: f64) -> f64 {
    let exponent = |c: &Component| c.shift * (x - 0.5 * c.shift);
    if components.len() == 1 {
        return exponent(&components[0]);
    }
    let peak = components.iter().map(exponent).fold(f64::NEG_INFINITY, f64::max);
    if peak < SMALL {
        let excess = excess(components, x);
        // Further down, what the probabilities lack of a sum of 1 would count.
        if excess > -SMALL {
            return excess.ln_1p();
        }
    }
    let sum: f64 = components
        .iter()
        .map(|c| c.probability * (exponent(c) - peak).exp())
        .sum();
    peak + sum.ln()
}

/// `d ln A / dx`: the mean shift under the posterior at `x`.
fn mean_shift(components: &[Component], x: f64) -> f64 {
    let exponent = |c: &Component| c.shift * (x - 0.5 * c.shift);
    let peak = components.iter().map(exponent).fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut weighted) = (0.0, 0.0);
    for c in components {
        let weight = c.probability * (exponent(c) - peak).exp();
        sum += weight;
        weighted += weight * c.shift;
    }
    weighted / sum
}

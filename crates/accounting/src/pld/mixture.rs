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
/// Quadrature panels: at most this many standard deviations, and this much loss, wide.
const PANEL_SIGMAS: f64 = 0.1;
const PANEL_LOSS: f64 = 0.3;
/// Above this exponent `A - 1` is indistinguishable from `A`.
const LARGE: f64 = 30.0;

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

    /// The interval outside which `P` and `Q` each have mass below `2 e^log_tail` on either side.
    fn range(&self, log_tail: f64) -> (f64, f64) {
        let reach = |components: &[Component], sign: f64| {
            let log_mass = |x: f64| {
                let mut sum = LogSum::new();
                for c in components {
                    sum.add(c.probability.ln() + ln_normal_cdf(sign * c.shift - x));
                }
                sum.get()
            };
            let mut high = 1.0;
            while log_mass(high) > log_tail {
                high *= 1.5;
            }
            crate::search::first_true(0.0, high, 1e-3, |x| log_mass(x) <= log_tail)
        };
        let right = reach(&self.high, 1.0).max(reach(&self.low, 1.0));
        let left = reach(&self.low, -1.0).max(reach(&self.high, -1.0));
        (-left, right)
    }

    /// The largest distance between two components.
    pub(crate) fn largest_shift(&self) -> f64 {
        let most = |components: &[Component]| components.iter().map(|c| c.shift.abs()).fold(0.0, f64::max);
        most(&self.high) + most(&self.low)
    }

    /// Points of the trapezoid rule for integrals over `P` and `Q`.
    pub(crate) fn probe(&self, log_tail: f64) -> Vec<Node> {
        const STEP: f64 = 0.125;
        let (left, right) = self.range(log_tail);
        let count = ((right - left) / STEP).ceil() as usize + 1;
        let log_weight = STEP.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        (0..count)
            .map(|index| {
                let x = left + STEP * index as f64;
                Node {
                    loss: self.loss(x),
                    log_p: log_weight - 0.5 * x * x + log_ratio(&self.high, x),
                    slope: self.slope(x),
                }
            })
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
        } = *resolution;
        let offset = match bound {
            Bound::Upper => 0.0,
            Bound::Lower => 0.5,
        };
        let (left, right) = self.range(log_tail);
        let mut atoms = Atoms::default();
        let mut edge = left;
        let mut edge_loss = self.loss(left);
        let last_loss = self.loss(right);
        while edge < right {
            // The next end: the last multiple of the step within reach.
            let next = (edge_loss / step - offset + 1e-9).floor() + 1.0;
            // Outcomes merged over several steps round down by up to one: only where that hardly ever happens.
            let single = bound == Bound::Lower && edge_loss >= decisive.0 && edge_loss <= decisive.1;
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
        if bound == Bound::Upper {
            // PRIVACY: what was cut off counts as lost, whole.
            let outside = |components: &[Component]| {
                let mass = |c: &Component| {
                    c.probability
                        * (ln_normal_cdf(c.shift - right).exp() + ln_normal_cdf(left - c.shift).exp())
                };
                components.iter().map(mass).sum()
            };
            atoms.infinite_p = outside(&self.high);
            atoms.infinite_q = outside(&self.low);
        }
        atoms
    }

    /// `ln` of the mass under `P` of outcomes between `from` and `to`, and how they rise between the losses at
    /// the ends (see [`Atoms::push_cell`]).
    fn masses(&self, from: f64, to: f64, from_loss: f64, to_loss: f64) -> (f64, f64) {
        let span = to_loss - from_loss;
        let panels = ((to - from) / PANEL_SIGMAS)
            .max(span / PANEL_LOSS)
            .ceil()
            .max(1.0);
        let width = (to - from) / panels;
        let centre = 0.5 * (from + to);
        let (mut p, mut rise) = (0.0, 0.0);
        let large = from_loss.abs() > LARGE || to_loss.abs() > LARGE;
        let shrink = from_loss.exp_m1();
        // All in units of the normal density at the centre (times e^{loss} where that is large).
        let scale = if large { log_ratio(&self.high, centre) } else { 0.0 };
        for panel in 0..panels as u64 {
            for (node, weight) in NODES.iter().zip(WEIGHTS) {
                let x = from + width * (panel as f64 + node);
                let density = weight * (0.5 * (centre - x) * (centre + x)).exp();
                if large {
                    let high = log_ratio(&self.high, x);
                    let loss = high - log_ratio(&self.low, x);
                    let mass = density * (high - scale).exp();
                    p += mass;
                    rise += mass * -(from_loss - loss).exp_m1();
                } else {
                    // P - e^from_loss Q without cancellation: both ratios minus one are known precisely.
                    let (high, low) = (excess(&self.high, x), excess(&self.low, x));
                    p += density * (1.0 + high);
                    rise += density * (high - low - shrink * (1.0 + low));
                }
            }
        }
        let log_p =
            scale + (p * width).ln() - 0.5 * centre * centre - 0.5 * (2.0 * std::f64::consts::PI).ln();
        let full = -(-span).exp_m1();
        let rise = if span > 0.0 {
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
        let (left, right) = self.range(log_tail);
        self.log_integral(
            left,
            right,
            |x| {
                let loss = self.loss(x);
                if loss > epsilon {
                    log_ratio(&self.high, x) + (-(epsilon - loss).exp_m1()).ln()
                } else {
                    f64::NEG_INFINITY
                }
            },
            |left, right| {
                if self.loss(left) >= epsilon {
                    left
                } else if self.loss(right) <= epsilon {
                    right
                } else {
                    self.inverse(epsilon, left, right)
                }
            },
        )
    }

    /// As [`GaussianMixtures::log_hockey_stick`] for the pair `(Q, P)`.
    pub(crate) fn log_hockey_stick_reversed(&self, epsilon: f64, log_tail: f64) -> f64 {
        let mirrored = Self {
            high: self.low.iter().map(Component::mirrored).collect(),
            low: self.high.iter().map(Component::mirrored).collect(),
        };
        mirrored.log_hockey_stick(epsilon, log_tail)
    }

    /// `ln` of the integral over the standard normal of `e^f` from `start(left, right)` to `right`.
    fn log_integral(
        &self,
        left: f64,
        right: f64,
        f: impl Fn(f64) -> f64,
        start: impl Fn(f64, f64) -> f64,
    ) -> f64 {
        let from = start(left, right);
        if from >= right {
            return f64::NEG_INFINITY;
        }
        // Panels grow from the kink at the start, where the integrand rises from zero.
        let mut sum = LogSum::new();
        let (mut edge, mut width) = (from, 1e-3);
        while edge < right {
            let limit = PANEL_LOSS / self.slope((edge + width).min(right));
            width = width.min(limit).min(right - edge).max(1e-12);
            for (node, weight) in NODES.iter().zip(WEIGHTS) {
                let x = edge + width * node;
                sum.add((weight * width).ln() - 0.5 * x * x + f(x));
            }
            edge += width;
            width = (1.5 * width).min(0.05);
        }
        sum.get() - 0.5 * (2.0 * std::f64::consts::PI).ln()
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
    if peak.abs() < LARGE {
        return excess(components, x).ln_1p();
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

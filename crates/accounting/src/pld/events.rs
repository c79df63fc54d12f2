//! Lower bounds on epsilon from single events: what no lattice resolves, such as very few releases with very large losses.
//!
//! Any event of the outputs says `delta >= P(event) - e^epsilon Q(event)`. Here it is "each release has a loss above its threshold", or "at
//! least so many of the releases have". Their probabilities are products and binomial tails, known as logarithms.

use super::composition::Composition;
use super::mixture::{Component, GaussianMixtures};
use super::pair::Pair;
use crate::binomial;
use crate::discrete::Outcomes;
use crate::special::{LogSum, ln_1m_exp, ln_expm1, ln_normal_cdf, sampled_loss};

/// Thresholds for each release.
const THRESHOLDS: usize = 64;
/// More outcomes are not sorted for it.
const MAX_OUTCOMES: usize = 1 << 16;
/// Binomial tails of more releases are left to lattices.
const MAX_RELEASES: u64 = 1_000_000;
/// The largest relative error of a bound by rounding.
const ROUNDING: f64 = 1e-13;

/// An event: `ln` of its probabilities under `P` and under `Q`.
type Chances = (f64, f64);

impl Composition {
    /// The largest epsilon that one of a few events proves to be spent at `e^log_delta`; 0 where none proves any.
    pub(crate) fn epsilon_of_events(&self, log_delta: f64) -> f64 {
        [false, true].into_iter().fold(0.0, |best: f64, reversed| {
            let chances: Vec<(Vec<Chances>, u64)> = self
                .parts
                .iter()
                .map(|(pair, count)| (pair.chances(reversed), *count))
                .collect();
            best.max(of_all(&chances, log_delta))
                .max(of_some(&chances, log_delta))
        })
    }
}

/// The bound of an event with these chances.
fn proved((log_p, log_q): Chances, log_delta: f64) -> f64 {
    if log_p.is_nan() || log_p <= log_delta {
        return 0.0;
    }
    let epsilon = log_p + ln_1m_exp(log_delta - log_p) - log_q;
    // A difference of large logarithms has their rounding errors.
    let rounding = ROUNDING * epsilon + 4.0 * f64::EPSILON * (log_p.abs() + log_q.abs());
    (epsilon - rounding).max(0.0)
}

/// Events in which every release of every part has a loss above its threshold.
fn of_all(parts: &[(Vec<Chances>, u64)], log_delta: f64) -> f64 {
    if parts.iter().any(|(chances, _)| chances.is_empty()) {
        return 0.0;
    }
    (0..THRESHOLDS)
        .map(|index| {
            let (mut log_p, mut log_q) = (0.0, 0.0);
            for (chances, count) in parts {
                // Parts of few outcomes have fewer thresholds.
                let (p, q) = chances[index * chances.len() / THRESHOLDS];
                log_p += *count as f64 * p;
                log_q += *count as f64 * q;
            }
            proved((log_p, log_q), log_delta)
        })
        .fold(0.0, f64::max)
}

/// Events in which at least so many releases of one part have a loss above a threshold.
fn of_some(parts: &[(Vec<Chances>, u64)], log_delta: f64) -> f64 {
    let parts = parts.iter().filter(|(_, count)| *count <= MAX_RELEASES);
    parts
        .flat_map(|(chances, count)| {
            let few = chances.iter().step_by(4);
            few.map(|chances| of_at_least(*chances, *count, log_delta))
        })
        .fold(0.0, f64::max)
}

fn of_at_least((log_p, log_q): Chances, count: u64, log_delta: f64) -> f64 {
    let (n, p) = (count as f64, log_p.exp().min(1.0));
    let (mean, deviation) = (n * p, (n * p * (1.0 - p)).sqrt());
    let near = [-3.0, -1.0, 0.0, 1.0, 3.0, 6.0].map(|deviations| mean + deviations * deviation);
    let numbers = near
        .into_iter()
        .chain([1.0, 2.0, 3.0])
        .map(|number| number.round().clamp(1.0, n) as u64);
    numbers
        .map(|number| {
            let tail = binomial::upper_tail(count, p, number);
            // Below the truth by more than its rounding.
            let log_tail = (tail * (1.0 - 1e-10)).ln();
            let share = number as f64 / n;
            if share.ln() <= log_q {
                return 0.0;
            }
            // Chernoff's bound.
            let failures = if number < count {
                (1.0 - share) * ((-share).ln_1p() - (-log_q.exp()).ln_1p())
            } else {
                0.0
            };
            let log_tail_of_q = -n * (share * (share.ln() - log_q) + failures);
            proved((log_tail, log_tail_of_q), log_delta)
        })
        .fold(0.0, f64::max)
}

impl Pair {
    /// Events "the loss is above a threshold" of one release, rarer ones first; none where they are not known.
    fn chances(&self, reversed: bool) -> Vec<Chances> {
        match self {
            Self::Mixtures(mixtures) => of_mixtures(mixtures, reversed),
            Self::Laplace {
                sampling_probability,
                scale,
            } => of_laplace(*sampling_probability, *scale, reversed),
            Self::BoundedRange(range) => of_range(*range),
            Self::Outcomes(outcomes) if outcomes.log_p.len() <= MAX_OUTCOMES => {
                of_outcomes(outcomes, reversed)
            }
            Self::Outcomes(_) | Self::Either(_) => Vec::new(),
        }
    }
}

/// Outcomes beyond a point: on the right for `P`, on the left for the reversed pair.
fn of_mixtures(mixtures: &GaussianMixtures, reversed: bool) -> Vec<Chances> {
    /// Distances from a centre, in standard deviations.
    const FARTHEST: f64 = 38.0;
    let (worst, other, sign) = if reversed {
        (&mixtures.low, &mixtures.high, -1.0)
    } else {
        (&mixtures.high, &mixtures.low, 1.0)
    };
    let beyond = |components: &[Component], point: f64| {
        let mut sum = LogSum::new();
        for component in components {
            sum.add(component.probability.ln() + ln_normal_cdf(sign * (component.shift - point)));
        }
        sum.get().min(0.0)
    };
    let mut centres: Vec<f64> = worst.iter().chain(other.iter()).map(|c| c.shift).collect();
    centres.sort_by(|a, b| (sign * b).total_cmp(&(sign * a)));
    centres.dedup();
    let some = centres.len().min(4);
    let each = THRESHOLDS / some.max(1);
    let mut chances: Vec<Chances> = (0..some)
        .flat_map(|index| {
            let centre = centres[index * (centres.len() - 1) / (some - 1).max(1)];
            (0..each)
                .map(move |step| centre + sign * (FARTHEST - (FARTHEST + 8.0) * step as f64 / each as f64))
        })
        .map(|point| (beyond(worst, point), beyond(other, point)))
        .collect();
    chances.sort_by(|a, b| a.0.total_cmp(&b.0));
    chances
}

/// Outcomes below a point, which `P` prefers, or above one; the centres of `P` and `Q` are 0 and 1.
fn of_laplace(sampling_probability: f64, scale: f64, reversed: bool) -> Vec<Chances> {
    let log_below = |distance: f64| {
        if distance < 0.0 {
            distance / scale - std::f64::consts::LN_2
        } else {
            (-0.5 * (-distance / scale).exp()).ln_1p()
        }
    };
    (0..THRESHOLDS)
        .map(|index| {
            // From the centre, where the loss is largest, towards the other one.
            let share = (index as f64 / THRESHOLDS as f64).powi(3);
            let (joined, other) = (log_below(share), log_below(share - 1.0));
            if reversed {
                // By symmetry Q has the chance of P there; P is a mixture of both.
                (
                    joined,
                    joined + sampled_loss(sampling_probability, other - joined),
                )
            } else {
                (other + sampled_loss(sampling_probability, joined - other), other)
            }
        })
        .collect()
}

/// Losses within a distance of the end of the range; see the density of the pair.
fn of_range(range: f64) -> Vec<Chances> {
    if range == 0.0 {
        return vec![(0.0, 0.0)];
    }
    let log_whole = ln_1m_exp(-range);
    (1..=THRESHOLDS)
        .map(|index| {
            let gap = 2.0 * range * (index as f64 / THRESHOLDS as f64).powi(12);
            let log_p = ln_1m_exp(-0.5 * gap) - log_whole;
            (log_p.min(0.0), ln_expm1(0.5 * gap) - range - log_whole)
        })
        .collect()
}

fn of_outcomes(outcomes: &Outcomes, reversed: bool) -> Vec<Chances> {
    let mut listed: Vec<Chances> = outcomes
        .log_p
        .iter()
        .zip(&outcomes.log_q)
        .map(|(p, q)| if reversed { (*q, *p) } else { (*p, *q) })
        .filter(|(p, _)| *p > f64::NEG_INFINITY)
        .collect();
    listed.sort_by(|a, b| (b.0 - b.1).total_cmp(&(a.0 - a.1)));
    let (mut p, mut q) = (LogSum::new(), LogSum::new());
    let sums: Vec<Chances> = listed
        .into_iter()
        .map(|(log_p, log_q)| {
            p.add(log_p);
            q.add(log_q);
            (p.get().min(0.0), q.get())
        })
        .collect();
    if sums.len() <= THRESHOLDS {
        return sums;
    }
    (0..THRESHOLDS)
        .map(|index| sums[index * sums.len() / THRESHOLDS])
        .collect()
}

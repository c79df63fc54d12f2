//! Starts and descents, one number of buffers after another.

use super::interlaced::{BOUND, Interlaced, arguments};
use super::problem::{Kind, Problem};
use crate::blt::rational;
use crate::error::Result;
use crate::optimize::quasi_newton::minimise;
use crate::strategy::blt::Blt;

/// `rounds * lambda_1` below which the first decay counts as 1.
const EDGE: f64 = 1e-3;

/// The point at which a descent ended.
#[derive(Debug, Clone)]
pub(super) struct Found {
    arguments: Vec<f64>,
    /// Logarithm of the loss.
    value: f64,
    edge: bool,
}

impl Found {
    pub(super) fn blt(&self) -> Result<Blt> {
        let (complements, scales) = Interlaced::new(&self.arguments).parameters();
        Blt::from_complements(complements, scales)
    }

    fn logs(&self) -> Vec<f64> {
        let chain = Interlaced::new(&self.arguments);
        chain.logs[1..chain.places()].to_vec()
    }
}

/// The best of each kind for one number of buffers.
#[derive(Debug, Clone)]
struct Level {
    interior: Option<Found>,
    edge: Option<Found>,
}

impl Level {
    fn all(&self) -> impl Iterator<Item = &Found> {
        self.interior.iter().chain(&self.edge)
    }

    fn best(&self) -> Option<&Found> {
        self.all().min_by(|a, b| a.value.total_cmp(&b.value))
    }
}

/// A search that knows what fewer buffers reach.
pub(super) struct Search<'a> {
    problem: &'a Problem,
    /// More starts, by their number of decays.
    hints: Vec<Vec<f64>>,
    levels: Vec<Level>,
}

impl<'a> Search<'a> {
    pub(super) fn new(problem: &'a Problem, hints: Vec<Vec<f64>>) -> Self {
        Self {
            problem,
            hints,
            levels: Vec::new(),
        }
    }

    pub(super) fn buffers(&self) -> usize {
        self.levels.len()
    }

    /// Everything found, as starts for a related problem.
    pub(super) fn into_all(self) -> Vec<Vec<f64>> {
        let all = self
            .levels
            .into_iter()
            .flat_map(|level| level.interior.into_iter().chain(level.edge));
        all.map(|found| found.arguments).collect()
    }

    fn descend(&self, mut arguments: Vec<f64>) -> Found {
        let value = minimise(&mut arguments, BOUND, |point, gradient| {
            self.problem.value(point, gradient)
        });
        let first = Interlaced::new(&arguments).logs[1];
        Found {
            arguments,
            value,
            edge: first * (self.problem.rounds as f64) < EDGE,
        }
    }

    /// One buffer more; the relative gain in loss.
    pub(super) fn extend(&mut self) -> f64 {
        let buffers = self.buffers() + 1;
        let mut starts = self
            .hints
            .iter()
            .filter(|hint| hint.len() == 2 * buffers)
            .cloned()
            .collect::<Vec<_>>();
        // Closed forms cost microseconds; where the loss takes the whole run, starts from related optima have to do.
        if self.problem.kind == Kind::PrefixSum || starts.is_empty() {
            starts.push(spread(buffers, self.problem.rounds));
            starts.push(approximation(buffers));
        }
        if let Some(level) = self.levels.last() {
            for found in level.all() {
                starts.extend(with_another_pair(&found.logs(), self.problem.rounds));
            }
        }
        let mut level = Level {
            interior: None,
            edge: None,
        };
        for start in starts {
            let found = self.descend(start);
            let place = if found.edge {
                &mut level.edge
            } else {
                &mut level.interior
            };
            if found.value.is_finite() && place.as_ref().is_none_or(|best| found.value < best.value) {
                *place = Some(found);
            }
        }
        let gain = match self.levels.last().and_then(Level::best) {
            Some(before) => {
                let value = level.best().map_or(f64::INFINITY, |found| found.value);
                if value >= before.value {
                    // Never worse than fewer buffers: the same matrix with a pair that cancels.
                    let same = Found {
                        arguments: [&before.arguments[..], &[0.0, -BOUND]].concat(),
                        ..before.clone()
                    };
                    let place = if same.edge {
                        &mut level.edge
                    } else {
                        &mut level.interior
                    };
                    *place = Some(same);
                }
                -(value - before.value).exp_m1()
            }
            None => 1.0,
        };
        self.levels.push(level);
        gain
    }

    /// Forgets the last number of buffers, if fewer were tried.
    pub(super) fn shorten(&mut self) {
        if self.levels.len() > 1 {
            self.levels.pop();
        }
    }

    pub(super) fn best(&self) -> Option<&Found> {
        self.levels.last().and_then(Level::best)
    }

    pub(super) fn interior(&self) -> Option<&Found> {
        self.levels.last().and_then(|level| level.interior.as_ref())
    }

    pub(super) fn edge(&self) -> Option<&Found> {
        self.levels.last().and_then(|level| level.edge.as_ref())
    }

    /// The best loss of every number of buffers.
    pub(super) fn losses(&self) -> Vec<f64> {
        let best = self.levels.iter().filter_map(Level::best);
        best.map(|found| found.value.exp()).collect()
    }
}

/// Decays from a few rounds to the whole run, evenly in the logarithm.
fn spread(buffers: usize, rounds: usize) -> Vec<f64> {
    let (first, last) = ((3.0 / rounds as f64).min(1.0).ln(), 2f64.ln());
    let share = |i: usize| i as f64 / (2 * buffers - 1) as f64;
    let logs: Vec<f64> = (0..2 * buffers)
        .map(|i| (first + (last - first) * share(i)).exp())
        .collect();
    arguments(&logs)
}

/// The rational approximation of `1 / sqrt(1 - x)`, its first decay 1.
fn approximation(buffers: usize) -> Vec<f64> {
    let (complements, zeros) = rational::chain(buffers);
    let pairs = complements.iter().zip(&zeros);
    let logs: Vec<f64> = pairs
        .flat_map(|(pole, zero)| [-(-pole).ln_1p(), -(-zero).ln_1p()])
        .collect();
    arguments(&logs)
}

/// The chain with a pair more, of small effect: before all others (a first decay of 1, and one well below), in the
/// widest gap, after the last.
fn with_another_pair(logs: &[f64], rounds: usize) -> Vec<Vec<f64>> {
    let inserted = |at: usize, pole: f64, zero: f64| {
        let mut more = logs.to_vec();
        more.splice(at..at, [pole, zero]);
        arguments(&more)
    };
    let mut chains = Vec::new();
    if logs[0] * rounds as f64 >= EDGE {
        chains.push(inserted(0, 1e-12 * logs[0], 0.05 * logs[0]));
        chains.push(inserted(0, 0.15 * logs[0], 0.3 * logs[0]));
    }
    let ratio = |at: &usize| logs[*at] / logs[at - 1];
    let widest = (2..logs.len())
        .step_by(2)
        .max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    if let Some(at) = widest {
        let (zero, pole) = (logs[at - 1], logs[at]);
        let middle = (zero * pole).sqrt();
        chains.push(inserted(at, middle, middle * (pole / middle).powf(0.3)));
    }
    let last = logs[logs.len() - 1];
    chains.push(inserted(logs.len(), last + 1.0, last + 1.5));
    chains
}

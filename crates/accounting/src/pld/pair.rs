//! The two distributions that one release of an event is worst on.

use super::atoms::{Atom, Atoms, Bound};
use super::mixture::GaussianMixtures;
use super::probe::{Node, Probe};
use crate::discrete::Outcomes;

/// How finely a continuous pair becomes atoms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolution {
    /// Distance of the lattice that the atoms will be put on.
    pub(crate) step: f64,
    /// Standard deviations of the noise that a cell may span.
    pub(crate) width: f64,
    /// Losses between which a lower bound needs a cell for each step, whatever the width.
    pub(crate) decisive: (f64, f64),
    /// Outcomes on either side of less mass than `e^log_tail` are cut off.
    pub(crate) log_tail: f64,
}

impl Resolution {
    /// For a first look.
    fn coarse(log_tail: f64) -> Self {
        Self {
            step: 0.01,
            width: 0.1,
            decisive: (0.0, 0.0),
            log_tail,
        }
    }
}

/// A pair `(P, Q)` that dominates one release: every two neighbours' outputs are a post-processing of it.
#[derive(Debug, Clone)]
pub(crate) enum Pair {
    /// Gaussian mixtures, as they come.
    Mixtures(GaussianMixtures),
    /// Poisson-sampled Laplace noise; `sampling_probability = 1` for the plain one.
    Laplace { sampling_probability: f64, scale: f64 },
    /// Finitely many outcomes.
    Outcomes(Outcomes),
    /// One of several pairs, announced; probabilities add up to 1.
    Either(Vec<(f64, Pair)>),
}

impl Pair {
    pub(crate) fn probe(&self, log_tail: f64) -> Probe {
        Probe::new(self.nodes(log_tail))
    }

    /// Renyi divergences (the larger of the two directions); `None` where outcomes were left out.
    pub(crate) fn renyi(&self, orders: &[f64]) -> Option<Vec<f64>> {
        let probe = match self {
            Pair::Outcomes(outcomes) => {
                let reversed = outcomes.reversed();
                let divergence = |order: &f64| {
                    outcomes
                        .renyi_divergence(*order)
                        .max(reversed.renyi_divergence(*order))
                };
                let curve: Vec<f64> = orders.iter().map(divergence).collect();
                return curve
                    .iter()
                    .any(|divergence| divergence.is_finite())
                    .then_some(curve);
            }
            // Connected dots: an upper bound.
            Pair::Laplace { .. } => Probe::new(nodes_of(&self.atoms(Bound::Upper, &Resolution::coarse(0.0)))),
            Pair::Mixtures(_) | Pair::Either(_) => {
                // The integrand of order a peaks where the outcome was moved a times.
                let reach = orders
                    .iter()
                    .copied()
                    .filter(|order| self.within_reach(*order))
                    .fold(1.0, f64::max)
                    * self.largest_shift()
                    + 12.0;
                self.probe(-0.5 * reach * reach)
            }
        };
        let reversed = probe.reversed();
        let divergence = |order: &f64| {
            if !self.within_reach(*order) {
                return f64::INFINITY;
            }
            let tilt = order - 1.0;
            // PRIVACY: the quadrature is exact to about 1e-13; the margin keeps it a bound.
            probe.cumulant(tilt).max(reversed.cumulant(tilt)) / tilt * (1.0 + 1e-10)
        };
        Some(orders.iter().map(divergence).collect())
    }

    /// Whether the quadrature for a Renyi order stays small.
    fn within_reach(&self, order: f64) -> bool {
        order * self.largest_shift() <= 400.0
    }

    /// The largest distance between components, in standard deviations.
    fn largest_shift(&self) -> f64 {
        match self {
            Pair::Mixtures(mixtures) => mixtures.largest_shift(),
            Pair::Either(cases) => cases
                .iter()
                .map(|(_, pair)| pair.largest_shift())
                .fold(0.0, f64::max),
            Pair::Laplace { .. } | Pair::Outcomes(_) => 0.0,
        }
    }

    fn nodes(&self, log_tail: f64) -> Vec<Node> {
        match self {
            Pair::Mixtures(mixtures) => mixtures.probe(log_tail),
            Pair::Laplace { .. } | Pair::Outcomes(_) => {
                nodes_of(&self.atoms(Bound::Lower, &Resolution::coarse(log_tail)))
            }
            Pair::Either(cases) => cases
                .iter()
                .flat_map(|(probability, pair)| {
                    let shift = probability.ln();
                    pair.nodes(log_tail).into_iter().map(move |node| Node {
                        log_p: node.log_p + shift,
                        ..node
                    })
                })
                .collect(),
        }
    }

    /// The pair as atoms.
    pub(crate) fn atoms(&self, bound: Bound, resolution: &Resolution) -> Atoms {
        match self {
            Pair::Mixtures(mixtures) => mixtures.atoms(bound, resolution),
            Pair::Laplace {
                sampling_probability,
                scale,
            } => laplace(bound, *sampling_probability, *scale, resolution.step),
            Pair::Outcomes(outcomes) => listed(bound, outcomes),
            Pair::Either(cases) => {
                let mut all = Atoms::default();
                for (probability, pair) in cases {
                    all.append(*probability, pair.atoms(bound, resolution));
                }
                all
            }
        }
    }
}

fn nodes_of(atoms: &Atoms) -> Vec<Node> {
    let node = |atom: &Atom| Node {
        loss: atom.loss,
        log_p: atom.log_p,
        slope: 0.0,
    };
    atoms.atoms.iter().map(node).collect()
}

fn listed(bound: Bound, outcomes: &Outcomes) -> Atoms {
    let mut atoms = Atoms::default();
    for (log_p, log_q) in outcomes.log_p.iter().zip(&outcomes.log_q) {
        match (log_p.is_finite(), log_q.is_finite()) {
            (true, true) => atoms.push(log_p - log_q, *log_p),
            (true, false) => atoms.infinite_p += log_p.exp(),
            (false, true) => atoms.infinite_q += log_q.exp(),
            (false, false) => {}
        }
    }
    if bound == Bound::Upper {
        atoms.infinite_p += outcomes.missing_p;
        atoms.infinite_q += outcomes.missing_q;
    }
    atoms
}

/// `P = (1-q) Lap(1, b) + q Lap(0, b)` against `Q = Lap(1, b)`, outcomes from 0 to 1 in cells.
///
/// Outcomes below 0 all have one loss, those above 1 another; between them `ln P_0/Q` falls from `1/b` to `-1/b`.
fn laplace(bound: Bound, sampling_probability: f64, scale: f64, step: f64) -> Atoms {
    let end = 1.0 / scale;
    // Losses under sampling, ln(1 - q + q e^l).
    let sampled = |loss: f64| (sampling_probability * loss.exp_m1()).ln_1p();
    // Cells much finer than the lattice, so that where their edges lie on it does not matter.
    let cells = (2.0 * end / (step / 8.0)).ceil().clamp(64.0, 4e5);
    let width = 2.0 * end / cells;
    let mut atoms = Atoms::default();
    // ln(1 - q + q e^l) over the mass of Q: P is Q's mass times e^loss.
    let low_q = 0.5f64.ln();
    atoms.push(sampled(-end), low_q + sampled(-end));
    for cell in 0..cells as u64 {
        let (from, to) = (-end + width * cell as f64, -end + width * (cell + 1) as f64);
        // The unsampled masses: Q has density e^{-(1-x)/b} / 2b with x = (1 - b l) / 2, P that times e^l.
        let q = 0.5 * (0.5 * (-end - from)).exp() * -(0.5 * (from - to)).exp_m1();
        let p = 0.5 * (0.5 * (to - end)).exp() * -(0.5 * (from - to)).exp_m1();
        let (low, high) = (sampled(from), sampled(to));
        let mass = q + sampling_probability * (p - q);
        // (P - e^low Q) / P over (1 - e^{low - high}), with P - e^low Q = s (p - e^from q).
        let rise = sampling_probability * (p - from.exp() * q) / mass / -(low - high).exp_m1();
        atoms.push_cell(bound, low, high, mass.ln(), rise.clamp(0.0, 1.0));
    }
    let high_q = 0.5f64.ln() - end;
    atoms.push(sampled(end), high_q + sampled(end));
    atoms
}

//! The two distributions that one release of an event is worst on.

use super::discretize::{Atom, Atoms, Bound};
use super::lattice::WHOLE;
use super::loss_range::{Node, Probe};
use super::mixture::GaussianMixtures;
use crate::discrete::Outcomes;
use crate::special::{LogSum, ln_1m_exp, ln_expm1, sampled_loss};

/// Losses that a lattice must not split: the hockey-stick curve has kinks there, also after composition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) gap: f64,
    pub(crate) anchor: f64,
    /// True if all losses lie on it.
    pub(crate) whole: bool,
}

/// The resolution at which a continuous pair becomes atoms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Resolution {
    /// Distance of the lattice that the atoms will be put on.
    pub(crate) step: f64,
    /// Standard deviations of the noise that a cell may span.
    pub(crate) width: f64,
    /// Losses between which a lower bound needs a cell for each step, whatever the width.
    pub(crate) decisive: (f64, f64),
    /// Outcomes on either side of less mass than `e^log_tail` are cut off.
    pub(crate) log_tail: f64,
    /// Losses between which all this holds; the others are put on a lattice of distance `rare_step`, a cell a step.
    pub(crate) bulk: (f64, f64),
    pub(crate) rare_step: f64,
    /// Losses from the first number down, and from the second up, decide nothing: cells of rare ones there grow with their distance.
    pub(crate) far: (f64, f64),
}

impl Resolution {
    /// Resolution for a pair that reveals nothing.
    pub(crate) fn without_loss(log_tail: f64) -> Self {
        Self {
            step: 1.0,
            width: 1.0,
            ..Self::coarse(log_tail)
        }
    }

    /// A coarse resolution, for a first look at a pair and for bounds on Renyi divergences.
    fn coarse(log_tail: f64) -> Self {
        Self {
            step: 0.01,
            width: 0.1,
            decisive: (0.0, 0.0),
            log_tail,
            bulk: WHOLE,
            rare_step: 1.0,
            far: WHOLE,
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
    /// A release whose losses lie in a range of this length, wherever that range begins.
    BoundedRange(f64),
    /// Finitely many outcomes.
    Outcomes(Outcomes),
    /// One of several pairs, announced; probabilities add up to 1.
    Either(Vec<(f64, Pair)>),
}

impl Pair {
    pub(crate) fn probe(&self, log_tail: f64) -> Probe {
        Probe::new(self.nodes(log_tail, log_tail))
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
            Pair::Laplace { .. } | Pair::BoundedRange(_) => {
                Probe::new(connected(&self.atoms(Bound::Upper, &Resolution::coarse(0.0))))
            }
            Pair::Mixtures(_) | Pair::Either(_) => {
                // The integrand of order a peaks where the outcome was moved a times.
                let half_width = orders
                    .iter()
                    .copied()
                    .filter(|order| self.within_reach(*order))
                    .fold(1.0, f64::max)
                    * self.largest_shift()
                    + 12.0;
                Probe::new(self.nodes(-0.5 * half_width * half_width, f64::NEG_INFINITY))
            }
        };
        let reversed = probe.reversed();
        let divergence = |order: &f64| {
            if !self.within_reach(*order) {
                return f64::INFINITY;
            }
            // PRIVACY: the quadrature is exact to about 1e-13 of a sum of numbers above 0; the margin keeps it a bound.
            probe.renyi(*order).max(reversed.renyi(*order)) * (1.0 + 1e-10)
        };
        Some(orders.iter().map(divergence).collect())
    }

    /// Returns true if the quadrature for a Renyi order stays small.
    fn within_reach(&self, order: f64) -> bool {
        order * self.largest_shift() <= 400.0
    }

    /// True if each case is one of Gaussian mixtures.
    pub(crate) fn is_gaussian(&self) -> bool {
        match self {
            Pair::Mixtures(_) => true,
            Pair::Either(cases) => cases.iter().all(|(_, pair)| pair.is_gaussian()),
            Pair::Laplace { .. } | Pair::BoundedRange(_) | Pair::Outcomes(_) => false,
        }
    }

    /// Gaussians of the pair, in all its cases and on both sides.
    pub(crate) fn components(&self) -> usize {
        match self {
            Pair::Mixtures(mixtures) => mixtures.components(),
            Pair::Either(cases) => cases.iter().map(|(_, pair)| pair.components()).sum(),
            Pair::Laplace { .. } | Pair::BoundedRange(_) | Pair::Outcomes(_) => 0,
        }
    }

    /// The largest distance between components, in standard deviations.
    fn largest_shift(&self) -> f64 {
        match self {
            Pair::Mixtures(mixtures) => mixtures.largest_shift(),
            Pair::Either(cases) => cases
                .iter()
                .map(|(_, pair)| pair.largest_shift())
                .fold(0.0, f64::max),
            Pair::Laplace { .. } | Pair::BoundedRange(_) | Pair::Outcomes(_) => 0.0,
        }
    }

    /// The largest loss of this direction; `+inf` where there is none.
    pub(crate) fn max_loss(&self, reversed: bool) -> f64 {
        match self {
            Pair::Mixtures(mixtures) => mixtures.max_loss(reversed),
            Pair::Laplace {
                sampling_probability,
                scale,
            } => {
                let end = scale.recip();
                if reversed {
                    -sampled_loss(*sampling_probability, -end)
                } else {
                    sampled_loss(*sampling_probability, end)
                }
            }
            Pair::BoundedRange(epsilon) => *epsilon,
            Pair::Outcomes(outcomes) => outcomes.max_loss(reversed),
            Pair::Either(cases) => {
                let cases = cases.iter().map(|(_, pair)| pair.max_loss(reversed));
                cases.fold(f64::NEG_INFINITY, f64::max)
            }
        }
    }

    /// Grid of the losses that are atoms, if there are any: a distance of which all of them are multiples up to a common offset, and
    /// whether there are losses between them. Where no grid holds them all, it holds the two that matter most.
    pub(crate) fn grid(&self, atoms: &Atoms, tilt: f64) -> Option<Grid> {
        match self {
            Pair::Outcomes(_) => match atoms.spacing() {
                Some(gap) => Some(Grid {
                    gap,
                    anchor: atoms.atoms.first()?.loss,
                    whole: true,
                }),
                None => heaviest(atoms, tilt),
            },
            // Atoms at both ends of the losses.
            Pair::Laplace {
                sampling_probability,
                scale,
            } if *sampling_probability == 1.0 => Some(Grid {
                gap: scale.recip(),
                anchor: 0.0,
                whole: false,
            }),
            Pair::Laplace { .. } => heaviest(atoms, tilt),
            _ => None,
        }
    }

    /// Points of a quadrature, without cases of probability `e^log_least` or less.
    fn nodes(&self, log_tail: f64, log_least: f64) -> Vec<Node> {
        match self {
            Pair::Mixtures(mixtures) => mixtures.probe(log_tail),
            // Connected dots reach both ends of the losses, and no cumulant is below the true one. Windows need both.
            Pair::Laplace { .. } | Pair::BoundedRange(_) => {
                connected(&self.atoms(Bound::Upper, &Resolution::coarse(log_tail)))
            }
            Pair::Outcomes(_) => nodes_of(&self.atoms(Bound::Lower, &Resolution::coarse(log_tail))),
            Pair::Either(cases) => cases
                .iter()
                .filter(|(probability, _)| probability.ln() > log_least)
                .flat_map(|(probability, pair)| {
                    let shift = probability.ln();
                    pair.nodes(log_tail, log_least).into_iter().map(move |node| Node {
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
            Pair::BoundedRange(epsilon) => bounded_range(bound, *epsilon, resolution.step),
            Pair::Outcomes(outcomes) => listed(bound, outcomes),
            Pair::Either(cases) => {
                let mut all = Atoms::default();
                for (probability, pair) in cases {
                    if probability.ln() > resolution.log_tail {
                        all.append(*probability, pair.atoms(bound, resolution));
                    } else if bound == Bound::Upper {
                        // PRIVACY: a case that is left out counts as lost, whole.
                        all.infinite_p += probability;
                        all.infinite_q += probability;
                    }
                }
                all
            }
        }
    }
}

/// A grid of the atom that weighs most, and of the larger loss that adds most to the mass under a tilt; `None` where there is none.
///
/// A rare loss that decides would be split between two points of another lattice, and part of it would count as the larger of them.
fn heaviest(atoms: &Atoms, tilt: f64) -> Option<Grid> {
    let anchor = atoms.heaviest(|atom| atom.log_p)?;
    // P (e^{tilt (loss - anchor)} - 1)
    let other = atoms.heaviest(|atom| atom.log_p + ln_expm1((tilt * (atom.loss - anchor)).max(0.0)))?;
    Some(Grid {
        gap: other - anchor,
        anchor,
        whole: false,
    })
}

/// Exact losses as nodes; very many of them connected.
fn nodes_of(atoms: &Atoms) -> Vec<Node> {
    if atoms.atoms.len() <= MAX_NODES {
        return atoms.atoms.iter().map(|atom| node(atom, 0.0)).collect();
    }
    connected(atoms)
}

/// More atoms are connected.
const MAX_NODES: usize = 4096;

fn node(atom: &Atom, width: f64) -> Node {
    Node {
        loss: atom.loss,
        log_p: atom.log_p,
        slope: 0.0,
        width,
    }
}

/// The atoms connected at few dots: evenly spaced ones, and closer ones near both ends, where the mass of either direction may lie.
///
/// Both ends are dots, and no cumulant is below that of the atoms.
fn connected(atoms: &Atoms) -> Vec<Node> {
    /// Evenly spaced dots, and the distance of dots as a share of that to the nearer end.
    const DOTS: f64 = 1500.0;
    const SHARE: f64 = 0.02;
    let mut atoms = atoms.atoms.clone();
    atoms.sort_by(|a, b| a.loss.total_cmp(&b.loss));
    let (Some(first), Some(last)) = (atoms.first(), atoms.last()) else {
        return Vec::new();
    };
    let (lowest, highest) = (first.loss, last.loss);
    let all_are_dots = atoms.len() <= MAX_NODES;
    let mut dots = vec![lowest];
    let mut held = lowest;
    for atom in &atoms {
        let from_end = (held - lowest)
            .min(highest - atom.loss)
            .max(1e-7 * (highest - lowest));
        let apart = (SHARE * from_end).min((highest - lowest) / DOTS);
        if atom.loss > held && (all_are_dots || atom.loss - held >= apart || atom.loss == highest) {
            dots.push(atom.loss);
            held = atom.loss;
        }
    }
    let mut sums = vec![LogSum::new(); dots.len()];
    let mut right = 0;
    for atom in &atoms {
        while dots[right] < atom.loss {
            right += 1;
        }
        if dots[right] == atom.loss {
            sums[right].add(atom.log_p);
            continue;
        }
        // Both P and Q keep their mass.
        let left = right - 1;
        let share = (dots[left] - atom.loss).exp_m1() / (dots[left] - dots[right]).exp_m1();
        sums[left].add(atom.log_p + (-share).ln_1p());
        sums[right].add(atom.log_p + share.ln());
    }
    let gap = |index: usize| match index.checked_sub(1).and_then(|left| dots.get(left)) {
        Some(left) => dots.get(index).map_or(0.0, |right| right - left),
        None => 0.0,
    };
    let nodes = sums.iter().enumerate().map(|(index, sum)| {
        let atom = Atom {
            loss: dots[index],
            log_p: sum.get(),
        };
        node(&atom, gap(index).max(gap(index + 1)))
    });
    nodes.filter(|node| node.log_p > f64::NEG_INFINITY).collect()
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
    let (end, s) = (1.0 / scale, sampling_probability);
    let mut atoms = Atoms::default();
    // P has the mass of Q times e^loss.
    let lowest = sampled_loss(s, -end);
    atoms.push(lowest, 0.5f64.ln() + lowest);
    push_slope(&mut atoms, bound, (end, s), step, 0.5f64.ln());
    let highest = sampled_loss(s, end);
    atoms.push(highest, 0.5f64.ln() - end + highest);
    atoms
}

/// The pair that is worst among all whose losses lie in some `[t - epsilon, t]`.
///
/// Among the two-point pairs with these losses, the divergence at `x` in `[-epsilon, epsilon]` is largest at
/// `t = (x + epsilon) / 2`, where it is `(1 - e^{(x - epsilon) / 2})^2 / (1 - e^{-epsilon})`. The pair with this curve has
/// losses of density `e^{(x - epsilon) / 2} / (2 (1 - e^{-epsilon}))` under `P`: those of Laplace noise, given that its
/// outcome lies between the two centres.
///
/// # Source
/// Dong, Durfee, Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms" (2020), section 3.
fn bounded_range(bound: Bound, epsilon: f64, step: f64) -> Atoms {
    let mut atoms = Atoms::default();
    if epsilon == 0.0 {
        atoms.push(0.0, 0.0);
    } else {
        push_slope(&mut atoms, bound, (epsilon, 1.0), step, -ln_1m_exp(-epsilon));
    }
    atoms
}

/// Adds the outcomes between the centres of two Laplace distributions, whose losses lie between `-end` and `end`; the mass
/// under `Q` is `e^log_weight (1 - e^{-end})`.
fn push_slope(atoms: &mut Atoms, bound: Bound, (end, s): (f64, f64), step: f64, log_weight: f64) {
    // Cells much finer than the lattice, so that where their edges lie on it does not matter.
    let cells = (2.0 * end / (step / 8.0)).ceil().clamp(64.0, 4e5);
    let width = 2.0 * end / cells;
    for cell in 0..cells as u64 {
        let (from, to) = (-end + width * cell as f64, -end + width * (cell + 1) as f64);
        // Unsampled, with x = (1 - b l) / 2: Q has density e^{-(1-x)/b} / 2b, P that times e^l, so that over the cell
        // P / Q = e^{(from + to) / 2} and (P - e^from Q) / P = 1 - e^{(from - to) / 2}.
        let (middle, gain) = (0.5 * (from + to), -(0.5 * (from - to)).exp_m1());
        let log_q = log_weight - 0.5 * (end + from) + gain.ln();
        let (low, high) = (sampled_loss(s, from), sampled_loss(s, to));
        let log_p = log_q + sampled_loss(s, middle);
        // The part of the mass that was sampled.
        let share = 1.0 / (1.0 + (1.0 - s) / s * (-middle).exp());
        let span = -(low - high).exp_m1();
        let rise = if span > 0.0 {
            (share * gain / span).clamp(0.0, 1.0)
        } else {
            0.5
        };
        atoms.push_cell(bound, low, high, log_p, rise);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdp::poisson_gaussian::log_moment_integer;

    /// Closed form: `E_P e^{sL} = ((s + 1) e^{s/b} + s e^{-(s + 1)/b}) / (2s + 1)`.
    #[test]
    fn no_cumulant_of_connected_dots_is_below_that_of_laplace_noise() {
        for scale in [0.0239, 0.2, 1.0, 30.0] {
            let pair = Pair::Laplace {
                sampling_probability: 1.0,
                scale,
            };
            let probe = pair.probe(-700.0);
            for direction in [probe.clone(), probe.reversed()] {
                for tilt in [-3.0, -1.2, -0.9, -0.3, 1e-3, 0.1, 0.7, 1.0, 6.0, 100.0] {
                    let (high, low) = (tilt / scale, -(tilt + 1.0) / scale);
                    let peak = high.max(low);
                    let sum = (tilt + 1.0) * (high - peak).exp() + tilt * (low - peak).exp();
                    let exact = peak + (sum / (2.0 * tilt + 1.0)).ln();
                    let found = direction.cumulant(tilt);
                    let rounding = 1e-12 * (1.0 + exact.abs());
                    assert!(found >= exact - rounding, "{scale} {tilt}: {found} < {exact}");
                    assert!(found <= exact + 2e-4, "{scale} {tilt}: {found} > {exact}");
                }
            }
        }
    }

    /// The closed form of the sampled Gaussian at integer orders, which loses no digit: a divergence of 0 would cost nothing.
    #[test]
    fn divergences_of_very_rare_samples_are_above_the_exact_ones() {
        let orders = [2.0, 5.0, 32.0];
        for q in [1e-20, 1e-13, 9.4e-9, 1e-5, 0.01] {
            for z in [0.7, 3.2] {
                let mixtures = GaussianMixtures::new(z, &[(0.0, 1.0 - q), (1.0, q)], &[(0.0, 1.0)]);
                let found = Pair::Mixtures(mixtures).renyi(&orders).unwrap();
                for (order, found) in orders.iter().zip(found) {
                    let exact = log_moment_integer(q, z, *order as u32) / (order - 1.0);
                    assert!(found >= exact, "{q} {z} {order}: {found} < {exact}");
                    let most = exact * (1.0 + 1e-6) + order * 1e-14 * (q + 1e-14);
                    assert!(found <= most, "{q} {z} {order}: {found} > {exact}");
                }
            }
        }
    }
}

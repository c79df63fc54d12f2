//! Epsilon at a delta and delta at an epsilon of composed pairs.

use super::atoms::{Atom, Bound};
use super::compose::{self, Allowance, Wrapped};
use super::direction::{Direction, NOISE, Outline, Pass, spare};
use super::lattice::{Cut, Lattice, WHOLE};
use super::pair::{Pair, Resolution};
use super::probe::{Probe, Sum, Tails};
use super::rare::Term;
use super::single::SingleRelease;
use super::total::Total;
use crate::search::minimum;

/// Relative accuracy of epsilon aimed at: of the upper bound, of the lower bound, and of a first look.
const FINE: f64 = 8e-7;
const LOWER: f64 = 4e-7;
const COARSE: f64 = 5e-4;
/// Tilted mass that windows may cut off, relative to what lies at the losses that decide.
const LOG_TILTED_SPARE: f64 = -20.0;
/// No delta below this is told apart from zero: the smallest normal number is e^-708.
pub(super) const LEAST_LOG_DELTA: f64 = -800.0;
/// A tilt times the largest loss of a release beyond which no more is gained.
const STEEPEST: f64 = 1e4;

/// Pairs with how often each is composed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composition {
    parts: Vec<(Pair, u64)>,
}

/// What is asked: the smallest epsilon at `ln delta`, or `ln delta` at an epsilon.
#[derive(Debug, Clone, Copy)]
enum Target {
    LogDelta(f64),
    Epsilon(f64),
}

/// What a pass computed.
struct Composed {
    lattices: Vec<Lattice>,
    settled: Vec<Term>,
    wrapped: Wrapped,
    /// `ln` of the probability that no release has an infinite loss.
    log_finite: f64,
}

impl Composition {
    pub(crate) fn push(&mut self, pair: Pair, count: u64) {
        self.parts.push((pair, count));
    }

    /// The smallest epsilon at `e^log_delta` (`+inf` where none holds).
    pub(crate) fn epsilon(&self, bound: Bound, log_delta: f64) -> f64 {
        if let Some(single) = self.single_mixture() {
            return single.epsilon(log_delta);
        }
        self.answer(bound, Target::LogDelta(log_delta))
    }

    /// `ln` of the smallest delta at `epsilon`.
    pub(crate) fn log_delta(&self, bound: Bound, epsilon: f64) -> f64 {
        if let Some(single) = self.single_mixture() {
            return single.log_delta(epsilon);
        }
        self.answer(bound, Target::Epsilon(epsilon)).min(0.0)
    }

    /// One release alone is integrated, not composed: exact on both sides.
    fn single_mixture(&self) -> Option<SingleRelease<'_>> {
        match self.parts.as_slice() {
            [(Pair::Mixtures(mixtures), 1)] => Some(SingleRelease(mixtures)),
            _ => None,
        }
    }

    fn answer(&self, bound: Bound, target: Target) -> f64 {
        let mut directions = [self.look(false, target), self.look(true, target)];
        let weight = |direction: &Direction| match target {
            Target::LogDelta(_) => direction.epsilon,
            Target::Epsilon(_) => direction.log_delta,
        };
        directions.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        let [first, second] = &directions;
        if bound == Bound::Lower {
            let lower = |direction| self.resolve(&self.closer(direction, target).1, bound, LOWER, target);
            return lower(first).max(lower(second));
        }
        let refined = |direction| {
            let (coarse, closer) = self.closer(direction, target);
            self.resolve(&closer, Bound::Upper, FINE, target).min(coarse)
        };
        let answer = refined(first);
        // The other direction is usually the more private one by far: then a coarse bound settles it.
        if self.resolve(second, bound, COARSE, target) <= answer {
            answer
        } else {
            answer.max(refined(second))
        }
    }

    /// A coarse upper bound, with the scale and the slope that coarse bounds find: Chernoff's are far off where a single
    /// large loss shapes the tail.
    fn closer(&self, direction: &Direction, target: Target) -> (f64, Direction) {
        let mut closer = direction.clone();
        let mut first = f64::INFINITY;
        for _ in 0..8 {
            let coarse = |target| self.resolve(&closer, Bound::Upper, COARSE, target);
            let here = coarse(target);
            first = first.min(here);
            let (epsilon, log_delta, near) = match target {
                Target::LogDelta(log_delta) => {
                    let near = (first - closer.epsilon).abs() <= 0.2 * first;
                    (first, log_delta, near)
                }
                // What was assumed too large hides what is smaller; what was assumed too small costs little.
                Target::Epsilon(epsilon) if here > closer.log_delta + 3.0 => {
                    (epsilon, closer.log_delta - 8.0, false)
                }
                Target::Epsilon(epsilon) => (epsilon, here - 1.0, here > closer.log_delta - 3.0),
            };
            if !(epsilon > 0.0 && epsilon.is_finite() && log_delta > LEAST_LOG_DELTA) {
                break;
            }
            let steepness = match target {
                Target::LogDelta(log_delta) if near => {
                    0.1 / (coarse(Target::LogDelta(log_delta - 0.1)) - here)
                }
                Target::Epsilon(epsilon) if near => {
                    let apart = 0.1 / closer.tilt;
                    (here - coarse(Target::Epsilon(epsilon + apart))) / apart
                }
                Target::LogDelta(_) | Target::Epsilon(_) => f64::NAN,
            };
            if log_delta != closer.log_delta {
                closer.probes = self.probes(direction.reversed, log_delta);
            }
            (closer.epsilon, closer.log_delta) = (epsilon, log_delta);
            // A slope far from the tilt is that of an error.
            let slope = steepness / direction.tilt;
            if slope > 0.1 && slope < 10.0 {
                closer.steepness = steepness;
            }
            if near {
                break;
            }
        }
        (first, closer)
    }

    fn look(&self, reversed: bool, target: Target) -> Direction {
        let mut log_delta = match target {
            Target::LogDelta(log_delta) => return self.look_at(reversed, target, log_delta),
            Target::Epsilon(_) => -20.0,
        };
        // The outcomes looked at must be those that the delta to come asks for: reach out until they are, and come back.
        loop {
            let direction = self.look_at(reversed, target, log_delta);
            if direction.log_delta >= log_delta {
                let estimate = direction.log_delta;
                let direction = self.look_at(reversed, target, estimate);
                let log_delta = direction.log_delta.min(estimate);
                return Direction {
                    log_delta,
                    ..direction
                };
            }
            if log_delta <= LEAST_LOG_DELTA {
                return Direction {
                    log_delta,
                    ..direction
                };
            }
            log_delta = (2.0 * log_delta).max(LEAST_LOG_DELTA);
        }
    }

    fn look_at(&self, reversed: bool, target: Target, log_delta: f64) -> Direction {
        let probes = self.probes(reversed, log_delta);
        let cumulant = |tilt: f64| -> f64 {
            probes
                .iter()
                .map(|(probe, count)| count * probe.cumulant(tilt))
                .sum()
        };
        let reach = probes
            .iter()
            .map(|(probe, _)| probe.reach())
            .fold(1e-30_f64, |most, (low, high)| most.max(low.abs()).max(high.abs()));
        let (log_tilt, best) = lowest((STEEPEST / reach).ln(), |log_tilt| {
            let tilt = log_tilt.exp();
            match target {
                // Canonne, Kamath, Steinke (2020), Proposition 12, at order 1 + tilt.
                Target::LogDelta(log_delta) => {
                    cumulant(tilt) / tilt - tilt.recip().ln_1p() - (log_delta + tilt.ln_1p()) / tilt
                }
                Target::Epsilon(epsilon) => {
                    cumulant(tilt) - tilt * epsilon - tilt * tilt.recip().ln_1p() - tilt.ln_1p()
                }
            }
        });
        let (epsilon, log_delta) = match target {
            Target::LogDelta(log_delta) => (best, log_delta),
            // Chernoff's bound lies above the truth, rarely by more than a factor of e^3.
            Target::Epsilon(epsilon) => (epsilon, best.min(0.0) - 3.0),
        };
        Direction {
            reversed,
            probes,
            tilt: log_tilt.exp(),
            epsilon,
            log_delta,
            steepness: log_tilt.exp(),
        }
    }

    /// The losses that matter at a delta.
    fn probes(&self, reversed: bool, log_delta: f64) -> Vec<(Probe, f64)> {
        let log_tail = self.log_tail(log_delta);
        let probe = |(pair, count): &(Pair, u64)| {
            let probe = pair.probe(log_tail);
            let probe = if reversed { probe.reversed() } else { probe };
            (probe, *count as f64)
        };
        self.parts.iter().map(probe).collect()
    }

    /// `ln` of the tail mass of one release that may be counted as lost.
    fn log_tail(&self, log_delta: f64) -> f64 {
        let count: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        log_delta + spare(log_delta) - count.ln()
    }

    fn resolve(&self, direction: &Direction, bound: Bound, accuracy: f64, target: Target) -> f64 {
        let whole = self.resolve_with(direction, bound, accuracy, target, false);
        match bound {
            Bound::Upper => whole,
            // Where rare losses decide, forgetting all about the others costs less than rounding them.
            Bound::Lower => whole.max(self.resolve_with(direction, bound, accuracy, target, true)),
        }
    }

    /// The same; with `forget`, all bulk losses of a release are one outcome.
    fn resolve_with(
        &self,
        direction: &Direction,
        bound: Bound,
        accuracy: f64,
        target: Target,
        forget: bool,
    ) -> f64 {
        let outline = direction.outline();
        let passes: Vec<Composed> = outline
            .passes
            .iter()
            .map(|pass| self.compose(direction, &outline, pass, bound, accuracy, forget))
            .collect();
        let mut passes = passes.into_iter();
        let Some(mut all) = passes.next() else {
            return f64::NAN;
        };
        for pass in passes {
            all.lattices.extend(pass.lattices);
            all.settled.extend(pass.settled);
            all.wrapped.above += pass.wrapped.above;
            all.wrapped.tilted += pass.wrapped.tilted;
            all.wrapped.left_out += pass.wrapped.left_out;
        }
        let infinite = match bound {
            Bound::Upper => all.wrapped.above - all.log_finite.exp_m1(),
            Bound::Lower => -all.log_finite.exp_m1(),
        };
        let releases: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        let total = Total {
            bound,
            lattices: all.lattices,
            settled: all.settled,
            infinite,
            wrapped: all.wrapped,
            noise: NOISE * (releases - 1.0),
        };
        match target {
            Target::LogDelta(log_delta) => total.epsilon(log_delta),
            Target::Epsilon(epsilon) => total.log_delta(epsilon),
        }
    }

    /// The terms of one pass over all parts.
    fn compose(
        &self,
        direction: &Direction,
        outline: &Outline,
        pass: &Pass,
        bound: Bound,
        accuracy: f64,
        forget: bool,
    ) -> Composed {
        let tilt = pass.tilt;
        let allowance = Allowance {
            log_mass: direction.log_delta + spare(direction.log_delta),
            log_tilted_mass: LOG_TILTED_SPARE + pass.log_share,
        };
        let log_tail = self.log_tail(direction.log_delta);
        let moments: Vec<_> = outline
            .parted
            .iter()
            .zip(&direction.probes)
            .map(|(parted, (_, count))| (parted.bulk.moments(direction.tilt), *count))
            .collect();
        let variance: f64 = moments.iter().map(|(m, count)| m.variance * count).sum();
        let scale = direction.epsilon.max(0.2 * variance.sqrt());
        // A lattice of distance h adds count s (s + 1) h^2 / 12 to the cumulant at s, the slope, hence that over s to
        // epsilon; the allowed error is shared between parts by their variance, and between the cells and levels.
        let mut log_finite = 0.0;
        let mut wrapped = Wrapped::default();
        let mut finals: Vec<Lattice> = Vec::new();
        let mut settled: Vec<Term> = Vec::new();
        for (((pair, count), parted), (moments, _)) in self.parts.iter().zip(&outline.parted).zip(&moments) {
            let releases = *count as f64;
            if moments.variance == 0.0 && moments.mean == 0.0 {
                // Nothing is ever learnt (besides infinite losses).
                let atoms = pair.atoms(
                    bound,
                    &Resolution {
                        step: 1.0,
                        width: 1.0,
                        decisive: (0.0, 0.0),
                        log_tail,
                        bulk: WHOLE,
                        rare_step: 1.0,
                    },
                );
                let infinite = if direction.reversed {
                    atoms.infinite_q
                } else {
                    atoms.infinite_p
                };
                log_finite += releases * (-infinite.min(1.0)).ln_1p();
                continue;
            }
            let together = *count - parted.apart;
            let levels = compose::levels(together);
            let growth_over_levels = |growth: usize| (growth as f64).powi(levels as i32 - 1);
            let share = (releases * moments.variance / variance).max(1e-3);
            // Releases that are added at the end meet the coarsest lattice alone.
            let few = parted.apart as f64 * growth_over_levels(compose::GROWTH).powi(2) / releases;
            let stages = f64::from(levels) + 1.0 + few;
            let error = accuracy * scale * share / stages;
            let cell = (12.0 * error / (releases * (direction.steepness + 1.0))).sqrt();
            let tails = Tails::new(
                &parted.bulk,
                parted.rare.as_ref(),
                tilt,
                releases,
                moments.variance.max(1e-300),
            );
            let floor = |growth: usize| compose::least_step(&tails, together, allowance, growth);
            let step = cell.max(floor(compose::GROWTH));
            let width = (cell / moments.squared_slope.sqrt()).min(0.5);
            let (least, most) =
                tails.range(Sum::of(1.0), 0.0, allowance.log_tilted_mass + 5.0 - releases.ln());
            let oriented = |(least, most): (f64, f64)| {
                if direction.reversed {
                    (-most, -least)
                } else {
                    (least, most)
                }
            };
            let resolution = Resolution {
                step,
                width,
                decisive: oriented((least, most)),
                log_tail,
                bulk: oriented((f64::NEG_INFINITY, parted.threshold)),
                rare_step: step * growth_over_levels(compose::GROWTH),
            };
            let mut atoms = pair.atoms(bound, &resolution);
            if direction.reversed {
                atoms = atoms.reversed();
            }
            // Kinks of the curve stay lattice points on every level; losses that all lie on a lattice of their own keep it
            // as long as it is not too fine.
            let (mut step, mut anchor, mut growth) = (step, 0.0, compose::GROWTH);
            if let Some(grid) = pair.grid(&atoms) {
                anchor = grid.anchor;
                if grid.whole && grid.gap >= floor(1) {
                    (step, growth) = (grid.gap, 1);
                } else {
                    let last = step * growth_over_levels(growth);
                    step *= grid.gap / last / (grid.gap / last).ceil().max(1.0);
                }
            }
            log_finite += releases * (-atoms.infinite_p.min(1.0)).ln_1p();
            if atoms.atoms.is_empty() {
                continue;
            }
            let last_step = step * growth_over_levels(growth);
            let tails = tails
                .on_lattices(step, levels)
                .ending_on(last_step, parted.apart as f64, releases);
            let tails = if bound == Bound::Lower && growth > 1 {
                tails.rounded_down(3.0 * step)
            } else {
                tails
            };
            let (bulk, rare): (Vec<Atom>, Vec<Atom>) =
                atoms.atoms.iter().partition(|atom| atom.loss <= parted.threshold);
            let window = compose::range(&tails, 1, together, allowance);
            let on_lattice = |step: f64| {
                if forget {
                    return (Lattice::merged(&bulk, tilt, step), Cut::default());
                }
                Lattice::new(bound, &bulk, tilt, (step, anchor), window)
            };
            let (single, cut) = on_lattice(step);
            wrapped.above += together as f64 * cut.above;
            wrapped.left_out += together as f64 * cut.tilted_below;
            let composed = if forget {
                Lattice {
                    step: last_step,
                    ..single.repeated(together)
                }
            } else {
                let (composed, lost) =
                    compose::self_compose(bound, &single, together, &tails, allowance, growth);
                wrapped.above += lost.above;
                wrapped.tilted += lost.tilted;
                composed
            };
            if parted.apart == 0 {
                finals.push(composed);
                continue;
            }
            // PRIVACY: what has no term of its own counts as lost.
            let mass: f64 = rare.iter().map(|atom| atom.log_p.exp()).sum();
            if mass > 0.0 {
                wrapped.above += parted.log_more(mass).exp();
            }
            let (bulk, cut) = on_lattice(last_step);
            wrapped.above += parted.apart as f64 * cut.above;
            wrapped.left_out += parted.apart as f64 * cut.tilted_below;
            let rare =
                (!rare.is_empty()).then(|| Lattice::new(bound, &rare, tilt, (last_step, anchor), WHOLE).0);
            let empty = bulk.clone();
            let mut few = compose::Few::new(&composed, &bulk, rare.as_ref().unwrap_or(&empty));
            for term in outline.terms.iter().filter(|term| pass.rare.contains(&term.rare)) {
                if term.rare > 0 && rare.is_none() {
                    break;
                }
                let moved = term.clone().spread_by(releases * tails.spread());
                if moved.is_settled(direction.epsilon, direction.log_delta) {
                    settled.push(moved);
                    continue;
                }
                let sum = Sum {
                    bulk: releases - term.rare as f64,
                    rare: term.rare as f64,
                    log_ways: term.log_ways,
                };
                let window = tails.range(sum, allowance.log_mass, allowance.log_tilted_mass);
                wrapped.above += allowance.log_mass.exp();
                wrapped.tilted += 2.0 * allowance.log_tilted_mass.exp();
                let mut lattice = few.sum(parted.apart - term.rare, term.rare, window);
                lattice.log_scale += term.log_ways;
                finals.push(lattice);
            }
        }
        let totals = if self.parts.len() > 1 {
            self.combine(bound, finals, allowance, &mut wrapped)
                .into_iter()
                .collect()
        } else {
            finals
        };
        Composed {
            lattices: totals,
            settled,
            wrapped,
            log_finite,
        }
    }

    /// The sum of the parts' losses, on the coarsest of their lattices.
    fn combine(
        &self,
        bound: Bound,
        finals: Vec<Lattice>,
        allowance: Allowance,
        wrapped: &mut Wrapped,
    ) -> Option<Lattice> {
        if finals.len() < 2 {
            return finals.into_iter().next();
        }
        let step = finals.iter().map(|lattice| lattice.step).fold(0.0, f64::max);
        let mut parts = finals.into_iter().map(|lattice| {
            if lattice.step == step {
                return lattice;
            }
            let atoms: Vec<Atom> = lattice.atoms().collect();
            Lattice::new(bound, &atoms, lattice.tilt, (step, 0.0), WHOLE).0
        });
        let mut total = parts.next()?;
        for part in parts {
            // The window holds both supports whole: nothing wraps.
            let bottom = total.origin + part.origin;
            let points = (total.masses.len() + part.masses.len()) as f64;
            total = compose::convolve(&total, &part, bottom, bottom + points * step);
            trim(&mut total, allowance, wrapped);
        }
        Some(total)
    }
}

/// Cuts the ends of a lattice that hold next to nothing.
fn trim(lattice: &mut Lattice, allowance: Allowance, wrapped: &mut Wrapped) {
    let spare = allowance.log_tilted_mass.exp();
    let mut below = 0.0;
    let first = lattice.masses.iter().position(|mass| {
        below += mass;
        below > spare
    });
    if let Some(first) = first.filter(|first| *first > 0) {
        // PRIVACY: dropped, and counted as what an upper bound may lack. (Moving it up with its tilted mass would lose
        // real mass.)
        let dropped: f64 = lattice.masses[..first].iter().sum();
        lattice.origin += first as f64 * lattice.step;
        lattice.masses.drain(..first);
        wrapped.left_out += dropped;
    }
    let log_mass =
        |index: usize, mass: f64| mass.ln() + lattice.log_scale - lattice.tilt * lattice.loss(index);
    let mut keep = lattice.masses.len();
    let mut above = 0.0;
    while keep > 1 {
        let here = log_mass(keep - 1, lattice.masses[keep - 1]).exp();
        if above + here > allowance.log_mass.exp() || lattice.masses[keep - 1] > spare {
            break;
        }
        above += here;
        keep -= 1;
    }
    lattice.masses.truncate(keep);
    wrapped.above += above;
}

/// The argument (on a log scale) and the value of the smallest value of a function with one valley.
fn lowest(most: f64, f: impl Fn(f64) -> f64) -> (f64, f64) {
    // A coarse scan finds the valley, golden sections its floor.
    const REACH: f64 = 40.0;
    const STEP: f64 = 0.75;
    let mut lowest = (most, f64::INFINITY);
    let mut index = 0;
    while STEP * f64::from(index) <= REACH {
        let at = most - STEP * f64::from(index);
        let value = f(at);
        if value < lowest.1 {
            lowest = (at, value);
        }
        index += 1;
    }
    minimum(lowest.0 - STEP, (lowest.0 + STEP).min(most), |x| {
        let value = f(x);
        if value < lowest.1 {
            lowest = (x, value);
        }
        value
    });
    lowest
}

#[cfg(test)]
mod tests {
    use super::super::mixture::GaussianMixtures;
    use super::*;
    use crate::{NoiseMultiplier, gaussian};

    fn poisson(q: f64, z: f64, count: u64) -> Composition {
        let mut composition = Composition::default();
        let mixtures = GaussianMixtures::new(z, &[(0.0, 1.0 - q), (1.0, q)], &[(0.0, 1.0)]);
        composition.push(Pair::Mixtures(mixtures), count);
        composition
    }

    /// The upper bound lies at most `slack`, relative, above the truth, and the lower bound at most `gap` below it.
    fn check(composition: &Composition, log_delta: f64, truth: f64, slack: f64, gap: f64) {
        let upper = composition.answer(Bound::Upper, Target::LogDelta(log_delta));
        let lower = composition.answer(Bound::Lower, Target::LogDelta(log_delta));
        assert!(
            upper >= truth * (1.0 - 1e-9) && upper <= truth * (1.0 + slack),
            "upper {upper}, truth {truth}"
        );
        assert!(
            lower <= truth && lower >= truth - gap,
            "lower {lower}, truth {truth}"
        );
        let back = composition.answer(Bound::Upper, Target::Epsilon(upper));
        assert!(
            (back - log_delta).abs() < 2e-6 * log_delta.abs() + 5e-4,
            "delta {back}, target {log_delta}"
        );
    }

    #[test]
    fn gaussians_composed_numerically_are_the_wider_gaussian() {
        for count in [1u64, 2, 15, 16, 17, 300] {
            for log_delta in [-7.0, -80.0, -500.0] {
                let z = NoiseMultiplier::new(7.0 / (count as f64).sqrt()).unwrap();
                let exact = gaussian::epsilon_at_log_delta(z, log_delta).unwrap().get();
                check(
                    &poisson(1.0, 7.0, count),
                    log_delta,
                    exact,
                    2e-6,
                    5e-5 * exact.max(1.0),
                );
            }
        }
    }

    /// Truths by inverting the cumulant generating function along a line in the complex plane (numpy).
    #[test]
    fn rare_large_losses() {
        check(&poisson(0.001, 0.8, 10_000), 1e-18f64.ln(), 5.019_299, 5e-6, 1e-2);
    }

    /// One rare loss decides, and no tilt brings the mass there. Truths by the density of one and two rare losses beside a
    /// normal bulk (numpy).
    #[test]
    fn a_single_large_loss_decides() {
        check(
            &poisson(2.405e-4, 1.2174, 93),
            1.27e-22f64.ln(),
            0.452_052,
            5e-6,
            1e-4,
        );
        check(
            &poisson(1e-6, 0.5, 1_000_000),
            1e-9f64.ln(),
            0.562_844,
            5e-5,
            1e-3,
        );
    }

    /// Losses so large that a lattice point, as a multiple of the step, is rounded by more than a billionth of a step.
    #[test]
    fn repro_cells_without_width() {
        let log_delta = poisson(1e-6, 0.5, 1_000_000).log_delta(Bound::Upper, 0.563_214_440_391_461_3);
        assert!((log_delta.exp() / 9.963e-10 - 1.0).abs() < 1e-2, "{log_delta}");
    }

    /// Little noise: most releases tell nothing, a few tell very much, and half of the mass sits at the lowest loss.
    #[test]
    fn a_spike_at_the_lowest_loss() {
        for (count, truth) in [
            (31, 59.321_088),
            (48, 67.646_565),
            (64, 74.231_778),
            (1000, 251.099_11),
        ] {
            check(
                &poisson(0.01, 0.2, count),
                1e-6f64.ln(),
                truth,
                2e-6,
                5e-3 * truth,
            );
        }
    }

    #[test]
    fn infinite_losses_spend_delta() {
        let mut composition = Composition::default();
        composition.push(
            Pair::Outcomes(crate::discrete::Outcomes {
                log_p: vec![0.9f64.ln(), 0.05f64.ln()],
                log_q: vec![0.05f64.ln(), 0.9f64.ln()],
                missing_p: 0.05,
                missing_q: 0.05,
            }),
            2,
        );
        let infinite: f64 = 1.0 - 0.95 * 0.95;
        let loss = 18f64.ln();
        // Two equal losses remain above ln 18.
        let above = 0.81 * (1.0 - (1.5 * loss - 2.0 * loss).exp());
        let want = (infinite + above).ln();
        let got = composition.log_delta(Bound::Upper, 1.5 * loss);
        assert!((got - want).abs() < 1e-8, "{got} {want}");
        assert_eq!(composition.epsilon(Bound::Upper, 0.09f64.ln()), f64::INFINITY);
    }
}

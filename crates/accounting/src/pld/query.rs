//! Epsilon at a delta and delta at an epsilon of composed pairs.

use super::atoms::{Atom, Bound};
use super::compose::{self, Allowance, Wrapped};
use super::lattice::{Lattice, WHOLE};
use super::pair::{Pair, Resolution};
use super::probe::{Probe, Tails};
use super::single::SingleRelease;
use crate::search::minimum;
use crate::special::LogSum;

/// Relative accuracy of epsilon aimed at: of the upper bound, of the lower bound, and of a first look.
const FINE: f64 = 8e-7;
const LOWER: f64 = 1e-6;
const COARSE: f64 = 5e-4;
/// Mass that may be counted as lost, relative to delta (`e^-16` is 1e-7). No smaller: losses that rare are so large
/// under a small sampling probability that the tilt would carry all of the tilted mass out to them.
const LOG_SPARE: f64 = -16.0;
/// Tilted mass that windows may cut off, relative to what lies at the losses that decide.
const LOG_TILTED_SPARE: f64 = -20.0;
/// `ln` of the least share of the tilted mass that may lie at the losses that decide.
const LOG_SHARE: f64 = -6.0;
/// No delta below this is told apart from zero: the smallest normal number is e^-708.
pub(super) const LEAST_LOG_DELTA: f64 = -800.0;
/// A tilt times the largest loss of a release beyond which no more is gained.
const STEEPEST: f64 = 1e4;
/// Rounding errors of sums, relative to delta.
const ROUNDING: f64 = 1e-10;
/// Rounding error of the transforms relative to the tilted mass, for each release: every level multiplies the errors of
/// those below by its sixteen releases.
const NOISE: f64 = 16.0 * f64::EPSILON;

/// Pairs with how often each is composed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composition {
    parts: Vec<(Pair, u64)>,
}

/// Where delta is large, and the tilt small, a smaller share is given up.
fn spare(log_delta: f64) -> f64 {
    LOG_SPARE - (10.0 + log_delta).max(0.0)
}

/// What is asked: the smallest epsilon at `ln delta`, or `ln delta` at an epsilon.
#[derive(Debug, Clone, Copy)]
enum Target {
    LogDelta(f64),
    Epsilon(f64),
}

/// One of the two directions of all pairs, looked at coarsely.
#[derive(Clone)]
struct Direction {
    reversed: bool,
    probes: Vec<(Probe, f64)>,
    /// Chernoff's answer to the target: an estimate of the scale, used for resolution only.
    tilt: f64,
    epsilon: f64,
    log_delta: f64,
    /// How fast `ln delta` falls in epsilon.
    steepness: f64,
}

impl Direction {
    /// The smallest tilt that leaves enough of the tilted mass at the losses that decide,
    /// with `ln` of that share.
    ///
    /// The best tilt centres all mass there, but it also lets rare large losses of a single release grow into the bulk
    /// of the tilted mass and widen every window.
    fn gentlest_tilt(&self) -> (f64, f64) {
        let log_share = |tilt: f64| -> f64 {
            let cumulant: f64 = self
                .probes
                .iter()
                .map(|(probe, count)| count * probe.cumulant(tilt))
                .sum();
            (self.log_delta + tilt * self.epsilon - cumulant).min(0.0)
        };
        // Where even the best tilt leaves little there, because rare large losses take the mass, none is nearly as good.
        let enough = LOG_SHARE.min(log_share(self.tilt) - 3.0);
        let mut factor = 0.0;
        while factor < 1.0 && log_share(factor * self.tilt) < enough {
            factor += 0.0625;
        }
        (factor * self.tilt, log_share(factor * self.tilt))
    }
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
            return self
                .resolve(first, bound, LOWER, target)
                .max(self.resolve(second, bound, LOWER, target));
        }
        let answer = self.refined(first, target);
        // The other direction is usually the more private one by far: then a coarse bound settles it.
        if self.resolve(second, bound, COARSE, target) <= answer {
            answer
        } else {
            answer.max(self.refined(second, target))
        }
    }

    /// The upper bound at full accuracy, at the scale and the slope that coarse ones find: Chernoff's are far off where a
    /// single large loss shapes the tail.
    fn refined(&self, direction: &Direction, target: Target) -> f64 {
        let coarse = |target| self.resolve(direction, Bound::Upper, COARSE, target);
        let (first, closer) = match target {
            Target::LogDelta(log_delta) => {
                let epsilon = coarse(target);
                let steepness = 0.1 / (coarse(Target::LogDelta(log_delta - 0.1)) - epsilon);
                (
                    epsilon,
                    Direction {
                        epsilon,
                        steepness,
                        ..direction.clone()
                    },
                )
            }
            Target::Epsilon(epsilon) => {
                let (log_delta, apart) = (coarse(target), 0.1 / direction.tilt);
                let steepness = (log_delta - coarse(Target::Epsilon(epsilon + apart))) / apart;
                let log_delta_then = log_delta.min(0.0) - 1.0;
                (
                    log_delta,
                    Direction {
                        log_delta: log_delta_then,
                        steepness,
                        ..direction.clone()
                    },
                )
            }
        };
        let usable = closer.steepness.is_finite() && closer.steepness > 0.0 && closer.epsilon.is_finite();
        if !usable || !closer.log_delta.is_finite() || closer.epsilon <= 0.0 {
            return first.min(self.resolve(direction, Bound::Upper, FINE, target));
        }
        self.resolve(&closer, Bound::Upper, FINE, target).min(first)
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
        let log_tail = self.log_tail(log_delta);
        let probes: Vec<(Probe, f64)> = self
            .parts
            .iter()
            .map(|(pair, count)| {
                let probe = pair.probe(log_tail);
                let probe = if reversed { probe.reversed() } else { probe };
                (probe, *count as f64)
            })
            .collect();
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

    /// `ln` of the tail mass of one release that may be counted as lost.
    fn log_tail(&self, log_delta: f64) -> f64 {
        let count: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        log_delta + spare(log_delta) - count.ln()
    }

    fn resolve(&self, direction: &Direction, bound: Bound, accuracy: f64, target: Target) -> f64 {
        let best_tilt = direction.tilt;
        let (tilt, log_share) = direction.gentlest_tilt();
        let allowance = Allowance {
            log_mass: direction.log_delta + spare(direction.log_delta),
            log_tilted_mass: LOG_TILTED_SPARE + log_share,
        };
        let log_tail = self.log_tail(direction.log_delta);
        let moments: Vec<_> = direction
            .probes
            .iter()
            .map(|(probe, count)| (probe.moments(best_tilt), *count))
            .collect();
        let variance: f64 = moments.iter().map(|(m, count)| m.variance * count).sum();
        let scale = direction.epsilon.max(0.2 * variance.sqrt());
        // A lattice of distance h adds count s (s + 1) h^2 / 12 to the cumulant at s, the slope, hence that over s to
        // epsilon; the allowed error is shared between parts by their variance, and between the cells and levels.
        // ln of the probability that no release has an infinite loss.
        let mut log_finite = 0.0;
        let mut wrapped = Wrapped::default();
        let mut finals: Vec<Lattice> = Vec::new();
        for (((pair, count), (probe, _)), (moments, _)) in
            self.parts.iter().zip(&direction.probes).zip(&moments)
        {
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
            let share = (releases * moments.variance / variance).max(1e-3);
            let stages = f64::from(compose::levels(*count)) + 1.0;
            let error = accuracy * scale * share / stages;
            let cell = (12.0 * error / (releases * (direction.steepness + 1.0))).sqrt();
            let tails = Tails::new(probe, tilt, releases, moments.variance.max(1e-300));
            let floor = |growth: usize| compose::least_step(&tails, *count, allowance, growth);
            let step = cell.max(floor(compose::GROWTH));
            let width = (cell / moments.squared_slope.sqrt()).min(0.5);
            let (least, most) = tails.range(1.0, 0.0, allowance.log_tilted_mass + 5.0 - releases.ln());
            let resolution = Resolution {
                step,
                width,
                decisive: if direction.reversed {
                    (-most, -least)
                } else {
                    (least, most)
                },
                log_tail,
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
                    let last = step * (growth as f64).powi(compose::levels(*count) as i32 - 1);
                    step *= grid.gap / last / (grid.gap / last).ceil().max(1.0);
                }
            }
            log_finite += releases * (-atoms.infinite_p.min(1.0)).ln_1p();
            if atoms.atoms.is_empty() {
                continue;
            }
            let tails = tails.on_lattices(step, compose::levels(*count));
            let window = compose::range(&tails, 1, *count, allowance);
            let (single, cut) = Lattice::new(bound, &atoms.atoms, tilt, (step, anchor), window);
            wrapped.above += releases * cut.above;
            wrapped.left_out += releases * cut.tilted_below;
            let (composed, lost) = compose::self_compose(bound, &single, *count, &tails, allowance, growth);
            wrapped.above += lost.above;
            wrapped.tilted += lost.tilted;
            finals.push(composed);
        }
        let total = self.combine(bound, finals, allowance, &mut wrapped);
        let infinite = match bound {
            Bound::Upper => wrapped.above - log_finite.exp_m1(),
            Bound::Lower => -log_finite.exp_m1(),
        };
        let releases: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        conclude(
            bound,
            total.as_ref(),
            infinite,
            wrapped,
            NOISE * (releases - 1.0),
            target,
        )
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

/// Reads the target off the loss of the whole composition.
fn conclude(
    bound: Bound,
    total: Option<&Lattice>,
    infinite: f64,
    wrapped: Wrapped,
    noise: f64,
    target: Target,
) -> f64 {
    let Some(total) = total else {
        return match target {
            Target::LogDelta(log_delta) if infinite.ln() > log_delta => f64::INFINITY,
            Target::LogDelta(_) => 0.0,
            Target::Epsilon(_) => infinite.ln(),
        };
    };
    // PRIVACY: numbers that overflowed say nothing; nothing is what is then guaranteed.
    if !total.is_sound() {
        return match (bound, target) {
            (Bound::Upper, Target::LogDelta(_)) => f64::INFINITY,
            (Bound::Upper, Target::Epsilon(_)) | (Bound::Lower, Target::LogDelta(_)) => 0.0,
            (Bound::Lower, Target::Epsilon(_)) => f64::NEG_INFINITY,
        };
    }
    // `ln` of what a tilted mass error can do to delta at epsilon. Rounding may err either way; what wrapped around
    // only ever adds.
    let error = |mass: f64, epsilon: f64| mass.ln() + total.log_scale - total.tilt * epsilon;
    match target {
        Target::LogDelta(log_delta) => {
            // PRIVACY: infinite losses spend delta first.
            let share = (infinite.ln() - log_delta).exp();
            if share.is_nan() || share >= 1.0 {
                return f64::INFINITY;
            }
            let rest = log_delta + (-share).ln_1p();
            let first = total.epsilon(rest);
            let slack = |mass: f64| ROUNDING + (error(mass, first) - rest).exp().ln_1p();
            match bound {
                Bound::Upper => total.epsilon(rest - slack(noise + wrapped.left_out)),
                Bound::Lower => total.epsilon(rest + slack(2.0 * wrapped.tilted + noise)),
            }
        }
        Target::Epsilon(epsilon) => {
            let log_delta = total.log_delta(epsilon);
            let mut sum = LogSum::new();
            match bound {
                Bound::Upper => {
                    sum.add(log_delta + ROUNDING);
                    sum.add(error(noise + wrapped.left_out, epsilon));
                }
                Bound::Lower => {
                    let lost = (error(2.0 * wrapped.tilted + noise, epsilon) - log_delta).exp();
                    if lost < 1.0 {
                        sum.add(log_delta - ROUNDING + (-lost).ln_1p());
                    }
                }
            }
            sum.add(infinite.ln());
            sum.get()
        }
    }
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
            (back - log_delta).abs() < 2e-6 * log_delta.abs() + 1e-4,
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
                    3e-5 * exact.max(1.0),
                );
            }
        }
    }

    /// Truths by inverting the cumulant generating function along a line in the complex plane (numpy).
    #[test]
    fn rare_large_losses() {
        check(&poisson(0.001, 0.8, 10_000), 1e-18f64.ln(), 5.019_299, 5e-6, 1e-2);
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

//! A look at a composition before it is composed: what is rare, which tilts suit, and the scale and the slope at the target.
//!
//! Chernoff's bound comes first; coarse compositions then correct what it is wrong about.

use std::ops::RangeInclusive;

use super::composition::{COARSE, Composition, MIN_LOG_DELTA, Solve};
use super::discretize::Bound;
use super::loss_range::Probe;
use super::pair::Pair;
use super::readout::{SLIGHT, Total};
use super::tail_split::{EXPECTED, MIN_RELEASES, Parted, Term, WORTH};
use crate::search::minimum;

/// A tilt times the largest loss of a release beyond which no more is gained.
const STEEPEST: f64 = 1e4;
/// Mass that may be counted as lost, relative to delta (`e^-16` is 1e-7). No smaller: losses that rare are so large
/// under a small sampling probability that the tilt would carry all of the tilted mass out to them.
const LOG_SPARE: f64 = -16.0;
/// `ln` of the least share of the tilted mass that may lie at the losses that decide.
const LOG_SHARE: f64 = -6.0;
/// Rounding error of the transforms relative to the tilted mass, for each release: every level multiplies the errors of
/// those below by its sixteen releases.
pub(super) const NOISE: f64 = 16.0 * f64::EPSILON;
/// The expected numbers of rare losses that are tried then: these powers of delta.
const RARE_POWERS: [f64; 8] = [0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// `ln` of the mass that may be counted as lost, relative to delta. A smaller share is given up where delta is large, and the tilt small.
pub(super) fn spare(log_delta: f64) -> f64 {
    LOG_SPARE - (10.0 + log_delta).max(0.0)
}

/// One of the two directions of all pairs, looked at coarsely.
#[derive(Clone)]
pub(super) struct Direction {
    pub(super) reversed: bool,
    pub(super) probes: Vec<(Probe, f64)>,
    /// Chernoff's answer to the target: an estimate of the scale, used for resolution only.
    pub(super) tilt: f64,
    pub(super) epsilon: f64,
    pub(super) log_delta: f64,
    /// Rate at which `ln delta` falls in epsilon.
    pub(super) steepness: f64,
    /// True if losses of which less than delta are expected have lattices of their own.
    pub(super) is_apart: bool,
}

/// The split of the losses, and the tilts with which the terms are computed.
pub(super) struct Outline {
    pub(super) parted: Vec<Parted>,
    /// Terms of the only part; none where nothing was split.
    pub(super) terms: Vec<Term>,
    pub(super) passes: Vec<Pass>,
}

/// One composition, and the terms that are taken from it.
pub(super) struct Pass {
    pub(super) tilt: f64,
    /// `ln` of the share of the tilted mass that lies at the losses that decide.
    pub(super) log_share: f64,
    /// Numbers of rare losses.
    pub(super) rare: RangeInclusive<u64>,
}

impl Pass {
    /// True if some terms have rare losses.
    pub(super) fn has_rare(&self) -> bool {
        *self.rare.end() > 0
    }
}

impl Outline {
    /// The smallest share of a pass.
    fn log_share(&self) -> f64 {
        self.passes.iter().map(|pass| pass.log_share).fold(0.0, f64::min)
    }
}

impl Direction {
    /// Parts the losses of a lone pair into bulk and rare ones, and finds the smallest tilt that leaves enough of the
    /// tilted mass at the losses that decide.
    ///
    /// The best tilt centres all mass there, but it also lets rare large losses of a single release grow into the bulk
    /// of the tilted mass and widen every window.
    pub(super) fn outline(&self) -> Outline {
        let log_mass = self.log_delta + spare(self.log_delta);
        let [(probe, count)] = self.probes.as_slice() else {
            let whole = |(probe, count): &(Probe, f64)| Parted::whole(probe, *count as u64);
            return self.tilted(self.probes.iter().map(whole).collect());
        };
        if self.is_apart {
            let expected = self.log_delta.exp().min(EXPECTED);
            return self.on_two_lattices(vec![Parted::new(probe, *count as u64, expected, log_mass, 0.25)]);
        }
        let parted = |expected: f64, worth: f64| {
            self.in_passes(vec![Parted::new(probe, *count as u64, expected, log_mass, worth)])
        };
        let mut best = if (*count as u64) < MIN_RELEASES {
            self.tilted(vec![Parted::whole(probe, *count as u64)])
        } else {
            parted(EXPECTED, WORTH)
        };
        if best.log_share() >= self.enough() {
            return best;
        }
        // Where no tilt brings the mass to the losses that decide, fewer losses are rare, until those that are decide.
        for log_expected in RARE_POWERS.map(|share| share * self.log_delta) {
            let other = parted(log_expected.exp().min(EXPECTED), 0.25);
            if other.log_share() > best.log_share() {
                best = other;
            }
            if best.log_share() >= self.enough() {
                break;
            }
        }
        best
    }

    /// `ln` of the share of the tilted mass below which rounding errors may add more than is slight.
    fn enough(&self) -> f64 {
        let releases: f64 = self.probes.iter().map(|(_, count)| count).sum();
        (NOISE * releases / SLIGHT).ln()
    }

    /// One pass over all terms, or two: bulk losses alone may need another tilt than those beside rare ones.
    fn in_passes(&self, parted: Vec<Parted>) -> Outline {
        let mut outline = self.tilted(parted);
        if outline.log_share() < self.enough() && outline.terms.len() > 1 {
            let max_rare = outline.terms.len() as u64 - 1;
            let passes = [0..=0, 1..=max_rare].map(|rare| self.pass(&outline.parted, &outline.terms, rare));
            if passes.iter().all(|pass| pass.log_share > outline.log_share()) {
                outline.passes = passes.into();
            }
        }
        outline
    }

    /// One pass over the bulk losses alone, and one over the terms with rare ones.
    fn on_two_lattices(&self, parted: Vec<Parted>) -> Outline {
        let mut outline = self.tilted(parted);
        if outline.terms.len() > 1 {
            let max_rare = outline.terms.len() as u64 - 1;
            outline.passes = [0..=0, 1..=max_rare]
                .map(|rare| self.pass(&outline.parted, &outline.terms, rare))
                .into();
        }
        outline
    }

    /// The direction without losses apart.
    pub(super) fn on_one_lattice(&self) -> Self {
        Self {
            is_apart: false,
            ..self.clone()
        }
    }

    /// The direction with rare losses apart, and a slope that suits its bulk; `None` where none are rare.
    fn with_rare_apart(&self) -> Option<Self> {
        let mut other = Self {
            is_apart: true,
            ..self.clone()
        };
        let outline = other.outline();
        other.steepness = outline.passes.first()?.tilt.max(self.tilt);
        (outline.passes.len() > 1).then_some(other)
    }

    fn tilted(&self, parted: Vec<Parted>) -> Outline {
        let terms = match parted.as_slice() {
            [only] => only.terms(self.tilt),
            _ => Vec::new(),
        };
        let all = 0..=(terms.len() as u64).saturating_sub(1);
        Outline {
            passes: vec![self.pass(&parted, &terms, all)],
            parted,
            terms,
        }
    }

    /// The smallest tilt that leaves enough of the tilted mass at the losses that decide.
    fn pass(&self, parted: &[Parted], terms: &[Term], rare: RangeInclusive<u64>) -> Pass {
        let decisive: Vec<&Term> = terms
            .iter()
            .filter(|term| rare.contains(&term.rare) && !term.is_settled(self.epsilon, self.log_delta))
            .collect();
        let log_share = |tilt: f64| -> f64 {
            let mass: f64 = match parted {
                [only] if !terms.is_empty() => only.log_mass(&decisive, tilt),
                _ => self
                    .probes
                    .iter()
                    .map(|(probe, count)| count * probe.cumulant(tilt))
                    .sum(),
            };
            (self.log_delta + tilt * self.epsilon - mass).min(0.0)
        };
        // Chernoff's tilt is too small where rare losses spoil it: the slope found since may be the better one.
        let steepest = self.tilt.max(1.25 * self.steepness);
        let mut shares: Vec<(f64, f64)> = (0..=20)
            .map(|twentieth| 0.05 * f64::from(twentieth) * steepest)
            .map(|tilt| (tilt, log_share(tilt)))
            .collect();
        let largest = |shares: &[(f64, f64)]| {
            let shares = shares.iter().map(|share| share.1);
            shares.fold(f64::NEG_INFINITY, f64::max)
        };
        if largest(&shares) < self.enough() || self.is_apart {
            // Losses that are cut off far below epsilon bear, and ask for, a tilt that is steeper by far.
            let most = if self.is_apart { 64 } else { 32 };
            let steeper = (1..=most).map(|power| 1.25f64.powi(power) * steepest);
            shares.extend(steeper.map(|tilt| (tilt, log_share(tilt))));
        }
        if self.is_apart && rare.contains(&0) && !decisive.is_empty() {
            return narrowest(&shares, rare);
        }
        let best = largest(&shares);
        // Where even the best tilt leaves little there, because rare large losses take the mass, none is nearly as good.
        let enough = LOG_SHARE.min(best - 3.0);
        let found = shares.iter().find(|share| share.1 >= enough);
        let (tilt, log_share) = found.copied().unwrap_or((self.tilt, best));
        Pass {
            tilt,
            log_share,
            rare,
        }
    }
}

/// The pass of the tilt, of those with their shares, that brings most of the mass to the losses that decide: the windows are narrowest there.
///
/// Small losses add little to delta: a tilted mass of 1 adds `1 / (e tilt)` at most.
fn narrowest(shares: &[(f64, f64)], rare: RangeInclusive<u64>) -> Pass {
    let found = |(tilt, share): &&(f64, f64)| share + tilt.ln_1p();
    // Where the mass of a tilt suffices, no steeper one is asked for.
    let enough = shares.iter().find(|(_, share)| *share >= 0.0);
    let best = enough.or_else(|| shares.iter().max_by(|a, b| found(a).total_cmp(&found(b))));
    let (tilt, log_share) = best.copied().unwrap_or((0.0, 0.0));
    Pass {
        tilt,
        log_share,
        rare,
    }
}

impl Composition {
    /// A coarse upper bound, with the scale and the slope that coarse bounds find: Chernoff's are far off where a single
    /// large loss shapes the tail.
    pub(super) fn closer(&self, direction: &Direction, target: Solve) -> (f64, Direction) {
        let mut closer = direction.clone();
        let mut first = f64::INFINITY;
        for _ in 0..8 {
            let (coarse, here) = self.first_look(&mut closer, target);
            first = first.min(here);
            let (epsilon, log_delta, near) = match target {
                Solve::LogDelta(log_delta) => {
                    let off = (first - closer.epsilon).abs();
                    // A tilt that suits losses further out leaves the mass of those that decide to rounding errors.
                    let near =
                        off <= 0.2 * first && !(off * closer.tilt > 1.0 && coarse.is_noisy(here, log_delta));
                    (first, log_delta, near)
                }
                // What was assumed too large hides what is smaller; what was assumed too small costs little.
                Solve::Epsilon(epsilon) if here > closer.log_delta + 3.0 => {
                    (epsilon, closer.log_delta - 8.0, false)
                }
                Solve::Epsilon(epsilon) => (epsilon, here - 1.0, here > closer.log_delta - 3.0),
            };
            let has_scale = epsilon > 0.0 || matches!(target, Solve::Epsilon(_));
            if !(has_scale && epsilon.is_finite() && log_delta > MIN_LOG_DELTA) {
                break;
            }
            let steepness = match target {
                Solve::LogDelta(log_delta) if near => {
                    0.1 / (coarse.answer(Solve::LogDelta(log_delta - 0.1)) - here)
                }
                Solve::Epsilon(epsilon) if near => {
                    let apart = 0.1 / closer.tilt;
                    (here - coarse.answer(Solve::Epsilon(epsilon + apart))) / apart
                }
                Solve::LogDelta(_) | Solve::Epsilon(_) => f64::NAN,
            };
            if log_delta != closer.log_delta {
                closer.probes = self.probes(direction.reversed, log_delta);
            }
            (closer.epsilon, closer.log_delta) = (epsilon, log_delta);
            // A slope far from the tilt is that of an error.
            let usual = if closer.is_apart {
                closer.steepness
            } else {
                direction.tilt
            };
            let slope = steepness / usual;
            if slope > 0.1 && slope < 10.0 {
                closer.steepness = steepness;
            }
            if near {
                break;
            }
        }
        (first, closer)
    }

    /// A coarse upper bound. Where its lattices are too coarse, because rare losses reach too far, those may get lattices of their own.
    fn first_look(&self, direction: &mut Direction, target: Solve) -> (Total, f64) {
        /// An upper bound asks for lattices three times as fine as the longest transform allows, then.
        const COARSENESS: f64 = 0.5;
        /// Coarse answers this close are the same.
        const SAME: f64 = 2.0 * COARSE;
        let whole = self.total(direction, Bound::Upper, COARSE);
        let answer = whole.answer(target);
        let is_smooth = matches!(self.parts.as_slice(), [(Pair::Mixtures(_) | Pair::Either(_), _)]);
        let is_asked = matches!(target, Solve::LogDelta(_)) && is_smooth && !direction.is_apart;
        if !is_asked || whole.coarseness <= COARSENESS {
            return (whole, answer);
        }
        let Some(other) = direction.with_rare_apart() else {
            return (whole, answer);
        };
        let apart = self.total(&other, Bound::Upper, COARSE);
        let here = apart.answer(target);
        let is_finer = apart.coarseness < whole.coarseness && here < answer * (1.0 + SAME);
        if is_finer || here < answer * (1.0 - SAME) {
            *direction = other;
            return (apart, here);
        }
        (whole, answer)
    }

    pub(super) fn look(&self, reversed: bool, target: Solve) -> Direction {
        let mut log_delta = match target {
            Solve::LogDelta(log_delta) => return self.look_at(reversed, target, log_delta),
            Solve::Epsilon(_) => -20.0,
        };
        // The outcomes looked at must be those that the delta to come asks for: reach out until they are, and come back.
        loop {
            let direction = self.look_at(reversed, target, log_delta);
            if direction.log_delta >= log_delta {
                let estimate = direction.log_delta;
                let direction = self.look_at(reversed, target, estimate);
                let log_delta = direction.log_delta.min(estimate);
                // PRIVACY: windows reach as far as the probes do, and atoms as far as this delta asks for.
                return Direction {
                    log_delta,
                    probes: self.probes(reversed, log_delta),
                    ..direction
                };
            }
            if log_delta <= MIN_LOG_DELTA {
                return Direction {
                    log_delta,
                    ..direction
                };
            }
            log_delta = (2.0 * log_delta).max(MIN_LOG_DELTA);
        }
    }

    fn look_at(&self, reversed: bool, target: Solve, log_delta: f64) -> Direction {
        let probes = self.probes(reversed, log_delta);
        let cumulant = |tilt: f64| -> f64 {
            probes
                .iter()
                .map(|(probe, count)| count * probe.cumulant(tilt))
                .sum()
        };
        let farthest = probes
            .iter()
            .map(|(probe, _)| probe.ends())
            .fold(1e-30_f64, |farthest, (low, high)| {
                farthest.max(low.abs()).max(high.abs())
            });
        let (log_tilt, best) = lowest((STEEPEST / farthest).ln(), |log_tilt| {
            let tilt = log_tilt.exp();
            match target {
                // Canonne, Kamath, Steinke (2020), Proposition 12, at order 1 + tilt.
                Solve::LogDelta(log_delta) => {
                    cumulant(tilt) / tilt - tilt.recip().ln_1p() - (log_delta + tilt.ln_1p()) / tilt
                }
                Solve::Epsilon(epsilon) => {
                    cumulant(tilt) - tilt * epsilon - tilt * tilt.recip().ln_1p() - tilt.ln_1p()
                }
            }
        });
        let (epsilon, log_delta) = match target {
            Solve::LogDelta(log_delta) => (best, log_delta),
            // Chernoff's bound lies above the truth, rarely by more than a factor of e^3.
            Solve::Epsilon(epsilon) => (epsilon, best.min(0.0) - 3.0),
        };
        Direction {
            reversed,
            probes,
            tilt: log_tilt.exp(),
            epsilon,
            log_delta,
            steepness: log_tilt.exp(),
            is_apart: false,
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
    pub(super) fn log_tail(&self, log_delta: f64) -> f64 {
        let count: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        log_delta + spare(log_delta) - count.ln()
    }
}

/// The argument (on a log scale) and the value of the smallest value of a function with one valley.
fn lowest(highest: f64, f: impl Fn(f64) -> f64) -> (f64, f64) {
    // A coarse scan finds the valley, golden sections its floor.
    const REACH: f64 = 40.0;
    const STEP: f64 = 0.75;
    let mut lowest = (highest, f64::INFINITY);
    let mut index = 0;
    while STEP * f64::from(index) <= REACH {
        let at = highest - STEP * f64::from(index);
        let value = f(at);
        if value < lowest.1 {
            lowest = (at, value);
        }
        index += 1;
    }
    minimum(lowest.0 - STEP, (lowest.0 + STEP).min(highest), |x| {
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
    use super::*;
    use crate::pld::GaussianMixtures;

    /// Windows end where the probes end: those must reach as far as the atoms of the delta that is assumed.
    #[test]
    fn probes_reach_as_far_as_the_assumed_delta_asks_for() {
        let mut composition = Composition::default();
        let mixtures =
            GaussianMixtures::new(1.2174, &[(0.0, 1.0 - 2.405e-4), (1.0, 2.405e-4)], &[(0.0, 1.0)]);
        composition.push(Pair::Mixtures(mixtures), 93);
        for (epsilon, reversed) in [(0.452, false), (0.01, true), (3.0, false)] {
            let direction = composition.look(reversed, Solve::Epsilon(epsilon));
            let asked = composition.probes(reversed, direction.log_delta);
            let ends = |probes: &[(Probe, f64)]| probes[0].0.ends();
            assert_eq!(ends(&direction.probes), ends(&asked), "{epsilon} {reversed}");
        }
    }
}

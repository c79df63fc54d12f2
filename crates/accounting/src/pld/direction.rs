//! One direction of a composition before anything is composed: what is rare, and which tilts suit.

use std::ops::RangeInclusive;

use super::probe::Probe;
use super::rare::{EXPECTED, Parted, Term, WORTH};

/// Mass that may be counted as lost, relative to delta (`e^-16` is 1e-7). No smaller: losses that rare are so large
/// under a small sampling probability that the tilt would carry all of the tilted mass out to them.
const LOG_SPARE: f64 = -16.0;
/// `ln` of the least share of the tilted mass that may lie at the losses that decide.
const LOG_SHARE: f64 = -6.0;
/// Rounding error of the transforms relative to the tilted mass, for each release: every level multiplies the errors of
/// those below by its sixteen releases.
pub(super) const NOISE: f64 = 16.0 * f64::EPSILON;
/// What rounding errors may add to delta, relative, before another way is looked for.
const SLIGHT: f64 = 1e-5;

/// Where delta is large, and the tilt small, a smaller share is given up.
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
    /// How fast `ln delta` falls in epsilon.
    pub(super) steepness: f64,
}

/// How the losses are parted, and with which tilts the terms are computed.
pub(super) struct Outline {
    pub(super) parted: Vec<Parted>,
    /// Of the only part; none where nothing was parted.
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
        let parted = |expected: f64, worth: f64| {
            self.tilted(vec![Parted::new(probe, *count as u64, expected, log_mass, worth)])
        };
        // Where no tilt brings the mass to the losses that decide, fewer losses are rare, until those that are decide.
        let enough = (NOISE * count / SLIGHT).ln();
        let mut best = parted(EXPECTED, WORTH);
        for log_expected in [0.0, 0.5, 0.75, 0.9].map(|share| share * self.log_delta) {
            if best.log_share() >= enough {
                break;
            }
            let other = parted(log_expected.exp().min(EXPECTED), 0.25);
            if other.log_share() > best.log_share() {
                best = other;
            }
        }
        // Bulk losses alone may need another tilt than those beside rare ones.
        if best.log_share() < enough && best.terms.len() > 1 {
            let most = best.terms.len() as u64 - 1;
            let passes = [0..=0, 1..=most].map(|rare| self.pass(&best.parted, &best.terms, rare));
            if passes.iter().all(|pass| pass.log_share > best.log_share()) {
                best.passes = passes.into();
            }
        }
        best
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
        let shares: Vec<(f64, f64)> = (0..=20)
            .map(|twentieth| 0.05 * f64::from(twentieth) * steepest)
            .map(|tilt| (tilt, log_share(tilt)))
            .collect();
        let most = shares
            .iter()
            .map(|share| share.1)
            .fold(f64::NEG_INFINITY, f64::max);
        // Where even the best tilt leaves little there, because rare large losses take the mass, none is nearly as good.
        let enough = LOG_SHARE.min(most - 3.0);
        let found = shares.iter().find(|share| share.1 >= enough);
        let (tilt, log_share) = found.copied().unwrap_or((self.tilt, most));
        Pass {
            tilt,
            log_share,
            rare,
        }
    }
}

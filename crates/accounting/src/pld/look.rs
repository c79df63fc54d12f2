//! A look at a composition before it is composed: the tilt, the scale and the slope at the target.
//!
//! Chernoff's bound comes first; coarse compositions then correct what it is wrong about.

use super::atoms::Bound;
use super::direction::{Direction, spare};
use super::pair::Pair;
use super::probe::Probe;
use super::query::{COARSE, Composition, LEAST_LOG_DELTA, Target};
use crate::search::minimum;

/// A tilt times the largest loss of a release beyond which no more is gained.
const STEEPEST: f64 = 1e4;

impl Composition {
    /// A coarse upper bound, with the scale and the slope that coarse bounds find: Chernoff's are far off where a single
    /// large loss shapes the tail.
    pub(super) fn closer(&self, direction: &Direction, target: Target) -> (f64, Direction) {
        let mut closer = direction.clone();
        let mut first = f64::INFINITY;
        for _ in 0..8 {
            let outline = closer.outline();
            let coarse = self.setting(&closer, &outline, Bound::Upper, COARSE).total();
            let here = coarse.answer(target);
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
                    0.1 / (coarse.answer(Target::LogDelta(log_delta - 0.1)) - here)
                }
                Target::Epsilon(epsilon) if near => {
                    let apart = 0.1 / closer.tilt;
                    (here - coarse.answer(Target::Epsilon(epsilon + apart))) / apart
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

    pub(super) fn look(&self, reversed: bool, target: Target) -> Direction {
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
                // PRIVACY: windows reach as far as the probes do, and atoms as far as this delta asks for.
                return Direction {
                    log_delta,
                    probes: self.probes(reversed, log_delta),
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
    pub(super) fn log_tail(&self, log_delta: f64) -> f64 {
        let count: f64 = self.parts.iter().map(|(_, count)| *count as f64).sum();
        log_delta + spare(log_delta) - count.ln()
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
            let direction = composition.look(reversed, Target::Epsilon(epsilon));
            let asked = composition.probes(reversed, direction.log_delta);
            let reach = |probes: &[(Probe, f64)]| probes[0].0.reach();
            assert_eq!(reach(&direction.probes), reach(&asked), "{epsilon} {reversed}");
        }
    }
}

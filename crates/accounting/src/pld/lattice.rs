//! Distributions of a privacy loss on evenly spaced points, exponentially tilted.

use super::buffers::Buffer;
use super::connect_the_dots::{PointSplit, Sharing};
use super::discretize::{Atom, Bound};
use crate::special::LogSum;

/// The loss of the composition so far: mass `masses[i] e^{log_scale - tilt l_i}` under `P` at loss
/// `l_i = origin + i step`.
///
/// The tilt moves the bulk of the numbers to the losses that decide at the delta in question, so that a delta of
/// 1e-30 is a sum of ordinary numbers and not a rounding error of the bulk.
#[derive(Debug, Clone)]
pub(crate) struct Lattice {
    pub(crate) tilt: f64,
    pub(crate) origin: f64,
    pub(crate) step: f64,
    pub(crate) masses: Buffer<f64>,
    pub(crate) log_scale: f64,
}

/// The mass outside the range of a lattice.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    /// Mass of `P` at the losses above.
    pub(crate) above: f64,
    /// Tilted mass at the losses below, relative to what was kept.
    pub(crate) tilted_below: f64,
}

impl Lattice {
    /// Puts the atoms whose losses lie in `range` (and a step around it) on a lattice of distance
    /// `step`, one of whose points is `anchor`.
    pub(crate) fn new(
        bound: Bound,
        atoms: &[Atom],
        tilt: f64,
        (step, anchor): (f64, f64),
        range: (f64, f64),
    ) -> (Self, Cut) {
        let range = (range.0 - step, range.1 + step);
        let weight = |loss: f64, log_p: f64| log_p + tilt * loss;
        let inside = |atom: &&Atom| atom.loss >= range.0 && atom.loss <= range.1;
        let kept = || atoms.iter().filter(inside);
        let log_scale = kept()
            .map(|atom| weight(atom.loss, atom.log_p))
            .fold(f64::NEG_INFINITY, f64::max);
        let tilted = |loss: f64, log_p: f64| (loss, (weight(loss, log_p) - log_scale).exp());
        let (lowest, highest) = kept().fold((f64::INFINITY, f64::NEG_INFINITY), |(lowest, highest), atom| {
            (lowest.min(atom.loss), highest.max(atom.loss))
        });
        let origin = anchor + (((lowest - anchor) / step).floor() - 1.0) * step;
        let count = ((highest - origin) / step).ceil().max(0.0) as usize + 2;
        let mut lattice = Self {
            tilt,
            origin,
            step,
            masses: Buffer::zeros(count),
            log_scale,
        };
        let inside = kept().map(|atom| tilted(atom.loss, atom.log_p));
        match bound {
            Bound::Upper => lattice.split(inside),
            Bound::Lower => lattice.merge(inside),
        }
        let kept: f64 = lattice.masses.iter().sum();
        lattice.normalise();
        let below = atoms.iter().filter(|atom| atom.loss < range.0);
        let above = atoms.iter().filter(|atom| atom.loss > range.1);
        let cut = Cut {
            above: above.map(|atom| atom.log_p.exp()).sum(),
            tilted_below: below.map(|atom| tilted(atom.loss, atom.log_p).1).sum::<f64>() / kept,
        };
        (lattice, cut)
    }

    /// The distribution on a lattice `ratio` times as coarse, rounded to the side of `bound`.
    pub(crate) fn coarsened(&self, bound: Bound, ratio: usize) -> Self {
        let step = self.step * ratio as f64;
        // Upper: lattice points stay lattice points. Lower: the new points are the centres of `ratio` old ones.
        let origin = match bound {
            Bound::Upper => self.origin,
            Bound::Lower => self.origin + 0.5 * (ratio - 1) as f64 * self.step,
        };
        let mut coarse = Self {
            tilt: self.tilt,
            origin,
            step,
            masses: Buffer::zeros(self.masses.len() / ratio + 2),
            log_scale: self.log_scale,
        };
        match bound {
            Bound::Upper => {
                let PointSplit(split) = PointSplit::new(self.tilt, self.step, ratio);
                for (index, chunk) in self.masses.chunks(ratio).enumerate() {
                    let (mut left, mut right) = (0.0, 0.0);
                    for (mass, share) in chunk.iter().zip(&split) {
                        left += mass * share.0;
                        right += mass * share.1;
                    }
                    coarse.masses[index] += left;
                    coarse.masses[index + 1] += right;
                }
            }
            Bound::Lower => {
                let old = self.masses.iter().enumerate();
                coarse.merge(old.map(|(index, mass)| (self.loss(index), *mass)));
            }
        }
        coarse.normalise();
        coarse
    }

    /// The lattice with points before its first, so that `kink`, a point of it, is one of every `ratio`-th.
    pub(crate) fn aligned(self, kink: f64, ratio: usize) -> Self {
        let off = ((self.origin - kink) / self.step)
            .round()
            .rem_euclid(ratio as f64);
        // Where the steps are too small a part of the losses to be counted, nothing is aligned.
        if !(off > 0.0 && off < ratio as f64) {
            return self;
        }
        let points = off as usize;
        let mut masses = Buffer::zeros(self.masses.len() + points);
        masses[points..].copy_from_slice(&self.masses);
        Self {
            origin: self.origin - off * self.step,
            masses,
            ..self
        }
    }

    /// The atoms of the lattice (losses with tilted masses put back to `ln P`).
    pub(crate) fn atoms(&self) -> impl Iterator<Item = Atom> {
        self.masses
            .iter()
            .enumerate()
            .filter(|(_, mass)| **mass > 0.0)
            .map(|(index, mass)| {
                let loss = self.loss(index);
                Atom {
                    loss,
                    log_p: mass.ln() + self.log_scale - self.tilt * loss,
                }
            })
    }

    /// Returns true if every number is finite.
    pub(crate) fn is_sound(&self) -> bool {
        self.log_scale.is_finite()
            && self.origin.is_finite()
            && self.masses.iter().all(|mass| mass.is_finite())
    }

    /// One outcome for all atoms: a lattice of one point, and no rounding.
    pub(crate) fn merged(atoms: &[Atom], tilt: f64, step: f64) -> Self {
        let (mut p, mut q) = (LogSum::new(), LogSum::new());
        for atom in atoms {
            p.add(atom.log_p);
            q.add(atom.log_p - atom.loss);
        }
        let loss = p.get() - q.get();
        Self {
            tilt,
            origin: loss,
            step,
            masses: Buffer::from([1.0].as_slice()),
            log_scale: p.get() + tilt * loss,
        }
    }

    /// The loss of no release.
    pub(crate) fn nothing(tilt: f64, step: f64) -> Self {
        Self {
            tilt,
            origin: 0.0,
            step,
            masses: Buffer::from([1.0].as_slice()),
            log_scale: 0.0,
        }
    }

    /// The sum of `count` such losses, of a lattice of one point.
    pub(crate) fn repeated(&self, count: u64) -> Self {
        Self {
            origin: count as f64 * self.origin,
            log_scale: count as f64 * self.log_scale,
            ..self.clone()
        }
    }

    pub(crate) fn loss(&self, index: usize) -> f64 {
        self.origin + index as f64 * self.step
    }

    /// Makes the masses add up to 1, and returns the largest.
    pub(crate) fn normalise(&mut self) {
        let sum: f64 = self.masses.iter().sum();
        self.masses.iter_mut().for_each(|mass| *mass /= sum);
        self.log_scale += sum.ln();
    }

    fn split(&mut self, tilted: impl Iterator<Item = (f64, f64)>) {
        let sharing = Sharing::new(self.tilt, self.step);
        for (loss, mass) in tilted {
            let steps = (loss - self.origin) / self.step;
            // A loss that is a lattice point up to rounding is one: the tilt could make much of the difference.
            let whole = steps.round();
            if (steps - whole).abs() <= 4.0 * f64::EPSILON * (loss.abs() + self.origin.abs()) / self.step {
                self.masses[whole as usize] += mass;
                continue;
            }
            let index = steps.floor();
            let (left, right) = sharing.of((steps - index) * self.step);
            self.masses[index as usize] += mass * left;
            self.masses[index as usize + 1] += mass * right;
        }
    }

    /// One outcome for all atoms nearest to one point: its loss lies near the point; where it lies below, the
    /// outcome counts for the point below. Moving the origin down by the typical shortfall first keeps nearly all
    /// of them at their own point.
    fn merge(&mut self, tilted: impl Iterator<Item = (f64, f64)>) {
        let count = self.masses.len();
        // Sums over each group of the masses of P and of Q e^{point}, both times e^{tilt point}.
        let (mut p, mut q) = (vec![0.0; count], vec![0.0; count]);
        for (loss, mass) in tilted {
            let steps = (loss - self.origin) / self.step;
            // PRIVACY: ties go up, which a later shortfall puts right; the value is what decides.
            let index = (steps + 0.5).floor().clamp(0.0, (count - 1) as f64);
            let off = loss - (self.origin + index * self.step);
            p[index as usize] += mass * (-self.tilt * off).exp();
            q[index as usize] += mass * (-(self.tilt + 1.0) * off).exp();
        }
        let shortfall: Vec<f64> = p
            .iter()
            .zip(&q)
            .map(|(p, q)| if *p > 0.0 { (q / p).ln() } else { f64::NEG_INFINITY })
            .collect();
        let drop = self.cheapest_drop(&p, &shortfall);
        let lift = (-self.tilt * drop).exp();
        self.origin -= drop;
        for index in 0..count {
            if p[index] == 0.0 {
                continue;
            }
            let below = ((shortfall[index] - drop) / self.step).ceil().max(0.0);
            let mass = p[index] * lift * (-self.tilt * below * self.step).exp();
            let target = index as f64 - below;
            // Below the lattice: dropping the mass only lowers the bound.
            if target >= 0.0 {
                self.masses[target as usize] += mass;
            }
        }
    }

    /// The drop of the origin that costs least: the drop itself for all, a step for those still short of it.
    fn cheapest_drop(&self, p: &[f64], shortfall: &[f64]) -> f64 {
        let mut short: Vec<(f64, f64)> = shortfall
            .iter()
            .zip(p)
            .filter(|(shortfall, _)| **shortfall > 0.0)
            .map(|(shortfall, p)| (*shortfall, *p))
            .collect();
        short.sort_by(|a, b| b.0.total_cmp(&a.0));
        let total: f64 = p.iter().sum();
        let (mut missed, mut best, mut cost) = (0.0, 0.0, f64::INFINITY);
        for (drop, mass) in short.iter().chain([&(0.0, 0.0)]) {
            let here = drop + self.step * missed / total;
            if here < cost {
                (best, cost) = (*drop, here);
            }
            missed += mass;
        }
        // Above its own shortfall by a rounding error, so that the group stays.
        best * (1.0 + 1e-12)
    }

    /// The loss of the last point.
    pub(crate) fn highest(&self) -> f64 {
        self.loss(self.masses.len().saturating_sub(1))
    }

    /// `ln` of the hockey-stick divergence at `epsilon` (of the finite losses).
    #[cfg(test)]
    pub(crate) fn log_delta(&self, epsilon: f64) -> f64 {
        super::readout::Tail::new(self).log_delta(epsilon)
    }
}

/// No limits.
pub(crate) const WHOLE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_lattice_has_the_same_losses_and_keeps_the_kink() {
        let kink = 0.013;
        for first in -7..5 {
            let masses = Buffer::from([0.25, 0.75].as_slice());
            let (tilt, step, log_scale) = (1.0, 0.1, 0.0);
            let origin = kink + f64::from(first) * step;
            let lattice = Lattice {
                tilt,
                origin,
                step,
                masses,
                log_scale,
            };
            let losses = |lattice: &Lattice| lattice.atoms().map(|atom| atom.loss).collect::<Vec<_>>();
            let before = losses(&lattice);
            let aligned = lattice.aligned(kink, 4);
            let off = (aligned.origin - kink) / (4.0 * step);
            assert!((off - off.round()).abs() < 1e-12, "{first}: {off}");
            let mut pairs = losses(&aligned).into_iter().zip(before);
            assert!(pairs.all(|(after, before)| (after - before).abs() < 1e-12));
        }
    }

    fn moment(lattice: &Lattice, power: f64) -> f64 {
        lattice
            .atoms()
            .map(|atom| (atom.log_p - power * atom.loss).exp())
            .sum()
    }

    fn atoms() -> Vec<Atom> {
        (0..50)
            .map(|index| Atom {
                loss: 0.037 * f64::from(index) - 0.4 + 0.01 * f64::from(index % 7),
                log_p: -4.0 - 0.05 * f64::from(index % 11),
            })
            .collect()
    }

    #[test]
    fn splitting_keeps_both_masses_and_merging_lowers_every_delta() {
        let atoms = atoms();
        let delta = |epsilon: f64| -> f64 {
            let above = atoms.iter().filter(|atom| atom.loss > epsilon);
            above
                .map(|atom| atom.log_p.exp() * -(epsilon - atom.loss).exp_m1())
                .sum()
        };
        for tilt in [0.0, 0.7, 9.0] {
            let upper = Lattice::new(Bound::Upper, &atoms, tilt, (0.05, 0.0), WHOLE).0;
            for power in [0.0, 1.0] {
                let want: f64 = atoms.iter().map(|a| (a.log_p - power * a.loss).exp()).sum();
                assert!(
                    (moment(&upper, power) / want - 1.0).abs() < 1e-12,
                    "{tilt} {power}"
                );
            }
            let lower = Lattice::new(Bound::Lower, &atoms, tilt, (0.05, 0.0), WHOLE).0;
            let (coarse_upper, coarse_lower) =
                (upper.coarsened(Bound::Upper, 4), lower.coarsened(Bound::Lower, 4));
            for tenth in 0..12 {
                let epsilon = 0.1 * f64::from(tenth) + 0.013;
                let (low, high) = (lower.log_delta(epsilon).exp(), upper.log_delta(epsilon).exp());
                let want = delta(epsilon);
                assert!(
                    low <= want * (1.0 + 1e-12) && want <= high * (1.0 + 1e-12),
                    "{epsilon}: {low} {want} {high}"
                );
                assert!(high - low < 0.1 * want + 1e-4, "{epsilon}: {low} {want} {high}");
                let (lowest, highest) = (
                    coarse_lower.log_delta(epsilon).exp(),
                    coarse_upper.log_delta(epsilon).exp(),
                );
                assert!(lowest <= low * (1.0 + 1e-12) && high <= highest * (1.0 + 1e-12));
            }
        }
    }
}

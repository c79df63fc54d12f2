//! The loss of a whole composition, and what is read off it.

use super::buffers::Buffer;
use super::compose::Wrapped;
use super::composition::Solve;
use super::discretize::Bound;
use super::lattice::Lattice;
use super::tail_split::Term;
use crate::special::LogSum;

/// Rounding errors of sums, relative to delta.
const ROUNDING: f64 = 1e-10;
/// Largest relative part of delta that rounding errors of the transforms may add before another split is tried.
pub(super) const SLIGHT: f64 = 1e-5;

/// A composition as a sum of lattices: one, or one for each number of rare losses.
pub(crate) struct Total {
    pub(crate) bound: Bound,
    pub(crate) lattices: Vec<Lattice>,
    /// Terms of which only Chernoff's bound was computed.
    pub(crate) settled: Vec<Term>,
    /// Mass of `P` at infinite losses.
    pub(crate) infinite: f64,
    pub(crate) wrapped: Wrapped,
    /// The distance of the lattices that transforms allow, in units of the one that the accuracy asks for.
    pub(crate) coarseness: f64,
    /// Rounding errors, relative to the tilted mass of each lattice.
    pub(crate) noise: f64,
}

impl Total {
    pub(super) fn answer(&self, target: Solve) -> f64 {
        match target {
            Solve::LogDelta(log_delta) => self.epsilon(log_delta),
            Solve::Epsilon(epsilon) => self.log_delta(epsilon),
        }
    }

    /// `ln` of delta at `epsilon`, on the side of the bound.
    pub(crate) fn log_delta(&self, epsilon: f64) -> f64 {
        self.log_delta_by(&self.tails(), epsilon)
    }

    fn log_delta_by(&self, tails: &[Tail<'_>], epsilon: f64) -> f64 {
        // PRIVACY: numbers that overflowed say nothing; nothing is what is then guaranteed.
        let nothing = match self.bound {
            Bound::Upper => 0.0,
            Bound::Lower => f64::NEG_INFINITY,
        };
        if !self.is_sound() {
            return nothing;
        }
        let log_delta = self.log_delta_of(tails, epsilon);
        if log_delta.is_nan() { nothing } else { log_delta }
    }

    /// True if rounding errors of the transforms may be more than a slight part of delta at an answer.
    pub(super) fn is_noisy_at(&self, answer: f64, target: Solve) -> bool {
        match target {
            Solve::LogDelta(log_delta) => self.is_noisy(answer, log_delta),
            Solve::Epsilon(epsilon) => self.is_noisy(epsilon, answer),
        }
    }

    /// True if rounding errors of the transforms may be more than a slight part of this delta at `epsilon`.
    pub(super) fn is_noisy(&self, epsilon: f64, log_delta: f64) -> bool {
        let mut sum = LogSum::new();
        for lattice in &self.lattices {
            let above = lattice.highest() - epsilon;
            sum.add(log_error(lattice, epsilon, self.noise, above));
        }
        sum.get() > log_delta + SLIGHT.ln()
    }

    fn is_sound(&self) -> bool {
        self.lattices.iter().all(Lattice::is_sound)
    }

    fn tails(&self) -> Vec<Tail<'_>> {
        self.lattices.iter().map(Tail::new).collect()
    }

    fn log_delta_of(&self, tails: &[Tail<'_>], epsilon: f64) -> f64 {
        let mut sum = LogSum::new();
        for tail in tails {
            let (lattice, log_delta) = (tail.lattice, tail.log_delta(epsilon));
            // Rounding may err either way; what wrapped around only ever adds.
            let error = |mass: f64, above: f64| log_error(lattice, epsilon, mass, above);
            let above = lattice.highest() - epsilon;
            match self.bound {
                Bound::Upper => {
                    sum.add(log_delta + ROUNDING);
                    sum.add(error(self.noise, above));
                    sum.add(error(self.wrapped.left_out, f64::INFINITY));
                }
                Bound::Lower => {
                    let lost = (error(2.0 * self.wrapped.tilted + self.noise, above) - log_delta).exp();
                    if lost < 1.0 {
                        sum.add(log_delta - ROUNDING + (-lost).ln_1p());
                    }
                }
            }
        }
        if self.bound == Bound::Upper {
            self.settled
                .iter()
                .for_each(|term| sum.add(term.log_bound(epsilon)));
        }
        sum.add(self.infinite.ln());
        sum.get()
    }

    /// The smallest epsilon at `e^log_delta`, on the side of the bound (`+inf` where none holds).
    pub(crate) fn epsilon(&self, log_delta: f64) -> f64 {
        // PRIVACY: infinite losses spend delta first.
        if self.infinite.is_nan() || self.infinite.ln() >= log_delta {
            return f64::INFINITY;
        }
        let nothing = match self.bound {
            Bound::Upper => f64::INFINITY,
            Bound::Lower => 0.0,
        };
        if !self.is_sound() {
            return nothing;
        }
        let tails = self.tails();
        let excess = |epsilon: f64| self.log_delta_of(&tails, epsilon) - log_delta;
        // Any one lattice alone asks for less, but for its errors: from there until delta is passed. (Not from 0, where the
        // errors of a tilt that suits other losses are large.)
        let alone = tails.iter().map(|tail| tail.epsilon(log_delta));
        let first = alone.fold(0.0, f64::max);
        let mut step = 1e-6 * first.max(1e-9);
        let (mut low, mut low_excess) = (first, excess(first));
        let (mut high, mut high_excess) = (low, low_excess);
        while high_excess > 0.0 {
            (low, low_excess) = (high, high_excess);
            high += step;
            step *= 8.0;
            if !high.is_finite() {
                return f64::INFINITY;
            }
            high_excess = excess(high);
        }
        while low_excess <= 0.0 {
            (high, high_excess) = (low, low_excess);
            low -= step;
            step *= 8.0;
            // What is no number ends the search, too.
            if low.is_nan() || low <= 0.0 {
                low = 0.0;
                low_excess = excess(low);
                if low_excess <= 0.0 {
                    return 0.0;
                }
                break;
            }
            low_excess = excess(low);
        }
        // False position with halved ends (Illinois): both ends close in.
        let mut side = 0;
        for _ in 0..80 {
            if high - low <= 1e-10 * high || high_excess == 0.0 {
                break;
            }
            let mut at = low + (high - low) * low_excess / (low_excess - high_excess);
            if !(at > low && at < high && at.is_finite()) {
                at = 0.5 * (low + high);
            }
            let here = excess(at);
            if here > 0.0 {
                (low, low_excess) = (at, here);
                if side == 1 {
                    high_excess *= 0.5;
                }
                side = 1;
            } else {
                (high, high_excess) = (at, here);
                if side == -1 {
                    low_excess *= 0.5;
                }
                side = -1;
            }
        }
        // PRIVACY: comparisons with what is no number hold for neither side.
        if high_excess.is_nan() || low_excess.is_nan() {
            return nothing;
        }
        match self.bound {
            Bound::Upper => high,
            Bound::Lower => low,
        }
    }
}

/// `ln` of what an error of the tilted mass of a lattice can do to delta at `epsilon`, from losses that exceed it by `above` at most.
fn log_error(lattice: &Lattice, epsilon: f64, mass: f64, above: f64) -> f64 {
    mass.ln() + lattice.log_scale - lattice.tilt * epsilon + most_excess(lattice.tilt, above).ln()
}

/// The largest `e^{-tilt u} (1 - e^{-u})` at `0 <= u <= above`: the most that a mass of 1, tilted at epsilon, adds to delta from a loss that
/// exceeds epsilon by `above` at most. It is largest at `u = ln(1 + 1/tilt)`.
fn most_excess(tilt: f64, above: f64) -> f64 {
    let farthest = if tilt > 0.0 {
        tilt.recip().ln_1p()
    } else {
        f64::INFINITY
    };
    let excess = farthest.min(above).max(0.0);
    if excess == f64::INFINITY {
        return 1.0;
    }
    (-tilt * excess).exp() * -(-excess).exp_m1()
}

/// A composition with the sums that delta is read from, for one that is asked at many epsilons.
pub(crate) struct Readout<'a> {
    total: &'a Total,
    tails: Vec<Tail<'a>>,
}

impl<'a> Readout<'a> {
    pub(crate) fn new(total: &'a Total) -> Self {
        let tails = total.tails();
        Self { total, tails }
    }

    /// [`Total::log_delta`], for the price of a look-up.
    pub(crate) fn log_delta(&self, epsilon: f64) -> f64 {
        self.total.log_delta_by(&self.tails, epsilon)
    }
}

/// The upper tail of a lattice.
pub(crate) struct Tail<'a> {
    pub(crate) lattice: &'a Lattice,
    /// Mass from each point up, in units of `P` at that point.
    masses: Buffer<f64>,
    /// Hockey-stick divergence at each point, in units of `P` at that point.
    excesses: Buffer<f64>,
}

impl<'a> Tail<'a> {
    /// Sums over the losses from each point up, from which delta is read at any epsilon.
    pub(crate) fn new(lattice: &'a Lattice) -> Self {
        let fall = (-lattice.tilt * lattice.step).exp();
        let (kept, gained) = ((-lattice.step).exp(), -(-lattice.step).exp_m1());
        let (mut mass, mut excess) = (0.0, 0.0);
        let points = lattice.masses.len();
        let (mut masses, mut excesses) = (Buffer::new(points), Buffer::new(points));
        let sums = masses.iter_mut().zip(excesses.iter_mut());
        for (own, sums) in lattice.masses.iter().zip(sums).rev() {
            // One step down: 1 - e^-(a + h) = (1 - e^-h) + e^-h (1 - e^-a). No difference of near numbers anywhere.
            excess = fall * (gained * mass + kept * excess);
            mass = own + fall * mass;
            (*sums.0, *sums.1) = (mass, excess);
        }
        Self {
            lattice,
            masses,
            excesses,
        }
    }

    /// `ln` of the hockey-stick divergence at `epsilon` (of the finite losses).
    pub(crate) fn log_delta(&self, epsilon: f64) -> f64 {
        let lattice = self.lattice;
        let first = ((epsilon - lattice.origin) / lattice.step).ceil().max(0.0);
        if first >= self.masses.len() as f64 {
            return f64::NEG_INFINITY;
        }
        let (mass, excess) = (self.masses[first as usize], self.excesses[first as usize]);
        let loss = lattice.loss(first as usize);
        let above = (loss - epsilon).max(0.0);
        let sum = -(-above).exp_m1() * mass + (-above).exp() * excess;
        sum.ln() + lattice.log_scale - lattice.tilt * loss
    }

    /// `ln` of the hockey-stick divergence at a point, in units of `P` at that point.
    fn log_excess(&self, point: usize) -> f64 {
        let excess = self.excesses[point];
        let above = point + 1;
        if excess > 0.0 || above == self.masses.len() {
            return excess.ln();
        }
        // One step can be more than a number holds, where the tilt is large and the losses lie far apart.
        let Lattice { tilt, step, .. } = *self.lattice;
        let (mass, excess) = (self.masses[above], self.excesses[above]);
        ((-step).exp() * excess - (-step).exp_m1() * mass).ln() - tilt * step
    }

    /// The smallest epsilon at which the finite losses leave at most `e^log_delta`.
    pub(crate) fn epsilon(&self, log_delta: f64) -> f64 {
        let lattice = self.lattice;
        // The target in units of P at a point.
        let target = |loss: f64| log_delta - lattice.log_scale + lattice.tilt * loss;
        let is_above = |point: usize| self.log_excess(point) > target(lattice.loss(point));
        // Delta falls from point to point: the first that holds the target is searched from above, in stretches over
        // which P does not change beyond what numbers hold.
        let stretch = (100.0 / (lattice.tilt * lattice.step)).max(1.0) as usize;
        let mut holds = self.excesses.len();
        let mut low = holds.saturating_sub(stretch);
        while low > 0 && !is_above(low) {
            holds = low;
            low = low.saturating_sub(stretch);
        }
        while low < holds {
            let middle = low.midpoint(holds);
            if is_above(middle) {
                low = middle + 1;
            } else {
                holds = middle;
            }
        }
        let (Some(mass), Some(excess)) = (self.masses.get(holds), self.excesses.get(holds)) else {
            return 0.0;
        };
        // From there down, delta is P - e^{epsilon - loss} Q.
        let loss = lattice.loss(holds);
        let ratio = (mass - target(loss).exp()) / (mass - excess);
        if ratio > 0.0 {
            // Delta holds at this loss. Where Q vanishes beside P, rounding can make the ratio infinite.
            (loss + ratio.ln().min(0.0)).max(0.0)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::discretize::{Atom, Bound};
    use super::super::lattice::WHOLE;
    use super::*;

    fn atoms() -> Vec<Atom> {
        (0..50)
            .map(|index| Atom {
                loss: 0.037 * f64::from(index) - 0.4,
                log_p: -4.0 - 0.05 * f64::from(index % 11),
            })
            .collect()
    }

    /// Losses far apart under a large tilt: a step is more than a number holds.
    #[test]
    fn epsilon_is_found_between_losses_that_lie_far_apart() {
        let atoms = [(-6.0, -9.0), (0.0, -3.0), (6.0, -0.1)].map(|(loss, log_p)| Atom { loss, log_p });
        for tilt in [0.0, 450.0] {
            let lattice = Lattice::new(Bound::Lower, &atoms, tilt, (6.0, 0.0), WHOLE).0;
            let tail = Tail::new(&lattice);
            let epsilon = tail.epsilon(-13.0);
            assert!(epsilon < 6.0 && 6.0 - epsilon < 3e-6, "{tilt}: {epsilon}");
            let back = tail.log_delta(epsilon);
            assert!((back + 13.0).abs() < 1e-6, "{tilt}: {back}");
        }
    }

    /// Under the largest tilt, sums at the lowest losses vanish in units of `P` at the highest.
    #[test]
    fn epsilon_inverts_delta() {
        for tilt in [0.0, 1.5, 450.0] {
            let lattice = Lattice::new(Bound::Upper, &atoms(), tilt, (0.05, 0.0), WHOLE).0;
            let tail = Tail::new(&lattice);
            for target in [0.1f64, 1e-2, 1e-3] {
                let epsilon = tail.epsilon(target.ln());
                let back = tail.log_delta(epsilon).exp();
                assert!((back / target - 1.0).abs() < 1e-9, "{tilt}: {target} {back}");
            }
            assert_eq!(tail.epsilon(0.0), 0.0);
        }
    }
}

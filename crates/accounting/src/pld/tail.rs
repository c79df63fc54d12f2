//! What is read off the upper tail of a lattice.

use super::lattice::Lattice;
use super::pool::Buffer;

/// The upper tail of a lattice.
pub(crate) struct Tail<'a> {
    pub(crate) lattice: &'a Lattice,
    /// For each point, in units of `P` there: the mass from there up, and the hockey-stick divergence at that point.
    masses: Buffer<f64>,
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

    /// The smallest epsilon at which the finite losses leave at most `e^log_delta`.
    pub(crate) fn epsilon(&self, log_delta: f64) -> f64 {
        let lattice = self.lattice;
        // The target in units of P at a point.
        let target = |loss: f64| log_delta - lattice.log_scale + lattice.tilt * loss;
        let is_above = |point: usize| self.excesses[point].ln() > target(lattice.loss(point));
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
            (loss + ratio.ln()).max(0.0)
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::atoms::{Atom, Bound};
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

//! Bounds on our numbers from a number of somebody else's loss distribution.
//!
//! Such a number is an upper bound: losses were rounded up to a grid of `interval`. Ours may lie below it, by no more
//! than that rounding can have added, and not above it, but for the rounding errors of the reference itself.

use undertone_accounting::{Accountant, AccountingError, Delta, Epsilon};

use super::EXACT;
use crate::case::Case;

/// Relative and absolute excess over an upper bound that still counts as equal to it.
const EQUAL: (f64, f64) = (1e-6, 1e-9);
/// The interval that the allowance below is stated for.
const USUAL_INTERVAL: f64 = 1e-4;
/// Mass that the peer cuts from every tail and adds to its deltas, and what its transforms lose a round.
const PEER_NOISE: (f64, f64) = (1e-15, 2.3e-16);

/// The grid of a reference and the mechanism that was put on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    interval: f64,
    rounds: f64,
    /// Standard deviation of one round's loss, where it may be far below the interval.
    deviation: Option<f64>,
    /// True if every loss was rounded up to the next point, instead of split between two.
    rounded_up: bool,
}

impl Grid {
    pub(super) fn new(interval: f64, rounds: u64) -> Self {
        Self {
            interval,
            rounds: rounds as f64,
            deviation: None,
            rounded_up: false,
        }
    }

    /// Returns the grid of a Poisson-sampled Gaussian, whose loss in one round has about the standard deviation
    /// `q sqrt(e^{1/z^2} - 1)`, the root of its chi-square divergence.
    pub(super) fn of_poisson(self, q: f64, z: f64) -> Self {
        Self {
            deviation: Some(q * (1.0 / z / z).exp_m1().sqrt()),
            ..self
        }
    }

    /// Returns the grid of losses that were all rounded up, which adds up to an interval per round.
    pub(super) fn rounded_up(self) -> Self {
        Self {
            rounded_up: true,
            ..self
        }
    }

    /// Largest distance by which the truth may lie below the reference.
    ///
    /// A part in a thousand (of 1, if epsilon is smaller) covers the rounding of losses that are wider than the
    /// interval. Below it, rounding dominates: splitting a loss `x` between the two grid points around it adds a
    /// variance of at most `min(h^2 / 4, h |x|)` and half as much to the mean, and after many rounds, where the
    /// total is about Gaussian, epsilon lies `sqrt(2 ln(1/delta))` standard deviations above the mean.
    pub(super) fn slack(self, epsilon: f64, delta: f64) -> f64 {
        let up = if self.rounded_up {
            self.rounds * self.interval
        } else {
            0.0
        };
        let usual = up + 1e-3 * epsilon.max(1.0) * (self.interval / USUAL_INTERVAL);
        let Some(deviation) = self.deviation else {
            return usual;
        };
        let added = (0.25 * self.interval * self.interval).min(self.interval * deviation);
        let variance = deviation * deviation;
        let wider = (self.rounds * (variance + added)).sqrt() - (self.rounds * variance).sqrt();
        usual + 0.5 * self.rounds * added + (-2.0 * delta.ln()).sqrt() * wider
    }

    /// Our epsilon at `delta` against the upper bound `reference`.
    ///
    /// Transforms leave `rounds` times a few 1e-16 in the peer's deltas, so its epsilon is one at a delta that is off by
    /// that much. It matters from 1e4 rounds at 1e-9 on.
    pub(super) fn epsilon(
        self,
        case: &Case<'_>,
        what: &str,
        accountant: &Accountant,
        delta: Delta,
        reference: f64,
    ) -> anyhow::Result<()> {
        let got = accountant.guarantee(delta)?.epsilon.get();
        let lowest = reference - self.slack(reference, delta.get());
        let highest = reference * (1.0 + EQUAL.0) + EQUAL.1;
        let holds = got <= highest || {
            let noisy = Delta::new((delta.get() + self.noise()).min(0.999))?;
            accountant.guarantee(noisy)?.epsilon.get() <= highest
        };
        case.ensure(holds && got >= lowest, || {
            format!("{what}: expected a number in [{lowest:e}, {reference:e}], got {got:e}")
        });
        Ok(())
    }

    /// Our delta at `epsilon` against the upper bound `reference`: the rule for epsilons, read the other way.
    ///
    /// At an epsilon that counts as equal our delta must not exceed the reference, and at one that is smaller by the
    /// slack it must not be below.
    pub(super) fn delta(
        self,
        case: &Case<'_>,
        accountant: &Accountant,
        epsilon: f64,
        reference: f64,
    ) -> anyhow::Result<()> {
        let got = delta_at(accountant, epsilon * (1.0 + EQUAL.0) + EQUAL.1)?;
        case.ensure(got <= reference * (1.0 + EXACT) + self.noise(), || {
            format!("delta at epsilon {epsilon}: expected at most {reference:e}, got {got:e}")
        });
        let earlier = epsilon - self.slack(epsilon, reference.clamp(f64::MIN_POSITIVE, 1.0));
        if earlier > 0.0 {
            let there = delta_at(accountant, earlier)?;
            case.ensure(there >= reference * (1.0 - EXACT) - self.noise(), || {
                format!("delta at epsilon {earlier} (below {epsilon}): expected at least {reference:e}, got {there:e}")
            });
        }
        Ok(())
    }

    fn noise(self) -> f64 {
        PEER_NOISE.0 + self.rounds * PEER_NOISE.1
    }
}

/// `got` between a number that the truth is not below and an upper bound.
pub(super) fn between(case: &Case<'_>, what: &str, got: f64, lowest: f64, highest: f64) {
    let holds = lowest <= got && got <= highest * (1.0 + EQUAL.0) + EQUAL.1;
    case.ensure(holds, || {
        format!("{what}: expected a number in [{lowest:e}, {highest:e}], got {got:e}")
    });
}

/// The lowest that a value may be of which a fine grid gave `finest` and extrapolation `extrapolated`: the
/// extrapolation took something off, and may have taken too little by half as much again.
pub(super) fn below_extrapolated(finest: f64, extrapolated: f64) -> f64 {
    extrapolated - 0.5 * (finest - extrapolated).abs() - EQUAL.0 * extrapolated.max(1.0)
}

/// Delta at `epsilon`; 1 where nothing can be said.
pub(super) fn delta_at(accountant: &Accountant, epsilon: f64) -> anyhow::Result<f64> {
    match accountant.delta_for(Epsilon::new(epsilon)?) {
        Ok(guarantee) => Ok(guarantee.delta.get()),
        Err(AccountingError::NoFiniteGuarantee { .. }) => Ok(1.0),
        Err(error) => Err(error.into()),
    }
}

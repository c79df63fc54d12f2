//! Search for the noise multiplier, the number of rounds or the sampling probability that reaches a target.
//!
//! Whole questions are searched, not events: the relation may be any, and rounds may change the event (a longer tree).
//! The found value is always on the safe side: its guarantee is within the target.

use anyhow::ensure;
use undertone_accounting::calibrate::{self, Precision};
use undertone_accounting::{AccountingError, Delta, Epsilon, NoiseMultiplier, SamplingProbability, gaussian};

use super::options::{Knobs, Quantity};
use super::question::Asked;

/// A search over real numbers ends when epsilon is this close below the target, relatively, or the bracket this narrow.
const REAL: Precision = Precision::Real {
    width: 1e-9,
    close: 1e-7,
};
/// Noise multipliers outside this range are not searched for.
const NOISE: (f64, f64) = (1e-6, 1e12);
/// Smallest sampling probability that is searched for.
const MIN_PROBABILITY: f64 = 1e-15;
/// More rounds than this are not searched for.
const MAX_ROUNDS: u64 = 1 << 40;

impl Asked<'_> {
    /// The knobs with the quantity that reaches the target.
    pub(super) fn calibrate(
        &self,
        quantity: Quantity,
        knobs: &Knobs,
        target: (Epsilon, Delta),
    ) -> anyhow::Result<Knobs> {
        let name = quantity.name();
        ensure!(
            self.question.quantities.contains(&quantity),
            "--calibrate {name}: this command has no --{name}"
        );
        ensure!(
            !knobs.has(quantity),
            "--{name} and --calibrate {name} were both given: give only one of the two"
        );
        let search = Search {
            asked: self,
            knobs,
            target,
            name,
        };
        match quantity {
            Quantity::NoiseMultiplier => search.noise_multiplier(),
            Quantity::Rounds => search.rounds(),
            Quantity::SamplingProbability => search.sampling_probability(),
        }
    }
}

struct Search<'a> {
    asked: &'a Asked<'a>,
    knobs: &'a Knobs,
    target: (Epsilon, Delta),
    name: &'static str,
}

impl Search<'_> {
    /// The smallest noise multiplier.
    fn noise_multiplier(&self) -> anyhow::Result<Knobs> {
        let with = |z: f64| -> anyhow::Result<Knobs> {
            Ok(Knobs {
                noise_multiplier: Some(NoiseMultiplier::new(z)?),
                ..*self.knobs
            })
        };
        // Of one unsampled Gaussian, times the root of the rounds: near enough from either side, and free.
        let (epsilon, delta) = self.target;
        let one = gaussian::noise_multiplier(epsilon, delta)?.get();
        let rounds = self.knobs.rounds.unwrap_or(1) as f64;
        let search = calibrate::Bisection {
            safe: NOISE.1,
            risky: NOISE.0,
            start: one * rounds.sqrt(),
            slope: 1.0,
            precision: REAL,
        };
        self.run(search, with)
    }

    /// The largest sampling probability.
    fn sampling_probability(&self) -> anyhow::Result<Knobs> {
        let with = |q: f64| -> anyhow::Result<Knobs> {
            Ok(Knobs {
                sampling_probability: Some(SamplingProbability::new(q)?),
                ..*self.knobs
            })
        };
        let search = calibrate::Bisection {
            safe: MIN_PROBABILITY,
            risky: 1.0,
            start: 1.0,
            slope: 1.0,
            precision: REAL,
        };
        self.run(search, with)
    }

    /// The largest number of rounds.
    fn rounds(&self) -> anyhow::Result<Knobs> {
        let with = |rounds: f64| {
            Ok(Knobs {
                rounds: Some(rounds as u64),
                ..*self.knobs
            })
        };
        let search = calibrate::Bisection {
            safe: 1.0,
            risky: MAX_ROUNDS as f64,
            start: 1.0,
            slope: 0.5,
            precision: Precision::Whole,
        };
        let found = self.run(search, with)?;
        ensure!(
            found.rounds < Some(MAX_ROUNDS),
            "--calibrate rounds: even {MAX_ROUNDS} rounds, the max of the search, meet the target"
        );
        Ok(found)
    }

    /// The knobs `with` the value that is found.
    fn run(
        &self,
        search: calibrate::Bisection,
        with: impl Fn(f64) -> anyhow::Result<Knobs>,
    ) -> anyhow::Result<Knobs> {
        let found = search.run(|value| self.excess(&with(value)?))?;
        match found {
            Some(value) => with(value),
            None => Err(self.unreachable(&with(search.safe)?, search.safe)?),
        }
    }

    /// The distance from the target at these knobs; infinite where no epsilon can be stated.
    fn excess(&self, knobs: &Knobs) -> anyhow::Result<f64> {
        let events = (self.asked.question.state)(knobs)?.events;
        Ok(self.asked.accountant(&events)?.excess(self.target)?)
    }

    /// Epsilon at these knobs; infinite where none can be stated.
    fn epsilon(&self, knobs: &Knobs) -> anyhow::Result<f64> {
        let events = (self.asked.question.state)(knobs)?.events;
        match self.asked.accountant(&events)?.guarantee(self.target.1) {
            Ok(guarantee) => Ok(guarantee.epsilon.get()),
            Err(AccountingError::NoFiniteGuarantee { .. }) => Ok(f64::INFINITY),
            Err(error) => Err(error.into()),
        }
    }

    fn unreachable(&self, knobs: &Knobs, at: f64) -> anyhow::Result<anyhow::Error> {
        let (epsilon, delta) = self.target;
        let (name, best) = (self.name, self.epsilon(knobs)?);
        Ok(anyhow::anyhow!(
            "--calibrate {name}: the target (epsilon = {epsilon}, delta = {delta:e}) is out of reach; the smallest reachable \
             epsilon is {best} at --{name} {at}",
            delta = delta.get()
        ))
    }
}

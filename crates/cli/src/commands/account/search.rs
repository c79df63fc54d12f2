//! From a target back to a noise multiplier, a number of rounds or a sampling probability.
//!
//! Whole questions are searched, not events: the relation may be any, and rounds may change the event (a longer tree).
//! What is found is always on the safe side: the guarantee there is within the target.

use anyhow::ensure;
use undertone_accounting::{AccountingError, Delta, Epsilon, NoiseMultiplier, SamplingProbability, gaussian};

use super::options::{Quantity, Setting};
use super::question::Asked;

/// A search over real numbers ends when epsilon is this close below the target, relatively, or the bracket this narrow.
const CLOSE: f64 = 1e-7;
const WIDTH: f64 = 1e-9;
/// Noise multipliers outside this range are not searched for.
const NOISE: (f64, f64) = (1e-6, 1e12);
/// Smallest sampling probability that is searched for.
const LEAST_PROBABILITY: f64 = 1e-15;
/// More rounds than this are not searched for.
const MOST_ROUNDS: u64 = 1 << 40;

impl Asked<'_> {
    /// The setting with the quantity that reaches the target.
    pub(super) fn calibrate(
        &self,
        quantity: Quantity,
        setting: &Setting,
        target: (Epsilon, Delta),
    ) -> anyhow::Result<Setting> {
        let name = quantity.name();
        ensure!(
            self.question.quantities().contains(&quantity),
            "--calibrate {name}: this question has no such quantity"
        );
        ensure!(
            !setting.has(quantity),
            "--{name} with --calibrate {name}: expected one of them"
        );
        let search = Search {
            asked: self,
            setting,
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
    setting: &'a Setting,
    target: (Epsilon, Delta),
    name: &'static str,
}

impl Search<'_> {
    /// The smallest noise multiplier.
    fn noise_multiplier(&self) -> anyhow::Result<Setting> {
        let with = |z: f64| -> anyhow::Result<Setting> {
            Ok(Setting {
                noise_multiplier: Some(NoiseMultiplier::new(z)?),
                ..*self.setting
            })
        };
        let excess = |z: f64| self.excess(&with(z)?);
        // Of one unsampled Gaussian, times the root of the rounds: near enough from either side, and free.
        let (epsilon, delta) = self.target;
        let one = gaussian::noise_multiplier(epsilon, delta)?.get();
        let rounds = self.setting.rounds.unwrap_or(1) as f64;
        let start = (one * rounds.sqrt()).clamp(NOISE.0, NOISE.1);
        let mut good = (start, excess(start)?);
        let mut fails = good;
        while good.1 > 0.0 {
            if good.0 >= NOISE.1 {
                return Err(self.unreachable(&with(good.0)?, good.0)?);
            }
            fails = good;
            let next = (4.0 * good.0).min(NOISE.1);
            good = (next, excess(next)?);
        }
        while fails.1 <= 0.0 {
            good = fails;
            if good.0 <= NOISE.0 {
                return with(good.0);
            }
            let next = (0.5 * good.0).max(NOISE.0);
            fails = (next, excess(next)?);
        }
        with(narrow(fails, good, excess)?)
    }

    /// The largest sampling probability.
    fn sampling_probability(&self) -> anyhow::Result<Setting> {
        let with = |q: f64| -> anyhow::Result<Setting> {
            Ok(Setting {
                sampling_probability: Some(SamplingProbability::new(q)?),
                ..*self.setting
            })
        };
        let excess = |q: f64| self.excess(&with(q)?);
        let mut fails = (1.0, excess(1.0)?);
        if fails.1 <= 0.0 {
            return with(1.0);
        }
        let mut good = fails;
        while good.1 > 0.0 {
            if good.0 <= LEAST_PROBABILITY {
                return Err(self.unreachable(&with(good.0)?, good.0)?);
            }
            fails = good;
            let next = (0.1 * good.0).max(LEAST_PROBABILITY);
            good = (next, excess(next)?);
        }
        with(narrow(fails, good, excess)?)
    }

    /// The largest number of rounds.
    fn rounds(&self) -> anyhow::Result<Setting> {
        let with = |rounds: u64| Setting {
            rounds: Some(rounds),
            ..*self.setting
        };
        if !self.holds(&with(1))? {
            return Err(self.unreachable(&with(1), 1.0)?);
        }
        let (mut low, mut high) = (1u64, 2u64);
        while self.holds(&with(high))? {
            ensure!(
                high < MOST_ROUNDS,
                "--calibrate rounds: {high} rounds and more hold the target"
            );
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.holds(&with(middle))? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(with(low))
    }

    /// `ln` of epsilon over the target, at most 0 where the target holds.
    fn excess(&self, setting: &Setting) -> anyhow::Result<f64> {
        let target = self.target.0.get().max(f64::MIN_POSITIVE);
        Ok((self.epsilon(setting)?.max(f64::MIN_POSITIVE) / target).ln())
    }

    fn holds(&self, setting: &Setting) -> anyhow::Result<bool> {
        Ok(self.epsilon(setting)? <= self.target.0.get())
    }

    /// Epsilon at a setting; infinite where none can be stated.
    fn epsilon(&self, setting: &Setting) -> anyhow::Result<f64> {
        let events = self.asked.question.state(setting)?.events;
        match self.asked.accountant(&events)?.guarantee(self.target.1) {
            Ok(guarantee) => Ok(guarantee.epsilon.get()),
            Err(AccountingError::NoFiniteGuarantee { .. }) => Ok(f64::INFINITY),
            Err(error) => Err(error.into()),
        }
    }

    fn unreachable(&self, setting: &Setting, at: f64) -> anyhow::Result<anyhow::Error> {
        let (epsilon, delta) = self.target;
        let (name, best) = (self.name, self.epsilon(setting)?);
        Ok(anyhow::anyhow!(
            "--calibrate {name}: the target (epsilon = {epsilon}, delta = {delta:e}) is out of reach; the best reachable \
             is epsilon = {best} at --{name} {at}",
            delta = delta.get()
        ))
    }
}

/// Closes in on the sign change of `excess` between a value where it is positive and one where it is not, each with its
/// excess; returns a value where it is not.
///
/// The rule of false position with Illinois' halving, over logarithms, where excess is nearly a straight line.
fn narrow(
    fails: (f64, f64),
    good: (f64, f64),
    excess: impl Fn(f64) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let (mut last, mut best) = (0i8, good);
    let (mut fails, mut good) = ((fails.0.ln(), fails.1), (good.0.ln(), good.1));
    while best.1 < -CLOSE && (good.0 - fails.0).abs() > WIDTH {
        let share = good.1 / (good.1 - fails.1);
        let share = if share.is_finite() && fails.1.is_finite() {
            share.clamp(0.01, 0.99)
        } else {
            0.5
        };
        let middle = good.0 + share * (fails.0 - good.0);
        if middle == good.0 || middle == fails.0 {
            break;
        }
        let value = excess(middle.exp())?;
        if value <= 0.0 {
            (good, best) = ((middle, value), (middle.exp(), value));
            if last == 1 {
                fails.1 *= 0.5;
            }
            last = 1;
        } else {
            fails = (middle, value);
            if last == -1 {
                good.1 *= 0.5;
            }
            last = -1;
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(root: f64, slope: f64) {
        let calls = std::cell::Cell::new(0);
        let excess = |x: f64| {
            calls.set(calls.get() + 1);
            Ok(slope * (x / root).ln() + 0.1 * (x / root).ln().powi(2))
        };
        let (fails, good) = if slope > 0.0 {
            (root * 3.0, root / 2.0)
        } else {
            (root / 2.0, root * 2.0)
        };
        let ends = ((fails, excess(fails).unwrap()), (good, excess(good).unwrap()));
        let found = narrow(ends.0, ends.1, excess).unwrap();
        assert!(
            excess(found).unwrap() <= 0.0 && (found / root - 1.0).abs() < 1e-6,
            "{found} {root}"
        );
        assert!(calls.get() < 20, "{} calls", calls.get());
    }

    #[test]
    fn roots_from_the_safe_side() {
        check(1.0, -1.0);
        check(7.3, -0.4);
        check(1e-4, 1.0);
        // An infinite end is bisected away.
        let excess = |x: f64| Ok(if x < 0.9 { f64::INFINITY } else { -x.ln() });
        let found = narrow((1e-3, f64::INFINITY), (8.0, -8f64.ln()), excess).unwrap();
        assert!((1.0..1.000_001).contains(&found), "{found}");
    }
}

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
const MAX_ROUNDS: u64 = 1 << 52;

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
        // Rounds that are too many for an answer count as rounds that miss the target, so that the search goes on below them.
        let mut refused: Option<(f64, anyhow::Error)> = None;
        let found = search.run(|rounds| match self.excess(&with(rounds)?) {
            Err(error) if is_too_large(&error) => {
                if refused.as_ref().is_none_or(|(fewest, _)| rounds < *fewest) {
                    refused = Some((rounds, error));
                }
                Ok(f64::INFINITY)
            }
            excess => excess,
        })?;
        let found = self.answer(found, search, with)?;
        match refused {
            Some((fewest, error)) if found.rounds.is_some_and(|rounds| rounds as f64 + 1.0 >= fewest) => {
                Err(error)
            }
            _ => {
                ensure!(
                    found.rounds < Some(MAX_ROUNDS),
                    "--calibrate rounds: even {MAX_ROUNDS} rounds, the max of the search, meet the target"
                );
                Ok(found)
            }
        }
    }

    /// The knobs `with` the value that is found.
    fn run(
        &self,
        search: calibrate::Bisection,
        with: impl Fn(f64) -> anyhow::Result<Knobs>,
    ) -> anyhow::Result<Knobs> {
        let found = search.run(|value| self.excess(&with(value)?))?;
        self.answer(found, search, with)
    }

    /// The knobs `with` a value that was found, or the reason why none was.
    fn answer(
        &self,
        found: Option<f64>,
        search: calibrate::Bisection,
        with: impl Fn(f64) -> anyhow::Result<Knobs>,
    ) -> anyhow::Result<Knobs> {
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

/// Returns true if a composition would take too much memory or time.
fn is_too_large(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AccountingError::TooLarge { .. }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::account::AccountArgs;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        account: AccountArgs,
    }

    fn refused(question: &str) -> String {
        let words = format!("account {question} --epsilon 1 --delta 1e-6 --calibrate rounds");
        let asked = Program::try_parse_from(words.split(' ')).expect("arguments");
        let error = asked.account.answer().expect_err("a refusal");
        format!("{error:#}")
    }

    #[test]
    fn a_search_for_rounds_ends_at_two_to_the_52_as_in_python() {
        let text = refused("gaussian --noise-multiplier 1e9");
        assert!(text.contains("even 4503599627370496 rounds"), "{text}");
    }

    #[test]
    fn a_search_for_rounds_that_meets_no_miss_says_up_to_where_it_knows_the_answer() {
        let text = refused("sampled --sampling-probability 0.5 --noise-multiplier 1e7");
        assert!(text.contains("ask for at most 1099511627776 of them"), "{text}");
    }
}

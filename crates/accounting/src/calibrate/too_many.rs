//! Searches for whole numbers, some of which are too large for an answer.

use crate::AccountingError;

/// The smallest number that was refused as too large. It counts as one that misses the target, so that the search goes on below it.
#[derive(Debug, Default)]
pub(super) struct TooMany(Option<(f64, AccountingError)>);

impl TooMany {
    /// The excess at a value, infinite where the value is refused as too large.
    ///
    /// # Errors
    /// Any other error.
    pub(super) fn excess(
        &mut self,
        value: f64,
        excess: Result<f64, AccountingError>,
    ) -> Result<f64, AccountingError> {
        match excess {
            Err(error @ AccountingError::TooLarge { .. }) => {
                if self.0.as_ref().is_none_or(|(fewest, _)| value < *fewest) {
                    self.0 = Some((value, error));
                }
                Ok(f64::INFINITY)
            }
            excess => excess,
        }
    }

    /// Passes on the refusal if it alone ended the search: the number after `found` may hold the target, too.
    ///
    /// # Errors
    /// [`AccountingError::TooLarge`].
    pub(super) fn after(self, found: f64) -> Result<(), AccountingError> {
        match self.0 {
            Some((fewest, refusal)) if found + 1.0 >= fewest => Err(refusal),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::calibrate::{Range, parameter, rounds_of};
    use crate::{
        AccountingError, Adjacency, Delta, Epsilon, Event, NoiseMultiplier, Recipe, SamplingProbability,
    };

    #[test]
    #[ignore = "slow"]
    fn a_search_for_rounds_finds_its_answer_below_those_that_are_too_many() {
        let event = Event::PoissonGaussian {
            sampling_probability: SamplingProbability::new(0.5).unwrap(),
            noise_multiplier: NoiseMultiplier::new(1e7).unwrap(),
        };
        let target = |epsilon: f64| (Epsilon::new(epsilon).unwrap(), Delta::new(1e-6).unwrap());
        // By the central limit, 2^40 rounds cost 0.1991.
        let found = rounds_of(target(0.19), &event, Recipe::Pld).unwrap();
        assert!(found > 1 << 39 && found < 1 << 40, "{found}");
        let range = Range {
            safe: 1.0,
            risky: (1u64 << 52) as f64,
            whole: true,
        };
        let refused = parameter(
            target(0.3),
            range,
            Recipe::Pld,
            Some(Adjacency::AddOrRemoveOne),
            |rounds| Ok::<_, AccountingError>(vec![(event.clone(), rounds as u64)]),
        );
        let refused = refused.unwrap_err();
        assert!(matches!(refused, AccountingError::TooLarge { .. }), "{refused}");
    }
}

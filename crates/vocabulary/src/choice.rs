//! The choice of words by noisy sums of votes: its noise, its threshold and its guarantee.

use undertone_accounting::{Accountant, Adjacency, Delta, Event, Guarantee, NoiseMultiplier, Recipe};
use undertone_mechanisms::{SamplerDistance, SnappedGaussian};

use crate::error::{Result, invalid};
use crate::threshold::{self, UNIT};

/// No memory holds more words than these, so their samples are counted whatever the text: the number of words that were
/// voted for is not public.
const MAX_SAMPLES: u64 = 1 << 48;

/// Maximum number of words per user.
const MAX_WORDS_PER_USER: u32 = 1 << 20;

/// The noise on the sums of votes, and the threshold that hides a user's own words.
///
/// # Guarantee
/// The guarantee of words that pass the threshold is that of `PrivateSelection` in the crate `undertone-data`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WordChoice {
    max_words_per_user: u32,
    noise_multiplier: NoiseMultiplier,
    threshold_delta: Delta,
    /// Noisy sums up to here are dropped, in grid steps.
    threshold: i64,
}

impl WordChoice {
    /// A choice with the smallest threshold that a user's own words pass with a probability of at most `threshold_delta`. A user votes for
    /// at most `max_words_per_user` words.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`](crate::VocabularyError::Setting) for `max_words_per_user` outside 1 to 2^20, and for a
    /// noise multiplier outside the sampler's range.
    pub fn new(
        max_words_per_user: u32,
        noise_multiplier: NoiseMultiplier,
        threshold_delta: Delta,
    ) -> Result<Self> {
        Self::check_max_words(max_words_per_user)?;
        let steps = Self::sampler(noise_multiplier)?.steps();
        Ok(Self {
            max_words_per_user,
            noise_multiplier,
            threshold_delta,
            threshold: threshold::smallest(steps, max_words_per_user, threshold_delta.get()),
        })
    }

    /// Words that one user votes for at most.
    #[must_use]
    pub fn max_words_per_user(&self) -> u32 {
        self.max_words_per_user
    }

    /// Noise standard deviation over the L2 norm of a user's votes.
    #[must_use]
    pub fn noise_multiplier(&self) -> NoiseMultiplier {
        self.noise_multiplier
    }

    /// The probability that a word of one user alone shows, at most.
    #[must_use]
    pub fn threshold_delta(&self) -> Delta {
        self.threshold_delta
    }

    /// Noisy sums up to here are dropped, in steps of the grid.
    #[must_use]
    pub fn threshold(&self) -> i64 {
        self.threshold
    }

    /// Checks the number of words that a user may vote for.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`](crate::VocabularyError::Setting) outside 1 to 2^20.
    pub fn check_max_words(max_words_per_user: u32) -> Result<()> {
        if (1..=MAX_WORDS_PER_USER).contains(&max_words_per_user) {
            return Ok(());
        }
        Err(invalid(
            "max_words_per_user",
            format!("between 1 and {MAX_WORDS_PER_USER}"),
            max_words_per_user,
        ))
    }

    /// The noise of one sum, in steps of the grid.
    ///
    /// It is rounded real Gaussian noise rather than discrete Gaussian noise: on a grid this fine the accuracy is the same, and a
    /// release is post-processing of the Gaussian mechanism, so it composes exactly with the Gaussian releases of a run, where
    /// of many discrete samples only concentrated differential privacy is known.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`](crate::VocabularyError::Setting) outside the sampler's range.
    pub fn sampler(noise_multiplier: NoiseMultiplier) -> Result<SnappedGaussian> {
        SnappedGaussian::new(noise_multiplier.get() * UNIT as f64)
            .map_err(|_| invalid("noise_multiplier", "between 2^-30 and 2^18", noise_multiplier))
    }

    /// The distance of all samples from ideal ones.
    pub(crate) fn sampler_distance(noise_multiplier: NoiseMultiplier) -> Result<SamplerDistance> {
        let each = Self::sampler(noise_multiplier)?.total_variation_per_sample();
        Ok(SamplerDistance::new(each)?.times(MAX_SAMPLES))
    }

    /// The guarantee of the noise and the threshold together, `delta` in all.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`](crate::VocabularyError::Setting) for a `delta` that the threshold's own uses up, and for a
    /// noise multiplier outside the sampler's range.
    pub fn guarantee(
        noise_multiplier: NoiseMultiplier,
        threshold_delta: Delta,
        adjacency: Adjacency,
        delta: Delta,
    ) -> Result<Guarantee> {
        Self::sampler_distance(noise_multiplier)?.guarantee(delta, |delta| {
            let mut accountant = Accountant::under(Recipe::ExactGaussian, adjacency);
            accountant.compose(&Event::Gaussian { noise_multiplier }, 1)?;
            Ok(accountant.guarantee(Self::remaining(delta, threshold_delta)?)?)
        })
    }

    /// The part of delta that the threshold leaves for the noise.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`](crate::VocabularyError::Setting) if it leaves nothing.
    pub fn remaining(delta: Delta, threshold_delta: Delta) -> Result<Delta> {
        Delta::new(delta.get() - threshold_delta.get()).map_err(|_| {
            invalid(
                "delta",
                format!("more than the threshold's own, {:e}", threshold_delta.get()),
                format!("{:e}", delta.get()),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_bounds_are_refused_by_name() {
        for bad in [0, MAX_WORDS_PER_USER + 1] {
            let message = WordChoice::check_max_words(bad).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("max_words_per_user: expected between 1 and 1048576, got {bad}")
            );
        }
    }
}

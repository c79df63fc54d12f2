//! A vocabulary that hides each user's part in it.
//!
//! Every user votes for at most `max_words_per_user` distinct words with equal weights of L2 norm 1. Gaussian noise is added to
//! the sum of each word that has a vote, sums up to a threshold are dropped, and the words with the largest noisy sums
//! are the vocabulary. See `docs/guide/data-tools.md` for the choices behind it.

#[cfg(test)]
mod tests;
mod votes;

use std::path::Path;

use undertone_accounting::{Adjacency, Delta, Epsilon, Guarantee, NoiseMultiplier, gaussian};
use undertone_mechanisms::{NoiseKey, SnappedGaussian};
use undertone_text::{Vocab, VocabProvenance};
use undertone_vocabulary::threshold::UNIT;
use undertone_vocabulary::{PrivateVocabulary, WordChoice, record_path};

use crate::error::{DataError, Result, invalid};
use crate::file;

pub(crate) use votes::Candidate;
pub use votes::WordVotes;

/// The samples' part of delta that a calibration leaves to them; they need far less.
const SAMPLER_FRACTION: f64 = 1e-9;

/// The number of words to choose, the noise and the threshold.
///
/// # Guarantee
/// Let one user be added or removed, and let `S` be the words that others voted for.
/// 1. On `S` the sums move by at most 1 in L2 norm: the noisy sums are a Gaussian release with this noise multiplier.
/// 2. The user's words outside of `S` are noised apart; at least one passes the threshold with a probability of at most
///    `threshold_delta`, and where none does, nothing shows whether they were there.
///
/// So the release is no more telling than the composition of 1 with a mechanism that is (0, `threshold_delta`): if 1 is
/// (epsilon, delta), the words are (epsilon, delta + `threshold_delta`), and in a composition the same delta is added once.
/// Under zero-out the two populations are the same as under removal, and so is the guarantee. Under replace-one the sums on
/// words that others voted for move by at most 2, while the words of the old and of the new user alone can each show in one
/// population only, so `threshold_delta` stays as it is. Ranking and cutting are post-processing.
///
/// # Source
/// Gopi et al., "Differentially Private Set Union" (ICML 2020), weighted Gaussian, with the exact threshold of the noise on
/// the grid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrivateSelection {
    size: usize,
    noise_multiplier: NoiseMultiplier,
    threshold_delta: Delta,
}

impl PrivateSelection {
    /// At most `size` words, with noise of standard deviation `noise_multiplier` on sums to which a user adds a vector of
    /// norm 1, and a threshold that a user's own words pass with a probability of at most `threshold_delta`.
    ///
    /// # Errors
    /// [`DataError::Setting`] for a `size` of 0; [`InvalidSetting`](undertone_vocabulary::VocabularyError::Setting) for a noise multiplier outside of the
    /// sampler's range.
    pub fn new(size: usize, noise_multiplier: NoiseMultiplier, threshold_delta: Delta) -> Result<Self> {
        if size == 0 {
            return Err(invalid("size", "at least 1", 0));
        }
        WordChoice::sampler(noise_multiplier)?;
        Ok(Self {
            size,
            noise_multiplier,
            threshold_delta,
        })
    }

    /// With the least noise that holds `epsilon` at `delta` in all, of which the threshold takes `threshold_delta`.
    ///
    /// # Errors
    /// [`DataError::Setting`] for a `size` of 0; [`InvalidSetting`](undertone_vocabulary::VocabularyError::Setting) for a `delta` that `threshold_delta`
    /// uses up, and for a target that needs more noise than the sampler makes.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Adjacency, Delta, Epsilon};
    /// use undertone_data::PrivateSelection;
    ///
    /// let (epsilon, delta) = (Epsilon::new(2.0)?, Delta::new(1e-8)?);
    /// let settings = PrivateSelection::calibrated(10_000, (epsilon, delta), Delta::new(5e-9)?)?;
    /// let guarantee = settings.guarantee(Adjacency::AddOrRemoveOne, delta)?;
    /// assert!(guarantee.epsilon <= epsilon);
    /// assert!((2.6..2.8).contains(&settings.noise_multiplier().get()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn calibrated(
        size: usize,
        (epsilon, delta): (Epsilon, Delta),
        threshold_delta: Delta,
    ) -> Result<Self> {
        let ideal = Delta::new(delta.get() * (1.0 - SAMPLER_FRACTION))?;
        let noise = gaussian::noise_multiplier(epsilon, WordChoice::remaining(ideal, threshold_delta)?)?;
        Self::new(size, noise, threshold_delta)
    }

    /// Noise standard deviation over the L2 norm of a user's votes.
    #[must_use]
    pub fn noise_multiplier(&self) -> NoiseMultiplier {
        self.noise_multiplier
    }

    /// The guarantee of the words, `delta` in all.
    ///
    /// # Errors
    /// [`InvalidSetting`](undertone_vocabulary::VocabularyError::Setting) for a `delta` that the threshold's own uses up.
    pub fn guarantee(&self, adjacency: Adjacency, delta: Delta) -> Result<Guarantee> {
        let (noise, threshold) = (self.noise_multiplier, self.threshold_delta);
        Ok(WordChoice::guarantee(noise, threshold, adjacency, delta)?)
    }
}

/// Words that were chosen, with the record of what that cost.
#[derive(Debug, Clone)]
pub struct SelectedWords {
    vocab: Vocab,
    record: PrivateVocabulary,
    coverage: f64,
}

impl WordVotes {
    /// Adds noise, drops what does not pass the threshold, and keeps the words with the largest noisy sums.
    ///
    /// The key is for this one release: under the same key, another selection would show differences without noise.
    ///
    /// # Guarantee
    /// The guarantee is that of [`PrivateSelection`].
    ///
    /// # Errors
    /// [`DataError::NoPrivateWords`] if no word passes. That is an outcome of the mechanism, and as private and as costly as
    /// any other.
    pub fn select(&self, settings: &PrivateSelection, key: &NoiseKey) -> Result<SelectedWords> {
        let noise = settings.noise_multiplier;
        let choice = WordChoice::new(self.max_words_per_user(), noise, settings.threshold_delta)?;
        let (sampler, threshold) = (WordChoice::sampler(noise)?, choice.threshold());
        let noisy = self.noisy(&sampler, key)?;
        // PRIVACY: from here on only noisy sums decide; the votes are not looked at again.
        let mut passed: Vec<usize> = (0..noisy.len()).filter(|&i| noisy[i] > threshold).collect();
        // Stable, so that equal sums stay in alphabetical order.
        passed.sort_by_key(|&i| std::cmp::Reverse(noisy[i]));
        passed.truncate(settings.size);
        if passed.is_empty() {
            return Err(DataError::NoPrivateWords {
                threshold: threshold as f64 / UNIT as f64,
            });
        }
        let words = passed.iter().map(|&i| self.words[i].word.clone()).collect();
        let vocab = Vocab::new(words, VocabProvenance::Private);
        let record = PrivateVocabulary::new(&choice, key.origin(), self.users(), &vocab)?;
        let covered: u64 = passed.iter().map(|&i| self.words[i].count).sum();
        Ok(SelectedWords {
            vocab,
            record,
            coverage: covered as f64 / self.total as f64,
        })
    }

    /// The sums of the words in their order, with noise.
    fn noisy(&self, sampler: &SnappedGaussian, key: &NoiseKey) -> Result<Vec<i64>> {
        // PRIVACY: each word's noise is its own sample: independent of all others and used once.
        let mut noisy = vec![0; self.words.len()];
        sampler.fill(key, 0, &mut noisy)?;
        for (noisy, candidate) in noisy.iter_mut().zip(&self.words) {
            // At most 2^62 of votes and 2^54 of noise.
            *noisy += candidate.votes;
        }
        Ok(noisy)
    }
}

impl SelectedWords {
    /// The words.
    #[must_use]
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The record of their privacy cost.
    #[must_use]
    pub fn record(&self) -> &PrivateVocabulary {
        &self.record
    }

    /// Fraction of the training users' words that the vocabulary holds. It is an exact count and **not** private: show it only to those
    /// who may read the text.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.coverage
    }

    /// Writes the vocabulary, one word per line, and its record beside it.
    ///
    /// # Errors
    /// [`DataError::OutputExists`] unless overwriting is asked for; [`DataError::Io`].
    pub fn write(&self, path: &Path, overwrite: bool) -> Result<()> {
        file::refuse_existing(path, overwrite)?;
        // PRIVACY: the record comes first, so that the words never lie there as if they were public. A crash between the two
        // leaves a record that does not match, which is an error to use.
        file::write(&record_path(path), self.record.to_json().as_bytes(), overwrite)?;
        file::write(path, self.vocab.to_file_contents().as_bytes(), overwrite).map(|_| ())
    }
}

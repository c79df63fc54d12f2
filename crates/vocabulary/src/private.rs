//! The privacy cost of a private vocabulary: the record beside it, from which a run composes the cost.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_accounting::{Adjacency, Delta, Event, Guarantee, NoiseMultiplier};
use undertone_mechanisms::{KeyOrigin, SamplerDistance};
use undertone_text::Vocab;

use crate::choice::WordChoice;
use crate::error::{Result, VocabularyError};
use crate::threshold::{UNIT, holds};

/// Version of the record that this code writes and reads.
const VERSION: u32 = 1;

/// Name of the one mechanism, in the record.
const MECHANISM: &str = "weighted-gaussian-set-union";

/// The privacy record of a vocabulary that was chosen by a [`WordChoice`]: `FILE.privacy.json`.
///
/// # Guarantee
/// The choice of the words is [`event`](Self::event) with ideal samples, except with a probability of at most
/// [`threshold_delta`](Self::threshold_delta): add it to the delta of all events that this one is composed with, and
/// [`sampler_distance`](Self::sampler_distance) to the distance of the other samples. Reading a record checks that noise,
/// threshold and event fit. It cannot check that the words were made this way: the reader trusts the author of the record.
///
/// # Example
/// A run that uses the words and then adds noise of multiplier 2 to one sum, at a delta of 1e-8 in all:
/// ```
/// use undertone_accounting::{Accountant, Adjacency, Delta, Event, NoiseMultiplier, Recipe};
/// use undertone_mechanisms::KeyOrigin;
/// use undertone_text::Vocab;
/// use undertone_vocabulary::{PrivateVocabulary, WordChoice};
///
/// let choice = WordChoice::new(50, NoiseMultiplier::new(8.0)?, Delta::new(5e-10)?)?;
/// let words = Vocab::from_words(b"the\ncat\n")?;
/// let record = PrivateVocabulary::new(&choice, KeyOrigin::InsecureSeed, 2000, &words)?;
/// let delta = Delta::new(1e-8 - record.threshold_delta().get())?;
/// let mut accountant = Accountant::under(Recipe::ExactGaussian, Adjacency::AddOrRemoveOne);
/// accountant.compose(&record.event(), 1)?;
/// accountant.compose(&Event::Gaussian { noise_multiplier: NoiseMultiplier::new(2.0)? }, 1)?;
/// let guarantee = accountant.guarantee(delta)?; // and holds at 1e-8
/// assert!(guarantee.epsilon.get() < 3.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateVocabulary {
    version: u32,
    mechanism: String,
    /// Distinct words that a user voted for at most.
    max_words_per_user: u32,
    /// L2 norm of a user's votes at most; noise and threshold are in the same unit.
    sensitivity: f64,
    noise_std: f64,
    noise_multiplier: NoiseMultiplier,
    threshold: f64,
    threshold_delta: Delta,
    /// The release of the sums, as the accountant reads it.
    event: Event,
    /// Total variation distance of the samples from ideal ones, at most.
    sampler_total_variation: f64,
    key: KeyOrigin,
    /// Users who voted; taken as public, as in the report of a run.
    users: u64,
    /// Words in the vocabulary.
    words: u64,
    /// SHA-256 of the vocabulary, one word per line.
    vocabulary_sha256: String,
}

impl PrivateVocabulary {
    /// The record of words that a choice gave among the votes of `users` users.
    ///
    /// # Errors
    /// None for a choice that was made here.
    pub fn new(choice: &WordChoice, key: KeyOrigin, users: u64, vocab: &Vocab) -> Result<Self> {
        let noise_multiplier = choice.noise_multiplier();
        let distance = WordChoice::sampler_distance(noise_multiplier)?;
        Ok(Self {
            version: VERSION,
            mechanism: MECHANISM.to_owned(),
            max_words_per_user: choice.max_words_per_user(),
            sensitivity: 1.0,
            noise_std: noise_multiplier.get(),
            noise_multiplier,
            // Exact: thresholds that leave f64's whole numbers would need a noise multiplier beyond the largest.
            threshold: choice.threshold() as f64 / UNIT as f64,
            threshold_delta: choice.threshold_delta(),
            event: Event::Gaussian { noise_multiplier },
            sampler_total_variation: distance.total_variation(),
            key,
            users,
            words: vocab.words().len() as u64,
            vocabulary_sha256: vocab.digest(),
        })
    }

    /// Checks the bytes of a record; `path` only names them in errors.
    ///
    /// # Errors
    /// [`VocabularyError::BadPrivacyRecord`] for anything but a record whose parts fit: the event is that of the noise, the threshold
    /// hides a user's own words with the stated delta, and the samples are as far from ideal as said.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let bad = |detail: String| VocabularyError::BadPrivacyRecord {
            path: path.to_owned(),
            detail,
        };
        let record: Self = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        record.check().map_err(bad)?;
        Ok(record)
    }

    /// PRIVACY: what a run composes is recomputed from the noise, not believed.
    fn check(&self) -> Result<(), String> {
        let wrong =
            |key: &str, expected: String, got: String| Err(format!("{key}: expected {expected}, got {got}"));
        if self.version != VERSION {
            return wrong("version", VERSION.to_string(), self.version.to_string());
        }
        if self.mechanism != MECHANISM {
            return wrong("mechanism", MECHANISM.to_owned(), self.mechanism.clone());
        }
        WordChoice::check_max_words(self.max_words_per_user).map_err(|error| error.to_string())?;
        let steps = WordChoice::sampler(self.noise_multiplier)
            .map_err(|error| error.to_string())?
            .steps();
        if self.sensitivity != 1.0 {
            return wrong("sensitivity", "1".to_owned(), self.sensitivity.to_string());
        }
        let z = self.noise_multiplier;
        if self.noise_std != z.get() {
            let expected = format!("noise_multiplier * sensitivity = {z}");
            return wrong("noise_std", expected, self.noise_std.to_string());
        }
        let event = Event::Gaussian { noise_multiplier: z };
        if self.event != event {
            return wrong("event", format!("{event:?}"), format!("{:?}", self.event));
        }
        let min = WordChoice::sampler_distance(z)
            .map_err(|error| error.to_string())?
            .total_variation();
        if !(self.sampler_total_variation >= min && self.sampler_total_variation < 1.0) {
            let got = self.sampler_total_variation.to_string();
            return wrong("sampler_total_variation", format!("at least {min:e}"), got);
        }
        let threshold = self.threshold * UNIT as f64;
        let in_range = threshold.fract() == 0.0 && (0.0..2f64.powi(62)).contains(&threshold);
        let (max, delta) = (self.max_words_per_user, self.threshold_delta.get());
        if !in_range || !holds(steps, max, threshold as i64, delta) {
            let expected =
                format!("one that a user's own words pass with a probability of at most {delta:e}");
            return wrong("threshold", expected, self.threshold.to_string());
        }
        Ok(())
    }

    /// Returns `true` if the record is that of these words, in this order.
    #[must_use]
    pub fn matches(&self, vocab: &Vocab) -> bool {
        self.vocabulary_sha256 == vocab.digest()
    }

    /// The release of the sums of votes: every user takes part once, and may be added, removed, zeroed out or (at twice the
    /// sensitivity) replaced.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event.clone()
    }

    /// The delta of the threshold: the probability that a word of one user alone shows, under each adjacency relation. Add it to the
    /// delta of everything that the event is composed with.
    #[must_use]
    pub fn threshold_delta(&self) -> Delta {
        self.threshold_delta
    }

    /// The distance of the samples from ideal ones.
    ///
    /// # Errors
    /// None for a record that was read or made here.
    pub fn sampler_distance(&self) -> Result<SamplerDistance> {
        Ok(SamplerDistance::new(self.sampler_total_variation)?)
    }

    /// Origin of the noise key; with a known seed there is no guarantee.
    #[must_use]
    pub fn key(&self) -> KeyOrigin {
        self.key
    }

    /// Users who voted.
    #[must_use]
    pub fn users(&self) -> u64 {
        self.users
    }

    /// Words in the vocabulary.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Words that one user voted for at most.
    #[must_use]
    pub fn max_words_per_user(&self) -> u32 {
        self.max_words_per_user
    }

    /// Noise standard deviation over the L2 norm of a user's votes.
    #[must_use]
    pub fn noise_multiplier(&self) -> NoiseMultiplier {
        self.noise_multiplier
    }

    /// Noisy sums up to here are not shown, in the unit of a user's norm.
    #[must_use]
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// The guarantee of the words alone, `delta` in all.
    ///
    /// # Errors
    /// [`VocabularyError::Setting`] for a `delta` that the threshold's own uses up.
    pub fn guarantee(&self, adjacency: Adjacency, delta: Delta) -> Result<Guarantee> {
        WordChoice::guarantee(self.noise_multiplier, self.threshold_delta, adjacency, delta)
    }

    /// SHA-256 of the record, for the digest of a corpus.
    #[must_use]
    pub fn digest(&self) -> String {
        // Plain data with string keys serialises.
        let digest = Sha256::digest(serde_json::to_string(self).unwrap_or_default());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The content of the file of the record.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain data with string keys serialises.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_again_and_tampering_is_found() {
        let choice =
            WordChoice::new(50, NoiseMultiplier::new(4.0).unwrap(), Delta::new(1e-7).unwrap()).unwrap();
        let words = Vocab::from_words(b"the\ncat\n").unwrap();
        let record = PrivateVocabulary::new(&choice, KeyOrigin::InsecureSeed, 2000, &words).unwrap();
        let path = Path::new("words.txt.privacy.json");
        let parse = |text: &str| PrivateVocabulary::parse(path, text.as_bytes());
        let text = record.to_json();
        assert_eq!(parse(&text).unwrap(), record);
        assert!(record.matches(&words));
        assert!(!record.matches(&Vocab::from_words(b"cat\nthe\n").unwrap()));
        assert_eq!(
            (record.users(), record.words(), record.key()),
            (2000, 2, KeyOrigin::InsecureSeed)
        );
        assert!(record.sampler_distance().unwrap().total_variation() < 1e-18);

        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let check = |key: &str, value: serde_json::Value, expected: &str| {
            let mut json = json.clone();
            json[key] = value;
            let message = parse(&json.to_string()).unwrap_err().to_string();
            assert!(
                message.starts_with("words.txt.privacy.json is no usable privacy record: "),
                "{message}"
            );
            assert!(message.contains(expected), "{message}");
        };
        check("version", 2.into(), "version: expected 1, got 2");
        check("mechanism", "none".into(), "mechanism: expected weighted");
        check("max_words_per_user", 5000.into(), "threshold: expected one that");
        check("max_words_per_user", 0.into(), "max_words_per_user: expected");
        check("sensitivity", 0.5.into(), "sensitivity: expected 1");
        check("noise_std", 8.0.into(), "noise_std: expected");
        check("noise_multiplier", 8.0.into(), "noise_std: expected");
        check("noise_multiplier", (-1.0).into(), "noise_multiplier");
        check("threshold", 0.0.into(), "threshold: expected one that");
        check("threshold", 0.1.into(), "threshold: expected one that");
        check("threshold_delta", 1e-12.into(), "threshold: expected one that");
        check("threshold_delta", 1.5.into(), "delta: expected");
        check("sampler_total_variation", 0.0.into(), "sampler_total_variation");
        check(
            "event",
            serde_json::json!({ "kind": "gaussian", "noise_multiplier": 9.0 }),
            "event: expected",
        );
        check("more", 1.into(), "unknown field");
        parse(&text[..40]).unwrap_err();
    }
}

//! `undertone data vocab --private`: words chosen with user-level differential privacy.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use undertone_accounting::{Adjacency, Delta, Epsilon, Guarantee, NoiseMultiplier};
use undertone_data::{PrivateSelection, Progress, SelectedWords, WordVotes};
use undertone_mechanisms::{KeyOrigin, NoiseKey};
use undertone_present::numbers::grouped;
use undertone_settings::CorpusSpec;
use undertone_vocabulary::{PrivateVocabulary, record_path};

use super::show::percent;
use crate::output::facts;

/// Default fraction of delta for the threshold. Noise and threshold depend on the logarithm of their fractions, so any
/// fraction far from 0 and 1 gives nearly equal results.
const THRESHOLD_FRACTION: f64 = 0.5;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Private vocabulary")]
pub(super) struct PrivateArgs {
    /// Choose the words with user-level differential privacy, and write the privacy cost to FILE.privacy.json.
    #[arg(long, conflicts_with_all = ["public", "counts"], requires = "delta")]
    pub(super) private: bool,
    /// Set the max number of distinct words counted per user. Users with more words contribute a subset.
    #[arg(long, default_value_t = 200, value_name = "NUMBER", requires = "private")]
    max_words_per_user: u32,
    /// Set the epsilon of the guarantee (for example 1.0). The noise is computed from it.
    #[arg(
        long,
        value_name = "EPSILON",
        requires = "private",
        conflicts_with = "noise_multiplier"
    )]
    target_epsilon: Option<f64>,
    /// Set the noise multiplier instead: the noise standard deviation divided by the L2 norm of a user's votes.
    #[arg(long, value_name = "FACTOR", requires = "private")]
    noise_multiplier: Option<f64>,
    /// Set the delta of the guarantee, threshold included (for example 1e-7). It should be far below 1 / users.
    #[arg(long, requires = "private")]
    delta: Option<f64>,
    /// Set the part of --delta that the threshold uses [default: half of --delta].
    #[arg(long, value_name = "DELTA", requires = "private")]
    threshold_delta: Option<f64>,
    /// Seed the noise, for studies only: a person who knows the seed can remove the noise (default: fresh entropy).
    #[arg(long, value_name = "NUMBER", requires = "private")]
    noise_seed: Option<u64>,
}

impl PrivateArgs {
    /// Chooses and writes the words.
    pub(super) fn run(
        &self,
        spec: &CorpusSpec,
        base: &Path,
        (size, file, force): (usize, &Path, bool),
        progress: &dyn Progress,
    ) -> anyhow::Result<Written> {
        // What can be refused is refused before the text is read and before anything is spent.
        let (settings, delta) = self.settings(size)?;
        let guarantee = settings.guarantee(Adjacency::AddOrRemoveOne, delta)?;
        let record_file = record_path(file);
        if !force && record_file.exists() {
            bail!(
                "{} already exists; give --force to replace it",
                record_file.display()
            );
        }
        let key = self.key()?;
        let votes = WordVotes::of_training_data(spec, self.max_words_per_user, base, progress)?;
        let selected = votes.select(&settings, &key)?;
        selected.write(file, force)?;
        Ok(Written::new(
            &votes,
            &selected,
            guarantee,
            file.to_owned(),
            record_file,
        ))
    }

    fn settings(&self, size: usize) -> anyhow::Result<(PrivateSelection, Delta)> {
        let delta = self
            .delta
            .context("--private needs --delta, for example --delta 1e-7")?;
        let delta = Delta::new(delta).context("--delta")?;
        let threshold = self.threshold_delta.unwrap_or(THRESHOLD_FRACTION * delta.get());
        let threshold = Delta::new(threshold).context("--threshold-delta")?;
        let settings = match (self.target_epsilon, self.noise_multiplier) {
            (Some(epsilon), None) => {
                let epsilon = Epsilon::new(epsilon).context("--target-epsilon")?;
                PrivateSelection::calibrated(size, (epsilon, delta), threshold)?
            }
            (None, Some(noise)) => {
                let noise = NoiseMultiplier::new(noise).context("--noise-multiplier")?;
                PrivateSelection::new(size, noise, threshold)?
            }
            _ => bail!("--private needs either --target-epsilon or --noise-multiplier"),
        };
        Ok((settings, delta))
    }

    fn key(&self) -> anyhow::Result<NoiseKey> {
        if let Some(seed) = self.noise_seed {
            return Ok(NoiseKey::from_insecure_seed(seed));
        }
        let mut bytes = [0_u8; 32];
        // PRIVACY: without a seed the noise comes from the operating system's entropy alone, and its key is not kept.
        getrandom::fill(&mut bytes)
            .map_err(|error| anyhow!("cannot read a random key from the operating system: {error}"))?;
        Ok(NoiseKey::from_bytes(bytes))
    }
}

/// A private vocabulary that was written.
#[derive(Serialize)]
pub(super) struct Written {
    file: PathBuf,
    record_file: PathBuf,
    guarantee: Guarantee,
    record: PrivateVocabulary,
    not_private: NotPrivate,
}

/// Exact counts of the text, for its holder. They are written to no file.
#[derive(Serialize)]
struct NotPrivate {
    distinct_words: usize,
    /// Fraction of all counted words that the vocabulary holds.
    coverage: f64,
    /// Fraction covered by equally many words chosen without noise.
    coverage_of_most_frequent: f64,
}

impl Written {
    fn new(
        votes: &WordVotes,
        selected: &SelectedWords,
        guarantee: Guarantee,
        file: PathBuf,
        record_file: PathBuf,
    ) -> Written {
        Written {
            file,
            record_file,
            guarantee,
            record: selected.record().clone(),
            not_private: NotPrivate {
                distinct_words: votes.distinct_words(),
                coverage: selected.coverage(),
                coverage_of_most_frequent: votes.coverage_of_most_frequent(selected.vocab().words().len()),
            },
        }
    }

    /// Warnings about conditions of the guarantee.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.record.key() == KeyOrigin::InsecureSeed {
            warnings.push(
                "the noise was seeded: a person who knows the seed can remove it, so the guarantee is for study only"
                    .to_owned(),
            );
        }
        let (delta, users) = (self.guarantee.delta.get(), self.record.users());
        if delta * users as f64 >= 1.0 {
            warnings.push(format!(
                "delta is {delta:e}, which is not below 1 / users = {:.1e}: a mechanism that publishes the text of a random user \
                 would have such a delta",
                1.0 / users as f64
            ));
        }
        warnings
    }

    pub(super) fn table(&self) -> String {
        let (record, counts) = (&self.record, &self.not_private);
        let released = facts([
            ("file", self.file.display().to_string()),
            ("record", self.record_file.display().to_string()),
            ("words", grouped(self.words())),
            (
                "votes",
                format!(
                    "{} users, each for at most {} words",
                    grouped(record.users()),
                    grouped(u64::from(record.max_words_per_user()))
                ),
            ),
            (
                "noise",
                format!(
                    "standard deviation {:.4} times the norm of a user's votes, keyed by {}",
                    record.noise_multiplier().get(),
                    record.key()
                ),
            ),
            (
                "threshold",
                format!(
                    "{:.4} times the norm of a user's votes; words of a single user pass it with probability at most {:e}",
                    record.threshold(),
                    record.threshold_delta().get()
                ),
            ),
            ("guarantee", self.guarantee.to_string()),
        ]);
        let exact = facts([
            (
                "coverage",
                format!(
                    "{} of all words in the text; equally many most frequent words: {}",
                    percent(Some(counts.coverage)),
                    percent(Some(counts.coverage_of_most_frequent))
                ),
            ),
            ("distinct words", grouped(counts.distinct_words as u64)),
        ]);
        format!("{released}\n\nExact counts. They are not private, and no file holds them.\n{exact}")
    }

    fn words(&self) -> u64 {
        self.record.words()
    }
}

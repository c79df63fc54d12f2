//! An opened corpus: partitions of users with their examples.

mod training;

use std::path::Path;
use std::sync::Arc;

use crate::builder;
use crate::cache::{Cache, CacheWriter};
use crate::count::WordCounts;
use crate::error::{DataError, Result, bad_cache, invalid, io};
use crate::file;
use crate::hash::{hash_bytes, hex};
use crate::limits::MAX_VOCABULARY_BYTES;
use crate::made_from;
use crate::path::expand;
use crate::places;
use crate::progress::Progress;
use crate::source::{Identity, Source, texts_identity};
#[cfg(feature = "tables")]
use crate::source::{MemoryTable, table::Table};
use crate::split::Split;
use crate::stats::{CorpusStats, constant_prediction};
use crate::synthetic::BestAccuracy;
use undertone_settings::{CorpusSpec, VocabularySpec};
use undertone_text::{EosTargets, SpecialIds, Vocab, VocabProvenance};
use undertone_vocabulary::{
    FileRecord, MadeFromPeople, PrivateVocabulary, not_private, parse_tokenizer, parse_words,
    private_record_of, record_of, record_path,
};

/// A tokenised corpus, memory-mapped. Cloning is cheap.
///
/// No other program may write or truncate the file in the cache directory while the corpus is open: the process that maps it
/// would read what was never checked, or be ended by the system. The file is readable and writable by its owner alone.
#[derive(Debug, Clone)]
pub struct Corpus {
    cache: Arc<Cache>,
    stats: Arc<CorpusStats>,
    digest: Arc<str>,
    vocabulary_privacy: Option<Arc<PrivateVocabulary>>,
    /// The record of words that are not private.
    words_record: Option<Arc<MadeFromPeople>>,
    /// The words, where something else than the cache says whether they are private.
    restated_words: Option<Arc<Vocab>>,
    spec: Arc<CorpusSpec>,
}

impl Corpus {
    /// Opens the corpus that `spec` describes: from its cache in `cache_dir` if there is one for this very source and
    /// these settings, else by reading the source and writing the cache. Relative paths in `spec` start at `base_dir`.
    ///
    /// A damaged cache is rebuilt. The bytes of the cache do not depend on the number of threads.
    ///
    /// # Errors
    /// Any [`DataError`]: unusable settings, unreadable or malformed source, an unwritable `cache_dir`, no usable text.
    pub fn open(
        spec: &CorpusSpec,
        base_dir: &Path,
        cache_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<Corpus> {
        spec.validate()?;
        let source = Source::open(&spec.source, base_dir, progress)?;
        Corpus::of_source(source, spec, base_dir, cache_dir, progress)
    }

    /// Opens the corpus of a table in memory; otherwise like [`Corpus::open`].
    ///
    /// # Errors
    /// The errors of [`Corpus::open`], and a `spec` whose source is not [`MemoryTable::source`].
    #[cfg(feature = "tables")]
    pub fn from_table(
        spec: &CorpusSpec,
        table: &MemoryTable,
        base_dir: &Path,
        cache_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<Corpus> {
        spec.validate()?;
        let (table, identity) = Table::memory(&spec.source, table)?;
        Corpus::of_source(
            (Source::Table(table), identity),
            spec,
            base_dir,
            cache_dir,
            progress,
        )
    }

    fn of_source(
        (source, source_identity): (Source<'_>, Identity),
        spec: &CorpusSpec,
        base_dir: &Path,
        cache_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<Corpus> {
        let record = vocabulary_record(spec, base_dir)?;
        let (vocabulary, vocabulary_identity) = Vocabulary::open(spec, record.as_ref(), base_dir, progress)?;
        let digest = builder::digest(&[&source_identity, &vocabulary_identity], spec);
        std::fs::create_dir_all(cache_dir).map_err(io("create the cache directory", cache_dir))?;
        let path = cache_dir.join(format!("corpus-{}.bin", &digest[..16]));
        match Cache::open(&path, &digest) {
            Ok(Some(cache)) => return Ok(Corpus::new(cache, spec, &digest, record)),
            Ok(None) => {}
            Err(error @ DataError::BadCache { .. }) => tracing::warn!("{error}; it is built again"),
            Err(error) => return Err(error),
        }
        let vocab = vocabulary.build(&source, spec, base_dir, progress)?;
        let vocab = vocab.with_rule(spec.words);
        let mut writer = CacheWriter::create(&path, &digest)?;
        let (stats, best) = builder::build(&source, &vocab, spec, &mut writer, cache_dir, progress)?;
        writer.finish(&vocab, stats, best)?;
        drop(vocab);
        match Cache::open(&path, &digest)? {
            Some(cache) => Ok(Corpus::new(cache, spec, &digest, record)),
            None => Err(bad_cache(path, "it vanished after it was written")),
        }
    }

    fn new(mut cache: Cache, spec: &CorpusSpec, digest: &str, record: Option<FileRecord>) -> Corpus {
        cache.vocab = cache.vocab.with_rule(spec.words);
        let (vocabulary_privacy, sources) = match record {
            Some(FileRecord::Chosen(record)) => (Some(Arc::new(record)), None),
            Some(FileRecord::NotPrivate(record)) => (None, Some(record.sources().to_vec())),
            None if matches!(spec.vocabulary, Some(VocabularySpec::TrainingData { .. })) => {
                (None, Some(vec![spec.source.name_sha256()]))
            }
            None => (None, None),
        };
        let words_record = sources.map(|sources| Arc::new(MadeFromPeople::words(&cache.vocab, sources)));
        // The cache may have been written under another path to the same contents.
        let stats = CorpusStats {
            source: spec.source.describe(),
            ..cache.stats.clone()
        };
        Corpus {
            cache: Arc::new(cache),
            stats: Arc::new(stats),
            digest: digest.into(),
            vocabulary_privacy,
            words_record,
            restated_words: None,
            spec: Arc::new(spec.clone()),
        }
    }

    /// This corpus, whose own text is declared public, so that words counted on that text are public, too.
    #[must_use]
    pub fn with_public_text(self) -> Corpus {
        let counted = matches!(
            self.spec.vocabulary,
            Some(VocabularySpec::TrainingData { .. } | VocabularySpec::PublicCorpus { .. })
        );
        let own = [self.spec.source.name_sha256()];
        let of_own_text = (self.words_record.as_ref()).is_some_and(|record| record.sources() == own);
        if !(counted && of_own_text) {
            return self;
        }
        let words = self.cache.vocab.clone();
        Corpus {
            words_record: None,
            restated_words: Some(Arc::new(words.with_provenance(VocabProvenance::PublicCorpus))),
            ..self
        }
    }

    /// This corpus, whose words are not private, as a model over them says.
    #[must_use]
    pub fn with_words_of_people(self) -> Corpus {
        if self.words_record.is_some() {
            return self;
        }
        let words = self
            .cache
            .vocab
            .clone()
            .with_provenance(VocabProvenance::TrainingData);
        let record = MadeFromPeople::words(&words, Vec::new());
        Corpus {
            words_record: Some(Arc::new(record)),
            restated_words: Some(Arc::new(words)),
            ..self
        }
    }

    /// The settings that the corpus was opened with.
    #[must_use]
    pub fn spec(&self) -> &CorpusSpec {
        &self.spec
    }

    /// One partition.
    #[must_use]
    pub fn partition(&self, split: Split) -> Partition<'_> {
        let (tokens, example_starts, user_starts) = self.cache.partition(split);
        Partition {
            tokens,
            example_starts,
            user_starts,
            special: self.cache.vocab.special(),
            holdback: 0.0,
        }
    }

    /// The vocabulary.
    #[must_use]
    pub fn vocab(&self) -> &Vocab {
        self.restated_words.as_deref().unwrap_or(&self.cache.vocab)
    }

    /// The record of words that are not private. It is `Some` exactly if the provenance is [`VocabProvenance::TrainingData`].
    #[must_use]
    pub fn words_record(&self) -> Option<&MadeFromPeople> {
        self.words_record.as_deref()
    }

    /// The privacy cost of the vocabulary. It is `Some` exactly if the provenance is [`VocabProvenance::Private`].
    ///
    /// PRIVACY: a run on this corpus composes the record's event, threshold delta and sampler distance with its own.
    #[must_use]
    pub fn vocabulary_privacy(&self) -> Option<&PrivateVocabulary> {
        self.vocabulary_privacy.as_deref()
    }

    /// SHA-256 (64 hexadecimal digits) of the source's contents, the vocabulary's contents and the settings.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Counts of what the corpus holds and of what was left out.
    #[must_use]
    pub fn stats(&self) -> &CorpusStats {
        &self.stats
    }

    /// Accuracy of the best possible predictors on the validation partition; synthetic populations only.
    #[must_use]
    pub fn best_accuracy(&self) -> Option<&BestAccuracy> {
        self.cache.best_accuracy.as_ref()
    }

    /// Top-1 accuracy on a partition of always predicting the most frequent training target; unknown words are targets
    /// that no prediction hits. With EOS targets counted, EOS is a candidate too. `None` for an empty partition.
    #[must_use]
    pub fn unigram_accuracy(&self, split: Split, eos: EosTargets) -> Option<f64> {
        let partition = match split {
            Split::Train => &self.stats.train,
            Split::Validation => &self.stats.validation,
            Split::Test => &self.stats.test,
        };
        match eos {
            EosTargets::Included => partition.unigram_with_eos,
            EosTargets::Excluded => partition.unigram_without_eos,
        }
    }

    /// The most frequent training target, the prediction of [`unigram_accuracy`](Self::unigram_accuracy). Each call reads the
    /// whole training partition.
    #[must_use]
    pub fn commonest_target(&self, eos: EosTargets) -> Option<u32> {
        let mut counts = vec![0; self.vocab().len()];
        let train = self.partition(Split::Train);
        let examples = train.users().flat_map(|user| user.examples());
        examples.flatten().for_each(|&id| counts[id as usize] += 1);
        let id = constant_prediction(&counts, train.special(), eos)?;
        u32::try_from(id).ok()
    }
}

/// The record of the words of a specification, which is believed rather than the specification.
fn vocabulary_record(spec: &CorpusSpec, base_dir: &Path) -> Result<Option<FileRecord>> {
    let place = |path: &str| expand("data.vocabulary.path", path, base_dir);
    match &spec.vocabulary {
        Some(VocabularySpec::Private { path }) => {
            let path = place(path)?;
            match record_of(&path)? {
                Some(FileRecord::NotPrivate(_)) => {
                    let detail = "it says that the words are not private; use kind = \"file\" for a run without a guarantee for its words";
                    Err(made_from::bad_record(&path, detail.to_owned()))
                }
                Some(found @ FileRecord::Chosen(_)) => Ok(Some(found)),
                None => Ok(Some(FileRecord::Chosen(private_record_of(&path)?))),
            }
        }
        Some(VocabularySpec::File { path }) => {
            let path = place(path)?;
            match record_of(&path)? {
                // PRIVACY: words that cost something are never taken for public ones.
                Some(FileRecord::Chosen(_)) => Err(invalid(
                    "data.vocabulary.kind",
                    format!(
                        "\"private\", because of the privacy record {}",
                        record_path(&path).display()
                    ),
                    "\"file\"",
                )),
                found => Ok(found),
            }
        }
        Some(VocabularySpec::Tokenizer { path, .. }) => {
            Ok(not_private(&place(path)?)?.map(FileRecord::NotPrivate))
        }
        Some(VocabularySpec::PublicCorpus { path, .. }) => {
            let path = place(path)?;
            if let Some(record) = not_private(&path)? {
                return Ok(Some(FileRecord::NotPrivate(record)));
            }
            // PRIVACY: the users' own text is not public, whatever it is called.
            let (public, own) = (
                places::of_texts(&path)?,
                places::places_of(&spec.source, base_dir)?,
            );
            Ok(places::meet(&public, &own)
                .then(|| FileRecord::NotPrivate(MadeFromPeople::text(vec![spec.source.name_sha256()]))))
        }
        Some(VocabularySpec::TrainingData { .. }) | None => Ok(None),
    }
}

/// Refuses a record of other words.
fn check_record(record: Option<&FileRecord>, vocab: &Vocab, path: &Path) -> Result<()> {
    let matches = match record {
        Some(FileRecord::Chosen(record)) => record.matches(vocab),
        Some(FileRecord::NotPrivate(record)) => record.matches(vocab),
        None => true,
    };
    match matches {
        true => Ok(()),
        false => {
            let detail =
                "it is that of other words than those in the vocabulary; remove it if these words are public";
            Err(made_from::bad_record(path, detail.to_owned()))
        }
    }
}

/// Origin of the vocabulary, used if the corpus must be built.
enum Vocabulary<'a> {
    Ready(Vocab),
    PublicCorpus {
        path: &'a str,
        text: &'a str,
        size: usize,
        of_people: bool,
    },
    TrainingData {
        size: usize,
    },
    Process,
}

impl<'a> Vocabulary<'a> {
    fn open(
        spec: &'a CorpusSpec,
        record: Option<&FileRecord>,
        base_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<(Vocabulary<'a>, String)> {
        let (vocabulary, identity) = Self::opened(spec, record, base_dir, progress)?;
        Ok(match (vocabulary, record) {
            // Words that are not private are other words to the cache, which keeps where they come from.
            (vocabulary, Some(FileRecord::NotPrivate(_))) => {
                (vocabulary.of_people(), format!("not private {identity}"))
            }
            found => (found.0, identity),
        })
    }

    fn opened(
        spec: &'a CorpusSpec,
        record: Option<&FileRecord>,
        base_dir: &Path,
        progress: &dyn Progress,
    ) -> Result<(Vocabulary<'a>, String)> {
        match &spec.vocabulary {
            Some(VocabularySpec::File { path } | VocabularySpec::Private { path }) => {
                let path = expand("data.vocabulary.path", path, base_dir)?;
                let bytes = file::read_bounded(&path, MAX_VOCABULARY_BYTES, "read the vocabulary")?;
                let vocab = parse_words(&path, &bytes)?;
                let identity = format!("words {}", hex(&hash_bytes(&bytes)));
                check_record(record, &vocab, &path)?;
                let Some(FileRecord::Chosen(privacy)) = record else {
                    return Ok((Vocabulary::Ready(vocab), identity));
                };
                // With the record, so that a run is not continued at another price.
                let identity = format!("private {identity} record {}", privacy.digest());
                Ok((
                    Vocabulary::Ready(vocab.with_provenance(VocabProvenance::Private)),
                    identity,
                ))
            }
            Some(VocabularySpec::Tokenizer { path, bos, eos }) => {
                let path = expand("data.vocabulary.path", path, base_dir)?;
                let bytes = file::read_bounded(&path, MAX_VOCABULARY_BYTES, "read the tokenizer")?;
                let vocab = parse_tokenizer(&path, bytes, bos.as_deref(), eos.as_deref())?;
                check_record(record, &vocab, &path)?;
                // The special tokens are among the settings.
                let identity = format!("tokenizer {}", vocab.digest());
                Ok((Vocabulary::Ready(vocab), identity))
            }
            Some(VocabularySpec::PublicCorpus { path, text, size }) => {
                let file = expand("data.vocabulary.path", path, base_dir)?;
                let identity = texts_identity(&file, progress)?;
                Ok((
                    Vocabulary::PublicCorpus {
                        path,
                        text,
                        size: *size,
                        of_people: false,
                    },
                    identity,
                ))
            }
            Some(VocabularySpec::TrainingData { size }) => Ok((
                Vocabulary::TrainingData { size: *size },
                "words of the training data".to_owned(),
            )),
            None => Ok((Vocabulary::Process, "words of the process".to_owned())),
        }
    }

    /// This vocabulary, made from people's text.
    fn of_people(self) -> Self {
        match self {
            Self::Ready(vocab) => Self::Ready(vocab.with_provenance(VocabProvenance::TrainingData)),
            Self::PublicCorpus { path, text, size, .. } => Self::PublicCorpus {
                path,
                text,
                size,
                of_people: true,
            },
            other @ (Self::TrainingData { .. } | Self::Process) => other,
        }
    }

    fn build(
        self,
        source: &Source<'_>,
        spec: &CorpusSpec,
        base: &Path,
        progress: &dyn Progress,
    ) -> Result<Vocab> {
        match self {
            Vocabulary::Ready(vocab) => Ok(vocab),
            Vocabulary::PublicCorpus {
                path,
                text,
                size,
                of_people,
            } => {
                let counts = WordCounts::of_public_corpus(path, text, base, spec.words, progress)?;
                let vocab = counts.vocab(size);
                Ok(match of_people {
                    true => vocab.with_provenance(VocabProvenance::TrainingData),
                    false => vocab,
                })
            }
            Vocabulary::TrainingData { size } => {
                let counts = WordCounts::of_source(source, &spec.split_in_force(), spec, progress)?;
                Ok(counts.vocab(size))
            }
            Vocabulary::Process => {
                let words = match source {
                    Source::Synthetic(population) => population.process().words().map(Box::from).collect(),
                    _ => Vec::new(),
                };
                Ok(Vocab::new(words, VocabProvenance::Synthetic))
            }
        }
    }
}

/// The users of one partition. Those of training are in order of first appearance in the source. Held-out users are in the order of
/// evaluations, that of a hash of their names, so a prefix of them is equal for every run, vocabulary and limit.
#[derive(Debug, Clone, Copy)]
pub struct Partition<'a> {
    tokens: &'a [u32],
    example_starts: &'a [u64],
    user_starts: &'a [u64],
    special: SpecialIds,
    /// Fraction of each user's examples that are held back.
    holdback: f64,
}

impl<'a> Partition<'a> {
    /// Keeps the last examples of each user out: this fraction of them, rounded up. A user keeps at least one example, so a
    /// user with one example has none held back. [`User::held_back`] gives the others.
    ///
    /// An audit attacks a model with texts of its users that it was not trained on.
    ///
    /// # Errors
    /// [`DataError::Setting`](crate::DataError::Setting) for a fraction outside `[0, 1)`.
    ///
    /// # Example
    /// ```
    /// use undertone_data::{Corpus, NoProgress, Split};
    /// use undertone_settings::{CorpusSpec, SourceSpec, SyntheticSource};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let source = SourceSpec::Synthetic(SyntheticSource { users: 20, ..SyntheticSource::default() });
    /// let corpus = Corpus::open(&CorpusSpec::new(source, None), folder.path(), folder.path(), &NoProgress)?;
    /// let all = corpus.partition(Split::Train);
    /// let kept = all.holding_back(0.1)?;
    /// let (user, whole) = (kept.user(0), all.user(0));
    /// assert!(user.examples().chain(user.held_back()).eq(whole.examples()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn holding_back(self, fraction: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&fraction) {
            return Err(invalid("holdback", "a number in [0, 1)", fraction));
        }
        Ok(Self {
            holdback: fraction,
            ..self
        })
    }

    /// The ids that stand for no text, as in [`Vocab::special`].
    #[must_use]
    pub fn special(&self) -> SpecialIds {
        self.special
    }

    /// Number of users; each has at least one example.
    #[must_use]
    pub fn num_users(&self) -> usize {
        self.user_starts.len() - 1
    }

    /// Number of examples of all users.
    #[must_use]
    pub fn num_examples(&self) -> usize {
        match self.holdback > 0.0 {
            true => self.users().map(|user| user.num_examples()).sum(),
            false => self.example_starts.len() - 1,
        }
    }

    /// Number of targets of all users: words and EOS.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        match self.holdback > 0.0 {
            true => self.users().map(|user| user.num_tokens() as u64).sum(),
            false => self.tokens.len() as u64,
        }
    }

    /// User `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Partition::num_users`], as a slice does.
    #[must_use]
    pub fn user(&self, index: usize) -> User<'a> {
        let (first, last) = (
            self.user_starts[index] as usize,
            self.user_starts[index + 1] as usize,
        );
        let examples = last - first;
        let held = (self.holdback * examples as f64).ceil() as usize;
        User {
            tokens: self.tokens,
            starts: &self.example_starts[first..=last],
            kept: examples - held.min(examples.saturating_sub(1)),
        }
    }

    /// All users in order.
    #[must_use]
    pub fn users(&self) -> impl ExactSizeIterator<Item = User<'a>> + use<'a> {
        let partition = *self;
        (0..partition.num_users()).map(move |index| partition.user(index))
    }
}

/// One user's examples.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    tokens: &'a [u32],
    starts: &'a [u64],
    /// Number of examples; those that are held back stand behind them.
    kept: usize,
}

impl<'a> User<'a> {
    /// Number of examples, at least one.
    #[must_use]
    pub fn num_examples(&self) -> usize {
        self.kept
    }

    /// Number of targets: words and EOS.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.tokens().len()
    }

    /// Targets of example `index`: `[w1, .., wn]`, and EOS unless the text goes on or the sentence was cut. BOS is implied.
    ///
    /// # Panics
    /// If `index` is not below [`User::num_examples`], as a slice does.
    #[must_use]
    pub fn example(&self, index: usize) -> &'a [u32] {
        assert!(index < self.kept, "example {index} of {}", self.kept);
        self.at(index)
    }

    fn at(&self, index: usize) -> &'a [u32] {
        &self.tokens[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    /// All examples in order.
    #[must_use]
    pub fn examples(&self) -> impl ExactSizeIterator<Item = &'a [u32]> + use<'a> {
        let user = *self;
        (0..user.num_examples()).map(move |index| user.example(index))
    }

    /// All targets of all examples, one after the other.
    #[must_use]
    pub fn tokens(&self) -> &'a [u32] {
        &self.tokens[self.starts[0] as usize..self.starts[self.kept] as usize]
    }

    /// The examples that [`Partition::holding_back`] keeps out, in order.
    #[must_use]
    pub fn held_back(&self) -> impl ExactSizeIterator<Item = &'a [u32]> + use<'a> {
        let user = *self;
        (user.kept..user.starts.len() - 1).map(move |index| user.at(index))
    }
}

//! The `[data]` table of a run file.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{DataError, Result};
use crate::time::TimePoint;

/// Which text, whose, cut how: the `[data]` table of a run file.
///
/// # Example
/// ```
/// let spec: undertone_data::CorpusSpec = toml::from_str(r#"
///     source = { kind = "parquet", path = "$UNDERTONE_DATA/commits.parquet", time = "timestamp", split = "split" }
///     vocabulary = { kind = "file", path = "$UNDERTONE_DATA/vocab-public-10k.txt" }
///     min_examples = 8
///     max_examples = 64
/// "#)?;
/// spec.validate()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusSpec {
    /// Where the text comes from.
    pub source: SourceSpec,
    /// Which words have an id. Required, except for the synthetic population, which brings its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<VocabularySpec>,
    /// How rows are divided into partitions. Default: the source's split column if it names one, else held-out users
    /// (10 % validation, 10 % test).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// Words of a sentence that are kept; a longer sentence is cut and gets no EOS.
    #[serde(default = "default_max_sentence_tokens")]
    pub max_sentence_tokens: usize,
    /// Training users with fewer examples are left out.
    #[serde(default)]
    pub min_examples: u64,
    /// Training users with fewer tokens (words and EOS) are left out.
    #[serde(default)]
    pub min_tokens: u64,
    /// Cap on the tokens (words and EOS) of a training user: whole examples are kept while they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Cap on the examples of a training user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_examples: Option<u64>,
    /// Which examples the caps keep.
    #[serde(default)]
    pub keep: Keep,
}

fn default_max_sentence_tokens() -> usize {
    20
}

// The variants without fields have braces because serde would accept and forget unknown keys of a unit variant.

/// Which examples of a user the caps keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Keep {
    /// The earliest: by the time column where the source has one, else in order of appearance.
    Earliest {},
    /// A uniform choice that depends on the seed and the user; the kept examples stay in order.
    Random {
        /// Seed of the choice.
        #[serde(default)]
        seed: u64,
    },
}

impl Default for Keep {
    fn default() -> Self {
        Keep::Earliest {}
    }
}

/// Where text comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SourceSpec {
    /// A population drawn from a documented process; nothing is read.
    Synthetic(SyntheticSource),
    /// A Parquet file.
    Parquet(TableSource),
    /// A file of JSON objects, one a line.
    Jsonl(TableSource),
    /// A file of separated values with a header line.
    Csv(CsvSource),
    /// The log of a git repository: author = user, message = text.
    Git(GitSource),
}

/// A table with one row per piece of text. Paths may hold environment variables (`$NAME` or `${NAME}`) and are
/// relative to the run file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSource {
    /// The file.
    pub path: String,
    /// Column with the user's name or number.
    #[serde(default = "default_user")]
    pub user: String,
    /// Column with the text.
    #[serde(default = "default_text")]
    pub text: String,
    /// Column with the time (unix seconds, a timestamp type, or an ISO date), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column with `train`, `validation` or `test`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}

/// As [`TableSource`], with a separator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvSource {
    /// The file.
    pub path: String,
    /// Column with the user's name or number.
    #[serde(default = "default_user")]
    pub user: String,
    /// Column with the text.
    #[serde(default = "default_text")]
    pub text: String,
    /// Column with the time (unix seconds or an ISO date), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column with `train`, `validation` or `test`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// One ASCII character between fields.
    #[serde(default = "default_delimiter")]
    pub delimiter: char,
}

fn default_user() -> String {
    "user_id".to_owned()
}

fn default_text() -> String {
    "text".to_owned()
}

fn default_delimiter() -> char {
    ','
}

/// The log of a git repository, read with the `git` program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// A directory inside the repository.
    pub path: String,
    /// Commits reachable from here.
    #[serde(default = "default_revision")]
    pub revision: String,
    /// Salt of the hash that replaces author addresses. Without it, opening a corpus derives one from the commit and
    /// the settings (no address or hash is stored), and an import must bring its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
}

fn default_revision() -> String {
    "HEAD".to_owned()
}

/// The synthetic population; the process is described in `docs/DATA.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyntheticSource {
    /// Number of users.
    pub users: u64,
    /// Number of words.
    pub words: usize,
    /// Number of topics.
    pub topics: usize,
    /// Number of habits; every user has one: a set of favourite two-word phrases.
    pub habits: usize,
    /// Zipf exponent of word frequencies.
    pub zipf_exponent: f64,
    /// Probability of saying the favourite word where the user's habit has one.
    pub habit_strength: f64,
    /// Probability that a word is one of the four usual successors of the word before it.
    pub successor_strength: f64,
    /// Probability that a word which follows neither habit nor successors is about the sentence's topic.
    pub topic_strength: f64,
    /// Median number of sentences a user.
    pub median_sentences: f64,
    /// Standard deviation of the logarithm of the number of sentences.
    pub sentence_spread: f64,
    /// Most sentences a user may have.
    pub max_sentences: u64,
    /// Most words a sentence may have.
    pub longest_sentence: usize,
    /// Seed of the process and of the population.
    pub seed: u64,
}

impl Default for SyntheticSource {
    fn default() -> Self {
        SyntheticSource {
            users: 4000,
            words: 1000,
            topics: 8,
            habits: 16,
            zipf_exponent: 1.0,
            habit_strength: 0.5,
            successor_strength: 0.65,
            topic_strength: 0.7,
            median_sentences: 20.0,
            sentence_spread: 1.2,
            max_sentences: 2000,
            longest_sentence: 20,
            seed: 1,
        }
    }
}

/// Which words have an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum VocabularySpec {
    /// One word a line, most frequent first.
    File {
        /// The file.
        path: String,
    },
    /// The most frequent words of a public text: `.parquet`, `.jsonl`, `.csv`, or plain text.
    PublicCorpus {
        /// The file.
        path: String,
        /// Column with the text (not for plain text).
        #[serde(default = "default_text")]
        text: String,
        /// Number of words.
        size: usize,
    },
    /// The most frequent words of the training partition (before caps): the vocabulary is then **not** private.
    TrainingData {
        /// Number of words.
        size: usize,
    },
}

/// How rows are divided into partitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitSpec {
    /// By the source's split column.
    Column {},
    /// By user: a user is in one partition only.
    HeldOutUsers {
        /// Share of users for validation.
        #[serde(default = "tenth")]
        validation: f64,
        /// Share of users for test.
        #[serde(default = "tenth")]
        test: f64,
        /// Seed of the choice.
        #[serde(default)]
        seed: u64,
    },
    /// By time: later rows are test, and a share of users (with all their rows) is validation.
    Time {
        /// Rows after this point are test.
        test_after: TimePoint,
        /// Share of users for validation.
        #[serde(default = "tenth")]
        validation_users: f64,
        /// Seed of the choice of validation users.
        #[serde(default)]
        seed: u64,
    },
}

fn tenth() -> f64 {
    0.1
}

/// Column names of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) text: &'a str,
    pub(crate) time: Option<&'a str>,
    pub(crate) split: Option<&'a str>,
}

impl TableSource {
    pub(crate) fn columns(&self) -> Columns<'_> {
        let (time, split) = (self.time.as_deref(), self.split.as_deref());
        Columns {
            user: Some(&self.user),
            text: &self.text,
            time,
            split,
        }
    }
}

impl CsvSource {
    pub(crate) fn columns(&self) -> Columns<'_> {
        let (time, split) = (self.time.as_deref(), self.split.as_deref());
        Columns {
            user: Some(&self.user),
            text: &self.text,
            time,
            split,
        }
    }
}

impl SourceSpec {
    /// The source in a few words, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            SourceSpec::Synthetic(source) => format!("the synthetic population of {} users", source.users),
            SourceSpec::Parquet(source) | SourceSpec::Jsonl(source) => source.path.clone(),
            SourceSpec::Csv(source) => source.path.clone(),
            SourceSpec::Git(source) => format!("the log of {}", source.path),
        }
    }

    pub(crate) fn has_time(&self) -> bool {
        match self {
            SourceSpec::Synthetic(_) => false,
            SourceSpec::Parquet(source) | SourceSpec::Jsonl(source) => source.time.is_some(),
            SourceSpec::Csv(source) => source.time.is_some(),
            SourceSpec::Git(_) => true,
        }
    }

    pub(crate) fn has_split(&self) -> bool {
        match self {
            SourceSpec::Synthetic(_) | SourceSpec::Git(_) => false,
            SourceSpec::Parquet(source) | SourceSpec::Jsonl(source) => source.split.is_some(),
            SourceSpec::Csv(source) => source.split.is_some(),
        }
    }

    /// Checks the source's own settings.
    ///
    /// # Errors
    /// [`DataError::InvalidSetting`] naming the key.
    pub fn validate(&self) -> Result<()> {
        match self {
            SourceSpec::Synthetic(source) => source.validate(),
            SourceSpec::Csv(source) if !source.delimiter.is_ascii() => Err(invalid(
                "data.source.delimiter",
                "one ASCII character",
                format!("{:?}", source.delimiter),
            )),
            _ => Ok(()),
        }
    }
}

impl SyntheticSource {
    fn validate(&self) -> Result<()> {
        let at_least = |key, value: u64, least: u64| match value < least {
            true => Err(invalid(key, format!("at least {least}"), value)),
            false => Ok(()),
        };
        at_least("data.source.users", self.users, 1)?;
        at_least("data.source.words", self.words as u64, 16)?;
        at_least("data.source.topics", self.topics as u64, 1)?;
        at_least("data.source.habits", self.habits as u64, 1)?;
        at_least("data.source.longest_sentence", self.longest_sentence as u64, 2)?;
        at_least("data.source.max_sentences", self.max_sentences, 1)?;
        if self.words > 100_000 {
            return Err(invalid("data.source.words", "at most 100000", self.words));
        }
        if self.topics * self.habits > 4096 || self.topics > self.words / 4 {
            let got = format!(
                "{} topics, {} habits, {} words",
                self.topics, self.habits, self.words
            );
            return Err(invalid(
                "data.source.topics",
                "topics times habits at most 4096 and topics at most words / 4",
                got,
            ));
        }
        probability("data.source.habit_strength", self.habit_strength)?;
        probability("data.source.successor_strength", self.successor_strength)?;
        probability("data.source.topic_strength", self.topic_strength)?;
        within("data.source.zipf_exponent", self.zipf_exponent, 0.0, 4.0)?;
        within("data.source.median_sentences", self.median_sentences, 1.0, 1e6)?;
        within("data.source.sentence_spread", self.sentence_spread, 0.0, 5.0)
    }
}

impl SplitSpec {
    fn validate(&self) -> Result<()> {
        match self {
            SplitSpec::Column {} => Ok(()),
            SplitSpec::HeldOutUsers { validation, test, .. } => {
                probability("data.split.validation", *validation)?;
                probability("data.split.test", *test)?;
                if validation + test >= 1.0 {
                    let got = validation + test;
                    return Err(invalid(
                        "data.split",
                        "validation + test below 1, so that users are left to train on",
                        got,
                    ));
                }
                Ok(())
            }
            SplitSpec::Time {
                test_after,
                validation_users,
                ..
            } => {
                test_after.seconds("data.split.test_after")?;
                probability("data.split.validation_users", *validation_users)
            }
        }
    }
}

impl CorpusSpec {
    /// A specification with the default split, no caps and the given source.
    #[must_use]
    pub fn new(source: SourceSpec, vocabulary: Option<VocabularySpec>) -> CorpusSpec {
        CorpusSpec {
            source,
            vocabulary,
            split: None,
            max_sentence_tokens: default_max_sentence_tokens(),
            min_examples: 0,
            min_tokens: 0,
            max_tokens: None,
            max_examples: None,
            keep: Keep::default(),
        }
    }

    /// The split in force: the given one, or the default for the source.
    #[must_use]
    pub fn split_in_force(&self) -> SplitSpec {
        match &self.split {
            Some(split) => split.clone(),
            None if self.source.has_split() => SplitSpec::Column {},
            None => SplitSpec::HeldOutUsers {
                validation: 0.1,
                test: 0.1,
                seed: 0,
            },
        }
    }

    /// The settings alone, for the digest: contents are identified by hashes, so that a moved file is the same corpus.
    pub(crate) fn without_paths(&self) -> CorpusSpec {
        let mut spec = CorpusSpec {
            split: Some(self.split_in_force()),
            ..self.clone()
        };
        match &mut spec.source {
            SourceSpec::Synthetic(_) => {}
            SourceSpec::Parquet(source) | SourceSpec::Jsonl(source) => source.path.clear(),
            SourceSpec::Csv(source) => source.path.clear(),
            SourceSpec::Git(source) => {
                source.path.clear();
                source.revision.clear();
            }
        }
        if let Some(VocabularySpec::File { path } | VocabularySpec::PublicCorpus { path, .. }) =
            &mut spec.vocabulary
        {
            path.clear();
        }
        spec
    }

    /// Checks the source, the split, and that they fit.
    pub(crate) fn validate_split(&self) -> Result<()> {
        self.source.validate()?;
        let split = self.split_in_force();
        split.validate()?;
        if split == (SplitSpec::Column {}) && !self.source.has_split() {
            let expected = "the name of the split column, because data.split.kind is \"column\"";
            return Err(invalid("data.source.split", expected, "none"));
        }
        if matches!(split, SplitSpec::Time { .. }) && !self.source.has_time() {
            let expected = "the name of the time column, because data.split.kind is \"time\"";
            return Err(invalid("data.source.time", expected, "none"));
        }
        Ok(())
    }

    /// Checks every value and every pair of settings that must fit; reads no file.
    ///
    /// # Errors
    /// [`DataError::InvalidSetting`] naming the key.
    pub fn validate(&self) -> Result<()> {
        self.validate_split()?;
        match (&self.source, &self.vocabulary) {
            (SourceSpec::Synthetic(_), Some(_)) => {
                let expected = "no vocabulary: the synthetic population brings its own words";
                return Err(invalid("data.vocabulary", expected, "one"));
            }
            (SourceSpec::Synthetic(_), None) => {}
            (_, None) => {
                let expected = "a vocabulary of kind \"file\", \"public_corpus\" or \"training_data\"";
                return Err(invalid("data.vocabulary", expected, "none"));
            }
            (_, Some(VocabularySpec::PublicCorpus { size, .. } | VocabularySpec::TrainingData { size })) => {
                if *size == 0 || *size > 10_000_000 {
                    return Err(invalid("data.vocabulary.size", "between 1 and 10000000", size));
                }
            }
            (_, Some(VocabularySpec::File { .. })) => {}
        }
        if self.max_sentence_tokens < 2 || self.max_sentence_tokens > 65_535 {
            return Err(invalid(
                "data.max_sentence_tokens",
                "between 2 and 65535",
                self.max_sentence_tokens,
            ));
        }
        if self.max_examples == Some(0) {
            return Err(invalid("data.max_examples", "at least 1", 0));
        }
        let longest = self.max_sentence_tokens as u64 + 1;
        if let Some(max) = self.max_tokens.filter(|&max| max < longest) {
            let expected = format!(
                "at least {longest} (max_sentence_tokens and an EOS), so that every user keeps an example"
            );
            return Err(invalid("data.max_tokens", expected, max));
        }
        if let Some(max) = self.max_tokens.filter(|&max| max < self.min_tokens) {
            return Err(invalid(
                "data.max_tokens",
                format!("at least min_tokens = {}", self.min_tokens),
                max,
            ));
        }
        if let Some(max) = self.max_examples.filter(|&max| max < self.min_examples) {
            return Err(invalid(
                "data.max_examples",
                format!("at least min_examples = {}", self.min_examples),
                max,
            ));
        }
        Ok(())
    }
}

fn invalid(key: &'static str, expected: impl Into<String>, got: impl fmt::Display) -> DataError {
    DataError::InvalidSetting {
        key,
        expected: expected.into(),
        got: got.to_string(),
    }
}

fn probability(key: &'static str, value: f64) -> Result<()> {
    within(key, value, 0.0, 1.0)
}

fn within(key: &'static str, value: f64, low: f64, high: f64) -> Result<()> {
    // A NaN fails both comparisons and lands in the error.
    if value >= low && value <= high {
        Ok(())
    } else {
        Err(invalid(key, format!("a number in [{low}, {high}]"), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "source = { kind = \"jsonl\", path = \"x.jsonl\" }\n";
    const VOCABULARY: &str = "vocabulary = { kind = \"training_data\", size = 10 }\n";

    fn check(text: &str, expected: Option<&str>) {
        let result = toml::from_str::<CorpusSpec>(text).map_err(|error| error.to_string());
        let result = result.and_then(|spec| spec.validate().map_err(|error| error.to_string()));
        match (result, expected) {
            (Ok(()), None) => {}
            (Err(message), Some(part)) => assert!(message.contains(part), "{message:?} lacks {part:?}"),
            (result, expected) => panic!("{text}: got {result:?}, expected {expected:?}"),
        }
    }

    fn table(rest: &str) -> String {
        format!("{SOURCE}{VOCABULARY}{rest}")
    }

    fn synthetic(rest: &str) -> String {
        format!("source = {{ kind = \"synthetic\", {rest} }}")
    }

    #[test]
    fn good_ones() {
        check(&table(""), None);
        check("source = { kind = \"synthetic\" }", None);
        check(
            "source = { kind = \"git\", path = \".\" }\nvocabulary = { kind = \"file\", path = \"v\" }",
            None,
        );
        check(
            &table("keep = { kind = \"random\", seed = 3 }\nmax_examples = 4"),
            None,
        );
        check(
            &table("split = { kind = \"held_out_users\", validation = 0.2, test = 0.0, seed = 9 }"),
            None,
        );
    }

    #[test]
    fn unknown_keys() {
        check(&table("max_exampels = 4"), Some("unknown field `max_exampels`"));
        check(
            "source = { kind = \"parquet\", path = \"p\", txt = \"t\" }",
            Some("unknown field `txt`"),
        );
        check(&synthetic("user = 3"), Some("unknown field `user`"));
        check(
            "source = { kind = \"excel\", path = \"p\" }",
            Some("unknown variant `excel`"),
        );
        check(
            &table("split = { kind = \"column\", seed = 1 }"),
            Some("unknown field `seed`"),
        );
        check(
            &table("keep = { kind = \"earliest\", seed = 1 }"),
            Some("unknown field `seed`"),
        );
    }

    #[test]
    fn bad_values() {
        check(&table("max_examples = -1"), Some("max_examples"));
        check(&table("max_tokens = nan"), Some("max_tokens"));
        check(
            &table("max_examples = 0"),
            Some("data.max_examples: expected at least 1, got 0"),
        );
        check(
            &table("max_tokens = 20"),
            Some("data.max_tokens: expected at least 21"),
        );
        check(
            &table("max_tokens = 100\nmin_tokens = 101"),
            Some("at least min_tokens = 101, got 100"),
        );
        check(
            &table("max_sentence_tokens = 1"),
            Some("data.max_sentence_tokens: expected between 2"),
        );
        check(
            &table("split = { kind = \"held_out_users\", validation = nan }"),
            Some("data.split.validation: expected a number in [0, 1], got NaN"),
        );
        check(
            &table("split = { kind = \"held_out_users\", test = -0.1 }"),
            Some("data.split.test: expected a number in [0, 1], got -0.1"),
        );
        check(
            &table("split = { kind = \"held_out_users\", validation = 0.5, test = 0.5 }"),
            Some("validation + test below 1"),
        );
        check(
            &table("split = { kind = \"column\" }"),
            Some("data.source.split: expected the name of the split column"),
        );
        check(
            &table("split = { kind = \"time\", test_after = 5 }"),
            Some("data.source.time: expected the name"),
        );
        check(SOURCE, Some("data.vocabulary: expected a vocabulary"));
        check(
            &format!("{SOURCE}vocabulary = {{ kind = \"training_data\", size = 0 }}"),
            Some("data.vocabulary.size"),
        );
        check(
            &format!("{}\n{VOCABULARY}", synthetic("seed = 1")),
            Some("brings its own words"),
        );
        check(
            &synthetic("zipf_exponent = inf"),
            Some("data.source.zipf_exponent"),
        );
        check(
            &synthetic("words = 3"),
            Some("data.source.words: expected at least 16, got 3"),
        );
        let timed = "source = { kind = \"jsonl\", path = \"x\", time = \"t\" }\n";
        let split = "split = { kind = \"time\", test_after = \"June\" }";
        check(
            &format!("{timed}{VOCABULARY}{split}"),
            Some("data.split.test_after: expected unix seconds"),
        );
    }

    #[test]
    fn survives_a_round_trip() {
        let text = table("max_examples = 64\nsplit = { kind = \"held_out_users\", seed = 2 }");
        let spec: CorpusSpec = toml::from_str(&text).unwrap();
        let again: CorpusSpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
        assert_eq!(spec, again);
    }
}

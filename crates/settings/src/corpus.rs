//! The `[data]` table of a run file.

mod pointer;
mod source;

use serde::{Deserialize, Serialize};

use crate::error::{Result, SettingsError};
use crate::time::TimePoint;
use source::default_text;
use undertone_text::{Examples, MAX_VOCABULARY_WORDS, VocabProvenance, WordRule};

pub use pointer::Pointer;
pub use source::{
    CsvSource, Dialect, GroupedSource, MemorySource, SourceSpec, SyntheticSource, TableSource, name_of_source,
};

/// The `[data]` table of a run file: the source of the text, the choice of users and the cut into examples.
///
/// # Example
/// ```
/// let spec: undertone_settings::CorpusSpec = toml::from_str(r#"
///     source = { kind = "parquet", path = "$UNDERTONE_DATA/commits.parquet", time = "timestamp", split = "split" }
///     vocabulary = { kind = "file", path = "$UNDERTONE_DATA/vocab-public-10k.txt" }
///     min_examples = 8
///     max_examples = 64
/// "#)?;
/// spec.validate()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CorpusSpec {
    /// Source of the text.
    pub source: SourceSpec,
    /// The origin of the vocabulary. Required, except for the synthetic population, which brings its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<VocabularySpec>,
    /// The division of rows into partitions. Default: the source's split column if it names one, else held-out users
    /// (10 % validation, 10 % test).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// The unit of text that is one example.
    #[serde(default, skip_serializing_if = "is_sentences")]
    pub examples: Examples,
    /// The rule of sentences and words. A run file that names none has the rule of English, and its text is cut as ever.
    #[serde(default, skip_serializing_if = "WordRule::is_english")]
    pub words: WordRule,
    /// Words (or sub-word tokens) of a sentence that are kept; a longer sentence is cut and gets no EOS.
    #[serde(default = "default_max_sentence_tokens")]
    pub max_sentence_tokens: usize,
    /// Targets of a window, EOS among them. Default 128; only where examples are windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_example_tokens: Option<usize>,
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
    /// Choice of the examples that the caps keep.
    #[serde(default)]
    pub keep: Keep,
}

fn default_max_sentence_tokens() -> usize {
    20
}

fn default_max_example_tokens() -> usize {
    128
}

fn is_sentences(examples: &Examples) -> bool {
    *examples == Examples::Sentences
}

// The variants without fields have braces because serde would accept and forget unknown keys of a unit variant.

/// Choice of a user's examples that the caps keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The origin of the vocabulary: of the words, or parts of words, that have an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum VocabularySpec {
    /// One word per line, most frequent first. The run file declares that the words were chosen without the training users. A record
    /// beside the file is believed rather than that: words that are not private count as words of the training data.
    File {
        /// The file.
        path: String,
    },
    /// A Hugging Face `tokenizer.json`, such as `undertone data tokenizer` writes. The run file declares that it was made without the
    /// training users, as for words.
    Tokenizer {
        /// The file.
        path: String,
        /// The token that stands for the start of an example; by default looked for under the usual names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bos: Option<String>,
        /// The token that stands for the end of a text; it may be the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        eos: Option<String>,
    },
    /// Words chosen from people's text with differential privacy, and their record, `PATH.privacy.json`, whose cost a run
    /// composes.
    Private {
        /// The file of the words.
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

/// The division of rows into partitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitSpec {
    /// A split by the source's split column.
    Column {},
    /// A split by user: a user is in one partition only.
    HeldOutUsers {
        /// Fraction of users for validation.
        #[serde(default = "tenth")]
        validation: f64,
        /// Fraction of users for test.
        #[serde(default = "tenth")]
        test: f64,
        /// Seed of the choice.
        #[serde(default)]
        seed: u64,
    },
    /// A split by time: later rows are test, and a fraction of users (with all their rows) is validation.
    Time {
        /// Rows after this point are test.
        test_after: TimePoint,
        /// Fraction of users for validation.
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

impl SplitSpec {
    fn validate(&self) -> Result<()> {
        match self {
            SplitSpec::Column {} => Ok(()),
            SplitSpec::HeldOutUsers { validation, test, .. } => {
                probability("data.split.validation", *validation)?;
                probability("data.split.test", *test)?;
                if validation + test >= 1.0 {
                    let got = validation + test;
                    return Err(SettingsError::invalid(
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

    /// Checks the split, and that a source with these columns can be divided so.
    pub fn validate_for(&self, has_time: bool, has_split: bool) -> Result<()> {
        self.validate()?;
        match self {
            SplitSpec::Column {} if !has_split => {
                let expected = "the name of the split column, because data.split.kind is \"column\"";
                Err(SettingsError::missing("data.source.split", expected))
            }
            SplitSpec::Time { .. } if !has_time => {
                let expected = "the name of the time column, because data.split.kind is \"time\"";
                Err(SettingsError::missing("data.source.time", expected))
            }
            _ => Ok(()),
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
            examples: Examples::default(),
            words: WordRule::English,
            max_sentence_tokens: default_max_sentence_tokens(),
            max_example_tokens: None,
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

    /// Maximum number of targets of an example before EOS. The EOS of a sentence follows them, that of a window is among them.
    #[must_use]
    pub fn longest_example(&self) -> usize {
        match self.examples {
            Examples::Sentences => self.max_sentence_tokens,
            Examples::Windows => self.max_example_tokens.unwrap_or_else(default_max_example_tokens),
        }
    }

    /// The settings as a `config.toml` holds them: without the number and the digest of a table's rows.
    #[must_use]
    pub fn unnamed(&self) -> CorpusSpec {
        let mut spec = self.clone();
        if let SourceSpec::Memory(source) = &mut spec.source {
            *source = source.unnamed();
        }
        spec
    }

    /// The settings alone, for the digest: contents are identified by hashes, so that a moved file is the same corpus.
    #[must_use]
    pub fn without_paths(&self) -> CorpusSpec {
        let mut spec = CorpusSpec {
            split: Some(self.split_in_force()),
            max_example_tokens: (self.examples == Examples::Windows).then(|| self.longest_example()),
            ..self.clone()
        };
        spec.source = spec.source.without_path();
        if let Some(
            VocabularySpec::File { path }
            | VocabularySpec::Private { path }
            | VocabularySpec::Tokenizer { path, .. }
            | VocabularySpec::PublicCorpus { path, .. },
        ) = &mut spec.vocabulary
        {
            path.clear();
        }
        spec
    }

    /// Checks the source, the split, and that they fit.
    pub fn validate_split(&self) -> Result<()> {
        self.source.validate()?;
        self.split_in_force()
            .validate_for(self.source.has_time(), self.source.has_split())
    }

    /// Returns `true` if a cap keeps the earliest examples by their time. Each of them then needs a time.
    #[must_use]
    pub fn caps_by_time(&self) -> bool {
        let capped = self.max_examples.is_some() || self.max_tokens.is_some();
        capped && self.keep == Keep::Earliest {} && self.source.has_time()
    }

    /// The origin of the words, as far as the settings say it.
    #[must_use]
    pub fn vocabulary_provenance(&self) -> VocabProvenance {
        match &self.vocabulary {
            Some(VocabularySpec::File { .. } | VocabularySpec::Tokenizer { .. }) => VocabProvenance::File,
            Some(VocabularySpec::Private { .. }) => VocabProvenance::Private,
            Some(VocabularySpec::PublicCorpus { .. }) => VocabProvenance::PublicCorpus,
            Some(VocabularySpec::TrainingData { .. }) => VocabProvenance::TrainingData,
            None => VocabProvenance::Synthetic,
        }
    }

    /// Checks every value and every pair of settings that must fit; reads no file.
    ///
    /// # Errors
    /// An error that names the key.
    pub fn validate(&self) -> Result<()> {
        self.validate_split()?;
        match (&self.source, &self.vocabulary) {
            (SourceSpec::Synthetic(_), Some(_)) => {
                let reason = "the synthetic population has a vocabulary of its own";
                return Err(SettingsError::conflict("data.vocabulary", reason));
            }
            (SourceSpec::Synthetic(_), None) => {}
            (_, None) => {
                let expected = "a vocabulary of kind \"file\", \"private\", \"tokenizer\", \"public_corpus\" or \"training_data\"";
                return Err(SettingsError::missing("data.vocabulary", expected));
            }
            (_, Some(VocabularySpec::PublicCorpus { size, .. } | VocabularySpec::TrainingData { size })) => {
                if *size == 0 || *size > MAX_VOCABULARY_WORDS {
                    return Err(SettingsError::invalid(
                        "data.vocabulary.size",
                        format!("between 1 and {MAX_VOCABULARY_WORDS}"),
                        size,
                    ));
                }
            }
            (
                _,
                Some(
                    VocabularySpec::File { .. }
                    | VocabularySpec::Private { .. }
                    | VocabularySpec::Tokenizer { .. },
                ),
            ) => {}
        }
        self.validate_lengths()?;
        if self.max_examples == Some(0) {
            return Err(SettingsError::invalid("data.max_examples", "at least 1", 0));
        }
        let (longest, which) = match self.examples {
            Examples::Sentences => (
                self.max_sentence_tokens as u64 + 1,
                "max_sentence_tokens and an EOS",
            ),
            Examples::Windows => (self.longest_example() as u64, "max_example_tokens"),
        };
        if let Some(max) = self.max_tokens.filter(|&max| max < longest) {
            let expected = format!("at least {longest} ({which}), so that every user keeps an example");
            return Err(SettingsError::invalid("data.max_tokens", expected, max));
        }
        if let Some(max) = self.max_tokens.filter(|&max| max < self.min_tokens) {
            return Err(SettingsError::invalid(
                "data.max_tokens",
                format!("at least min_tokens = {}", self.min_tokens),
                max,
            ));
        }
        if let Some(max) = self.max_examples.filter(|&max| max < self.min_examples) {
            return Err(SettingsError::invalid(
                "data.max_examples",
                format!("at least min_examples = {}", self.min_examples),
                max,
            ));
        }
        Ok(())
    }

    fn validate_lengths(&self) -> Result<()> {
        let within = |key, tokens: usize| match (2..=65_535).contains(&tokens) {
            true => Ok(()),
            false => Err(SettingsError::invalid(key, "between 2 and 65535", tokens)),
        };
        within("data.max_sentence_tokens", self.max_sentence_tokens)?;
        match (self.examples, self.max_example_tokens) {
            (Examples::Sentences, Some(tokens)) => Err(SettingsError::invalid(
                "data.max_example_tokens",
                "examples = \"windows\" beside it (sentences have max_sentence_tokens)",
                tokens,
            )),
            (Examples::Sentences, None) => Ok(()),
            (Examples::Windows, _) if self.max_sentence_tokens != default_max_sentence_tokens() => {
                Err(SettingsError::invalid(
                    "data.max_sentence_tokens",
                    "examples = \"sentences\" beside it (windows have max_example_tokens)",
                    self.max_sentence_tokens,
                ))
            }
            (Examples::Windows, _) => within("data.max_example_tokens", self.longest_example()),
        }
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
        Err(SettingsError::invalid(
            key,
            format!("a number in [{low}, {high}]"),
            value,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cases, contains};

    const SOURCE: &str = "source = { kind = \"jsonl\", path = \"x.jsonl\" }\n";
    const VOCABULARY: &str = "vocabulary = { kind = \"training_data\", size = 10 }\n";

    fn checked(text: &str) -> Result<(), String> {
        let spec = toml::from_str::<CorpusSpec>(text).map_err(|error| error.to_string())?;
        spec.validate().map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refused(text: &str, parts: &str) {
        contains(&checked(text).expect_err(text), parts);
    }

    fn table(rest: &str) -> String {
        format!("{SOURCE}{VOCABULARY}{rest}")
    }

    #[test]
    fn good_specs_are_accepted() {
        for text in [
            &table(""),
            "source = { kind = \"synthetic\" }",
            &table("keep = { kind = \"random\", seed = 3 }\nmax_examples = 4"),
            &table("split = { kind = \"held_out_users\", validation = 0.2, test = 0.0, seed = 9 }"),
            &table("examples = \"windows\"\nmax_tokens = 128"),
        ] {
            assert_eq!(checked(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn unknown_keys_and_bad_values_of_a_table_are_named() {
        for (rest, parts) in cases(
            r#"
            $ max_exampels = 4
            unknown field `max_exampels`
            $ split = { kind = "column", seed = 1 }
            unknown field `seed`
            $ keep = { kind = "earliest", seed = 1 }
            unknown field `seed`
            $ max_examples = -1
            max_examples
            $ max_tokens = nan
            max_tokens
            $ max_examples = 0
            data.max_examples: expected at least 1, got 0
            $ max_tokens = 20
            data.max_tokens: expected at least 21
            $ max_tokens = 100; min_tokens = 101
            at least min_tokens = 101, got 100
            $ max_sentence_tokens = 1
            data.max_sentence_tokens: expected between 2
            $ max_example_tokens = 128
            data.max_example_tokens: expected examples = "windows" beside it
            $ examples = "windows"; max_sentence_tokens = 30
            data.max_sentence_tokens: expected examples = "sentences" beside it
            $ examples = "windows"; max_example_tokens = 1
            data.max_example_tokens: expected between 2 and 65535, got 1
            $ examples = "windows"; max_tokens = 127
            data.max_tokens: expected at least 128 (max_example_tokens)
            $ examples = "documents"
            unknown variant `documents`
            $ words = "klingon"
            unknown variant `klingon`, expected `english` or `unicode`
            $ split = { kind = "held_out_users", validation = nan }
            data.split.validation: expected a number in [0, 1], got NaN
            $ split = { kind = "held_out_users", test = -0.1 }
            data.split.test: expected a number in [0, 1], got -0.1
            $ split = { kind = "held_out_users", validation = 0.5, test = 0.5 }
            validation + test below 1
            $ split = { kind = "column" }
            data.source.split is missing: expected the name of the split column
            $ split = { kind = "time", test_after = 5 }
            data.source.time is missing: expected the name
            "#,
        ) {
            refused(&table(&rest.replace("; ", "\n")), parts);
        }
        refused(SOURCE, "data.vocabulary is missing: expected a vocabulary");
        refused(
            &format!("{SOURCE}{}", VOCABULARY.replace("10", "0")),
            "data.vocabulary.size",
        );
        let timed = table("split = { kind = \"time\", test_after = \"June\" }")
            .replace("x.jsonl\" }", "x.jsonl\", time = \"t\" }");
        refused(&timed, "data.split.test_after: expected unix seconds");
    }

    #[test]
    fn bad_sources_are_named() {
        for (source, parts) in cases(
            r#"
            $ { kind = "parquet", path = "p", txt = "t" }
            unknown field `txt`
            $ { kind = "excel", path = "p" }
            unknown variant `excel`
            $ { kind = "synthetic", user = 3 }
            unknown field `user`
            $ { kind = "synthetic", zipf_exponent = inf }
            data.source.zipf_exponent
            $ { kind = "synthetic", words = 3 }
            data.source.words: expected at least 16, got 3
            $ { kind = "synthetic", users = 8000000000000 }
            data.source.users: expected at most 10000000
            $ { kind = "synthetic", max_sentences = 4611686018427387904 }
            data.source.max_sentences: expected at most 1000000
            $ { kind = "synthetic", longest_sentence = 1099511627776 }
            data.source.longest_sentence: expected at most 10000
            $ { kind = "synthetic", topics = 9223372036854775807, habits = 2 }
            data.source.topics: expected topics times habits
            "#,
        ) {
            refused(&format!("source = {source}"), parts);
        }
        refused(
            &format!("source = {{ kind = \"synthetic\" }}\n{VOCABULARY}"),
            "has a vocabulary of its own",
        );
    }

    #[test]
    fn a_spec_survives_a_round_trip() {
        let text =
            table("max_examples = 64\nwords = \"unicode\"\nsplit = { kind = \"held_out_users\", seed = 2 }");
        let spec: CorpusSpec = toml::from_str(&text).unwrap();
        let again: CorpusSpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
        assert_eq!(spec, again);
        assert_eq!(spec.words, WordRule::Unicode);
    }

    /// The settings are hashed, so a key that says nothing new stays out of them.
    #[test]
    fn the_rule_of_english_is_never_written() {
        let spec: CorpusSpec = toml::from_str(&table("words = \"english\"")).unwrap();
        assert_eq!(spec, toml::from_str(&table("")).unwrap());
        assert!(!toml::to_string(&spec).unwrap().contains("english"));
    }
}

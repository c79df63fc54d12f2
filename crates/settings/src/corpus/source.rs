//! `data.source`: where text comes from, as written in a run file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use undertone_present::numbers::hex;

use super::pointer::Pointer;
use super::{probability, within};
use crate::error::{Result, SettingsError};
use crate::time::TimeUnit;

/// The source of the text of a corpus.
///
/// The log of a git repository is no source of a run: its own configuration would choose programs that run on the user's machine.
/// `undertone data import --git` makes a table of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case", remote = "Self")]
pub enum SourceSpec {
    /// A population drawn from a documented process; nothing is read.
    Synthetic(SyntheticSource),
    /// Parquet: a file, or all files of a folder.
    Parquet(TableSource),
    /// Arrow's files and streams: a file, or all files of a folder, such as one that `datasets.save_to_disk` wrote.
    Arrow(TableSource),
    /// JSON objects, one per line: a file, or all files of a folder.
    Jsonl(TableSource),
    /// Separated values with a header line: a file, or all files of a folder.
    Csv(CsvSource),
    /// A folder of text grouped by user, as `undertone data group` writes it; its columns are known.
    Grouped(GroupedSource),
    /// A table in memory, which the Python package hands over.
    Memory(MemorySource),
}

impl Serialize for SourceSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SourceSpec::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for SourceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SourceSpec, D::Error> {
        // Run files of older versions name git, so they are told where it went.
        SourceSpec::deserialize(deserializer).map_err(|error| {
            match error.to_string().starts_with("unknown variant `git`") {
                true => serde::de::Error::custom(
                    "a git repository is no source of a run: `undertone data import --git FOLDER -o log.parquet` makes a \
                     table of its log, which kind = \"parquet\" reads",
                ),
                false => error,
            }
        })
    }
}

/// A folder of text grouped by user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupedSource {
    /// The folder.
    pub path: String,
    /// `true` if rows have a time. A folder grouped by time keeps that order either way.
    #[serde(default)]
    pub time: bool,
    /// `true` to use the folder's split column.
    #[serde(default)]
    pub split: bool,
}

/// A table with one row per piece of text. Paths may hold environment variables (`$NAME` or `${NAME}`) and are
/// relative to the run file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TableSource {
    /// The file, or a folder: its files of this kind in the order of their paths, those of folders in it among them. Names that
    /// start with `.` or `_` are passed over.
    pub path: String,
    /// Column with the user's name or number. In JSON, names that begin with `/` are places below the top, such as `/message/from`.
    #[serde(default = "default_user")]
    pub user: String,
    /// Column with the text.
    #[serde(default = "default_text")]
    pub text: String,
    /// Column with the time (unix seconds, a timestamp type, or an ISO date), if there is one. Rows may lack a time unless a
    /// split or a cap needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column with `train`, `validation` or `test`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<TimeUnit>,
    /// Place of the array that holds the rows of a JSON document, such as `/messages`; only for JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<String>,
}

/// A table in the memory of a program that calls this library. Its rows are known by their number and their digest, so that a run is
/// continued on the same table alone.
///
/// PRIVACY: number and digest are exact functions of the rows. They belong to the operator of the training, like metrics. A run keeps them
/// in a private file, and its `config.toml` leaves them out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemorySource {
    /// Number of rows; 0 where it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// SHA-256 (64 hexadecimal digits) of the rows, as `undertone_data::MemoryTable` computes it; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// Column with the user's name or number.
    #[serde(default = "default_user")]
    pub user: String,
    /// Column with the text.
    #[serde(default = "default_text")]
    pub text: String,
    /// Column with the time (unix seconds or a timestamp type), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column with `train`, `validation` or `test`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<TimeUnit>,
}

/// A [`TableSource`] with a separator between fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CsvSource {
    /// The file or folder, as in [`TableSource`].
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
    /// Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unit: Option<TimeUnit>,
    /// One ASCII character between fields. `,` stands for a tab in files whose names end in `.tsv`, and in dumps.
    #[serde(default = "default_delimiter", deserialize_with = "delimiter")]
    pub delimiter: char,
    /// The meaning of quotes and backslashes.
    #[serde(default, skip_serializing_if = "Dialect::is_quoted")]
    pub dialect: Dialect,
    /// The names of the columns, for files without a header line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Vec<String>>,
}

/// The meaning of quotes and backslashes in separated values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// A field may stand in quotes, and then hold separators, line ends and doubled quotes; a backslash is a letter. The rule of RFC 4180.
    #[default]
    Quoted,
    /// The text format of a database dump, such as Postgres `COPY` and `mysql --batch`: `\\N` is an absent value, a backslash escapes, and a
    /// quote is a letter.
    Dump,
    /// Every byte but separators and line ends is a letter, as in most TSV.
    Plain,
}

impl Dialect {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    fn is_quoted(&self) -> bool {
        *self == Self::Quoted
    }
}

/// Reads a separator: one character, or the two letters `\t` for a tab.
fn delimiter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<char, D::Error> {
    let text = String::deserialize(deserializer)?;
    let mut letters = text.chars();
    match (text.as_str(), letters.next(), letters.next()) {
        ("\\t", ..) => Ok('\t'),
        (_, Some(letter), None) => Ok(letter),
        _ => Err(serde::de::Error::custom(format!(
            "expected one character, such as \";\" or \"\\t\", got {text:?}"
        ))),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

fn default_user() -> String {
    "user_id".to_owned()
}

pub(super) fn default_text() -> String {
    "text".to_owned()
}

fn default_delimiter() -> char {
    ','
}

/// The synthetic population; the process is described in `docs/guide/data.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Median number of sentences per user.
    pub median_sentences: f64,
    /// Standard deviation of the logarithm of the number of sentences.
    pub sentence_spread: f64,
    /// Maximum number of sentences per user.
    pub max_sentences: u64,
    /// Maximum number of words per sentence.
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

/// The name of a text in records, from the text that describes it.
#[must_use]
pub fn name_of_source(text: &str) -> String {
    hex(&Sha256::digest([b"undertone source\0", text.as_bytes()].concat()))
}

impl MemorySource {
    /// The table in a few words, for messages to its owner.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.sha256.is_empty() {
            true => "the table in memory that the run was made from".to_owned(),
            false => format!("the table of {} rows with SHA-256 {}", self.rows, self.sha256),
        }
    }

    /// The table without the number and the digest of its rows, as a `config.toml` names it.
    #[must_use]
    pub fn unnamed(&self) -> Self {
        Self {
            rows: 0,
            sha256: String::new(),
            ..self.clone()
        }
    }
}

impl SourceSpec {
    /// The source in a few words, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            SourceSpec::Synthetic(source) => format!("the synthetic population of {} users", source.users),
            SourceSpec::Parquet(source) | SourceSpec::Arrow(source) | SourceSpec::Jsonl(source) => {
                source.path.clone()
            }
            SourceSpec::Csv(source) => source.path.clone(),
            SourceSpec::Grouped(source) => source.path.clone(),
            SourceSpec::Memory(source) if source.sha256.is_empty() => "a table in memory".to_owned(),
            SourceSpec::Memory(source) => format!("the table of {} rows in memory", source.rows),
        }
    }

    /// The file or folder of the source, as the run file names it; `None` where nothing is read from files.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            SourceSpec::Synthetic(_) | SourceSpec::Memory(_) => None,
            SourceSpec::Parquet(source) | SourceSpec::Arrow(source) | SourceSpec::Jsonl(source) => {
                Some(&source.path)
            }
            SourceSpec::Csv(source) => Some(&source.path),
            SourceSpec::Grouped(source) => Some(&source.path),
        }
    }

    /// `false` if no person wrote the text: the population is made up. The text of all other sources belongs to its users.
    #[must_use]
    pub fn is_of_people(&self) -> bool {
        !matches!(self, Self::Synthetic(_))
    }

    /// The name of the source in records: the digest of its settings.
    /// Tables in memory have one name for all contents, because released models bear the name.
    #[must_use]
    pub fn name_sha256(&self) -> String {
        let mut source = self.clone();
        if let SourceSpec::Memory(table) = &mut source {
            // PRIVACY: number and digest of the rows are exact functions of people's text.
            *table = table.unnamed();
        }
        // Plain data with string keys serialises.
        let text = serde_json::to_string(&source).unwrap_or_default();
        // The name was made of the blank values when their keys were always written.
        let (tag, blank) = ("{\"kind\":\"memory\",", "\"rows\":0,\"sha256\":\"\",");
        name_of_source(&text.replacen(tag, &format!("{tag}{blank}"), 1))
    }

    /// The source without the path of its text, as strangers may see it.
    #[must_use]
    pub fn without_path(&self) -> Self {
        let mut source = self.clone();
        match &mut source {
            SourceSpec::Synthetic(_) | SourceSpec::Memory(_) => {}
            SourceSpec::Parquet(source) | SourceSpec::Arrow(source) | SourceSpec::Jsonl(source) => {
                source.path.clear();
            }
            SourceSpec::Csv(source) => source.path.clear(),
            SourceSpec::Grouped(source) => source.path.clear(),
        }
        source
    }

    /// `true` if rows have a time.
    #[must_use]
    pub fn has_time(&self) -> bool {
        match self {
            SourceSpec::Synthetic(_) => false,
            SourceSpec::Parquet(source) | SourceSpec::Arrow(source) | SourceSpec::Jsonl(source) => {
                source.time.is_some()
            }
            SourceSpec::Csv(source) => source.time.is_some(),
            SourceSpec::Grouped(source) => source.time,
            SourceSpec::Memory(source) => source.time.is_some(),
        }
    }

    /// `true` if rows say their partition.
    #[must_use]
    pub fn has_split(&self) -> bool {
        match self {
            SourceSpec::Synthetic(_) => false,
            SourceSpec::Parquet(source) | SourceSpec::Arrow(source) | SourceSpec::Jsonl(source) => {
                source.split.is_some()
            }
            SourceSpec::Csv(source) => source.split.is_some(),
            SourceSpec::Grouped(source) => source.split,
            SourceSpec::Memory(source) => source.split.is_some(),
        }
    }

    /// Checks the source's own settings.
    ///
    /// # Errors
    /// An error that names the key.
    pub fn validate(&self) -> Result<()> {
        match self {
            SourceSpec::Synthetic(source) => source.validate(),
            SourceSpec::Csv(source) => source.validate(),
            SourceSpec::Parquet(source) | SourceSpec::Arrow(source) if source.records.is_some() => {
                Err(SettingsError::conflict(
                    "data.source.records",
                    "a file of Parquet or Arrow is a table of rows",
                ))
            }
            SourceSpec::Jsonl(source) => match &source.records {
                Some(place) => Pointer::of_records(place).map(drop),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl CsvSource {
    fn validate(&self) -> Result<()> {
        let letter = self.delimiter;
        let meant = match self.dialect {
            Dialect::Quoted => letter == '"',
            Dialect::Dump => letter == '\\',
            Dialect::Plain => false,
        };
        if !letter.is_ascii() || meant || matches!(letter, '\n' | '\r') {
            let expected = "one ASCII character that is no line end, and no quote or backslash with a meaning of its own";
            return Err(SettingsError::invalid(
                "data.source.delimiter",
                expected,
                format!("{letter:?}"),
            ));
        }
        Ok(())
    }
}

impl Default for TableSource {
    fn default() -> Self {
        Self {
            path: String::new(),
            user: default_user(),
            text: default_text(),
            time: None,
            split: None,
            time_unit: None,
            records: None,
        }
    }
}

impl SyntheticSource {
    fn validate(&self) -> Result<()> {
        // A run file of somebody else must not be able to ask for a population that is never drawn to its end.
        for (key, value, min, max) in [
            ("data.source.users", self.users, 1, 10_000_000),
            ("data.source.words", self.words as u64, 16, 100_000),
            ("data.source.topics", self.topics as u64, 1, u64::MAX),
            ("data.source.habits", self.habits as u64, 1, u64::MAX),
            (
                "data.source.longest_sentence",
                self.longest_sentence as u64,
                2,
                10_000,
            ),
            ("data.source.max_sentences", self.max_sentences, 1, 1_000_000),
        ] {
            if value < min {
                return Err(SettingsError::invalid(key, format!("at least {min}"), value));
            }
            if value > max {
                return Err(SettingsError::invalid(key, format!("at most {max}"), value));
            }
        }
        if self.topics.saturating_mul(self.habits) > 4096 || self.topics > self.words / 4 {
            let got = format!(
                "{} topics, {} habits, {} words",
                self.topics, self.habits, self.words
            );
            return Err(SettingsError::invalid(
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

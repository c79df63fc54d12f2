//! Source of the text for the `data` commands: a run file's `[data]` table, or flags.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use undertone_data::{Examples, WordRule};
use undertone_settings::{
    CorpusSpec, CsvSource, Dialect, GroupedSource, SourceSpec, SplitSpec, SyntheticSource, TableSource,
    TimePoint, TimeUnit, VocabularySpec,
};
use undertone_vocabulary::FileRecord;
use undertone_vocabulary::record_of;

use crate::commands::parsed_file;

/// The part of a run file that these commands read.
#[derive(serde::Deserialize)]
struct RunFile {
    data: CorpusSpec,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Source")]
pub(super) struct SourceArgs {
    #[command(flatten)]
    which: Which,
    /// Read the user from this column.
    #[arg(long, default_value = "user_id", value_name = "NAME")]
    user_column: String,
    /// Read the text from this column.
    #[arg(long, default_value = "text", value_name = "NAME")]
    text_column: String,
    /// Read the time from this column: unix seconds, timestamps or ISO dates. Empty times are allowed without --test-after.
    #[arg(long, value_name = "NAME")]
    time_column: Option<String>,
    /// Read the split from this column: `train`, `validation` or `test`.
    #[arg(long, value_name = "NAME")]
    split_column: Option<String>,
    /// Read times that are numbers in this unit: s, ms, us, ns, or calendar for dates such as 20240605 [default: s, where they look so].
    #[arg(long, value_name = "UNIT")]
    time_unit: Option<TimeUnit>,
    /// Set the separator of a CSV file: a character, or \t for a tab. Files whose names end in .tsv have tabs.
    #[arg(long, default_value = ",", value_parser = delimiter, value_name = "CHARACTER")]
    delimiter: char,
    /// Choose the meaning of quotes and backslashes in a CSV file.
    #[arg(long, value_enum, default_value_t = DialectArg::Quoted)]
    dialect: DialectArg,
    /// Name the columns of CSV files without a header line, in their order, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    header: Option<Vec<String>>,
    /// Read the rows from the array at this place of a JSON document, such as /messages.
    #[arg(long, value_name = "PLACE")]
    records: Option<String>,
    /// Set the number of users of the synthetic population.
    #[arg(long, value_name = "NUMBER")]
    users: Option<u64>,
    /// Set the seed of the synthetic population.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    #[command(flatten)]
    split: SplitArgs,
}

/// The meaning of quotes and backslashes.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DialectArg {
    /// A field may stand in quotes and hold separators and line ends.
    Quoted,
    /// Database dumps: \N is an absent value, a backslash escapes, and quotes are letters. The separator is a tab.
    Dump,
    /// Quotes and backslashes are letters.
    Plain,
}

/// One character, or a tab as shells pass it on.
fn delimiter(text: &str) -> Result<char, String> {
    let mut letters = text.chars();
    match (text, letters.next(), letters.next()) {
        ("\\t", ..) => Ok('\t'),
        (_, Some(letter), None) => Ok(letter),
        _ => Err("expected one character, or \\t for a tab".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Words")]
pub(super) struct RuleArgs {
    /// Cut words and sentences by this rule, where no run file names one with --config.
    #[arg(long, value_enum, default_value_t = Rule::Unicode, value_name = "RULE", conflicts_with = "config")]
    word_rule: Rule,
}

/// The rules of words, as flags name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rule {
    /// The rule for every language.
    Unicode,
    /// The rule of the first versions, for English in ASCII.
    English,
}

#[derive(Debug, clap::Args)]
#[group(id = "which", required = true, multiple = false)]
struct Which {
    /// Use the source that the table `data` of this run file describes.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read this Parquet file, or this folder of Parquet files.
    #[arg(long, value_name = "PATH")]
    parquet: Option<String>,
    /// Read this Arrow file or stream, or this folder of them, such as one that `datasets.save_to_disk` wrote.
    #[arg(long, value_name = "PATH")]
    arrow: Option<String>,
    /// Read this file of JSON objects, one per line, or this folder of such files.
    #[arg(long, value_name = "PATH")]
    jsonl: Option<String>,
    /// Read this CSV file with a header line, or this folder of CSV files.
    #[arg(long, value_name = "PATH")]
    csv: Option<String>,
    /// Read this plain text file. It has no users, so it only serves `data vocab --public`.
    #[arg(long, value_name = "FILE")]
    text: Option<String>,
    /// Read this folder, which `data group` wrote.
    #[arg(long, value_name = "FOLDER")]
    grouped: Option<String>,
    /// Use the built-in synthetic population.
    #[arg(long)]
    synthetic: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Split")]
struct SplitArgs {
    /// Hold out this fraction of users for validation [default: 0.1, without a split column].
    #[arg(long, value_name = "FRACTION")]
    validation: Option<f64>,
    /// Hold out this fraction of users for test [default: 0.1, without a split column].
    #[arg(long, value_name = "FRACTION", conflicts_with = "test_after")]
    test: Option<f64>,
    /// Use the rows after this time (unix seconds, or a date such as 2024-06-05) as the test partition.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    test_after: Option<String>,
    /// Set the seed that decides which users are held out.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    split_seed: u64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Vocabulary")]
pub(super) struct VocabularyArgs {
    /// Read the vocabulary from this file (default: count words on the training partition).
    #[arg(long, value_name = "FILE")]
    vocab: Option<String>,
    /// Count the words of this public file (.parquet, .jsonl, .csv, .tsv or plain text).
    #[arg(long, value_name = "FILE", conflicts_with = "vocab")]
    public_corpus: Option<String>,
    /// Read the text of --public-corpus from this column [default: text, or else the column of --text-column].
    #[arg(long, requires = "public_corpus", value_name = "NAME")]
    public_text_column: Option<String>,
    /// Cut the text into sub-word tokens with this tokenizer.json, instead of words.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vocab", "public_corpus"])]
    tokenizer: Option<String>,
    /// Take this token of the tokenizer for the start of a text (default: one of the usual names).
    #[arg(long, value_name = "TOKEN", requires = "tokenizer")]
    bos: Option<String>,
    /// Take this token of the tokenizer for the end of a text (default: one of the usual names).
    #[arg(long, value_name = "TOKEN", requires = "tokenizer")]
    eos: Option<String>,
    /// Set the max number of words of a counted vocabulary.
    #[arg(long, default_value_t = 10_000, value_name = "NUMBER")]
    vocab_size: usize,
    /// Cut texts into windows of at most this many tokens, instead of sentences.
    #[arg(long, value_name = "TOKENS")]
    windows: Option<usize>,
}

impl SourceArgs {
    /// The corpus, and the folder that its paths start from.
    pub(super) fn spec(&self, vocabulary: Option<&VocabularyArgs>) -> anyhow::Result<(CorpusSpec, PathBuf)> {
        if let Some(path) = &self.which.config {
            let file: RunFile = parsed_file(path, "cannot read the table [data]")?;
            return Ok((file.data, path.parent().unwrap_or(Path::new("")).to_owned()));
        }
        let source = self.source()?;
        let args = vocabulary;
        let vocabulary = args
            .filter(|_| !self.which.synthetic)
            .map(|args| args.spec(&self.text_column))
            .transpose()?;
        let mut spec = CorpusSpec::new(source, vocabulary);
        spec.split = self.split()?;
        if let Some(tokens) = args.and_then(|args| args.windows) {
            ensure!(
                (2..=65_535).contains(&tokens),
                "--windows: expected between 2 and 65535 tokens, got {tokens}"
            );
            spec.examples = Examples::Windows;
            spec.max_example_tokens = Some(tokens);
        }
        Ok((spec, PathBuf::new()))
    }

    /// The corpus of [`spec`](Self::spec), whose words are cut by a rule unless a run file describes it.
    pub(super) fn spec_by(
        &self,
        rule: &RuleArgs,
        vocabulary: Option<&VocabularyArgs>,
    ) -> anyhow::Result<(CorpusSpec, PathBuf)> {
        let (mut spec, base) = self.spec(vocabulary)?;
        if self.which.config.is_none() {
            spec.words = rule.rule();
        }
        Ok((spec, base))
    }

    /// The column that the flags name for the user.
    #[cfg(feature = "tables")]
    pub(super) fn user_column(&self) -> &str {
        &self.user_column
    }

    /// The split of the rows that the flags ask for, if any.
    pub(super) fn split(&self) -> anyhow::Result<Option<SplitSpec>> {
        self.split.spec()
    }

    fn source(&self) -> anyhow::Result<SourceSpec> {
        let table = |path: &String| TableSource {
            path: path.clone(),
            user: self.user_column.clone(),
            text: self.text_column.clone(),
            time: self.time_column.clone(),
            split: self.split_column.clone(),
            time_unit: self.time_unit,
            records: self.records.clone(),
        };
        let which = &self.which;
        Ok(if let Some(path) = &which.parquet {
            SourceSpec::Parquet(table(path))
        } else if let Some(path) = &which.arrow {
            SourceSpec::Arrow(table(path))
        } else if let Some(path) = &which.jsonl {
            SourceSpec::Jsonl(table(path))
        } else if let Some(path) = &which.csv {
            let table = table(path);
            SourceSpec::Csv(CsvSource {
                path: table.path,
                user: table.user,
                text: table.text,
                time: table.time,
                split: table.split,
                time_unit: table.time_unit,
                delimiter: self.delimiter,
                dialect: match self.dialect {
                    DialectArg::Quoted => Dialect::Quoted,
                    DialectArg::Dump => Dialect::Dump,
                    DialectArg::Plain => Dialect::Plain,
                },
                header: self.header.clone(),
            })
        } else if let Some(path) = &which.grouped {
            // Its columns have known names; naming one says that it is wanted.
            SourceSpec::Grouped(GroupedSource {
                path: path.clone(),
                time: self.time_column.is_some(),
                split: self.split_column.is_some(),
            })
        } else if which.synthetic {
            let default = SyntheticSource::default();
            let (users, seed) = (
                self.users.unwrap_or(default.users),
                self.seed.unwrap_or(default.seed),
            );
            SourceSpec::Synthetic(SyntheticSource {
                users,
                seed,
                ..default
            })
        } else {
            bail!(
                "--text: a plain text file has no users, so it only serves `data vocab --public`; chats, mails and other exports are \
                 read by `undertone data import --as FORMAT PATH`"
            );
        })
    }

    /// The rows of a query, with the columns that the flags name.
    #[cfg(feature = "tables")]
    pub(super) fn query(&self, path: &Path, query: &str) -> undertone_data::SqliteSource {
        undertone_data::SqliteSource {
            path: path.to_owned(),
            query: query.to_owned(),
            user: self.user_column.clone(),
            text: self.text_column.clone(),
            time: self.time_column.clone(),
            split: self.split_column.clone(),
            time_unit: self.time_unit,
        }
    }

    /// File and text column of a public corpus.
    pub(super) fn public_text(&self) -> anyhow::Result<(String, String)> {
        let which = &self.which;
        let file = [
            &which.parquet,
            &which.arrow,
            &which.jsonl,
            &which.csv,
            &which.text,
        ]
        .into_iter()
        .flatten()
        .next();
        let Some(path) = file else {
            bail!("--public needs a file: --parquet, --jsonl, --csv or --text");
        };
        Ok((path.clone(), self.text_column.clone()))
    }
}

impl RuleArgs {
    /// The rule of words that the flags ask for.
    pub(super) fn rule(&self) -> WordRule {
        match self.word_rule {
            Rule::Unicode => WordRule::Unicode,
            Rule::English => WordRule::English,
        }
    }
}

impl SplitArgs {
    fn spec(&self) -> anyhow::Result<Option<SplitSpec>> {
        let fraction = |given: Option<f64>| given.unwrap_or(0.1);
        if let Some(time) = &self.test_after {
            let test_after = TimePoint::parse(time)
                .map_err(|expected| anyhow!("--test-after: expected {expected}, got {time:?}"))?;
            let validation_users = fraction(self.validation);
            return Ok(Some(SplitSpec::Time {
                test_after,
                validation_users,
                seed: self.split_seed,
            }));
        }
        let held_out = self.validation.is_some() || self.test.is_some();
        Ok(held_out.then(|| SplitSpec::HeldOutUsers {
            validation: fraction(self.validation),
            test: fraction(self.test),
            seed: self.split_seed,
        }))
    }
}

impl VocabularyArgs {
    fn spec(&self, text_column: &str) -> anyhow::Result<VocabularySpec> {
        if let Some(path) = &self.tokenizer {
            return Ok(VocabularySpec::Tokenizer {
                path: path.clone(),
                bos: self.bos.clone(),
                eos: self.eos.clone(),
            });
        }
        Ok(match (&self.vocab, &self.public_corpus) {
            // A record that cannot be read is an error of opening the words.
            (Some(path), _) if matches!(record_of(Path::new(path)), Ok(Some(FileRecord::Chosen(_)))) => {
                VocabularySpec::Private { path: path.clone() }
            }
            (Some(path), _) => VocabularySpec::File { path: path.clone() },
            (None, Some(path)) => VocabularySpec::PublicCorpus {
                path: path.clone(),
                text: match &self.public_text_column {
                    Some(name) => name.clone(),
                    None => public_text(path, text_column)?,
                },
                size: self.vocab_size,
            },
            (None, None) => VocabularySpec::TrainingData {
                size: self.vocab_size,
            },
        })
    }
}

/// The column of a public text that nobody named: `text`, or that of the private table where the public one has the same.
fn public_text(path: &str, text_column: &str) -> anyhow::Result<String> {
    let has = |column: &str| undertone_data::has_column(path, column, Path::new(""));
    Ok(match !has("text")? && has(text_column)? {
        true => text_column.to_owned(),
        false => "text".to_owned(),
    })
}

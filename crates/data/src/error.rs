//! The one error type of the crate.

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use undertone_text::{quoted, short, shortened};

use undertone_settings::SettingsError;
use undertone_text::WordRule;

use crate::split::Split;

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line of a text file, from 1.
    Line(u64),
    /// A row of a table, from 1.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Row(number) => write!(f, "row {number}"),
        }
    }
}

/// Errors between a source of text and a corpus.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The operating system refused an operation on a path.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the attempted action.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A setting names an environment variable that is not set.
    #[error("{key} = \"{value}\" needs the environment variable {variable}, but it is not set")]
    UnsetVariable {
        /// Setting that names the variable.
        key: &'static str,
        /// The setting's value.
        value: String,
        /// The missing variable.
        variable: String,
    },
    /// A setting has no usable value, is missing, or does not go with another one.
    #[error(transparent)]
    Setting(#[from] SettingsError),
    /// A table has no column of the configured name.
    #[error("{}: it lacks the column {} that {key} names; its columns are {}{hint}", file.display(), quoted(column), list(found, "no columns"))]
    MissingColumn {
        /// The table.
        file: PathBuf,
        /// Setting that names the column.
        key: &'static str,
        /// The missing column.
        column: String,
        /// Columns that the file has.
        found: Vec<String>,
        /// The next step, where the reader knows one.
        hint: Box<str>,
    },
    /// A column holds values of a type that cannot be used.
    #[error("{}: column {}: expected {expected}, got {}", file.display(), quoted(column), short(got))]
    WrongType {
        /// The table.
        file: PathBuf,
        /// The column.
        column: String,
        /// Types that can be used.
        expected: &'static str,
        /// Type found.
        got: String,
    },
    /// One value of a file cannot be used.
    #[error("{}, {place}: {}: expected {expected}, got {}", file.display(), words(what), words(got))]
    BadValue {
        /// The file.
        file: PathBuf,
        /// Place in the file.
        place: Place,
        /// Column, field or thing concerned.
        what: String,
        /// The accepted values.
        expected: String,
        /// The value found.
        got: String,
    },
    /// A Parquet file cannot be decoded.
    #[error("{} is not a readable Parquet file (cut off, damaged, or in a different format): {}", file.display(), words(detail))]
    BadParquet {
        /// The file.
        file: PathBuf,
        /// The message of the decoder.
        detail: String,
    },
    /// A source of a kind that this build leaves out.
    #[error(
        "{}this build reads JSON lines, CSV and plain text; the complete one reads {what}: `cargo install --path crates/cli`",
        path.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display()))
    )]
    NotInThisBuild {
        /// The file, where it is known.
        path: Option<PathBuf>,
        /// The sources that the complete build reads.
        what: &'static str,
    },
    /// A file holds something else than text.
    #[error("{} is {got}: {help}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The content of the file, with its article.
        got: &'static str,
        /// The next step.
        help: &'static str,
    },
    /// A file or stream of Arrow cannot be decoded.
    #[error("{} is not a readable Arrow file or stream (cut off, damaged, or in a different format): {}", file.display(), words(detail))]
    BadArrow {
        /// The file.
        file: PathBuf,
        /// The reason for the refusal.
        detail: String,
    },
    /// An SQLite file cannot be read.
    #[error("{} is not a usable SQLite database: {}", file.display(), words(detail))]
    BadDatabase {
        /// The file.
        file: PathBuf,
        /// The reason for the refusal.
        detail: String,
    },
    /// A file that is no usable table looks like an export of people.
    #[error("{error}; the file looks like an export: `undertone data import --as {format} {} --out people.parquet` reads it", path.display())]
    LooksLikeExport {
        /// The file.
        path: PathBuf,
        /// The format, as the command line names it.
        format: &'static str,
        /// The error of the table.
        error: Box<DataError>,
    },
    /// A file is larger than this program reads, or no regular file.
    #[error("{}: expected a regular file of at most {limit} bytes, got {got}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The maximum number of bytes that are read.
        limit: u64,
        /// A description of the value found.
        got: String,
    },
    /// A source holds nothing.
    #[error("{} holds no {expected}", path.display())]
    Empty {
        /// The file or repository.
        path: PathBuf,
        /// The missing content.
        expected: &'static str,
    },
    /// A folder or an archive named as a table holds no file of the table's kind.
    #[error("the {} {} holds no file with the ending {}", holder(folder), folder.display(), extensions.join(", "))]
    NoFiles {
        /// The folder or the archive.
        folder: PathBuf,
        /// Endings that were looked for.
        extensions: Vec<String>,
    },
    /// No user has a single usable sentence.
    #[error("no user has usable text: {origin} has {users} users in {rows} rows, but no example ({})", unusable(*rule, *mute))]
    NoUsableText {
        /// The source, in words.
        origin: String,
        /// Users seen.
        users: u64,
        /// Rows read.
        rows: u64,
        /// Users who wrote something, of which no example could be made.
        mute: u64,
        /// The rule that cut the text.
        rule: WordRule,
    },
    /// Rows hold nothing that can be used.
    #[error("{origin}: expected {expected}, got none in {rows} rows")]
    NoText {
        /// The texts, in words.
        origin: String,
        /// The things that the rows lack.
        expected: &'static str,
        /// Rows read.
        rows: u64,
    },
    /// A partition that training needs has no users.
    #[error("the {split} partition is empty: {reason}")]
    EmptyPartition {
        /// The partition.
        split: Split,
        /// Reason why the partition is empty, such as the settings that emptied it.
        reason: String,
    },
    /// A vocabulary or its record cannot be used.
    #[error(transparent)]
    Vocabulary(#[from] undertone_vocabulary::VocabularyError),
    /// The training of a tokenizer failed.
    #[error("the tokenizer cannot be trained: {}", words(detail))]
    TokenizerTraining {
        /// The reason for the failure.
        detail: String,
    },
    /// The noise left no word of a private vocabulary.
    #[error(
        "no word's noisy sum passed the threshold of {threshold:.3} users' whole votes: more users, a larger epsilon or delta, or \
         fewer words per user help; this attempt has spent its epsilon and delta all the same"
    )]
    NoPrivateWords {
        /// The threshold, in the unit of a user's norm.
        threshold: f64,
    },
    /// The work was given up on request.
    #[error("interrupted: the corpus was not opened")]
    Interrupted,
    /// A table in memory cannot be read, or holds arrays that are no valid Arrow.
    #[error(
        "table{}: expected valid Arrow data, got: {}",
        of_column(column),
        words(detail)
    )]
    BadTable {
        /// The column; empty where the table as a whole cannot be read.
        column: String,
        /// The reason for the refusal.
        detail: String,
    },
    /// The table in memory that a run was made from is needed again, or is not that table.
    #[error("data.source: expected {expected}, got {got}")]
    Memory {
        /// The table that the settings name.
        expected: String,
        /// A description of the table given.
        got: String,
    },
    /// A guarantee could not be computed.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
    /// Noise could not be made.
    #[error(transparent)]
    Mechanism(#[from] undertone_mechanisms::MechanismError),
    /// The `git` program could not be started.
    #[error("cannot start the program git to read the log of {}: {source}", path.display())]
    NoGitProgram {
        /// The repository.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The `git` program refused.
    #[error("{}: git {command} failed: {}", path.display(), words(detail))]
    GitFailed {
        /// The repository.
        path: PathBuf,
        /// Sub-command.
        command: &'static str,
        /// The last line that git printed.
        detail: String,
    },
    /// A folder is not text grouped by user, or is damaged.
    #[error("{} is not usable grouped text: {}", path.display(), words(detail))]
    BadGrouped {
        /// The folder or the file in it.
        path: PathBuf,
        /// The reason for the refusal.
        detail: String,
    },
    /// A file that would be written exists.
    #[error("{} already exists; give --force to replace it", path.display())]
    OutputExists {
        /// The file.
        path: PathBuf,
    },
    /// A cache file is damaged or was not written by this version.
    #[error("{} is not a usable corpus cache: {}", path.display(), words(detail))]
    BadCache {
        /// The cache file.
        path: PathBuf,
        /// The reason for the refusal.
        detail: String,
    },
}

fn holder(path: &Path) -> &'static str {
    if path.is_file() { "archive" } else { "folder" }
}

/// Maximum number of column names in a message.
const SHOWN_NAMES: usize = 20;

/// The words of a library or another program for a message: longer ones than [`short`] allows.
fn words(text: &str) -> String {
    shortened(text, 4 * 80)
}

/// The reason for which texts give no example, and the way out.
fn unusable(rule: WordRule, mute: u64) -> String {
    const ONE: &str = "a sentence of at least 2 words, or in windows any token";
    let tokenizer = "make a tokenizer, which cuts every language, of public text: \
                     undertone data tokenizer PUBLIC --public --out tokenizer.json";
    match (mute, rule) {
        (0, _) => format!("{ONE}; no row has any text"),
        (mute, WordRule::English) => format!(
            "{ONE}; {mute} of the users wrote text without one. Their text is cut by the rule of English: write words = \"unicode\" for \
             another language, or {tokenizer}"
        ),
        (mute, _) => format!(
            "{ONE}; {mute} of the users wrote text without one. If words do not serve their language, {tokenizer}"
        ),
    }
}

fn of_column(name: &str) -> String {
    match name.is_empty() {
        true => String::new(),
        false => format!(", column {}", quoted(name)),
    }
}

/// The first names, or `none`.
pub(crate) fn list(names: &[String], none: &str) -> String {
    if names.is_empty() {
        return none.to_owned();
    }
    let mut shown: Vec<String> = names.iter().take(SHOWN_NAMES).map(|name| quoted(name)).collect();
    if names.len() > SHOWN_NAMES {
        shown.push(format!("and {} more", names.len() - SHOWN_NAMES));
    }
    shown.join(", ")
}

/// Shorthand for results of this crate.
pub type Result<T, E = DataError> = std::result::Result<T, E>;

/// Turns an operating-system error into [`DataError::Io`].
pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> DataError {
    let path = path.into();
    move |source| DataError::Io { action, path, source }
}

/// A folder or an archive without a file of a table's kind.
pub(crate) fn no_files(folder: &Path, extensions: &[&str]) -> DataError {
    let extensions = extensions.iter().map(|extension| format!(".{extension}"));
    DataError::NoFiles {
        folder: folder.to_owned(),
        extensions: extensions.collect(),
    }
}

/// A table without a column.
pub(crate) fn missing_column(
    file: impl Into<PathBuf>,
    key: &'static str,
    column: &str,
    found: Vec<String>,
) -> DataError {
    DataError::MissingColumn {
        file: file.into(),
        key,
        column: column.to_owned(),
        found,
        hint: Box::default(),
    }
}

/// A setting whose value cannot be used.
pub(crate) fn invalid(key: &'static str, expected: impl Into<String>, got: impl fmt::Display) -> DataError {
    SettingsError::invalid(key, expected, got).into()
}

/// A file without what it should hold.
pub(crate) fn empty(path: impl Into<PathBuf>, expected: &'static str) -> DataError {
    let path = path.into();
    DataError::Empty { path, expected }
}

/// A value of a file that cannot be used.
pub(crate) fn bad_value(
    file: impl Into<PathBuf>,
    place: Place,
    what: impl Into<String>,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> DataError {
    DataError::BadValue {
        file: file.into(),
        place,
        what: what.into(),
        expected: expected.into(),
        got: got.into(),
    }
}

/// A cache file that cannot be used.
pub(crate) fn bad_cache(path: impl Into<PathBuf>, detail: impl Into<String>) -> DataError {
    let (path, detail) = (path.into(), detail.into());
    DataError::BadCache { path, detail }
}

/// Grouped text that cannot be used.
pub(crate) fn bad_grouped(path: impl Into<PathBuf>, detail: impl Into<String>) -> DataError {
    let (path, detail) = (path.into(), detail.into());
    DataError::BadGrouped { path, detail }
}

/// A source in which nobody says anything. `mute` users wrote text that gives no example by `rule`.
pub(crate) fn no_usable_text(
    origin: String,
    (users, mute): (u64, u64),
    rows: u64,
    rule: WordRule,
) -> DataError {
    DataError::NoUsableText {
        origin,
        users,
        rows,
        mute,
        rule,
    }
}

/// Rows without anything that can be used.
pub(crate) fn no_text(origin: String, expected: &'static str, rows: u64) -> DataError {
    DataError::NoText {
        origin,
        expected,
        rows,
    }
}

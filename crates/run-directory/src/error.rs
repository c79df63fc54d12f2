//! The errors of a run directory. Each names the file or key, the expected value and the value found.

use std::path::{Path, PathBuf};

use undertone_coordinator::CoordinatorError;

/// Result of this crate's functions.
pub type Result<T, E = DirectoryError> = std::result::Result<T, E>;

/// An error of reading or writing the files of a run, its configuration among them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The run file is not TOML or does not have the shape of a run file.
    #[error("{file}: {message}")]
    ConfigSyntax {
        /// The run file.
        file: PathBuf,
        /// The parser's message with line, column and excerpt.
        message: String,
    },
    /// A configuration that a program has made does not have the shape of a run file.
    #[error("configuration: {message}")]
    Config {
        /// The parser's message with the place.
        message: String,
    },
    /// A `--set` override is not `key=value`.
    #[error("--set {given:?}: expected KEY=VALUE with a dotted key, for example `clip.norm=0.5`")]
    Override {
        /// The text given.
        given: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The operation that failed, as a verb: "read", "write", ...
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or folder of a run directory is a link, a pipe or a device, or larger than any honest one.
    #[error("{path}: expected {expected}, got {got}")]
    UnusableFile {
        /// The file.
        path: PathBuf,
        /// The expected value.
        expected: String,
        /// A description of the kind of file found.
        got: String,
    },
    /// The configuration of a session, where the command needs words, text or a model that this program can compute.
    #[error(
        "{path} is the configuration of a session: another program has its words and text and computes its model, so this command \
         cannot use it. Load model.safetensors in that program; `undertone verify`, `report` and `publish` read the folder of a session"
    )]
    OfSession {
        /// The configuration.
        path: PathBuf,
    },
    /// A run whose files must not be published, with each reason.
    #[error("{} cannot be published: {}", path.display(), reasons.join("; "))]
    NotPublishable {
        /// The run directory.
        path: PathBuf,
        /// The reasons, each naming its file or key.
        reasons: Vec<String>,
    },
    /// The checkpoint or one of the run's files cannot be understood.
    #[error("{path} is damaged: {message}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason for which the file is refused.
        message: String,
    },
    /// The file that a run should start from does not hold a model of the run's kind.
    #[error("initial model {path}: {source}")]
    InitialModel {
        /// The file.
        path: PathBuf,
        /// The reason for which the file is refused; it names the tensor.
        source: Box<undertone_models::ModelError>,
    },
    /// The file that a run should start from was trained with other words, or with another tokenizer.
    #[error(
        "initial model {path} has a different vocabulary: expected SHA-256 {expected}, found {found}; train both with the same \
         `data.vocabulary`"
    )]
    InitialVocabulary {
        /// The file.
        path: PathBuf,
        /// Digest of the corpus's vocabulary.
        expected: String,
        /// Digest recorded in the file.
        found: String,
    },
    /// The text of the file that a run should start from was cut into words by another rule.
    #[error(
        "initial model {path} was trained with the words of another rule: expected words = \"{expected}\", found \"{found}\"; write \
         words = \"{found}\" in [data] (or in [text] of a task)"
    )]
    InitialWords {
        /// The file.
        path: PathBuf,
        /// The rule of the run.
        expected: &'static str,
        /// The rule of the file.
        found: &'static str,
    },
    /// The initial model has the same tensors as the run's model but computes something different.
    #[error("initial model {path}: `model.{key}`: expected {expected}, found {found}")]
    InitialSetting {
        /// The file.
        path: PathBuf,
        /// Key in the table `[model]`.
        key: &'static str,
        /// The value of this run.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// The operating system gave no entropy.
    #[error("cannot read random bytes for the noise from the operating system: {0}")]
    Entropy(String),
    /// An error of the configuration of the task, of its plan or of one of its rounds.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// A line of a file of the run directory is not one that a run writes.
    #[error("{file}, line {line}: expected {expected}: {message}")]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The expected content of the line.
        expected: &'static str,
        /// The parser's reason.
        message: String,
    },
    /// The run has not written its first line yet, or the folder is no run directory.
    #[error("{file} has no start line: the run has not begun, or its folder is not a run directory")]
    NotStarted {
        /// The file.
        file: PathBuf,
    },
    /// The run directory is already there.
    #[error(
        "run directory {path} already exists: continue the run with --resume, or choose a new name with --set name=NAME"
    )]
    RunExists {
        /// The directory.
        path: PathBuf,
    },
    /// An error of a vocabulary or of its record.
    #[error(transparent)]
    Vocabulary(#[from] undertone_vocabulary::VocabularyError),
}

impl DirectoryError {
    /// A failed operation on a file, with the system's reason.
    #[must_use]
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// A file that cannot be understood, with the reason.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // texts and errors alike, without `&` at every call
    pub fn damaged(path: &Path, message: impl ToString) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            message: message.to_string(),
        }
    }

    /// A required key that is missing.
    #[must_use]
    pub fn missing(key: &str, expected: impl Into<String>) -> Self {
        CoordinatorError::missing(key, expected).into()
    }

    /// Two keys that exclude each other. Both are named as the file has them.
    #[must_use]
    pub fn conflict(key: &str, with: &str, remedy: &str) -> Self {
        CoordinatorError::conflict(key, with, remedy).into()
    }

    /// A key that the rest of the configuration, or the way the run is started, rules out.
    #[must_use]
    pub fn left_out(key: &str, reason: impl Into<String>) -> Self {
        CoordinatorError::left_out(key, reason).into()
    }

    /// A value outside its range.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)] // numbers and strings alike, without `&` at every call
    pub fn value(key: &str, expected: impl Into<String>, got: impl ToString) -> Self {
        CoordinatorError::value(key, expected, got).into()
    }
}

undertone_coordinator::by_the_coordinator!(DirectoryError);

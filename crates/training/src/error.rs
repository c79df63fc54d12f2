//! The errors of a run. Each variant names the file or key, what was expected and what was found.

mod report;

use std::path::{Path, PathBuf};

use undertone_present::numbers::upper_bound;

pub use report::ReportError;

/// Result of this crate's functions.
pub type Result<T, E = TrainingError> = std::result::Result<T, E>;

/// Why a run could not be configured, started, continued or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The run file is not TOML or does not have the shape of a run file.
    #[error("{file}: {message}")]
    ConfigSyntax {
        /// The run file.
        file: PathBuf,
        /// The parser's message with line, column and excerpt.
        message: String,
    },
    /// A value of the run file is outside its range or contradicts another.
    #[error("configuration key `{key}`: expected {expected}, got {got}")]
    ConfigValue {
        /// Dotted key.
        key: String,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// A key that the rest of the run file needs is missing.
    #[error("configuration key `{key}` is missing: expected {expected}")]
    ConfigMissing {
        /// Dotted key.
        key: String,
        /// A value that would be valid.
        expected: String,
    },
    /// A key or table that the rest of the run file rules out.
    #[error("configuration key `{key}` must be left out: {reason}")]
    ConfigConflict {
        /// Dotted key.
        key: String,
        /// The setting that it conflicts with, and the reason.
        reason: String,
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
        /// What would be right.
        expected: String,
        /// A description of the kind of file found.
        got: String,
    },
    /// The run directory is already there.
    #[error(
        "run directory {path} already exists: continue the run with --resume, or choose a new name with --set name=NAME"
    )]
    RunExists {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to resume.
    #[error("no checkpoint to resume in {path}: expected {expected}")]
    NothingToResume {
        /// The directory.
        path: PathBuf,
        /// The file that is missing.
        expected: PathBuf,
    },
    /// The run is over, so that nothing can be resumed.
    #[error(
        "run {path} is finished, so it has no checkpoint to resume from: to train again, choose a new name with --set \
         name=NAME"
    )]
    RunFinished {
        /// The directory.
        path: PathBuf,
    },
    /// A run directory that is not where the run was made, and names files as its data.
    #[error(
        "{path} is a copy of a run directory, or comes from a different machine, so the data files that its config.toml names \
         are not opened: give --base FOLDER to resolve its relative paths in that folder"
    )]
    CopiedRun {
        /// The directory.
        path: PathBuf,
    },
    /// Another process holds the run directory.
    #[error("run directory {path} is in use by a different process; wait until that process has ended")]
    RunLocked {
        /// The directory.
        path: PathBuf,
    },
    /// The checkpoint belongs to another run.
    #[error(
        "checkpoint {path} belongs to a different {what}: expected {expected}, found {found}; resume with the run file and the \
         --set options of the first start (config.toml in the run directory shows the values)"
    )]
    CheckpointMismatch {
        /// The checkpoint file.
        path: PathBuf,
        /// What differs: model, configuration, data.
        what: &'static str,
        /// What this run has.
        expected: String,
        /// What the checkpoint has.
        found: String,
    },
    /// The checkpoint or one of the run's files cannot be understood.
    #[error("{path} is damaged: {message}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The next round would exceed the privacy budget.
    #[error(
        "round {round} would raise epsilon to {} at delta {delta:e}, above the budget of {budget}; the run has spent {}{}",
        upper_bound(*next),
        upper_bound(*spent),
        before_training(*vocabulary, *initial_model)
    )]
    BudgetExceeded {
        /// The round that is refused.
        round: u64,
        /// Epsilon after it.
        next: f64,
        /// The budget.
        budget: f64,
        /// Epsilon before it.
        spent: f64,
        /// At this delta.
        delta: f64,
        /// How much of both the private choice of the words took.
        vocabulary: f64,
        /// How much of both the model took that the run started from.
        initial_model: f64,
    },
    /// The participation schema leaves too few users for a round.
    #[error("round {round}: expected at least {expected} users who may take part again, found {eligible}")]
    TooFewEligible {
        /// The round.
        round: u64,
        /// Number of users per round.
        expected: usize,
        /// Users that the schema admits.
        eligible: usize,
    },
    /// A training partition without users, or an evaluation partition without tokens.
    #[error("the {split} partition of the corpus is empty: {hint}")]
    EmptyPartition {
        /// Which partition.
        split: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The words or tokens are no longer those that the model was trained with.
    #[error(
        "the vocabulary of the corpus differs from {path}: expected SHA-256 {expected}, found {got}; the ids of the model would \
         stand for different words"
    )]
    VocabularyChanged {
        /// The run's vocabulary file.
        path: PathBuf,
        /// Digest of that file.
        expected: String,
        /// Digest of the corpus's vocabulary.
        got: String,
    },
    /// The file that a run should start from does not hold a model of the run's kind.
    #[error("initial model {path}: {source}")]
    InitialModel {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; names the tensor.
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
    /// The file that a run should start from is of a model with the same tensors that computes something else.
    #[error("initial model {path}: `model.{key}`: expected {expected}, found {found}")]
    InitialSetting {
        /// The file.
        path: PathBuf,
        /// Key in the table `[model]`.
        key: &'static str,
        /// What this run has.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// The model diverged.
    #[error(
        "round {round}: the parameters are not finite after the server step; lower `server.learning_rate` or \
         `user_update.learning_rate`"
    )]
    Diverged {
        /// The round.
        round: u64,
    },
    /// A process of a run over several does not fit the others.
    #[error("MPI process {rank}: expected {expected}, got {got}")]
    Rank {
        /// The process.
        rank: usize,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// The operating system gave no entropy.
    #[error("cannot read random bytes for the noise from the operating system: {0}")]
    Entropy(String),
    /// A user's local training failed.
    #[error("round {round}, user {user}: {source}")]
    UserUpdate {
        /// The round.
        round: u64,
        /// Index of the user in the training partition.
        user: usize,
        /// The reason.
        source: Box<TrainingError>,
    },
    /// The gradients of some examples failed.
    #[error("round {round}, examples of users {users:?}: {source}")]
    Examples {
        /// The round.
        round: u64,
        /// Indices of their users in the training partition.
        users: Vec<usize>,
        /// The reason.
        source: Box<TrainingError>,
    },
    /// A round's participants do not keep to the declared schema.
    #[error(transparent)]
    Participation(#[from] crate::violation::Violation),
    /// From the corpus.
    #[error(transparent)]
    Data(#[from] undertone_data::DataError),
    /// From the model.
    #[error(transparent)]
    Model(#[from] undertone_models::ModelError),
    /// From clipping and summing.
    #[error(transparent)]
    Aggregation(#[from] undertone_aggregation::AggregationError),
    /// From secure aggregation.
    #[error(transparent)]
    SecAgg(#[from] undertone_secagg::SecAggError),
    /// From the noise.
    #[error(transparent)]
    Mechanism(#[from] undertone_mechanisms::MechanismError),
    /// From the accountant.
    #[error(transparent)]
    Accounting(#[from] undertone_accounting::AccountingError),
    /// From the report.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// What had been spent before the first round, in words.
fn before_training(vocabulary: f64, initial_model: f64) -> String {
    let part = |epsilon: f64, what: &str| match epsilon > 0.0 {
        true => format!(", {} of it on {what}", upper_bound(epsilon)),
        false => String::new(),
    };
    part(vocabulary, "the private choice of its words")
        + &part(initial_model, "the training of its initial model")
}

impl From<undertone_local::LocalError> for TrainingError {
    fn from(error: undertone_local::LocalError) -> Self {
        use undertone_local::LocalError;
        match error {
            LocalError::Setting { key, expected, got } => Self::ConfigValue { key, expected, got },
            LocalError::Missing { key, expected } => Self::ConfigMissing { key, expected },
            LocalError::Conflict { key, reason } => Self::ConfigConflict { key, reason },
            LocalError::Model(error) => Self::Model(error),
            LocalError::Aggregation(error) => Self::Aggregation(error),
            other => Self::value("user_update", "a user's work that can be computed", other),
        }
    }
}

impl TrainingError {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn missing(key: &str, expected: impl Into<String>) -> Self {
        Self::ConfigMissing {
            key: key.to_owned(),
            expected: expected.into(),
        }
    }

    pub(crate) fn conflict(key: &str, reason: impl Into<String>) -> Self {
        Self::ConfigConflict {
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    #[allow(clippy::needless_pass_by_value)] // numbers and strings alike, without `&` at every call
    pub(crate) fn value(key: &str, expected: impl Into<String>, got: impl ToString) -> Self {
        Self::ConfigValue {
            key: key.to_owned(),
            expected: expected.into(),
            got: got.to_string(),
        }
    }
}

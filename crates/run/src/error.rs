//! The errors of a run. Each variant names the file or key, what was expected and what was found.

use std::path::{Path, PathBuf};

use undertone_coordinator::CoordinatorError;
use undertone_run_directory::error::DirectoryError;

/// Result of this crate's functions.
pub type Result<T, E = RunError> = std::result::Result<T, E>;

/// An error of configuring, starting, continuing or finishing a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A path that holds no trained model.
    #[error("{} holds no model: expected {expected}", path.display())]
    NoModel {
        /// The path.
        path: PathBuf,
        /// The files that hold one.
        expected: String,
    },
    /// An option of a command outside its range.
    #[error("`{option}`: expected {expected}, got {got}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// The accepted values.
        expected: &'static str,
        /// The value given.
        got: String,
    },
    /// A contribution that a round of a session does not take.
    #[error("round {round}, unit {unit}: {reason}")]
    Unit {
        /// The round.
        round: u64,
        /// The place of the unit in the round.
        unit: usize,
        /// The reason.
        reason: String,
    },
    /// A user who is not in a round of a session.
    #[error("round {round}: user {user} is not in the round")]
    Stranger {
        /// The round.
        round: u64,
        /// The user.
        user: usize,
    },
    /// A step of a session that its state does not admit.
    #[error("the session {0}")]
    Session(&'static str),
    /// The directory of an exported task, where the command needs the text of a run.
    #[error(
        "{path} is an exported task of a service, and names no text: to measure its model on text of yours, run `undertone export \
         {path} --layout undertone --out MODEL`, and `undertone pretrain` with a run file of your [data], the task's [model] and \
         initial_model = \"MODEL/model.safetensors\": its first evaluation is that of this model. A task with kind = \"evaluate\" measures it on devices"
    )]
    WithoutText {
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
        /// The part that differs: model, configuration, data.
        what: &'static str,
        /// The value of this run.
        expected: String,
        /// The value of the checkpoint.
        found: String,
    },
    /// A replay of a round, made while the run ran, contradicts its guarantee.
    #[error(
        "round {round}: the replay of this round contradicts the guarantee of the run. Check {check} failed: it asks that {property}. Publish \
         nothing of this run, and report the run file as SECURITY.md says"
    )]
    Contradicted {
        /// The round.
        round: u64,
        /// The name of the check.
        check: String,
        /// The property that does not hold.
        property: String,
    },
    /// A training partition without users, or an evaluation partition without tokens.
    #[error("the {split} partition of the corpus is empty: {hint}")]
    EmptyPartition {
        /// The partition.
        split: &'static str,
        /// A remedy.
        hint: &'static str,
    },
    /// The words or tokens are not those that the model was trained with.
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
    /// A process of a run over several does not fit the others.
    #[error("MPI process {rank}: expected {expected}, got {got}")]
    Rank {
        /// The process.
        rank: usize,
        /// The expected value.
        expected: String,
        /// The actual value.
        got: String,
    },
    /// The training was given up on request, between two users or two rounds.
    #[error("interrupted: the run stands as its last checkpoint left it")]
    Interrupted,
    /// A user's local training failed.
    #[error("round {round}, user {user}: {source}")]
    UserUpdate {
        /// The round.
        round: u64,
        /// Index of the user in the training partition.
        user: usize,
        /// The reason.
        source: Box<RunError>,
    },
    /// The gradients of some examples failed.
    #[error("round {round}, examples of users {users:?}: {source}")]
    Examples {
        /// The round.
        round: u64,
        /// Indices of their users in the training partition.
        users: Vec<usize>,
        /// The reason.
        source: Box<RunError>,
    },
    /// An error of the corpus.
    #[error(transparent)]
    Data(#[from] undertone_data::DataError),
    /// An error of the engine that trains users.
    #[error(transparent)]
    Engine(undertone_local::LocalError),
    /// An error of the configuration of the task, of its plan or of one of its rounds.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorError),
    /// An error of a file of the run directory or of its configuration.
    #[error(transparent)]
    Directory(DirectoryError),
}

impl RunError {
    /// A failed operation on a file, with the system's reason.
    #[must_use]
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        DirectoryError::io(action, path, source).into()
    }

    /// A file that cannot be understood, with the reason.
    #[must_use]
    pub fn damaged(path: &Path, message: impl ToString) -> Self {
        DirectoryError::damaged(path, message).into()
    }

    /// A required key that is missing.
    #[must_use]
    pub fn missing(key: &str, expected: impl Into<String>) -> Self {
        CoordinatorError::missing(key, expected).into()
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

impl From<DirectoryError> for RunError {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Coordinator(error) => Self::Coordinator(error),
            other => Self::Directory(other),
        }
    }
}

undertone_coordinator::by_the_coordinator!(RunError);

impl From<undertone_local::LocalError> for RunError {
    fn from(error: undertone_local::LocalError) -> Self {
        use undertone_local::LocalError;
        match error {
            LocalError::Setting(error) => error.into(),
            LocalError::Model(error) => error.into(),
            LocalError::Aggregation(error) => error.into(),
            other => Self::Engine(other),
        }
    }
}

impl From<undertone_vocabulary::VocabularyError> for RunError {
    fn from(error: undertone_vocabulary::VocabularyError) -> Self {
        Self::Directory(error.into())
    }
}

//! A run from its configuration to its model: open or resume, rounds, evaluations, checkpoints, reports.

mod evaluation;
mod finish;
mod follower;
mod lane;
mod live;
mod open;
pub(crate) mod orders;
pub mod replay;
pub(crate) mod rounds;
pub(crate) mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use undertone_run_directory::files::names::CONFIG_FILE;

use sha2::{Digest, Sha256};
use undertone_data::{Corpus, EosTargets, Partition};
use undertone_models::SequenceModel;

use crate::checkpoint::store::RunStore;
use crate::engine;
use crate::error::{Result, RunError};
use crate::evaluate::{EvaluationSet, UserCounts};
use crate::observer::Observer;
use crate::ranks::{OneProcess, Ranks};
use crate::run_file::RunFile;
use undertone_coordinator::cohorts::Cohorts;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::participation::ParticipationKey;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_coordinator::source::UpdateSource;
use undertone_coordinator::trainings::Training;
use undertone_present::numbers::hex;
use undertone_run_directory::config::{EvaluationConfig, EvaluationSplit, RunConfig};
use undertone_run_directory::files::JsonLines;
use undertone_run_directory::initial_model;
use undertone_run_directory::metrics::{Metrics, StartRecord};
use undertone_run_directory::plan_inputs::trained_model;
use undertone_run_directory::sweep_statement::SweepStatement;

use workspace::RunDirectory;

pub use evaluation::Evaluation;
pub use follower::train_as_follower;

pub use workspace::CorpusProgress;

/// Options for the output folder of a run and its use of the machine. None of them changes the result.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Folder of run directories.
    pub out: PathBuf,
    /// Cores to use.
    pub threads: usize,
    /// Continue the run directory from its checkpoint.
    pub resume: bool,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Summary {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Number of finished rounds.
    pub rounds: u64,
    /// The reason for which the run ended before its last round, if it did.
    pub stopped_early: Option<String>,
    /// Seconds of training, without data, evaluation and reports.
    pub train_seconds: f64,
    /// Number of target tokens trained on in this process.
    pub tokens: u64,
    /// The final evaluation, made of the initial model, where there is one. The difference is the effect of this training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial: Option<Metrics>,
    /// The final evaluation.
    pub metrics: Metrics,
    /// Accuracy of always predicting the most frequent training word, on the same partition.
    pub unigram_accuracy: Option<f64>,
    /// Best reachable accuracy, where the source knows it.
    pub best_accuracy: Option<f64>,
    /// The warning of the plan that the noise of the run leaves nothing of what is learnt, with changes that help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The content of `privacy.json`.
    pub privacy: PrivacyReport,
}

/// Trains the run of a run file.
///
/// # Guarantee
/// Each release is made by [`RunHead::close`](undertone_coordinator::head::RunHead::close) with the plan's noise. The guarantee
/// in `privacy.json` is recomputed from the ledger of the rounds that were made. No round starts that would exceed
/// `privacy.max_epsilon` or `privacy.target_epsilon`.
///
/// # Errors
/// [`RunError`]; a run that fails after its first checkpoint can be resumed.
pub fn train(file: &RunFile, options: &RunOptions, observer: &dyn Observer) -> Result<Summary> {
    train_as_leader(file, options, &OneProcess, observer)
}

/// Trains a candidate of a private sweep, with the statement of the sweep in its directory.
///
/// # Guarantee
/// The guarantee of [`train`], and beside it in `privacy.json` that of the sweep, `selected`.
///
/// # Errors
/// The errors of [`train`]; a statement that the run is no candidate of, or whose guarantee cannot be computed.
pub fn train_candidate(
    file: &RunFile,
    options: &RunOptions,
    sweep: &SweepStatement,
    observer: &dyn Observer,
) -> Result<Summary> {
    check_start(&file.config)?;
    RunDirectory::within(options, &file.config.task.name, |directory| {
        train_in(directory, file, options, &OneProcess, Some(sweep), observer)
    })
}

/// Trains like [`train`], with the help of other processes: this one is rank 0, the others call [`train_as_follower`]. The
/// model's bytes are those of a run in one process.
///
/// # Guarantee
/// The guarantee of [`train`]: noise is drawn here alone, once per round, and added to the sum over all processes.
///
/// # Errors
/// The errors of [`train`] and of the network. On error the followers stay blocked; the launcher (`mpirun`) must end them.
pub fn train_as_leader(
    file: &RunFile,
    options: &RunOptions,
    ranks: &dyn Ranks,
    observer: &dyn Observer,
) -> Result<Summary> {
    let config = &file.config;
    check_start(config)?;
    RunDirectory::within(options, &config.task.name, |directory| {
        train_in(directory, file, options, ranks, None, observer)
    })
}

fn check_start(config: &RunConfig) -> Result<()> {
    config.validate()?;
    engine::check_start(config.engine, &config.task)
}

fn train_in(
    directory: &RunDirectory,
    file: &RunFile,
    options: &RunOptions,
    ranks: &dyn Ranks,
    sweep: Option<&SweepStatement>,
    observer: &dyn Observer,
) -> Result<Summary> {
    let config = &file.config;
    if !options.resume {
        directory.write_sweep(sweep)?;
    }
    if options.resume {
        directory.check_table(file.corpus(), &config.data)?;
    }
    let corpus = match file.corpus() {
        Some(corpus) => corpus.clone(),
        None => directory.open_corpus(&config.data, &file.base, observer)?,
    };
    let corpus = directory.believed(
        corpus,
        &file.base,
        config.initial_model.as_deref(),
        config.initial_adapters.as_deref(),
        options.resume,
    )?;
    let initial = config.initial_model.as_deref();
    let model = initial_model::model(&config.task.model, initial, &file.base, corpus.vocab())?;
    let model = Arc::from(model);
    let (mut run, head) = Run::open(file, directory, &corpus, &model, options, ranks, observer)?;
    let head = run.rounds(head)?;
    run.finish(&head)
}

/// Evaluates the final model of a run directory on a partition.
///
/// Relative paths of the data settings start at `base`, by default at the folder where they started when the run was made.
///
/// # Errors
/// [`RunError`], among them a model file of a different model and a corpus with a different vocabulary.
pub fn evaluate(
    run_dir: &Path,
    base: Option<&Path>,
    split: EvaluationSplit,
    eos: EosTargets,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Metrics> {
    let run = Evaluation::open(run_dir, base, split, eos, observer)?;
    Ok(run.measure(threads, observer)?.0)
}

/// Measures the final model of a run directory for each held-out user, on the targets of the run's last evaluation.
///
/// Relative paths of the data settings start at `base`, as in [`evaluate`].
///
/// PRIVACY: the counts are exact statistics of single people. They stay in memory.
///
/// # Errors
/// The errors of [`evaluate`].
pub fn evaluate_users(
    run_dir: &Path,
    base: Option<&Path>,
    threads: usize,
    observer: &dyn Observer,
) -> Result<UserCounts> {
    let finished = Finished::open(run_dir, base, observer)?;
    let EvaluationConfig {
        split,
        final_max_tokens,
        eos,
        ..
    } = finished.evaluation;
    let set = EvaluationSet::new(&finished.corpus, split, final_max_tokens)?;
    let which = finished.which(split, final_max_tokens, eos);
    let model = finished.model.as_ref();
    let measured = set.by_user(
        model,
        &finished.parameters,
        (which, eos),
        false,
        threads,
        observer,
    )?;
    Ok(measured.1)
}

/// The model of a finished run, with the corpus that it was trained on.
pub(crate) struct Finished {
    pub(crate) corpus: Corpus,
    /// The fraction of each user's texts that the run was not trained on.
    pub(crate) holdback: f64,
    /// The settings of the run's evaluations.
    pub(crate) evaluation: EvaluationConfig,
    pub(crate) model: Box<dyn SequenceModel>,
    pub(crate) parameters: Vec<f32>,
    config: workspace::Trained,
    /// The folder where relative paths start, where the run is no copy.
    base: Option<PathBuf>,
}

impl Finished {
    /// Names the targets of an evaluation and their users.
    fn which(&self, split: EvaluationSplit, max_tokens: Option<u64>, eos: EosTargets) -> String {
        let (corpus, split) = (self.corpus.digest(), split.name());
        format!("{corpus}, {split}, {max_tokens:?} tokens, {eos:?}")
    }

    /// Relative paths of the data settings start at `base`, by default at the folder where they started when the run was made.
    pub(crate) fn open(run_dir: &Path, base: Option<&Path>, observer: &dyn Observer) -> Result<Self> {
        if undertone_run_directory::task::is_exported(run_dir) {
            return Err(RunError::WithoutText {
                path: run_dir.to_owned(),
            });
        }
        let config = workspace::Trained::read(&run_dir.join(CONFIG_FILE))?;
        let directory = RunDirectory::existing(run_dir)?;
        let known_base = directory.known_base(base)?;
        let base = directory.base(base, &config.data)?;
        let corpus = directory.open_corpus(&config.data, &base, observer)?;
        let path = undertone_run_directory::files::vocabulary_file(run_dir);
        let (expected, got) = (
            hex(&Sha256::digest(undertone_run_directory::files::read(&path)?)),
            corpus.vocab().digest(),
        );
        if expected != got {
            return Err(RunError::VocabularyChanged { path, expected, got });
        }
        let (model, parameters) = trained_model(run_dir, &config.model, corpus.vocab())?;
        Ok(Self {
            corpus,
            holdback: config.audit.map_or(0.0, |audit| audit.holdback),
            evaluation: config.evaluation,
            model,
            parameters,
            config,
            base: known_base,
        })
    }
}

/// The number of examples of each user of a partition. Counts saturate at `u32::MAX`.
#[must_use]
pub fn example_counts(users: &Partition<'_>) -> Vec<u32> {
    let count = |examples: usize| u32::try_from(examples).unwrap_or(u32::MAX);
    users.users().map(|user| count(user.num_examples())).collect()
}

/// The driver of a run: everything that a round needs beside the head, which it never holds.
struct Run<'a> {
    config: &'a RunConfig,
    directory: &'a RunDirectory,
    corpus: &'a Corpus,
    model: Arc<dyn SequenceModel>,
    identity: ModelIdentity,
    options: &'a RunOptions,
    ranks: &'a dyn Ranks,
    observer: &'a dyn Observer,
    /// The trainings of the initial model.
    trainings: Vec<Training>,
    planned: Option<GuaranteeRecord>,
    estimated: Option<GuaranteeRecord>,
    randomness: Randomness,
    participation_key: ParticipationKey,
    cohorts: Cohorts,
    source: Box<dyn UpdateSource<Error = RunError> + 'a>,
    periodic: EvaluationSet,
    store: Box<dyn RunStore>,
    /// The coordinates of an audit, where the run has some.
    lane: Option<lane::RunLane>,
    /// The replays of the run beside its neighbours, where it makes some.
    live: Option<live::LiveReplays>,
    metrics: JsonLines,
    /// The digest that the first line of the ledger follows.
    genesis: String,
    train_seconds: f64,
    /// Seconds that the last checkpoint took, until a round has recorded them.
    checkpoint_seconds: f64,
    tokens: u64,
    start: StartRecord,
    stopped_early: Option<String>,
    /// `true` if a round was refused because of the users who could take part in it.
    starved: bool,
}

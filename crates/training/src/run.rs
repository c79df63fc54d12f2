//! A run from its configuration to its model: open or resume, rounds, evaluations, checkpoints, reports.

mod privacy_report;
pub(crate) mod workspace;

use std::path::{Path, PathBuf};
use std::time::Instant;

use rand_core::Rng;
use sha2::{Digest, Sha256};
use undertone_data::{Corpus, EosTargets, Partition, Split};
use undertone_models::SequenceModel;

use crate::checkpoint::{Checkpoint, State};
use crate::cohort::{self, Sampling};
use crate::config::{EvaluationSplit, RunConfig, RunFile};
use crate::error::{Result, TrainingError};
use crate::evaluate::{EvaluationSet, Metrics};
use crate::plan::{Population, PrivacyPlan, RoundPlan, Spending};
use crate::random::{Purpose, Randomness};
use crate::record::{
    EvaluationRecord, GuaranteeRecord, LedgerEntry, MetricsLine, PrivacyReport, RoundRecord, StartRecord,
};
use crate::round;
use crate::server_optimizer::ServerOptimizer;
use crate::update::{LocalTask, LocalWorker, OnOverflow, UserOutcome};

use workspace::RunDirectory;

pub use workspace::{CONFIG_FILE, LEDGER_FILE, METRICS_FILE, MODEL_FILE, PRIVACY_FILE, VOCAB_FILE};

/// Where a run writes and how it uses the machine; nothing here changes its result.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Folder of run directories.
    pub out: PathBuf,
    /// Cores to use.
    pub threads: usize,
    /// Continue the run directory from its checkpoint.
    pub resume: bool,
}

/// What happens in a run, for whoever shows it.
pub trait Observer: Sync {
    /// The corpus is being read: stage, amount done, total where it is known.
    fn on_corpus(&self, _stage: &str, _done: u64, _total: Option<u64>) {}
    /// Everything is ready; `planned` is the guarantee of the whole run, before the first round.
    fn on_start(&self, _start: &StartRecord, _planned: Option<&GuaranteeRecord>, _resumed_at: u64) {}
    /// A round starts with this many users.
    fn on_round_start(&self, _round: u64, _cohort: usize) {}
    /// A user of the round is done. Called from several threads.
    fn on_user(&self) {}
    /// A round is done.
    fn on_round(&self, _round: &RoundRecord) {}
    /// The model was evaluated.
    fn on_evaluation(&self, _evaluation: &EvaluationRecord) {}
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Summary {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Rounds finished.
    pub rounds: u64,
    /// Why the run ended before its last round, if it did.
    pub stopped_early: Option<String>,
    /// Seconds of training, without data, evaluation and reports.
    pub train_seconds: f64,
    /// Target tokens trained on in this process.
    pub tokens: u64,
    /// The final evaluation.
    pub metrics: Metrics,
    /// Accuracy of always predicting the most frequent training word, on the same partition.
    pub unigram_accuracy: Option<f64>,
    /// Best reachable accuracy, where the source knows it.
    pub best_accuracy: Option<f64>,
    /// What `privacy.json` says.
    pub privacy: PrivacyReport,
}

/// Trains the run of a run file.
///
/// # Guarantee
/// Every release is made by [`round::release`] with the plan's noise; the guarantee in `privacy.json` is recomputed from
/// the ledger of the rounds that were made. No round starts that would exceed `privacy.max_epsilon` or
/// `privacy.target_epsilon`.
///
/// # Errors
/// [`TrainingError`]; a run that fails after its first checkpoint can be resumed.
pub fn train(file: &RunFile, options: &RunOptions, observer: &dyn Observer) -> Result<Summary> {
    let config = &file.config;
    config.validate()?;
    let directory = RunDirectory::prepare(&options.out, &config.name, options.resume)?;
    let result = train_in(&directory, file, options, observer);
    if result.is_err() {
        // A run that never started is no run: the name is free again.
        directory.discard_unstarted();
    }
    result
}

fn train_in(
    directory: &RunDirectory,
    file: &RunFile,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Summary> {
    let config = &file.config;
    let corpus = directory.open_corpus(&config.data, &file.base, observer)?;
    let model = config.model.build(corpus.vocab().len())?;
    let mut run = Run::open(file, directory, &corpus, model.as_ref(), options, observer)?;
    run.rounds()?;
    run.finish()
}

/// Evaluates the final model of a run directory on a partition.
///
/// Relative paths of the data settings start at `base`, by default where they started when the run was made.
///
/// # Errors
/// [`TrainingError`], among them a model file of another model and a corpus with another vocabulary.
pub fn evaluate(
    run_dir: &Path,
    base: Option<&Path>,
    split: EvaluationSplit,
    eos: EosTargets,
    threads: usize,
    observer: &dyn Observer,
) -> Result<Metrics> {
    let config = workspace::Trained::read(&run_dir.join(CONFIG_FILE))?;
    let directory = RunDirectory::existing(run_dir)?;
    let recorded = directory.base();
    let base = base.or(recorded.as_deref()).unwrap_or(Path::new("."));
    let corpus = directory.open_corpus(&config.data, base, observer)?;
    let vocabulary = crate::files::read(&run_dir.join(VOCAB_FILE))?;
    if vocabulary != corpus.vocab().to_file_contents().as_bytes() {
        return Err(TrainingError::VocabularyChanged {
            path: run_dir.join(VOCAB_FILE),
        });
    }
    let model = config.model.build(corpus.vocab().len())?;
    let bytes = crate::files::read(&run_dir.join(MODEL_FILE))?;
    let parameters = undertone_models::weights::from_safetensors(model.layout(), &bytes)?;
    let mut generator = Randomness::new(Some(0))?.generator(Purpose::Evaluation, 0, 0);
    let set = EvaluationSet::new(
        &corpus.partition(data_split(split)),
        split.name(),
        None,
        &mut generator,
    )?;
    set.evaluate(model.as_ref(), &parameters, eos, true, threads)
}

pub(crate) fn data_split(split: EvaluationSplit) -> Split {
    match split {
        EvaluationSplit::Validation => Split::Validation,
        EvaluationSplit::Test => Split::Test,
    }
}

/// Hex SHA-256 of parameters as little-endian bytes.
fn digest_of(parameters: &[f32]) -> String {
    let mut hasher = Sha256::new();
    let mut buffer = [0; 4096];
    for block in parameters.chunks(buffer.len() / 4) {
        for (bytes, value) in buffer.as_chunks_mut().0.iter_mut().zip(block) {
            *bytes = value.to_le_bytes();
        }
        hasher.update(&buffer[..4 * block.len()]);
    }
    workspace::hex(&hasher.finalize())
}

/// A run between two rounds.
struct Run<'a> {
    config: &'a RunConfig,
    directory: &'a RunDirectory,
    corpus: &'a Corpus,
    users: Partition<'a>,
    model: &'a dyn SequenceModel,
    options: &'a RunOptions,
    observer: &'a dyn Observer,
    plan: PrivacyPlan,
    spending: Spending,
    randomness: Randomness,
    workers: Vec<LocalWorker>,
    periodic: EvaluationSet,
    files: workspace::RunFiles,
    parameters: Vec<f32>,
    optimizer: ServerOptimizer,
    round: u64,
    train_seconds: f64,
    tokens: u64,
    start: StartRecord,
    stopped_early: Option<String>,
}

impl<'a> Run<'a> {
    fn open(
        file: &'a RunFile,
        directory: &'a RunDirectory,
        corpus: &'a Corpus,
        model: &'a dyn SequenceModel,
        options: &'a RunOptions,
        observer: &'a dyn Observer,
    ) -> Result<Self> {
        let RunFile { config, base } = file;
        let users = corpus.partition(Split::Train);
        if users.num_users() == 0 {
            let hint = "loosen `data.min_tokens` or `data.min_examples`, or check `data.split`";
            return Err(TrainingError::EmptyPartition { split: "train", hint });
        }
        let randomness = Randomness::new(config.seed)?;
        let plan = PrivacyPlan::new(config, model.layout(), population(config, &users))?;
        // Fails before any work when the budget does not allow a single round, or the accountant cannot evaluate the plan.
        let planned = plan.planned()?;
        Spending::new(&plan).check_budget(&plan, 0, plan.round(0).noise_multiplier)?;
        let split = config.evaluation.split;
        let held_out = corpus.partition(data_split(split));
        let mut generator = randomness.generator(Purpose::Evaluation, 0, 0);
        let periodic = EvaluationSet::new(
            &held_out,
            split.name(),
            config.evaluation.max_tokens,
            &mut generator,
        )?;
        let longest = workspace::longest_example(&users);
        let most_examples = users.users().map(|user| user.num_examples()).max().unwrap_or(0);
        let workers = (0..options.threads.max(1))
            .map(|_| LocalWorker::new(model, &config.user_update, longest, most_examples))
            .collect();
        let start = StartRecord {
            run: config.name.clone(),
            model: config.model.family().to_owned(),
            parameters: model.layout().len(),
            train_users: users.num_users(),
            train_tokens: users.total_tokens(),
            rounds: config.rounds,
            user_sizes: workspace::user_sizes(&users),
            best_accuracy: corpus.best_accuracy().map(|best| match config.evaluation.eos {
                EosTargets::Included => best.with_eos,
                EosTargets::Excluded => best.without_eos,
            }),
            unigram_accuracy: corpus.unigram_accuracy(data_split(split), config.evaluation.eos),
        };
        let parameters = model.initial_params(randomness.generator(Purpose::Initialisation, 0, 0).next_u64());
        let optimizer = ServerOptimizer::new(config.server, parameters.len(), config.rounds);
        let checkpoint = match options.resume {
            true => Some(directory.read_checkpoint(config, corpus, &model_name(config, model))?),
            false => None,
        };
        let files = match &checkpoint {
            Some(checkpoint) => directory.reopen_files(&checkpoint.state)?,
            None => directory.create_files(config, corpus, base)?,
        };
        let mut run = Self {
            spending: Spending::new(&plan),
            files,
            config,
            directory,
            corpus,
            users,
            model,
            options,
            observer,
            plan,
            randomness,
            workers,
            periodic,
            parameters,
            optimizer,
            round: 0,
            train_seconds: 0.0,
            tokens: 0,
            start,
            stopped_early: None,
        };
        match checkpoint {
            Some(checkpoint) => run.restore(checkpoint)?,
            None => {
                run.files.metrics.append(&MetricsLine::Start(run.start.clone()))?;
                run.checkpoint()?;
            }
        }
        observer.on_start(&run.start, planned.as_ref(), run.round);
        Ok(run)
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<()> {
        let entries = workspace::read_ledger(&self.directory.file(LEDGER_FILE))?;
        let damaged = |message: String| TrainingError::Damaged {
            path: crate::checkpoint::path(self.directory.path()),
            message,
        };
        if entries.len() as u64 != checkpoint.state.rounds {
            return Err(damaged(format!(
                "{} rounds, but the ledger has {}",
                checkpoint.state.rounds,
                entries.len()
            )));
        }
        if checkpoint.parameters.len() != self.parameters.len() {
            return Err(damaged(format!(
                "{} parameters, expected {}",
                checkpoint.parameters.len(),
                self.parameters.len()
            )));
        }
        // PRIVACY: what was spent is what the ledger says, not what the configuration would have planned.
        for entry in &entries {
            self.check_entry(entry)?;
            self.spending.compose(&self.plan, entry.noise_multiplier, 1)?;
        }
        if !self
            .optimizer
            .restore(checkpoint.state.steps, checkpoint.first, checkpoint.second)
        {
            return Err(damaged(
                "its optimizer state does not fit `server.optimizer`".to_owned(),
            ));
        }
        self.parameters = checkpoint.parameters;
        self.round = checkpoint.state.rounds;
        self.train_seconds = checkpoint.state.train_seconds;
        Ok(())
    }

    /// PRIVACY: the ledger's noise is priced with the plan's sampling, so the two must agree on it.
    fn check_entry(&self, entry: &LedgerEntry) -> Result<()> {
        let planned = (
            self.config.cohort.sampling.name(),
            self.plan.sampling_probability(),
            self.users.num_users() as u64,
        );
        let found = (&entry.sampling[..], entry.sampling_probability, entry.population);
        if planned == found {
            return Ok(());
        }
        Err(TrainingError::Damaged {
            path: self.directory.file(LEDGER_FILE),
            message: format!(
                "round {}: sampled as {found:?}, the run samples as {planned:?}",
                entry.round
            ),
        })
    }

    fn rounds(&mut self) -> Result<()> {
        while self.round < self.config.rounds {
            let plan = self.plan.round(self.round);
            if let Err(error) = self
                .spending
                .check_budget(&self.plan, self.round, plan.noise_multiplier)
            {
                match error {
                    TrainingError::BudgetExceeded { .. } => self.stopped_early = Some(error.to_string()),
                    other => return Err(other),
                }
                break;
            }
            self.one_round(&plan)?;
            let every = self.config.evaluation.every;
            let evaluates = every > 0 && self.round.is_multiple_of(every) && self.round < self.config.rounds;
            // PRIVACY: a model whose accuracy is shown is a released model; its round can then no longer be made again.
            if evaluates
                || self.round.is_multiple_of(self.config.checkpoint.every)
                || self.round == self.config.rounds
            {
                self.checkpoint()?;
            }
            if evaluates {
                self.evaluate_periodic()?;
            }
        }
        if self.stopped_early.is_some() {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn one_round(&mut self, plan: &RoundPlan) -> Result<()> {
        let started = Instant::now();
        let round = self.round;
        let mut generator = self.randomness.generator(Purpose::Cohort, round, 0);
        let population = self.users.num_users();
        let cohort = match self.config.cohort.sampling {
            Sampling::Poisson => {
                cohort::poisson(population, self.plan.sampling_probability(), &mut generator)
            }
            Sampling::FixedSize => {
                cohort::fixed_size(population, self.plan.users_per_round() as usize, &mut generator)
            }
        };
        self.observer.on_round_start(round, cohort.len());
        let task = LocalTask {
            round,
            theta: &self.parameters,
            layout: self.model.layout(),
            clipping: &plan.clipping,
            config: &self.config.user_update,
            on_overflow: if self.plan.is_private() {
                OnOverflow::ZeroUpdate
            } else {
                OnOverflow::Fail
            },
            randomness: &self.randomness,
        };
        let observer = self.observer;
        let (average, outcomes) = round::release(
            &cohort,
            &self.users,
            &task,
            plan,
            self.plan.estimator(),
            &mut self.workers,
            &|| observer.on_user(),
        )?;
        let release_norm = average
            .values()
            .iter()
            .map(|&value| f64::from(value).powi(2))
            .sum::<f64>()
            .sqrt();
        self.optimizer.apply(round, &average, &mut self.parameters)?;
        self.model.constrain(&mut self.parameters);
        self.spending.compose(&self.plan, plan.noise_multiplier, 1)?;
        self.files.ledger.append(&LedgerEntry {
            round,
            sampling: self.config.cohort.sampling.name().to_owned(),
            sampling_probability: self.plan.sampling_probability(),
            population: population as u64,
            cohort_size: cohort.len() as u64,
            sensitivity: plan.sensitivity,
            noise_std: plan.noise_std,
            noise_multiplier: plan.noise_multiplier,
            parameters_sha256: digest_of(&self.parameters),
        })?;
        self.round += 1;
        let seconds = started.elapsed().as_secs_f64();
        self.train_seconds += seconds;
        let record = self.record(round, plan, &outcomes, release_norm, seconds)?;
        self.tokens += record.tokens;
        self.files.metrics.append(&MetricsLine::Round(record.clone()))?;
        self.observer.on_round(&record);
        Ok(())
    }

    fn record(
        &self,
        round: u64,
        plan: &RoundPlan,
        outcomes: &[UserOutcome],
        release_norm: f64,
        seconds: f64,
    ) -> Result<RoundRecord> {
        let tokens = outcomes.iter().map(|outcome| outcome.tokens).sum::<u64>();
        let loss = outcomes.iter().map(|outcome| outcome.loss_sum).sum::<f64>();
        let norms: Vec<f64> = outcomes.iter().map(|outcome| outcome.norm).collect();
        let clipped = outcomes.iter().filter(|outcome| outcome.clipped).count();
        let dimension = self.parameters.len() as f64;
        let noise_norm = plan.noise_std * dimension.sqrt();
        Ok(RoundRecord {
            round,
            cohort_size: outcomes.len(),
            cohort_weight: outcomes.iter().map(|outcome| outcome.weight).sum(),
            tokens,
            train_loss: loss / tokens.max(1) as f64,
            clip_norm: plan.clipping.bound(),
            discarded: outcomes.iter().filter(|outcome| outcome.discarded).count(),
            clipped_fraction: clipped as f64 / outcomes.len().max(1) as f64,
            update_norms: workspace::histogram(&norms, 24),
            release_norm,
            noise_std: plan.noise_std,
            // The signal's energy is what the release has beyond the noise's; an estimate, and post-processing.
            signal_to_noise: (noise_norm > 0.0)
                .then(|| (release_norm.powi(2) - noise_norm.powi(2)).max(0.0).sqrt() / noise_norm),
            epsilon: self.spending.epsilon(&self.plan)?,
            seconds,
        })
    }

    fn evaluate_periodic(&mut self) -> Result<()> {
        let eos = self.config.evaluation.eos;
        let metrics =
            self.periodic
                .evaluate(self.model, &self.parameters, eos, false, self.options.threads)?;
        self.record_evaluation(metrics)
    }

    fn record_evaluation(&mut self, metrics: Metrics) -> Result<()> {
        let record = EvaluationRecord {
            round: self.round,
            split: self.config.evaluation.split.name().to_owned(),
            train_seconds: self.train_seconds,
            metrics,
        };
        self.files
            .metrics
            .append(&MetricsLine::Evaluation(record.clone()))?;
        self.observer.on_evaluation(&record);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        // PRIVACY: the ledger is durable before the parameters it accounts for can be read from disk.
        self.files.ledger.sync()?;
        self.files.metrics.sync()?;
        self.write_privacy()?;
        let (steps, [(_, first), (_, second)]) = self.optimizer.state();
        let checkpoint = Checkpoint {
            state: State {
                rounds: self.round,
                steps,
                ledger_bytes: self.files.ledger.length(),
                metrics_bytes: self.files.metrics.length(),
                train_seconds: self.train_seconds,
                model: model_name(self.config, self.model),
                config_sha256: workspace::config_digest(self.config)?,
                data_sha256: self.corpus.digest().to_owned(),
            },
            parameters: self.parameters.clone(),
            first: first.to_vec(),
            second: second.to_vec(),
        };
        checkpoint.write(self.directory.path())
    }

    fn finish(mut self) -> Result<Summary> {
        let split = self.config.evaluation.split;
        let held_out = self.corpus.partition(data_split(split));
        let mut generator = self.randomness.generator(Purpose::Evaluation, 1, 0);
        let set = EvaluationSet::new(
            &held_out,
            split.name(),
            self.config.evaluation.final_max_tokens,
            &mut generator,
        )?;
        let eos = self.config.evaluation.eos;
        let metrics = set.evaluate(self.model, &self.parameters, eos, true, self.options.threads)?;
        self.record_evaluation(metrics.clone())?;
        self.checkpoint()?;
        let description = serde_json::json!({
            "model": self.config.model,
            "rounds": self.round,
            "vocabulary": VOCAB_FILE,
        });
        let layout = self.model.layout();
        let bytes = undertone_models::weights::to_safetensors(
            layout,
            &self.parameters,
            Some(&description.to_string()),
        )?;
        crate::files::write_atomic(&self.directory.file(MODEL_FILE), &bytes)?;
        let privacy = self.write_privacy()?;
        crate::report::write(self.directory.path())?;
        Ok(Summary {
            run_dir: self.directory.path().to_owned(),
            rounds: self.round,
            stopped_early: self.stopped_early,
            train_seconds: self.train_seconds,
            tokens: self.tokens,
            metrics,
            unigram_accuracy: self.start.unigram_accuracy,
            best_accuracy: self.start.best_accuracy,
            privacy,
        })
    }

    /// Recomputes the guarantee from the ledger on disk and writes `privacy.json`.
    fn write_privacy(&mut self) -> Result<PrivacyReport> {
        self.files.ledger.sync()?;
        let entries = workspace::read_ledger(&self.directory.file(LEDGER_FILE))?;
        let mut observed = Spending::new(&self.plan);
        for entry in &entries {
            self.check_entry(entry)?;
            observed.compose(&self.plan, entry.noise_multiplier, 1)?;
        }
        let report = privacy_report::report(
            self.config,
            &self.plan,
            self.corpus.vocab().provenance(),
            observed.record(&self.plan)?,
        )?;
        let mut text = serde_json::to_vec_pretty(&report).map_err(|error| {
            TrainingError::io("writing", &self.directory.file(PRIVACY_FILE), error.into())
        })?;
        text.push(b'\n');
        crate::files::write_atomic(&self.directory.file(PRIVACY_FILE), &text)?;
        Ok(report)
    }
}

/// Family and size, as checkpoints name the model.
fn model_name(config: &RunConfig, model: &dyn SequenceModel) -> String {
    format!("{} ({} parameters)", config.model.family(), model.layout().len())
}

/// Number of training users and their total weight.
fn population(config: &RunConfig, users: &Partition<'_>) -> Population {
    let total_weight = match config.user_update.weight_cap {
        None => users.num_users() as f64,
        Some(cap) => (0..users.num_users())
            .map(|index| undertone_aggregation::user_weight(users.user(index).num_examples() as u64, cap))
            .sum(),
    };
    Population {
        users: users.num_users() as u64,
        total_weight,
    }
}

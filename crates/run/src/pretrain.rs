//! Pre-training on public text: ordinary mini-batch training over the shuffled examples of all users.
//!
//! It is **not private**: no update is clipped and no noise is added, so the text has to be public. It leaves a run
//! directory like a private run's (configuration, vocabulary, metrics, model, report), and private training starts from
//! its `model.safetensors` (see [`initial_model`]).
//!
//! A step takes the place of a federated round in the records: its cohort are the users whose examples the step read.
//!
//! Source: \[Gboard\] section 2.3 and Figure 3 (Xu et al., "Federated Learning of Gboard Language Models with Differential
//! Privacy", 2023): pre-training on public data before private training.

mod config;
mod gradient;
mod inputs;
mod order;

use std::time::Instant;

use undertone_data::Split;

use crate::checkpoint::{Checkpoint, Snapshot, State};
use crate::driver::rounds::ends_with_evaluation;
use crate::driver::workspace::RunDirectory;
use crate::driver::{RunOptions, Summary};
use crate::error::{Result, RunError};
use crate::evaluate::EvaluationSet;
use crate::local_sources::LocalSources;
use crate::observer::{Observer, proceed};
use undertone_coordinator::CoordinatorError;
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::outlet::WITHOUT_NOISE;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_run_directory::files::JsonLines;
use undertone_run_directory::files::names::METRICS_FILE;
use undertone_run_directory::initial_model::{self, SourceName, Training, starting_parameters};
use undertone_run_directory::metrics::{
    EvaluationRecord, Histogram, Metrics, MetricsLine, RoundRecord, StartRecord,
};

pub use config::{CentralTrainingConfig, PretrainConfig, PretrainFile};
use gradient::PartWorker;
use inputs::TrainingInputs;
use order::ExampleOrder;

/// The warning of each pre-training.
pub const NOT_PRIVATE: &str = "Pre-training is NOT private: nothing is clipped and no noise is added, so the model may \
                               repeat what it read. Use it for public text only.";

/// Runs the pre-training of a file.
///
/// # Guarantee
/// PRIVACY: none. With the same configuration the parameters have the same bits at any number of threads and after any
/// resume (on processors with the same vector instructions).
///
/// # Errors
/// [`RunError`]; a pre-training that fails after its first checkpoint can be resumed.
///
/// # Example
/// ```no_run
/// use undertone_run::{pretrain, RunOptions, Silent};
///
/// let file = pretrain::PretrainFile::read("examples/public-pretrain.toml".as_ref(), &[])?;
/// let options = RunOptions { out: "runs".into(), threads: 2, resume: false };
/// let summary = pretrain::pretrain(&file, &options, &Silent)?;
/// println!("{:.2} %", 100.0 * summary.metrics.top1);
/// # Ok::<(), undertone_run::RunError>(())
/// ```
pub fn pretrain(file: &PretrainFile, options: &RunOptions, observer: &dyn Observer) -> Result<Summary> {
    file.config.validate()?;
    RunDirectory::within(options, &file.config.name, |directory| {
        pretrain_in(directory, file, options, observer)
    })
}

fn pretrain_in(
    directory: &RunDirectory,
    file: &PretrainFile,
    options: &RunOptions,
    observer: &dyn Observer,
) -> Result<Summary> {
    let config = &file.config;
    let corpus = directory.open_corpus(&config.data, &file.base, observer)?;
    // The text of a pre-training is public on the word of the caller, unless its own record says otherwise.
    let corpus = match undertone_data::record_of_source(&config.data.source, &file.base)? {
        Some(_) => corpus,
        None => corpus.with_public_text(),
    };
    let initial = config.initial_model.as_deref();
    let corpus = directory.believed(corpus, &file.base, initial, None, options.resume)?;
    let model = initial_model::model(&config.model, initial, &file.base, corpus.vocab())?;
    let users = corpus.partition(Split::Train);
    let order = ExampleOrder::new(&users, config.training.batch_size)?;
    let inputs = TrainingInputs {
        file,
        directory,
        corpus: &corpus,
        model: model.as_ref(),
        identity: &ModelIdentity::new(model.as_ref()),
        users: &users,
        options,
        observer,
    };
    let mut pretraining = Pretraining::open(inputs, order)?;
    pretraining.steps()?;
    pretraining.finish()
}

/// A pre-training between two steps.
struct Pretraining<'a> {
    inputs: TrainingInputs<'a>,
    order: ExampleOrder<'a>,
    randomness: Randomness,
    workers: Vec<PartWorker>,
    periodic: EvaluationSet,
    metrics: JsonLines,
    parameters: Vec<f32>,
    optimizer: ServerOptimizer,
    step: u64,
    train_seconds: f64,
    tokens: u64,
    start: StartRecord,
    /// The trainings of the initial model.
    trainings: Vec<Training>,
    /// `true` if the record of the text says that it was made from people's text.
    from_people: bool,
}

impl<'a> Pretraining<'a> {
    fn open(inputs: TrainingInputs<'a>, order: ExampleOrder<'a>) -> Result<Self> {
        let PretrainFile { config, base } = inputs.file;
        let randomness = Randomness::seeded(config.seed);
        let longest = crate::engine::longest_example(inputs.users);
        let workers = (0..inputs.options.threads.max(1))
            .map(|_| PartWorker::new(inputs.model, longest))
            .collect();
        let periodic = inputs.evaluation_set(config.evaluation.sample_tokens())?;
        let checkpoint = match inputs.options.resume {
            true => {
                let name = inputs.model_name();
                let parameters = inputs.model.layout().len();
                Some(
                    inputs
                        .directory
                        .read_checkpoint(config, inputs.corpus, &name, parameters)?,
                )
            }
            false => None,
        };
        let from_people = undertone_data::record_of_source(&config.data.source, base)?.is_some();
        let source = match &checkpoint {
            Some(_) => SourceName::of(inputs.directory.path(), &config.data)?,
            None => inputs.directory.source_name(&config.data)?,
        };
        let mut trainings = match (&checkpoint, &config.initial_model) {
            (Some(_), _) => undertone_run_directory::plan_inputs::trainings_of(inputs.directory.path())?,
            (None, Some(file)) => initial_model::trained_on(&base.join(file))?,
            (None, None) => Vec::new(),
        };
        source.rename(&mut trainings);
        let metrics_file = inputs.directory.file(METRICS_FILE);
        let metrics = match &checkpoint {
            Some(checkpoint) => JsonLines::open(&metrics_file, checkpoint.state.metrics_bytes)?,
            None => {
                let own = &source.public;
                let places = undertone_data::places_of(&config.data.source, base)?;
                let local = LocalSources::of_start(base, config.initial_model.as_deref(), None)?;
                local.rename(&mut trainings, own, &places);
                local.write(inputs.directory.path(), own, places)?;
                inputs
                    .directory
                    .write_setting(config, inputs.corpus, base, &trainings, &source)?;
                JsonLines::open(&metrics_file, 0)?
            }
        };
        // A resumed training has its parameters from the checkpoint; the file may be gone by then.
        let initial = config.initial_model.as_deref().filter(|_| checkpoint.is_none());
        let words = inputs.corpus.vocab();
        let parameters = starting_parameters(&config.model, initial, base, inputs.model, words, &randomness)?;
        let optimizer =
            ServerOptimizer::new(config.training.optimizer(), inputs.model.layout(), config.steps)
                .with_warm_up(config.training.warm_up_steps);
        let mut pretraining = Self {
            order,
            randomness,
            workers,
            periodic,
            metrics,
            parameters,
            optimizer,
            step: 0,
            train_seconds: 0.0,
            tokens: 0,
            start: inputs.start_record(),
            trainings,
            from_people,
            inputs,
        };
        match checkpoint {
            Some(checkpoint) => pretraining.restore(checkpoint)?,
            None => {
                let start = MetricsLine::Start(pretraining.start.clone());
                pretraining.metrics.append(&start)?;
                pretraining.checkpoint()?;
            }
        }
        inputs
            .observer
            .on_start(&pretraining.start, None, pretraining.step);
        Ok(pretraining)
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<()> {
        let Checkpoint {
            state,
            parameters,
            first,
            second,
        } = checkpoint;
        let fits = parameters.len() == self.parameters.len();
        if !fits || !self.optimizer.restore(state.steps, first, second) {
            let path = crate::checkpoint::path(self.inputs.directory.path());
            let message = "its parameters or optimizer state do not fit the configuration";
            return Err(RunError::damaged(&path, message));
        }
        self.parameters = parameters;
        self.step = state.rounds;
        self.train_seconds = state.train_seconds;
        Ok(())
    }

    fn steps(&mut self) -> Result<()> {
        let config = &self.inputs.file.config;
        let due = |step: u64, every: u64| every > 0 && step.is_multiple_of(every);
        let evaluates = |step: u64| due(step, config.evaluation.every) && (1..config.steps).contains(&step);
        // An evaluation that was ended is made by the training that goes on.
        if evaluates(self.step) && !ends_with_evaluation(self.inputs.directory, self.step)? {
            self.evaluate()?;
        }
        let mut kept = self.step;
        while self.step < config.steps {
            if let Err(ended) = proceed(self.inputs.observer) {
                if kept < self.step {
                    self.checkpoint()?;
                }
                return Err(ended);
            }
            self.one_step()?;
            if due(self.step, config.checkpoint.every) || self.step == config.steps {
                self.checkpoint()?;
                kept = self.step;
            }
            if evaluates(self.step) {
                self.evaluate()?;
            }
        }
        Ok(())
    }

    /// Evaluates on the way. An evaluation that the observer ends leaves a checkpoint, so that every step stays.
    fn evaluate(&mut self) -> Result<()> {
        match self.inputs.measured(&self.periodic, &self.parameters, false) {
            Ok(metrics) => self.record_evaluation(metrics),
            Err(RunError::Interrupted) => {
                self.checkpoint()?;
                Err(RunError::Interrupted)
            }
            Err(error) => Err(error),
        }
    }

    fn one_step(&mut self) -> Result<()> {
        let started = Instant::now();
        let step = self.step;
        let batch = self.order.batch(step, &self.randomness);
        self.inputs.observer.on_round_start(step, batch.users);
        let bos = self.inputs.users.special().bos;
        let layout = std::sync::Arc::new(self.inputs.model.layout().clone());
        let (average, stats) = gradient::descent(
            step,
            &layout,
            &self.parameters,
            &batch.examples,
            bos,
            &mut self.workers,
        )?;
        let gradient_norm = average
            .values()
            .iter()
            .map(|&value| f64::from(value).powi(2))
            .sum::<f64>()
            .sqrt();
        self.optimizer
            .apply(step, &average, &mut self.parameters)
            .map_err(|error| match error {
                CoordinatorError::Diverged { round } => RunError::value(
                    "training.learning_rate",
                    "a rate at which the parameters stay finite",
                    format!("{} in step {round}", self.optimizer.learning_rate(round)),
                ),
                other => other.into(),
            })?;
        self.inputs.model.constrain(&mut self.parameters);
        self.step += 1;
        let seconds = started.elapsed().as_secs_f64();
        self.train_seconds += seconds;
        self.tokens += stats.targets as u64;
        let record = RoundRecord {
            round: step,
            cohort_size: batch.users,
            cohort_weight: batch.examples.len() as f64,
            tokens: Some(stats.targets as u64),
            train_loss: Some(stats.mean_loss()),
            discarded: Some(0),
            clipped_fraction: Some(0.0),
            update_norms: Some(Histogram::default()),
            release_norm: gradient_norm,
            seconds,
            ..RoundRecord::default()
        };
        self.metrics.append(&MetricsLine::Round(record.clone()))?;
        self.inputs.observer.on_round(&record);
        Ok(())
    }

    fn record_evaluation(&mut self, metrics: Metrics) -> Result<()> {
        let record = EvaluationRecord {
            round: self.step,
            split: self.inputs.file.config.evaluation.split.name().to_owned(),
            train_seconds: self.train_seconds,
            metrics,
        };
        self.metrics.append(&MetricsLine::Evaluation(record.clone()))?;
        self.inputs.observer.on_evaluation(&record);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        let TrainingInputs {
            file,
            directory,
            corpus,
            ..
        } = self.inputs;
        self.metrics.sync()?;
        let (steps, [(_, first), (_, second)]) = self.optimizer.state();
        let snapshot = Snapshot {
            state: State {
                rounds: self.step,
                steps,
                metrics_bytes: self.metrics.length(),
                train_seconds: self.train_seconds,
                model: self.inputs.model_name(),
                config_sha256: undertone_run_directory::plan_inputs::config_digest(&file.config)?,
                data_sha256: corpus.digest().to_owned(),
                // Nothing private is spent, so nothing is entered into a ledger.
                ..State::default()
            },
            parameters: &self.parameters,
            first,
            second,
        };
        snapshot.write(directory.path(), None)
    }

    fn finish(mut self) -> Result<Summary> {
        let TrainingInputs {
            file,
            directory,
            corpus,
            model,
            ..
        } = self.inputs;
        let config = &file.config;
        let set = self.inputs.evaluation_set(config.evaluation.final_max_tokens)?;
        let mut metrics = self.inputs.measured(&set, &self.parameters, true)?;
        if self.periodic.differs_from(&set) {
            let sample = self.inputs.measured(&self.periodic, &self.parameters, false)?;
            metrics.sample = Some(Box::new(sample));
        }
        self.record_evaluation(metrics.clone())?;
        self.checkpoint()?;
        self.trainings.push(Training::NotPrivate {
            source_sha256: SourceName::of(directory.path(), &config.data)?.public,
            from_people: self.from_people,
        });
        let (words, parameters) = (corpus.vocab(), &self.parameters);
        let (steps, trained_on) = (self.step, self.trainings);
        let obstacles = vec![WITHOUT_NOISE.to_owned()];
        directory.write_model(
            &config.model,
            steps,
            words,
            model,
            parameters,
            trained_on,
            obstacles,
        )?;
        let privacy = self.inputs.write_privacy()?;
        Ok(Summary {
            run_dir: directory.path().to_owned(),
            rounds: self.step,
            stopped_early: None,
            train_seconds: self.train_seconds,
            tokens: self.tokens,
            initial: None,
            metrics,
            unigram_accuracy: self.start.unigram_accuracy,
            best_accuracy: self.start.best_accuracy,
            warning: None,
            privacy,
        })
    }
}

#[cfg(test)]
mod tests;

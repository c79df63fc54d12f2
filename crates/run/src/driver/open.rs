//! A run before its first round, or after its last checkpoint.

use std::io::{BufReader, Read};
use std::sync::Arc;

use undertone_coordinator::chain::Chain;
use undertone_coordinator::cohorts::Cohorts;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{RunHead, Trained};
use undertone_coordinator::identity::ModelIdentity;
use undertone_coordinator::participation::ParticipationKey;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::source::UpdateSource;
use undertone_coordinator::trainings::Training;
use undertone_data::{Corpus, LocalPlace, Partition};
use undertone_models::SequenceModel;
use undertone_settings::Algorithm;

use super::lane::{self, RunLane};
use super::live::LiveReplays;
use super::orders::{Order, Start};
use super::workspace::{self, RunDirectory, RunFiles};
use super::{Observer, Run, RunOptions, example_counts};
use crate::checkpoint::Checkpoint;
use crate::engine;
use crate::error::{Result, RunError};
use crate::evaluate::EvaluationSet;
use crate::local_sources::LocalSources;
use crate::ranks::Ranks;
use crate::run_file::{RunFile, training_users};
use crate::source::local::Local;
use crate::source::secagg::{SecAggSimulation, SecureRounds};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::entropy::{randomness, round_entropy};
use undertone_run_directory::initial_model::{self, SourceName, starting_parameters};
use undertone_run_directory::metrics::{MetricsLine, StartRecord};
use undertone_run_directory::plan_inputs::{
    begun, config_digest, config_text, named_strategy, population, trainings_of, vocabulary_cost,
};
use undertone_run_directory::sweep_statement::with_selection;
use undertone_run_directory::{files, ledger};

/// The beginning of a run.
enum Begin {
    /// A new run.
    New,
    /// A run that goes on from its checkpoint.
    From(Box<Checkpoint>),
}

impl Begin {
    fn checkpoint(&self) -> Option<&Checkpoint> {
        match self {
            Self::New => None,
            Self::From(checkpoint) => Some(checkpoint),
        }
    }
}

/// The inputs of a start, which its steps read.
struct Opening<'r, 'a> {
    file: &'a RunFile,
    directory: &'a RunDirectory,
    corpus: &'a Corpus,
    users: Partition<'a>,
    model: &'r Arc<dyn SequenceModel>,
    options: &'a RunOptions,
    ranks: &'a dyn Ranks,
    begin: Begin,
    /// The first line of the ledger of a run that goes on.
    first: Option<ledger::First>,
}

/// The name of a run's text, and the trainings that the run starts from.
struct Origin {
    name: SourceName,
    trainings: Vec<Training>,
    /// The places on this machine that a new run records.
    local: Option<LocalSources>,
    places: Vec<LocalPlace>,
}

impl<'a> Run<'a> {
    /// Opens a new run, or one that goes on from its checkpoint.
    ///
    /// # Errors
    /// [`RunError`]. No file is written where the run file, its text or its budget is at fault.
    pub(super) fn open(
        file: &'a RunFile,
        directory: &'a RunDirectory,
        corpus: &'a Corpus,
        model: &Arc<dyn SequenceModel>,
        options: &'a RunOptions,
        ranks: &'a dyn Ranks,
        observer: &'a dyn Observer,
    ) -> Result<(Self, RunHead)> {
        let config = &file.config;
        let users = training_users(config, corpus)?;
        let randomness = checked_randomness(config, &users, ranks)?;
        let identity = ModelIdentity::new(model.as_ref());
        announce(file, corpus, &identity, ranks)?;
        let opening = Opening::new(file, directory, corpus, users, model, options, ranks, &identity)?;
        let (plan, mut origin) = (opening.plan_of()?, opening.trainings_of()?);
        let plan = opening.with_start(plan, &mut origin)?;
        let participation_key = opening.participation_key(&randomness);
        let start = opening.start_record(&plan, &identity)?;
        let periodic = opening.sample()?;
        let trained = opening.parameters_of(&identity, &randomness)?;
        let (trainings, files) = opening.files_of(&plan, origin)?;
        let done = opening
            .begin
            .checkpoint()
            .map(|checkpoint| checkpoint.state.rounds);
        let lane = RunLane::open(directory.path(), config, &plan, &participation_key, done)?;
        let live = LiveReplays::open(directory.path(), config, &plan, done)?;
        let mut run = Self {
            cohorts: Cohorts::new(&config.task, &plan, &example_counts(&users), &participation_key)?,
            source: opening.source_of(&plan)?,
            planned: plan.planned()?,
            estimated: plan.estimated()?,
            participation_key,
            store: Box::new(files.store),
            lane,
            live,
            metrics: files.metrics,
            genesis: files.genesis,
            config,
            directory,
            corpus,
            model: model.clone(),
            identity,
            options,
            ranks,
            observer,
            trainings,
            randomness,
            periodic,
            train_seconds: 0.0,
            checkpoint_seconds: 0.0,
            tokens: 0,
            start,
            stopped_early: None,
            starved: false,
        };
        let head = run.begin(opening.begin, (&files.entries, files.chain), plan, trained)?;
        Ok((run, head))
    }

    /// Makes the head of the run, and for a new one the first line of its metrics, its first evaluation and its first checkpoint.
    fn begin(
        &mut self,
        begin: Begin,
        (ledger, chain): (&[LedgerEntry], Chain),
        plan: PrivacyPlan,
        trained: Trained,
    ) -> Result<RunHead> {
        let entropy = round_entropy(self.config.seed)?;
        let (head, is_new) = match begin {
            Begin::From(checkpoint) => (
                self.restore(*checkpoint, ledger, chain, plan, trained, &entropy)?,
                false,
            ),
            Begin::New => {
                self.metrics.append(&MetricsLine::Start(self.start.clone()))?;
                let (task, genesis) = (&self.config.task, &self.genesis);
                (RunHead::new(task, plan, Some(trained), genesis, &entropy)?, true)
            }
        };
        self.observer
            .on_start(&self.start, self.planned.as_ref(), head.round());
        if is_new {
            // Before the first checkpoint, so that a run that goes on from there does not do it again.
            if self.config.initial_model.is_some() {
                self.evaluate_whole(&head)?;
            }
            self.checkpoint(&head)?;
        }
        Ok(head)
    }

    fn restore(
        &mut self,
        checkpoint: Checkpoint,
        ledger: &[LedgerEntry],
        chain: Chain,
        plan: PrivacyPlan,
        mut trained: Trained,
        entropy: &RoundEntropy,
    ) -> Result<RunHead> {
        let path = crate::checkpoint::path(self.directory.path());
        let damaged = |message: String| RunError::damaged(&path, message);
        let state = &checkpoint.state;
        if ledger.len() as u64 != state.rounds {
            let message = format!("{} rounds, but the ledger has {}", state.rounds, ledger.len());
            return Err(damaged(message));
        }
        if checkpoint.parameters.len() != trained.parameters.len() {
            return Err(damaged(format!(
                "{} parameters, expected {}",
                checkpoint.parameters.len(),
                trained.parameters.len()
            )));
        }
        self.cohorts.replay(ledger)?;
        let noise_file = checkpoint.noise_state(self.directory.path())?;
        let unfinished = state.rounds > 0 && state.rounds < self.config.task.rounds;
        let mut noise = match noise_file.filter(|_| unfinished) {
            // How much of it is read follows from the plan, not from its size.
            Some(path) => Some(BufReader::new(files::open_at_most(&path, u64::MAX)?)),
            None => None,
        };
        if !trained
            .optimizer
            .restore(state.steps, checkpoint.first, checkpoint.second)
        {
            let message = "its optimizer state does not fit `server.optimizer`";
            return Err(damaged(message.to_owned()));
        }
        trained.parameters = checkpoint.parameters;
        self.train_seconds = checkpoint.state.train_seconds;
        let (task, genesis) = (&self.config.task, &self.genesis);
        let head = RunHead::new(task, plan, Some(trained), genesis, entropy)?;
        let secret = noise.as_mut().map(|file| file as &mut dyn Read);
        Ok(head.load(ledger, chain, checkpoint.state.adaptive_clip, secret, entropy)?)
    }
}

/// Returns the randomness of a run. A run without training users is refused, and so is a secure sum over several processes.
fn checked_randomness(config: &RunConfig, users: &Partition<'_>, ranks: &dyn Ranks) -> Result<Randomness> {
    if users.num_users() == 0 {
        let hint = "loosen `data.min_tokens` or `data.min_examples`, or check `data.split`";
        return Err(RunError::EmptyPartition { split: "train", hint });
    }
    let randomness = randomness(config.seed)?;
    if ranks.size() > 1 && config.task.aggregation.is_some() {
        return Err(RunError::left_out("aggregation", "the run has several processes"));
    }
    Ok(randomness)
}

/// Tells the other processes of the run what it is.
fn announce(file: &RunFile, corpus: &Corpus, identity: &ModelIdentity, ranks: &dyn Ranks) -> Result<()> {
    let start = Start {
        config: config_text(&file.config)?,
        base: std::path::absolute(&file.base).unwrap_or_else(|_| file.base.clone()),
        data_sha256: corpus.digest().to_owned(),
        frozen_sha256: identity.frozen_sha256().map(str::to_owned),
    };
    Order::Start(start).send(&[], ranks)
}

impl<'r, 'a> Opening<'r, 'a> {
    #[allow(clippy::too_many_arguments)] // the arguments of a start, and what was made of them
    fn new(
        file: &'a RunFile,
        directory: &'a RunDirectory,
        corpus: &'a Corpus,
        users: Partition<'a>,
        model: &'r Arc<dyn SequenceModel>,
        options: &'a RunOptions,
        ranks: &'a dyn Ranks,
        identity: &ModelIdentity,
    ) -> Result<Self> {
        let config = &file.config;
        let (begin, first) = match options.resume {
            false => (Begin::New, None),
            true => {
                let first = ledger::first_line(directory.path())?;
                let name = identity.name(config.task.model.family());
                let checkpoint = directory.read_checkpoint(config, corpus, &name, model.layout().len())?;
                (Begin::From(Box::new(checkpoint)), first)
            }
        };
        Ok(Self {
            file,
            directory,
            corpus,
            users,
            model,
            options,
            ranks,
            begin,
            first,
        })
    }

    fn config(&self) -> &'a RunConfig {
        &self.file.config
    }

    /// The plan without the cost of earlier trainings.
    fn plan_of(&self) -> Result<PrivacyPlan> {
        let (config, layout) = (self.config(), self.model.layout());
        let mut population = population(config, &example_counts(&self.users));
        // An earlier version counted the examples although the file gave their number.
        if config.task.user_update.algorithm == Algorithm::Els
            && let Some(weight) = self.first.as_ref().and_then(|first| first.total_weight)
        {
            population.total_weight = weight;
        }
        let plan = match &self.begin {
            // The matrix and the noise that were run, not those that are found once more.
            Begin::From(_) => {
                let noise_multiplier = self.first.as_ref().and_then(|first| first.noise_multiplier);
                let begun = begun(self.directory.path(), noise_multiplier)?;
                PrivacyPlan::of_begun(&config.task, &begun, layout, population)?
            }
            Begin::New => {
                let strategy = named_strategy(&config.task, &self.file.base)?;
                PrivacyPlan::new(&config.task, strategy.as_ref(), layout, population)?
            }
        };
        let plan = plan.with_lane(config.lane_size())?;
        lane::check_mechanism(config, &plan)?;
        plan.check_sum(self.ranks.size())?;
        // What the words cost must be known under the run's relation.
        let words = vocabulary_cost(&plan, self.corpus.vocabulary_privacy())?;
        Ok(plan.with_vocabulary(words))
    }

    /// The name of the text, and the trainings that the run starts from.
    fn trainings_of(&self) -> Result<Origin> {
        let (config, base) = (self.config(), &self.file.base);
        let initial = config.initial_model.as_deref();
        let adapters = config.initial_adapters.as_deref();
        let (name, trainings) = match &self.begin {
            // The file may be gone by now.
            Begin::From(_) => (
                SourceName::of(self.directory.path(), &config.data)?,
                trainings_of(self.directory.path())?,
            ),
            Begin::New => {
                let name = self.directory.source_name(&config.data)?;
                let mut trainings = initial_model::trainings(base, initial, adapters)?;
                name.rename(&mut trainings);
                (name, trainings)
            }
        };
        let places = undertone_data::places_of(&config.data.source, base)?;
        let local = match &self.begin {
            Begin::From(_) => None,
            Begin::New => Some(LocalSources::of_start(base, initial, adapters)?),
        };
        Ok(Origin {
            name,
            trainings,
            local,
            places,
        })
    }

    /// The whole plan, which fails before any work when the budget does not allow a single round, or the accountant cannot evaluate it.
    fn with_start(&self, plan: PrivacyPlan, origin: &mut Origin) -> Result<PrivacyPlan> {
        let own = &origin.name.public;
        if let Some(local) = &origin.local {
            local.rename(&mut origin.trainings, own, &origin.places);
        }
        let plan = plan.with_start(&origin.trainings, own);
        let words = self.corpus.vocab().len();
        let plan = with_selection(self.directory.path(), self.config(), plan, words)?;
        plan.check_budget()?;
        plan.check_selected()?;
        Ok(plan)
    }

    fn participation_key(&self, randomness: &Randomness) -> ParticipationKey {
        let kept = self.begin.checkpoint();
        kept.and_then(|checkpoint| checkpoint.state.participation_key.clone())
            .unwrap_or_else(|| ParticipationKey::new(randomness))
    }

    fn start_record(&self, plan: &PrivacyPlan, identity: &ModelIdentity) -> Result<StartRecord> {
        let config = self.config();
        let mut start = workspace::start_record(
            &config.task.name,
            &config.task.model,
            config.task.rounds,
            &config.evaluation,
            (self.corpus, &self.users),
            identity,
        );
        start.warning = plan.warning(&config.task, self.model.layout(), config.initial_model.is_some())?;
        Ok(start)
    }

    /// The sample of held-out users that each evaluation on the way reads.
    fn sample(&self) -> Result<EvaluationSet> {
        let evaluation = &self.config().evaluation;
        EvaluationSet::new(self.corpus, evaluation.split, evaluation.sample_tokens())
    }

    /// The model with its parameters at the start, and its optimizer. Those of a checkpoint replace them later.
    fn parameters_of(&self, identity: &ModelIdentity, randomness: &Randomness) -> Result<Trained> {
        let (config, base, words) = (self.config(), &self.file.base, self.corpus.vocab());
        let (spec, model) = (&config.task.model, self.model.as_ref());
        let (initial, adapters) = match &self.begin {
            Begin::From(_) => (None, None),
            Begin::New => (
                config.initial_model.as_deref(),
                config.initial_adapters.as_deref(),
            ),
        };
        let mut parameters = starting_parameters(spec, initial, base, model, words, randomness)?;
        if let Some(folder) = adapters {
            initial_model::add_adapters(spec, folder, base, model, words, &mut parameters)?;
        }
        Ok(Trained {
            model: self.model.clone(),
            parameters,
            optimizer: ServerOptimizer::new(config.task.server, model.layout(), config.task.rounds),
            identity: identity.clone(),
        })
    }

    /// The files of the run, which a new one writes here.
    fn files_of(&self, plan: &PrivacyPlan, origin: Origin) -> Result<(Vec<Training>, RunFiles)> {
        let Origin {
            name,
            trainings,
            local,
            places,
        } = origin;
        let directory = self.directory;
        let files = match &self.begin {
            Begin::From(checkpoint) => {
                directory.open_files(checkpoint.state.ledger_bytes, checkpoint.state.metrics_bytes)?
            }
            Begin::New => {
                local
                    .unwrap_or_default()
                    .write(directory.path(), &name.public, places)?;
                directory.create_files(
                    self.config(),
                    plan,
                    self.corpus,
                    &self.file.base,
                    &trainings,
                    &name,
                )?
            }
        };
        Ok((trainings, files))
    }

    /// The source of the sums.
    fn source_of(&self, plan: &PrivacyPlan) -> Result<Box<dyn UpdateSource<Error = RunError> + 'a>> {
        let (config, users, threads) = (self.config(), self.users, self.options.threads);
        let model = self.model.as_ref();
        let settings = &config.task.user_update;
        Ok(
            match SecureRounds::new(config, plan, &config_digest(config)?, threads)? {
                Some(secure) => Box::new(SecAggSimulation {
                    secure,
                    engine: engine::processor(&config.task, model, &users, threads),
                    users,
                    settings,
                    randomness: randomness(config.seed)?,
                }),
                None => Box::new(Local {
                    engine: engine::open(config.engine, &config.task, model, &users, threads)?,
                    users,
                    settings,
                    randomness: randomness(config.seed)?,
                    ranks: self.ranks,
                }),
            },
        )
    }
}

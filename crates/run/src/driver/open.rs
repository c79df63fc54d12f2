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
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::server_optimizer::ServerOptimizer;
use undertone_coordinator::source::UpdateSource;
use undertone_coordinator::task::Algorithm;
use undertone_data::Corpus;
use undertone_models::SequenceModel;

use super::lane::{self, RunLane};
use super::live::LiveReplays;
use super::orders::{Order, Start};
use super::workspace::{self, RunDirectory, RunFiles};
use super::{Observer, Run, RunOptions, example_counts};
use crate::checkpoint::Checkpoint;
use crate::config::RunFile;
use crate::entropy::{randomness, round_entropy};
use crate::error::{Result, RunError};
use crate::evaluate::EvaluationSet;
use crate::initial_model::local_sources::LocalSources;
use crate::initial_model::{self, SourceName, starting_parameters};
use crate::metrics::MetricsLine;
use crate::plan_inputs::{
    begun, config_digest, config_text, named_strategy, population, trainings_of, vocabulary_cost,
};
use crate::ranks::Ranks;
use crate::source::local::Local;
use crate::source::secagg::{SecAggSimulation, SecureRounds};
use crate::{engine, files, ledger};

impl<'a> Run<'a> {
    pub(super) fn open(
        file: &'a RunFile,
        directory: &'a RunDirectory,
        corpus: &'a Corpus,
        model: &Arc<dyn SequenceModel>,
        options: &'a RunOptions,
        ranks: &'a dyn Ranks,
        observer: &'a dyn Observer,
    ) -> Result<(Self, RunHead)> {
        let RunFile { config, base, .. } = file;
        let users = config.training_users(corpus)?;
        if users.num_users() == 0 {
            let hint = "loosen `data.min_tokens` or `data.min_examples`, or check `data.split`";
            return Err(RunError::EmptyPartition { split: "train", hint });
        }
        let randomness = randomness(config.seed)?;
        if ranks.size() > 1 && config.task.aggregation.is_some() {
            return Err(RunError::left_out("aggregation", "the run has several processes"));
        }
        let identity = ModelIdentity::new(model.as_ref());
        let start = Start {
            config: config_text(config)?,
            base: std::path::absolute(base).unwrap_or_else(|_| base.to_owned()),
            data_sha256: corpus.digest().to_owned(),
            frozen_sha256: identity.frozen_sha256().map(str::to_owned),
        };
        Order::Start(start).send(&[], ranks)?;
        let mut population = population(config, &example_counts(&users));
        // An earlier version counted the examples although the file gave their number.
        let first = match options.resume {
            true => ledger::first_line(directory.path())?,
            false => None,
        };
        if config.task.user_update.algorithm == Algorithm::Els
            && let Some(weight) = first.as_ref().and_then(|first| first.total_weight)
        {
            population.total_weight = weight;
        }
        let checkpoint = match options.resume {
            true => {
                let name = identity.name(config.task.model.family());
                Some(directory.read_checkpoint(config, corpus, &name, model.layout().len())?)
            }
            false => None,
        };
        let plan = match &checkpoint {
            // The matrix and the noise that were run, not those that are found once more.
            Some(_) => {
                let noise_multiplier = first.and_then(|first| first.noise_multiplier);
                let begun = begun(directory.path(), noise_multiplier)?;
                PrivacyPlan::of_begun(&config.task, &begun, model.layout(), population)?
            }
            None => {
                let strategy = named_strategy(&config.task, base)?;
                PrivacyPlan::new(&config.task, strategy.as_ref(), model.layout(), population)?
            }
        };
        let plan = plan.with_lane(config.lane_size())?;
        lane::check_mechanism(config, &plan)?;
        plan.check_sum(ranks.size())?;
        // What the words cost must be known under the run's relation.
        let words = vocabulary_cost(&plan, corpus.vocabulary_privacy())?;
        let plan = plan.with_vocabulary(words);
        let source_name = match &checkpoint {
            Some(_) => SourceName::of(directory.path(), &config.data)?,
            None => directory.source_name(&config.data)?,
        };
        let trainings = match (&checkpoint, &config.initial_model) {
            // The file may be gone by now.
            (Some(_), _) => trainings_of(directory.path())?,
            (None, file) => {
                let adapters = config.initial_adapters.as_deref();
                let mut trainings = initial_model::trainings(base, file.as_deref(), adapters)?;
                source_name.rename(&mut trainings);
                trainings
            }
        };
        let own = &source_name.public;
        let places = config.data.source.places(base)?;
        let (initial, adapters) = (
            config.initial_model.as_deref(),
            config.initial_adapters.as_deref(),
        );
        let local = match &checkpoint {
            Some(_) => None,
            None => Some(LocalSources::of_start(base, initial, adapters)?),
        };
        let mut trainings = trainings;
        if let Some(local) = &local {
            local.rename(&mut trainings, own, &places);
        }
        let plan = plan.with_start(&trainings, own);
        let plan =
            crate::sweep_statement::with_selection(directory.path(), config, plan, corpus.vocab().len())?;
        // Fails before any work when the budget does not allow a single round, or the accountant cannot evaluate the plan.
        plan.check_budget()?;
        plan.check_selected()?;
        let kept = checkpoint
            .as_ref()
            .and_then(|checkpoint| checkpoint.state.participation_key.clone());
        let participation_key = kept.unwrap_or_else(|| ParticipationKey::new(&randomness));
        let (model_spec, rounds) = (&config.task.model, config.task.rounds);
        let mut start = workspace::start_record(
            &config.task.name,
            model_spec,
            rounds,
            &config.evaluation,
            (corpus, &users),
            &identity,
        );
        start.warning = plan.warning(&config.task, model.layout(), config.initial_model.is_some())?;
        let evaluation = &config.evaluation;
        let periodic = EvaluationSet::new(corpus, evaluation.split, evaluation.sample_tokens())?;
        let initial = config.initial_model.as_deref().filter(|_| checkpoint.is_none());
        let mut parameters = starting_parameters(
            &config.task.model,
            initial,
            base,
            model.as_ref(),
            corpus.vocab(),
            &randomness,
        )?;
        let adapters = config
            .initial_adapters
            .as_deref()
            .filter(|_| checkpoint.is_none());
        if let Some(folder) = adapters {
            let (spec, words) = (&config.task.model, corpus.vocab());
            initial_model::add_adapters(spec, folder, base, model.as_ref(), words, &mut parameters)?;
        }
        let optimizer = ServerOptimizer::new(config.task.server, model.layout(), config.task.rounds);
        let files = match &checkpoint {
            Some(Checkpoint { state, .. }) => {
                directory.open_files(state.ledger_bytes, state.metrics_bytes)?
            }
            None => {
                local.unwrap_or_default().write(directory.path(), own, places)?;
                directory.create_files(config, &plan, corpus, base, &trainings, &source_name)?
            }
        };
        let RunFiles {
            store,
            metrics,
            genesis,
            entries,
            chain,
        } = files;
        let done = checkpoint.as_ref().map(|checkpoint| checkpoint.state.rounds);
        let lane = RunLane::open(directory.path(), config, &plan, &participation_key, done)?;
        let live = LiveReplays::open(directory.path(), config, &plan, done)?;
        let cohorts = Cohorts::new(&config.task, &plan, &example_counts(&users), &participation_key)?;
        let digest = config_digest(config)?;
        let source: Box<dyn UpdateSource<Error = RunError> + 'a> =
            match SecureRounds::new(config, &plan, &digest, options.threads)? {
                Some(secure) => Box::new(SecAggSimulation {
                    secure,
                    engine: engine::processor(&config.task, model.as_ref(), &users, options.threads),
                    users,
                    settings: &config.task.user_update,
                    randomness: crate::entropy::randomness(config.seed)?,
                }),
                None => Box::new(Local {
                    engine: config
                        .engine
                        .open(&config.task, model.as_ref(), &users, options.threads)?,
                    users,
                    settings: &config.task.user_update,
                    randomness: crate::entropy::randomness(config.seed)?,
                    ranks,
                }),
            };
        let (planned, estimated) = (plan.planned()?, plan.estimated()?);
        let trained = Trained {
            model: model.clone(),
            parameters,
            optimizer,
            identity: identity.clone(),
        };
        let mut run = Self {
            planned,
            estimated,
            cohorts,
            source,
            participation_key,
            store: Box::new(store),
            lane,
            live,
            metrics,
            genesis,
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
        let entropy = round_entropy(config.seed)?;
        let fresh = checkpoint.is_none();
        let head = match checkpoint {
            Some(checkpoint) => run.restore(checkpoint, &entries, chain, plan, trained, &entropy)?,
            None => {
                run.metrics.append(&MetricsLine::Start(run.start.clone()))?;
                RunHead::new(&config.task, plan, Some(trained), &run.genesis, &entropy)?
            }
        };
        observer.on_start(&run.start, run.planned.as_ref(), head.round());
        if fresh {
            // Before the first checkpoint, so that a run that goes on from there does not do it again.
            if config.initial_model.is_some() {
                run.evaluate_whole(&head)?;
            }
            run.checkpoint(&head)?;
        }
        Ok((run, head))
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

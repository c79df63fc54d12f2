//! A small population and model, and a run file over them.

use std::sync::Arc;

use undertone_aggregation::{Added, Bound};
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{Opened, RunHead};
use undertone_coordinator::kept_examples::Microbatch;
use undertone_coordinator::participant::ParticipantId;
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::random::Randomness;
use undertone_coordinator::source::{Diagnostics, Gathered, UpdateSource};
use undertone_coordinator::task::TaskConfig;
use undertone_data::{Corpus, NoProgress, Split};
use undertone_local::{CpuEngine, Engine, LocalError, LocalTask, LocalWorker, UserOutcome};
use undertone_models::SequenceModel;
use undertone_run::RunError;
use undertone_run::config::{RunConfig, RunFile};
use undertone_run::ranks::OneProcess;
use undertone_run::source::local::Local;

pub(crate) const BASE: &str = r#"
name = "test"
seed = 1
rounds = 10
data = { source = { kind = "synthetic", users = 60, words = 40 } }
model = { family = "dplm", embed = 6, hidden = 8 }
cohort = { sampling = "poisson", users_per_round = 12 }
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.3 }
privacy = { noise_multiplier = 2.0, delta = 1e-5 }
"#;

/// The base run file with `key=value` changes.
pub(crate) fn config(changes: &[&str]) -> RunConfig {
    let overrides: Vec<_> = changes
        .iter()
        .map(|change| change.parse().expect("an override"))
        .collect();
    RunFile::parse(BASE, "test.toml".as_ref(), &overrides).expect("a configuration")
}

pub(crate) struct World {
    pub(crate) corpus: Corpus,
    pub(crate) model: Box<dyn SequenceModel>,
    _cache: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(config: &RunConfig) -> Self {
        let cache = tempfile::tempdir().expect("a folder");
        let corpus = Corpus::open(&config.data, ".".as_ref(), cache.path(), &NoProgress).expect("a corpus");
        let model = config.task.model.build(corpus.vocab().len()).expect("a model");
        Self {
            corpus,
            model,
            _cache: cache,
        }
    }

    pub(crate) fn longest(&self) -> usize {
        let users = self.corpus.partition(Split::Train);
        users
            .users()
            .flat_map(|user| user.examples().map(<[u32]>::len))
            .max()
            .unwrap_or(0)
    }
}

pub(crate) fn norm(values: impl IntoIterator<Item = f32>) -> f64 {
    values
        .into_iter()
        .map(|value| f64::from(value).powi(2))
        .sum::<f64>()
        .sqrt()
}

/// Bounds what is in the worker, as the sum of a round does before it adds it.
pub(crate) fn bounded(
    worker: &mut LocalWorker,
    task: &LocalTask<'_>,
) -> Result<(Added, Vec<f32>), LocalError> {
    let bound = Bound::new(
        Arc::new(task.layout.clone()),
        task.clipping.clone(),
        task.non_finite,
    );
    let added = bound.enforce(worker.update_mut())?;
    Ok((added, worker.update_mut().to_vec()))
}

/// Trains one user and bounds the update, as a round does.
pub(crate) fn trained(
    worker: &mut LocalWorker,
    examples: &[&[u32]],
    order: [u8; 32],
    task: &LocalTask<'_>,
) -> Result<(UserOutcome, Vec<f32>), LocalError> {
    let outcome = worker.train(examples, order, task)?;
    let (added, update) = bounded(worker, task)?;
    Ok((outcome.added(added, task.estimate), update))
}

/// A head before the first round of a task over 60 users, and the sum that a source gathers for it.
pub(crate) struct Round<'a> {
    pub(crate) world: &'a World,
    pub(crate) task: &'a TaskConfig,
    pub(crate) theta: &'a [f32],
    pub(crate) total_weight: f64,
}

impl<'a> Round<'a> {
    pub(crate) fn head(&self) -> RunHead {
        let population = Population {
            users: 60,
            total_weight: self.total_weight,
        };
        let plan = PrivacyPlan::new(self.task, None, self.world.model.layout(), population).expect("a plan");
        RunHead::new(self.task, plan, None, "genesis", &RoundEntropy::seeded(1)).expect("a head")
    }

    pub(crate) fn cohort(&self, users: &[usize], microbatches: Option<Vec<Microbatch>>) -> Cohort {
        Cohort {
            users: users.to_vec(),
            pseudonyms: (0..users.len() as u64).map(ParticipantId::new).collect(),
            microbatches,
            widened: false,
        }
    }

    pub(crate) fn engine(&self, threads: usize) -> CpuEngine {
        let (model, longest) = (self.world.model.as_ref(), self.world.longest());
        CpuEngine::new(model, &self.task.user_update, threads, longest, 100_000)
    }

    pub(crate) fn gather(
        &self,
        engine: Box<dyn Engine + 'a>,
        opened: &Opened,
        cohort: &Cohort,
    ) -> Result<Gathered, RunError> {
        let mut source = Local {
            engine,
            users: self.world.corpus.partition(Split::Train),
            settings: &self.task.user_update,
            randomness: Randomness::seeded(1),
            ranks: &OneProcess,
        };
        source.gather(opened, cohort, self.theta, &|| ())
    }

    /// The released average of the first round over this cohort, and what its training was like.
    pub(crate) fn released(&self, cohort: &Cohort, threads: usize) -> (Vec<f32>, Diagnostics) {
        let head = self.head();
        let opened = head.open(None).expect("a round");
        let gathered = self
            .gather(Box::new(self.engine(threads)), &opened, cohort)
            .expect("a sum");
        let diagnostics = gathered.diagnostics.clone();
        let next = head
            .close(opened, gathered, &RoundEntropy::seeded(1), &mut |_| ())
            .expect("a release");
        (next.average.expect("an average").into_values(), diagnostics)
    }
}

//! A small population and model, and a run file over them.

use std::path::Path;
use std::sync::Arc;

use undertone_aggregation::{Bound, Clipping, NonFinite, UserOutcome};
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{Opened, RunHead};
use undertone_coordinator::kept_examples::Microbatch;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::source::{Diagnostics, Gathered, Unwatched, UpdateSource};
use undertone_coordinator::task::TaskConfig;
use undertone_data::{Corpus, NoProgress, Partition, SpecialIds, Split};
use undertone_local::{CpuEngine, Engine, LocalError, LocalTask, LocalWorker, batch};
use undertone_models::SequenceModel;
use undertone_run::ranks::OneProcess;
use undertone_run::source::local::Local;
use undertone_run::{RunError, RunFile, RunOptions, Silent, Summary};
use undertone_run_directory::config::{Override, RunConfig};

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

pub(crate) fn overrides(changes: &[&str]) -> Vec<Override> {
    let parse = |change: &&str| change.parse().expect("an override");
    changes.iter().map(parse).collect()
}

/// The base run file with `key=value` changes, or its refusal.
pub(crate) fn parsed(changes: &[&str]) -> Result<RunConfig, RunError> {
    Ok(RunConfig::parse(BASE, "test.toml".as_ref(), &overrides(changes))?)
}

pub(crate) fn config(changes: &[&str]) -> RunConfig {
    parsed(changes).expect("a configuration")
}

/// Checks the error of each case of a table: a line of changes, separated by spaces, and below it the parts of the error.
#[track_caller]
pub(crate) fn check_refusals(base: &[&str], table: &str, error: impl Fn(&[&str]) -> String) {
    let lines: Vec<&str> = table
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let (cases, rest) = lines.as_chunks();
    assert!(
        !cases.is_empty() && rest.is_empty(),
        "a line without another: {rest:?}"
    );
    for [changes, parts] in cases {
        let changes: Vec<&str> = base.iter().copied().chain(changes.split(' ')).collect();
        let message = error(&changes);
        for part in parts.split(" ... ") {
            assert!(message.contains(part), "{changes:?}: {message}");
        }
    }
}

/// The plan of the base run file with these changes over a population.
pub(crate) fn plan(changes: &[&str], population: Population) -> Result<PrivacyPlan, RunError> {
    let config = parsed(changes)?;
    let world = World::new(&config);
    Ok(PrivacyPlan::new(
        &config.task,
        None,
        world.model.layout(),
        population,
    )?)
}

/// Options of a new run on one thread.
pub(crate) fn options(out: &Path) -> RunOptions {
    RunOptions {
        out: out.to_owned(),
        threads: 1,
        resume: false,
    }
}

/// A finished run, in a folder that is removed with the first value.
pub(crate) fn train(config: &RunConfig, threads: usize) -> (tempfile::TempDir, Summary) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = RunFile::new(config.clone(), ".");
    let options = RunOptions {
        threads,
        ..options(folder.path())
    };
    let summary = undertone_run::train(&file, &options, &Silent).expect("a run");
    (folder, summary)
}

pub(crate) fn bytes(run_dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(run_dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
pub(crate) fn holds(folder: &Path) {
    let verification = undertone_verify::verify(folder).expect("a verification");
    assert!(verification.holds(), "{:?}", verification.checks);
}

/// The problems that verification finds in a folder.
pub(crate) fn problems(folder: &Path) -> String {
    let verification = undertone_verify::verify(folder).expect("a verification");
    let all = verification.checks.into_iter().flat_map(|check| check.problems);
    all.collect::<Vec<_>>().join("\n")
}

/// Puts a text in the place of another one in a file of a run, and expects `verify` to say so. The file is put back.
#[track_caller]
pub(crate) fn changed(folder: &Path, name: &str, from: &str, to: &str, expected: &str) {
    let before = bytes(folder, name);
    let text = String::from_utf8(before.clone()).expect("UTF-8");
    assert!(text.contains(from), "{name}: {text}");
    std::fs::write(folder.join(name), text.replacen(from, to, 1)).expect("writing");
    let problems = problems(folder);
    assert!(problems.contains(expected), "{name}: {problems}");
    std::fs::write(folder.join(name), before).expect("writing");
}

/// A finished run that was cut after so many rounds and resumed.
pub(crate) fn cut_and_resumed(file: &RunFile, rounds: u64) -> (tempfile::TempDir, Summary) {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = undertone_run::train(file, &options(folder.path()), &EndsAfter::rounds(rounds));
    cut.expect_err("an end before the last round");
    let resume = RunOptions {
        resume: true,
        ..options(folder.path())
    };
    let summary = undertone_run::train(file, &resume, &Silent).expect("the rest of the run");
    (folder, summary)
}

/// Ends a run after so many rounds.
pub(crate) struct EndsAfter {
    made: std::sync::atomic::AtomicU64,
    rounds: u64,
}

impl EndsAfter {
    pub(crate) fn rounds(rounds: u64) -> Self {
        let made = std::sync::atomic::AtomicU64::new(0);
        Self { made, rounds }
    }
}

impl undertone_run::Observer for EndsAfter {
    fn on_round(&self, _: &undertone_run_directory::metrics::RoundRecord) {
        self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn stop(&self) -> bool {
        self.made.load(std::sync::atomic::Ordering::Relaxed) >= self.rounds
    }
}

pub(crate) fn ledger(run_dir: &Path) -> Vec<LedgerEntry> {
    let text = std::fs::read_to_string(run_dir.join("ledger.jsonl")).expect("a ledger");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("an entry"))
        .collect()
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

    pub(crate) fn users(&self) -> Partition<'_> {
        self.corpus.partition(Split::Train)
    }

    pub(crate) fn longest(&self) -> usize {
        undertone_run::longest_example(&self.users())
    }

    /// The final parameters of a run.
    pub(crate) fn parameters(&self, run_dir: &Path) -> Vec<f32> {
        let bytes = std::fs::read(run_dir.join("model.safetensors")).expect("a model");
        undertone_models::weights::from_safetensors(self.model.layout(), &bytes).expect("parameters")
    }
}

/// A world with the start of a round in it.
pub(crate) struct Start {
    pub(crate) config: RunConfig,
    pub(crate) world: World,
    pub(crate) theta: Vec<f32>,
    pub(crate) randomness: Randomness,
}

impl Start {
    pub(crate) fn new(config: RunConfig) -> Self {
        let world = World::new(&config);
        Self {
            config,
            theta: world.model.initial_params(5),
            world,
            randomness: Randomness::seeded(1),
        }
    }

    pub(crate) fn task<'a>(&'a self, clipping: &'a Clipping) -> LocalTask<'a> {
        LocalTask {
            special: SpecialIds::WORDS,
            round: 0,
            theta: &self.theta,
            layout: self.world.model.layout(),
            clipping,
            estimate: None,
            settings: &self.config.task.user_update,
            non_finite: NonFinite::Refuse,
        }
    }

    pub(crate) fn worker(&self) -> LocalWorker {
        let (model, update) = (self.world.model.as_ref(), &self.config.task.user_update);
        LocalWorker::new(model, update, self.world.longest(), 100_000)
    }

    /// Trains one user and bounds the update, as a round does.
    pub(crate) fn trained(
        &self,
        worker: &mut LocalWorker,
        user: usize,
        task: &LocalTask<'_>,
    ) -> Result<(UserOutcome, Vec<f32>), LocalError> {
        let order = self.randomness.user_seeds(0, user as u64).order;
        let outcome = worker.train(&self.examples(user), order, task)?;
        let layout = Arc::new(task.layout.clone());
        let bound = Bound::new(layout, task.clipping.clone(), task.non_finite);
        let added = bound.enforce(worker.update_mut())?;
        Ok((outcome.added(added, task.estimate), worker.update_mut().to_vec()))
    }

    pub(crate) fn examples(&self, user: usize) -> Vec<&[u32]> {
        self.world.users().user(user).examples().collect()
    }

    /// The gradient of the mean token loss over these examples.
    pub(crate) fn gradient(&self, examples: &[&[u32]]) -> Vec<f32> {
        let mut gradient = vec![0.0; self.theta.len()];
        let batch = batch::sentences(examples, examples.len(), SpecialIds::WORDS.bos);
        self.world
            .model
            .worker(examples.len(), examples.len() * self.world.longest())
            .gradient(&self.theta, &batch[0].batch(), &mut gradient)
            .expect("a gradient");
        gradient
    }
}

pub(crate) fn norm(values: impl IntoIterator<Item = f32>) -> f64 {
    values
        .into_iter()
        .map(|value| f64::from(value).powi(2))
        .sum::<f64>()
        .sqrt()
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
            silent: Vec::new(),
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
            users: self.world.users(),
            settings: &self.task.user_update,
            randomness: Randomness::seeded(1),
            ranks: &OneProcess,
        };
        source.gather(opened, cohort, self.theta, &Unwatched)
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

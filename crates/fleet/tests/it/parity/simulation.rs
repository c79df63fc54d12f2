//! The simulation: a seeded run with fixed-size cohorts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use undertone_run_directory::config::RunConfig;

use undertone_coordinator::participation::{ParticipantId, ParticipationKey};
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::LedgerEntry;
use undertone_data::{Corpus, NoProgress, Split};
use undertone_models::{SequenceModel, weights};
use undertone_protocol::Digest32;
use undertone_run::checkpoint::Checkpoint;
use undertone_run::source::secagg::rotation_seed;
use undertone_run::{Observer, RunFile, RunOptions};
use undertone_run_directory::metrics::RoundRecord;

pub(crate) const SEED: u64 = 11;
pub(crate) const ROUNDS: u64 = 20;
/// Min number of users in the corpus.
const USERS: usize = 200;
/// The users of a cohort.
pub(crate) const GOAL: usize = 20;

/// The choices of a case, from which run file and task file follow.
pub(crate) struct Case {
    /// The table `privacy.mechanism`.
    pub(crate) mechanism: &'static str,
    /// `true` for secure sums, `false` for sums of `f32` vectors that the server sees.
    pub(crate) secure: bool,
    /// `true` if local training stays within the clip norm in each step. Otherwise updates are clipped once, after it.
    pub(crate) every_step: bool,
}

impl Case {
    /// The tables that both files share, as TOML.
    pub(crate) fn tables(&self) -> String {
        let Self {
            mechanism,
            secure,
            every_step,
        } = self;
        let aggregation = match secure {
            true => {
                "aggregation = { sum = \"secagg\", encoding = { kind = \"rotated_rounding\", scale = 10000.0 }, \
                 min_clients = 12, max_clients = 40 }"
            }
            false => "",
        };
        format!(
            r#"name = "parity"
seed = {SEED}
rounds = {ROUNDS}
model = {{ family = "cifg", cells = 6, embedding = 4, projection = 4 }}
participation = {{ min_sep = 5, max_part = 4 }}
user_update = {{ algorithm = "fedavg", learning_rate = 0.5, batch_size = 4, epochs = 1, clip_every_step = {every_step} }}
clip = {{ kind = "flat", norm = 0.3 }}
privacy = {{ noise_multiplier = 1.0, delta = 1e-6, mechanism = {mechanism} }}
server = {{ optimizer = {{ kind = "sgd", momentum = 0.9 }}, learning_rate = 0.5 }}
{aggregation}
"#
        )
    }
}

/// A finished simulation.
pub(crate) struct Simulation {
    pub(crate) corpus: Corpus,
    pub(crate) model: Box<dyn SequenceModel>,
    /// The rounds of the ledger.
    pub(crate) ledger: Vec<LedgerEntry>,
    /// The parameters before the first round, and after each.
    pub(crate) parameters: Vec<Vec<f32>>,
    /// The content of `mechanism.json`.
    pub(crate) mechanism: Vec<u8>,
    /// The user behind each pseudonym.
    pub(crate) users: BTreeMap<ParticipantId, usize>,
    /// The seed of the rotations.
    pub(crate) rotations: Digest32,
    /// The fraction of users in each round whose update was clipped.
    pub(crate) clipped: Vec<f64>,
    _folder: tempfile::TempDir,
}

/// Reads the parameters of the checkpoint that stands at the start of each round.
struct Parameters<'a> {
    run: &'a Path,
    length: usize,
    all: Mutex<Vec<Vec<f32>>>,
    clipped: Mutex<Vec<f64>>,
}

impl Observer for Parameters<'_> {
    fn on_round_start(&self, round: u64, _: usize) {
        let checkpoint = Checkpoint::read(self.run, self.length).unwrap();
        assert_eq!(checkpoint.state.rounds, round);
        self.all.lock().unwrap().push(checkpoint.parameters);
    }

    fn on_round(&self, round: &RoundRecord) {
        self.clipped.lock().unwrap().push(round.clipped_fraction.unwrap());
    }
}

impl Simulation {
    /// Trains.
    pub(crate) fn new(case: &Case) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{}data = {{ source = {{ kind = \"synthetic\", users = 260, words = 40 }} }}\n\
             cohort = {{ sampling = \"fixed_size\", users_per_round = {GOAL} }}\n\
             evaluation = {{ every = 0 }}\n\
             checkpoint = {{ every = 1 }}\n",
            case.tables()
        );
        let config = RunConfig::parse(&text, "parity.toml".as_ref(), &[]).unwrap();
        let corpus = Corpus::open(
            &config.data,
            folder.path(),
            &folder.path().join("corpus"),
            &NoProgress,
        );
        let corpus = corpus.unwrap();
        let model = config.task.model.build(corpus.vocab().len()).unwrap();
        let rotations = rotation_seed(&undertone_run_directory::plan_inputs::config_digest(&config).unwrap());
        let run = folder.path().join("parity");
        let observer = Parameters {
            run: &run,
            length: model.layout().len(),
            all: Mutex::default(),
            clipped: Mutex::default(),
        };
        let options = RunOptions {
            out: folder.path().to_owned(),
            threads: 2,
            resume: false,
        };
        let summary = undertone_run::train(&RunFile::new(config, "."), &options, &observer).unwrap();
        assert_eq!((summary.rounds, summary.stopped_early), (ROUNDS, None));
        let last = std::fs::read(run.join("model.safetensors")).unwrap();
        let mut parameters = observer.all.into_inner().unwrap();
        let clipped = observer.clipped.into_inner().unwrap();
        parameters.push(weights::from_safetensors(model.layout(), &last).unwrap());
        let ledger = std::fs::read_to_string(run.join("ledger.jsonl")).unwrap();
        let ledger = ledger.lines().map(|line| serde_json::from_str(line).unwrap());
        let salt = ParticipationKey::new(&Randomness::seeded(SEED)).salt();
        let all = corpus.partition(Split::Train).num_users();
        assert!(all >= USERS, "{all}");
        Self {
            model,
            ledger: ledger.collect(),
            parameters,
            mechanism: std::fs::read(run.join("mechanism.json")).unwrap(),
            users: (0..all).map(|user| (salt.pseudonym(user as u64), user)).collect(),
            rotations,
            clipped,
            corpus,
            _folder: folder,
        }
    }

    /// The users of a round, ascending.
    pub(crate) fn cohort(&self, round: u64) -> Vec<usize> {
        let names = &self.ledger[round as usize].participants;
        let mut cohort: Vec<usize> = names.iter().map(|name| self.users[name]).collect();
        cohort.sort_unstable();
        cohort
    }
}

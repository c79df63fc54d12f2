//! A service that loses one device in ten trains a model as good as that of the simulation (test 35).
//!
//! The simulation is `undertone train` with fixed-size cohorts under a participation schema, once per seed. The service has a task with
//! the same tables. Its devices come when its pace lets them, a tenth of their sessions vanish, and its noise is fresh.
//!
//! Let `x` be the accuracy of the service, and `mean` and `sd` those of `n` simulations. If all `n + 1` were drawn alike and near a
//! normal law, `(x - mean) / (sd sqrt(1 + 1/n))` would have Student's law with `n - 1` degrees of freedom. The test allows
//! [`QUANTILE`] on both sides, so a good service fails in one of 10,000 plays.

use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::task::Seeding;
use undertone_data::{Corpus, EosTargets, NoProgress, Split};
use undertone_device::{Limits, Neighbours, PolicyFloors, Setup};
use undertone_fleet::{Faults, Fleet, FleetConfig, InProcess, Point, RunEnd, Vanish, VirtualClock};
use undertone_protocol::{TaskState, TrustedKeys};
use undertone_run::evaluate::EvaluationSet;
use undertone_run::{RunFile, RunOptions, Silent};
use undertone_run_directory::config::{EvaluationSplit, RunConfig};
use undertone_service::identity::Identity;
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::{Task, create};
use undertone_store::{ManualClock, MemoryBlobs, Sqlite};

/// Number of simulations.
const SEEDS: u64 = 8;

/// Student's law with 7 degrees of freedom exceeds this number, on both sides together, with probability 1e-4.
const QUANTILE: f64 = 7.89;

/// The devices of a round.
const GOAL: u64 = 100;

const START: u64 = 1_800_000_000_000;

/// The time after which a task that has not ended has failed, in milliseconds.
const PATIENCE: u64 = 20 * 3_600_000;

/// The sizes of a comparison.
struct Case {
    /// Users of the corpus, a tenth of them each for validation and test.
    users: u64,
    /// Words of the documented process that writes the texts.
    words: u64,
    rounds: u64,
    min_sep: u64,
    embed: u64,
    hidden: u64,
}

impl Case {
    fn corpus(&self) -> String {
        let Self { users, words, .. } = self;
        format!("{{ source = {{ kind = \"synthetic\", users = {users}, words = {words} }} }}")
    }

    /// The tables that run file and task file share.
    fn tables(&self) -> String {
        let Self { rounds, min_sep, .. } = self;
        format!(
            r#"name = "utility"
rounds = {rounds}
model = {{ family = "dplm", embed = {}, hidden = {} }}
participation = {{ min_sep = {min_sep}, max_part = {} }}
user_update = {{ algorithm = "fedavg", batch_size = 8, learning_rate = 1.0 }}
clip = {{ kind = "flat", norm = 1.0 }}
privacy = {{ noise_multiplier = 1.0, delta = 1e-5, mechanism = {{ kind = "blt", buffers = 3 }} }}
server = {{ optimizer = {{ kind = "sgd", momentum = 0.9 }} }}
"#,
            self.embed,
            self.hidden,
            rounds.div_ceil(*min_sep),
        )
    }

    /// The accuracy of a model on the people of the test partition.
    fn accuracy(&self, corpus: &Corpus, parameters: &[f32], file: &RunFile) -> f64 {
        let model = file.config.task.model.build(corpus.vocab().len()).unwrap();
        let set = EvaluationSet::new(corpus, EvaluationSplit::Test, None).unwrap();
        let metrics = set.evaluate(
            model.as_ref(),
            parameters,
            EosTargets::Excluded,
            false,
            2,
            &Silent,
        );
        metrics.unwrap().top1
    }

    fn run_file(&self, seed: u64) -> RunFile {
        let text = format!(
            "{}seed = {seed}\ndata = {}\ncohort = {{ sampling = \"fixed_size\", users_per_round = {GOAL} }}\n\
             evaluation = {{ every = 0 }}\n",
            self.tables(),
            self.corpus(),
        );
        RunFile::new(
            RunConfig::parse(&text, Path::new("utility.toml"), &[]).unwrap(),
            ".",
        )
    }

    /// The accuracies of the simulation, by seed.
    fn simulated(&self) -> Vec<f64> {
        let simulate = |seed| {
            let folder = tempfile::tempdir().unwrap();
            let options = RunOptions {
                out: folder.path().to_owned(),
                threads: 2,
                resume: false,
            };
            let summary = undertone_run::train(&self.run_file(seed), &options, &Silent);
            summary.unwrap().metrics.top1
        };
        (1..=SEEDS).map(simulate).collect()
    }

    /// The accuracy of the service, and that of the commonest word.
    fn served(&self) -> (f64, f64) {
        let file = self.run_file(0);
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("corpus");
        let corpus = Corpus::open(&file.config.data, folder.path(), &cache, &NoProgress).unwrap();
        let users = corpus.partition(Split::Train);
        let words = corpus.vocab().to_file_contents();
        std::fs::write(folder.path().join("vocab.txt"), words).unwrap();
        let time = ManualClock::at(START);
        let path = folder.path().join("service.sqlite");
        let shared = Shared {
            store: Arc::new(Sqlite::with_clock(&path, Arc::new(time.clone())).unwrap()),
            blobs: Arc::new(MemoryBlobs::new()),
            keys: Keys::from_root([7; 32]),
            process: "service".to_owned(),
            witness: None,
        };
        let (store, blobs) = (shared.store.clone(), shared.blobs.clone());
        let task = undertone_run_directory::task::parse(
            &self.task_file(users.num_users()),
            Path::new("task.toml"),
            Seeding::Refused,
        );
        let keys = &shared.keys;
        let id = create(
            &task.unwrap(),
            folder.path(),
            "people",
            keys,
            store.as_ref(),
            blobs.as_ref(),
        );
        let id = id.unwrap();
        store
            .set_state(id, TaskState::Draft, TaskState::Active, "test", "")
            .unwrap();
        let setup = Arc::new(setup(keys));
        let service = Arc::new(Service::new(shared, Identity::Dev).unwrap());
        service.tick().unwrap();
        let config = FleetConfig {
            faults: drop_outs(),
            clock: Arc::new(
                VirtualClock::at(START)
                    .with_step(500)
                    .followed_by(move |now| time.set(now)),
            ),
            workers: 2,
            start_spread_ms: 5_000,
            max_pause_ms: 20_000,
            ..FleetConfig::new(setup, users.num_users())
        };
        let fleet = Fleet::new(config, users, InProcess::new(service.clone()).unwrap()).unwrap();
        fleet.enrol().unwrap();
        let end = fleet.run_until(|| {
            service.tick().unwrap();
            let row = store.task(id).unwrap();
            assert!(
                store.now() < START + PATIENCE,
                "round {}: {:?}",
                row.head_round,
                fleet.statistics()
            );
            row.state != TaskState::Active
        });
        assert_eq!(end.unwrap(), RunEnd::Done);
        let row = store.task(id).unwrap();
        assert_eq!((row.state, row.head_round), (TaskState::Completed, self.rounds));
        let keys = &service.shared().keys;
        let loaded = Task::load(&row, blobs.as_ref(), keys).unwrap();
        let export = folder.path().join("run");
        loaded
            .export(store.as_ref(), blobs.as_ref(), keys, &export, &[])
            .unwrap();
        assert!(undertone_verify::verify(&export).unwrap().holds());
        let all = fleet.statistics().total;
        let vanished: u64 = (all.ends.iter())
            .filter(|(end, _)| end.starts_with("vanished"))
            .map(|(_, count)| count)
            .sum();
        // A tenth of those that train, and of some that come too late to train.
        assert!(vanished * 12 > self.rounds * GOAL, "{all:?}");
        let parameters = loaded.released(&row, blobs.as_ref()).unwrap();
        let accuracy = self.accuracy(&corpus, &parameters, &file);
        (
            accuracy,
            corpus
                .unigram_accuracy(Split::Test, EosTargets::Excluded)
                .unwrap(),
        )
    }

    fn task_file(&self, population: usize) -> String {
        format!(
            r#"{}vocabulary = {{ kind = "file", path = "vocab.txt" }}
cohort = {{ sampling = "check_in", users_per_round = {GOAL}, population = {population} }}

[service]
over_selection = 1.3
group = {{ target = {GOAL}, least = {GOAL} }}
deadlines = {{ select = "60s", report = "120s", attempt = "240s" }}
eligibility = {{ min_examples = 1, max_examples = 1000, timer = "1s" }}
identity = "dev"
pace = {{ checkins_per_needed = 3.0, min_interval = "1s" }}
"#,
            self.tables()
        )
    }

    /// Compares the two.
    fn compare(&self) {
        let simulated = self.simulated();
        let n = simulated.len() as f64;
        let mean = simulated.iter().sum::<f64>() / n;
        let square = |value: &f64| (value - mean).powi(2);
        let sd = (simulated.iter().map(square).sum::<f64>() / (n - 1.0)).sqrt();
        let allowed = QUANTILE * sd * (1.0 + 1.0 / n).sqrt();
        let (served, commonest) = self.served();
        println!(
            "simulated {simulated:.4?}: mean {mean:.4}, deviation {sd:.4}; served {served:.4}; commonest word {commonest:.4}"
        );
        // A model that learned nothing would fail.
        assert!(mean - allowed > commonest, "{mean} - {allowed}, {commonest}");
        assert!((served - mean).abs() < allowed, "{served}, {simulated:?}");
    }
}

/// A tenth of the sessions vanish, at all points of a plain session, and come back later.
fn drop_outs() -> Faults {
    let vanish = |(at, probability)| Vanish {
        at,
        probability,
        returns_after_ms: Some(60_000),
    };
    let points = [
        (Point::BeforeJoin, 0.025),
        (Point::AfterJoin, 0.025),
        (Point::MidUpload, 0.025),
        (Point::AfterCommit, 0.025),
    ];
    Faults {
        vanish: points.map(vanish).into(),
        ..Faults::default()
    }
}

fn setup(keys: &Keys) -> Setup {
    Setup {
        population: "people".to_owned(),
        board_keys: TrustedKeys::new([keys.board().public()]),
        task_keys: TrustedKeys::new([keys.plans().public()]),
        issuers: TrustedKeys::new([keys.issuer().public()]),
        floors: PolicyFloors {
            min_goal: GOAL,
            min_group: GOAL as u32,
            max_epsilon: 1e6,
            require_secagg: false,
            population_rho: 1e6,
            neighbours: Neighbours::Anyone,
            ..PolicyFloors::COMPILED
        },
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    }
}

#[test]
#[ignore = "slow"]
fn a_service_that_loses_a_tenth_of_its_devices_learns_as_much_as_the_simulation() {
    Case {
        users: 2600,
        words: 60,
        rounds: 40,
        min_sep: 10,
        embed: 12,
        hidden: 16,
    }
    .compare();
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "five minutes: the quickstart's population and model"]
    fn the_quickstart_population_learns_as_much_from_a_service_that_loses_a_tenth_of_its_devices() {
        Case {
            users: 20_000,
            words: 1000,
            rounds: 100,
            min_sep: 20,
            embed: 32,
            hidden: 64,
        }
        .compare();
    }
}

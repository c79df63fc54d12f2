//! The service: a task with the seed of the simulation, and a fleet whose devices come when the simulation draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::record::{LedgerEntry, LedgerLine};
use undertone_data::Split;
use undertone_device::{NetworkLost, PolicyFloors, Reply, Request, Transport};
use undertone_fleet::{
    Availability, Fleet, FleetConfig, InProcess, RunEnd, SubjectNames, Transports, Updates,
};
use undertone_models::weights;
use undertone_protocol::TaskState;
use undertone_secagg::Floors;
use undertone_service::identity::Identity;
use undertone_service::server::Service;
use undertone_service::task::parity::Parity;
use undertone_service_testing::{START, World, floors, keys, loaded, setup};
use undertone_store::Sqlite;

use super::simulation::{Case, GOAL, ROUNDS, SEED, Simulation};

/// The service is restarted after this number of rounds: model, optimizer and noise go on from what is stored.
const RESTART: u64 = 9;

/// The time after which a task that has not ended has failed, in milliseconds.
const PATIENCE: u64 = 10 * 3_600_000;

/// The time between two looks of a device that is not drawn, in milliseconds.
const LOOK: u64 = 500;

/// An ended task of the service.
pub(crate) struct Served {
    /// The rounds of the ledger.
    pub(crate) ledger: Vec<LedgerEntry>,
    /// The parameters before the first round, and after each.
    pub(crate) parameters: Vec<Vec<f32>>,
    /// The content of `mechanism.json`.
    pub(crate) mechanism: Vec<u8>,
    /// The user behind each pseudonym.
    pub(crate) users: BTreeMap<ParticipantId, usize>,
    /// The participations that the devices remember, by user and round.
    pub(crate) remembered: BTreeSet<(usize, u64)>,
}

/// The devices that may work now: those of the round's cohort.
#[derive(Default)]
struct Drawn(Mutex<BTreeSet<usize>>);

impl Availability for Drawn {
    fn next(&self, device: usize, at_ms: u64) -> Option<u64> {
        let drawn = self.0.lock().unwrap().contains(&device);
        Some(if drawn { at_ms } else { at_ms + LOOK })
    }
}

/// The service, which is restarted once. Devices reach the one that runs.
#[derive(Clone)]
struct Running(Arc<Mutex<(Arc<Service>, InProcess)>>);

impl Running {
    fn new(service: Arc<Service>) -> Self {
        Self(Arc::new(Mutex::new(Self::reached(service))))
    }

    fn reached(service: Arc<Service>) -> (Arc<Service>, InProcess) {
        (service.clone(), InProcess::new(service).unwrap())
    }

    fn service(&self) -> Arc<Service> {
        self.0.lock().unwrap().0.clone()
    }

    /// Ends the service and starts another one, which knows what is durable and nothing else.
    fn restart(&self, new: impl FnOnce() -> Service) {
        let mut running = self.0.lock().unwrap();
        running.0.close();
        *running = Self::reached(Arc::new(new()));
    }
}

impl Transport for Running {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let mut reached = self.0.lock().unwrap().1.clone();
        reached.send(request)
    }
}

impl Transports for Running {
    fn open(&self, _: usize) -> undertone_fleet::Result<Box<dyn Transport>> {
        Ok(Box::new(self.clone()))
    }
}

/// The text of the task: the tables of the simulation, and the service around them. The population is that of the corpus.
fn text(case: &Case, users: usize) -> String {
    let group = match case.secure {
        // Two groups, whose sums are added.
        true => "{ target = 10, min = 8 }",
        false => "{ target = 10, min = 10 }",
    };
    format!(
        r#"{}vocabulary = {{ kind = "file", path = "vocab.txt" }}
cohort = {{ sampling = "check_in", users_per_round = {GOAL}, population = {users} }}

[service]
over_selection = 1.0
group = {group}
deadlines = {{ select = "600s", report = "1200s", lobby = "60s", keys = "60s", shares = "60s", upload = "60s", unmask = "60s", attempt = "3000s" }}
eligibility = {{ min_examples = 1, max_examples = 1000, timer = "1s" }}
identity = "dev"
pace = {{ checkins_per_needed = 3.0, min_interval = "1s" }}
"#,
        case.tables()
    )
}

impl Served {
    /// Plays the cohorts of the simulation.
    pub(crate) fn new(case: &Case, simulation: &Simulation) -> Self {
        let users = simulation.corpus.partition(Split::Train);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service.sqlite");
        let world = World::new()
            .store(|clock| Sqlite::with_clock(&path, clock).unwrap())
            .task(&text(case, users.num_users()))
            .words(&simulation.corpus.vocab().to_file_contents())
            .parity(Parity {
                rotations: simulation.rotations,
            })
            .start();
        let store = world.shared().store.clone();
        let running = Running::new(world.service.clone());
        let drawn = Arc::new(Drawn::default());
        let floors = PolicyFloors {
            min_goal: GOAL as u64,
            min_group: 8,
            max_epsilon: 1e6,
            population_rho: 100.0,
            secagg: Floors::COMPILED.with_clients(8, 8).unwrap(),
            ..floors(Identity::Dev)
        };
        // One device per user, of which those that are drawn come.
        let config = FleetConfig {
            setup: setup(&keys(), floors),
            subject_names: SubjectNames::Number,
            availability: drawn.clone(),
            updates: Updates::Train,
            max_pause_ms: LOOK,
            workers: 2,
            seeds_of: Some(Arc::new(|round, user| {
                Randomness::seeded(SEED).user_seeds(round, user)
            })),
            ..world.fleet_config(users.num_users())
        };
        let fleet = Fleet::new(config, users, running.clone()).unwrap();
        fleet.enrol().unwrap();
        let mut parameters: Vec<Vec<f32>> = Vec::new();
        let end = fleet.run_until(|| {
            running.service().tick().unwrap();
            let row = world.row();
            if parameters.len() as u64 <= row.head_round {
                assert_eq!(parameters.len() as u64, row.head_round);
                let model = world.released();
                parameters.push(weights::from_safetensors(simulation.model.layout(), &model).unwrap());
                if row.head_round == RESTART {
                    running.restart(|| world.process("second"));
                }
                let cohort = match row.head_round {
                    ROUNDS => Vec::new(),
                    round => simulation.cohort(round),
                };
                *drawn.0.lock().unwrap() = cohort.into_iter().collect();
            }
            let abandoned = store.abandoned_since_release(world.task).unwrap();
            assert!(abandoned.is_empty(), "{:?}: {abandoned:?}", fleet.statistics());
            assert!(
                store.now() < START + PATIENCE,
                "round {}: {:?}",
                row.head_round,
                fleet.statistics()
            );
            row.state == TaskState::Completed
        });
        assert_eq!(end.unwrap(), RunEnd::Done);
        world.exports();
        let (keys, task) = (keys(), world.task);
        let issuer = keys.issuer().public();
        Self {
            ledger: ledger(&world.ledger()),
            parameters,
            mechanism: loaded(world.shared(), task).mechanism.unwrap(),
            users: (fleet.subject_names().iter())
                .map(|subject| keys.pseudonym(task, &issuer, subject))
                .zip(0..)
                .collect(),
            remembered: fleet
                .participations()
                .into_iter()
                .map(|remembered| (remembered.subject, remembered.participation.round))
                .collect(),
        }
    }
}

/// The rounds of the ledger of an ended task. No attempt at any of them was abandoned.
fn ledger(lines: &[Vec<u8>]) -> Vec<LedgerEntry> {
    let (end, rounds) = lines.split_last().unwrap();
    assert!(
        matches!(LedgerLine::read(end).unwrap(), LedgerLine::End(end) if end.rounds == ROUNDS && end.attempts.is_empty())
    );
    rounds
        .iter()
        .map(|line| match LedgerLine::read(line).unwrap() {
            LedgerLine::Round(entry) => *entry,
            LedgerLine::End(end) => panic!("an end before the last line: {end:?}"),
        })
        .collect()
}

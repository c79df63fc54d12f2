//! Devices of the protocol version before that of a service take part, and older ones must upgrade.
//!
//! Version 1 is the first, so no older program exists. The service is therefore made newer: its routes speak up to version 2 or 3, and the
//! devices are those of this program.

use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_device::{Limits, PolicyFloors, Setup};
use undertone_fleet::{Fleet, FleetConfig, InProcess, RunEnd, Updates, VirtualClock};
use undertone_protocol::{TaskState, TrustedKeys, Versions};
use undertone_service::http::routes_of;
use undertone_service::identity::Identity;
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::{Task, create};
use undertone_store::{ManualClock, Memory, MemoryBlobs, TaskId};

const START: u64 = 1_800_000_000_000;

const TASK: &str = r#"
name = "words"
rounds = 2
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 4 }
cohort = { sampling = "check_in", users_per_round = 6, population = 100 }
participation = { min_sep = 2, max_part = 1 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "tree" } }

[service]
over_selection = 1.5
group = { target = 4, min = 4 }
deadlines = { select = "60s", report = "120s", attempt = "300s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "dev"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

/// A service with one task, and the clock of both sides.
struct World {
    service: Arc<Service>,
    task: TaskId,
    clock: ManualClock,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::at(START);
        let shared = Shared {
            store: Arc::new(Memory::new(Arc::new(clock.clone()))),
            blobs: Arc::new(MemoryBlobs::new()),
            keys: Keys::from_root([7; 32]),
            process: "test".to_owned(),
            witness: None,
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), "the\nof\nand\nto\nin\n").unwrap();
        let file: TaskFile =
            undertone_run_directory::task::parse(TASK, Path::new("task.toml"), Seeding::Refused).unwrap();
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let task = create(&file, folder.path(), "people", &shared.keys, store, blobs).unwrap();
        store
            .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
            .unwrap();
        let service = Arc::new(Service::new(shared, Identity::Dev).unwrap());
        Self { service, task, clock }
    }

    /// Twenty devices, and their way to a service that speaks up to this version. All fleets are the same devices.
    fn fleet(&self, newest: u32) -> Fleet<'static> {
        let keys = Keys::from_root([7; 32]);
        let setup = Setup {
            population: "people".to_owned(),
            board_keys: TrustedKeys::new([keys.board().public()]),
            task_keys: TrustedKeys::new([keys.plans().public()]),
            issuers: TrustedKeys::new([keys.issuer().public()]),
            floors: PolicyFloors {
                min_goal: 2,
                min_group: 2,
                max_epsilon: 100.0,
                require_secagg: false,
                population_rho: 10.0,
                ..PolicyFloors::COMPILED
            },
            limits: Limits::default(),
            client_version: 1,
            evidence: Vec::new(),
        };
        let manual = self.clock.clone();
        let clock = VirtualClock::at(START)
            .with_step(500)
            .followed_by(move |now| manual.set(now));
        let config = FleetConfig {
            clock: Arc::new(clock),
            max_pause_ms: 20_000,
            updates: Updates::Synthetic,
            ..FleetConfig::new(Arc::new(setup), 20)
        };
        let users: Vec<Vec<Vec<u32>>> = vec![vec![vec![3, 4, 5, 1]; 8]; 20];
        let routes = routes_of(self.service.clone(), Versions::up_to(newest));
        Fleet::new(config, users, InProcess::to_router(routes).unwrap()).unwrap()
    }

    fn state(&self) -> TaskState {
        self.service.tick().unwrap();
        self.service.shared().store.task(self.task).unwrap().state
    }
}

#[test]
fn a_device_of_the_version_before_takes_part_to_the_verified_export() {
    let world = World::new();
    let fleet = world.fleet(2);
    fleet.enrol().unwrap();
    let end = fleet.run_until(|| world.state() == TaskState::Completed).unwrap();
    assert_eq!((end, world.state()), (RunEnd::Done, TaskState::Completed));
    let row = world.service.shared().store.task(world.task).unwrap();
    assert_eq!(row.head_round, 2);
    // Six devices are in each of the two rounds, by their own memories.
    assert!(fleet.participations().len() >= 12, "{:?}", fleet.statistics());
    let folder = tempfile::tempdir().unwrap();
    let shared = world.service.shared();
    let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
    let task = Task::load(&store.task(world.task).unwrap(), blobs, &shared.keys).unwrap();
    let run = folder.path().join("run");
    task.export(store, blobs, &shared.keys, &run).unwrap();
    assert!(undertone_verify::verify(&run).unwrap().holds());
}

#[test]
fn a_device_two_versions_behind_is_told_to_upgrade() {
    let world = World::new();
    world.state();
    let refused = world.fleet(3).enrol().unwrap_err().to_string();
    let sentence = "this service speaks versions 2 and 3 of the protocol, and the request has \\\"1\\\"";
    assert!(
        refused.contains("CODE_UPGRADE") && refused.contains("426") && refused.contains(sentence),
        "{refused}"
    );
    // Nothing behind the check of the version has seen the device.
    let shared = world.service.shared();
    let devices = world.fleet(3).device_keys();
    assert!(
        devices
            .iter()
            .all(|key| shared.store.device(key).unwrap().is_none())
    );
}

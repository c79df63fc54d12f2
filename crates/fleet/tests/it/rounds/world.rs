//! A service with one task and its devices, over its routes, under a clock that the test moves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use tower::ServiceExt;
use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_device::{
    Action, Ended, Event, Limits, Machine, Memory, Neighbours, Outcome, PolicyFloors, Reply, Request, Setup,
    Watch, enrolment_body,
};
use undertone_protocol::{
    Enrol, Enrolled, Label, OFFSET_HEADER, Signer, TaskState, TrustedKeys, limits, read, write,
};
use undertone_secagg::Floors;
use undertone_service::http;
use undertone_service::identity::{Identity, Invitation};
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::{Task, create};
use undertone_store::{Clock as _, ManualClock, Memory as MemoryStore, MemoryBlobs, Store, TaskId};
use zeroize::Zeroizing;

pub(crate) const START: u64 = 1_800_000_000_000;
const WORDS: &str = "the\nof\nand\nto\nin\na\nis\nthat\nfor\nit\n";

pub(crate) const PLAIN: &str = r#"
name = "words"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 2, max_part = 2 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2, epochs = 1 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "blt", buffers = 2 } }
server = { optimizer = { kind = "sgd" }, learning_rate = 1.0 }

[service]
over_selection = 1.5
group = { target = 4, min = 4 }
deadlines = { select = "60s", report = "120s", attempt = "300s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

pub(crate) const SECURE: &str = r#"
name = "words"
rounds = 2
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 9, population = 100 }
participation = { min_sep = 2, max_part = 1 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2, epochs = 1 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-6, mechanism = { kind = "blt", buffers = 2 } }
server = { optimizer = { kind = "sgd" }, learning_rate = 1.0 }
aggregation = { sum = "secagg", encoding = { kind = "rotated_rounding", scale = 10000.0 }, min_clients = 6, max_clients = 24 }

[service]
over_selection = 1.5
group = { target = 7, min = 4 }
deadlines = { select = "60s", report = "120s", lobby = "5s", keys = "10s", shares = "10s", upload = "30s", unmask = "10s", attempt = "300s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "dev"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

pub(crate) const EVALUATION: &str = r#"
kind = "evaluate"
of = "words"
loss_cap = 10.0
name = "words-accuracy"
rounds = 1
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "cifg", cells = 6, embedding = 4, projection = 4 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 1, max_part = 1 }
privacy = { noise_multiplier = 1.0, delta = 1e-6, mechanism = { kind = "blt", buffers = 2 } }

[service]
over_selection = 1.5
group = { target = 4, min = 4 }
deadlines = { select = "60s", report = "120s", attempt = "300s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

/// A service with one task, and its devices.
pub(crate) struct World {
    pub(crate) service: Arc<Service>,
    routes: Router,
    runtime: tokio::runtime::Runtime,
    clock: ManualClock,
    pub(crate) task: TaskId,
    pub(crate) devices: Vec<SimDevice>,
}

pub(crate) struct SimDevice {
    key: Signer,
    pub(crate) memory: Memory,
    setup: Arc<Setup>,
    examples: Vec<Vec<u32>>,
    machine: Option<Machine>,
    wake: u64,
    event: Option<Event>,
    pub(crate) ends: Vec<Ended>,
    seed: u64,
}

impl World {
    /// A world in memory.
    pub(crate) fn new(text: &str, users: usize, identity: Identity) -> Self {
        let clock = ManualClock::at(START);
        let store = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
        Self::on(store, clock, text, users, identity)
    }

    /// A world on this store, which goes by the clock.
    pub(crate) fn on(
        store: Arc<dyn Store>,
        clock: ManualClock,
        text: &str,
        users: usize,
        identity: Identity,
    ) -> Self {
        let shared = Shared {
            store,
            blobs: Arc::new(MemoryBlobs::new()),
            keys: Keys::from_root([7; 32]),
            process: "test".to_owned(),
            witness: None,
        };
        Self::over(shared, clock, text, users, identity)
    }

    fn over(shared: Shared, clock: ManualClock, text: &str, users: usize, identity: Identity) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), WORDS).unwrap();
        let file: TaskFile =
            undertone_run_directory::task::parse(text, Path::new("task.toml"), Seeding::Refused).unwrap();
        let Shared {
            store, blobs, keys, ..
        } = &shared;
        let task = match store.tasks().unwrap().first() {
            Some(row) => row.task.id,
            None => create(
                &file,
                folder.path(),
                "people",
                keys,
                store.as_ref(),
                blobs.as_ref(),
            )
            .unwrap(),
        };
        if store.task(task).unwrap().state == TaskState::Draft {
            store
                .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
                .unwrap();
        }
        let now = clock.now();
        let (board, plans, issuer) = (
            keys.board().public(),
            keys.plans().public(),
            keys.issuer().public(),
        );
        let invitations: Vec<String> = (0..users)
            .map(|user| Invitation::new([user as u8; 32], now + 1_000_000_000).text(keys, "people"))
            .collect();
        let service = Arc::new(Service::new(shared, identity).unwrap());
        service.tick().unwrap();
        let routes = http::routes(service.clone());
        let setup = Arc::new(Setup {
            population: "people".to_owned(),
            board_keys: TrustedKeys::new([board]),
            task_keys: TrustedKeys::new([plans]),
            issuers: TrustedKeys::new([issuer]),
            floors: PolicyFloors {
                min_goal: 2,
                min_group: 2,
                max_epsilon: 100.0,
                require_secagg: false,
                population_rho: 10.0,
                secagg: Floors::COMPILED.with_clients(4, 4).unwrap(),
                neighbours: match identity {
                    Identity::Dev => Neighbours::Anyone,
                    Identity::Certificate | Identity::Attested => Neighbours::Certified,
                },
                ..PolicyFloors::COMPILED
            },
            limits: Limits::default(),
            client_version: 1,
            evidence: Vec::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut world = Self {
            service,
            routes,
            runtime,
            clock,
            task,
            devices: Vec::new(),
        };
        for (user, invitation) in invitations.into_iter().enumerate() {
            let device = world.enrol(user, &invitation, setup.clone());
            world.devices.push(device);
        }
        world
    }

    fn enrol(&self, user: usize, invitation: &str, setup: Arc<Setup>) -> SimDevice {
        let key = Signer::from_seed(&[100 + user as u8; 32]);
        let mut enrol = Enrol {
            device_key: key.public().to_vec(),
            invitation: invitation.to_owned(),
            subject: vec![user as u8; 32],
            ..Enrol::default()
        };
        enrol.proof = key.proof(Label::Enrolment, &enrolment_body(&enrol));
        let reply = self.send("POST", "/v1/p/people/enrol", &[], write(&enrol));
        assert_eq!(reply.status, 200);
        let enrolled: Enrolled = read("the reply", &reply.body, limits::MAX_MESSAGE).unwrap();
        SimDevice {
            key,
            memory: Memory {
                certificate: enrolled.certificate,
                training_examples: 8,
                ..Memory::default()
            },
            setup,
            examples: (0..8)
                .map(|place| vec![3 + (user as u32 + place) % 8, 4, 5, 1])
                .collect(),
            machine: None,
            wake: 0,
            event: None,
            ends: Vec::new(),
            seed: user as u64,
        }
    }

    fn send(&self, method: &str, target: &str, headers: &[(&'static str, String)], body: Vec<u8>) -> Reply {
        let mut request = axum::http::Request::builder()
            .method(method)
            .uri(target.replace("wait=25", "wait=0"));
        let (name, value) = undertone_protocol::PROTOCOL_HEADER;
        if !headers.iter().any(|(header, _)| *header == name) {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body)).unwrap();
        self.runtime.block_on(async {
            let response = self.routes.clone().oneshot(request).await.unwrap();
            let offset = response.headers().get(OFFSET_HEADER);
            let offset = offset.and_then(|value| value.to_str().ok()?.parse().ok());
            let status = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX)
                .await
                .unwrap();
            Reply {
                status,
                offset,
                body: body.to_vec(),
            }
        })
    }

    /// Exports the task once its last round has ended it.
    pub(crate) fn exports_after_the_end(&mut self) {
        self.step();
        self.exports();
    }

    fn carry(&self, request: &Request) -> Reply {
        self.send(
            request.method.name(),
            &request.target,
            &request.headers,
            request.body.to_vec(),
        )
    }

    /// Lets every device go on until it sleeps.
    pub(crate) fn step(&mut self) {
        let now = self.clock_now();
        for place in 0..self.devices.len() {
            while self.devices[place].wake <= now {
                self.one(place, now);
            }
        }
        self.service.tick().unwrap();
    }

    pub(crate) fn advance(&self, by: u64) {
        self.clock.advance(by);
    }

    pub(crate) fn clock_now(&self) -> u64 {
        self.service.shared().store.now()
    }

    fn one(&mut self, place: usize, now: u64) {
        let device = &mut self.devices[place];
        let event = device.event.take().unwrap_or(Event::Wake);
        if device.machine.is_none() {
            device.seed += 1000;
            let mut seed = Zeroizing::new([0; 32]);
            seed[..8].copy_from_slice(&device.seed.to_le_bytes());
            let key = device.key.clone();
            device.machine = Some(Machine::new(
                device.setup.clone(),
                device.memory.clone(),
                key,
                &seed,
            ));
        }
        let Some(machine) = &mut device.machine else {
            return;
        };
        let action = machine.step(now, event);
        let event = match action {
            Action::Http(request) => {
                let reply = self.carry(&request);
                Event::Reply(reply)
            }
            Action::Train(job) => {
                let device = &self.devices[place];
                let examples: Vec<&[u32]> = device.examples.iter().map(Vec::as_slice).collect();
                Event::Trained(job.run_tokens(&examples, &Watch::new(60_000)))
            }
            Action::Persist(_) => Event::Persisted,
            Action::SleepUntil(until) => {
                self.devices[place].wake = until;
                return;
            }
            Action::Done(Outcome { ended, wake_ms, .. }) => {
                let device = &mut self.devices[place];
                device.memory = device
                    .machine
                    .take()
                    .map(|machine| machine.memory().clone())
                    .unwrap_or_default();
                device.ends.push(ended);
                device.wake = wake_ms.max(now + 1);
                return;
            }
        };
        self.devices[place].event = Some(event);
    }

    /// Activates an evaluation of the task, and leads the world to it.
    pub(crate) fn evaluate(&mut self, text: &str) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), WORDS).unwrap();
        let file: TaskFile =
            undertone_run_directory::task::parse(text, Path::new("task.toml"), Seeding::Refused).unwrap();
        let Shared {
            store, blobs, keys, ..
        } = &**self.service.shared();
        let task = create(
            &file,
            folder.path(),
            "people",
            keys,
            store.as_ref(),
            blobs.as_ref(),
        )
        .unwrap();
        store
            .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
            .unwrap();
        self.task = task;
        for device in &mut self.devices {
            device.memory.withheld_examples = 8;
        }
    }

    /// The bytes of the newest release.
    pub(crate) fn released(&self) -> Vec<u8> {
        use std::io::Read;
        let shared = self.service.shared();
        let digest = shared.store.task(self.task).unwrap().head_model;
        let mut bytes = Vec::new();
        shared
            .blobs
            .get(&digest, 0)
            .unwrap()
            .bytes
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    }

    pub(crate) fn exports(&self) {
        let folder = tempfile::tempdir().unwrap();
        let shared = self.service.shared();
        let row = shared.store.task(self.task).unwrap();
        let task = Task::load(&row, shared.blobs.as_ref(), &shared.keys).unwrap();
        let target = folder.path().join("run");
        let report = task
            .export(
                shared.store.as_ref(),
                shared.blobs.as_ref(),
                &shared.keys,
                &target,
            )
            .unwrap();
        assert!(report.observed.is_some());
        let verified = undertone_verify::verify(&target).unwrap();
        assert!(verified.holds(), "{verified:?}");
    }

    pub(crate) fn run_until_round(&mut self, round: u64) {
        for _ in 0..20_000 {
            let row = self.service.shared().store.task(self.task).unwrap();
            if row.head_round >= round {
                return;
            }
            self.step();
            self.clock.advance(500);
        }
        let ends: BTreeMap<String, usize> =
            self.devices
                .iter()
                .flat_map(|device| &device.ends)
                .fold(BTreeMap::new(), |mut counts, end| {
                    *counts.entry(format!("{end:?}")).or_default() += 1;
                    counts
                });
        panic!("round {round} was not released: {ends:#?}");
    }
}

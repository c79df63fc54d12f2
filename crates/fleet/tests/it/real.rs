//! Fleets against the real service: in this process under a virtual clock, and over HTTP through a faulty proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_device::{Limits, Neighbours, PolicyFloors, Progress, Setup};
use undertone_fleet::{
    Conduct, Enrolment, Faults, Fleet, FleetConfig, InProcess, Malice, Malicious, OverHttp, Point, Proxy,
    Updates, Vanish, VirtualClock,
};
use undertone_operate::host::{Host, HostConfig};
use undertone_protocol::{TaskState, TrustedKeys, Verdict};
use undertone_secagg::Floors;
use undertone_service::identity::{Identity, Invitation};
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::{Task, create};
use undertone_store::{ManualClock, Memory as MemoryStore, MemoryBlobs, TaskId};

const START: u64 = 1_800_000_000_000;
const WORDS: &str = "the\nof\nand\nto\nin\na\nis\nthat\nfor\nit\n";

const PLAIN: &str = r#"
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

const SECURE: &str = r#"
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
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

fn setup(keys: &Keys) -> Arc<Setup> {
    Arc::new(Setup {
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
            secagg: Floors::COMPILED.with_clients(4, 4).unwrap(),
            neighbours: Neighbours::Certified,
            ..PolicyFloors::COMPILED
        },
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    })
}

fn users(number: u32) -> Vec<Vec<Vec<u32>>> {
    let example = |user: u32, place: u32| vec![3 + (user + place) % 8, 4, 5, 1];
    (0..number)
        .map(|user| (0..8).map(|place| example(user, place)).collect())
        .collect()
}

fn invitations(keys: Keys, until: u64) -> Enrolment {
    Enrolment::Invitations(Arc::new(move |_, name| {
        Invitation::new(*name, until).text(&keys, "people")
    }))
}

fn make(text: &str, shared: &Shared) -> TaskId {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vocab.txt"), WORDS).unwrap();
    let file: TaskFile =
        undertone_run_directory::task::parse(text, Path::new("task.toml"), Seeding::Refused).unwrap();
    let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
    let task = create(&file, folder.path(), "people", &shared.keys, store, blobs).unwrap();
    shared
        .store
        .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
        .unwrap();
    task
}

fn exports(shared: &Shared, task: TaskId) {
    let folder = tempfile::tempdir().unwrap();
    let row = shared.store.task(task).unwrap();
    let task = Task::load(&row, shared.blobs.as_ref(), &shared.keys).unwrap();
    let target = folder.path().join("run");
    task.export(
        shared.store.as_ref(),
        shared.blobs.as_ref(),
        &shared.keys,
        &target,
    )
    .unwrap();
    let verified = undertone_verify::verify(&target).unwrap();
    assert!(verified.holds(), "{verified:?}");
}

/// Separation and number per subject of the updates that devices remember as included.
fn separated(fleet: &Fleet<'_>, min_sep: u64, max_part: usize) {
    let mut rounds: BTreeMap<usize, Vec<(u64, u32)>> = BTreeMap::new();
    for row in fleet.participations() {
        let round = (row.participation.round, row.participation.attempt);
        // Another device of the subject may come where an update is known to be in no sum; the device that sent it counts it all the same.
        if row.participation.progress != Progress::Ended(Verdict::Included) {
            continue;
        }
        rounds.entry(row.subject).or_default().push(round);
    }
    for (subject, mut rounds) in rounds {
        rounds.sort_unstable();
        let apart = rounds.windows(2).all(|pair| pair[1].0 >= pair[0].0 + min_sep);
        assert!(apart && rounds.len() <= max_part, "subject {subject}: {rounds:?}");
    }
}

fn in_process(
    text: &str,
    devices: usize,
    min_sep: u64,
    max_part: usize,
    change: impl FnOnce(&mut FleetConfig),
) {
    let manual = ManualClock::at(START);
    let keys = Keys::from_root([7; 32]);
    let shared = Shared {
        store: Arc::new(MemoryStore::new(Arc::new(manual.clone()))),
        blobs: Arc::new(MemoryBlobs::new()),
        keys: Keys::from_root([7; 32]),
        process: "test".to_owned(),
        witness: None,
    };
    let task = make(text, &shared);
    let service = Arc::new(Service::new(shared, Identity::Certificate).unwrap());
    let clock = VirtualClock::at(START)
        .with_step(500)
        .followed_by(move |now| manual.set(now));
    let mut config = FleetConfig {
        clock: Arc::new(clock),
        enrolment: invitations(Keys::from_root([7; 32]), START + 1_000_000_000),
        workers: 2,
        max_pause_ms: 20_000,
        updates: Updates::Synthetic,
        ..FleetConfig::new(setup(&keys), devices)
    };
    change(&mut config);
    let subjects = config.subjects as u32;
    let transport = InProcess::new(service.clone()).unwrap();
    let fleet = Fleet::new(config, users(subjects), transport).unwrap();
    fleet.enrol().unwrap();
    let started = Instant::now();
    let done = || {
        service.tick().unwrap();
        let row = service.shared().store.task(task).unwrap();
        if started.elapsed() > Duration::from_secs(120) {
            panic!("{} {:?} {:#?}", row.head_round, row.state, fleet.statistics());
        }
        row.state == TaskState::Completed
    };
    let end = fleet.run_until(done).unwrap();
    println!("{end:?} in {:?}: {:#?}", started.elapsed(), fleet.statistics());
    separated(&fleet, min_sep, max_part);
    exports(service.shared(), task);
}

#[test]
#[ignore = "slow"]
fn plain_with_faults_malice_and_shared_subjects() {
    in_process(PLAIN, 80, 2, 2, |config| {
        config.subjects = 40;
        config.updates = Updates::Train;
        config.faults = Faults {
            lost_before: 0.03,
            lost_after: 0.03,
            duplicate: 0.05,
            delay: 0.05,
            max_delay_ms: 2000,
            vanish: vec![
                Vanish {
                    at: Point::MidUpload,
                    probability: 0.05,
                    returns_after_ms: Some(10_000),
                },
                Vanish {
                    at: Point::AfterJoin,
                    probability: 0.05,
                    returns_after_ms: Some(10_000),
                },
            ],
        };
        config.malicious = Malice::ALL
            .map(|kind| Malicious { fraction: 0.04, kind })
            .to_vec();
    });
}

#[test]
#[ignore = "slow"]
fn a_secure_task_completes_despite_drop_outs_and_malice() {
    in_process(SECURE, 60, 2, 1, |config| {
        let kinds = [
            Malice::OverNorm,
            Malice::WrongLength,
            Malice::ReplayedCertificate,
            Malice::SharedSubject,
        ];
        config.malicious = kinds.map(|kind| Malicious { fraction: 0.05, kind }).to_vec();
        config.faults = Faults {
            lost_after: 0.05,
            duplicate: 0.05,
            vanish: vec![
                Vanish {
                    at: Point::BeforeUnmask,
                    probability: 0.05,
                    returns_after_ms: Some(10_000),
                },
                Vanish {
                    at: Point::AfterJoin,
                    probability: 0.05,
                    returns_after_ms: Some(10_000),
                },
            ],
            ..Faults::default()
        };
    });
}

#[test]
#[ignore = "slow"]
fn over_http_through_a_proxy_that_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let shared = undertone_service::data_folder::open(folder.path(), None).unwrap();
    let keys = Keys::open(folder.path()).unwrap();
    let task = make(PLAIN, &shared);
    let host = Host::start(
        folder.path(),
        shared,
        HostConfig {
            listen: "127.0.0.1:0".to_owned(),
            tls: None,
            identity: Identity::Certificate,
            threads: 2,
        },
    )
    .unwrap();
    let proxy = Proxy::start(host.address(), |number| match number % 3 {
        1 => Conduct {
            cut_down_after: Some(9000),
            ..Conduct::default()
        },
        2 => Conduct {
            cut_up_after: Some(7000),
            ..Conduct::default()
        },
        _ => Conduct::default(),
    })
    .unwrap();
    let config = FleetConfig {
        enrolment: invitations(Keys::open(folder.path()).unwrap(), u64::MAX / 2),
        workers: 4,
        max_pause_ms: 2000,
        start_spread_ms: 500,
        ..FleetConfig::new(setup(&keys), 40)
    };
    let fleet = Fleet::new(
        config,
        users(40),
        OverHttp::new(format!("http://{}", proxy.address())),
    )
    .unwrap();
    fleet.enrol().unwrap();
    let started = Instant::now();
    let store = host.service().shared().store.clone();
    fleet
        .run_until(|| {
            let row = store.task(task).unwrap();
            if started.elapsed() > Duration::from_secs(150) {
                panic!("{} {:?} {:#?}", row.head_round, row.state, fleet.statistics());
            }
            row.state == TaskState::Completed
        })
        .unwrap();
    println!(
        "in {:?}: {:#?}, {} cuts",
        started.elapsed(),
        fleet.statistics(),
        proxy.cuts()
    );
    separated(&fleet, 2, 2);
    let service = host.service().clone();
    exports(service.shared(), task);
    host.stop();
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "long: a thousand devices"]
    fn a_thousand_devices_complete_a_task() {
        let text = PLAIN
            .replace(
                "users_per_round = 8, population = 100",
                "users_per_round = 300, population = 5000",
            )
            .replace("noise_multiplier = 2.0", "noise_multiplier = 20.0");
        in_process(&text, 2000, 2, 2, |config| config.workers = 4);
    }
}

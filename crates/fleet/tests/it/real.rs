//! Fleets against the real service: in this process under a virtual clock, and over HTTP through a faulty proxy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use undertone_device::Progress;
use undertone_fleet::{
    Conduct, Faults, Fleet, FleetConfig, Malice, Malicious, OverHttp, Point, Proxy, Updates, Vanish,
};
use undertone_operate::host::{Host, HostConfig};
use undertone_protocol::{TaskState, Verdict};
use undertone_service::identity::Identity;
use undertone_service::keys::Keys;
use undertone_service::room::Shared;
use undertone_service_testing::{PLAIN, World, changed, exports, fleet_config, floors, secure, users};
use undertone_store::TaskId;

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

/// Plays a task to its end with this fleet and calls `turn` on the way, and checks what devices remember and what the service exports.
fn play(fleet: &Fleet<'_>, shared: &Shared, task: TaskId, max_part: usize, turn: impl Fn()) {
    fleet.enrol().unwrap();
    let started = Instant::now();
    let done = || {
        turn();
        let row = shared.store.task(task).unwrap();
        if started.elapsed() > Duration::from_secs(150) {
            panic!("{} {:?} {:#?}", row.head_round, row.state, fleet.statistics());
        }
        row.state == TaskState::Completed
    };
    let end = fleet.run_until(done).unwrap();
    println!("{end:?} in {:?}: {:#?}", started.elapsed(), fleet.statistics());
    separated(fleet, 2, max_part);
    exports(shared, task);
}

fn in_process(text: &str, devices: usize, max_part: usize, change: impl FnOnce(&mut FleetConfig)) {
    let world = World::new().task(text).start();
    let mut config = world.fleet_config(devices);
    config.workers = 2;
    change(&mut config);
    let users = users(config.subjects);
    let fleet = Fleet::new(config, users, world.way()).unwrap();
    play(&fleet, world.shared(), world.task, max_part, || {
        world.service.tick().unwrap();
    });
}

#[test]
#[ignore = "slow"]
fn plain_with_faults_malice_and_shared_subjects() {
    in_process(PLAIN, 80, 2, |config| {
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
    in_process(&secure(), 60, 1, |config| {
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
    let task = World::new().create(&shared);
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
    let keys = Keys::open(folder.path()).unwrap();
    let config = FleetConfig {
        workers: 4,
        max_pause_ms: 2000,
        start_spread_ms: 500,
        ..fleet_config(keys, floors(Identity::Certificate), 40)
    };
    let way = OverHttp::new(format!("http://{}", proxy.address()));
    let fleet = Fleet::new(config, users(40), way).unwrap();
    let service = host.service().clone();
    play(&fleet, service.shared(), task, 2, || ());
    println!("{} cuts", proxy.cuts());
    host.stop();
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "long: a thousand devices"]
    fn a_thousand_devices_complete_a_task() {
        let changes =
            "cohort = { users_per_round = 300, population = 5000 }\nprivacy.noise_multiplier = 20.0";
        let text = changed(PLAIN, changes);
        in_process(&text, 2000, 2, |config| config.workers = 4);
    }
}

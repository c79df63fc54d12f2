//! The sum of a secure round, and the updates behind it, leave no trace in a server.
//!
//! Six devices run the machine of a real device with updates that the test knows. The encoding is the one without rounding, so the sum
//! that the server opens is known bit for bit, in the fixed point in which it is opened and in every form behind it. The server never has an
//! update in the clear. That the search finds what is there is shown by the masked update of a device that waits with its commit.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use undertone_device::{
    Action, DeviceSettings, Ended, Event, HttpTransport, Limits, Machine, Memory, MemoryKeyStore, Setup,
    Transport,
};
use undertone_protocol::{Code, Verdict};
use zeroize::Zeroizing;

use super::PATIENCE;
use super::hand::Hand;
use super::search::{Needles, bytes_of, fixed_of, in_files, in_memory, places, sum_of, update};
use super::server::{Server, admin, certificate};
use crate::support::{Folder, json, number};

/// Devices of the round, none of which is lost.
const DEVICES: usize = 6;

const TASK: &str = r#"
name = "secure-canaries"
rounds = 1
vocabulary = { kind = "file", path = "words.txt" }
model = { family = "dplm", embed = 8, hidden = 12 }
cohort = { sampling = "check_in", users_per_round = 6, population = 100 }
participation = { min_sep = 1, max_part = 1 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2 }
clip = { kind = "flat", norm = 1.0 }
privacy = { noise_multiplier = 4.0, delta = 1e-6, mechanism = { kind = "tree" } }
aggregation = { sum = "secagg", encoding = { kind = "identity" }, min_clients = 4, max_clients = 6 }

[service]
over_selection = 1.0
group = { target = 6, min = 4 }
deadlines = { select = "300s", report = "300s", lobby = "200s", keys = "200s", shares = "200s", upload = "200s", unmask = "200s", attempt = "600s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "dev"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

const FLOORS: &str = r#"{
    "min_goal": 2, "min_group": 2, "max_epsilon": 100.0, "require_secagg": true, "population_rho": 50.0,
    "secagg": { "min_clients": 4, "min_survivors": 4 }, "neighbours": "anyone"
}"#;

/// The devices' common memory: the masked updates as they were sent, their number of values, and the word to go on.
#[derive(Default)]
struct Common {
    masked: Vec<Vec<u8>>,
    length: usize,
    go: bool,
}

type Shared = Arc<(Mutex<Common>, Condvar)>;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    now.as_millis() as u64
}

/// Plays one device to its end. It holds its commit back until all may go on.
fn play(mut machine: Machine, transport: &mut HttpTransport, number: usize, shared: &Shared) -> Ended {
    let (common, changed) = &**shared;
    let mut sent = Vec::new();
    let mut event = Event::Wake;
    loop {
        event = match machine.step(now_ms(), event) {
            Action::Http(request) => {
                let path = request.target.split('?').next().unwrap_or_default();
                if path.ends_with("/upload") {
                    sent.extend_from_slice(request.body.as_ref());
                }
                if path.ends_with("/commit") {
                    let mut common = common.lock().unwrap_or_else(PoisonError::into_inner);
                    common.masked.push(std::mem::take(&mut sent));
                    let waits = changed.wait_timeout_while(common, PATIENCE, |common| !common.go);
                    drop(waits.unwrap_or_else(PoisonError::into_inner));
                }
                transport.send(&request).map_or(Event::NetworkLost, Event::Reply)
            }
            Action::Persist(_) => Event::Persisted,
            Action::Train(job) => Event::Trained(job.run_with(|values, _| {
                let length = values.len();
                common.lock().unwrap_or_else(PoisonError::into_inner).length = length;
                values.copy_from_slice(&update(number, DEVICES, length));
            })),
            Action::SleepUntil(until) => {
                std::thread::sleep(Duration::from_millis(until.saturating_sub(now_ms()).max(1)));
                Event::Wake
            }
            Action::Done(outcome) => return outcome.ended,
        };
    }
}

#[test]
#[ignore = "slow"]
fn the_sum_of_a_secure_round_leaves_no_trace_in_a_server() {
    let folder = Folder::new();
    let root = certificate(&folder);
    folder.write("words.txt", "the\nof\nand\nto\nin\na\nis\nthat\nfor\nit\nat\n");
    folder.write("task.toml", TASK);
    folder.succeed("task create task.toml --data service --population demo");
    folder.succeed("identity keys --data service --out keys.json");
    let server = Server::start(&folder);
    folder.succeed("task activate secure-canaries --data service");
    let issued = folder.json(format!(
        "identity issue --data service --population demo --count {DEVICES}"
    ));
    let invitations = issued["invitations"].as_array().expect("a list");
    let settings = format!(
        r#"{{"server": "{}", "population": "demo", "keys": {}, "floors": {FLOORS}, "client_version": 1}}"#,
        server.url,
        folder.text("keys.json")
    );
    let settings = DeviceSettings::from_json(&settings).expect("settings");
    let config = settings
        .config(&folder.path("unused"), Box::new(MemoryKeyStore::default()))
        .expect("a configuration");
    let setup = Arc::new(Setup {
        population: config.population,
        board_keys: config.board_keys,
        task_keys: config.trusted_task_keys,
        issuers: config.issuers,
        floors: config.floors,
        limits: Limits::default(),
        client_version: 1,
        evidence: Vec::new(),
    });

    let shared = Shared::default();
    let mut threads = Vec::new();
    for (number, invitation) in invitations.iter().enumerate() {
        let mut hand = Hand::new(number, &server.url, &root);
        hand.enrol(invitation.as_str().expect("an invitation"));
        let memory = Memory {
            certificate: hand.certificate.take(),
            training_examples: 4,
            ..Memory::default()
        };
        let (setup, shared) = (setup.clone(), shared.clone());
        threads.push(std::thread::spawn(move || {
            let until = Instant::now() + PATIENCE;
            loop {
                let (memory, signer) = (memory.clone(), hand.signer.clone());
                let machine =
                    Machine::new(setup.clone(), memory, signer, &Zeroizing::new([number as u8; 32]));
                let ended = play(machine, &mut hand.transport, number, &shared);
                // The attempt opens a moment after the task.
                let early = matches!(&ended, Ended::NotEligible(why) if why.is_empty())
                    || matches!(ended, Ended::Rejected(Code::NoTask, _));
                if !early || Instant::now() > until {
                    return ended;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }));
    }

    // All masked updates are with the server, and none is in the sum.
    let (common, changed) = &*shared;
    let until = Instant::now() + PATIENCE;
    let mut locked = loop {
        let locked = common.lock().unwrap_or_else(PoisonError::into_inner);
        if locked.masked.len() == DEVICES {
            break locked;
        }
        drop(locked);
        let over = threads.iter().position(std::thread::JoinHandle::is_finished);
        if let Some(over) = over {
            panic!("device {over} has ended: {:?}", threads.remove(over).join());
        }
        assert!(
            Instant::now() < until,
            "a device is missing: {}",
            folder.text("log")
        );
        std::thread::sleep(Duration::from_millis(50));
    };
    let middle = |bytes: &Vec<u8>| bytes[bytes.len() / 2..][..64].to_vec();
    let masked: Needles = vec![("the masked update".to_owned(), middle(&locked.masked[0]))];
    let there = in_memory(server.child.id(), &masked);
    assert!(!there.is_empty(), "the search does not find a masked update");
    // Six clipped values of 41 bits with their sign, and room for the noise: the grid is the one of the needles.
    let length = locked.length;
    let bits = 8 * locked.masked[0].len() / length;
    assert!((44..=56).contains(&bits), "{bits} bits per value");
    let updates: Vec<Vec<f32>> = (0..DEVICES)
        .map(|number| update(number, DEVICES, length))
        .collect();
    locked.go = true;
    changed.notify_all();
    drop(locked);
    for thread in threads {
        let ended = thread.join().expect("a device");
        assert_eq!(
            ended,
            Ended::Reported(Some(Verdict::Included)),
            "{}",
            folder.text("log")
        );
    }

    let mut needles = sum_of("the sum", DEVICES, &updates);
    for (number, values) in updates.iter().enumerate() {
        needles.extend(fixed_of(
            &format!("the update of device {number}"),
            std::slice::from_ref(values),
        ));
        needles.extend(places(
            &format!("the update of device {number} in f32"),
            length,
            |place| bytes_of(&values[place..=place]),
        ));
    }
    let until = Instant::now() + PATIENCE;
    let page = || json(&admin(&folder, "/admin/v1/tasks/secure-canaries"));
    while number(&page()["value"]["released"]) < 1.0 {
        assert!(Instant::now() < until, "no release: {}", folder.text("log"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let until = Instant::now() + PATIENCE / 9;
    let left = loop {
        let left = in_memory(server.child.id(), &needles);
        if left.is_empty() || Instant::now() > until {
            break left;
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(left.is_empty(), "in the memory of the server: {left:#?}");
    folder.write("metrics.txt", admin(&folder, "/metrics"));
    folder.write("task.json", admin(&folder, "/admin/v1/tasks/secure-canaries"));
    folder.succeed("task export secure-canaries run --data service");
    folder.succeed("verify run");
    let left = in_files(&folder.path("."), &needles);
    assert!(left.is_empty(), "in files: {left:#?}");
}

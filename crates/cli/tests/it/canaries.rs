//! Secrets of people pass through a server and leave no trace in it.
//!
//! Eight devices send updates that the test knows, bit for bit, over TLS. The canaries are these updates, their sum before the noise, the
//! subjects, the session tokens, and the text of a ninth device. They are looked for in all files of the server, its log at the
//! finest level, its metrics and answers, the export of the task, and all memory of the process that it can write, which is what a core
//! file holds. The search runs while the updates are in memory, where it must find them, and after the release, where it must not.
//!
//! A buffer of an open connection may hold the last request, so the devices hang up before the second search.

mod hand;
mod search;
mod secure;
mod server;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::hand::Hand;
use self::search::{Needles, both, bytes_of, in_files, in_memory, places, sum_of, unhex, update};
use self::server::{Server, admin, certificate};
use crate::support::{Folder, json, number};

const PATIENCE: Duration = Duration::from_secs(180);

/// Devices of the first round, which is released with all of them.
const DEVICES: usize = 8;

/// Labels of metrics. None of them names a device or its words.
pub(crate) const LABELS: [&str; 8] = [
    "population",
    "task",
    "result",
    "state",
    "reason",
    "phase",
    "name",
    "kind",
];

const TEXT: &str = "zyxwvut the quokka signed at midnight";

const TASK: &str = r#"
name = "canary-task"
rounds = 2
vocabulary = { kind = "file", path = "words.txt" }
model = { family = "dplm", embed = 8, hidden = 12 }
cohort = { sampling = "check_in", users_per_round = 8, population = 100 }
participation = { min_sep = 2, max_part = 1 }
user_update = { algorithm = "fedavg", learning_rate = 0.5, batch_size = 2 }
clip = { kind = "flat", norm = 1.0 }
privacy = { noise_multiplier = 4.0, delta = 1e-6, mechanism = { kind = "tree" } }

[service]
over_selection = 1.0
group = { target = 4, min = 4 }
deadlines = { select = "300s", report = "300s", attempt = "600s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s" }
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

#[test]
#[ignore = "slow"]
fn updates_sums_subjects_tokens_and_texts_leave_no_trace_in_a_server() {
    let folder = Folder::new();
    let root = certificate(&folder);
    folder.write(
        "words.txt",
        "the\nof\nand\nto\nin\na\nis\nthat\nfor\nit\nat\nsigned\nmidnight\n",
    );
    folder.write("task.toml", TASK);
    folder.write(
        "floors.toml",
        "min_goal = 2\nmin_group = 2\nmax_epsilon = 100.0\nrequire_secagg = false\npopulation_rho = 50.0\n",
    );
    folder.succeed("task create task.toml --data service --population demo");
    folder.succeed("identity keys --data service --out keys.json");
    let server = Server::start(&folder);
    folder.succeed("task activate canary-task --data service");
    let issued = folder.json(format!(
        "identity issue --data service --population demo --count {}",
        DEVICES + 1
    ));
    let invitations: Vec<&str> = issued["invitations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|text| text.as_str())
        .collect();
    let task = unhex(
        json(&folder.succeed("task show canary-task --data service --json"))["id"]
            .as_str()
            .expect("an id"),
    );

    // The first round up to the last commit. `needles` grows with everything that must not stay.
    let mut needles = Needles::new();
    let (mut hands, mut updates) = (Vec::new(), Vec::new());
    for (number, invitation) in invitations.iter().enumerate().take(DEVICES) {
        let mut hand = Hand::new(number, &server.url, &root);
        hand.enrol(invitation);
        let until = Instant::now() + PATIENCE;
        while hand.check_in(&task, 1).is_err() {
            assert!(Instant::now() < until, "no attempt opens: {}", folder.text("log"));
            std::thread::sleep(Duration::from_millis(50));
        }
        let length = hand.join();
        let values = update(number, DEVICES, length);
        let bytes = bytes_of(&values);
        hand.upload(&bytes);
        if number + 1 < DEVICES {
            hand.commit(&bytes);
        }
        let token = &hand.assignment.as_ref().expect("an assignment").token;
        needles.extend(both(&format!("the token of device {number}"), token));
        needles.extend(both(
            &format!("the subject of device {number}"),
            &unhex(invitation)[..32],
        ));
        needles.extend(places(
            &format!("the update of device {number}"),
            length,
            |place| values[place].to_le_bytes().to_vec(),
        ));
        updates.push(values);
        hands.push(hand);
    }

    // The search finds what is there: an update that waits for its commit, and the sum of those before it.
    let last = DEVICES - 1;
    let before = sum_of("the sum of seven", DEVICES, &updates[..last]);
    let waiting = places("the waiting update", updates[0].len(), |place| {
        updates[last][place].to_le_bytes().to_vec()
    });
    let there = in_memory(server.child.id(), &[before.clone(), waiting].concat());
    for name in ["the waiting update at 0", "the sum of seven in fixed point at 0"] {
        assert!(
            there.iter().any(|found| found.starts_with(name)),
            "the search does not find {name}: {there:?}"
        );
    }
    folder.write(
        "planted",
        [b"before ", &bytes_of(&updates[0])[..], b" after"].concat(),
    );
    let planted = in_files(&folder.path("."), &needles);
    let name = format!(
        "the update of device 0 at 0 in {}",
        folder.path(".").join("planted").display()
    );
    assert!(planted.contains(&name), "{planted:?}");
    std::fs::remove_file(folder.path("planted")).expect("removing a file");

    // The release, and check-ins that are refused after it.
    needles.extend(before);
    needles.extend(sum_of("the sum", DEVICES, &updates));
    hands[last].commit(&bytes_of(&updates[last]));
    let until = Instant::now() + PATIENCE;
    while number(&json(&admin(&folder, "/admin/v1/tasks/canary-task"))["value"]["released"]) < 1.0 {
        assert!(
            Instant::now() < until,
            "no round is released: {}",
            folder.text("log")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    for hand in &mut hands {
        for number in 2..5 {
            let refused = hand.check_in(&task, number);
            assert!(refused.is_err(), "device {} is in two rounds", hand.number);
        }
    }
    drop(hands);

    // A device of its own with a text, which takes part in the second round.
    folder.write("text.txt", format!("{TEXT}\n").repeat(12));
    let enrolled = format!(
        "device enrol --folder device --server {} --population demo --keys keys.json --floors floors.toml --root cert.pem --invitation {}",
        server.url, invitations[DEVICES]
    );
    folder.succeed(enrolled);
    folder.succeed("device add --folder device text.txt");
    std::fs::remove_file(folder.path("text.txt")).expect("removing a file");
    let ended = folder.json("device run --folder device");
    needles.push(("the text".to_owned(), TEXT.as_bytes().to_vec()));
    needles.extend(both(
        "the subject of the device",
        &unhex(invitations[DEVICES])[..32],
    ));

    // Connections end a moment after their devices have hung up.
    let until = Instant::now() + PATIENCE / 9;
    let left = loop {
        let left = in_memory(server.child.id(), &needles);
        if left.is_empty() || Instant::now() > until {
            break left;
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(left.is_empty(), "in the memory of the server: {left:#?}");

    let metrics = admin(&folder, "/metrics");
    check_metrics(&metrics);
    folder.write("metrics.txt", &metrics);
    folder.write("tasks.json", admin(&folder, "/admin/v1/tasks"));
    folder.write("task.json", admin(&folder, "/admin/v1/tasks/canary-task"));
    for (file, path) in [
        ("overview.json", "/api/overview".to_owned()),
        ("rounds.json", "/api/tasks/canary-task".to_owned()),
        ("privacy.json", "/api/tasks/canary-task/privacy".to_owned()),
        ("model.json", "/api/tasks/canary-task/model".to_owned()),
        ("population.json", "/api/populations/demo".to_owned()),
    ] {
        let answer = admin(&folder, &path);
        // Eight devices took part, so no count of devices is shown but that of the release.
        check_cells(&json(&answer));
        folder.write(file, answer);
    }
    folder.succeed("task stop canary-task --data service");
    folder.succeed("task export canary-task run --data service");
    folder.succeed("verify run");
    let left = in_files(&folder.path("."), &needles);
    assert!(left.is_empty(), "in files: {left:#?}");
    let log = folder.text("log");
    assert!(log.contains("a round was released"), "{log}");
    assert!(ended.is_object(), "{ended}");
}

/// Every count of devices or subjects in an answer of the dashboard is hidden.
fn check_cells(answer: &serde_json::Value) {
    for key in ["boards", "check_ins", "subjects"] {
        let found = &answer[key];
        let many = key == "boards" && found.as_u64().is_some_and(|count| count >= 10 && count % 10 == 0);
        assert!(found.is_null() || many, "{key}: {found}");
    }
    for key in ["participations", "separations", "enrolments", "spans", "versions"] {
        for row in answer[key].as_array().into_iter().flatten() {
            let cell = row.as_array().and_then(|row| row.last());
            assert!(cell.is_none_or(serde_json::Value::is_null), "{key}: {row}");
        }
    }
    for key in ["stages", "lost"] {
        for row in answer["funnel"][key].as_array().into_iter().flatten() {
            assert!(row[1].is_null(), "{key}: {row}");
        }
    }
}

/// Figures of devices stand in steps of ten, and labels are those of a fixed list.
fn check_metrics(text: &str) {
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        for label in labels
            .trim_end_matches('}')
            .split(',')
            .filter(|label| !label.is_empty())
        {
            assert!(
                LABELS.contains(&label.split('=').next().expect("a name")),
                "{line}"
            );
        }
        values.insert(series.to_owned(), value.parse::<f64>().expect("a number"));
        let devices = name.ends_with("checkins_total")
            || name.ends_with("sessions")
            || name.ends_with("connections")
            || name.ends_with("downloads")
            || name.ends_with("add_seconds_count");
        assert!(!devices || values[series] % 10.0 == 0.0, "{line}");
    }
    // Eight updates, of eight devices, are too few to be shown; 24 refused check-ins are shown as 20.
    assert!(
        !text.contains("\nundertone_add_seconds_count") && !text.contains("\nundertone_upload_bytes_total "),
        "{text}"
    );
    let refused: f64 = values
        .iter()
        .filter(|(name, _)| name.contains("checkins_total") && !name.contains("ASSIGNED"))
        .map(|(_, value)| value)
        .sum();
    assert!((10.0..=20.0).contains(&refused), "{text}");
    let round = "undertone_head_round{population=\"demo\",task=\"canary-task\"}";
    assert_eq!(values.get(round), Some(&1.0), "{text}");
    let epsilon = values.get("undertone_epsilon_spent{population=\"demo\",task=\"canary-task\"}");
    assert!(epsilon.is_some_and(|epsilon| *epsilon > 0.0), "{text}");
}

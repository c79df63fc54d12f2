//! The commands of operators: estimates, bars, the doctor, backups, signals, and the files of `deploy/`.

use std::path::Path;

use serde_json::Value;

use crate::federated::{PATIENCE, Server, enrol, invitations, service};
use crate::support::{Folder, contains, number};

const RATES: &str = "train_s_per_word = 1e-6\n";

#[test]
fn an_estimate_has_the_epsilon_of_the_plan_and_refuses_what_cannot_be_done() {
    let folder = service();
    folder.write("rates.toml", RATES);
    let estimated = folder.json("task estimate federated.toml --rates rates.toml");
    let planned = folder.json("task show federated --data service")["planned"]["epsilon"].clone();
    assert_eq!(estimated["planned"]["epsilon"], planned);
    assert_eq!(estimated["rates_from"], "file");
    let estimate = &estimated["estimate"];
    assert!(number(&estimate["days"]) > 0.0, "{estimated}");
    assert_eq!(number(&estimate["needed"]["by_separation"]).round(), 9.0);
    assert_eq!(estimate["obstacles"], Value::Array(Vec::new()));
    folder.show(
        "task estimate federated.toml --rates rates.toml",
        "days ... eligible devices ... separation ... planned guarantee ... server ... network",
    );
    folder.refuses(
        "
        $ task estimate federated.toml --rates rates.toml --population 10
        the task cannot be done ... participation.min_sep = 2 ... needs 9 eligible devices, and 5 of 10 people are eligible
        $ task estimate federated.toml --rates rates.toml --availability 0
        --availability must be a part above 0
        $ task estimate federated.toml --rates rates.toml --upload-mbps 0.01
        service.budget.upload_kbps_min = 128 is above the upload rate of 10 kbit/s
        $ task estimate absent.toml
        absent.toml
        ",
    );
    folder.write("bad.toml", "speed = 3");
    folder.refuse(
        "task estimate federated.toml --rates bad.toml",
        "bad.toml ... speed",
    );
    let text = folder.text("federated.toml");
    folder.write(
        "tight.toml",
        text.replace("max_epsilon = 4.0", "max_epsilon = 0.125"),
    );
    folder.refuse(
        "task estimate tight.toml --rates rates.toml",
        "the task cannot be done ... privacy.max_epsilon ... 0.125",
    );
}

#[test]
#[ignore = "slow"]
fn an_estimate_without_rates_times_this_machine_and_says_so() {
    let folder = service();
    let estimated = folder.json("task estimate federated.toml");
    assert_eq!(estimated["rates_from"], "calibrated");
    let trained = number(&estimated["rates"]["train_s_per_word"]);
    assert!(trained > 0.0 && trained < 1.0, "{estimated}");
}

/// The conditions that the doctor found, by their subjects.
fn examined(folder: &Folder, device: usize) -> Vec<(String, String, String)> {
    let run = folder.run(format!("--json device doctor --folder device-{device}"));
    let found: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let text = |view: &Value, key: &str| view[key].as_str().unwrap_or_default().to_owned();
    let views = found.as_array().expect("findings");
    let bad = views.iter().any(|view| view["condition"] == "bad");
    assert_eq!(run.status.success(), !bad, "{found}");
    views
        .iter()
        .map(|view| {
            assert_eq!(view["remedy"].is_string(), view["condition"] == "bad", "{view}");
            (
                text(view, "subject"),
                text(view, "condition"),
                text(view, "message"),
            )
        })
        .collect()
}

#[track_caller]
fn has(found: &[(String, String, String)], subject: &str, condition: &str, words: &str) {
    let hit = found
        .iter()
        .any(|(of, is, message)| of == subject && is == condition && message.contains(words));
    assert!(hit, "no {subject} is {condition} with {words:?}: {found:?}");
}

#[test]
#[ignore = "slow"]
fn the_doctor_finds_each_reason_and_a_barred_person_takes_part_no_more() {
    let folder = service();
    let server = Server::start(&folder, "--insecure");
    let invited = invitations(&folder, 1);
    enrol(&folder, 0, &invited[0], &server.url);
    let found = examined(&folder, 0);
    for subject in ["certificate", "clock", "keys", "server", "memory", "pace"] {
        has(&found, subject, "good", "");
    }
    folder.succeed("task activate federated --data service");
    let is_good = |(of, is, _): &(String, String, String)| of == "task" && is == "good";
    server.wait_until(|| examined(&folder, 0).iter().any(is_good));
    // The compiled requirements ask for more than this task.
    let settings = folder.text("device-0/settings.json");
    let mut strict: Value = serde_json::from_str(&settings).expect("JSON");
    strict.as_object_mut().expect("an object").remove("floors");
    folder.write("device-0/settings.json", strict.to_string());
    has(&examined(&folder, 0), "task", "bad", "at least");
    folder.write("device-0/settings.json", &settings);
    // A stranger's keys sign no board of this service.
    let keys = folder.json("identity keys --data service");
    let board = keys["board"].as_str().expect("a key");
    let plans = keys["plans"].as_str().expect("a key");
    folder.write("device-0/settings.json", settings.replace(board, plans));
    has(&examined(&folder, 0), "keys", "bad", "");
    folder.write("device-0/settings.json", &settings);

    let status = folder.json("device status --folder device-0");
    let person = status["subject"].as_str().expect("a subject");
    let bar = format!("task bar {person} --data service --population demo");
    let receipts = folder.json(&bar);
    assert_eq!(
        (&receipts[0]["barred"], &receipts[0]["rounds"]),
        (&Value::from(true), &Value::Array(Vec::new()))
    );
    let run = folder.json("device run --folder device-0");
    assert_eq!(run["ended"], "rejected", "{run}");
    contains(run["message"].as_str().expect("text"), "TOO_OFTEN ... no more");
    folder.show(&bar, "the person ... was barred before ... rounds ... none");
    assert_eq!(
        folder.json("task funnel federated --data service"),
        Value::Array(Vec::new())
    );
    // The bar survives a restart, and an invitation names the same person.
    drop(server);
    let again = folder.json(format!(
        "task bar {} --data service --population demo",
        invited[0]
    ));
    assert_eq!(again[0]["barred"], false);
    folder.refuse(
        "task bar nobody --data service --population demo",
        "the subject must be 64 hexadecimal digits",
    );
    has(&examined(&folder, 0), "server", "bad", "");
    folder.succeed("task stop federated --data service --forget");
    folder.show(&bar, "cannot take part ... unknown ... destroyed");
    folder.refuse("task forget federated --data service", "destroyed");
}

#[test]
fn a_backup_of_a_running_service_is_rehearsed_and_restored_with_its_tasks_halted() {
    let folder = service();
    folder.succeed("backup key backup.key");
    folder.succeed("task activate federated --data service");
    let server = Server::start(&folder, "--insecure");
    folder.succeed("backup create first --data service --key backup.key");
    drop(server);
    folder.show(
        "backup rehearse first --key backup.key",
        "federated at round 0: can go on",
    );
    folder.succeed("backup restore first --data restored --key backup.key");
    let listed = folder.json("task list --data restored");
    assert_eq!(listed[0]["state"], "halted");
    assert_eq!(
        folder.json("identity keys --data restored"),
        folder.json("identity keys --data service")
    );
    folder.refuse("task resume federated --data restored", "note");
    folder.succeed("task resume federated --data restored --note tested");
    folder.refuses(
        "
        $ backup create first --data service --key backup.key
        does not exist
        $ backup restore first --data service --key backup.key
        does not exist
        $ backup rehearse absent --key backup.key
        absent
        $ backup key backup.key
        does not exist
        $ backup create second --data service --key federated.toml
        federated.toml
        ",
    );
    folder.write(
        "first/manifest.json",
        folder
            .text("first/manifest.json")
            .replace("draft", "other")
            .replace("active", "paused"),
    );
    folder.refuse("backup rehearse first --key backup.key", "manifest.json");
}

#[cfg(unix)]
#[test]
#[ignore = "slow"]
fn a_hangup_reads_the_certificate_again_and_a_termination_ends_in_order() {
    let folder = service();
    let write = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        folder.write("cert.pem", made.cert.pem());
        folder.write("key.pem", made.signing_key.serialize_pem());
    };
    write();
    folder.succeed("task activate federated --data service");
    let mut server = Server::start(&folder, "--tls cert.pem,key.pem");
    write();
    server.signal("-HUP");
    server.wait_until(|| server.log().contains("was read again; new connections get it"));
    folder.write("key.pem", "nothing");
    server.signal("-HUP");
    server.wait_until(|| server.log().contains("the one before stays in use"));
    server.signal("-TERM");
    let served: Value = serde_json::from_str(&server.ended(PATIENCE)).unwrap_or_default();
    assert!(
        served.is_null() || served["stopped_by_signal"] == true,
        "{served}"
    );
    assert_eq!(folder.json("task show federated --data service")["abandoned"], 1);
}

#[test]
#[ignore = "slow"]
fn servers_without_a_verifier_take_no_attested_task() {
    let folder = service();
    let text = folder.text("federated.toml");
    let attested = text
        .replace("name = \"federated\"", "name = \"attested\"")
        .replace("identity = \"certificate\"", "identity = \"attested\"");
    folder.write("attested.toml", attested);
    folder.succeed("task create attested.toml --data service --population demo");
    folder.refuses(
        "
        $ task activate attested --data service
        service.identity of task attested ... no verifier
        $ serve --data service --insecure --identity attested
        --attest-url
        $ serve --data service --insecure --attest-url https://verify.example.org/
        --identity attested
        $ serve --data service --insecure --identity attested --attest-url http://verify.example.org/
        https://
        ",
    );
    // Nobody answers at this address, so every device of the task is refused.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address");
    let server = Server::start(
        &folder,
        &format!("--insecure --identity attested --attest-url http://{closed}/ --enrolments-per-day 1"),
    );
    folder.succeed("task activate attested --data service");
    let invited = invitations(&folder, 2);
    folder.write("evidence", "the platform says so");
    let enrolment = |device: usize| {
        format!(
            "device enrol --folder device-{device} --server {} --population demo --keys keys.json --floors \
             federated-floors.toml --evidence evidence --invitation {}",
            server.url, invited[device]
        )
    };
    folder.succeed(enrolment(0));
    // The same device again is no new one.
    folder.succeed(enrolment(0));
    folder.refuse(enrolment(1), "TOO_OFTEN ... at most 1 new devices per day");
    folder.write(
        "texts.txt",
        "the river was cold this morning\nwe walk to the sea every evening\n",
    );
    folder.succeed("device add --folder device-0 texts.txt");
    server.wait_until(|| {
        let run = folder.json("device run --folder device-0");
        run["message"]
            .as_str()
            .expect("text")
            .contains("cannot be judged")
    });
}

/// The options in the commands of `deploy/`. The option for roles comes with several processes.
#[test]
fn the_files_of_deploy_use_options_that_the_server_has() {
    let folder = Folder::new();
    let help = folder.succeed("serve --help");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let mut files = vec![root.join("compose.yaml"), root.join("Containerfile")];
    let manifests = std::fs::read_dir(root.join("kubernetes")).expect("the manifests");
    files.extend(manifests.map(|entry| entry.expect("an entry").path()));
    let mut options = std::collections::BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file");
        for line in text.lines().map(str::trim) {
            let list = line.strip_prefix("- --");
            let command = line.strip_prefix("CMD [").map(|rest| rest.split("\"--").skip(1));
            let name = |rest: &str| {
                let end = rest.find(|letter: char| !(letter.is_ascii_lowercase() || letter == '-'));
                rest[..end.unwrap_or(rest.len())].to_owned()
            };
            options.extend(list.map(name));
            options.extend(command.into_iter().flatten().map(name));
        }
    }
    assert!(options.len() >= 5, "{options:?}");
    for option in options {
        let known = help.contains(&format!("--{option} "));
        assert!(known, "undertone serve has no --{option}");
    }
}

//! The commands of operators: estimates, bars, the doctor, backups and signals.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::federated::{PATIENCE, Server, enrol, invitations, service, service_of};
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
fn an_operator_takes_an_invitation_back_revokes_a_person_and_deletes_an_ended_task() {
    let folder = service();
    let invited = &invitations(&folder, 2);
    let of = "--data service --population demo";
    let withdraw = format!("identity withdraw {} {of}", invited[0]);
    folder.show(
        &withdraw,
        "invitation ... withdrawn; it enrols no device any more",
    );
    folder.show(&withdraw, "was withdrawn before");
    assert_eq!(folder.json(&withdraw)["withdrawn"], false);
    let revoke = format!("identity revoke --person {} {of}", invited[1]);
    assert_eq!(folder.json(&revoke)["person_revoked"], true);
    folder.show(&revoke, "was revoked before");
    folder.refuses(
        "
        $ identity revoke --data service
        <DEVICE>
        $ identity revoke --person 00 --data service
        --population
        $ identity revoke 00 --person 00 --data service --population demo
        cannot be used with
        $ identity withdraw nobody --data service --population demo
        the subject must be 64 hexadecimal digits
        $ task delete federated --data service
        only an ended task can be deleted
        $ task delete absent --data service
        absent
        ",
    );
    folder.succeed("task activate federated --data service");
    folder.succeed("task stop federated --data service");
    folder.show("task delete federated --data service", "state ... deleted");
    assert_eq!(folder.json("task list --data service")[0]["state"], "deleted");
    folder.refuses(
        "
        $ task delete federated --data service
        one whose models and ledger were deleted
        $ task export federated exported --data service
        one whose models and ledger were deleted
        $ task create federated.toml --data service --population demo
        a name that no task has
        ",
    );
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
fn a_hangup_or_a_reload_reads_the_certificate_again_and_a_termination_ends_in_order() {
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
    folder.refuses(
        "
        $ serve --reload --data service
        key.pem must be a file with one private key
        $ serve --reload --data service --process n1
        no process n1 works on service
        $ serve --reload --data nowhere
        no server works on nowhere
        ",
    );
    write();
    let reloaded = folder.json("serve --reload --data service");
    assert_eq!(reloaded["reloaded"][0], "the server");
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

#[test]
fn a_test_certificate_is_made_by_one_command_and_never_over_another() {
    let folder = Folder::new();
    let made = folder.json("identity certificate --out tls --host localhost --host 10.0.0.7");
    assert_eq!(made["hosts"][1], "10.0.0.7");
    assert!(
        folder
            .text("tls/cert.pem")
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let key = std::fs::metadata(folder.path("tls/key.pem")).expect("the key");
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
    }
    folder.refuses(
        "
        $ identity certificate --out tls
        tls/cert.pem is there already
        $ identity certificate --out other --host _ä
        must be names and addresses
        ",
    );
}

#[test]
#[ignore = "slow"]
fn a_device_trusts_a_test_certificate_and_shows_its_state_while_it_runs_and_ends_with_its_task() {
    // The device has too few texts, so it looks at the board every two seconds and takes no part.
    let folder = service_of(&[("min_examples = 1", "min_examples = 60")]);
    folder.succeed("identity certificate --out tls");
    let server = Server::start(&folder, "--tls tls/cert.pem,tls/key.pem");
    let url = server.url.replace("127.0.0.1", "localhost");
    let invited = invitations(&folder, 1);
    folder.refuse(
        format!(
            "device enrol --folder device-0 --server {url} --population demo --keys keys.json --floors federated-floors.toml \
             --invitation {}",
            invited[0]
        ),
        "certificate",
    );
    enrol(&folder, 0, &invited[0], &format!("{url} --root tls/cert.pem"));
    folder.succeed("task activate federated --data service");
    let mut device = folder
        .command("device run --folder device-0 --keep-running --exit")
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("starting");
    // The device must have seen the task before it ends.
    let mut lines = BufReader::new(device.stderr.take().expect("standard error")).lines();
    assert!(
        lines.any(|line| line.expect("a line").contains("too few examples")),
        "the device has ended"
    );
    let rest = std::thread::spawn(move || lines.for_each(drop));
    let shown = folder.json("device status --folder device-0");
    assert_eq!(
        (&shown["running"], &shown["enrolled"]),
        (&Value::from(true), &Value::from(true))
    );
    folder.show(
        "device status --folder device-0",
        "the process that runs this device",
    );
    folder.refuse("device predict --folder device-0 the", "open in another process");
    folder.refuse(
        "task export federated out --data service",
        "task federated must be ended before its export; 0 of 4 rounds are released ... task stop federated ... got active task",
    );
    folder.succeed("task stop federated --data service");
    let until = std::time::Instant::now() + PATIENCE;
    while device.try_wait().expect("waiting").is_none() {
        assert!(std::time::Instant::now() < until, "the device goes on");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    rest.join().expect("the lines of the device");
    assert_eq!(folder.json("device status --folder device-0")["running"], false);
    let forgotten = folder.json("device forget --folder device-0 --yes");
    assert!(
        forgotten.is_object() && !folder.path("device-0").exists(),
        "{forgotten}"
    );
}

#[test]
fn a_task_that_cannot_learn_is_warned_of_when_it_is_created_shown_estimated_and_exported() {
    let folder = service();
    folder.write("rates.toml", RATES);
    let words = "The noise will drown what this run learns";
    let errors = |line: &str| {
        let run = folder.run(line);
        assert!(run.status.success(), "{line}");
        String::from_utf8(run.stderr).expect("UTF-8")
    };
    for line in [
        "task create federated.toml --data other --population demo",
        "task show federated --data service",
        "task estimate federated.toml --rates rates.toml",
    ] {
        assert!(errors(line).contains(words), "{line}: {}", errors(line));
    }
    assert!(
        folder.json("task show federated --data service")["warning"]
            .as_str()
            .is_some_and(|warning| warning.contains(words))
    );
    folder.refuse(
        "task export federated out --data service",
        "task federated must be ended before its export; 0 of 4 rounds are released ... task activate federated ... got draft task",
    );
    folder.succeed("task activate federated --data service");
    folder.succeed("task stop federated --data service");
    assert!(errors("task export federated out --data service").contains(words));
}

//! The service from the first invitation to a verified export, with a real server and real devices.

#[cfg(target_os = "linux")]
mod demo;
mod fleets;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Folder, TINY, contains, json, number};

/// The time that a server or a device may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A folder with the example files of the service.
fn folder() -> Folder {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in [
        "federated.toml",
        "federated-secagg.toml",
        "federated-floors.toml",
        "federated-words.txt",
    ] {
        let text = std::fs::read(examples.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        folder.write(name, text);
    }
    folder
}

/// A server that runs as a child process, with the lines of its standard error.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts `undertone serve` with these options on a free port, and waits until it listens.
    pub(crate) fn start(folder: &Folder, options: &str) -> Self {
        Self::spawn(&mut folder.command(format!("serve --data service --listen 127.0.0.1:0 {options}")))
    }

    /// Starts the server of a command, and waits until it listens.
    pub(crate) fn spawn(command: &mut std::process::Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting the server");
        let mut errors = BufReader::new(child.stderr.take().expect("standard error")).lines();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mut url = None;
        while url.is_none() {
            let Some(Ok(line)) = errors.next() else {
                panic!("the server ended: {:?}", lines.lock().expect("the lines"));
            };
            url = line.strip_prefix("listening to devices at ").map(str::to_owned);
            lines.lock().expect("the lines").push(line);
        }
        let kept = lines.clone();
        std::thread::spawn(move || {
            for line in errors.map_while(Result::ok) {
                kept.lock().expect("the lines").push(line);
            }
        });
        Self {
            child,
            url: url.expect("an address"),
            lines,
        }
    }

    /// `true` while the process runs.
    #[cfg(target_os = "linux")]
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().expect("waiting").is_none()
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        self.lines.lock().expect("the lines").join("\n")
    }

    /// Waits until this holds.
    #[track_caller]
    pub(crate) fn wait_until(&self, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits for its end, and returns standard output.
    #[track_caller]
    pub(crate) fn ended(&mut self, within: Duration) -> String {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("waiting") {
                assert!(status.success(), "the server failed: {}", self.log());
                let mut text = String::new();
                let mut output = self.child.stdout.take().expect("standard output");
                output.read_to_string(&mut text).expect("UTF-8");
                return text;
            }
            assert!(Instant::now() < until, "the server goes on: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[cfg(unix)]
    fn terminate(&self) {
        self.signal("-TERM");
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: &str) {
        let sent = std::process::Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(sent.expect("sending a signal").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service with the example task as a draft, and the public keys in `keys.json`.
pub(crate) fn service() -> Folder {
    service_of(&[])
}

/// A service with the example task after these changes of its file.
pub(crate) fn service_of(changes: &[(&str, &str)]) -> Folder {
    service_with(changes, &[])
}

/// A service as by [`service_of`], with these files instead of the example's.
pub(crate) fn service_with(changes: &[(&str, &str)], files: &[(&str, &str)]) -> Folder {
    let folder = folder();
    for (name, text) in files {
        folder.write(name, text);
    }
    let mut task = folder.text("federated.toml");
    for (from, to) in changes {
        assert!(task.contains(from), "{from}");
        task = task.replace(from, to);
    }
    folder.write("federated.toml", task);
    folder.succeed("task create federated.toml --data service --population demo");
    folder.succeed("identity keys --data service --out keys.json");
    folder
}

pub(crate) fn enrol(folder: &Folder, device: usize, invitation: &str, url: &str) {
    folder.succeed(format!(
        "device enrol --folder device-{device} --server {url} --population demo --keys keys.json \
         --floors federated-floors.toml --invitation {invitation}"
    ));
    let text = "the river was cold this morning\nwe walk to the sea every evening\nher friend may start a new book\n";
    folder.write(&format!("texts-{device}.txt"), text.repeat(3));
    folder.succeed(format!("device add --folder device-{device} texts-{device}.txt"));
}

pub(crate) fn invitations(folder: &Folder, count: usize) -> Vec<String> {
    let issued = folder.json(format!(
        "identity issue --data service --population demo --count {count}"
    ));
    let list = issued["invitations"].as_array().expect("a list").clone();
    assert_eq!(list.len(), count);
    list.iter()
        .map(|text| text.as_str().expect("text").to_owned())
        .collect()
}

#[test]
fn the_example_tasks_are_planned_within_their_budgets() {
    let folder = folder();
    for (name, sum, goal) in [("federated", "plain", 4), ("federated-secagg", "secagg", 200)] {
        let created = folder.json(format!(
            "task create {name}.toml --data service --population demo"
        ));
        assert_eq!(created["state"], "draft");
        assert_eq!(created["released"], 0);
        let shown = folder.json(format!("task show {name} --data service"));
        assert_eq!(
            (&shown["sum"], &shown["goal"]),
            (&Value::from(sum), &Value::from(goal))
        );
        let planned = number(&shown["planned"]["epsilon"]);
        assert!(
            planned > 0.0 && planned <= number(&shown["max_epsilon"]),
            "{shown}"
        );
        assert_eq!(shown["planned"]["adjacency"], "zero out one user", "{shown}");
        let text = folder.succeed(format!("task show {name} --data service"));
        contains(
            &text,
            "planned guarantee ... zero out one user ... -zCDP ... fewer than 10",
        );
    }
    let listed = folder.json("task list --data service");
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    folder.show(
        "task list --data service",
        "federated-secagg ... draft ... 0 of 200 released",
    );
}

#[test]
#[ignore = "slow"]
fn ten_devices_train_four_rounds_and_the_export_verifies() {
    let folder = service();
    let mut server = Server::start(&folder, "--insecure --exit");
    let devices = 10;
    for (device, invitation) in invitations(&folder, devices).iter().enumerate() {
        enrol(&folder, device, invitation, &server.url);
    }
    folder.succeed("task activate federated --data service");
    let until = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        for device in 0..devices {
            let (folder, ended) = (&folder, &server.lines);
            scope.spawn(move || {
                let over = || {
                    ended
                        .lock()
                        .unwrap()
                        .iter()
                        .any(|line| line.contains("is completed"))
                };
                while !over() && Instant::now() < until {
                    folder.json(format!("device run --folder device-{device}"));
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
        }
    });
    let served = server.ended(PATIENCE);
    contains(&served, "4 rounds ... federated: completed, 4 of 4 rounds");
    contains(
        &server.log(),
        "round 1 of 4 released ... devices included, (eps = ... round 4 of 4 released",
    );
    let shown = folder.json("task show federated --data service");
    assert_eq!(
        (&shown["state"], &shown["released"]),
        (&Value::from("completed"), &Value::from(4))
    );
    let subjects = &shown["subjects"];
    assert!(
        subjects.is_null() || subjects == 10,
        "fewer than 10 are not counted out: {subjects}"
    );
    assert!(number(&shown["observed"]["epsilon"]) <= number(&shown["planned"]["epsilon"]));

    // The devices' own memories: nobody in two rounds in a row, nor more than twice, and 16 places in the sums.
    let mut included = 0;
    for device in 0..devices {
        let status = folder.json(format!("device status --folder device-{device}"));
        let rows = status["participations"].as_array().expect("a list").clone();
        let rounds: Vec<u64> = rows.iter().filter_map(|row| row["round"].as_u64()).collect();
        assert!(rounds.len() <= 2, "{status}");
        assert!(rounds.windows(2).all(|pair| pair[1] >= pair[0] + 2), "{status}");
        included += rows.iter().filter(|row| row["progress"] == "included").count();
    }
    assert!(included <= 16, "{included}");

    folder.succeed("task export federated out --data service");
    let exported = folder.json("export out --layout undertone --out model");
    assert!(number(&exported["parameters"]) > 0.0, "{exported}");
    assert!(folder.path("model/model.safetensors").exists() && folder.path("model/vocab.txt").exists());
    for command in ["eval out", "personalize out"] {
        folder.refuse(
            command,
            "out is an exported task of a service, and names no text ... undertone export out ... kind = \"evaluate\"",
        );
    }
    folder.show("verify out", "holds");
    folder.succeed("publish out published");
    folder.show("verify published", "holds");
    folder.refuse("task export federated out --data service", "out ... exists");
    let ledger = folder.text("out/ledger.jsonl");
    assert_eq!(ledger.lines().count(), 5);
    folder.write(
        "out/ledger.jsonl",
        ledger.replacen("\"cohort_size\":4", "\"cohort_size\":5", 1),
    );
    contains(&folder.disproved("out"), "DOES NOT HOLD ... line 2");
}

#[cfg(unix)]
#[test]
#[ignore = "slow"]
fn operators_work_through_a_running_server_which_ends_in_order() {
    use std::os::unix::fs::PermissionsExt;

    let folder = service();
    let mut server = Server::start(&folder, "--insecure");
    contains(&server.log(), "listening to devices at http://127.0.0.1:");
    let file = folder.path("service/admin.json");
    let mode = std::fs::metadata(&file)
        .expect("the file of the listener")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // A second server is refused by the lock, and operations go through the first.
    folder.refuse(
        "serve --data service --insecure --listen 127.0.0.1:0",
        "in use by another process",
    );
    assert_eq!(
        folder.json("task activate federated --data service")["state"],
        "active"
    );
    assert_eq!(
        folder.json("task pause federated --data service --note lunch")["state"],
        "paused"
    );
    folder.refuse("task pause federated --data service", "expected ... active");
    assert_eq!(
        folder.json("task resume federated --data service")["state"],
        "active"
    );
    folder.refuse("task show nobody --data service", "no task nobody");
    assert_eq!(invitations(&folder, 3).len(), 3);

    let admin = json(&folder.text("service/admin.json"));
    let address = admin["address"].as_str().expect("an address").to_owned();
    let host = address.strip_prefix("http://").expect("plain HTTP").to_owned();
    assert!(host.starts_with("127.0.0.1:"), "{host}");
    let get = |token: &str| {
        let mut stream = TcpStream::connect(&host).expect("connecting");
        write!(
            stream,
            "GET /admin/v1/tasks HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        )
        .expect("sending");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        reply
    };
    let token = admin["token"].as_str().expect("a token");
    contains(&get(token), "200 OK ... \"federated\" ... \"active\"");
    contains(&get(&token[1..]), "401 ... bearer token of admin.json");
    // The log may be kept, so it names the dashboard and opens it to nobody.
    let log = server.log();
    contains(
        &log,
        &format!("the dashboard is at {address}; it opens with the token in admin.token"),
    );
    assert!(!log.contains("code=") && !log.contains(token), "{log}");

    let asked = Instant::now();
    server.terminate();
    let served = server.ended(Duration::from_secs(20));
    assert!(asked.elapsed() < Duration::from_secs(20));
    contains(&served, "0 rounds ... federated: active");
    contains(&server.log(), "ending: no device is assigned any more");
    assert!(!file.exists(), "the file of a listener that has ended stays");

    // The next process leads the task at once, and ends it: the ledger has its last line.
    assert_eq!(
        folder.json("task stop federated --data service")["state"],
        "completed"
    );
    folder.refuse(
        "task stop federated --data service",
        "active, paused or halted ... completed",
    );
    folder.succeed("task export federated out --data service");
    folder.succeed("verify out");
    contains(&folder.text("out/ledger.jsonl"), "\"end\":\"stopped\"");
}

#[test]
fn a_task_with_too_little_noise_for_any_guarantee_is_refused() {
    let folder = folder();
    let text = folder.text("federated.toml");
    let line = text
        .lines()
        .find(|line| line.starts_with("noise_multiplier"))
        .expect("noise");
    folder.write(
        "loud.toml",
        text.replace(line, "noise_multiplier = 0.001")
            .replace("max_epsilon = 4.0\n", ""),
    );
    folder.refuse(
        "task create loud.toml --data service --population demo",
        "privacy ... a guarantee can be stated",
    );
}

#[test]
fn an_activation_beyond_a_budget_is_refused_with_both_figures() {
    let folder = folder();
    let text = folder.text("federated.toml");
    folder.write(
        "tight.toml",
        text.replace("max_epsilon = 4.0", "max_epsilon = 0.125"),
    );
    let planned = |name: &str| {
        let shown = folder.json(format!("task show {name} --data service"));
        format!("{:.2}", number(&shown["planned"]["epsilon"]))
    };
    folder.succeed("task create tight.toml --data service --population demo");
    let figure = planned("federated");
    let refused = folder.fail("task activate federated --data service");
    contains(&refused, "privacy.max_epsilon ... 0.125");
    contains(&refused, figure.trim_end_matches('0').get(..3).expect("digits"));

    // Two tasks that fit each on their own, and not together.
    for name in ["first", "second"] {
        let named = text.replace("name = \"federated\"", &format!("name = \"{name}\""));
        folder.write(&format!("{name}.toml"), named);
        folder.succeed(format!(
            "task create {name}.toml --data service --population shared"
        ));
    }
    let epsilon = number(&folder.json("task show first --data service")["planned"]["epsilon"]);
    folder.succeed(format!(
        "task budget --data service --population shared --max-epsilon {} --delta 1e-6",
        epsilon * 1.1
    ));
    folder.succeed("task activate first --data service");
    folder.refuse(
        "task activate second --data service",
        "population.max_epsilon ... first, second",
    );
    assert_eq!(folder.json("task show second --data service")["state"], "draft");
    folder.succeed(format!(
        "task budget --data service --population shared --max-epsilon {} --delta 1e-6",
        epsilon * 3.0
    ));
    folder.succeed("task activate second --data service");
}

#[test]
fn exposed_servers_and_missing_pieces_are_refused_with_what_to_do() {
    let folder = service();
    folder.write("run.toml", TINY);
    folder.refuses(
        "
        $ serve --data service --identity dev --listen 0.0.0.0:0
        listens on this machine alone ... --insecure
        $ serve --data service
        need TLS ... --tls CERT,KEY ... --insecure
        $ serve --data service --listen nowhere
        expected an address with a port
        $ serve --data service --insecure --admin 0.0.0.0:8441
        --admin: expected an address of this machine
        $ serve --data service --insecure --admin nowhere
        --admin: expected an address with a port
        $ serve --data service --tls one.pem
        CERT,KEY
        $ serve --data service --rounds 2
        --exit
        $ task list --data nothing
        nothing holds no service ... undertone task create
        $ task show federate --data service
        no task federate
        $ task export federated out --data service
        federated must be ended before its export
        $ task stop federated --data service
        active, paused or halted ... draft
        $ task create federated.toml --data service --population demo
        federated
        $ task create federated.toml --data service --population ../demo
        letters, digits, dots
        $ task create absent.toml --data service --population demo
        cannot read absent.toml
        $ task create run.toml --data service --population demo
        run.toml ... the run file of a simulation, since it has [data]; a task has [vocabulary], [text] and [service] instead
        $ identity issue --data service --population demo --count 0
        --count must be 1 to
        $ identity revoke abc --data service
        64 hexadecimal digits
        $ device status --folder nowhere
        nowhere holds no device ... undertone device enrol
        $ device enrol --folder d --server http://example.org --population demo --keys keys.json
        http:// on this machine
        $ device enrol --folder d --server http://127.0.0.1:9 --population demo --keys keys.json
        cannot be reached
        ",
    );
    assert!(!folder.path("nothing").exists(), "a listing made a service");
}

#[test]
fn a_database_of_a_newer_program_is_refused_with_a_sentence_that_says_so() {
    let folder = service();
    let before = folder.json("task list --data service");
    folder.refuse(
        "serve --data nothing --insecure --migrate",
        "nothing/service.sqlite",
    );
    // The version of the schema stands in the header of the file.
    let mut bytes = folder.read("service/service.sqlite");
    let version = bytes[60..64].to_vec();
    bytes[60..64].copy_from_slice(&7_u32.to_be_bytes());
    folder.write("service/service.sqlite", &bytes);
    for line in [
        "task list --data service",
        "serve --data service --insecure",
        "serve --data service --insecure --migrate",
    ] {
        folder.refuse(
            line,
            "service/service.sqlite: expected a database of schema 4, got 7; it was written by a newer program; use that one",
        );
    }
    bytes[60..64].copy_from_slice(&version);
    folder.write("service/service.sqlite", &bytes);
    assert_eq!(folder.json("task list --data service"), before);
}

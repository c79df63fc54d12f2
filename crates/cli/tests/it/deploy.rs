//! Every command line of `deploy/`, started as its file says: by a user without rights, on a volume that somebody else owns.
//!
//! The tests need root, a server of Postgres and `setpriv`. Without root they say that they were left out, unless
//! `UNDERTONE_REQUIRE_ROOT` is set.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::postgres;

/// The user and the group of the processes.
const USER: &str = "10001";

/// The time that a process may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// `true` if this is root. Otherwise the test is left out, unless it is required.
fn is_root(test: &str) -> bool {
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n");
    if !root {
        assert!(
            std::env::var_os("UNDERTONE_REQUIRE_ROOT").is_none(),
            "UNDERTONE_REQUIRE_ROOT is set, and this is not root"
        );
        eprintln!("left out: {test} needs root to change users");
    }
    root
}

#[track_caller]
fn shell(script: &str, argument: &Path) {
    let output = Command::new("sh").args(["-ec", script]).arg(argument).output();
    let output = output.expect("running sh");
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A command line of a file of `deploy/`, with the time that the file gives it for a stop.
struct Line {
    name: String,
    arguments: Vec<String>,
    grace: Duration,
}

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number behind a key such as `stop_grace_period:`, on the last line before a place that has it.
fn seconds(text: &str, key: &str) -> Duration {
    let line = text.lines().map(str::trim).rfind(|line| line.starts_with(key));
    let digits: String = line
        .unwrap_or_else(|| panic!("no {key}"))
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    Duration::from_secs(digits.parse().expect("a number of seconds"))
}

/// The lists of arguments in YAML that begin with `serve`.
fn lists(text: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        let item = line.strip_prefix("- ");
        match item {
            Some("serve") => {
                found.push(vec!["serve".to_owned()]);
                inside = true;
            }
            Some(item) if inside => found.last_mut().expect("a list").push(item.to_owned()),
            _ => inside = false,
        }
    }
    found
}

/// The command lines of `deploy/`, by the volume that they share.
fn all() -> Vec<(&'static str, Vec<Line>)> {
    let mut sets = Vec::new();
    let compose = text("compose.yaml");
    let (of_servers, _) = compose.split_once("\nservices:").expect("services");
    let grace = seconds(of_servers, "stop_grace_period:");
    let line = |name: String, arguments, grace| Line {
        name,
        arguments,
        grace,
    };
    let lines = lists(&compose);
    sets.push((
        "compose",
        lines
            .into_iter()
            .enumerate()
            .map(|(at, arguments)| line(format!("compose {at}"), arguments, grace))
            .collect(),
    ));
    let mut pods = Vec::new();
    for name in ["front", "aggregator", "leader"] {
        let manifest = text(&format!("kubernetes/{name}.yaml"));
        let grace = seconds(&manifest, "terminationGracePeriodSeconds:");
        for arguments in lists(&manifest) {
            pods.push(line(format!("kubernetes {name}"), arguments, grace));
        }
    }
    sets.push(("kubernetes", pods));
    let container = text("Containerfile");
    let list = container.lines().find_map(|line| line.strip_prefix("CMD "));
    let arguments = serde_json::from_str(list.expect("a command")).expect("a list");
    // A stop takes at most 20 s.
    sets.push((
        "container",
        vec![line("container".to_owned(), arguments, Duration::from_secs(20))],
    ));
    let unit = text("undertone.service");
    let start = unit.replace("\\\n", " ");
    let command = start.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let mut words = command.expect("a command").split_whitespace().map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("/usr/bin/undertone"));
    let grace = seconds(&unit, "TimeoutStopSec=");
    sets.push(("unit", vec![line("unit".to_owned(), words.collect(), grace)]));
    sets
}

/// The places of one volume on this machine.
struct Places {
    program: PathBuf,
    /// The data folder.
    data: PathBuf,
    witness: PathBuf,
    /// The folder of the certificate, and of the file with the address of the database.
    secrets: PathBuf,
}

impl Places {
    /// A volume as `fsGroup` leaves it: of root, open to the group of the process, and closed to everybody else.
    fn new(root: &Path, name: &str, url: &str) -> Self {
        let places = Self {
            program: root.join("undertone"),
            data: root.join(name).join("data"),
            witness: root.join(name).join("witness"),
            secrets: root.join(name).join("secrets"),
        };
        for folder in [&places.data, &places.witness, &places.secrets] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let tls = places.data.join("tls");
        std::fs::create_dir(&tls).expect("a folder");
        for folder in [&tls, &places.secrets] {
            for (name, text) in [
                ("cert.pem", made.cert.pem()),
                ("key.pem", made.signing_key.serialize_pem()),
                ("tls.crt", made.cert.pem()),
                ("tls.key", made.signing_key.serialize_pem()),
            ] {
                std::fs::write(folder.join(name), text).expect("a file");
            }
        }
        std::fs::write(places.secrets.join("store.url"), format!("{url}\n")).expect("a file");
        shell(
            &format!(
                "chown -R root:{USER} \"$0\"; chmod 0755 \"$0\"; chmod 2770 \"$0/data\" \"$0/witness\" \"$0/data/tls\"; \
                 chmod 0750 \"$0/secrets\"; chmod 0440 \"$0/secrets/\"* \"$0/data/tls/\"*"
            ),
            &root.join(name),
        );
        places
    }

    /// Gives the files to the group, as a kubelet does when a pod starts again.
    fn give_to_the_group(&self) {
        shell(
            &format!(
                "chgrp -R {USER} \"$0\"; chmod -R ug+rw \"$0\"; find \"$0\" -type d -exec chmod g+sx {{}} +"
            ),
            &self.data,
        );
    }

    /// An argument of a file of `deploy/`, with the paths, addresses and names of this machine.
    fn here(&self, argument: &str, peers: u16, process: &str) -> String {
        let part = |part: &str| {
            for (from, to) in [
                ("/var/lib/undertone", &self.data),
                ("/etc/undertone/tls", &self.secrets),
                ("/etc/undertone", &self.secrets),
                ("/run/secrets", &self.secrets),
                ("/witness", &self.witness),
                ("/data", &self.data),
                ("/tls", &self.secrets),
            ] {
                if let Some(rest) = part.strip_prefix(from) {
                    return format!("{}{rest}", to.display());
                }
            }
            match part.rsplit_once(':') {
                _ if part == "/store/url" => self.secrets.join("store.url").display().to_string(),
                Some((host, "8450")) if host.starts_with("https://") => format!("https://127.0.0.1:{peers}"),
                Some((host, "8450")) => format!("{host}:{peers}"),
                Some((host, "8440" | "8441" | "8442")) => format!("{host}:0"),
                _ => part.replace("$(POD_NAME)", process),
            }
        };
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) => (format!("{option}="), value),
            None => (String::new(), argument),
        };
        let parts: Vec<String> = value.split(',').map(part).collect();
        format!("{option}{}", parts.join(","))
    }

    /// The program, run by the user without rights.
    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid",
                USER,
                "--regid",
                USER,
                "--clear-groups",
                "--no-new-privs",
            ])
            .args(["--inh-caps=-all", "--bounding-set=-all"])
            .arg(&self.program)
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn succeed(&self, line: &str) -> String {
        let output = self.command().args(line.split_whitespace()).output();
        let output = output.expect("running undertone");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "undertone {line}: {errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

/// A process of `deploy/` that answers probes.
struct Process {
    name: String,
    child: Child,
    probes: u16,
    lines: Arc<Mutex<Vec<String>>>,
    grace: Duration,
}

impl Process {
    fn start(places: &Places, line: &Line) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let peers = free.local_addr().expect("an address").port();
        drop(free);
        let process = line.name.replace(' ', "-");
        let arguments = line
            .arguments
            .iter()
            .map(|argument| places.here(argument, peers, &process));
        let mut child = places
            .command()
            .args(arguments)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("starting");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let errors = BufReader::new(child.stderr.take().expect("standard error")).lines();
        let kept = lines.clone();
        std::thread::spawn(move || {
            for line in errors.map_while(Result::ok) {
                kept.lock().expect("the lines").push(line);
            }
        });
        let mut started = Self {
            name: line.name.clone(),
            child,
            probes: 0,
            lines,
            grace: line.grace,
        };
        let until = Instant::now() + PATIENCE;
        while started.probes == 0 {
            let log = started.log();
            let ended = started.child.try_wait().expect("waiting");
            assert!(
                ended.is_none() && Instant::now() < until,
                "{}: {ended:?} {log}",
                line.name
            );
            let address = log
                .lines()
                .find_map(|line| line.strip_prefix("answering probes at http://"));
            let port = address.and_then(|address| address.trim().rsplit(':').next());
            started.probes = port.map_or(0, |port| port.parse().expect("a port"));
            std::thread::sleep(Duration::from_millis(20));
        }
        started
    }

    fn log(&self) -> String {
        self.lines.lock().expect("the lines").join("\n")
    }

    /// The probes answer, and nothing else does.
    fn check_probes(&self) {
        let until = Instant::now() + PATIENCE;
        while get(self.probes, "/readyz").0 != 200 {
            assert!(
                Instant::now() < until,
                "{}: {:?}",
                self.name,
                get(self.probes, "/readyz")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(
            get(self.probes, "/healthz"),
            (200, "ok\n".to_owned()),
            "{}",
            self.name
        );
        let (status, figures) = get(self.probes, "/metrics");
        assert!(
            status == 200 && figures.contains("undertone_"),
            "{}: {figures}",
            self.name
        );
        for path in ["/", "/admin/v1/tasks", "/admin/v1/operations", "/v1/p/demo/board"] {
            assert_eq!(get(self.probes, path).0, 404, "{}: {path}", self.name);
        }
    }

    /// Ends it as its file does; the time that this took.
    fn stop(&mut self) -> Duration {
        let begun = Instant::now();
        let sent = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(sent.expect("sending a signal").success());
        loop {
            if let Some(status) = self.child.try_wait().expect("waiting") {
                assert!(status.success(), "{}: {status} {}", self.name, self.log());
                return begun.elapsed();
            }
            assert!(
                begun.elapsed() < self.grace,
                "{} goes on: {}",
                self.name,
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the body of an answer.
fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    )
    .expect("sending");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// A folder that every user can enter, with the program that the tests have built.
fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir_in("/tmp").expect("a folder");
    shell("chmod 0755 \"$0\"", root.path());
    let program = root.path().join("undertone");
    let built = env!("CARGO_BIN_EXE_undertone");
    if std::fs::hard_link(built, &program).is_err() {
        std::fs::copy(built, &program).expect("a copy of the program");
    }
    root
}

#[test]
fn a_stop_of_each_file_leaves_time_after_the_wait_for_open_attempts() {
    let mut counted = 0;
    for line in all().into_iter().flat_map(|(_, lines)| lines) {
        let drain = line
            .arguments
            .iter()
            .find_map(|argument| argument.strip_prefix("--drain="));
        let drain: u64 = drain.map_or(0, |seconds| seconds.parse().expect("seconds"));
        let several = line
            .arguments
            .iter()
            .any(|argument| argument.starts_with("--process="));
        assert_eq!(drain > 0, several, "{}", line.name);
        assert!(line.grace >= Duration::from_secs(drain + 20), "{}", line.name);
        let open = line
            .arguments
            .iter()
            .any(|argument| argument.contains("postgres://"));
        assert!(
            !open,
            "{} has the address of its database in its arguments",
            line.name
        );
        counted += 1;
    }
    assert_eq!(counted, 8);
}

#[test]
#[ignore = "slow"]
fn every_command_of_deploy_starts_twice_on_a_volume_of_fsgroup_and_ends_within_its_grace() {
    if !is_root("the test of deploy/") {
        return;
    }
    let Some(server) = postgres::shared() else {
        return;
    };
    let root = root();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["federated.toml", "federated-words.txt"] {
        std::fs::copy(examples.join(name), root.path().join(name)).expect("a file");
    }
    for (set, lines) in all() {
        let url = server.database();
        // The folder of its socket is closed to other users.
        let (_, socket) = url.split_once("?host=").expect("a folder");
        shell("chmod 0711 \"$0\"", Path::new(socket));
        let places = Places::new(root.path(), set, &url);
        for time in 0..2 {
            let mut running: Vec<Process> = lines.iter().map(|line| Process::start(&places, line)).collect();
            for process in &running {
                process.check_probes();
                let arguments = std::fs::read(format!("/proc/{}/cmdline", process.child.id()));
                let shown = String::from_utf8_lossy(&arguments.expect("its arguments")).into_owned();
                assert!(!shown.contains("postgres://"), "{shown}");
            }
            if time == 1 && lines.len() == 3 {
                open_an_attempt(&root, &places, &running);
            }
            for process in &mut running {
                // No device has come, so nothing is left to wait for.
                let took = process.stop();
                assert!(took < Duration::from_secs(20), "{}: {took:?}", process.name);
            }
            use std::os::unix::fs::MetadataExt;
            let volume = std::fs::metadata(&places.data).expect("the volume");
            assert_eq!(
                (volume.uid(), volume.gid(), volume.mode() & 0o7777),
                (0, 10_001, 0o2770),
                "{set}"
            );
            places.give_to_the_group();
        }
    }
}

/// Starts a task, and waits until a leader has opened an attempt.
fn open_an_attempt(root: &tempfile::TempDir, places: &Places, running: &[Process]) {
    let data = places.data.display();
    let file = root.path().join("federated.toml");
    places.succeed(&format!(
        "task create {} --data {data} --population demo",
        file.display()
    ));
    places.succeed(&format!("task activate federated --data {data}"));
    let until = Instant::now() + PATIENCE;
    let is_open = |process: &Process| {
        let (_, figures) = get(process.probes, "/metrics");
        figures.lines().any(|line| {
            line.starts_with("undertone_tx_seconds_count{name=\"open_attempt\"}") && !line.ends_with(" 0")
        })
    };
    while !running.iter().any(is_open) {
        assert!(Instant::now() < until, "{}", running[2].log());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A network namespace with a link to this one. Both end with the value.
struct Elsewhere {
    name: String,
    here: String,
}

impl Elsewhere {
    fn new() -> Option<Self> {
        let number = std::process::id() % 100_000;
        let (name, a, b) = (
            format!("ut{number}"),
            format!("ut{number}a"),
            format!("ut{number}b"),
        );
        let net = format!("10.213.{}.", number % 250);
        let script = format!(
            "ip netns add {name}; ip link add {a} type veth peer name {b} netns {name}; \
             ip addr add {net}1/30 dev {a}; ip link set {a} up; \
             ip -n {name} addr add {net}2/30 dev {b}; ip -n {name} link set {b} up"
        );
        let made = Self {
            name,
            here: format!("{net}1"),
        };
        let output = Command::new("sh").args(["-ec", &script]).output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(made);
        }
        assert!(
            std::env::var_os("UNDERTONE_REQUIRE_NETNS").is_none(),
            "UNDERTONE_REQUIRE_NETNS is set, and `ip netns add` fails"
        );
        eprintln!("left out: this machine makes no network namespace");
        None
    }

    /// The answer to a request from the other namespace; empty where nobody answers.
    fn get(&self, port: u16, path: &str) -> String {
        let script = format!(
            "exec 3<>/dev/tcp/{}/{port} && printf 'GET {path} HTTP/1.0\\r\\nhost: a\\r\\n\\r\\n' >&3 && cat <&3",
            self.here
        );
        let output = Command::new("ip")
            .args(["netns", "exec", &self.name, "bash", "-c", &script])
            .output();
        String::from_utf8_lossy(&output.expect("running ip").stdout).into_owned()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

#[test]
#[ignore = "slow"]
fn probes_answer_from_another_network_namespace_and_the_dashboard_does_not() {
    if !is_root("the test of probes") {
        return;
    }
    let Some(elsewhere) = Elsewhere::new() else {
        return;
    };
    let root = root();
    let places = Places::new(root.path(), "alone", "");
    let line = Line {
        name: "alone".to_owned(),
        arguments: [
            "serve",
            "--data=/data",
            "--insecure",
            "--listen=127.0.0.1:0",
            "--probes=0.0.0.0:8442",
        ]
        .map(str::to_owned)
        .to_vec(),
        grace: Duration::from_secs(20),
    };
    let mut process = Process::start(&places, &line);
    process.check_probes();
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = elsewhere.get(process.probes, path);
        assert!(
            answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"),
            "{path}: {answer:?}"
        );
    }
    let file = std::fs::read_to_string(places.data.join("admin.json")).expect("the file of operators");
    let file: serde_json::Value = serde_json::from_str(&file).expect("JSON");
    let address = file["address"].as_str().expect("an address");
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    assert_eq!(elsewhere.get(port.expect("a port"), "/healthz"), "");
    process.stop();
}

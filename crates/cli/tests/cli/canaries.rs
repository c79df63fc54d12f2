//! Secrets of people pass through a server and leave no trace in it.
//!
//! Eight devices send updates that the test knows, bit for bit, over TLS. The canaries are these updates, their sum before the noise, the
//! subjects, the session tokens, and the text of a ninth device. They are looked for in all files of the server, its log at the
//! finest level, its metrics and answers, the export of the task, and all memory of the process that it can write, which is what a core
//! file holds. The search runs while the updates are in memory, where it must find them, and after the release, where it must not.
//!
//! A buffer of an open connection may hold the last request, so the devices hang up before the second search.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use undertone_device::{HttpTransport, Method, Reply, Request, Transport, enrolment_body};
use undertone_protocol::{
    Assignment, CHECKSUM_HEADER, CheckIn, CheckInReply, Code, Commit, Enrol, Enrolled, Label, Next,
    PROTOCOL_HEADER, Problem, RequestSignature, SIGNATURE_HEADER, Signed, Signer, check_in_reply,
    checksum_header, crc32c, limits, next, read, write,
};

use crate::support::{Folder, json, number};

const PATIENCE: Duration = Duration::from_secs(180);

/// Devices of the first round, which is released with all of them.
const DEVICES: usize = 8;

/// Grid steps of the sum in one unit.
const STEPS: f64 = (1_u64 << 40) as f64;

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
group = { target = 4, least = 4 }
deadlines = { select = "300s", report = "300s", attempt = "600s" }
eligibility = { min_examples = 1, max_examples = 16, timer = "1s", fresh_install = "now" }
identity = "certificate"
pace = { checkins_per_needed = 3.0, min_interval = "1s" }
"#;

/// Byte strings with the names of what they show.
type Needles = Vec<(String, Vec<u8>)>;

/// The names of the needles that these bytes hold.
fn found(needles: &Needles, hay: &[u8], names: &mut BTreeSet<String>) {
    let mut starts: Vec<Vec<usize>> = vec![Vec::new(); 256];
    for (place, (_, needle)) in needles.iter().enumerate() {
        starts[usize::from(needle[0])].push(place);
    }
    for (at, byte) in hay.iter().enumerate() {
        for &place in &starts[usize::from(*byte)] {
            let (name, needle) = &needles[place];
            if hay[at..].starts_with(needle) {
                names.insert(name.clone());
            }
        }
    }
}

/// The needles in all memory that a process can write, with the kinds of memory that hold them.
fn in_memory(pid: u32, needles: &Needles) -> BTreeSet<String> {
    const PART: u64 = 1 << 20;
    let longest = needles.iter().map(|(_, needle)| needle.len()).max().unwrap_or(0) as u64;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the maps of the server");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the memory of the server");
    let mut all = BTreeSet::new();
    let mut seen = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !rights.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').expect("a range");
        let bound = |digits| u64::from_str_radix(digits, 16).expect("an address");
        let (mut at, to) = (bound(from), bound(to));
        let kind = words.nth(3).unwrap_or("anonymous memory");
        let mut names = BTreeSet::new();
        while at < to {
            let mut part = vec![0; (to - at).min(PART + longest) as usize];
            // Pages of a guard or of a thread that has ended cannot be read, and are in no core file either.
            if memory.read_exact_at(&mut part, at).is_ok() {
                seen += part.len();
                found(needles, &part, &mut names);
            }
            at += PART;
        }
        all.extend(names.into_iter().map(|name| format!("{name} in {kind} {range}")));
    }
    assert!(seen > 1 << 20, "{seen} bytes of the server's memory were read");
    all
}

/// The needles in all files of a folder, with the files that hold them.
fn in_files(folder: &Path, needles: &Needles) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(in_files(&path, needles));
            continue;
        }
        let mut names = BTreeSet::new();
        found(needles, path.display().to_string().as_bytes(), &mut names);
        // A file of the database may go away meanwhile.
        found(needles, &std::fs::read(&path).unwrap_or_default(), &mut names);
        all.extend(
            names
                .into_iter()
                .map(|name| format!("{name} in {}", path.display())),
        );
    }
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |place: usize| u8::from_str_radix(&text[place..place + 2], 16).expect("digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A secret as bytes and as digits.
fn both(name: &str, bytes: &[u8]) -> Needles {
    vec![
        (format!("{name}, bytes"), bytes.to_vec()),
        (format!("{name}, digits"), hex(bytes).into_bytes()),
    ]
}

/// A device whose every byte the test chooses.
struct Hand {
    number: usize,
    signer: Signer,
    transport: HttpTransport,
    certificate: Option<Signed>,
    assignment: Option<Assignment>,
}

impl Hand {
    fn new(number: usize, url: &str, root: &[u8]) -> Self {
        Self {
            number,
            signer: Signer::from_seed(&[number as u8 + 1; 32]),
            transport: HttpTransport::with_roots(url, &[root]).expect("a transport"),
            certificate: None,
            assignment: None,
        }
    }

    fn send(
        &mut self,
        method: Method,
        target: String,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Reply {
        let mut all = vec![(PROTOCOL_HEADER.0, PROTOCOL_HEADER.1.to_owned())];
        all.extend(headers);
        let request = Request {
            method,
            target,
            headers: all,
            body: body.into(),
            max_reply: limits::MAX_MESSAGE,
            timeout_ms: 60_000,
            blob: None,
        };
        self.transport.send(&request).expect("a reply")
    }

    fn enrol(&mut self, invitation: &str) {
        let mut enrol = Enrol {
            device_key: self.signer.public().to_vec(),
            invitation: invitation.to_owned(),
            ..Enrol::default()
        };
        enrol.proof = self.signer.proof(Label::Enrolment, &enrolment_body(&enrol));
        let reply = self.send(
            Method::Post,
            "/v1/p/demo/enrol".to_owned(),
            Vec::new(),
            write(&enrol),
        );
        assert!(reply.is_success(), "{}", reply.status);
        let enrolled: Enrolled = read("the reply", &reply.body, limits::MAX_MESSAGE).expect("a reply");
        self.certificate = enrolled.certificate;
    }

    fn check_in(&mut self, task: &[u8], number: u8) -> Result<(), Code> {
        let message = CheckIn {
            checkin: vec![number; 16],
            eligible: vec![task.to_vec()],
            client_version: 1,
            certificate: self.certificate.clone(),
            evidence: Vec::new(),
        };
        let (path, body) = ("/v1/p/demo/check-in", write(&message));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock")
            .as_millis() as u64;
        let signature = RequestSignature::new(&self.signer, now, "POST", path, &body).header();
        let reply = self.send(
            Method::Post,
            path.to_owned(),
            vec![(SIGNATURE_HEADER, signature)],
            body,
        );
        if !reply.is_success() {
            let problem: Problem = read("the refusal", &reply.body, limits::MAX_MESSAGE).expect("a refusal");
            return Err(problem.code());
        }
        let answer: CheckInReply = read("the reply", &reply.body, limits::MAX_MESSAGE).expect("a reply");
        match answer.what {
            Some(check_in_reply::What::Assignment(assignment)) => self.assignment = Some(assignment),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn call(
        &mut self,
        method: Method,
        what: &str,
        header: Option<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Next {
        let assignment = self.assignment.as_ref().expect("an assignment");
        let target = format!("{}/{}/{what}", assignment.aggregator, hex(&assignment.session));
        let bearer = ("authorization", format!("Bearer {}", hex(&assignment.token)));
        let headers = [Some(bearer), header].into_iter().flatten().collect();
        let reply = self.send(method, target, headers, body);
        assert!(reply.is_success(), "{what}: {}", reply.status);
        read("the reply", &reply.body, limits::MAX_MESSAGE).unwrap_or_default()
    }

    /// Joins, and returns the number of coordinates of an update.
    fn join(&mut self) -> usize {
        match self.call(Method::Post, "join", None, Vec::new()).what {
            Some(next::What::Upload(grant)) => grant.length as usize / 4,
            other => panic!("{other:?}"),
        }
    }

    fn upload(&mut self, bytes: &[u8]) {
        let checksum = (CHECKSUM_HEADER, checksum_header(crc32c(0, bytes)));
        self.call(Method::Put, "upload?offset=0", Some(checksum), bytes.to_vec());
    }

    fn commit(&mut self, bytes: &[u8]) {
        let commit = Commit {
            length: bytes.len() as u64,
            crc32c: crc32c(0, bytes),
            weight: 1.0,
            below: None,
        };
        self.call(Method::Post, "commit", None, write(&commit));
    }
}

/// The update of a device: a vector of norm below 1, no value of which is like another.
fn update(device: usize, length: usize) -> Vec<f32> {
    let part = 0.9 / (length as f32).sqrt();
    let value = |place: usize| {
        let draw = (place * DEVICES + device + 1).wrapping_mul(2_654_435_761) % 1_000_003;
        part * (0.25 + 0.75 * draw as f32 / 1_000_003.0)
    };
    (0..length).map(value).collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Three places of a vector, eight values each, in one form of numbers.
fn places(name: &str, length: usize, form: impl Fn(usize) -> Vec<u8>) -> Needles {
    [0, length / 2, length - 8]
        .map(|from| {
            (
                format!("{name} at {from}"),
                (from..from + 8).flat_map(&form).collect(),
            )
        })
        .into()
}

/// The sum of these updates before the noise, in each form in which a program may hold it.
fn sum_of(name: &str, updates: &[Vec<f32>]) -> Needles {
    let fixed = |place: usize| -> i64 {
        updates
            .iter()
            .map(|update| (f64::from(update[place]) * STEPS) as i64)
            .sum()
    };
    let length = updates[0].len();
    let (real, mean) = (
        |place| fixed(place) as f64 / STEPS,
        |place| fixed(place) as f64 / STEPS / DEVICES as f64,
    );
    [
        places(&format!("{name} in fixed point"), length, |place| {
            fixed(place).to_le_bytes().to_vec()
        }),
        places(&format!("{name} in f64"), length, |place| {
            real(place).to_le_bytes().to_vec()
        }),
        places(&format!("{name} in f32"), length, |place| {
            (real(place) as f32).to_le_bytes().to_vec()
        }),
        places(&format!("{name}, its mean in f64"), length, |place| {
            mean(place).to_le_bytes().to_vec()
        }),
        places(&format!("{name}, its mean in f32"), length, |place| {
            (mean(place) as f32).to_le_bytes().to_vec()
        }),
    ]
    .concat()
}

/// A server over TLS with the finest log.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let log = File::create(folder.path("log")).expect("a log");
        let child = folder
            .command("serve --data service --listen 127.0.0.1:0 --tls cert.pem,key.pem")
            .env("UNDERTONE_LOG", "trace")
            .stderr(log.try_clone().expect("the log"))
            .stdout(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("starting the server");
        let mut server = Self {
            child,
            url: String::new(),
        };
        let until = Instant::now() + PATIENCE;
        while server.url.is_empty() {
            assert!(
                Instant::now() < until,
                "the server does not start: {}",
                folder.text("log")
            );
            let lines = BufReader::new(File::open(folder.path("log")).expect("the log")).lines();
            let address = lines
                .map_while(Result::ok)
                .find_map(|line| line.strip_prefix("listening to devices at ").map(str::to_owned));
            server.url = address.unwrap_or_default();
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page of the listener of operators.
fn admin(folder: &Folder, path: &str) -> String {
    let file = json(&folder.text("service/admin.json"));
    let agent = ureq::Agent::new_with_defaults();
    let mut reply = agent
        .get(format!("{}{path}", file["address"].as_str().expect("an address")))
        .header(
            "authorization",
            format!("Bearer {}", folder.text("service/admin.token")),
        )
        .call()
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    reply.body_mut().read_to_string().expect("text")
}

#[test]
fn updates_sums_subjects_tokens_and_texts_leave_no_trace_in_a_server() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    folder.write("cert.pem", made.cert.pem());
    folder.write("key.pem", made.signing_key.serialize_pem());
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
    let root = folder.read("cert.pem");
    for (number, invitation) in invitations.iter().enumerate().take(DEVICES) {
        let mut hand = Hand::new(number, &server.url, &root);
        hand.enrol(invitation);
        let until = Instant::now() + PATIENCE;
        while hand.check_in(&task, 1).is_err() {
            assert!(Instant::now() < until, "no attempt opens: {}", folder.text("log"));
            std::thread::sleep(Duration::from_millis(50));
        }
        let length = hand.join();
        let values = update(number, length);
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
    let before = sum_of("the sum of seven", &updates[..last]);
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
    needles.extend(sum_of("the sum", &updates));
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
    folder.succeed("task stop canary-task --data service");
    folder.succeed("task export canary-task run --data service");
    folder.succeed("verify run");
    let left = in_files(&folder.path("."), &needles);
    assert!(left.is_empty(), "in files: {left:#?}");
    let log = folder.text("log");
    assert!(log.contains("a round was released"), "{log}");
    assert!(ended.is_object(), "{ended}");
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
            let known = ["population", "task", "result", "state", "reason", "phase", "name"];
            assert!(
                known.contains(&label.split('=').next().expect("a name")),
                "{line}"
            );
        }
        values.insert(series.to_owned(), value.parse::<f64>().expect("a number"));
        let devices = name.ends_with("checkins_total")
            || name.ends_with("sessions")
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

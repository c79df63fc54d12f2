//! A server in trouble: it lives, says so on `/readyz` and in `/metrics`, logs little, and goes on once the cause is gone.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::federated::{PATIENCE, Server, service, service_with};
use crate::postgres;
use crate::support::Folder;

/// A trouble is left within this time after its cause is gone.
const LEFT: Duration = Duration::from_secs(30);

/// The listener of operators of a server, with its token.
fn operators(folder: &Folder, process: Option<&str>) -> (String, String) {
    let file = match process {
        None => "service/admin.json".to_owned(),
        Some(name) => format!("service/processes/{name}/admin.json"),
    };
    let about: serde_json::Value = serde_json::from_str(&folder.text(&file)).expect("JSON");
    let text = |key: &str| about[key].as_str().expect("text").to_owned();
    (text("address"), text("token"))
}

/// The status and the text of an answer.
fn get(address: &str, path: &str, more: &str) -> (u16, String) {
    let host = address.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(host).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a time-out");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nundertone-protocol: 1\r\n{more}\r\n"
    )
    .expect("a request");
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    let text = String::from_utf8_lossy(&reply).into_owned();
    let status = text.get(9..12).and_then(|digits| digits.parse().ok());
    (status.unwrap_or(0), text)
}

fn metrics(folder: &Folder, process: Option<&str>) -> String {
    let (address, token) = operators(folder, process);
    let (status, text) = get(
        &address,
        "/metrics",
        &format!("authorization: Bearer {token}\r\n"),
    );
    assert_eq!(status, 200, "{text}");
    text
}

fn ready(folder: &Folder, process: Option<&str>) -> (u16, String) {
    get(&operators(folder, process).0, "/readyz", "")
}

/// Waits until a server says this on `/readyz`.
#[track_caller]
fn wait_for(
    server: &mut Server,
    folder: &Folder,
    process: Option<&str>,
    status: u16,
    words: &str,
) -> Duration {
    let begun = Instant::now();
    loop {
        assert!(server.lives(), "the server has ended: {}", server.log());
        let (found, text) = ready(folder, process);
        if found == status && text.contains(words) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < LEFT, "{found}: {text}\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The names of the figures of a scrape.
fn names(text: &str) -> BTreeSet<&str> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    kinds.filter_map(|line| line.split(' ').next()).collect()
}

/// The names of figures in a text.
fn mentioned(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| word.starts_with("undertone_"))
        .map(str::to_owned)
        .collect()
}

#[test]
#[ignore = "slow"]
fn the_alerts_of_deploy_name_figures_that_a_server_exports_and_a_full_disk_is_not_ready() {
    let folder = service();
    let mut server = Server::start(&folder, "--insecure --disk-floor 900000GB");
    wait_for(
        &mut server,
        &folder,
        None,
        503,
        "disk: the data folder has no room",
    );
    let text = metrics(&folder, None);
    assert!(text.contains("undertone_trouble{state=\"disk\"} 1"), "{text}");
    assert!(text.contains("undertone_trouble{state=\"store\"} 0"), "{text}");
    let task = "undertone_task_state{population=\"demo\",task=\"federated\",state=\"draft\"} 1";
    assert!(text.contains(task), "{text}");
    let exported = names(&text);
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus-alerts.yaml");
    let used = mentioned(&std::fs::read_to_string(alerts).expect("the alerts"));
    assert!(used.len() >= 8, "{used:?}");
    for name in used {
        assert!(
            exported.contains(name.as_str()),
            "a server exports no {name}: {exported:?}"
        );
    }
    // A foreign name of this host reads nothing, also with the token.
    let (address, token) = operators(&folder, None);
    let host = address.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(host).expect("a connection");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
    )
    .expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("an answer");
    assert!(reply.starts_with("HTTP/1.1 403"), "{reply}");
    std::thread::sleep(Duration::from_secs(2));
    let lines = server
        .log()
        .lines()
        .filter(|line| line.contains("in trouble"))
        .count();
    assert_eq!(lines, 1, "{}", server.log());
}

#[test]
#[ignore = "slow"]
fn a_missing_plan_stops_its_task_alone_and_its_return_ends_the_trouble() {
    let folder = service();
    let other = folder
        .text("federated.toml")
        .replace("name = \"federated\"", "name = \"second\"");
    folder.write("second.toml", other);
    folder.succeed("task create second.toml --data service --population demo");
    for task in ["federated", "second"] {
        folder.succeed(format!("task activate {task} --data service"));
    }
    let plan = |task: &str| {
        let file = rusqlite::Connection::open(folder.path("service/service.sqlite")).expect("the database");
        let sql = "SELECT lower(hex(plan)) FROM tasks WHERE name = ?1";
        file.query_row(sql, [task], |row| row.get::<_, String>(0))
            .expect("a plan")
    };
    let blob = folder.path(&format!("service/blobs/blobs/{}", plan("second")));
    let aside = folder.path("aside");
    std::fs::rename(&blob, &aside).expect("moving the plan");
    let mut server = Server::start(&folder, "--insecure");
    // The process is ready, since the other task goes on.
    wait_for(&mut server, &folder, None, 200, "task: a task cannot go on");
    let (_, board) = get(&server.url, "/v1/p/demo/board", "");
    assert!(board.starts_with("HTTP/1.1 200"), "{board}");
    let text = metrics(&folder, None);
    assert!(text.contains("undertone_trouble{state=\"task\"} 1"), "{text}");
    std::thread::sleep(Duration::from_secs(3));
    let stands = |log: &str| {
        log.lines()
            .filter(|line| line.contains("could not go on"))
            .count()
    };
    assert_eq!(stands(&server.log()), 1, "{}", server.log());
    std::fs::rename(&aside, &blob).expect("moving the plan back");
    let until = Instant::now() + LEFT;
    while metrics(&folder, None).contains("undertone_trouble{state=\"task\"} 1") {
        assert!(Instant::now() < until, "{}", server.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(server.lives());
}

/// Opens connections that say nothing to a server with few descriptors, and asks for a board beside them.
fn silent_connections(descriptors: u32, connections: usize, seconds: u64) {
    let folder = service();
    folder.succeed("task activate federated --data service");
    let serve = folder.command("serve --data service --listen 127.0.0.1:0 --insecure");
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"")])
        .arg(serve.get_program())
        .args(serve.get_args())
        .current_dir(folder.path(""));
    let mut server = Server::spawn(&mut command);
    let address = server.url.strip_prefix("http://").expect("an address").to_owned();
    let silent: Vec<TcpStream> = (0..connections)
        .map(|_| TcpStream::connect(&address).expect("a connection"))
        .collect();
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut times = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let (status, text) = get(&server.url, "/v1/p/demo/board", "");
        assert_eq!(status, 200, "{text}\n{}", server.log());
        times.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    times.sort_unstable();
    let slow = times[times.len() * 99 / 100];
    println!(
        "{} boards beside {connections} connections, 99 % within {slow:?}",
        times.len()
    );
    assert!(slow < Duration::from_secs(1), "{slow:?}");
    assert!(server.lives(), "{}", server.log());
    assert_eq!(ready(&folder, None).0, 200);
    assert!(server.log().lines().count() < 100, "{}", server.log());
    drop(silent);
}

#[test]
#[ignore = "slow"]
fn a_server_outlives_more_silent_connections_than_it_has_descriptors() {
    silent_connections(256, 300, 3);
}

/// A service whose model has this many words, and at least 256 bytes for each.
fn service_of_words(words: usize) -> Folder {
    let vocabulary: String = (0..words).map(|word| format!("word{word}\n")).collect();
    let wide = [
        ("embedding = 8", "embedding = 64"),
        ("projection = 8", "projection = 64"),
    ];
    service_with(&wide, &[("federated-words.txt", &vocabulary)])
}

/// Resident memory of a process, in MB.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let digits = line.expect("its memory").trim().trim_end_matches(" kB");
    digits.parse::<u64>().expect("a number") / 1000
}

/// A connection of HTTP/2 with a window of nothing, on which a path is asked for on this many streams. A thread answers pings and settings.
/// The value is `true` once the server has closed it.
fn standing_streams(
    address: &str,
    path: &str,
    streams: u32,
) -> std::sync::Arc<std::sync::atomic::AtomicBool> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    let text = |name: &[u8], value: &str| {
        let mut bytes = name.to_vec();
        bytes.push(u8::try_from(value.len()).expect("a short text"));
        bytes.extend(value.bytes());
        bytes
    };
    let mut stream = TcpStream::connect(address).expect("a connection");
    // An initial window of 0.
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    // GET, http, the path, the authority, and one header with a name of its own.
    let mut head = vec![0x82, 0x86];
    head.extend(text(&[0x04], path));
    head.extend(text(&[0x01], address));
    head.extend(text(&[0x00], "undertone-protocol"));
    head.extend(text(&[], "1"));
    for number in 0..streams {
        sent.extend(frame(1, 5, 2 * number + 1, &head));
    }
    stream.write_all(&sent).expect("requests");
    let closed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = closed.clone();
    std::thread::spawn(move || {
        let mut header = [0; 9];
        while stream.read_exact(&mut header).is_ok() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            if stream.read_exact(&mut payload).is_err() {
                break;
            }
            // Settings and pings want an answer.
            let answer = match (header[3], header[4] & 1) {
                (4, 0) => Some(frame(4, 1, 0, &[])),
                (6, 0) => Some(frame(6, 1, 0, &payload)),
                _ => None,
            };
            if answer.is_some_and(|answer| stream.write_all(&answer).is_err()) {
                break;
            }
        }
        told.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    closed
}

/// The digest of the first model of the only task.
fn model(folder: &Folder) -> String {
    let file = rusqlite::Connection::open(folder.path("service/service.sqlite")).expect("the database");
    file.query_row("SELECT lower(hex(head_model)) FROM tasks", [], |row| row.get(0))
        .expect("a model")
}

/// Asks for a model on connections that read nothing, and on standing streams. Returns the growth of the server's memory in MB, and
/// whether the standing connection was closed.
fn slow_downloads(words: usize, connections: usize, streams: u32, seconds: u64) -> (u64, bool) {
    let folder = service_of_words(words);
    folder.succeed("task activate federated --data service");
    let mut server = Server::start(&folder, "--insecure");
    let address = server.url.strip_prefix("http://").expect("an address").to_owned();
    let path = format!("/v1/blobs/{}", model(&folder));
    let whole = get(&server.url, &path, "range: bytes=1-\r\n");
    assert_eq!(whole.0, 206, "{}", server.log());
    // The memory of the task itself: its model, its noise and an attempt.
    let opened = "undertone_tx_seconds_count{name=\"open_attempt\"} 1";
    while !metrics(&folder, None).contains(opened) {
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    let before = resident(&server);
    let held: Vec<TcpStream> = (0..connections)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("a connection");
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nhost: {address}\r\nundertone-protocol: 1\r\n\r\n"
            )
            .expect("a request");
            stream
        })
        .collect();
    let closed = standing_streams(&address, &path, streams);
    let (mut most, mut slowest) = (before, Duration::ZERO);
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        most = most.max(resident(&server));
        let begun = Instant::now();
        assert_eq!(
            get(&server.url, "/v1/p/demo/board", "").0,
            200,
            "{}",
            server.log()
        );
        slowest = slowest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    println!(
        "{connections} slow downloads, {streams} streams: {before} MB before, {most} MB at most, boards within {slowest:?}"
    );
    assert!(server.lives(), "{}", server.log());
    drop(held);
    (most - before, closed.load(std::sync::atomic::Ordering::SeqCst))
}

#[test]
#[ignore = "slow"]
fn downloads_that_nobody_reads_take_little_memory() {
    // Whole copies would be 490 MB and more.
    let (growth, _) = slow_downloads(30_000, 40, 64, 3);
    assert!(growth < 60, "{growth} MB");
}

/// Servers over a database, which is stopped for some seconds, some times. Returns the longest times until all were ready again.
fn outages(processes: usize, times: usize, seconds: u64) -> Option<Vec<Duration>> {
    let mut database = postgres::Server::start()?;
    let folder = service_over(&database.database());
    folder.succeed("task activate federated --data service");
    let names: Vec<String> = (0..processes).map(|number| format!("n{number}")).collect();
    let mut servers: Vec<Server> = names
        .iter()
        .map(|name| {
            Server::start(
                &folder,
                &format!("--insecure --process {name} --peers 127.0.0.1:0"),
            )
        })
        .collect();
    let mut back = Vec::new();
    for _ in 0..times {
        database.stop("fast");
        for (server, name) in servers.iter_mut().zip(&names) {
            wait_for(
                server,
                &folder,
                Some(name),
                503,
                "store: the store does not answer",
            );
            // The figures are there without the store.
            let text = metrics(&folder, Some(name));
            assert!(text.contains("undertone_trouble{state=\"store\"} 1"), "{text}");
        }
        std::thread::sleep(Duration::from_secs(seconds));
        database.again();
        let begun = Instant::now();
        for (server, name) in servers.iter_mut().zip(&names) {
            wait_for(server, &folder, Some(name), 200, "ok");
        }
        back.push(begun.elapsed());
    }
    for server in &servers {
        let lines = server.log().lines().count();
        assert!(lines < 20 + 20 * times, "{lines} lines: {}", server.log());
    }
    Some(back)
}

/// A service with the example task whose store is a database of Postgres.
fn service_over(url: &str) -> Folder {
    let folder = Folder::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["federated.toml", "federated-words.txt"] {
        folder.write(name, std::fs::read(examples.join(name)).expect("an example"));
    }
    // A server that ends at once makes the folder remember the database.
    let mut server = Server::start(&folder, &format!("--insecure --store {url}"));
    server.signal("-TERM");
    server.ended(PATIENCE);
    folder.succeed("task create federated.toml --data service --population demo");
    folder
}

#[test]
#[ignore = "slow"]
fn a_server_outlives_an_outage_of_its_store_and_says_so() {
    let Some(back) = outages(1, 1, 1) else { return };
    assert!(
        back.iter().all(|time| *time < Duration::from_secs(15)),
        "{back:?}"
    );
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "seven minutes"]
    fn three_servers_outlive_twenty_outages_of_ten_seconds() {
        let back = outages(3, 20, 10).expect("a server of Postgres");
        println!("ready again after {back:?}");
        assert!(
            back.iter().all(|time| *time < Duration::from_secs(15)),
            "{back:?}"
        );
    }

    #[test]
    #[ignore = "four minutes"]
    fn three_hundred_slow_downloads_of_a_large_model_take_less_than_300_mb_and_standing_streams_end() {
        let (growth, closed) = slow_downloads(60_000, 300, 64, 200);
        assert!(growth < 300, "{growth} MB");
        assert!(closed, "a connection that takes nothing goes on");
    }

    /// The limit of this process must allow the connections: `ulimit -n 4096` before.
    #[test]
    #[ignore = "one minute"]
    fn a_server_with_1024_descriptors_outlives_1100_silent_connections() {
        silent_connections(1024, 1100, 45);
    }
}

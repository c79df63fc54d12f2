use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::sync::oneshot;
use tower::ServiceExt;
use undertone_protocol::{crc32c, read as read_message};

use super::times::Times;
use super::*;
use crate::capacity::Capacity;
use crate::identity::hex;
use crate::test_world::{Kind, World};

/// A listener of a service, which ends with this.
struct Server {
    world: World,
    address: SocketAddr,
    in_flight: InFlight,
    /// Devices that have joined.
    joined: std::cell::Cell<u32>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(in_flight: InFlight, times: Times) -> Self {
        Self::start_with(in_flight, times, &Capacity::default())
    }

    fn start_with(in_flight: InFlight, times: Times, capacity: &Capacity) -> Self {
        let world = World::of_capacity(capacity);
        let service = world.service.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let held = in_flight.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
                listener.times = times;
                tell.send(listener.address().unwrap()).unwrap();
                let listener = listener.within(service.connections().clone());
                let stopped = async {
                    let _ = stopped.await;
                };
                listener
                    .serve(routes_within(service, Versions::CURRENT, &held), stopped)
                    .await;
            });
        });
        Self {
            world,
            joined: std::cell::Cell::new(0),
            address: told.recv().unwrap(),
            in_flight,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // A test that hangs fails.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends the head of an upload of a new session of this length, and these bytes of it.
    fn upload(&self, length: usize, bytes: &[u8]) -> TcpStream {
        let device = self.joined.get();
        self.joined.set(device + 1);
        let (token, claims, _) = self.world.joined(device);
        self.send(&hex(&claims.session), &hex(&token), length, bytes)
    }

    /// Sends the head of an upload of this session, and these bytes of it.
    fn send(&self, session: &str, token: &str, length: usize, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let head = format!(
            "PUT /v1/agg/0/{session}/upload?offset=0 HTTP/1.1\r\nhost: here\r\nundertone-protocol: 1\r\nauthorization: Bearer {token}\r\n\
             content-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The status, the header of the time to wait, and the refusal.
fn answer(stream: TcpStream) -> (u16, Option<u64>, Problem) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let (mut wait, mut length) = (None, 0);
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name {
            "retry-after" => wait = Some(value.parse().unwrap()),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (
        status,
        wait,
        read_message("the refusal", &body, limits::MAX_MESSAGE).unwrap_or_default(),
    )
}

fn times(head: u64, idle: u64) -> Times {
    Times {
        head: Duration::from_millis(head),
        idle: Duration::from_millis(idle),
        ..Times::default()
    }
}

#[test]
fn a_body_that_comes_too_slowly_is_refused_as_busy_and_its_memory_is_free_again() {
    let in_flight = InFlight::new(80 << 10).with_patience(Duration::from_millis(200));
    let server = Server::start(in_flight, Times::default());
    let (status, wait, problem) = answer(server.upload(50_000, &[1; 100]));
    assert_eq!((status, problem.code()), (503, Code::Busy));
    let window = problem.retry.unwrap();
    assert!(window.min_ms <= window.max_ms);
    assert_eq!(wait, Some(window.min_ms.div_ceil(1000)));
    assert_eq!(server.in_flight.taken(), 0);
    // One that is whole reaches its handler, which misses the checksum.
    let (status, _, problem) = answer(server.upload(50_000, &[1; 50_000]));
    assert_eq!((status, problem.code()), (400, Code::Malformed));
}

#[test]
fn a_body_of_a_session_that_nobody_has_is_refused_before_memory_is_taken() {
    let server = Server::start(InFlight::new(10 << 10), Times::default());
    let (token, claims, _) = server.world.joined(7);
    let (token, session) = (hex(&token), hex(&claims.session));
    // There is no room for the body, so it was not received: the refusal is that of the token.
    for (session, token) in [("00", &token), (session.as_str(), &"00".repeat(token.len() / 2))] {
        let (status, _, problem) = answer(server.send(session, token, 80_000, &[1; 80_000]));
        assert_eq!((status, problem.code()), (410, Code::Gone));
    }
    assert_eq!(server.in_flight.taken(), 0);
    let (status, ..) = answer(server.send(&session, &token, 80_000, &[1; 80_000]));
    assert_eq!(status, 503);
}

/// Sends a body that is no enrolment, and gives the status of the answer.
fn enrol(server: &Server) -> u16 {
    let mut stream = server.connect();
    let head = "POST /v1/p/people/enrol HTTP/1.1\r\nhost: here\r\nundertone-protocol: 1\r\ncontent-length: 600\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[255; 600]).unwrap();
    answer(stream).0
}

#[test]
fn an_enrolment_finds_room_while_sessions_hold_all_of_theirs() {
    let server = Server::start(InFlight::new(100 << 10), Times::default());
    let held = server.upload(81_920, &[1; 81_919]);
    while server.in_flight.free() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(enrol(&server), 400);
    let (status, ..) = answer(server.upload(10_000, &[1; 10_000]));
    assert_eq!(status, 503);
    drop(held);
}

#[test]
#[ignore = "slow"]
fn a_body_that_comes_quickly_takes_the_room_of_the_slowest() {
    let server = Server::start(InFlight::new(100 << 10), Times::default());
    let slow = server.upload(80_000, &[1; 70_000]);
    while server.in_flight.free() > 40 << 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    // A body that has just begun keeps its room.
    let (status, ..) = answer(server.upload(70_000, &[1; 70_000]));
    assert_eq!(status, 503);
    std::thread::sleep(Duration::from_secs(4));
    let (status, _, problem) = answer(server.upload(70_000, &[1; 70_000]));
    assert_eq!((status, problem.code()), (400, Code::Malformed));
    let (status, wait, problem) = answer(slow);
    assert_eq!((status, problem.code()), (503, Code::Busy));
    assert!(wait.is_some());
}

#[test]
fn bodies_beyond_the_memory_for_them_are_refused_and_those_that_are_there_go_on() {
    let server = Server::start(InFlight::new(125 << 10), Times::default());
    let mut first = server.upload(80_000, &[1; 79_999]);
    while server.in_flight.free() > 25 << 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (status, wait, problem) = answer(server.upload(80_000, &[1; 80_000]));
    assert_eq!((status, problem.code()), (503, Code::Busy));
    assert!(wait.is_some());
    // A client that only announces bytes takes no memory of others.
    let announced = server.upload(1 << 20, &[]);
    let (status, ..) = answer(server.upload(10_000, &[1; 10_000]));
    assert_eq!(status, 400);
    drop(announced);
    first.write_all(&[1]).unwrap();
    let (status, _, problem) = answer(first);
    assert_eq!((status, problem.code()), (400, Code::Malformed));
    assert_eq!(server.in_flight.taken(), 0);
}

#[test]
fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let server = Server::start(InFlight::new(100 << 10), Times::default());
    let (status, ..) = answer(server.upload(limits::MAX_CHUNK + 1, &[]));
    assert_eq!(status, 413);
}

#[test]
fn a_connection_without_a_request_is_closed() {
    // Nothing at all, and half a head.
    for (sent, times) in [
        (&b""[..], times(60_000, 200)),
        (b"GET /healthz HT", times(200, 60_000)),
    ] {
        let server = Server::start(InFlight::new(1 << 20), times);
        let mut stream = server.connect();
        stream.write_all(sent).unwrap();
        let mut rest = Vec::new();
        // The end of the stream, whether in order or by a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
        let mut stream = server.connect();
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(
            reply.starts_with("HTTP/1.1 200") && reply.ends_with("ok\n"),
            "{reply}"
        );
    }
}

/// Asks for a path on a connection of its own, and gives the whole answer.
fn get(server: &Server, path: &str, more: &str) -> Vec<u8> {
    let mut stream = server.connect();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: here\r\nundertone-protocol: 1\r\nconnection: close\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    reply
}

/// The status and the body of an answer.
fn split(reply: &[u8]) -> (u16, &[u8]) {
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let status = std::str::from_utf8(&reply[9..12]).unwrap().parse().unwrap();
    (status, &reply[end + 4..])
}

#[test]
fn silent_connections_make_room_for_one_that_asks() {
    let capacity = Capacity {
        connections: 8,
        ..Capacity::default()
    };
    let server = Server::start_with(InFlight::new(1 << 20), Times::default(), &capacity);
    let silent: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        let reply = get(&server, "/healthz", "");
        assert_eq!(split(&reply), (200, &b"ok\n"[..]));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    assert!(server.world.service.connections().count() <= 8);
    drop(silent);
}

#[test]
fn a_connection_that_was_served_and_asks_no_more_makes_room_after_those_that_never_asked() {
    let capacity = Capacity {
        connections: 3,
        ..Capacity::default()
    };
    let server = Server::start_with(InFlight::new(1 << 20), Times::default(), &capacity);
    let mut served = server.connect();
    let ask = |stream: &mut TcpStream| {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n")
            .unwrap();
        let mut reply = [0; 12];
        stream
            .read_exact(&mut reply)
            .is_ok_and(|()| &reply == b"HTTP/1.1 200")
    };
    assert!(ask(&mut served));
    let mut rest = [0; 512];
    let _ = served.read(&mut rest).unwrap();
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(server.connect());
        let reply = get(&server, "/healthz", "");
        assert_eq!(split(&reply).0, 200);
    }
    assert!(
        ask(&mut served),
        "the connection of a client that was served has ended"
    );
}

/// The digest of the model of the task of a server, and the model.
fn model(server: &Server) -> (Digest32, Vec<u8>) {
    let shared = server.world.service.shared();
    let digest = shared.store.tasks().unwrap()[0].head_model;
    (
        digest,
        crate::storage::blobs::read(shared.blobs.as_ref(), &digest).unwrap(),
    )
}

#[test]
fn downloads_beyond_their_places_are_refused_with_a_time_to_come_again() {
    let capacity = Capacity {
        downloads: 1,
        ..Capacity::default()
    };
    let server = Server::start_with(InFlight::new(1 << 20), Times::default(), &capacity);
    let (digest, bytes) = model(&server);
    let path = format!("/v1/blobs/{}", hex(&digest));
    let reply = get(&server, &path, "");
    assert_eq!(split(&reply), (200, &bytes[..]));
    let place = server.world.service.downloads().place().unwrap();
    let mut stream = server.connect();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: here\r\nundertone-protocol: 1\r\n\r\n").as_bytes())
        .unwrap();
    let (status, wait, problem) = answer(stream);
    assert_eq!((status, problem.code()), (503, Code::Busy));
    assert!(wait.is_some());
    drop(place);
    assert_eq!(split(&get(&server, &path, "")).0, 200);
    assert_eq!(server.world.service.downloads().open(), 0);
}

#[test]
fn a_range_of_a_download_is_the_rest_of_the_blob() {
    let server = Server::start(InFlight::new(1 << 20), Times::default());
    let (digest, bytes) = model(&server);
    let path = format!("/v1/blobs/{}", hex(&digest));
    for from in [0, 1, bytes.len() - 1] {
        let reply = get(&server, &path, &format!("range: bytes={from}-\r\n"));
        assert_eq!(split(&reply), (206, &bytes[from..]));
    }
    let beyond = get(&server, &path, &format!("range: bytes={}-\r\n", bytes.len()));
    assert_eq!(split(&beyond).0, 416);
    let absent = get(&server, &format!("/v1/blobs/{}", hex(&[3; 32])), "");
    assert_eq!(split(&absent).0, 404);
}

#[test]
fn requests_of_one_address_beyond_their_rate_get_a_time_to_come_again() {
    let capacity = Capacity {
        rates: crate::capacity::RateLimits {
            requests_per_address: Some(0.01),
            ..crate::capacity::RateLimits::default()
        },
        ..Capacity::default()
    };
    let server = Server::start_with(InFlight::new(1 << 20), Times::default(), &capacity);
    let statuses: Vec<u16> = (0..12)
        .map(|_| split(&get(&server, "/v1/p/people/board", "")).0)
        .collect();
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
    let reply = get(&server, "/v1/p/people/board", "");
    let text = String::from_utf8_lossy(&reply).to_lowercase();
    assert!(text.contains("retry-after: "), "{text}");
    // A probe is no request of a device.
    assert_eq!(split(&get(&server, "/healthz", "")).0, 200);
}

#[test]
fn a_body_must_keep_to_the_min_rate_after_its_first_half_minute() {
    let in_flight = InFlight::new(1 << 20);
    let seconds = |received| in_flight.allowed(received).as_secs_f64();
    assert_eq!(seconds(0), 30.0);
    // 128 kbit/s are 480,000 bytes in half a minute.
    assert_eq!(seconds(480_000), 30.0);
    assert_eq!(seconds(960_000), 60.0);
    assert!(seconds(u64::MAX).is_finite());
}

/// A request of a session.
fn request(method: &str, token: &[u8], claims: &Claims, rest: &str, body: Vec<u8>) -> axum::extract::Request {
    let (name, version) = PROTOCOL_HEADER;
    axum::http::Request::builder()
        .method(method)
        .uri(format!("/v1/agg/0/{}/{rest}", hex(&claims.session)))
        .header(name, version)
        .header(header::AUTHORIZATION, format!("Bearer {}", hex(token)))
        .header(CHECKSUM_HEADER, format!("{:08x}", crc32c(0, &body)))
        .body(Body::from(body))
        .unwrap()
}

#[tokio::test]
async fn a_commit_waits_for_a_worker_and_holds_no_other_request_up() {
    let world = World::new(Kind::Memory, 4);
    let service = world.service.clone();
    let routes = routes(service.clone());
    let (token, claims, length) = world.joined(1);
    let bytes = vec![0; length as usize];
    let send = |method: &str, rest: &str, body: Vec<u8>| {
        let sent = routes
            .clone()
            .oneshot(request(method, &token, &claims, rest, body));
        async move { sent.await.unwrap().status() }
    };
    assert_eq!(
        send("PUT", "upload?offset=0", bytes.clone()).await,
        StatusCode::OK
    );
    let workers = service.workers().available_permits() as u32;
    let all = service.workers().acquire_many(workers).await.unwrap();
    let commit = Commit {
        length,
        crc32c: crc32c(0, &bytes),
        weight: 1.0,
        below: None,
    };
    let mut committing = tokio::spawn(send("POST", "commit", write(&commit)));
    for _ in 0..20 {
        assert_eq!(send("HEAD", "upload", Vec::new()).await, StatusCode::OK);
        let early = tokio::time::timeout(Duration::from_millis(5), &mut committing).await;
        assert!(early.is_err(), "the commit did not wait");
    }
    drop(all);
    assert_eq!(committing.await.unwrap(), StatusCode::OK);
    assert_eq!(service.workers().available_permits() as u32, workers);
}

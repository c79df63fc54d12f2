use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tokio::sync::oneshot;
use tower::ServiceExt;
use undertone_protocol::{crc32c, read as read_message};

use super::listener::Times;
use super::*;
use crate::identity::hex;
use crate::test_world::{Kind, World};

/// A listener of a service, which ends with this.
struct Server {
    address: SocketAddr,
    in_flight: InFlight,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(in_flight: InFlight, times: Times) -> Self {
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
                let World { service, .. } = World::new(Kind::Memory, 4);
                let stopped = async {
                    let _ = stopped.await;
                };
                listener
                    .serve(routes_within(service, Versions::CURRENT, &held), stopped)
                    .await;
            });
        });
        Self {
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

    /// Sends the head of an upload of this length, and these bytes of it.
    fn upload(&self, length: usize, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let head = format!(
            "PUT /v1/agg/0/00/upload?offset=0 HTTP/1.1\r\nhost: here\r\nundertone-protocol: 1\r\ncontent-length: {length}\r\n\r\n"
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
    }
}

#[test]
fn a_body_that_comes_too_slowly_is_refused_as_busy_and_its_memory_is_free_again() {
    let in_flight = InFlight::new(64 << 10).with_patience(Duration::from_millis(200));
    let server = Server::start(in_flight, Times::default());
    let (status, wait, problem) = answer(server.upload(50_000, &[1; 100]));
    assert_eq!((status, problem.code()), (503, Code::Busy));
    let window = problem.retry.unwrap();
    assert!(window.min_ms <= window.max_ms);
    assert_eq!(wait, Some(window.min_ms.div_ceil(1000)));
    assert_eq!(server.in_flight.free(), 64 << 10);
    // One that is whole reaches its handler, which does not know the session.
    let (status, _, problem) = answer(server.upload(50_000, &[1; 50_000]));
    assert_eq!((status, problem.code()), (410, Code::Gone));
}

#[test]
fn bodies_beyond_the_memory_for_them_are_refused_and_those_that_are_there_go_on() {
    let server = Server::start(InFlight::new(100 << 10), Times::default());
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
    assert_eq!(status, 410);
    drop(announced);
    first.write_all(&[1]).unwrap();
    let (status, _, problem) = answer(first);
    assert_eq!((status, problem.code()), (410, Code::Gone));
    assert_eq!(server.in_flight.free(), 100 << 10);
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

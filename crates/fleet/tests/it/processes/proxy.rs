//! The service behind nginx with TLS and HTTP/2: the process of a session is reached by its path, by any front, and directly.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use undertone_device::{HttpTransport, NetworkLost, Reply, Request, Transport};
use undertone_fleet::{Doom, FleetError, Transports};

use super::service::{NAMES, Service};
use super::task::Size;
use crate::server::Server;

/// The variable that makes a missing nginx an error instead of a test that says it was left out.
const REQUIRE: &str = "UNDERTONE_REQUIRE_NGINX";

/// nginx in a folder of its own. It ends with the value.
struct Nginx {
    child: Child,
    folder: tempfile::TempDir,
    /// The port that sends `/v1/agg/NAME/` to that process, and the port that sends everything to any front.
    ports: [u16; 2],
    authority: String,
}

fn is_there() -> bool {
    let there = Command::new("nginx")
        .arg("-v")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !there {
        assert!(
            std::env::var_os(REQUIRE).is_none(),
            "{REQUIRE} is set, and there is no nginx on this machine"
        );
        eprintln!("left out: this machine has no nginx");
    }
    there
}

impl Nginx {
    /// Starts it before processes that listen at these addresses.
    fn start(addresses: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let authority = made.cert.pem();
        fs::write(folder.path().join("cert.pem"), &authority).unwrap();
        fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let held = [free(), free()];
        let ports = [0, 1].map(|at: usize| held[at].local_addr().unwrap().port());
        drop(held);
        fs::write(
            folder.path().join("nginx.conf"),
            settings(folder.path(), addresses, ports),
        )
        .unwrap();
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-e", "error.log"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self {
            child,
            folder,
            ports,
            authority,
        };
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", ports[0])).is_err() {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "nginx does not listen: {}",
                nginx.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        nginx
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("error.log")).unwrap_or_default()
    }

    fn url(&self, port: usize) -> String {
        format!("https://localhost:{}", self.ports[port])
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The settings that the guide for operators asks for.
fn settings(folder: &Path, addresses: &[String], ports: [u16; 2]) -> String {
    let folder = folder.display();
    let fronts: String = addresses
        .iter()
        .map(|address| format!("server {address};\n"))
        .collect();
    let by_path: String = NAMES
        .iter()
        .zip(addresses)
        .map(|(name, address)| format!("location /v1/agg/{name}/ {{ proxy_pass http://{address}; }}\n"))
        .collect();
    let tls = format!("ssl_certificate {folder}/cert.pem;\nssl_certificate_key {folder}/key.pem;");
    // A worker of a master that is root would lose its rights, and with them the temporary folder.
    let user = match Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout == b"0\n")
    {
        true => "user root;",
        false => "",
    };
    format!(
        "daemon off;\nmaster_process off;\n{user}\npid {folder}/pid;\nevents {{ worker_connections 512; }}\nhttp {{\n\
         access_log {folder}/access.log;\nclient_body_temp_path {folder}/body;\nproxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi;\nuwsgi_temp_path {folder}/uwsgi;\nscgi_temp_path {folder}/scgi;\n\
         client_max_body_size 1g;\nproxy_request_buffering off;\nproxy_http_version 1.1;\nproxy_read_timeout 90s;\n\
         upstream fronts {{\n{fronts}}}\n\
         server {{\nlisten 127.0.0.1:{} ssl http2;\n{tls}\n{by_path}location / {{ proxy_pass http://fronts; }}\n}}\n\
         server {{\nlisten 127.0.0.1:{} ssl http2;\n{tls}\nlocation / {{ proxy_pass http://fronts; }}\n}}\n}}\n",
        ports[0], ports[1]
    )
}

/// The connections of workers: each third by path, by any front, and directly.
struct Ways {
    service: Arc<Service>,
    bases: [String; 3],
    authority: String,
    /// Replies that came by each way.
    replies: Arc<[AtomicU64; 3]>,
}

struct Way {
    service: Arc<Service>,
    http: HttpTransport,
    number: usize,
    replies: Arc<[AtomicU64; 3]>,
}

impl Transport for Way {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let reply = self.http.send(request)?;
        self.replies[self.number].fetch_add(1, Ordering::SeqCst);
        self.service.note(request, &reply);
        Ok(reply)
    }
}

impl Transports for Ways {
    fn open(&self, worker: usize) -> Result<Box<dyn Transport>, FleetError> {
        let number = worker % 3;
        let base = &self.bases[number];
        let http = match base.starts_with("https") {
            true => HttpTransport::with_roots(base, &[self.authority.as_bytes()]),
            false => HttpTransport::new(base),
        };
        Ok(Box::new(Way {
            service: self.service.clone(),
            http: http.unwrap(),
            number,
            replies: self.replies.clone(),
        }))
    }
}

#[test]
#[ignore = "slow"]
fn rounds_go_through_nginx_by_path_by_any_front_and_directly() {
    if !is_there() {
        return;
    }
    let Some(server) = Server::start() else { return };
    let size = Size {
        rounds: 3,
        users_per_round: 12,
        min_sep: 2,
        max_part: 4,
        ..Size::default()
    };
    let service = Service::new(&server, size, 29);
    for number in 0..NAMES.len() {
        service.start(number, Doom::None);
    }
    let addresses = service.addresses();
    service.await_all();
    let nginx = Nginx::start(&addresses);
    // Devices speak HTTP/1.1; other clients get HTTP/2.
    let board = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--http2",
            "--output",
            "/dev/null",
            "--cacert",
        ])
        .arg(nginx.folder.path().join("cert.pem"))
        .args([
            "--header",
            "undertone-protocol: 1",
            "--write-out",
            "%{http_version} %{http_code}",
        ])
        .arg(format!("{}/v1/p/people/board", nginx.url(0)))
        .output();
    match board {
        Ok(output) => assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "2 200",
            "{}",
            nginx.log()
        ),
        Err(_) => eprintln!("left out: this machine has no curl to speak HTTP/2"),
    }
    let replies = Arc::new([const { AtomicU64::new(0) }; 3]);
    let ways = Ways {
        service: service.clone(),
        bases: [nginx.url(0), nginx.url(1), format!("http://{}", addresses[1])],
        authority: nginx.authority.clone(),
        replies: replies.clone(),
    };
    service.play_over(60, ways);
    let counts: Vec<u64> = replies.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    println!("replies by path, by any front and directly: {counts:?}");
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    // Sums are spread over all processes, so each was reached for uploads.
    let log = fs::read_to_string(nginx.folder.path().join("access.log")).unwrap();
    for name in NAMES {
        assert!(
            log.contains(&format!("/v1/agg/{name}/")),
            "no session of process {name} went through nginx"
        );
    }
    assert!(log.contains("HTTP/1.1\" 200"), "{log}");
}

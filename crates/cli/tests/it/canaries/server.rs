//! A real server over TLS.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::support::{Folder, json};

/// A server over TLS with the finest log.
pub(super) struct Server {
    pub(super) child: Child,
    pub(super) url: String,
}

impl Server {
    pub(super) fn start(folder: &Folder) -> Self {
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
pub(super) fn admin(folder: &Folder, path: &str) -> String {
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

/// Writes a certificate for the server, which signs itself, with its key. Returns the certificate.
pub(super) fn certificate(folder: &Folder) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    folder.write("cert.pem", made.cert.pem());
    folder.write("key.pem", made.signing_key.serialize_pem());
    made.cert.pem().into_bytes()
}

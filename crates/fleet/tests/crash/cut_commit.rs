//! A connection to Postgres that is cut after COMMIT was sent: the outcome is read back, and no noise is drawn a second time for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use undertone_service::room::Shared;
use undertone_store::{AttemptId, Postgres, Release, Store};

use super::hooks::Hook;
use super::inside::{Inside, hooked};
use super::server;
use super::task::{Size, create_task, temporary};

/// The name of the socket of a server in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// A proxy before a server, which cuts the connection at the next COMMIT once it is asked to.
struct Proxy {
    folder: tempfile::TempDir,
    state: Arc<Cuts>,
}

#[derive(Default)]
struct Cuts {
    armed: AtomicBool,
    made: AtomicU64,
}

impl Proxy {
    fn before(server: PathBuf) -> Self {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        let state = Arc::new(Cuts::default());
        let cuts = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = UnixStream::connect(server.join(SOCKET)).unwrap();
                let cuts = cuts.clone();
                let (answers, back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    // A connection that ends is one that was cut, or that its client has closed.
                    let _ = io::copy(&mut &answers, &mut &back);
                    let _ = back.shutdown(std::net::Shutdown::Both);
                });
                std::thread::spawn(move || {
                    let _ = forward(&client, &server, &cuts);
                    let _ = server.shutdown(std::net::Shutdown::Both);
                    let _ = client.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Self { folder, state }
    }

    /// The connection string of a database, by way of the proxy.
    fn url(&self, url: &str) -> String {
        let (database, _) = url.split_once("?host=").unwrap();
        format!("{database}?host={}", self.folder.path().display())
    }
}

/// Passes the messages of a client on, one by one. An `Err` is the end of the connection.
fn forward(mut client: &UnixStream, mut server: &UnixStream, cuts: &Cuts) -> io::Result<()> {
    // The first message has no kind in front of its length.
    let mut begun = false;
    loop {
        let mut kind = [0; 1];
        let mut message = Vec::new();
        if begun {
            client.read_exact(&mut kind)?;
            message.push(kind[0]);
        }
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        message.extend_from_slice(&length);
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut body)?;
        message.extend_from_slice(&body);
        begun = true;
        let commits = kind == *b"Q" && body == b"COMMIT\0" && cuts.armed.swap(false, Ordering::SeqCst);
        if commits {
            let number = cuts.made.fetch_add(1, Ordering::SeqCst);
            // The client learns nothing more. Every second time the server has not even read the message yet.
            client.shutdown(std::net::Shutdown::Both)?;
            server.write_all(&message)?;
            if number.is_multiple_of(2) {
                std::thread::sleep(std::time::Duration::from_millis(30));
            }
            return Ok(());
        }
        server.write_all(&message)?;
    }
}

/// The releases that were tried. Before the first commit of each the proxy is asked to cut.
struct Tried {
    cuts: Arc<Cuts>,
    state: Mutex<Releases>,
}

#[derive(Default)]
struct Releases {
    /// The key of noise, the line and the files of each attempt.
    tried: BTreeMap<AttemptId, BTreeSet<Vec<u8>>>,
    keys: Vec<String>,
}

impl Hook for Tried {
    fn release(&self, release: &Release) {
        let mut state = self.state.lock().unwrap();
        let key = release.noise_key.clone().unwrap();
        let parts = [
            &release.line[..],
            key.as_bytes(),
            &release.model,
            &release.state.unwrap(),
        ];
        let new = !state.tried.contains_key(&release.attempt);
        state
            .tried
            .entry(release.attempt)
            .or_default()
            .insert(parts.concat());
        if new {
            state.keys.push(key);
            self.cuts.armed.store(true, Ordering::SeqCst);
        }
    }
}

/// A task in which the connection is cut at every COMMIT of a release.
fn every_commit_is_cut(rounds: u64) {
    let Some(server) = server::shared() else { return };
    let url = server.database();
    let folder: &Path = Path::new(url.split_once("?host=").unwrap().1);
    let proxy = Proxy::before(folder.to_owned());
    let size = Size {
        rounds,
        users_per_round: 4,
        min_sep: 1,
        max_part: 4 * rounds,
        ..Size::default()
    };
    let here = temporary();
    let inside = Inside::new(here.path());
    let store: Arc<dyn Store> =
        Arc::new(Postgres::with_clock(&proxy.url(&url), Arc::new(inside.clock.clone())).unwrap());
    let shared = Shared {
        store: store.clone(),
        ..inside.shared("local")
    };
    let task = create_task(&shared, size);
    let tried = Arc::new(Tried {
        cuts: proxy.state.clone(),
        state: Mutex::default(),
    });
    inside.serve(hooked(shared, tried.clone()));
    let fleet = inside.fleet(24, 5);
    fleet.enrol().unwrap();
    let mut ticks = 0u64;
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(
                ticks < 4000 * rounds,
                "the task does not end: {}",
                inside.shown(task)
            );
            // An error is a process that gives up; it leads the task anew.
            let _ = inside.tick(task);
            inside.is_over(task)
        })
        .unwrap();
    inside.put_away();
    let cut = proxy.state.made.load(Ordering::SeqCst);
    let state = tried.state.lock().unwrap();
    println!(
        "{cut} connections were cut after COMMIT, {} noises were drawn for {rounds} rounds",
        state.keys.len()
    );
    for (attempt, releases) in &state.tried {
        assert_eq!(releases.len(), 1, "attempt {attempt} made two releases");
    }
    let distinct: BTreeSet<&String> = state.keys.iter().collect();
    assert_eq!(distinct.len(), state.keys.len(), "a key of noise was used twice");
    assert_eq!(cut, state.tried.len() as u64, "a COMMIT was not cut");
    // Every COMMIT that was sent is found again: no round has a second noise.
    assert_eq!(state.keys.len() as u64, rounds);
    // Each round has one release, one line of the ledger, and the next head.
    assert_eq!(store.task(task).unwrap().head_round, rounds);
    assert_eq!(
        store.ledger(task, 0).unwrap().len() as u64,
        rounds + 1,
        "one line per round, and the end"
    );
}

#[test]
#[ignore = "slow"]
fn a_connection_that_is_cut_after_commit_draws_no_second_noise() {
    every_commit_is_cut(8);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "minutes"]
    fn a_hundred_connections_of_a_hundred_that_are_cut_after_commit_draw_no_second_noise() {
        every_commit_is_cut(100);
    }
}

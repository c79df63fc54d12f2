//! The service as a child process: under a clock that the test moves, or as `undertone serve` runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::routing::get;
use undertone_operate::host::{Host, HostConfig};
use undertone_service::http::{self, Listener};
use undertone_service::identity::Identity;
use undertone_service::server::Service;
use undertone_store::{ManualClock, Store};

use super::task::{data, open, witness};

/// The folder of a child.
pub(crate) const FOLDER: &str = "UNDERTONE_TEST_CRASH_FOLDER";

/// The kind of a child's clock, `virtual` or `real`.
pub(crate) const CLOCK: &str = "UNDERTONE_TEST_CRASH_CLOCK";

/// The file in which the parent names the number of the start, and its time.
pub(crate) const BEGIN: &str = "begin";

/// The file in which a child names its address, by the number of its start.
pub(crate) fn address_file(folder: &Path, start: u64) -> PathBuf {
    folder.join(format!("address-{start}"))
}

/// The file in which a child under the machine's clock shows the round and the state of its task.
pub(crate) const PROGRESS: &str = "progress";

/// Writes a file that another process reads whole or not at all.
pub(crate) fn show(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// Round and state of the one task of a store.
pub(crate) fn progress(store: &dyn Store) -> String {
    let row = store.tasks().unwrap().remove(0);
    format!("{} {:?}", row.head_round, row.state)
}

/// The service; nothing without its folder in the environment.
#[test]
fn a_child_process_runs_the_service() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let begin = fs::read_to_string(folder.join(BEGIN)).unwrap();
    let (start, now) = begin.split_once(' ').unwrap();
    let start: u64 = start.parse().unwrap();
    match std::env::var(CLOCK).unwrap().as_str() {
        "virtual" => under_a_virtual_clock(&folder, start, now.parse().unwrap()),
        _ => under_the_clock_of_the_machine(&folder, start),
    }
}

/// Serves devices, and a route by which the parent moves the clock and lets the service do what is due.
fn under_a_virtual_clock(folder: &Path, start: u64, now: u64) {
    let clock = ManualClock::at(now);
    let shared = open(folder, Arc::new(clock.clone()), "local");
    let service = Arc::new(Service::new(shared, Identity::Certificate).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let ticked = service.clone();
    let tick = move |Query(now): Query<Vec<(String, u64)>>| async move {
        let tick = move || {
            clock.set(now[0].1);
            ticked.tick().unwrap();
            progress(ticked.shared().store.as_ref())
        };
        tokio::task::spawn_blocking(tick).await.unwrap()
    };
    let closed = service.clone();
    let close = move || async move {
        let end = move || -> String {
            closed.close();
            std::process::exit(0)
        };
        tokio::task::spawn_blocking(end).await.unwrap()
    };
    let control = Router::new()
        .route("/test/tick", get(tick))
        .route("/test/close", get(close));
    runtime.block_on(async {
        let listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
        let address = listener.address().unwrap().to_string();
        show(&address_file(folder, start), &address);
        listener
            .serve(http::routes(service).merge(control), std::future::pending())
            .await;
    });
}

/// Serves as the command does, and shows how far the task is.
fn under_the_clock_of_the_machine(folder: &Path, start: u64) -> ! {
    let witness = witness(folder);
    let shared = undertone_service::data_folder::open(&data(folder), Some(&witness)).unwrap();
    let config = HostConfig {
        listen: "127.0.0.1:0".to_owned(),
        tls: None,
        identity: Identity::Certificate,
        threads: 1,
    };
    let host = Host::start(&data(folder), shared, config).unwrap();
    show(&address_file(folder, start), &host.address().to_string());
    let store = host.service().shared().store.clone();
    loop {
        show(&folder.join(PROGRESS), &progress(store.as_ref()));
        std::thread::sleep(Duration::from_millis(10));
    }
}

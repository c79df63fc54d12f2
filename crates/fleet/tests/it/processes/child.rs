//! One process of the service, as `undertone serve --peers` runs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use undertone_operate::host::{Host, HostConfig};
use undertone_service::capacity::Capacity;
use undertone_service::cluster::ClusterConfig;
use undertone_service::data_folder;
use undertone_service::identity::Identity;

use super::task::{data, witness};

/// The folder of a child.
pub(crate) const FOLDER: &str = "UNDERTONE_TEST_PROCESSES_FOLDER";

/// The name of a child.
pub(crate) const NAME: &str = "UNDERTONE_TEST_PROCESSES_NAME";

/// The roles of a child.
pub(crate) const ROLES: &str = "UNDERTONE_TEST_PROCESSES_ROLES";

/// The time of the leases of a child, in milliseconds.
pub(crate) const LEASE_TIME: &str = "UNDERTONE_TEST_PROCESSES_LEASE";

/// The time of a lease where a process is to take over soon, in milliseconds.
pub(crate) const LEASE: u64 = 3000;

/// The file in which a child names its address.
pub(crate) fn address_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("address-{name}"))
}

/// The process; nothing without its folder in the environment.
#[test]
fn a_child_process_serves_in_its_roles() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let name = std::env::var(NAME).unwrap();
    let shared = data_folder::open_beside(&data(&folder), Some(&witness(&folder)), &name).unwrap();
    let config = HostConfig {
        listen: "127.0.0.1:0".to_owned(),
        tls: None,
        identity: Identity::Certificate,
        threads: 1,
    };
    let cluster = ClusterConfig {
        roles: std::env::var(ROLES).unwrap().parse().unwrap(),
        lease: std::env::var(LEASE_TIME).unwrap().parse().unwrap(),
        drain: Duration::from_secs(120),
        ..ClusterConfig::new("127.0.0.1:0")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut ended = signal(SignalKind::terminate()).unwrap();
        let host = tokio::task::spawn_blocking({
            let folder = folder.clone();
            move || {
                let capacity = Capacity::default();
                Host::start_beside(&data(&folder), shared, config, "127.0.0.1:0", capacity, &cluster).unwrap()
            }
        });
        let host = host.await.unwrap();
        let file = address_file(&folder, &name);
        let beside = file.with_extension("new");
        std::fs::write(&beside, host.address().to_string()).unwrap();
        std::fs::rename(&beside, &file).unwrap();
        ended.recv().await;
        tokio::task::spawn_blocking(move || host.stop()).await.unwrap();
    });
    std::process::exit(0);
}

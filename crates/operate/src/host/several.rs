//! The part of a host that knows of other processes: its listener for them, and its signs of life.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use undertone_service::cluster::{self, BEAT, Cluster, ClusterConfig};
use undertone_service::http::Listener;
use undertone_service::server::Service;
use undertone_service::trouble::Seldom;
use undertone_service::{Result, ServiceError};

use super::{TICK, report};

/// Registers the process among the others, once it listens to them.
pub(super) fn join(
    service: &Arc<Service>,
    config: &ClusterConfig,
    runtime: &Runtime,
) -> Result<(Arc<Cluster>, Listener)> {
    let shared = service.shared();
    let (tls, peers) = {
        // Connections are timed by the runtime.
        let _entered = runtime.enter();
        cluster::identity(&shared.keys)?
    };
    let listener = runtime.block_on(Listener::bind(&config.listen, Some(tls)))?;
    let url = match &config.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("https://{}", listener.address()?),
    };
    let cluster = Arc::new(Cluster::join(
        &shared.process,
        url,
        config,
        shared.store.clone(),
        peers,
        runtime.handle().clone(),
    )?);
    service.join(cluster.clone());
    Ok((cluster, listener))
}

/// The thread of signs of life.
#[derive(Debug)]
pub(super) struct Others {
    cluster: Arc<Cluster>,
    drain: Duration,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Others {
    pub(super) fn start(cluster: Arc<Cluster>, drain: Duration, folder: &Path) -> Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("undertone-beat".to_owned())
            .spawn({
                let (cluster, stopping) = (cluster.clone(), stopping.clone());
                move || beat(&cluster, &stopping)
            })
            .map_err(|error| ServiceError::io("start a thread of", folder, error))?;
        Ok(Self {
            cluster,
            drain,
            stopping,
            thread,
        })
    }

    /// Takes no new work, and waits until the open attempts of this process have ended, or their time is over.
    pub(super) fn drain(&self, service: &Service) {
        self.cluster.drain();
        let begun = Instant::now();
        while !service.holds_nothing() && begun.elapsed() < self.drain {
            std::thread::sleep(TICK);
        }
    }

    /// Ends the signs of life, and removes the process from the list.
    pub(super) fn end(self) {
        self.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let _ = self.thread.join();
        self.cluster.retire();
    }
}

/// Gives signs of life until the host stops.
fn beat(cluster: &Cluster, stopping: &AtomicBool) {
    static FAILED: Seldom = Seldom::new();
    while !stopping.load(Ordering::Acquire) {
        if let Err(error) = cluster.beat() {
            report(&FAILED, &error, "the process could not give a sign of life");
        }
        std::thread::park_timeout(BEAT);
    }
}

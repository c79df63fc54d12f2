//! A service that runs in this process: its listeners, and the thread that does what is due.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::admin::check_identity;
use crate::admin::listener::{self, AdminFile};
use crate::capacity::Capacity;
use crate::error::{Result, ServiceError};
use crate::http::{self, Listener};
use crate::identity::Identity;
use crate::room::Shared;
use crate::server::Service;
use crate::task::Task;

/// The time between two looks at what is due.
const TICK: Duration = Duration::from_millis(100);

/// The time between two deletions of rows whose time has passed.
const SWEEP: Duration = Duration::from_secs(600);

/// The time that open requests have to end at a stop. A release that is being made has all the time that it needs before.
const DRAIN: Duration = Duration::from_secs(8);

/// The time for threads that still work on a request at the end.
const ABANDON: Duration = Duration::from_secs(2);

/// The configuration of a host.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// The address of the listener of devices, such as `127.0.0.1:8080`; port 0 takes any free one.
    pub listen: String,
    /// The settings of TLS; plain HTTP without them.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// The evidence for identities.
    pub identity: Identity,
    /// Number of threads of the listeners; 0 for one per core.
    pub threads: usize,
}

/// A running service. Dropping it stops it, as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct Host {
    service: Arc<Service>,
    runtime: Option<Runtime>,
    ticker: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    closed: watch::Sender<bool>,
    serving: Vec<tokio::task::JoinHandle<()>>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Host {
    /// Starts a service over an open data folder: the listener of devices, that of operators, and the thread of its tasks.
    ///
    /// # Errors
    /// [`ServiceError::Io`] naming an address that cannot be bound; [`ServiceError::Value`] for a task that has begun and needs more
    /// evidence than `identity`.
    pub fn start(folder: &Path, shared: Shared, config: HostConfig) -> Result<Self> {
        Self::start_with(folder, shared, config, "127.0.0.1:0", Capacity::default())
    }

    /// Starts a service with the listener of operators at the address `admin`, which takes this share of its machine.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_with(
        folder: &Path,
        shared: Shared,
        config: HostConfig,
        admin: &str,
        mut capacity: Capacity,
    ) -> Result<Self> {
        for row in shared.store.tasks()? {
            use undertone_protocol::TaskState::{Active, Paused};
            if matches!(row.state, Active | Paused) {
                let task = Task::load(&row, shared.blobs.as_ref(), &shared.keys)?;
                check_identity(&task, config.identity)?;
            }
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        if config.threads > 0 {
            builder.worker_threads(config.threads);
        }
        let runtime = builder
            .enable_all()
            .build()
            .map_err(|error| ServiceError::io("start the threads of", folder, error))?;
        let devices = runtime.block_on(Listener::bind(&config.listen, config.tls))?;
        let operators = runtime.block_on(Listener::bind(admin, None))?;
        let address = devices.address()?;
        let admin = AdminFile::fresh(operators.address()?)?;
        capacity.spool_folder.get_or_insert_with(|| folder.to_owned());
        let service = Arc::new(Service::with_capacity(shared, config.identity, &capacity)?);
        let (closed, _) = watch::channel(false);
        let ended = |mut receiver: watch::Receiver<bool>| async move {
            // The sender lives as long as the host.
            let _ = receiver.wait_for(|closed| *closed).await;
        };
        let serving = vec![
            runtime.spawn(devices.serve(http::routes(service.clone()), ended(closed.subscribe()))),
            runtime.spawn(operators.serve(
                listener::routes(service.clone(), folder.to_owned(), &admin),
                ended(closed.subscribe()),
            )),
        ];
        let stopping = Arc::new(AtomicBool::new(false));
        let ticker = std::thread::Builder::new()
            .name("undertone-tasks".to_owned())
            .spawn({
                let (service, stopping) = (service.clone(), stopping.clone());
                move || tick(&service, &stopping)
            })
            .map_err(|error| ServiceError::io("start a thread of", folder, error))?;
        let host = Self {
            service,
            runtime: Some(runtime),
            ticker: Some(ticker),
            stopping,
            closed,
            serving,
            address,
            folder: folder.to_owned(),
        };
        admin.write(folder)?;
        Ok(host)
    }

    /// The address of the listener of devices, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Stops the service: finishes a release that is being made, assigns nobody any more, abandons open attempts, and gives open
    /// requests some seconds to end.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        self.stopping.store(true, Ordering::Release);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            // A tick that panicked has left its attempt to the next start.
            let _ = ticker.join();
        }
        self.service.close();
        self.closed.send_replace(true);
        let serving = std::mem::take(&mut self.serving);
        runtime.block_on(async {
            let all = async {
                for listener in serving {
                    let _ = listener.await;
                }
            };
            let _ = tokio::time::timeout(DRAIN, all).await;
        });
        runtime.shutdown_timeout(ABANDON);
        // Without the file operators work on the folder itself.
        AdminFile::remove(&self.folder);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}

/// Does what is due until the host stops.
fn tick(service: &Service, stopping: &AtomicBool) {
    let mut swept = Instant::now();
    while !stopping.load(Ordering::Acquire) {
        if let Err(error) = service.tick() {
            tracing::error!(%error, "the tasks could not go on");
        }
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            if let Err(error) = service.shared().store.sweep() {
                tracing::error!(%error, "old rows could not be deleted");
            }
        }
        std::thread::park_timeout(TICK);
    }
}

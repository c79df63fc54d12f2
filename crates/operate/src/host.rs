//! A service that runs in this process: its listeners, and the threads that do what is due.

mod several;
mod watch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch as channel;
use undertone_service::capacity::Capacity;
use undertone_service::cluster::ClusterConfig;
use undertone_service::http::{self, Connections, Listener};
use undertone_service::identity::Identity;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::Task;
use undertone_service::trouble::Seldom;
use undertone_service::{Result, ServiceError};
use undertone_store::StoreError;

use crate::admin::listener::{self, AdminFile};
use crate::admin::{Doors, Guarantees, Reader, check_identity};

/// The time between two looks at what is due.
const TICK: Duration = Duration::from_millis(100);

/// The time between two deletions of rows whose time has passed.
const SWEEP: Duration = Duration::from_secs(600);

/// The time that open requests have to end at a stop. A release that is being made has all the time that it needs before.
const DRAIN: Duration = Duration::from_secs(8);

/// The time for threads that still work on a request at the end.
const ABANDON: Duration = Duration::from_secs(2);

/// Connections of operators that are open at one time, and of probes.
const OPERATORS: usize = 64;

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
    closed: channel::Sender<bool>,
    serving: Vec<tokio::task::JoinHandle<()>>,
    address: SocketAddr,
    /// The address of the listener of operators, such as `http://127.0.0.1:4000`.
    dashboard: String,
    doors: Arc<Doors>,
    figures: Reader,
    /// The folder of the file that tells operators where their listener is.
    folder: PathBuf,
    /// The thread of signs of life, and the time for open attempts at a stop, where there are other processes.
    others: Option<several::Others>,
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
        capacity: Capacity,
    ) -> Result<Self> {
        Self::start_as(folder, shared, config, admin, capacity, None)
    }

    /// Starts one of several processes of a service. `shared` comes from
    /// [`data_folder::open_beside`](undertone_service::data_folder::open_beside). Its listener of operators is named in the folder
    /// `processes/NAME` of the data folder.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start); [`ServiceError::Value`] for a name that cannot stand in a path.
    pub fn start_beside(
        folder: &Path,
        shared: Shared,
        config: HostConfig,
        admin: &str,
        capacity: Capacity,
        cluster: &ClusterConfig,
    ) -> Result<Self> {
        Self::start_as(folder, shared, config, admin, capacity, Some(cluster))
    }

    fn start_as(
        folder: &Path,
        shared: Shared,
        config: HostConfig,
        admin: &str,
        mut capacity: Capacity,
        cluster: Option<&ClusterConfig>,
    ) -> Result<Self> {
        for row in shared.store.tasks()? {
            use undertone_protocol::TaskState::{Active, Paused};
            if !matches!(row.state, Active | Paused) {
                continue;
            }
            match Task::load(&row, shared.blobs.as_ref(), &shared.keys) {
                Ok(task) => check_identity(&task, config.identity)?,
                // The task is not led, which its state says; the others start.
                Err(error) => tracing::warn!(task = %row.task.id, %error, "a task cannot be read"),
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
        let is_front = cluster.is_none_or(|cluster| cluster.roles.front);
        let devices = match is_front {
            true => Some(runtime.block_on(Listener::bind(&config.listen, config.tls))?),
            false => None,
        };
        let operators = runtime.block_on(Listener::bind(admin, None))?;
        let operators = operators.within(Arc::new(Connections::new(OPERATORS, None)));
        let admin = AdminFile::fresh(operators.address()?)?;
        capacity.spool_folder.get_or_insert_with(|| folder.to_owned());
        let service = Arc::new(Service::with_capacity(shared, config.identity, &capacity)?);
        service.forget_ended()?;
        // Rows expire also while no server runs. A full disk keeps no server from starting; a later sweep does it then.
        if let Err(error) = service.shared().store.sweep() {
            tracing::warn!(%error, "rows whose time has passed could not be deleted yet");
        }
        let mut others = None;
        let joined = match cluster {
            None => None,
            Some(cluster) => {
                let (joined, listener) = several::join(&service, cluster, &runtime)?;
                others = Some(several::Others::start(joined.clone(), cluster.drain, folder)?);
                Some((joined, listener))
            }
        };
        let address = match (&devices, &joined) {
            (Some(devices), _) => devices.address()?,
            (None, Some((_, listener))) => listener.address()?,
            (None, None) => operators.address()?,
        };
        let (closed, _) = channel::channel(false);
        let ended = |mut receiver: channel::Receiver<bool>| async move {
            // The sender lives as long as the host.
            let _ = receiver.wait_for(|closed| *closed).await;
        };
        let doors = Arc::new(Doors::default());
        let guarantees = Arc::new(Guarantees::default());
        let figures = Reader::new(service.clone(), guarantees.clone(), folder);
        let mut serving = vec![runtime.spawn(operators.serve(
            listener::routes(
                service.clone(),
                folder.to_owned(),
                &admin,
                doors.clone(),
                guarantees,
            ),
            ended(closed.subscribe()),
        ))];
        let cluster = joined.as_ref().map(|(cluster, _)| cluster.clone());
        if let Some(devices) = devices {
            let routes = match &cluster {
                None => http::routes(service.clone()),
                Some(cluster) => http::front_routes(service.clone(), cluster.clone()),
            };
            let devices = devices.within(service.connections().clone());
            serving.push(runtime.spawn(devices.serve(routes, ended(closed.subscribe()))));
        }
        if let Some((cluster, listener)) = joined {
            let routes = http::peer_routes(service.clone(), cluster);
            serving.push(runtime.spawn(listener.serve(routes, ended(closed.subscribe()))));
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let ticker = std::thread::Builder::new()
            .name("undertone-tasks".to_owned())
            .spawn({
                let (service, stopping) = (service.clone(), stopping.clone());
                let mut watch = watch::Watch::new(folder, capacity.disk_floor);
                move || tick(&service, &stopping, &mut watch)
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
            dashboard: admin.address.clone(),
            doors,
            figures,
            folder: match &cluster {
                None => folder.to_owned(),
                Some(cluster) => AdminFile::folder_of_process(folder, cluster.name())?,
            },
            others,
        };
        admin.write(&host.folder)?;
        Ok(host)
    }

    /// The address of the listener of devices, with the port that was taken. A process that is no front names that of the other
    /// processes.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the dashboard, such as `http://127.0.0.1:4000`.
    #[must_use]
    pub fn dashboard(&self) -> &str {
        &self.dashboard
    }

    /// Answers probes and scrapers at this address from now on, and returns it with the port that was taken. It may be reached from
    /// elsewhere: it shows figures, and takes no operation.
    ///
    /// # Errors
    /// [`ServiceError::Io`] naming an address that cannot be bound.
    pub fn answer_probes(&mut self, address: &str) -> Result<SocketAddr> {
        // The runtime is there until the end.
        let Some(runtime) = &self.runtime else {
            return Ok(self.address);
        };
        let listener = runtime.block_on(Listener::bind(address, None))?;
        let listener = listener.within(Arc::new(Connections::new(OPERATORS, None)));
        let address = listener.address()?;
        let mut closed = self.closed.subscribe();
        let ended = async move {
            let _ = closed.wait_for(|closed| *closed).await;
        };
        let routes = listener::probe_routes(self.service.clone(), self.figures.clone());
        self.serving.push(runtime.spawn(listener.serve(routes, ended)));
        Ok(address)
    }

    /// A link to the dashboard that opens it once, within ten minutes.
    ///
    /// PRIVACY: the link is the right of an operator until it is used. Show it to a person, and write it to no log.
    ///
    /// # Errors
    /// No entropy.
    pub fn dashboard_link(&self) -> Result<String> {
        Ok(format!("{}/#code={}", self.dashboard, *self.doors.link()?))
    }

    /// A reader of the figures that `/metrics` shows.
    #[must_use]
    pub fn figures(&self) -> Reader {
        self.figures.clone()
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Stops the service: finishes a release that is being made, assigns nobody any more, abandons open attempts, and gives open
    /// requests some seconds to end. One of several processes first gives its open attempts the time of
    /// [`ClusterConfig::drain`] to end by themselves, and other processes lead its tasks meanwhile.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        if let Some(others) = &self.others {
            others.drain(&self.service);
        }
        self.stopping.store(true, Ordering::Release);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            // A tick that panicked has left its attempt to the next start.
            let _ = ticker.join();
        }
        self.service.close();
        if let Some(others) = self.others.take() {
            others.end();
        }
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
fn tick(service: &Service, stopping: &AtomicBool, watch: &mut watch::Watch) {
    static FAILED: Seldom = Seldom::new();
    let mut swept = Instant::now();
    while !stopping.load(Ordering::Acquire) {
        watch.look(service);
        if let Err(error) = service.tick() {
            report(&FAILED, &error, "the tasks could not go on");
        }
        if swept.elapsed() >= SWEEP {
            swept = Instant::now();
            if let Err(error) = service.forget_ended() {
                tracing::error!(%error, "keys of pseudonyms could not be destroyed");
            }
            if let Err(error) = service.shared().store.sweep() {
                tracing::error!(%error, "old rows could not be deleted");
            }
        }
        std::thread::park_timeout(TICK);
    }
}

/// Logs a failure of a thread that goes on, once a minute. A store that does not answer has been logged as a trouble.
fn report(seldom: &Seldom, error: &ServiceError, what: &'static str) {
    if matches!(error, ServiceError::Store(StoreError::Unavailable { .. })) {
        return;
    }
    if let Some(left_out) = seldom.speaks() {
        tracing::error!(%error, left_out, "{what}");
    }
}

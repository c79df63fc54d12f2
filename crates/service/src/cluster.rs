//! Several processes of one service over one Postgres server.
//!
//! Each process registers in the store and gives signs of life. One that has the role `leader` leases tasks, and everything about an
//! attempt lives in its memory. One that has the role `front` answers devices: what follows from the store it answers itself, and
//! what needs the memory of another process it hands on, over mutual TLS. When a process dies, the store ends its leases, another
//! process takes its tasks, and attempts that were open count their participants.

mod credentials;
mod directory;
mod peers;
mod roles;
pub(crate) mod shard;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use undertone_store::{Millis, NewProcess, Store, TaskId, TaskRow};

use crate::error::{Result, ServiceError};
use crate::keys::Keys;
use directory::Directory;
pub(crate) use directory::Peer;
pub use peers::Peers;
pub(crate) use peers::Silence;
pub use roles::Roles;

/// The time of a lease, in milliseconds.
pub(crate) const LEASE: Millis = 30_000;

/// The time between two signs of life.
pub const BEAT: Duration = Duration::from_secs(1);

/// A process that was not found is looked for in the store again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The answer to where another process is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The process, with its address.
    Peer(Peer),
    /// The store was asked and lists no such process: it has ended.
    Nobody,
    /// The store did not answer, or was asked a moment ago. The process may have started since.
    Unsure,
}

/// The place of a process in a service of several.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The address of the listener of the other processes, such as `10.0.0.5:8450`; port 0 takes any free one.
    pub listen: String,
    /// The address at which they reach it, such as `https://node-1.internal:8450`; that of the listener where there is none.
    pub url: Option<String>,
    /// The roles that this process takes work for.
    pub roles: Roles,
    /// The time of a lease of a task, in milliseconds. It is renewed after a third of it.
    pub lease: Millis,
    /// The time that open attempts of this process have to end after a stop was asked for.
    pub drain: Duration,
}

impl ClusterConfig {
    /// A process with every role that listens to the others at this address. Leases take 30 seconds, and a stop waits up to ten
    /// minutes for open attempts.
    #[must_use]
    pub fn new(listen: impl Into<String>) -> Self {
        Self {
            listen: listen.into(),
            url: None,
            roles: Roles::ALL,
            lease: LEASE,
            drain: Duration::from_secs(600),
        }
    }
}

/// This process among the others.
pub struct Cluster {
    name: String,
    epoch: u64,
    roles: Roles,
    lease: Millis,
    /// `true` once the process takes no new work.
    draining: AtomicBool,
    /// `true` once a later process has the name.
    replaced: AtomicBool,
    store: Arc<dyn Store>,
    directory: Mutex<Directory>,
    looked: Mutex<Instant>,
    pub(crate) peers: Peers,
    /// The threads of the requests to other processes.
    runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Checks the name of a process: it stands in paths.
///
/// # Errors
/// [`ServiceError::Value`].
pub(crate) fn check_name(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    // The path of sessions of a process without others.
    let free = name != "0";
    if (1..=63).contains(&name.len()) && name.bytes().all(allowed) && free {
        return Ok(());
    }
    Err(ServiceError::Value {
        key: "the name of a process".to_owned(),
        expected: "1 to 63 letters, digits, hyphens and underscores, and not \"0\"".to_owned(),
        got: format!("{:?}", name.chars().take(80).collect::<String>()),
    })
}

/// The settings of TLS of the listener of the other processes, and the connections to them.
///
/// # Errors
/// [`ServiceError::Value`] where the key file gives no certificate.
pub fn identity(keys: &Keys) -> Result<(Arc<rustls::ServerConfig>, Peers)> {
    let credentials = credentials::credentials(keys)?;
    Ok((credentials.server.clone(), Peers::new(&credentials)?))
}

impl Cluster {
    /// Registers a process.
    ///
    /// # Errors
    /// From the store; a name that cannot stand in a path.
    pub fn join(
        name: &str,
        url: String,
        config: &ClusterConfig,
        store: Arc<dyn Store>,
        peers: Peers,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self> {
        check_name(name)?;
        let epoch = store.register(&NewProcess {
            name: name.to_owned(),
            url,
            roles: config.roles.to_string(),
        })?;
        let mut directory = Directory::default();
        directory.read(store.processes()?, store.now());
        Ok(Self {
            name: name.to_owned(),
            epoch,
            roles: config.roles,
            lease: config.lease,
            draining: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            store,
            directory: Mutex::new(directory),
            looked: Mutex::new(Instant::now()),
            peers,
            runtime,
        })
    }

    /// The name of this process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time of a lease, in milliseconds.
    pub(crate) fn lease(&self) -> Millis {
        self.lease
    }

    /// The threads of requests to other processes.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a sign of life, and looks who else lives.
    ///
    /// # Errors
    /// From the store. [`ServiceError::Replaced`] once a later process has the name of this one: it then takes no new work.
    pub fn beat(&self) -> Result<()> {
        let roles = match self.takes_work() {
            true => self.roles,
            false => Roles::NONE,
        };
        if !self.store.beat(&self.name, self.epoch, &roles.to_string())? {
            self.replaced.store(true, Ordering::Release);
            return Err(ServiceError::Replaced {
                name: self.name.clone(),
            });
        }
        self.look()
    }

    fn look(&self) -> Result<()> {
        let rows = self.store.processes()?;
        self.directory().read(rows, self.store.now());
        Ok(())
    }

    /// `true` while this process takes new work.
    pub(crate) fn takes_work(&self) -> bool {
        !self.draining.load(Ordering::Acquire) && !self.is_replaced()
    }

    /// `true` once a later process has the name of this one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    /// `true` once the process ends.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Takes no new work from now on, and says so. Attempts and shards that are open go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        // The next sign of life says it otherwise.
        if let Err(error) = self.beat() {
            tracing::warn!(%error, "the other processes do not know yet that this one ends");
        }
    }

    /// Removes this process from the list.
    pub fn retire(&self) {
        if let Err(error) = self.store.retire(&self.name, self.epoch) {
            tracing::warn!(%error, "the process stays listed until its signs of life are old");
        }
    }

    /// `true` if this process should lease a task now.
    pub(crate) fn may_lead(&self, row: &TaskRow, now: Millis) -> bool {
        if !self.roles.leader || !self.takes_work() {
            return false;
        }
        let directory = self.directory();
        match &row.holder {
            Some(holder) if holder.process == self.name => true,
            Some(holder) if holder.until > now => {
                directory.is_led(row.task.id);
                false
            }
            _ => directory.should_lead(row.task.id, &self.name),
        }
    }

    /// A process of this name; the store is asked where it is not known.
    pub(crate) fn peer(&self, name: &str) -> Found {
        self.found(|directory| directory.peer(name).cloned())
    }

    /// The later start of a process whose address refuses. Other processes may have learned of it before this one.
    pub(crate) fn successor(&self, refused: &Peer) -> Found {
        self.found(|directory| {
            let peer = directory.peer(&refused.name)?;
            (peer.epoch != refused.epoch).then(|| peer.clone())
        })
    }

    fn found(&self, of: impl Fn(&Directory) -> Option<Peer>) -> Found {
        if let Some(peer) = of(&self.directory()) {
            return Found::Peer(peer);
        }
        {
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            if looked.elapsed() < LOOK_AGAIN {
                return Found::Unsure;
            }
            *looked = Instant::now();
        }
        if self.look().is_err() {
            return Found::Unsure;
        }
        of(&self.directory()).map_or(Found::Nobody, Found::Peer)
    }

    /// The other processes that lead these tasks now, each once.
    pub(crate) fn leaders(&self, tasks: &[TaskRow], now: Millis) -> Vec<Peer> {
        let mut names: Vec<&str> = tasks
            .iter()
            .filter_map(|row| row.holder.as_ref())
            .filter(|holder| holder.until > now && holder.process != self.name)
            .map(|holder| holder.process.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let known = |name| match self.peer(name) {
            Found::Peer(peer) => Some(peer),
            Found::Nobody | Found::Unsure => None,
        };
        names.into_iter().filter_map(known).collect()
    }

    /// The processes that hold shards now. The store is asked, so that a process that has just started gets a share of the next attempt.
    pub(crate) fn aggregators(&self) -> Vec<Peer> {
        if let Err(error) = self.look() {
            tracing::warn!(%error, "the processes of the last look hold the shards");
        }
        self.directory().aggregators().cloned().collect()
    }

    /// Sends the same request to several processes at once, and returns the body of each answer that was a success within this time. Call
    /// it on a thread that may block.
    pub(crate) fn ask_all(
        self: &Arc<Self>,
        urls: &[String],
        path: &str,
        body: &[u8],
        max: usize,
        within: Duration,
    ) -> Vec<Option<axum::body::Bytes>> {
        let ask = |url: &String| {
            let (cluster, url) = (self.clone(), url.clone());
            let (path, body) = (path.to_owned(), body.to_vec());
            self.runtime.spawn(async move {
                let asked = cluster.peers.post(&url, &path, body, max);
                match tokio::time::timeout(within, asked).await {
                    Ok(Ok((status, bytes))) if status.is_success() => Some(bytes),
                    _ => None,
                }
            })
        };
        // All are asked before the first answer is waited for.
        let asked: Vec<tokio::task::JoinHandle<Option<axum::body::Bytes>>> = urls.iter().map(ask).collect();
        asked
            .into_iter()
            .map(|asked| self.runtime.block_on(asked).ok().flatten())
            .collect()
    }

    /// `true` while this start of a process gives signs of life.
    pub(crate) fn lives(&self, name: &str, epoch: u64) -> bool {
        self.directory().lives(name, epoch)
    }

    /// The process that leads a task, if it is another one.
    pub(crate) fn leader_of(&self, task: TaskId) -> Option<Peer> {
        let row = self.store.task(task).ok()?;
        self.leaders(&[row], self.store.now()).pop()
    }
}

#[cfg(test)]
mod tests;

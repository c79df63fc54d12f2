//! The service in the process of the test, over a data folder and behind hooks, with a fleet under a virtual clock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_device::{NetworkLost, Reply, Request, Transport};
use undertone_fleet::{Fleet, FleetConfig, FleetError, InProcess, Transports};
use undertone_protocol::TaskState;
use undertone_service::identity::Identity;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service_testing::{START, fleet_clock, heard, users};
use undertone_store::{ManualClock, TaskId};

use super::hooks::{Hook, HookedBlobs, HookedStore};
use super::seen::Seen;
use super::task::{fleet_config, open};

/// A service that can be put away and made again while its devices live on.
pub(crate) struct Inside {
    pub(crate) folder: PathBuf,
    pub(crate) clock: ManualClock,
    serving: Mutex<Serving>,
}

struct Serving {
    service: Option<Arc<Service>>,
    transport: Option<InProcess>,
    seen: Seen,
}

/// The store and the blobs behind a hook.
pub(crate) fn hooked(shared: Shared, hook: Arc<dyn Hook>) -> Shared {
    Shared {
        store: Arc::new(HookedStore {
            inner: shared.store,
            hook: hook.clone(),
        }),
        blobs: Arc::new(HookedBlobs {
            inner: shared.blobs,
            hook,
        }),
        ..shared
    }
}

impl Inside {
    /// A folder that nobody serves yet.
    pub(crate) fn new(folder: &Path) -> Arc<Self> {
        Arc::new(Self {
            folder: folder.to_owned(),
            clock: ManualClock::at(START),
            serving: Mutex::new(Serving {
                service: None,
                transport: None,
                seen: Seen::default(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The things of a service over the folder.
    pub(crate) fn shared(&self, process: &str) -> Shared {
        open(&self.folder, Arc::new(self.clock.clone()), process)
    }

    /// Serves devices from now on.
    pub(crate) fn serve(&self, shared: Shared) -> Arc<Service> {
        let service = Arc::new(Service::new(shared, Identity::Certificate).unwrap());
        self.switch_to(service.clone());
        service
    }

    /// Lets devices reach this service from now on.
    pub(crate) fn switch_to(&self, service: Arc<Service>) {
        let transport = InProcess::new(service.clone()).unwrap();
        let mut serving = self.lock();
        serving.transport = Some(transport);
        serving.service = Some(service);
    }

    /// Puts the service away, without any farewell, and lets go of the folder.
    pub(crate) fn put_away(&self) {
        let mut serving = self.lock();
        serving.transport = None;
        serving.service = None;
    }

    pub(crate) fn service(&self) -> Arc<Service> {
        self.lock().service.clone().unwrap()
    }

    /// Everything that devices were served so far.
    pub(crate) fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// Does what is due, and returns the errors that the service logs meanwhile.
    pub(crate) fn tick(&self, task: TaskId) -> Vec<String> {
        let service = self.service();
        let (ticked, log) = heard(|| service.tick());
        if let Ok(row) = service.shared().store.task(task) {
            self.lock().seen.heads.push(row.head_round);
        }
        let logged = log.into_iter().flatten().filter(|(name, _)| *name == "error");
        let logged = logged.map(|(_, error)| error);
        logged
            .chain(ticked.err().map(|error| error.to_string()))
            .collect()
    }

    /// The state of the task, for a message.
    pub(crate) fn shown(&self, task: TaskId) -> String {
        let service = self.service();
        let row = service.shared().store.task(task).unwrap();
        let room = service.room(task).map(|room| (room.need(), room.attempt_age()));
        format!(
            "{:?} at round {}, {room:?}, time {}",
            row.state,
            row.head_round,
            service.shared().store.now() - START
        )
    }

    /// `true` once the task is completed.
    pub(crate) fn is_over(&self, task: TaskId) -> bool {
        self.service().shared().store.task(task).unwrap().state == TaskState::Completed
    }

    /// A fleet whose clock moves that of the store.
    pub(crate) fn fleet(self: &Arc<Self>, devices: usize, seed: u64) -> Fleet<'static> {
        let clock = self.clock.clone();
        let config = FleetConfig {
            clock: fleet_clock(move |now| clock.set(now)),
            seed,
            max_pause_ms: 20_000,
            ..fleet_config(&self.folder, devices)
        };
        Fleet::new(config, users(devices), ToInside(self.clone())).unwrap()
    }
}

struct Connection(Arc<Inside>);

impl Transport for Connection {
    fn send(&mut self, request: &Request) -> Result<Reply, NetworkLost> {
        let mut guard = self.0.lock();
        let serving = &mut *guard;
        let Some(transport) = &mut serving.transport else {
            return Err(NetworkLost("nobody serves".to_owned()));
        };
        let reply = transport.send(request)?;
        serving.seen.note(request, &reply);
        Ok(reply)
    }
}

struct ToInside(Arc<Inside>);

impl Transports for ToInside {
    fn open(&self, _: usize) -> Result<Box<dyn Transport>, FleetError> {
        Ok(Box::new(Connection(self.0.clone())))
    }
}

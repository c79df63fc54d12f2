//! The description of a world.

use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::task::{IdentityLevel, Seeding, TaskFile};
use undertone_fleet::InProcess;
use undertone_protocol::TaskState;
use undertone_service::identity::Identity;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_service::task::create;
use undertone_service::task::parity::{self, Parity};
use undertone_store::{Blobs, Clock, ManualClock, Memory, MemoryBlobs, Store, TaskId};

use crate::device::Device;
use crate::keys::{floors, keys, setup, shared};
use crate::running::Running;
use crate::{PEOPLE, PLAIN, START};

const WORDS: &str = "the\nof\nand\nto\nin\na\nis\nthat\nfor\nit\n";

/// A service to be, with its store, its task, its devices and a clock that begins at [`START`].
#[must_use]
pub struct World {
    clock: ManualClock,
    store: Arc<dyn Store>,
    blobs: Arc<dyn Blobs>,
    text: String,
    words: String,
    seeding: Seeding,
    parity: Option<Parity>,
    devices: usize,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world in memory with the task [`PLAIN`] and no devices.
    pub fn new() -> Self {
        let clock = ManualClock::at(START);
        Self {
            store: Arc::new(Memory::new(Arc::new(clock.clone()))),
            blobs: Arc::new(MemoryBlobs::new()),
            clock,
            text: PLAIN.to_owned(),
            words: WORDS.to_owned(),
            seeding: Seeding::Refused,
            parity: None,
            devices: 0,
        }
    }

    /// Takes the store that `open` gives, which goes by the clock of the world.
    pub fn store<S: Store + 'static>(mut self, open: impl FnOnce(Arc<dyn Clock>) -> S) -> Self {
        self.store = Arc::new(open(Arc::new(self.clock.clone())));
        self
    }

    /// Takes the task of this text. Devices and service go by its identity level.
    pub fn task(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }

    /// Takes this vocabulary, one word per line.
    pub fn words(mut self, words: &str) -> Self {
        words.clone_into(&mut self.words);
        self
    }

    /// Admits a task with a seed.
    pub fn seeded(mut self) -> Self {
        self.seeding = Seeding::ParityTest;
        self
    }

    /// Gives the seeded task the rotations of a simulation.
    pub fn parity(mut self, parity: Parity) -> Self {
        self.parity = Some(parity);
        self.seeded()
    }

    /// Enrols so many devices at the start, at most 156, each of a subject of its own.
    pub fn devices(mut self, number: usize) -> Self {
        self.devices = number;
        self
    }

    /// The things of a process of this name.
    pub fn shared(&self, process: &str) -> Shared {
        shared(self.store.clone(), self.blobs.clone(), process)
    }

    fn file(&self) -> TaskFile {
        undertone_run_directory::task::parse(&self.text, Path::new("task.toml"), self.seeding).unwrap()
    }

    fn identity(&self) -> Identity {
        match self.file().service.identity {
            IdentityLevel::Dev => Identity::Dev,
            IdentityLevel::Certificate => Identity::Certificate,
            IdentityLevel::Attested => Identity::Attested,
        }
    }

    /// Makes the task in this service, and leaves it a draft.
    pub fn draft(&self, shared: &Shared) -> TaskId {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), &self.words).unwrap();
        let (file, base, keys) = (self.file(), folder.path(), &shared.keys);
        let (store, blobs) = (shared.store.as_ref(), shared.blobs.as_ref());
        let task = match self.parity {
            Some(parity) => parity::create(&file, base, PEOPLE, keys, store, blobs, parity),
            None => create(&file, base, PEOPLE, keys, store, blobs),
        };
        task.unwrap()
    }

    /// Makes the task in this service, and activates it.
    pub fn create(&self, shared: &Shared) -> TaskId {
        let task = self.draft(shared);
        let active = shared
            .store
            .set_state(task, TaskState::Draft, TaskState::Active, "test", "");
        active.unwrap();
        task
    }

    /// Makes the task, serves it, and enrols the devices. The service leads the task, and its next turn opens an attempt.
    pub fn start(self) -> Running {
        let shared = self.shared("test");
        let (task, identity) = (self.create(&shared), self.identity());
        let service = Arc::new(Service::new(shared, identity).unwrap());
        service.tick().unwrap();
        let way = InProcess::new(service.clone()).unwrap();
        let setup = setup(&keys(), floors(identity));
        Running {
            devices: Device::enrolled(self.devices, &setup, &way),
            service,
            task,
            clock: self.clock,
            identity,
            way,
        }
    }
}

//! A world that runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_fleet::{FleetConfig, InProcess, Updates};
use undertone_protocol::TaskState;
use undertone_service::identity::Identity;
use undertone_service::room::Shared;
use undertone_service::server::Service;
use undertone_store::{ManualClock, TaskId, TaskRow};

use crate::device::Device;
use crate::export::{blob, exports};
use crate::fleet::{evidence, fleet_clock, fleet_config};
use crate::keys::{floors, keys, shared};
use crate::world::World;

/// A service with its active task and its devices.
pub struct Running {
    /// The service.
    pub service: Arc<Service>,
    /// The task.
    pub task: TaskId,
    /// The clock of the store.
    pub clock: ManualClock,
    /// The devices.
    pub devices: Vec<Device>,
    pub(crate) identity: Identity,
    pub(crate) way: InProcess,
}

impl Running {
    /// The things of the service.
    pub fn shared(&self) -> &Shared {
        self.service.shared()
    }

    /// The row of the task.
    pub fn row(&self) -> TaskRow {
        self.shared().store.task(self.task).unwrap()
    }

    /// The state of the task.
    pub fn state(&self) -> TaskState {
        self.row().state
    }

    /// Another process of the service, which knows what is durable and nothing else.
    pub fn process(&self, name: &str) -> Service {
        let Shared { store, blobs, .. } = self.shared();
        Service::new(shared(store.clone(), blobs.clone(), name), self.identity).unwrap()
    }

    /// The connections to the service.
    pub fn way(&self) -> InProcess {
        self.way.clone()
    }

    /// The settings of a fleet that moves the clock of this world and trains nothing.
    pub fn fleet_config(&self, devices: usize) -> FleetConfig {
        let clock = self.clock.clone();
        FleetConfig {
            clock: fleet_clock(move |now| clock.set(now)),
            enrolment: evidence(keys(), self.identity),
            max_pause_ms: 20_000,
            updates: Updates::Synthetic,
            ..fleet_config(keys(), floors(self.identity), devices)
        }
    }

    /// Lets every device go on until it sleeps, and then the service.
    pub fn step(&mut self) {
        let now = self.shared().store.now();
        self.devices.iter_mut().for_each(|device| device.step(now));
        self.service.tick().unwrap();
    }

    /// Steps, half a second apart, until the task has released so many rounds.
    pub fn run_until_round(&mut self, round: u64) {
        for _ in 0..20_000 {
            if self.row().head_round >= round {
                return;
            }
            self.step();
            self.clock.advance(500);
        }
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for end in self.devices.iter().flat_map(|device| &device.ends) {
            *ends.entry(format!("{end:?}")).or_default() += 1;
        }
        panic!("round {round} was not released: {ends:#?}");
    }

    /// Activates an evaluation of the task, and leads the world to it.
    pub fn evaluate(&mut self, text: &str) {
        self.task = World::new().task(text).create(self.shared());
        for device in &mut self.devices {
            device.memory.withheld_examples = 8;
        }
    }

    /// The lines of the ledger of the task.
    pub fn ledger(&self) -> Vec<Vec<u8>> {
        self.shared().store.ledger(self.task, 0).unwrap()
    }

    /// The bytes of the newest release.
    pub fn released(&self) -> Vec<u8> {
        blob(self.shared().blobs.as_ref(), &self.row().head_model)
    }

    /// The memory of each device names at most `max_part` rounds, at least `min_sep` apart.
    pub fn keeps_apart(&self, min_sep: u64, max_part: usize) {
        for device in &self.devices {
            let rounds: Vec<u64> = device.memory.participations.iter().map(|row| row.round).collect();
            let apart = rounds.windows(2).all(|pair| pair[1] >= pair[0] + min_sep);
            assert!(apart && rounds.len() <= max_part, "{rounds:?}");
        }
    }

    /// The export of the task, which has ended, verifies.
    pub fn exports(&self) {
        exports(self.shared(), self.task);
    }
}

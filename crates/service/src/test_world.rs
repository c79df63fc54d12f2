//! A service with one active task, over a store in memory or in a file, for tests of this crate and of those above it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(missing_debug_implementations, reason = "a service of a test is not printed")]

use std::path::Path;
use std::sync::Arc;

use undertone_coordinator::task::{Seeding, TaskFile};
use undertone_protocol::{TaskState, TokenKey, next};
use undertone_store::{ManualClock, Memory, MemoryBlobs, Sqlite, Store};
use zeroize::Zeroizing;

use crate::capacity::Capacity;
use crate::identity::{Identity, Member};
use crate::keys::Keys;
use crate::room::{Claims, Room, Shared};
use crate::server::Service;
use crate::task::create;

const START: u64 = 1_800_000_000_000;

/// A plain task of one round. `GOAL` is the number of reports that end it.
const TASK: &str = r#"
name = "words"
rounds = 3
vocabulary = { kind = "file", path = "vocab.txt" }
model = { family = "dplm", embed = 4, hidden = 6 }
cohort = { sampling = "check_in", users_per_round = GOAL, population = 1000000 }
participation = { min_sep = 2, max_part = 2 }
user_update = { batch_size = 2, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.5 }
privacy = { noise_multiplier = 2.0, delta = 1e-7, mechanism = { kind = "tree" } }

[service]
over_selection = 1.5
group = { target = 2, min = 2 }
"#;

/// The kind of a store.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Rows in memory.
    Memory,
    /// A file of SQLite.
    Sqlite,
}

/// A service that takes devices for its only task.
pub struct World {
    /// The service.
    pub service: Arc<Service>,
    /// The task that it leads.
    pub room: Arc<Room>,
    /// A key of tokens that is not the service's.
    pub token: TokenKey,
    /// Places of the attempt.
    pub places: u32,
    /// The clock of the store.
    pub clock: ManualClock,
    _folder: tempfile::TempDir,
}

impl World {
    /// A task whose rounds end with `goal` reports, with its first attempt open.
    #[must_use]
    pub fn new(kind: Kind, goal: u32) -> Self {
        Self::make(kind, goal, 4, &Capacity::default(), "")
    }

    /// A world of [`new`](Self::new) with more lines in the table `[service]`.
    #[must_use]
    pub fn with(kind: Kind, goal: u32, more: &str) -> Self {
        Self::make(kind, goal, 4, &Capacity::default(), more)
    }

    /// A task whose rounds end with four reports, in a service with this share of its machine.
    #[must_use]
    pub fn of_capacity(capacity: &Capacity) -> Self {
        Self::make(Kind::Memory, 4, 4, capacity, "")
    }

    /// A task with a model of some records of the spool, in a service with this share of its machine.
    #[must_use]
    pub fn with_large_model(capacity: &Capacity) -> Self {
        Self::make(Kind::Memory, 4, 10_000, capacity, "")
    }

    fn make(kind: Kind, goal: u32, words: u32, capacity: &Capacity, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let vocabulary: String = (0..words).map(|word| format!("word{word}\n")).collect();
        std::fs::write(folder.path().join("vocab.txt"), vocabulary).unwrap();
        let moved = ManualClock::at(START);
        let clock = Arc::new(moved.clone());
        let store: Arc<dyn Store> = match kind {
            Kind::Memory => Arc::new(Memory::new(clock)),
            Kind::Sqlite => Arc::new(Sqlite::with_clock(&folder.path().join("store.sqlite"), clock).unwrap()),
        };
        let shared = Shared {
            store,
            blobs: Arc::new(MemoryBlobs::new()),
            keys: Keys::from_root([7; 32]),
            process: "test".to_owned(),
            witness: None,
        };
        let text = format!("{}{more}", TASK.replace("GOAL", &goal.to_string()));
        let file: TaskFile =
            undertone_run_directory::task::parse(&text, Path::new("task.toml"), Seeding::Refused).unwrap();
        let task = create(
            &file,
            folder.path(),
            "people",
            &shared.keys,
            shared.store.as_ref(),
            shared.blobs.as_ref(),
        )
        .unwrap();
        shared
            .store
            .set_state(task, TaskState::Draft, TaskState::Active, "test", "")
            .unwrap();
        let service = Arc::new(Service::with_capacity(shared, Identity::Certificate, capacity).unwrap());
        // The first tick leads the task, and the second opens its attempt.
        service.tick().unwrap();
        service.tick().unwrap();
        let room = service.room(task).unwrap();
        let places = room.need();
        assert_eq!(places, (3 * goal).div_ceil(2));
        Self {
            service,
            room,
            token: TokenKey::new(&Zeroizing::new([3; 32])),
            places,
            clock: moved,
            _folder: folder,
        }
    }
}

impl World {
    /// The time of the store.
    #[must_use]
    pub fn clock_now(&self) -> u64 {
        self.service.shared().store.now()
    }

    /// A device that has joined: its session token, its claims, and the length of its upload.
    #[must_use]
    pub fn joined(&self, device: u32) -> (Vec<u8>, Claims, u64) {
        let token = self.service.token();
        let assigned = self.room.admit(&member(device), checkin(device, 0), &token);
        let assigned = assigned.unwrap_or_else(|problem| panic!("{problem:?}"));
        let now = self.service.shared().store.now();
        let claims = token.open(&assigned.token, now).unwrap();
        let step = self.room.join(&claims, &[]).unwrap();
        let Some(next::Step::Upload(grant)) = step.step else {
            panic!("{step:?}")
        };
        (assigned.token, claims, grant.length)
    }
}

/// The enrolment of a device, without limits.
#[must_use]
pub fn enrolment(key: &undertone_protocol::Digest32) -> undertone_store::Enrolment {
    undertone_store::Enrolment {
        key: *key,
        population: "people".to_owned(),
        person: *key,
        max_devices: u32::MAX,
        max_enrolments: u32::MAX,
        day: undertone_store::Quota {
            counter: [0; 32],
            window: 0,
            limit: u32::MAX,
        },
    }
}

/// The device of this number, of a subject of its own.
#[must_use]
pub fn member(number: u32) -> Member {
    let mut name = [0; 32];
    name[..4].copy_from_slice(&number.to_le_bytes());
    let mut device = name;
    device[31] = 1;
    Member {
        subject: name,
        device,
        issuer: [9; 32],
    }
}

/// The identifier of the n-th check-in of a device.
#[must_use]
pub fn checkin(device: u32, number: u32) -> [u8; 16] {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&device.to_le_bytes());
    id[4..8].copy_from_slice(&number.to_le_bytes());
    id
}

//! Stores under test, and rows to put into them.

#![allow(dead_code, reason = "every test file uses a part of it")]

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "s3")]
pub(crate) mod s3;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undertone_accounting::participation::{Gap, Participation};
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskKind, TaskState};
use undertone_store::{
    Admission, AttemptId, AuditRow, Enrolment, Lease, ManualClock, Memory, NewAttempt, NewProcess, NewTask,
    Quota, Release, SessionId, SessionLimits, Sqlite, Store, TaskId,
};

/// The time at which tests begin.
pub(crate) const BEGIN: u64 = 1_800_000_000_000;

/// A store under a clock that the test moves.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    kind: WorldKind,
}

enum WorldKind {
    Memory(Box<Memory>),
    Sqlite {
        store: Option<Box<Sqlite>>,
        path: PathBuf,
        _folder: tempfile::TempDir,
    },
    #[cfg(feature = "postgres")]
    Postgres {
        store: Option<Box<undertone_store::Postgres>>,
        url: String,
        /// The server, where the test restarts it.
        own: Option<postgres::Server>,
    },
}

impl World {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::at(BEGIN);
        let kind = WorldKind::Memory(Box::new(Memory::new(Arc::new(clock.clone()))));
        Self { clock, kind }
    }

    pub(crate) fn sqlite() -> Self {
        let clock = ManualClock::at(BEGIN);
        let folder = folder();
        let path = folder.path().join("service.db");
        let store = Sqlite::with_clock(&path, Arc::new(clock.clone())).unwrap();
        let kind = WorldKind::Sqlite {
            store: Some(Box::new(store)),
            path,
            _folder: folder,
        };
        Self { clock, kind }
    }

    /// A world in Postgres, on a server of its own for a test that restarts; `None` where the machine has no server.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(restarts: bool) -> Option<Self> {
        let clock = ManualClock::at(BEGIN);
        let own = match restarts {
            true => Some(postgres::Server::start()?),
            false => None,
        };
        let url = match &own {
            Some(server) => server.database(),
            None => postgres::shared()?.database(),
        };
        let store = undertone_store::Postgres::with_clock(&url, Arc::new(clock.clone())).unwrap();
        let kind = WorldKind::Postgres {
            store: Some(Box::new(store)),
            url,
            own,
        };
        Some(Self { clock, kind })
    }

    pub(crate) fn store(&self) -> &dyn Store {
        match &self.kind {
            WorldKind::Memory(memory) => &**memory,
            WorldKind::Sqlite { store, .. } => &**store.as_ref().unwrap(),
            #[cfg(feature = "postgres")]
            WorldKind::Postgres { store, .. } => &**store.as_ref().unwrap(),
        }
    }

    /// The path of the database.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match &self.kind {
            WorldKind::Memory(_) => None,
            WorldKind::Sqlite { path, .. } => Some(path),
            #[cfg(feature = "postgres")]
            WorldKind::Postgres { .. } => None,
        }
    }

    /// `false` for a world on a server that other tests use.
    pub(crate) fn can_restart(&self) -> bool {
        match &self.kind {
            WorldKind::Memory(_) | WorldKind::Sqlite { .. } => true,
            #[cfg(feature = "postgres")]
            WorldKind::Postgres { own, .. } => own.is_some(),
        }
    }

    /// Closes the store and opens it anew.
    pub(crate) fn restart(&mut self) {
        match &mut self.kind {
            WorldKind::Memory(memory) => memory.restart(),
            WorldKind::Sqlite { store, path, .. } => {
                drop(store.take());
                let opened = Sqlite::with_clock(path, Arc::new(self.clock.clone())).unwrap();
                *store = Some(Box::new(opened));
            }
            #[cfg(feature = "postgres")]
            WorldKind::Postgres { store, url, own } => {
                drop(store.take());
                own.as_mut().unwrap().restart("fast");
                let opened =
                    undertone_store::Postgres::with_clock(url, Arc::new(self.clock.clone())).unwrap();
                *store = Some(Box::new(opened));
            }
        }
    }

    pub(crate) fn audit(&self) -> Vec<AuditRow> {
        match &self.kind {
            WorldKind::Memory(memory) => memory.audit(),
            WorldKind::Sqlite { store, .. } => store.as_ref().unwrap().audit().unwrap(),
            #[cfg(feature = "postgres")]
            WorldKind::Postgres { store, .. } => store.as_ref().unwrap().audit().unwrap(),
        }
    }
}

/// A folder in memory where the machine has one, since a test of rules need not wait for a disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

pub(crate) fn sha(bytes: &[u8]) -> Digest32 {
    Sha256::digest(bytes).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn user(number: u64) -> ParticipantId {
    ParticipantId::new(number)
}

pub(crate) fn users(numbers: impl IntoIterator<Item = u64>) -> Vec<ParticipantId> {
    numbers.into_iter().map(ParticipantId::new).collect()
}

pub(crate) fn at_least(gap: u64, max: u64) -> Participation {
    Participation::at_least(Gap::new(gap).unwrap(), max).unwrap()
}

pub(crate) fn exactly(gap: u64, max: u64) -> Participation {
    Participation::fixed_epochs(Gap::new(gap).unwrap(), max).unwrap()
}

pub(crate) fn new_task(name: &str, participation: Participation) -> NewTask {
    NewTask {
        id: TaskId(sha(name.as_bytes())),
        population: "keyboard-en".to_owned(),
        name: name.to_owned(),
        kind: TaskKind::Train,
        config: format!("name = {name:?}\n"),
        plan: sha(format!("plan of {name}").as_bytes()),
        genesis: hex(&sha(format!("genesis of {name}").as_bytes())),
        participation,
        rounds: 50,
        min_included: 1,
        model: sha(format!("model of {name}").as_bytes()),
    }
}

/// An active task with a lease of process "one".
pub(crate) fn active(store: &dyn Store, name: &str, participation: Participation) -> (TaskId, Lease) {
    activate(store, &new_task(name, participation))
}

pub(crate) fn activate(store: &dyn Store, task: &NewTask) -> (TaskId, Lease) {
    store.create_task(task).unwrap();
    store
        .set_state(task.id, TaskState::Draft, TaskState::Active, "operator", "")
        .unwrap();
    (task.id, store.lease(task.id, "one", 30_000).unwrap().unwrap())
}

pub(crate) fn new_attempt(store: &dyn Store, round: u64) -> NewAttempt {
    NewAttempt {
        round,
        target: 100,
        select_until: store.now() + 600_000,
        report_until: store.now() + 1_200_000,
    }
}

pub(crate) fn open(store: &dyn Store, lease: &Lease) -> AttemptId {
    let round = store.task(lease.task).unwrap().head_round;
    store.open_attempt(lease, &new_attempt(store, round)).unwrap()
}

pub(crate) fn session(number: u64) -> SessionId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    id[15] = 0xa5;
    SessionId(id)
}

/// A process of this name.
pub(crate) fn process(name: &str) -> NewProcess {
    NewProcess {
        name: name.to_owned(),
        url: format!("https://{name}.example:8450"),
        roles: "front,leader".to_owned(),
    }
}

/// The hash of a subject in its population.
pub(crate) fn person(who: u64) -> Digest32 {
    sha(format!("person {who}").as_bytes())
}

/// The key of the device with the number of its user.
pub(crate) fn device_key(who: u64) -> Digest32 {
    sha(format!("device {who}").as_bytes())
}

/// The enrolment of a device, whose subject has no other and no limit.
pub(crate) fn enrolment(key: &Digest32, population: &str) -> Enrolment {
    Enrolment {
        key: *key,
        population: population.to_owned(),
        person: sha(key),
        max_devices: u32::MAX,
        max_enrolments: u32::MAX,
        day: Quota {
            counter: [0; 32],
            window: 0,
            limit: u32::MAX,
        },
    }
}

/// The admission of a user by a device with the user's number, under a check-in with the session's number.
pub(crate) fn admission(store: &dyn Store, attempt: AttemptId, who: u64, number: u64) -> Admission {
    let mut checkin = [0; 16];
    checkin[..8].copy_from_slice(&number.to_le_bytes());
    Admission {
        attempt,
        session: session(number),
        user: user(who),
        person: person(who),
        key: device_key(who),
        device: sha(&who.to_le_bytes()),
        checkin,
        hold_until: store.now() + 60_000,
        limits: SessionLimits::NONE,
    }
}

/// A release that follows the head of its task.
pub(crate) fn release(
    store: &dyn Store,
    task: TaskId,
    attempt: AttemptId,
    included: &[ParticipantId],
    lost: &[ParticipantId],
) -> Release {
    let row = store.task(task).unwrap();
    let mut line = format!(
        "{{\"round\":{},\"previous\":\"{}\",\"participants\":[",
        row.head_round, row.chain
    );
    for user in included {
        write!(line, "\"{user}\",").unwrap();
    }
    line.push_str("],\"lost\":[");
    for user in lost {
        write!(line, "\"{user}\",").unwrap();
    }
    line.push_str("]}");
    Release {
        attempt,
        round: row.head_round,
        included: included.to_vec(),
        lost: lost.to_vec(),
        digest: hex(&sha(line.as_bytes())),
        model: sha(format!("model of {line}").as_bytes()),
        state: Some(sha(format!("state of {line}").as_bytes())),
        noise_key: Some(format!("key {}", attempt.0)),
        metrics: format!("{{\"round\":{}}}", row.head_round).into_bytes(),
        line: line.into_bytes(),
        previous: row.chain,
    }
}

/// Opens an attempt, and commits a release of these users, who are admitted or not.
pub(crate) fn released(store: &dyn Store, lease: &Lease, included: &[u64]) -> Release {
    let attempt = open(store, lease);
    store.reserve(lease, attempt, included.len() as u64).unwrap();
    let release = release(store, lease.task, attempt, &users(included.iter().copied()), &[]);
    store.commit_release(lease, &release).unwrap();
    release
}

/// The text of an error.
pub(crate) fn refused<T: std::fmt::Debug>(result: undertone_store::Result<T>, words: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(words), "expected {words:?} in {error:?}");
}

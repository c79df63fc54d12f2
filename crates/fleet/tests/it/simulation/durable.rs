//! The durable state of a service, with crashes and faults between any two writes, and a log of what was released.

use std::io::Read;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};
use undertone_store::{
    AbandonReason, AbandonedRow, Admission, Admitted, AttemptId, AttemptRow, AttemptState, AuditRow,
    BlobError, BlobReader, Blobs, Created, Departure, DeviceRow, Enrolled, Enrolment, Histograms, Lease,
    LeaseRow, Membership, Memory, MemoryBlobs, Millis, NewAttempt, NewProcess, NewTask, Outcome, Oversight,
    ProcessRow, Release, Result, SessionId, SessionState, Store, StoreError, Stored, TaskId, TaskRow,
    Unpublished,
};

/// The payload of the panic that stands for the death of the process.
pub(crate) struct Crash;

/// A fault at a write to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before the write, or right after it.
    Crash { applied: bool },
    /// The write fails as a database fails that cannot be reached: made or not.
    Unavailable { applied: bool },
}

/// A release as it was committed.
#[derive(Debug, Clone)]
pub(crate) struct Released {
    pub(crate) round: u64,
    pub(crate) attempt: AttemptId,
}

#[derive(Default)]
struct Log {
    /// Writes until the fault, from 0.
    fault: Option<(u32, Fault)>,
    writes: u64,
    releases: Vec<Released>,
    models: Vec<(AttemptId, Vec<u8>)>,
    /// Open sessions by user, as the store knows them.
    open: Vec<(SessionId, ParticipantId)>,
    most_open: usize,
}

/// Rows and blobs that outlive every process of a world.
pub(crate) struct Durable {
    store: Memory,
    blobs: MemoryBlobs,
    log: Mutex<Log>,
    /// The user whose open sessions are counted.
    pub(crate) watched: Option<ParticipantId>,
}

impl Durable {
    pub(crate) fn new((store, blobs): (Memory, MemoryBlobs)) -> Self {
        Self {
            store,
            blobs,
            log: Mutex::default(),
            watched: None,
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database is opened anew, as by a process that starts.
    pub(crate) fn restart(&self) {
        self.store.restart();
    }

    /// Arms a fault for the write after so many others.
    pub(crate) fn arm(&self, writes: u32, fault: Fault) {
        self.log().fault = Some((writes, fault));
    }

    pub(crate) fn disarm(&self) {
        self.log().fault = None;
    }

    pub(crate) fn releases(&self) -> Vec<Released> {
        self.log().releases.clone()
    }

    /// The staged model of an attempt. Two of them would be two draws of noise for one round.
    pub(crate) fn models(&self, attempt: AttemptId) -> Vec<Vec<u8>> {
        let log = self.log();
        let of = log.models.iter().filter(|(of, _)| *of == attempt);
        of.map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The max number of sessions of the watched user that were open at one time.
    pub(crate) fn most_open(&self) -> usize {
        self.log().most_open
    }

    /// The note of the last change of a task's state.
    pub(crate) fn last_note(&self) -> String {
        let audit = self.store.audit();
        let moved = audit.iter().rev().find(|row| row.action == "set_state");
        moved.map_or_else(String::new, |row| row.detail.clone())
    }

    fn due(&self) -> Option<Fault> {
        let mut log = self.log();
        log.writes += 1;
        match &mut log.fault {
            Some((0, fault)) => {
                let fault = *fault;
                log.fault = None;
                Some(fault)
            }
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }

    fn write<T, E>(&self, lost: impl FnOnce() -> E, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        match self.due() {
            None => act(),
            Some(Fault::Crash { applied }) => {
                if applied {
                    let _ = act();
                }
                resume_unwind(Box::new(Crash))
            }
            Some(Fault::Unavailable { applied }) => {
                if applied {
                    let _ = act();
                }
                Err(lost())
            }
        }
    }

    fn row<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let lost = || StoreError::Unavailable {
            place: "the database of the simulation".to_owned(),
            reason: "the connection was lost".to_owned(),
        };
        self.write(lost, act)
    }

    fn blob<T>(&self, act: impl FnOnce() -> Result<T, BlobError>) -> Result<T, BlobError> {
        let lost = || BlobError::Io {
            action: "write",
            path: "a blob of the simulation".to_owned(),
            source: std::io::Error::other("the disk is gone"),
        };
        self.write(lost, act)
    }

    fn closed(&self, ended: impl Fn(&SessionId) -> bool) {
        self.log().open.retain(|(session, _)| !ended(session));
    }
}

impl Oversight for Durable {
    fn attempts(&self, task: TaskId, limit: u32) -> Result<Vec<AttemptRow>> {
        self.store.attempts(task, limit)
    }
    fn leases(&self) -> Result<Vec<LeaseRow>> {
        self.store.leases()
    }
    fn enrolments(&self, population: &str, from: u64) -> Result<Vec<(u64, u64)>> {
        self.store.enrolments(population, from)
    }
    fn acts(&self, task: TaskId, limit: u32) -> Result<Vec<AuditRow>> {
        self.store.acts(task, limit)
    }
    fn note_act(&self, task: TaskId, actor: &str, action: &str, note: &str) -> Result<()> {
        self.row(|| self.store.note_act(task, actor, action, note))
    }
}

impl Store for Durable {
    fn now(&self) -> Millis {
        self.store.now()
    }
    fn create_task(&self, task: &NewTask) -> Result<()> {
        self.row(|| self.store.create_task(task))
    }
    fn task(&self, task: TaskId) -> Result<TaskRow> {
        self.store.task(task)
    }
    fn tasks(&self) -> Result<Vec<TaskRow>> {
        self.store.tasks()
    }
    fn set_state(&self, task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> Result<()> {
        self.row(|| self.store.set_state(task, from, to, actor, note))
    }
    fn lease(&self, task: TaskId, process: &str, ttl: Millis) -> Result<Option<Lease>> {
        self.row(|| self.store.lease(task, process, ttl))
    }
    fn renew(&self, lease: &Lease, ttl: Millis) -> Result<Lease> {
        self.row(|| self.store.renew(lease, ttl))
    }
    fn hand_back(&self, lease: Lease) -> Result<()> {
        self.row(|| self.store.hand_back(lease))
    }
    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Result<AttemptId> {
        self.row(|| self.store.open_attempt(lease, attempt))
    }
    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Result<()> {
        self.row(|| self.store.close_selection(lease, attempt))
    }
    fn admit(&self, admission: &Admission) -> Result<Admitted> {
        self.row(|| {
            let admitted = self.store.admit(admission)?;
            if admitted == Admitted::Yes && self.watched == Some(admission.user) {
                let mut log = self.log();
                log.open.push((admission.session, admission.user));
                log.most_open = log.most_open.max(log.open.len());
            }
            Ok(admitted)
        })
    }
    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Result<()> {
        self.row(|| {
            self.store.note_sessions(states)?;
            let over =
                |state: &SessionState| matches!(state, SessionState::Lost | SessionState::LostBeforeReady);
            self.closed(|open| {
                states
                    .iter()
                    .any(|(session, state)| session == open && over(state))
            });
            Ok(())
        })
    }
    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Result<()> {
        self.row(|| self.store.reserve(lease, attempt, included))
    }
    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()> {
        self.row(|| {
            self.store.commit_release(lease, release)?;
            self.closed(|_| true);
            let mut log = self.log();
            if log.releases.iter().all(|known| known.attempt != release.attempt) {
                log.releases.push(Released {
                    round: release.round,
                    attempt: release.attempt,
                });
            }
            Ok(())
        })
    }
    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Result<()> {
        self.row(|| {
            self.store.abandon(lease, attempt, reason, users)?;
            self.closed(|_| true);
            Ok(())
        })
    }
    fn outcome(&self, attempt: AttemptId) -> Result<Outcome> {
        self.store.outcome(attempt)
    }
    fn open_attempt_of(&self, task: TaskId) -> Result<Option<(AttemptId, AttemptState)>> {
        self.store.open_attempt_of(task)
    }
    fn round_opened(&self, task: TaskId, round: u64) -> Result<Option<Millis>> {
        self.store.round_opened(task, round)
    }
    fn abandoned_since_release(&self, task: TaskId) -> Result<Vec<AbandonedRow>> {
        self.store.abandoned_since_release(task)
    }
    fn unpublished(&self, task: TaskId) -> Result<Vec<Unpublished>> {
        self.store.unpublished(task)
    }
    fn published(&self, task: TaskId, round: u64) -> Result<()> {
        self.row(|| self.store.published(task, round))
    }
    fn may_serve(&self, blob: &Digest32) -> Result<bool> {
        self.store.may_serve(blob)
    }
    fn ledger(&self, task: TaskId, from: u64) -> Result<Vec<Vec<u8>>> {
        self.store.ledger(task, from)
    }
    fn end(&self, lease: &Lease, line: &[u8], digest: &str, previous: &str) -> Result<()> {
        self.row(|| self.store.end(lease, line, digest, previous))
    }
    fn metrics(&self, task: TaskId) -> Result<Vec<Vec<u8>>> {
        self.store.metrics(task)
    }
    fn append_metrics(&self, task: TaskId, line: &[u8]) -> Result<()> {
        self.row(|| self.store.append_metrics(task, line))
    }
    fn observed(&self, task: TaskId) -> Result<Histograms> {
        self.store.observed(task)
    }
    fn enrol(&self, enrolment: &Enrolment) -> Result<Enrolled> {
        self.row(|| self.store.enrol(enrolment))
    }
    fn membership(&self, key: &Digest32, population: &str, person: &Digest32) -> Result<Membership> {
        self.store.membership(key, population, person)
    }
    fn depart(&self, population: &str, person: &Digest32, how: Departure, actor: &str) -> Result<bool> {
        self.row(|| self.store.depart(population, person, how, actor))
    }
    fn device(&self, key: &Digest32) -> Result<Option<DeviceRow>> {
        self.store.device(key)
    }
    fn revoke(&self, key: &Digest32, actor: &str) -> Result<()> {
        self.row(|| self.store.revoke(key, actor))
    }
    fn spend(&self, session_key: &Digest32, until: Millis) -> Result<bool> {
        self.row(|| self.store.spend(session_key, until))
    }
    fn issue(&self, subject: &Digest32, window: u64, number: u32, limit: u32) -> Result<bool> {
        self.row(|| self.store.issue(subject, window, number, limit))
    }
    fn register(&self, process: &NewProcess) -> Result<u64> {
        self.row(|| self.store.register(process))
    }
    fn beat(&self, process: &str, epoch: u64, roles: &str) -> Result<bool> {
        self.row(|| self.store.beat(process, epoch, roles))
    }
    fn retire(&self, process: &str, epoch: u64) -> Result<()> {
        self.row(|| self.store.retire(process, epoch))
    }
    fn processes(&self) -> Result<Vec<ProcessRow>> {
        self.store.processes()
    }
    fn bar(&self, task: TaskId, user: ParticipantId, actor: &str) -> Result<bool> {
        self.row(|| self.store.bar(task, user, actor))
    }
    fn keep_pseudonym_key(&self, task: TaskId, sealed: &[u8]) -> Result<Vec<u8>> {
        self.row(|| self.store.keep_pseudonym_key(task, sealed))
    }
    fn pseudonym_key(&self, task: TaskId) -> Result<Option<Vec<u8>>> {
        self.store.pseudonym_key(task)
    }
    fn forget_pseudonym_key(&self, task: TaskId, actor: &str) -> Result<bool> {
        self.row(|| self.store.forget_pseudonym_key(task, actor))
    }
    fn blobs_of(&self, task: TaskId) -> Result<Vec<Digest32>> {
        self.store.blobs_of(task)
    }
    fn pin(&self, task: TaskId, round: Option<u64>, actor: &str) -> Result<bool> {
        self.row(|| self.store.pin(task, round, actor))
    }
    fn delete_task(&self, task: TaskId, actor: &str) -> Result<bool> {
        self.row(|| self.store.delete_task(task, actor))
    }
    fn scrub(&self) -> Result<()> {
        self.row(|| self.store.scrub())
    }
    fn sweep(&self) -> Result<()> {
        self.row(|| self.store.sweep())
    }
}

impl Blobs for Durable {
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored, BlobError> {
        self.blob(|| {
            let mut all = Vec::new();
            bytes.read_to_end(&mut all).unwrap();
            let stored = self.blobs.stage(attempt, name, &mut all.as_slice())?;
            if name == "model" {
                self.log().models.push((attempt, all));
            }
            Ok(stored)
        })
    }
    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<(), BlobError> {
        self.blob(|| self.blobs.publish(attempt, name, digest))
    }
    fn put(&self, bytes: &mut dyn Read) -> Result<Stored, BlobError> {
        self.blob(|| self.blobs.put(bytes))
    }
    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader, BlobError> {
        self.blobs.get(digest, offset)
    }
    fn list(&self) -> Result<Vec<Digest32>, BlobError> {
        self.blobs.list()
    }
    fn remove(&self, digest: &Digest32) -> Result<bool, BlobError> {
        self.blob(|| self.blobs.remove(digest))
    }
    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created, BlobError> {
        self.blob(|| self.blobs.create_head(task, round, bytes))
    }
    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>, BlobError> {
        self.blobs.head(task, round)
    }
    fn last_head(&self, task: TaskId) -> Result<Option<u64>, BlobError> {
        self.blobs.last_head(task)
    }
    fn staged(&self) -> Result<Vec<AttemptId>, BlobError> {
        self.blobs.staged()
    }
    fn sweep(&self, attempt: AttemptId) -> Result<(), BlobError> {
        self.blob(|| self.blobs.sweep(attempt))
    }
}

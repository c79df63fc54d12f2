//! A store and blobs whose writes pass a hook, which may refuse them, lose their answers, or do something else in between.

use std::io;
use std::io::Read;
use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};
use undertone_store::{
    AbandonReason, AbandonedRow, Admission, Admitted, AttemptId, AttemptRow, AttemptState, AuditRow,
    BlobError, BlobReader, Blobs, Created, Departure, DeviceRow, Enrolled, Enrolment, Histograms, Lease,
    LeaseRow, Membership, Millis, NewAttempt, NewProcess, NewTask, Outcome, Oversight, ProcessRow, Release,
    SessionId, SessionState, Store, StoreError, Stored, TaskId, TaskRow, Unpublished,
};

type Made<T> = Result<T, StoreError>;

/// The acts of a service that write, and the reading of an outcome, as they pass.
pub(crate) trait Hook: Send + Sync {
    /// Runs before an act. An error refuses the act, with nothing done.
    fn before(&self, act: &'static str) -> Result<(), String> {
        let _ = act;
        Ok(())
    }

    /// Runs after an act that succeeded. An error loses the answer of the act.
    fn after(&self, act: &'static str) -> Result<(), String> {
        let _ = act;
        Ok(())
    }

    /// Each release that is to be committed, before the hook of the act.
    fn release(&self, release: &Release) {
        let _ = release;
    }
}

/// A store behind a hook.
pub(crate) struct HookedStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) hook: Arc<dyn Hook>,
}

impl HookedStore {
    fn act<T>(&self, act: &'static str, run: impl FnOnce(&dyn Store) -> Made<T>) -> Made<T> {
        let lost = |reason| StoreError::Unavailable {
            place: "the store behind a hook".to_owned(),
            reason,
        };
        self.hook.before(act).map_err(lost)?;
        let made = run(self.inner.as_ref())?;
        self.hook.after(act).map_err(lost)?;
        Ok(made)
    }
}

impl Oversight for HookedStore {
    fn attempts(&self, task: TaskId, limit: u32) -> Made<Vec<AttemptRow>> {
        self.inner.attempts(task, limit)
    }
    fn leases(&self) -> Made<Vec<LeaseRow>> {
        self.inner.leases()
    }
    fn enrolments(&self, population: &str, from: u64) -> Made<Vec<(u64, u64)>> {
        self.inner.enrolments(population, from)
    }
    fn acts(&self, task: TaskId, limit: u32) -> Made<Vec<AuditRow>> {
        self.inner.acts(task, limit)
    }
    fn note_act(&self, task: TaskId, actor: &str, action: &str, note: &str) -> Made<()> {
        self.act("note_act", |store| store.note_act(task, actor, action, note))
    }
}

impl Store for HookedStore {
    fn now(&self) -> Millis {
        self.inner.now()
    }
    fn create_task(&self, task: &NewTask) -> Made<()> {
        self.act("create_task", |store| store.create_task(task))
    }
    fn task(&self, task: TaskId) -> Made<TaskRow> {
        self.inner.task(task)
    }
    fn tasks(&self) -> Made<Vec<TaskRow>> {
        self.inner.tasks()
    }
    fn set_state(&self, task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> Made<()> {
        self.act("set_state", |store| store.set_state(task, from, to, actor, note))
    }
    fn lease(&self, task: TaskId, process: &str, ttl: Millis) -> Made<Option<Lease>> {
        self.act("lease", |store| store.lease(task, process, ttl))
    }
    fn renew(&self, lease: &Lease, ttl: Millis) -> Made<Lease> {
        self.act("renew", |store| store.renew(lease, ttl))
    }
    fn hand_back(&self, lease: Lease) -> Made<()> {
        self.act("hand_back", |store| store.hand_back(lease))
    }
    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Made<AttemptId> {
        self.act("open_attempt", |store| store.open_attempt(lease, attempt))
    }
    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Made<()> {
        self.act("close_selection", |store| store.close_selection(lease, attempt))
    }
    fn admit(&self, admission: &Admission) -> Made<Admitted> {
        self.act("admit", |store| store.admit(admission))
    }
    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Made<()> {
        self.act("note_sessions", |store| store.note_sessions(states))
    }
    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Made<()> {
        self.act("reserve", |store| store.reserve(lease, attempt, included))
    }
    fn commit_release(&self, lease: &Lease, release: &Release) -> Made<()> {
        self.hook.release(release);
        self.act("commit_release", |store| store.commit_release(lease, release))
    }
    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Made<()> {
        self.act("abandon", |store| store.abandon(lease, attempt, reason, users))
    }
    fn outcome(&self, attempt: AttemptId) -> Made<Outcome> {
        self.act("outcome", |store| store.outcome(attempt))
    }
    fn open_attempt_of(&self, task: TaskId) -> Made<Option<(AttemptId, AttemptState)>> {
        self.inner.open_attempt_of(task)
    }
    fn round_opened(&self, task: TaskId, round: u64) -> Made<Option<Millis>> {
        self.inner.round_opened(task, round)
    }

    fn abandoned_since_release(&self, task: TaskId) -> Made<Vec<AbandonedRow>> {
        self.inner.abandoned_since_release(task)
    }
    fn unpublished(&self, task: TaskId) -> Made<Vec<Unpublished>> {
        self.inner.unpublished(task)
    }
    fn published(&self, task: TaskId, round: u64) -> Made<()> {
        self.act("published", |store| store.published(task, round))
    }
    fn may_serve(&self, blob: &Digest32) -> Made<bool> {
        self.inner.may_serve(blob)
    }
    fn ledger(&self, task: TaskId, from: u64) -> Made<Vec<Vec<u8>>> {
        self.inner.ledger(task, from)
    }
    fn end(&self, lease: &Lease, line: &[u8], digest: &str, previous: &str) -> Made<()> {
        self.act("end", |store| store.end(lease, line, digest, previous))
    }
    fn metrics(&self, task: TaskId) -> Made<Vec<Vec<u8>>> {
        self.inner.metrics(task)
    }
    fn append_metrics(&self, task: TaskId, line: &[u8]) -> Made<()> {
        self.act("append_metrics", |store| store.append_metrics(task, line))
    }
    fn observed(&self, task: TaskId) -> Made<Histograms> {
        self.inner.observed(task)
    }
    fn enrol(&self, enrolment: &Enrolment) -> Made<Enrolled> {
        self.act("enrol", |store| store.enrol(enrolment))
    }
    fn membership(&self, key: &Digest32, population: &str, person: &Digest32) -> Made<Membership> {
        self.inner.membership(key, population, person)
    }
    fn depart(&self, population: &str, person: &Digest32, how: Departure, actor: &str) -> Made<bool> {
        self.act("depart", |store| store.depart(population, person, how, actor))
    }
    fn device(&self, key: &Digest32) -> Made<Option<DeviceRow>> {
        self.inner.device(key)
    }
    fn revoke(&self, key: &Digest32, actor: &str) -> Made<()> {
        self.act("revoke", |store| store.revoke(key, actor))
    }
    fn spend(&self, session_key: &Digest32, until: Millis) -> Made<bool> {
        self.act("spend", |store| store.spend(session_key, until))
    }
    fn issue(&self, subject: &Digest32, window: u64, number: u32, limit: u32) -> Made<bool> {
        self.act("issue", |store| store.issue(subject, window, number, limit))
    }
    fn register(&self, process: &NewProcess) -> Made<u64> {
        self.act("register", |store| store.register(process))
    }
    fn beat(&self, process: &str, epoch: u64, roles: &str) -> Made<bool> {
        self.act("beat", |store| store.beat(process, epoch, roles))
    }
    fn retire(&self, process: &str, epoch: u64) -> Made<()> {
        self.act("retire", |store| store.retire(process, epoch))
    }
    fn processes(&self) -> Made<Vec<ProcessRow>> {
        self.inner.processes()
    }
    fn bar(&self, task: TaskId, user: ParticipantId, actor: &str) -> Made<bool> {
        self.act("bar", |store| store.bar(task, user, actor))
    }
    fn keep_pseudonym_key(&self, task: TaskId, sealed: &[u8]) -> Made<Vec<u8>> {
        self.act("keep_pseudonym_key", |store| {
            store.keep_pseudonym_key(task, sealed)
        })
    }
    fn pseudonym_key(&self, task: TaskId) -> Made<Option<Vec<u8>>> {
        self.inner.pseudonym_key(task)
    }
    fn forget_pseudonym_key(&self, task: TaskId, actor: &str) -> Made<bool> {
        self.act("forget_pseudonym_key", |store| {
            store.forget_pseudonym_key(task, actor)
        })
    }
    fn blobs_of(&self, task: TaskId) -> Made<Vec<Digest32>> {
        self.inner.blobs_of(task)
    }
    fn pin(&self, task: TaskId, round: Option<u64>, actor: &str) -> Made<bool> {
        self.act("pin", |store| store.pin(task, round, actor))
    }
    fn delete_task(&self, task: TaskId, actor: &str) -> Made<bool> {
        self.act("delete_task", |store| store.delete_task(task, actor))
    }
    fn scrub(&self) -> Made<()> {
        self.act("scrub", |store| store.scrub())
    }
    fn sweep(&self) -> Made<()> {
        self.act("sweep", |store| store.sweep())
    }
}

/// Blobs behind a hook.
pub(crate) struct HookedBlobs {
    pub(crate) inner: Arc<dyn Blobs>,
    pub(crate) hook: Arc<dyn Hook>,
}

impl HookedBlobs {
    fn act<T>(
        &self,
        act: &'static str,
        run: impl FnOnce(&dyn Blobs) -> Result<T, BlobError>,
    ) -> Result<T, BlobError> {
        let lost = |reason: String| BlobError::Io {
            action: "writing",
            path: "the blobs behind a hook".to_owned(),
            source: io::Error::new(io::ErrorKind::StorageFull, reason),
        };
        self.hook.before(act).map_err(lost)?;
        let made = run(self.inner.as_ref())?;
        self.hook.after(act).map_err(lost)?;
        Ok(made)
    }
}

impl Blobs for HookedBlobs {
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored, BlobError> {
        let act = match name {
            "state" => "stage_state",
            _ => "stage_model",
        };
        self.act(act, |blobs| blobs.stage(attempt, name, bytes))
    }
    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<(), BlobError> {
        self.act("publish", |blobs| blobs.publish(attempt, name, digest))
    }
    fn put(&self, bytes: &mut dyn Read) -> Result<Stored, BlobError> {
        self.act("put", |blobs| blobs.put(bytes))
    }
    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader, BlobError> {
        self.inner.get(digest, offset)
    }
    fn list(&self) -> Result<Vec<Digest32>, BlobError> {
        self.inner.list()
    }
    fn remove(&self, digest: &Digest32) -> Result<bool, BlobError> {
        self.act("remove", |blobs| blobs.remove(digest))
    }
    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created, BlobError> {
        self.act("create_head", |blobs| blobs.create_head(task, round, bytes))
    }
    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>, BlobError> {
        self.inner.head(task, round)
    }
    fn last_head(&self, task: TaskId) -> Result<Option<u64>, BlobError> {
        self.inner.last_head(task)
    }
    fn staged(&self) -> Result<Vec<AttemptId>, BlobError> {
        self.inner.staged()
    }
    fn sweep(&self, attempt: AttemptId) -> Result<(), BlobError> {
        self.act("sweep_staged", |blobs| blobs.sweep(attempt))
    }
}

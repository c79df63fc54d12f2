//! A store whose transactions are counted and timed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};
use undertone_store::{
    AbandonReason, AbandonedRow, Admission, Admitted, AttemptId, AttemptRow, AttemptState, AuditRow,
    Departure, DeviceRow, Enrolled, Enrolment, Histograms, Lease, LeaseRow, Membership, Millis, NewAttempt,
    NewProcess, NewTask, Outcome, Oversight, ProcessRow, Release, Result, SessionId, SessionState, Store,
    StoreError, TaskId, TaskRow, Unpublished,
};

use super::Metrics;
use crate::trouble::Troubles;

/// A store that reports its transactions. It changes nothing about them.
pub(crate) struct ObservedStore {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    troubles: Arc<Troubles>,
    /// The last attempt whose commit may or may not have been made.
    unknown: Mutex<Option<AttemptId>>,
}

impl ObservedStore {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, troubles: Arc<Troubles>) -> Self {
        Self {
            store,
            metrics,
            troubles,
            unknown: Mutex::default(),
        }
    }

    /// A transaction of the leader of a task, and the stage that its attempt enters by it.
    fn traced<T>(
        &self,
        task: TaskId,
        name: &'static str,
        stage: &'static str,
        transaction: impl FnOnce(&dyn Store) -> Result<T>,
    ) -> Result<T> {
        let (started, begun) = (Instant::now(), SystemTime::now());
        let result = transaction(self.store.as_ref());
        self.metrics.transaction(name, started.elapsed());
        self.lost(&result);
        let stage = result.is_ok().then_some(stage);
        self.metrics.traces().made(task, name, begun, stage);
        result
    }

    fn lost<T>(&self, result: &Result<T>) {
        self.troubles.stored(result);
        if matches!(result, Err(StoreError::Fenced { .. })) {
            self.metrics.lease_lost();
        }
    }
}

/// Transactions that are passed on: who causes them, and their signatures.
macro_rules! observed {
    ($($who:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)+) => {
        $(fn $name(&self, $($arg: $type),*) -> Result<$out> {
            let started = Instant::now();
            let result = self.store.$name($($arg),*);
            self.metrics.$who(stringify!($name), started.elapsed());
            self.lost(&result);
            result
        })+
    };
}

impl Store for ObservedStore {
    fn now(&self) -> Millis {
        self.store.now()
    }

    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Result<AttemptId> {
        let (started, begun) = (Instant::now(), SystemTime::now());
        let result = self.store.open_attempt(lease, attempt);
        self.metrics.transaction("open_attempt", started.elapsed());
        self.lost(&result);
        if result.is_ok() {
            self.metrics.opened(lease.task, self.now());
            let traces = self.metrics.traces();
            // The name of the task is read for a trace alone.
            if traces.wanted()
                && let Ok(row) = self.store.task(lease.task)
            {
                traces.opened(
                    lease.task,
                    &row.task.population,
                    &row.task.name,
                    attempt.round,
                    begun,
                );
            }
        }
        result
    }

    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()> {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if *unknown == Some(release.attempt) {
            self.metrics.retried();
        }
        let result = self.traced(lease.task, "commit_release", "publish", |store| {
            store.commit_release(lease, release)
        });
        *unknown = match &result {
            Err(StoreError::Unavailable { .. }) => Some(release.attempt),
            _ => None,
        };
        if result.is_ok() {
            self.metrics.ended(lease.task, "committed", self.now());
            self.metrics.funnels().ended(release.attempt, &release.included);
        }
        result
    }

    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Result<()> {
        let started = Instant::now();
        let result = self.store.abandon(lease, attempt, reason, users);
        self.metrics.transaction("abandon", started.elapsed());
        self.lost(&result);
        if result.is_ok() {
            self.metrics.ended(lease.task, name(reason), self.now());
            self.metrics.traces().ended(lease.task, Some(name(reason)));
            self.metrics.funnels().ended(attempt, &[]);
        }
        result
    }

    fn admit(&self, admission: &Admission) -> Result<Admitted> {
        let started = Instant::now();
        let result = self.store.admit(admission);
        self.metrics.device_transaction("admit", started.elapsed());
        self.lost(&result);
        if matches!(result, Ok(Admitted::Yes)) {
            let Admission {
                attempt,
                user,
                session,
                ..
            } = *admission;
            self.metrics.funnels().admitted(attempt, user, session);
        }
        result
    }

    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Result<()> {
        let started = Instant::now();
        let result = self.store.note_sessions(states);
        self.metrics
            .device_transaction("note_sessions", started.elapsed());
        self.lost(&result);
        if result.is_ok() {
            self.metrics.funnels().noted(states);
        }
        result
    }

    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Result<()> {
        self.traced(lease.task, "close_selection", "report", |store| {
            store.close_selection(lease, attempt)
        })
    }

    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Result<()> {
        self.traced(lease.task, "reserve", "release", |store| {
            store.reserve(lease, attempt, included)
        })
    }

    fn published(&self, task: TaskId, round: u64) -> Result<()> {
        let started = Instant::now();
        let result = self.store.published(task, round);
        self.metrics.transaction("published", started.elapsed());
        self.lost(&result);
        if result.is_ok() {
            self.metrics.traces().ended(task, None);
        }
        result
    }

    observed! {
        transaction create_task(task: &NewTask) -> ();
        transaction task(task: TaskId) -> TaskRow;
        transaction tasks() -> Vec<TaskRow>;
        transaction set_state(task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> ();
        transaction lease(task: TaskId, process: &str, ttl: Millis) -> Option<Lease>;
        transaction renew(lease: &Lease, ttl: Millis) -> Lease;
        transaction hand_back(lease: Lease) -> ();
        transaction outcome(attempt: AttemptId) -> Outcome;
        transaction open_attempt_of(task: TaskId) -> Option<(AttemptId, AttemptState)>;
        transaction round_opened(task: TaskId, round: u64) -> Option<Millis>;
        transaction abandoned_since_release(task: TaskId) -> Vec<AbandonedRow>;
        transaction unpublished(task: TaskId) -> Vec<Unpublished>;
        device_transaction may_serve(blob: &Digest32) -> bool;
        transaction ledger(task: TaskId, from: u64) -> Vec<Vec<u8>>;
        transaction end(lease: &Lease, line: &[u8], digest: &str, previous: &str) -> ();
        transaction metrics(task: TaskId) -> Vec<Vec<u8>>;
        transaction append_metrics(task: TaskId, line: &[u8]) -> ();
        transaction observed(task: TaskId) -> Histograms;
        device_transaction enrol(enrolment: &Enrolment) -> Enrolled;
        device_transaction membership(key: &Digest32, population: &str, person: &Digest32) -> Membership;
        transaction depart(population: &str, person: &Digest32, how: Departure, actor: &str) -> bool;
        device_transaction device(key: &Digest32) -> Option<DeviceRow>;
        transaction revoke(key: &Digest32, actor: &str) -> ();
        device_transaction spend(session_key: &Digest32, until: Millis) -> bool;
        device_transaction issue(subject: &Digest32, window: u64, number: u32, limit: u32) -> bool;
        transaction register(process: &NewProcess) -> u64;
        transaction beat(process: &str, epoch: u64, roles: &str) -> bool;
        transaction retire(process: &str, epoch: u64) -> ();
        transaction processes() -> Vec<ProcessRow>;
        transaction bar(task: TaskId, user: ParticipantId, actor: &str) -> bool;
        transaction keep_pseudonym_key(task: TaskId, sealed: &[u8]) -> Vec<u8>;
        transaction pseudonym_key(task: TaskId) -> Option<Vec<u8>>;
        transaction forget_pseudonym_key(task: TaskId, actor: &str) -> bool;
        transaction blobs_of(task: TaskId) -> Vec<Digest32>;
        transaction pin(task: TaskId, round: Option<u64>, actor: &str) -> bool;
        transaction delete_task(task: TaskId, actor: &str) -> bool;
        transaction sweep() -> ();
        transaction scrub() -> ();
    }
}

impl Oversight for ObservedStore {
    observed! {
        transaction attempts(task: TaskId, limit: u32) -> Vec<AttemptRow>;
        transaction leases() -> Vec<LeaseRow>;
        transaction enrolments(population: &str, from: u64) -> Vec<(u64, u64)>;
        transaction acts(task: TaskId, limit: u32) -> Vec<AuditRow>;
        transaction note_act(task: TaskId, actor: &str, action: &str, note: &str) -> ();
    }
}

/// The name of a reason, as labels and pages show it.
#[must_use]
pub fn name(reason: AbandonReason) -> &'static str {
    match reason {
        AbandonReason::Few => "few",
        AbandonReason::Deadline => "deadline",
        AbandonReason::Crash => "crash",
        AbandonReason::Fence => "fence",
        AbandonReason::Store => "store",
        AbandonReason::Network => "network",
        AbandonReason::Duplicate => "duplicate",
        AbandonReason::Protocol => "protocol",
        AbandonReason::Operator => "operator",
    }
}

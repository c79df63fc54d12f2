//! A store whose transactions are counted and timed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};
use undertone_store::{
    AbandonedAttempt, Admission, Admitted, AttemptId, AttemptState, DeviceRow, Histograms, Lease, Millis,
    NewAttempt, NewTask, Outcome, Reason, Release, Result, SessionId, SessionState, Store, StoreError,
    TaskId, TaskRow, Unpublished,
};

use super::Metrics;

/// A store that reports its transactions. It changes nothing about them.
pub(crate) struct ObservedStore {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    /// The last attempt whose commit may or may not have been made.
    unknown: Mutex<Option<AttemptId>>,
}

impl ObservedStore {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            metrics,
            unknown: Mutex::default(),
        }
    }

    fn lost<T>(&self, result: &Result<T>) {
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
        let started = Instant::now();
        let result = self.store.open_attempt(lease, attempt);
        self.metrics.transaction("open_attempt", started.elapsed());
        self.lost(&result);
        if result.is_ok() {
            self.metrics.opened(lease.task, self.now());
        }
        result
    }

    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()> {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if *unknown == Some(release.attempt) {
            self.metrics.retried();
        }
        let started = Instant::now();
        let result = self.store.commit_release(lease, release);
        self.metrics.transaction("commit_release", started.elapsed());
        self.lost(&result);
        *unknown = match &result {
            Err(StoreError::Unavailable { .. }) => Some(release.attempt),
            _ => None,
        };
        if result.is_ok() {
            self.metrics.ended(lease.task, "committed", self.now());
        }
        result
    }

    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: Reason,
        users: &[ParticipantId],
    ) -> Result<()> {
        let started = Instant::now();
        let result = self.store.abandon(lease, attempt, reason, users);
        self.metrics.transaction("abandon", started.elapsed());
        self.lost(&result);
        if result.is_ok() {
            self.metrics.ended(lease.task, name(reason), self.now());
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
        transaction close_selection(lease: &Lease, attempt: AttemptId) -> ();
        device_transaction admit(admission: &Admission) -> Admitted;
        device_transaction note_sessions(states: &[(SessionId, SessionState)]) -> ();
        transaction reserve(lease: &Lease, attempt: AttemptId, included: u64) -> ();
        transaction outcome(attempt: AttemptId) -> Outcome;
        transaction open_attempt_of(task: TaskId) -> Option<(AttemptId, AttemptState)>;
        transaction round_opened(task: TaskId, round: u64) -> Option<Millis>;
        transaction abandoned_since_release(task: TaskId) -> Vec<AbandonedAttempt>;
        transaction unpublished(task: TaskId) -> Vec<Unpublished>;
        transaction published(task: TaskId, round: u64) -> ();
        device_transaction may_serve(blob: &Digest32) -> bool;
        transaction ledger(task: TaskId, from: u64) -> Vec<Vec<u8>>;
        transaction end(lease: &Lease, line: &[u8], digest: &str, previous: &str) -> ();
        transaction metrics(task: TaskId) -> Vec<Vec<u8>>;
        transaction append_metrics(task: TaskId, line: &[u8]) -> ();
        transaction observed(task: TaskId) -> Histograms;
        device_transaction enrol(key: &Digest32, population: &str) -> DeviceRow;
        device_transaction device(key: &Digest32) -> Option<DeviceRow>;
        transaction revoke(key: &Digest32, actor: &str) -> ();
        device_transaction spend(session_key: &Digest32, until: Millis) -> bool;
        device_transaction issue(subject: &Digest32, window: u64, number: u32, limit: u32) -> bool;
        transaction sweep() -> ();
    }
}

fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Few => "few",
        Reason::Deadline => "deadline",
        Reason::Crash => "crash",
        Reason::Fence => "fence",
        Reason::Store => "store",
        Reason::Network => "network",
        Reason::Duplicate => "duplicate",
        Reason::Protocol => "protocol",
        Reason::Operator => "operator",
    }
}

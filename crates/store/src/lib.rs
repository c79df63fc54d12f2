#![doc = include_str!("../README.md")]
//!
//! # Map
//!
//! | item | what it holds |
//! |---|---|
//! | [`Store`], [`Oversight`] | one method per transaction: those of a service, and those of its operators |
//! | [`Sqlite`], [`Memory`], `Postgres` | the stores; `Postgres` needs the feature `postgres` |
//! | [`NewTask`], [`TaskRow`], [`Lease`] | tasks, and the process that leads one |
//! | [`NewAttempt`], [`AttemptState`], [`Outcome`], [`AbandonReason`] | attempts at a round |
//! | [`Admission`], [`Admitted`], [`SessionState`] | sessions of devices |
//! | [`Release`], [`Unpublished`], [`Histograms`] | released rounds, and the participation of users |
//! | [`Enrolment`], [`Membership`], [`Departure`] | devices, their subjects, and those that left |
//! | [`DeviceRow`], [`ProcessRow`], [`AuditRow`] | devices, processes, and the log of operators |
//! | [`Blobs`], [`FolderBlobs`], [`MemoryBlobs`], `S3Blobs` | files by their digest; `S3Blobs` needs the feature `s3` |
//! | [`is_lent`], [`is_private`] | the users who can reach secrets on a volume |
//! | [`Clock`], [`SystemClock`], [`ManualClock`] | the time of a store |
// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod audit;
mod blobs;
mod clock;
mod error;
mod failpoint;
mod memory;
mod names;
mod oversight;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod rules;
mod sql;
mod sqlite;
mod volume;

// Tests from within use the helpers of those from without, which name the crate.
#[cfg(test)]
extern crate self as undertone_store;
#[cfg(test)]
mod kill_tests;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod test_rows;

pub use audit::AuditRow;
pub use blobs::{BlobError, BlobReader, Blobs, Created, FolderBlobs, MAX_HEAD, MemoryBlobs, Stored};
#[cfg(feature = "s3")]
pub use blobs::{Credentials, Patience, S3Blobs};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Result, StoreError};
pub use memory::Memory;
pub use oversight::{AttemptRow, LeaseRow, Oversight};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
pub use rows::{
    AbandonedRow, Admission, Admitted, AttemptId, AttemptState, Departure, DeviceRow, Enrolled, Enrolment,
    Histograms, Lease, Membership, Millis, NewAttempt, NewProcess, NewTask, Outcome, ProcessRow, Quota,
    Release, SessionId, SessionLimits, SessionState, TaskHolder, TaskId, TaskRow, Unpublished,
};
pub use sqlite::Sqlite;
pub use undertone_coordinator::record::AbandonReason;
pub use volume::{is_lent, is_private};

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};

/// The state of a service. Each method is one transaction, which is made as a whole or not at all. Methods block; a caller in an
/// asynchronous program gives them a thread.
///
/// # Guarantee
/// [`commit_release`](Self::commit_release) is the only way to a new head of a task. It succeeds at most once per round, only
/// under the highest fence, and only for an attempt that was reserved under that fence. Its ledger line follows the last one, and
/// none of its users breaks the participation schema. Abandoned attempts count as participations in the same transaction
/// that abandons them.
pub trait Store: Oversight {
    /// The time of the store. Leases and holds are read against it alone.
    fn now(&self) -> Millis;

    /// Creates a task as a draft.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where the population has a task of this name.
    fn create_task(&self, task: &NewTask) -> Result<()>;

    /// A task.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn task(&self, task: TaskId) -> Result<TaskRow>;

    /// All tasks, in the order of their creation.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn tasks(&self) -> Result<Vec<TaskRow>>;

    /// Moves a task from one state to another, with a row of the audit log.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where its state is not `from`, where it has ended, and for another move than these. A draft becomes
    /// active, an active task pauses and goes on, and each of the three halts. A halted task goes on only with a note. Only
    /// [`end`](Self::end) completes a task.
    fn set_state(&self, task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> Result<()>;

    /// Leases a task for `ttl` milliseconds; `None` while another process holds it. A new lease adds 1 to the fence and abandons, in
    /// the same transaction, every attempt of the task that stands in [`AttemptState::Releasing`], with reason
    /// [`AbandonReason::Crash`]. The same process may lease again before its lease has ended: it then gets a new fence, too.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn lease(&self, task: TaskId, process: &str, ttl: Millis) -> Result<Option<Lease>>;

    /// Extends a lease to `ttl` milliseconds from now.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    fn renew(&self, lease: &Lease, ttl: Millis) -> Result<Lease>;

    /// Ends a lease, so that another process need not wait.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    fn hand_back(&self, lease: Lease) -> Result<()>;

    /// Opens the next attempt of the head round. It is durable before this returns.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] where the task is not active, its head is another round, all its rounds are
    /// released, or another attempt of it is open.
    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Result<AttemptId>;

    /// Ends the selection of an attempt: [`AttemptState::Selecting`] to [`AttemptState::Reporting`].
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`].
    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Result<()>;

    /// Admits a device to an attempt and opens its session, if its subject may take part. That needs no open session, the declared
    /// separation, fewer participations than the maximum, no departure, and a free place. A subject that was lost before it was ready may come
    /// again; in every other state a session is its subject's only one in the attempt. An attempt takes nobody after
    /// `select_until`, while its task is not active, and after the database was opened anew.
    ///
    /// A device that was revoked, and one whose subject takes part in the population no more, has no other answer than that, also where its
    /// check-in opened a session before. An admission that is refused changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Unavailable`].
    fn admit(&self, admission: &Admission) -> Result<Admitted>;

    /// Notes the states of sessions. A session that is lost before it was ready frees its place and the hold on its subject. States
    /// only move forward; a note that would move one back changes nothing. The same holds for [`SessionState::Included`], which
    /// only a commit sets, for sessions that are unknown, and for those of an attempt that has ended.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Result<()>;

    /// Reserves the release of an attempt: [`AttemptState::Selecting`] or [`AttemptState::Reporting`] to
    /// [`AttemptState::Releasing`]. It is durable before this returns.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] where the head is another round, the attempt has ended, or `included` is below
    /// the floor of the task. Also where the database was restarted since the attempt was opened, and for a halted task.
    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Result<()>;

    /// Commits a release: the line of the ledger, the model, the state of the noise, the participations, and the head of the task
    /// move together. It is durable before this returns. A repeated call with the same release succeeds and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`], also for fewer users than the floor, a digest that is not that of the line,
    /// and a halted task. [`StoreError::Refused`] for a user twice, in `included` and `lost` together, or one who breaks the schema.
    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()>;

    /// Abandons an attempt, and counts the participation of these users and of every session that was not lost before it was
    /// ready. A repeated call changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] for a committed attempt.
    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Result<()>;

    /// The end of an attempt, for a caller that does not know whether its transaction was made.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn outcome(&self, attempt: AttemptId) -> Result<Outcome>;

    /// The attempt of a task that has not ended.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn open_attempt_of(&self, task: TaskId) -> Result<Option<(AttemptId, AttemptState)>>;

    /// The time when the first attempt at a round was opened; `None` for a round without attempts.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn round_opened(&self, task: TaskId, round: u64) -> Result<Option<Millis>>;

    /// The attempts that were abandoned since the last release, in their order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn abandoned_since_release(&self, task: TaskId) -> Result<Vec<AbandonedRow>>;

    /// Committed models that are not published yet, in the order of their rounds.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn unpublished(&self, task: TaskId) -> Result<Vec<Unpublished>>;

    /// Marks the model after this number of rounds as published.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn published(&self, task: TaskId, round: u64) -> Result<()>;

    /// `true` if a published model of some task has this digest, or a task was created with it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn may_serve(&self, blob: &Digest32) -> Result<bool>;

    /// The lines of the ledger of a task from a sequence number on, without line feeds.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn ledger(&self, task: TaskId, from: u64) -> Result<Vec<Vec<u8>>>;

    /// Ends a task with a last line of its ledger: it moves to [`TaskState::Completed`] in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Conflict`] where it is a draft, has ended, an attempt is open, `digest` is not that of
    /// the line, or `previous` is not the end of its ledger.
    fn end(&self, lease: &Lease, line: &[u8], digest: &str, previous: &str) -> Result<()>;

    /// The lines of `metrics.jsonl`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn metrics(&self, task: TaskId) -> Result<Vec<Vec<u8>>>;

    /// Appends a line to `metrics.jsonl`, beside those of releases.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn append_metrics(&self, task: TaskId, line: &[u8]) -> Result<()>;

    /// The participations of the users of a task.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn observed(&self, task: TaskId) -> Result<Histograms>;

    /// Registers a device, if its subject may have one more. A repeated call gives the first row, which then knows its subject.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn enrol(&self, enrolment: &Enrolment) -> Result<Enrolled>;

    /// A device and the departure of its subject, by the hash of the subject in the population. It is one look at the database.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn membership(&self, key: &Digest32, population: &str, person: &Digest32) -> Result<Membership>;

    /// Notes the departure of a subject from a population, by the hash of the subject there: tasks of now and later, devices of now and
    /// later. `false` where that or more was done before. It is durable before this returns. The audit log does not name the subject.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn depart(&self, population: &str, person: &Digest32, how: Departure, actor: &str) -> Result<bool>;

    /// A device; `None` where it was never enrolled here.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn device(&self, key: &Digest32) -> Result<Option<DeviceRow>>;

    /// Revokes the key of a device, and withdraws the invitation of its subject, so that the same person enrols no other key by it.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn revoke(&self, key: &Digest32, actor: &str) -> Result<()>;

    /// Spends a session certificate, by the digest of its key: `false` where it was spent before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn spend(&self, session_key: &Digest32, until: Millis) -> Result<bool>;

    /// Counts one batch of session certificates against the subject's limit of a window: `false` where it would exceed `limit`. The
    /// row names neither a key nor a certificate.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn issue(&self, subject: &Digest32, window: u64, number: u32, limit: u32) -> Result<bool>;

    /// Registers a process, and returns its epoch. An earlier process of this name is replaced: its epoch is lower, and its
    /// [`beat`](Self::beat) fails from now on.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn register(&self, process: &NewProcess) -> Result<u64>;

    /// Notes a sign of life of a process, with the roles it takes new work for: `false` where a later process has its name, or where
    /// it was not registered.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn beat(&self, process: &str, epoch: u64, roles: &str) -> Result<bool>;

    /// Removes a process that ends by itself. Nothing is done where a later process has its name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn retire(&self, process: &str, epoch: u64) -> Result<()>;

    /// The registered processes, in the order of their names. Those that died are among them.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn processes(&self) -> Result<Vec<ProcessRow>>;

    /// Ends the participation of a subject in a task for good: no admission of it succeeds from now on. `false` where that was done
    /// before. It is durable before this returns. The audit log does not name the subject.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    fn bar(&self, task: TaskId, user: ParticipantId, actor: &str) -> Result<bool>;

    /// Keeps the sealed key of the pseudonyms of a task, and returns the one that is kept: the first that was given.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn keep_pseudonym_key(&self, task: TaskId, sealed: &[u8]) -> Result<Vec<u8>>;

    /// The sealed key of the pseudonyms of a task; `None` where there is none, or it was destroyed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn pseudonym_key(&self, task: TaskId) -> Result<Option<Vec<u8>>>;

    /// Destroys the key of the pseudonyms of a completed task, and deletes its rows about users and sessions. Histograms and ledger stay.
    /// `false` where all of that was done before.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Conflict`] for a task that is not completed.
    fn forget_pseudonym_key(&self, task: TaskId, actor: &str) -> Result<bool>;

    /// The blobs that a completed task alone names: its models, and the states of its noise.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Conflict`] for a task that is not completed.
    fn blobs_of(&self, task: TaskId) -> Result<Vec<Digest32>>;

    /// Lets the boards name an earlier release of a task for predictions, by the number of releases that made it, or the newest again with
    /// `None`. `false` where that was so before.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Conflict`] for a release that the task does not have.
    fn pin(&self, task: TaskId, round: Option<u64>, actor: &str) -> Result<bool>;

    /// Deletes the rows of a completed task but its settings, which count for the budget of its population. `false` where that was done
    /// before.
    ///
    /// # Errors
    /// The errors of [`blobs_of`](Self::blobs_of).
    fn delete_task(&self, task: TaskId, actor: &str) -> Result<bool>;

    /// Deletes sessions, counters, spent certificates and lost processes whose time has passed. The time of a session has passed seven
    /// days after the end of its attempt, and with the end of its task.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn sweep(&self) -> Result<()>;

    /// Removes what deleted rows have left in the files of the database. Other transactions wait meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], also while another program reads the files; nothing is lost then, and it can be called again.
    fn scrub(&self) -> Result<()>;
}

/// Kills the process if the environment names this fail point: for the tests of programs over a store.
#[cfg(feature = "failpoints")]
pub fn reach_fail_point(name: &str) {
    failpoint::reach(name);
}

/// Adds a line to the file that a variable of the environment names, if it names one: for the tests of programs over a store.
#[cfg(feature = "failpoints")]
pub fn note_for_tests(variable: &str, line: &str) {
    failpoint::note(variable, line);
}

//! A store over a database: every method is one transaction of the writer, or one snapshot of a reader.

use std::sync::{Mutex, PoisonError};

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};

use super::tasks::Line;
use super::writer::Durability::{Full, Normal};
use super::writer::{Driver, Durability, Writer};
use super::{Sql, Tx, admission, attempts, devices, facts, oversight, processes, release, subjects, tasks};
use crate::audit::AuditRow;
use crate::clock::after;
use crate::oversight::about;
use crate::{
    AbandonReason, AbandonedRow, Admission, Admitted, AttemptId, AttemptRow, AttemptState, Departure,
    DeviceRow, Enrolled, Enrolment, Histograms, Lease, LeaseRow, Membership, Millis, NewAttempt, NewProcess,
    NewTask, Outcome, Oversight, ProcessRow, Release, Result, SessionId, SessionState, Store, TaskId,
    TaskRow, Unpublished, rules,
};

/// Max number of reading connections that wait for the next reader. A new one reads the schema first, which costs as much as ten reads.
/// An admitted check-in needs none. Each connection that waits keeps pages in memory.
const MAX_IDLE_READERS: usize = 4;

/// The connections of a database.
pub(crate) trait Connect: Send + Sync {
    /// A new connection for reading.
    fn reader(&self) -> Result<Box<dyn Driver>>;

    /// The time of the store, without a transaction.
    fn now(&self) -> Millis;

    /// The database, for messages.
    fn place(&self) -> &str;
}

/// A database with its writer and its readers.
///
/// One thread writes. Transactions that wait for it are committed together, each undone alone where it fails. Readers never
/// wait for it.
pub(crate) struct Database {
    writer: Writer,
    readers: Mutex<Vec<Box<dyn Driver>>>,
    connect: Box<dyn Connect>,
}

/// A store over a database.
pub(crate) trait OverSql: Send + Sync {
    fn database(&self) -> &Database;

    /// Removes what deleted rows have left in the files.
    fn scrub_files(&self) -> Result<()>;
}

impl Database {
    pub(crate) fn start(writer: Box<dyn Driver>, connect: Box<dyn Connect>) -> Result<Self> {
        Ok(Self {
            writer: Writer::start(writer, connect.place())?,
            readers: Mutex::default(),
            connect,
        })
    }

    /// The audit log, in its order.
    pub(crate) fn audit(&self) -> Result<Vec<AuditRow>> {
        self.read(facts::audit)
    }

    /// Reads in one snapshot.
    pub(crate) fn read<T>(&self, read: impl Fn(&dyn Sql) -> Tx<T>) -> Result<T> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => self.connect.reader()?,
        };
        let place = self.connect.place();
        reader.begin_reading().map_err(|error| error.at(place))?;
        let found = read(reader.sql());
        // A connection whose snapshot did not end is not used again.
        if reader.undo().is_ok() && !reader.is_open() {
            let mut idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE_READERS {
                idle.push(reader);
            }
        }
        found.map_err(|error| error.at(place))
    }

    /// Writes in a transaction of the writer's thread, which may run it several times.
    pub(crate) fn write<T, F>(&self, durability: Durability, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&dyn Sql) -> Tx<T> + Send + 'static,
    {
        self.writer.run(durability, run)
    }

    /// Writes in a transaction that reads the clock when it runs.
    fn write_at<T, F>(&self, durability: Durability, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&dyn Sql, Millis) -> Tx<T> + Send + 'static,
    {
        self.writer.run(durability, move |conn| run(conn, conn.now()))
    }
}

impl<T: OverSql> Store for T {
    fn now(&self) -> Millis {
        self.database().connect.now()
    }

    fn create_task(&self, task: &NewTask) -> Result<()> {
        let task = task.clone();
        self.database()
            .write(Full, move |conn| tasks::create(conn, &task))
    }

    fn task(&self, task: TaskId) -> Result<TaskRow> {
        let found = self.database().read(|conn| facts::rows(conn, Some(task)))?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| rules::missing("task", task.to_string()))
    }

    fn tasks(&self) -> Result<Vec<TaskRow>> {
        self.database().read(|conn| facts::rows(conn, None))
    }

    fn set_state(&self, task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> Result<()> {
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.database().write_at(Full, move |conn, now| {
            tasks::set_state(conn, task, (from, to), (&actor, &note), now)
        })
    }

    fn lease(&self, task: TaskId, process: &str, ttl: Millis) -> Result<Option<Lease>> {
        let process = process.to_owned();
        self.database().write_at(Full, move |conn, now| {
            tasks::lease(conn, task, &process, ttl, now)
        })
    }

    fn renew(&self, lease: &Lease, ttl: Millis) -> Result<Lease> {
        let lease = lease.clone();
        self.database().write_at(Normal, move |conn, now| {
            let until = after(now, ttl);
            tasks::renew(conn, &lease, until)?;
            Ok(Lease {
                until,
                ..lease.clone()
            })
        })
    }

    fn hand_back(&self, lease: Lease) -> Result<()> {
        self.database()
            .write(Normal, move |conn| tasks::hand_back(conn, &lease))
    }

    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Result<AttemptId> {
        let (lease, attempt) = (lease.clone(), *attempt);
        self.database().write_at(Full, move |conn, now| {
            attempts::open(conn, &lease, &attempt, conn.start(), now)
        })
    }

    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Result<()> {
        let lease = lease.clone();
        self.database().write(Normal, move |conn| {
            attempts::close_selection(conn, &lease, attempt)
        })
    }

    fn admit(&self, admission: &Admission) -> Result<Admitted> {
        let admission = admission.clone();
        self.database().write_at(Normal, move |conn, now| {
            admission::admit(conn, &admission, conn.start(), now)
        })
    }

    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Result<()> {
        let states = states.to_vec();
        self.database()
            .write(Normal, move |conn| attempts::note_sessions(conn, &states))
    }

    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Result<()> {
        let lease = lease.clone();
        self.database().write(Full, move |conn| {
            attempts::reserve(conn, &lease, attempt, included, conn.start())
        })
    }

    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()> {
        let (lease, release) = (lease.clone(), release.clone());
        self.database().write_at(Full, move |conn, now| {
            release::commit(conn, &lease, &release, now)
        })
    }

    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Result<()> {
        let (lease, users) = (lease.clone(), users.to_vec());
        self.database().write_at(Full, move |conn, now| {
            attempts::abandon(conn, &lease, attempt, reason, &users, now)
        })
    }

    fn outcome(&self, attempt: AttemptId) -> Result<Outcome> {
        self.database().read(|conn| attempts::outcome(conn, attempt))
    }

    fn open_attempt_of(&self, task: TaskId) -> Result<Option<(AttemptId, AttemptState)>> {
        self.database().read(|conn| match facts::task_row(conn, task)? {
            Some(task) => Ok(facts::open_attempt(conn, task)?),
            None => Ok(None),
        })
    }

    fn round_opened(&self, task: TaskId, round: u64) -> Result<Option<Millis>> {
        self.database()
            .read(|conn| attempts::round_opened(conn, task, round))
    }

    fn abandoned_since_release(&self, task: TaskId) -> Result<Vec<AbandonedRow>> {
        self.database()
            .read(|conn| tasks::abandoned_since_release(conn, task))
    }

    fn unpublished(&self, task: TaskId) -> Result<Vec<Unpublished>> {
        self.database().read(|conn| tasks::unpublished(conn, task))
    }

    fn published(&self, task: TaskId, round: u64) -> Result<()> {
        // A server that lost the mark would refuse the model to devices, and its leader, which lives on, would not publish it again.
        self.database()
            .write(Full, move |conn| tasks::published(conn, task, round))
    }

    fn may_serve(&self, blob: &Digest32) -> Result<bool> {
        self.database().read(|conn| tasks::may_serve(conn, blob))
    }

    fn ledger(&self, task: TaskId, from: u64) -> Result<Vec<Vec<u8>>> {
        self.database().read(|conn| tasks::ledger(conn, task, from))
    }

    fn end(&self, lease: &Lease, line: &[u8], digest: &str, previous: &str) -> Result<()> {
        let (lease, bytes) = (lease.clone(), line.to_vec());
        let (digest, previous) = (digest.to_owned(), previous.to_owned());
        self.database().write_at(Full, move |conn, now| {
            let line = Line {
                round: None,
                bytes: &bytes,
                digest: &digest,
                previous: &previous,
            };
            tasks::end(conn, &lease, &line, now)
        })
    }

    fn metrics(&self, task: TaskId) -> Result<Vec<Vec<u8>>> {
        self.database().read(|conn| tasks::metrics(conn, task))
    }

    fn append_metrics(&self, task: TaskId, line: &[u8]) -> Result<()> {
        let line = line.to_vec();
        self.database()
            .write(Normal, move |conn| tasks::append_metrics(conn, task, &line))
    }

    fn observed(&self, task: TaskId) -> Result<Histograms> {
        self.database().read(|conn| tasks::observed(conn, task))
    }

    fn enrol(&self, enrolment: &Enrolment) -> Result<Enrolled> {
        let enrolment = enrolment.clone();
        self.database()
            .write_at(Normal, move |conn, now| devices::enrol(conn, &enrolment, now))
    }

    fn membership(&self, key: &Digest32, population: &str, person: &Digest32) -> Result<Membership> {
        self.database()
            .read(|conn| devices::membership(conn, key, population, person))
    }

    fn depart(&self, population: &str, person: &Digest32, how: Departure, actor: &str) -> Result<bool> {
        let (population, person, actor) = (population.to_owned(), *person, actor.to_owned());
        self.database().write_at(Full, move |conn, now| {
            subjects::depart(conn, &population, &person, how, &actor, now)
        })
    }

    fn device(&self, key: &Digest32) -> Result<Option<DeviceRow>> {
        self.database().read(|conn| devices::device(conn, key))
    }

    fn revoke(&self, key: &Digest32, actor: &str) -> Result<()> {
        let (key, actor) = (*key, actor.to_owned());
        self.database()
            .write_at(Full, move |conn, now| devices::revoke(conn, &key, &actor, now))
    }

    fn spend(&self, session_key: &Digest32, until: Millis) -> Result<bool> {
        let key = *session_key;
        self.database()
            .write(Normal, move |conn| devices::spend(conn, &key, until))
    }

    fn issue(&self, subject: &Digest32, window: u64, number: u32, limit: u32) -> Result<bool> {
        let subject = *subject;
        self.database().write_at(Normal, move |conn, now| {
            devices::issue(conn, &subject, window, (number, limit), now)
        })
    }

    fn register(&self, process: &NewProcess) -> Result<u64> {
        let process = process.clone();
        self.database()
            .write_at(Normal, move |conn, now| processes::register(conn, &process, now))
    }

    fn beat(&self, process: &str, epoch: u64, roles: &str) -> Result<bool> {
        let (process, roles) = (process.to_owned(), roles.to_owned());
        self.database().write_at(Normal, move |conn, now| {
            processes::beat(conn, &process, epoch, &roles, now)
        })
    }

    fn retire(&self, process: &str, epoch: u64) -> Result<()> {
        let process = process.to_owned();
        self.database()
            .write(Normal, move |conn| processes::retire(conn, &process, epoch))
    }

    fn processes(&self) -> Result<Vec<ProcessRow>> {
        self.database().read(processes::rows)
    }

    fn bar(&self, task: TaskId, user: ParticipantId, actor: &str) -> Result<bool> {
        let actor = actor.to_owned();
        self.database().write_at(Full, move |conn, now| {
            subjects::bar(conn, task, user, &actor, now)
        })
    }

    fn keep_pseudonym_key(&self, task: TaskId, sealed: &[u8]) -> Result<Vec<u8>> {
        let sealed = sealed.to_vec();
        self.database().write(Full, move |conn| {
            subjects::keep_pseudonym_key(conn, task, &sealed)
        })
    }

    fn pseudonym_key(&self, task: TaskId) -> Result<Option<Vec<u8>>> {
        self.database().read(|conn| subjects::pseudonym_key(conn, task))
    }

    fn forget_pseudonym_key(&self, task: TaskId, actor: &str) -> Result<bool> {
        let actor = actor.to_owned();
        self.database().write_at(Full, move |conn, now| {
            subjects::forget_pseudonym_key(conn, task, &actor, now)
        })
    }

    fn blobs_of(&self, task: TaskId) -> Result<Vec<Digest32>> {
        self.database().read(|conn| tasks::blobs_of(conn, task))
    }

    fn pin(&self, task: TaskId, round: Option<u64>, actor: &str) -> Result<bool> {
        let actor = actor.to_owned();
        self.database()
            .write_at(Full, move |conn, now| tasks::pin(conn, task, round, &actor, now))
    }

    fn delete_task(&self, task: TaskId, actor: &str) -> Result<bool> {
        let actor = actor.to_owned();
        self.database()
            .write_at(Full, move |conn, now| tasks::delete(conn, task, &actor, now))
    }

    fn sweep(&self) -> Result<()> {
        let now = Store::now(self);
        let old = self.database().read(|conn| attempts::to_sweep(conn, now))?;
        // One transaction per attempt, so that no admission waits for all of them.
        for attempt in old {
            self.database()
                .write(Normal, move |conn| attempts::sweep(conn, attempt))?;
        }
        self.database()
            .write(Normal, move |conn| devices::sweep(conn, now))?;
        self.database()
            .write(Normal, move |conn| processes::sweep(conn, now))
    }

    fn scrub(&self) -> Result<()> {
        self.scrub_files()
    }
}

impl<T: OverSql> Oversight for T {
    fn attempts(&self, task: TaskId, limit: u32) -> Result<Vec<AttemptRow>> {
        self.database()
            .read(|conn| oversight::attempts(conn, task, limit))
    }

    fn leases(&self) -> Result<Vec<LeaseRow>> {
        let now = Store::now(self);
        self.database().read(|conn| oversight::leases(conn, now))
    }

    fn enrolments(&self, population: &str, from: u64) -> Result<Vec<(u64, u64)>> {
        self.database()
            .read(|conn| oversight::enrolments(conn, population, from))
    }

    fn acts(&self, task: TaskId, limit: u32) -> Result<Vec<AuditRow>> {
        self.database().read(|conn| oversight::acts(conn, task, limit))
    }

    fn note_act(&self, task: TaskId, actor: &str, action: &str, note: &str) -> Result<()> {
        let (actor, action) = (actor.to_owned(), action.to_owned());
        let detail = format!("{}{note}", about(task));
        self.database().write_at(Full, move |conn, now| {
            facts::note(conn, now, &actor, &action, &detail)
        })
    }
}

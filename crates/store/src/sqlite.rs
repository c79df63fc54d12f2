//! A store in a file of SQLite.

mod admission;
mod attempts;
mod devices;
mod facts;
mod lock;
mod release;
mod schema;
mod tasks;
mod tx;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, TaskState};

use self::lock::Lock;
use self::tasks::Line;
use self::tx::{Bits, Time, Tx, one, sql_error};
use self::writer::Durability::{Full, Normal};
use self::writer::{Durability, Writer};
use crate::audit::AuditRow;
use crate::clock::{Clock, SystemClock, Watch, after};
use crate::{
    AbandonedAttempt, Admission, Admitted, AttemptId, AttemptState, DeviceRow, Histograms, Lease, Millis,
    NewAttempt, NewTask, Outcome, Reason, Release, Result, SessionId, SessionState, Store, StoreError,
    TaskId, TaskRow, Unpublished, rules,
};

/// Max number of reading connections that wait for the next reader.
const MAX_IDLE_READERS: usize = 4;

/// The max time for which a transaction waits for another program that has the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// Memory of the writer for pages, in KiB. An admission reads and writes pages all over the file.
const CACHE_KIB: i64 = 64 << 10;

/// Pages of the log at which they are copied to the file: 16 MiB. A copy costs two syncs.
const CHECKPOINT_PAGES: i64 = 4_000;

/// A store in a file of SQLite, for one process.
///
/// # Guarantee
/// Transactions of the durability table survive a loss of power once they have answered: new tasks, moves of a task, leases,
/// attempts, reservations, commits, abandonments, ends and revocations. The rest survives the end of the process. A loss of power
/// may undo the latest of it, but never a part of a transaction; an attempt that was open then can only be abandoned.
///
/// One thread writes. Transactions that wait for it are committed together, each undone alone where it fails. Readers never
/// wait for it.
pub struct Sqlite {
    // Dropped first: the lock is the last thing to go.
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    path: std::path::PathBuf,
    place: String,
    start: u64,
    watch: Arc<Watch>,
    _lock: Lock,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a database by the clock of the machine, and creates it where there is none.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while another process has it; [`StoreError::Schema`] for another version of the schema;
    /// [`StoreError::Damaged`] for a file of another program; [`StoreError::Unavailable`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::with_clock(path, Arc::new(SystemClock))
    }

    /// Opens a database by this clock.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn with_clock(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let place = path.display().to_string();
        let lock = Lock::take(path)?;
        lock::create_private(path)?;
        let conn = connect(path, &place)?;
        let sql = |error: rusqlite::Error| sql_error(&error, &place);
        conn.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
        let mode: String = conn
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
            .map_err(sql)?;
        if mode != "wal" {
            return Err(StoreError::Unavailable {
                reason: format!("expected the journal mode wal, got {mode}; keep it on a local disk"),
                place,
            });
        }
        conn.pragma_update(None, "cache_size", -CACHE_KIB).map_err(sql)?;
        conn.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)
            .map_err(sql)?;
        schema::open(&conn, &place)?;
        let start = begin(&conn).map_err(sql)?;
        lock::sync_folder(path)?;
        Ok(Self {
            writer: Writer::start(conn, &place)?,
            readers: Mutex::default(),
            path: path.to_owned(),
            place,
            start,
            watch: Arc::new(Watch::new(clock)),
            _lock: lock,
        })
    }

    /// Brings a database of an older version to the present schema. Keep a copy of the file before.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open). [`StoreError::Schema`] comes for a newer version alone.
    pub fn migrate(path: &Path) -> Result<()> {
        let place = path.display().to_string();
        let _lock = Lock::take(path)?;
        if !path.exists() {
            return Err(rules::missing("database", place));
        }
        schema::migrate(&connect(path, &place)?, &place)
    }

    /// The path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The audit log, in its order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn audit(&self) -> Result<Vec<AuditRow>> {
        self.read(facts::audit)
    }

    /// Reads in one snapshot.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Tx<T>) -> Result<T> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.reader()?,
        };
        let snapshot = conn.unchecked_transaction().map_err(tx::TxError::from);
        let found = snapshot.and_then(|_snapshot| read(&conn));
        // A connection whose snapshot did not end is not used again.
        if conn.is_autocommit() {
            let mut idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE_READERS {
                idle.push(conn);
            }
        }
        found.map_err(|error| error.at(&self.place))
    }

    fn reader(&self) -> Result<Connection> {
        let conn = connect(&self.path, &self.place)?;
        conn.pragma_update(None, "query_only", true)
            .map_err(|error| sql_error(&error, &self.place))?;
        Ok(conn)
    }

    /// Writes in a transaction of the writer's thread.
    fn write<T, F>(&self, durability: Durability, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Tx<T> + Send + 'static,
    {
        self.writer.run(durability, run)
    }

    /// Writes in a transaction that reads the clock when it runs.
    fn write_at<T, F>(&self, durability: Durability, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Millis) -> Tx<T> + Send + 'static,
    {
        let watch = Arc::clone(&self.watch);
        self.writer.run(durability, move |conn| run(conn, watch.now()))
    }
}

fn connect(path: &Path, place: &str) -> Result<Connection> {
    let sql = |error: rusqlite::Error| sql_error(&error, place);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sql)?;
    conn.busy_timeout(BUSY).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(64);
    conn.pragma_update(None, "foreign_keys", true).map_err(sql)?;
    conn.pragma_update(None, "trusted_schema", false).map_err(sql)?;
    conn.pragma_update(None, "temp_store", "MEMORY").map_err(sql)?;
    Ok(conn)
}

/// Counts this opening of the database. Attempts of earlier ones can only be abandoned.
fn begin(conn: &Connection) -> rusqlite::Result<u64> {
    let sql = "INSERT INTO database VALUES (1, 1, randomblob(32)) \
         ON CONFLICT (one) DO UPDATE SET starts = starts + 1 RETURNING starts";
    one::<Bits>(conn, sql, []).map(|Bits(starts)| starts)
}

impl Store for Sqlite {
    fn now(&self) -> Millis {
        self.watch.now()
    }

    fn create_task(&self, task: &NewTask) -> Result<()> {
        let task = task.clone();
        self.write(Full, move |conn| tasks::create(conn, &task))
    }

    fn task(&self, task: TaskId) -> Result<TaskRow> {
        let found = self.read(|conn| facts::rows(conn, Some(task)))?;
        found
            .into_iter()
            .next()
            .ok_or_else(|| rules::missing("task", task.to_string()))
    }

    fn tasks(&self) -> Result<Vec<TaskRow>> {
        self.read(|conn| facts::rows(conn, None))
    }

    fn set_state(&self, task: TaskId, from: TaskState, to: TaskState, actor: &str, note: &str) -> Result<()> {
        let (actor, note) = (actor.to_owned(), note.to_owned());
        self.write_at(Full, move |conn, now| {
            tasks::set_state(conn, task, (from, to), (&actor, &note), now)
        })
    }

    fn lease(&self, task: TaskId, process: &str, ttl: Millis) -> Result<Option<Lease>> {
        let process = process.to_owned();
        self.write_at(Full, move |conn, now| {
            tasks::lease(conn, task, &process, ttl, now)
        })
    }

    fn renew(&self, lease: &Lease, ttl: Millis) -> Result<Lease> {
        let lease = lease.clone();
        self.write_at(Normal, move |conn, now| {
            let until = after(now, ttl);
            tasks::renew(conn, &lease, until)?;
            Ok(Lease { until, ..lease })
        })
    }

    fn hand_back(&self, lease: Lease) -> Result<()> {
        self.write(Normal, move |conn| tasks::hand_back(conn, &lease))
    }

    fn open_attempt(&self, lease: &Lease, attempt: &NewAttempt) -> Result<AttemptId> {
        let (lease, attempt, start) = (lease.clone(), *attempt, self.start);
        self.write_at(Full, move |conn, now| {
            attempts::open(conn, &lease, &attempt, start, now)
        })
    }

    fn close_selection(&self, lease: &Lease, attempt: AttemptId) -> Result<()> {
        let lease = lease.clone();
        self.write(Normal, move |conn| {
            attempts::close_selection(conn, &lease, attempt)
        })
    }

    fn admit(&self, admission: &Admission) -> Result<Admitted> {
        let start = self.start;
        let admission = admission.clone();
        self.write_at(Normal, move |conn, now| {
            admission::admit(conn, &admission, start, now)
        })
    }

    fn note_sessions(&self, states: &[(SessionId, SessionState)]) -> Result<()> {
        let states = states.to_vec();
        self.write(Normal, move |conn| attempts::note_sessions(conn, &states))
    }

    fn reserve(&self, lease: &Lease, attempt: AttemptId, included: u64) -> Result<()> {
        let (lease, start) = (lease.clone(), self.start);
        self.write(Full, move |conn| {
            attempts::reserve(conn, &lease, attempt, included, start)
        })
    }

    fn commit_release(&self, lease: &Lease, release: &Release) -> Result<()> {
        let (lease, release) = (lease.clone(), release.clone());
        self.write_at(Full, move |conn, now| {
            release::commit(conn, &lease, &release, now)
        })
    }

    fn abandon(
        &self,
        lease: &Lease,
        attempt: AttemptId,
        reason: Reason,
        users: &[ParticipantId],
    ) -> Result<()> {
        let (lease, users) = (lease.clone(), users.to_vec());
        self.write_at(Full, move |conn, now| {
            attempts::abandon(conn, &lease, attempt, reason, &users, now)
        })
    }

    fn outcome(&self, attempt: AttemptId) -> Result<Outcome> {
        self.read(|conn| attempts::outcome(conn, attempt))
    }

    fn open_attempt_of(&self, task: TaskId) -> Result<Option<(AttemptId, AttemptState)>> {
        self.read(|conn| match facts::task_row(conn, task)? {
            Some(task) => Ok(facts::open_attempt(conn, task)?),
            None => Ok(None),
        })
    }

    fn abandoned_since_release(&self, task: TaskId) -> Result<Vec<AbandonedAttempt>> {
        self.read(|conn| tasks::abandoned_since_release(conn, task))
    }

    fn unpublished(&self, task: TaskId) -> Result<Vec<Unpublished>> {
        self.read(|conn| tasks::unpublished(conn, task))
    }

    fn published(&self, task: TaskId, round: u64) -> Result<()> {
        self.write(Normal, move |conn| tasks::published(conn, task, round))
    }

    fn may_serve(&self, blob: &Digest32) -> Result<bool> {
        self.read(|conn| tasks::may_serve(conn, blob))
    }

    fn ledger(&self, task: TaskId, from: u64) -> Result<Vec<Vec<u8>>> {
        self.read(|conn| tasks::ledger(conn, task, from))
    }

    fn end(&self, lease: &Lease, line: &[u8], digest: &str, previous: &str) -> Result<()> {
        let (lease, bytes) = (lease.clone(), line.to_vec());
        let (digest, previous) = (digest.to_owned(), previous.to_owned());
        self.write_at(Full, move |conn, now| {
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
        self.read(|conn| tasks::metrics(conn, task))
    }

    fn append_metrics(&self, task: TaskId, line: &[u8]) -> Result<()> {
        let line = line.to_vec();
        self.write(Normal, move |conn| tasks::append_metrics(conn, task, &line))
    }

    fn observed(&self, task: TaskId) -> Result<Histograms> {
        self.read(|conn| tasks::observed(conn, task))
    }

    fn enrol(&self, key: &Digest32, population: &str) -> Result<DeviceRow> {
        let (key, population) = (*key, population.to_owned());
        self.write_at(Normal, move |conn, now| {
            devices::enrol(conn, &key, &population, now)
        })
    }

    fn device(&self, key: &Digest32) -> Result<Option<DeviceRow>> {
        self.read(|conn| devices::device(conn, key))
    }

    fn revoke(&self, key: &Digest32, actor: &str) -> Result<()> {
        let (key, actor) = (*key, actor.to_owned());
        self.write_at(Full, move |conn, now| devices::revoke(conn, &key, &actor, now))
    }

    fn spend(&self, session_key: &Digest32, until: Millis) -> Result<bool> {
        let key = *session_key;
        self.write(Normal, move |conn| devices::spend(conn, &key, until))
    }

    fn issue(&self, subject: &Digest32, window: u64, number: u32, limit: u32) -> Result<bool> {
        let subject = *subject;
        self.write_at(Normal, move |conn, now| {
            devices::issue(conn, &subject, window, (number, limit), now)
        })
    }

    fn sweep(&self) -> Result<()> {
        let now = self.now();
        if let Some(until) = now.checked_sub(rules::KEEP_SESSIONS) {
            let sql = "SELECT id FROM attempts WHERE swept = 0 AND closed <= ?1";
            let old: Vec<i64> = self.read(|conn| Ok(tx::all(conn, sql, [Time(until)], |row| row.get(0))?))?;
            // One transaction per attempt, so that no admission waits for all of them.
            for attempt in old {
                self.write(Normal, move |conn| attempts::sweep(conn, attempt))?;
            }
        }
        self.write(Normal, move |conn| devices::sweep(conn, now))
    }
}

#[cfg(test)]
mod tests;

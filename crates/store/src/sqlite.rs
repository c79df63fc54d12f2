//! A store in a file of SQLite.

mod driver;
mod lock;
mod schema;

#[cfg(feature = "postgres")]
pub(crate) use driver::cell;
#[cfg(feature = "postgres")]
pub(crate) use schema::{HASHED, MIGRATIONS, VERSION};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use self::driver::{SqliteDriver, failure};
use self::lock::Lock;
use crate::audit::AuditRow;
use crate::clock::{Clock, SystemClock, Watch};
use crate::sql::database::{Connect, Database, OverSql};
use crate::sql::writer::Driver;
use crate::{Millis, Result, StoreError, rules};

/// The max time for which a transaction waits for another program that has the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// Memory of the writer for pages, in KiB. An admission reads and writes pages all over the file, which the system caches anyway: 64 MiB
/// here were no faster, and made the memory of a server grow with its database.
const CACHE_KIB: i64 = 2 << 10;

/// Pages of the log at which they are copied to the file: 16 MiB. A copy costs two syncs.
const CHECKPOINT_PAGES: i64 = 4_000;

/// A store in a file of SQLite, for one process.
///
/// # Guarantee
/// Transactions of the durability table survive a loss of power once they have answered: new tasks, moves of a task, leases,
/// attempts, reservations, commits, abandonments, ends and revocations. The rest survives the end of the process. A loss of power
/// may undo the latest of it, but never a part of a transaction; an attempt that was open then can only be abandoned.
pub struct Sqlite {
    // Dropped first: the lock is the last thing to go.
    database: Database,
    path: PathBuf,
    place: String,
    _lock: Lock,
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl OverSql for Sqlite {
    fn database(&self) -> &Database {
        &self.database
    }

    fn scrub_files(&self) -> Result<()> {
        scrub(&connect(&self.path, &self.place)?, &self.place)
    }
}

/// Writes every page of a database anew, and empties its log.
///
/// PRIVACY: deleted rows are overwritten at once, but the log keeps the pages before, and a page that was split may keep a copy.
fn scrub(conn: &Connection, place: &str) -> Result<()> {
    let sql = |error: rusqlite::Error| sql_error(&error, place);
    conn.execute_batch("VACUUM").map_err(sql)?;
    let busy: bool = conn
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(sql)?;
    match busy {
        false => Ok(()),
        true => Err(StoreError::Unavailable {
            place: place.to_owned(),
            reason: "another program reads it, so its log still holds deleted rows; try again when that program has ended"
                .to_owned(),
        }),
    }
}

/// The connections to a file.
struct File {
    path: PathBuf,
    place: String,
    watch: Arc<Watch>,
    start: u64,
}

impl Connect for File {
    fn reader(&self) -> Result<Box<dyn Driver>> {
        let conn = connect(&self.path, &self.place)?;
        conn.pragma_update(None, "query_only", true)
            .map_err(|error| sql_error(&error, &self.place))?;
        let watch = Arc::clone(&self.watch);
        Ok(Box::new(SqliteDriver::new(conn, watch, self.start)))
    }

    fn now(&self) -> Millis {
        self.watch.now()
    }

    fn place(&self) -> &str {
        &self.place
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
        let watch = Arc::new(Watch::new(clock));
        let driver = SqliteDriver::new(conn, Arc::clone(&watch), start);
        let file = File {
            path: path.to_owned(),
            place: place.clone(),
            watch,
            start,
        };
        Ok(Self {
            database: Database::start(Box::new(driver), Box::new(file))?,
            path: path.to_owned(),
            place,
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
        let conn = connect(path, &place)?;
        schema::migrate(&conn, &place)?;
        scrub(&conn, &place)
    }

    /// Writes a snapshot of a database to a new file, also while a process has the database open. The snapshot is one moment: whole
    /// transactions, and none of a later one.
    ///
    /// # Errors
    /// [`StoreError::Missing`] without a database; [`StoreError::Unavailable`], also for a file that exists.
    pub fn copy(path: &Path, to: &Path) -> Result<()> {
        let place = path.display().to_string();
        if !path.exists() {
            return Err(rules::missing("database", place));
        }
        let conn = connect(path, &place)?;
        conn.execute("VACUUM INTO ?1", [to.display().to_string()])
            .map_err(|error| sql_error(&error, &to.display().to_string()))?;
        Ok(())
    }

    /// The audit log, in its order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn audit(&self) -> Result<Vec<AuditRow>> {
        self.database.audit()
    }

    /// The path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

pub(crate) fn sql_error(error: &rusqlite::Error, place: &str) -> StoreError {
    match failure(error).at(place) {
        StoreError::Damaged { reason, .. } => StoreError::Damaged {
            what: format!("the file {place}"),
            reason,
        },
        other => other,
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
    // PRIVACY: a destroyed key must not stay in a free part of the file.
    conn.pragma_update(None, "secure_delete", true).map_err(sql)?;
    Ok(conn)
}

/// Counts this opening of the database. Attempts of earlier ones can only be abandoned.
fn begin(conn: &Connection) -> rusqlite::Result<u64> {
    let sql = "INSERT INTO database VALUES (1, 1, randomblob(32)) \
         ON CONFLICT (one) DO UPDATE SET starts = starts + 1 RETURNING starts";
    conn.query_row(sql, [], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

#[cfg(test)]
mod tests;

//! A connection to a file of SQLite.

use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql};

use crate::Millis;
use crate::clock::Watch;
use crate::sql::value::Param;
use crate::sql::writer::{Driver, Durability};
use crate::sql::{Answer, Cell, Found, Sql, SqlError};

/// A connection with the clock of the store.
pub(super) struct SqliteDriver {
    pub(super) conn: Connection,
    pub(super) watch: Arc<Watch>,
    pub(super) start: u64,
    /// The setting of the connection; `None` before the first transaction.
    synchronous: Option<Durability>,
    /// Set for good after a failed sync: the file may then hold less than this process reads.
    failed: Option<String>,
}

impl SqliteDriver {
    pub(super) fn new(conn: Connection, watch: Arc<Watch>, start: u64) -> Self {
        Self {
            conn,
            watch,
            start,
            synchronous: None,
            failed: None,
        }
    }

    fn batch(&self, sql: &str) -> Found<()> {
        let run = || self.conn.prepare_cached(sql)?.execute([]).map(drop);
        run().map_err(|error| failure(&error))
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match *self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Integer(number) => ToSqlOutput::Owned(Value::Integer(number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

pub(crate) fn cell(value: ValueRef<'_>) -> Found<Cell> {
    let damaged = |reason: &str| SqlError::Damaged {
        what: "a value".to_owned(),
        reason: reason.to_owned(),
    };
    Ok(match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(_) => return Err(damaged("expected no fraction, got one")),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|_| damaged("expected UTF-8"))?;
            Cell::Text(text.to_owned())
        }
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    })
}

/// A failure of SQLite.
pub(super) fn failure(error: &rusqlite::Error) -> SqlError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => SqlError::Damaged {
            what: "the file".to_owned(),
            reason: error.to_string(),
        },
        _ => SqlError::Failed(error.to_string()),
    }
}

impl Sql for SqliteDriver {
    fn run(&self, sql: &str, params: &[Param<'_>]) -> Found<Answer> {
        let mut statement = self.conn.prepare_cached(sql).map_err(|error| failure(&error))?;
        let params = rusqlite::params_from_iter(params);
        let width = statement.column_count();
        if width == 0 {
            let changed = statement.execute(params).map_err(|error| failure(&error))? as u64;
            return Ok(Answer {
                changed,
                ..Answer::default()
            });
        }
        let columns = statement.column_names().map(str::to_owned).collect();
        let mut found = statement.query(params).map_err(|error| failure(&error))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next().map_err(|error| failure(&error))? {
            let cells = (0..width).map(|place| {
                let value = row.get_ref(place).map_err(|error| failure(&error))?;
                cell(value)
            });
            rows.push(cells.collect::<Found<Vec<Cell>>>()?);
        }
        Ok(Answer {
            columns,
            changed: rows.len() as u64,
            rows,
        })
    }

    fn now(&self) -> Millis {
        self.watch.now()
    }

    fn start(&self) -> u64 {
        self.start
    }
}

impl Driver for SqliteDriver {
    fn begin(&mut self, durability: Durability) -> Found<()> {
        if let Some(reason) = &self.failed {
            return Err(SqlError::Failed(format!("{reason}; open the database anew")));
        }
        if self.synchronous != Some(durability) {
            // Outside a transaction, where alone it takes effect.
            self.synchronous = None;
            let setting = match durability {
                Durability::Full => "FULL",
                Durability::Normal => "NORMAL",
            };
            self.conn
                .pragma_update(None, "synchronous", setting)
                .map_err(|error| failure(&error))?;
            self.synchronous = Some(durability);
        }
        self.batch("BEGIN IMMEDIATE")
    }

    fn commit(&mut self) -> Found<()> {
        self.conn.execute_batch("COMMIT").map_err(|error| {
            if is_failed_sync(&error) {
                self.failed = Some(format!("a sync of the database failed: {error}"));
            }
            failure(&error)
        })
    }

    fn undo(&mut self) -> Found<()> {
        let undone = self.batch("ROLLBACK");
        if let Err(error) = &undone {
            self.failed
                .get_or_insert(format!("undoing a transaction: {error:?}"));
        }
        undone
    }

    fn begin_part(&mut self) -> Found<()> {
        self.batch("SAVEPOINT one")
    }

    fn end_part(&mut self, keep: bool) -> Found<()> {
        if !keep {
            self.batch("ROLLBACK TO one")?;
        }
        self.batch("RELEASE one")
    }

    fn is_open(&self) -> bool {
        !self.conn.is_autocommit()
    }

    fn begin_reading(&mut self) -> Found<()> {
        self.batch("BEGIN")
    }

    fn sql(&self) -> &dyn Sql {
        self
    }
}

/// `true` if the operating system could not make a file durable. A later sync may then succeed without the lost pages.
fn is_failed_sync(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;
    use crate::clock::SystemClock;

    fn failing(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn a_failed_sync_is_no_full_disk() {
        assert!(is_failed_sync(&failing(ffi::SQLITE_IOERR_FSYNC)));
        assert!(is_failed_sync(&failing(ffi::SQLITE_IOERR_DIR_FSYNC)));
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_BUSY] {
            assert!(!is_failed_sync(&failing(code)));
        }
    }

    #[test]
    fn nothing_is_written_after_a_failed_sync() {
        let conn = Connection::open_in_memory().unwrap();
        let mut driver = SqliteDriver::new(conn, Arc::new(Watch::new(Arc::new(SystemClock))), 1);
        driver.failed = Some("a sync of the database failed".to_owned());
        let error = driver.begin(Durability::Full).unwrap_err().at("here").to_string();
        assert!(
            error.contains("here: a sync of the database failed; open the database anew"),
            "{error}"
        );
        assert!(!driver.is_open());
    }
}

//! Rows of a query over an SQLite file.
//!
//! SECURITY: the file may come from a stranger, and its schema holds code: views, triggers, generated columns. The query is the caller's
//! own. So the file is opened read-only, functions with effects are closed to the schema, sizes of cells are checked, and a query that
//! reads through a view is refused: a view may compute without end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Statement};

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Place, Result, bad_value, empty, invalid, io, missing_column, quoted};
use crate::limits::MAX_LINE_BYTES;
use crate::rows::{OnRows, Rows};
use crate::source::columns::{Cell, Refused, Unit};
use crate::source::expansion::{max_expanded, too_large};
use crate::source::parquet::ROW_BYTES;
use undertone_settings::TimeUnit;
use undertone_settings::time::NO_TIME;

#[cfg(test)]
mod tests;

/// The first bytes of every database.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Rows of a query over an SQLite file. They can be imported, and are no source of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteSource {
    /// The file.
    pub path: PathBuf,
    /// One statement that reads tables, such as `select author as user_id, body as text from posts`.
    pub query: String,
    /// Column with the user's name or number.
    pub user: String,
    /// Column with the text.
    pub text: String,
    /// Column with the time (unix seconds or an ISO date), if there is one.
    pub time: Option<String>,
    /// Column with `train`, `validation` or `test`, if there is one.
    pub split: Option<String>,
    /// Unit of times that are numbers. Without one they are unix seconds, and numbers that look otherwise are refused.
    pub time_unit: Option<TimeUnit>,
}

impl SqliteSource {
    fn columns(&self) -> Columns<'_> {
        Columns {
            user: Some(&self.user),
            text: &self.text,
            time: self.time.as_deref(),
            split: self.split.as_deref(),
            time_unit: self.time_unit,
            keys: Keys::SOURCE,
        }
    }
}

/// Reads the rows in the order of the query.
pub(crate) fn read(source: &SqliteSource, on_rows: &mut OnRows<'_>) -> Result<()> {
    let path = source.path.as_path();
    let size = check(path)?;
    let failed = |error: rusqlite::Error| bad(path, error.to_string());
    let mut connection = open(path).map_err(failed)?;
    let seen = watch(&mut connection).map_err(failed)?;
    let mut statement = prepare(path, &connection, &source.query)?;
    refuse_views(path, &connection, &seen)?;
    let columns = source.columns();
    let places = Found::find(path, &statement, columns)?;

    let mut rows = Rows::of_table(path, columns);
    let (mut number, mut left, mut digits) = (0_u64, max_expanded(size), String::new());
    let mut found = statement.query([]).map_err(failed)?;
    while let Some(row) = found.next().map_err(failed)? {
        number += 1;
        let cell = |column: usize| {
            let value = row.get_ref(column).map_err(failed)?;
            Ok::<_, DataError>(match value {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(value) => Cell::Whole(value.into()),
                ValueRef::Real(value) => Cell::Float(value),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cell::Bytes(bytes),
            })
        };
        let at = |name: &str, (expected, got): Refused| {
            let what = format!("column {}", quoted(name));
            bad_value(path, Place::Row(number), what, expected, got)
        };
        let refused = |name| move |refused| at(name, refused);
        let start = rows.bytes();
        rows.users.push(
            cell(places.user)?
                .name(&mut digits)
                .map_err(refused(&source.user))?,
        );
        let text = cell(places.text)?.text().map_err(refused(&source.text))?;
        rows.texts.push(text.unwrap_or(""));
        rows.times.push(match (places.time, &source.time) {
            (Some(place), Some(name)) => cell(place)?
                .seconds(Unit::Number, source.time_unit)
                .map_err(refused(name))?,
            _ => NO_TIME,
        });
        if let (Some(place), Some(name)) = (places.split, &source.split) {
            let split = cell(place)?;
            rows.splits.push(split.name(&mut digits).map_err(refused(name))?);
        }
        rows.places.push(number);
        let bytes = ROW_BYTES + (rows.bytes() - start);
        left = left.checked_sub(bytes).ok_or_else(|| bad(path, too_large()))?;
        rows.hand_over(on_rows, None)?;
    }
    match number {
        0 => Err(empty(path, "rows for this query")),
        _ if rows.len() == 0 => Ok(()),
        _ => on_rows(&rows, None),
    }
}

fn bad(path: &Path, detail: impl Into<String>) -> DataError {
    DataError::BadDatabase {
        file: path.to_owned(),
        detail: detail.into(),
    }
}

/// Refuses what is no database, which the library would say in the middle of the query. Returns the size.
fn check(path: &Path) -> Result<u64> {
    let entry = std::fs::metadata(path).map_err(io("read", path))?;
    if !entry.is_file() {
        return Err(bad(path, "it is not a regular file"));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(io("read", path))?;
    let read = file.take(MAGIC.len() as u64).read_to_end(&mut start);
    read.map_err(io("read", path))?;
    match start == MAGIC {
        true => Ok(entry.len()),
        false => Err(bad(path, "it does not begin as an SQLite database does")),
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_LINE_BYTES as i32)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
    Ok(connection)
}

/// Names through which a query reads: those of views, and those that the query itself gives.
type Seen = Arc<Mutex<BTreeSet<String>>>;

/// Allows nothing but reading, and notes through what is read.
fn watch(connection: &mut Connection) -> rusqlite::Result<Seen> {
    let seen = Seen::default();
    let noted = seen.clone();
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        if let Some(name) = context.accessor {
            let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(name.to_lowercase());
        }
        match context.action {
            AuthAction::Select
            | AuthAction::Read { .. }
            | AuthAction::Function { .. }
            | AuthAction::Recursive => Authorization::Allow,
            _ => Authorization::Deny,
        }
    }))?;
    Ok(seen)
}

fn prepare<'c>(path: &Path, connection: &'c Connection, query: &str) -> Result<Statement<'c>> {
    let one = "one statement that reads tables, such as select author as user_id, body as text from posts";
    let statement = connection.prepare(query).map_err(|error| match error {
        rusqlite::Error::MultipleStatement => invalid("--query", one, "several statements"),
        error if error.sqlite_error_code() == Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) => {
            invalid("--query", one, "a statement that does more")
        }
        error => bad(path, error.to_string()),
    })?;
    match statement.column_count() > 0 && statement.readonly() {
        true => Ok(statement),
        false => Err(invalid("--query", one, quoted(query))),
    }
}

fn refuse_views(path: &Path, connection: &Connection, seen: &Seen) -> Result<()> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if seen.is_empty() {
        return Ok(());
    }
    let failed = |error: rusqlite::Error| bad(path, error.to_string());
    let mut views = connection
        .prepare("select name from sqlite_schema where type = 'view'")
        .map_err(failed)?;
    let mut views = views.query([]).map_err(failed)?;
    while let Some(view) = views.next().map_err(failed)? {
        let name: String = view.get(0).map_err(failed)?;
        if seen.contains(&name.to_lowercase()) {
            let got = format!("{}, a view of the file", quoted(&name));
            let expected = "tables: write the statement of the view into the query";
            return Err(invalid("--query", expected, got));
        }
    }
    Ok(())
}

/// The places of the columns of a query.
struct Found {
    user: usize,
    text: usize,
    time: Option<usize>,
    split: Option<usize>,
}

impl Found {
    fn find(path: &Path, statement: &Statement<'_>, columns: Columns<'_>) -> Result<Found> {
        let names: Vec<&str> = statement.column_names().collect();
        let find = |key: &'static str, column: &str| {
            let place = names.iter().position(|name| *name == column);
            place.ok_or_else(|| {
                let found = names.iter().map(|&name| name.to_owned()).collect();
                missing_column(path, key, column, found)
            })
        };
        let optional = |key, column: Option<&str>| column.map(|column| find(key, column)).transpose();
        Ok(Found {
            user: find(columns.keys.user, columns.user.unwrap_or_default())?,
            text: find(columns.keys.text, columns.text)?,
            time: optional(columns.keys.time, columns.time)?,
            split: optional(columns.keys.split, columns.split)?,
        })
    }
}

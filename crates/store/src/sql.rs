//! The transactions of a store in SQL: one set of statements, which SQLite and Postgres both run.
//!
//! A transaction is a function of a [`Sql`]. A driver gives it a connection inside an open transaction, and commits or undoes
//! what it did. Statements are in the part of the language that both databases share: places `?1`, `ON CONFLICT`, `RETURNING`.

pub(crate) mod admission;
pub(crate) mod attempts;
pub(crate) mod database;
pub(crate) mod devices;
pub(crate) mod facts;
pub(crate) mod oversight;
pub(crate) mod processes;
pub(crate) mod release;
pub(crate) mod subjects;
pub(crate) mod tasks;
pub(crate) mod value;
pub(crate) mod writer;

use undertone_protocol::Digest32;

use crate::{Millis, StoreError};
use value::{FromCell, Param, Params};

pub(crate) use value::{Bits, Cell, Name, Time};

/// The end of a transaction that was not made.
#[derive(Debug)]
pub(crate) enum TxError {
    /// A condition of the transaction does not hold.
    Store(StoreError),
    /// The database failed, or holds a value that this program does not write.
    Sql(SqlError),
}

pub(crate) type Tx<T> = Result<T, TxError>;

/// The result of one statement.
pub(crate) type Found<T> = Result<T, SqlError>;

/// A failure of a database.
#[derive(Debug, Clone)]
pub(crate) enum SqlError {
    /// A value is none that this program writes.
    Damaged {
        /// The value.
        what: String,
        /// The reason.
        reason: String,
    },
    /// Another transaction came between; this one can be run again from its beginning.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "one process has a file to itself")
    )]
    Again(String),
    /// Another process has the database.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "a file has a lock of its own")
    )]
    Locked,
    /// Anything else: the database cannot be reached, or cannot write.
    Failed(String),
}

impl SqlError {
    /// The error for a caller, which names the database.
    pub(crate) fn at(self, place: &str) -> StoreError {
        match self {
            Self::Damaged { what, reason } => StoreError::Damaged { what, reason },
            Self::Locked => StoreError::Locked {
                place: place.to_owned(),
            },
            Self::Again(reason) | Self::Failed(reason) => StoreError::Unavailable {
                place: place.to_owned(),
                reason,
            },
        }
    }
}

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SqlError> for TxError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl TxError {
    /// The error for a caller, which names the database.
    pub(crate) fn at(self, place: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => error.at(place),
        }
    }
}

/// A connection inside a transaction.
pub(crate) trait Sql {
    /// Runs a statement with values for its places, and gives the rows that it returns and the number of rows that it changed.
    fn run(&self, sql: &str, params: &[Param<'_>]) -> Found<Answer>;

    /// The time of the store.
    fn now(&self) -> Millis;

    /// The start of the database. A restart may have undone the latest transactions that are not durable, so attempts remember it.
    fn start(&self) -> u64;
}

/// The rows that a statement returned.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The names of the columns.
    pub(crate) columns: Vec<String>,
    /// The rows, each with a cell per column.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Number of rows that the statement changed.
    pub(crate) changed: u64,
}

/// One row of an answer.
pub(crate) struct Row<'a> {
    columns: &'a [String],
    cells: &'a [Cell],
}

/// The number or the name of a column.
pub(crate) trait Column {
    /// The place in the row, and the text for messages.
    fn find(self, columns: &[String]) -> (Option<usize>, String);
}

impl Column for usize {
    fn find(self, columns: &[String]) -> (Option<usize>, String) {
        ((self < columns.len()).then_some(self), self.to_string())
    }
}

impl Column for &str {
    fn find(self, columns: &[String]) -> (Option<usize>, String) {
        (columns.iter().position(|name| name == self), self.to_owned())
    }
}

impl Row<'_> {
    /// The value of a column.
    pub(crate) fn get<T: FromCell>(&self, column: impl Column) -> Found<T> {
        let (place, name) = column.find(self.columns);
        let cell = place.and_then(|place| self.cells.get(place));
        cell.map_or_else(|| Err("there is no such column".to_owned()), T::from_cell)
            .map_err(|reason| SqlError::Damaged {
                what: format!("column {name}"),
                reason,
            })
    }
}

/// The one value of a row that a query must have.
pub(crate) fn one<T: FromCell>(conn: &dyn Sql, sql: &str, params: impl Params) -> Found<T> {
    let missing = || SqlError::Damaged {
        what: "the answer to a query".to_owned(),
        reason: "expected a row, got none".to_owned(),
    };
    first(conn, sql, params, |row| row.get(0))?.ok_or_else(missing)
}

/// The first row of a query, as a value.
pub(crate) fn first<T>(
    conn: &dyn Sql,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Found<T>,
) -> Found<Option<T>> {
    let answer = params.give(|params| conn.run(sql, params))?;
    let columns = &answer.columns;
    let row = answer.rows.first().map(|cells| Row { columns, cells });
    row.map(|row| read(&row)).transpose()
}

/// All rows of a query, as values.
pub(crate) fn all<T>(
    conn: &dyn Sql,
    sql: &str,
    params: impl Params,
    mut read: impl FnMut(&Row<'_>) -> Found<T>,
) -> Found<Vec<T>> {
    let answer = params.give(|params| conn.run(sql, params))?;
    let columns = &answer.columns;
    answer
        .rows
        .iter()
        .map(|cells| read(&Row { columns, cells }))
        .collect()
}

/// Runs a statement, and gives the number of rows that it changed.
pub(crate) fn change(conn: &dyn Sql, sql: &str, params: impl Params) -> Found<u64> {
    Ok(params.give(|params| conn.run(sql, params))?.changed)
}

/// A digest, which a column holds as 32 bytes.
pub(crate) fn digest(row: &Row<'_>, column: &str) -> Found<Digest32> {
    row.get(column)
}

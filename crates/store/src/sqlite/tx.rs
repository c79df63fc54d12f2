//! Transactions as functions of a connection: their errors, and the values of their rows.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row};
use undertone_protocol::Digest32;

use crate::clock::MAX_MILLIS;
use crate::names::Named;
use crate::{Millis, StoreError};

/// The end of a transaction that was not made.
#[derive(Debug)]
pub(super) enum TxError {
    /// A condition of the transaction does not hold.
    Store(StoreError),
    /// The database failed.
    Sql(rusqlite::Error),
}

pub(super) type Tx<T> = Result<T, TxError>;

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for TxError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl TxError {
    /// The error for a caller, which names the database.
    pub(super) fn at(self, place: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => sql_error(&error, place),
        }
    }
}

pub(super) fn sql_error(error: &rusqlite::Error, place: &str) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    use rusqlite::types::Type;

    let damaged = |what: String| StoreError::Damaged {
        what,
        reason: error.to_string(),
    };
    match error {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Null, _) => {
            damaged(format!("column {column}, which is null,"))
        }
        rusqlite::Error::FromSqlConversionFailure(column, ..)
        | rusqlite::Error::IntegralValueOutOfRange(column, _) => damaged(format!("column {column}")),
        rusqlite::Error::InvalidColumnType(_, name, _) => damaged(format!("column {name}")),
        error if matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)) => {
            damaged(format!("the file {place}"))
        }
        error => StoreError::Unavailable {
            place: place.to_owned(),
            reason: error.to_string(),
        },
    }
}

/// An unsigned number as the signed one with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bits(pub(super) u64);

impl ToSql for Bits {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.cast_signed()))
    }
}

impl FromSql for Bits {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|bits| Self(bits.cast_unsigned()))
    }
}

/// A time. Times beyond the range of the database are its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) Millis);

impl ToSql for Time {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.min(MAX_MILLIS).cast_signed()))
    }
}

impl FromSql for Time {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let time = value.as_i64()?;
        u64::try_from(time)
            .map(Self)
            .map_err(|_| FromSqlError::OutOfRange(time))
    }
}

/// A value by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<T>(pub(super) T);

impl<T: Named> ToSql for Name<T> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.name()))
    }
}

impl<T: Named> FromSql for Name<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        T::from_name(name).map(Self).ok_or_else(|| {
            let shown: String = name.chars().take(32).collect();
            FromSqlError::Other(format!("expected the name of {}, got {shown:?}", T::WHAT).into())
        })
    }
}

/// The one value of a row that a query must have.
pub(super) fn one<T: FromSql>(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<T> {
    conn.prepare_cached(sql)?.query_row(params, |row| row.get(0))
}

/// The first row of a query, as a value.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    use rusqlite::OptionalExtension as _;
    conn.prepare_cached(sql)?.query_row(params, read).optional()
}

/// All rows of a query, as values.
pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare_cached(sql)?.query_map(params, read)?.collect()
}

/// Runs a statement, and gives the number of rows that it changed.
pub(super) fn change(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<usize> {
    conn.prepare_cached(sql)?.execute(params)
}

/// A digest, which a column holds as 32 bytes.
pub(super) fn digest(row: &Row<'_>, column: &str) -> rusqlite::Result<Digest32> {
    row.get(column)
}

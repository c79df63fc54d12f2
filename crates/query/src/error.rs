//! The one error type of the crate.

use std::path::PathBuf;

use datafusion::error::DataFusionError;

/// Everything that can go wrong between a query and a grouped folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// A table was not given as `NAME=LOCATION`.
    #[error("expected a table as NAME=LOCATION (a name of letters, digits and _), got \"{got}\"")]
    NotATable {
        /// The value that was found.
        got: String,
    },
    /// Two tables have one name.
    #[error("the table \"{name}\" is given twice: {first} and {second}")]
    TableTwice {
        /// The name.
        name: String,
        /// Location of the first table.
        first: String,
        /// Location of the second table.
        second: String,
    },
    /// A table's location cannot be used.
    #[error("table \"{name}\" ({location}): {detail}")]
    BadTable {
        /// The table.
        name: String,
        /// Location at which the table was looked for.
        location: String,
        /// The reason in words.
        detail: String,
    },
    /// The query cannot be planned: its grammar, names or types.
    #[error("the query cannot be run: {detail}")]
    BadQuery {
        /// The message of the query engine.
        detail: String,
    },
    /// A column that is needed is not among those of the query.
    #[error(
        "the query lacks the column \"{column}\"; its columns are {found}: name a column, as in SELECT author AS {column}"
    )]
    MissingColumn {
        /// The column.
        column: &'static str,
        /// Columns that there are.
        found: String,
    },
    /// Two columns have a name that is needed.
    #[error("the query has two columns \"{column}\": choose a column, as in SELECT posts.author AS {column}")]
    ColumnTwice {
        /// The name.
        column: &'static str,
    },
    /// A column is of a type that cannot be used.
    #[error("column \"{column}\" of the query: expected {expected}, got {got}{hint}")]
    WrongType {
        /// The column.
        column: &'static str,
        /// Types that can be used.
        expected: &'static str,
        /// Type found.
        got: String,
        /// Advice to the caller, or an empty string.
        hint: &'static str,
    },
    /// A value of a column cannot be used.
    #[error("column \"{column}\" of the query: expected {expected}, got {got}{hint}")]
    BadValue {
        /// The column.
        column: &'static str,
        /// The value that was expected.
        expected: &'static str,
        /// The value that was found.
        got: String,
        /// Advice to the caller, or an empty string.
        hint: &'static str,
    },
    /// The query gives no rows.
    #[error("the result of the query has no rows")]
    NoRows,
    /// A step of the query needs more memory than there is even when it spills.
    #[error("the query needs more memory than the {engine_mb} MB that --memory leaves for it: {detail}")]
    OutOfMemory {
        /// Memory of the engine, in MB.
        engine_mb: usize,
        /// The message of the query engine.
        detail: String,
    },
    /// The query failed while it ran.
    #[error("the query failed: {detail}")]
    Failed {
        /// The message of the query engine.
        detail: String,
    },
    /// A setting is outside its range.
    #[error("{key}: expected {expected}, got {got}")]
    InvalidSetting {
        /// The setting.
        key: &'static str,
        /// The values that are allowed.
        expected: String,
        /// The value that was found.
        got: String,
    },
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that was attempted, as a verb.
        action: &'static str,
        /// Path of the failed operation.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Grouping failed.
    #[error(transparent)]
    Data(#[from] undertone_data::DataError),
}

impl QueryError {
    /// The error for a query that the engine cannot plan.
    pub(crate) fn planning(error: &DataFusionError) -> QueryError {
        QueryError::BadQuery { detail: said(error) }
    }

    /// The error for a query that failed while the engine ran with `engine` bytes of memory.
    pub(crate) fn running(error: &DataFusionError, engine: usize) -> QueryError {
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => QueryError::OutOfMemory {
                engine_mb: engine / 1_000_000,
                detail: said(error),
            },
            _ => QueryError::Failed { detail: said(error) },
        }
    }
}

/// The engine's message, on one line.
pub(crate) fn said(error: &DataFusionError) -> String {
    let text = error.strip_backtrace().replace("\ncaused by\n", ": ");
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ")
}

/// Shorthand for results of this crate.
pub type Result<T, E = QueryError> = std::result::Result<T, E>;

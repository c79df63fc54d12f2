//! Rows of a query over an SQLite file to a table.

use std::path::Path;

use super::{ImportOptions, ImportSummary, Plan, write_users};
use crate::error::Result;
use crate::file::refuse_existing;
use crate::made_from::people_of;
use crate::progress::Progress;
use crate::source::{Source, SqliteSource, table::Table};
use crate::splitter::Splitter;
use undertone_settings::{SplitSpec, name_of_source};

/// Reads the rows of a query over an SQLite file and writes them as [`import`](super::import) does.
///
/// The file is opened read-only, and a query that reads through a view of the file is refused.
///
/// # Errors
/// [`DataError::OutputExists`](crate::DataError::OutputExists), [`DataError::BadDatabase`](crate::DataError::BadDatabase), a query that does
/// more than to read tables, any error of reading or writing.
pub fn import_sqlite(
    source: &SqliteSource,
    output: &Path,
    options: &ImportOptions<'_>,
    progress: &dyn Progress,
) -> Result<ImportSummary> {
    refuse_existing(output, options.overwrite)?;
    let split = match (&options.split, &source.split) {
        (Some(split), _) => split.clone(),
        (None, Some(_)) => SplitSpec::Column {},
        (None, None) => SplitSpec::HeldOutUsers {
            validation: 0.0,
            test: 0.0,
            seed: 0,
        },
    };
    split.validate_for(source.time.is_some(), source.split.is_some())?;
    let path = source.path.to_string_lossy();
    let plan = Plan {
        writes_split: options.split.is_some() || source.split.is_some(),
        splitter: Splitter::new(&split)?,
        has_time: source.time.is_some(),
        hashes: !options.keep_user_ids,
        users_hashed: !options.keep_user_ids,
        people: people_of(None, options.public, || name_of_source(&path)),
        origin: path.clone().into_owned(),
    };
    write_users(
        &Source::Table(Table::Sqlite(source)),
        &plan,
        output,
        options,
        progress,
    )
}

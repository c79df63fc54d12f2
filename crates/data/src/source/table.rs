//! Sources that need Arrow and Parquet, a program or an archive.

use std::path::{Path, PathBuf};

use super::{GitSource, MemoryTable};
use super::{Identity, Parts, arrow, files, git, hive, parquet};
use crate::columns::Columns;
use crate::error::{DataError, Result, invalid};
use crate::grouped::Grouped;
use crate::hash::pseudonym;
use crate::path::expand;
use crate::progress::Progress;
use crate::rows::OnRows;
use crate::source::exports::ExportSource;
use undertone_settings::{GroupedSource, MemorySource, SourceSpec};

pub(crate) use crate::source::exports::hint::explained;

/// A source of tables with its paths resolved.
#[derive(Debug)]
pub(crate) enum Table<'a> {
    Parquet(Vec<PathBuf>, Columns<'a>),
    Arrow(Vec<PathBuf>, Columns<'a>),
    Grouped(Vec<PathBuf>, Columns<'static>),
    Memory(&'a MemoryTable),
    /// The log of a git repository, which only an import reads.
    Git {
        path: &'a Path,
        commit: String,
        salt: &'a [u8],
    },
    /// Rows of a query, which only an import reads.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a super::SqliteSource),
    /// An export of people, which only an import reads.
    Export(&'a ExportSource),
}

impl<'a> Table<'a> {
    pub(super) fn open(
        spec: &'a SourceSpec,
        base: &Path,
        progress: &dyn Progress,
    ) -> Result<(Table<'a>, Identity)> {
        match spec {
            SourceSpec::Parquet(source) => {
                let files = files::files(&expand("data.source.path", &source.path, base)?, files::PARQUET)?;
                let identity = files::identity(&files, progress)?;
                Ok((Table::Parquet(files, Columns::from(source)), identity))
            }
            SourceSpec::Arrow(source) => {
                let files = arrow::files(&expand("data.source.path", &source.path, base)?)?;
                let identity = files::identity(&files, progress)?;
                Ok((Table::Arrow(files, Columns::from(source)), identity))
            }
            SourceSpec::Grouped(source) => Table::grouped(source, base),
            SourceSpec::Memory(source) => Err(DataError::Memory {
                expected: source.in_words(),
                got: "no table: give it to the function `train` of the Python package as `data`".to_owned(),
            }),
            // The caller reads the others itself.
            SourceSpec::Synthetic(_) | SourceSpec::Jsonl(_) | SourceSpec::Csv(_) => {
                unreachable!("no table")
            }
        }
    }

    /// A table in memory, which must be the one that the settings name.
    pub(crate) fn memory(spec: &SourceSpec, table: &'a MemoryTable) -> Result<(Table<'a>, Identity)> {
        table.check(spec)?;
        let MemorySource { rows, sha256, .. } = table.source();
        Ok((Table::Memory(table), format!("table {rows} {sha256}")))
    }

    fn grouped(source: &GroupedSource, base: &Path) -> Result<(Table<'static>, Identity)> {
        let folder = expand("data.source.path", &source.path, base)?;
        let (files, columns, digest) = Grouped::files(&folder)?;
        let has = |key, asked: bool, column: Option<&'static str>| match (asked, column) {
            (true, None) => Err(invalid(
                key,
                format!("false, because {} was grouped without it", folder.display()),
                "true",
            )),
            (true, column) => Ok(column),
            (false, _) => Ok(None),
        };
        let columns = Columns {
            time: has("data.source.time", source.time, columns.time)?,
            split: has("data.source.split", source.split, columns.split)?,
            ..columns
        };
        Ok((Table::Grouped(files, columns), format!("grouped {digest}")))
    }

    /// The log of a repository, whose authors are replaced by hashes under `salt`.
    pub(crate) fn git(source: &'a GitSource, salt: &'a [u8]) -> Result<Table<'a>> {
        let (path, commit) = (source.path.as_path(), git::resolve(source)?);
        Ok(Table::Git { path, commit, salt })
    }

    /// About how many bytes of users and text there are.
    pub(super) fn text_bytes(&self) -> Result<u64> {
        match self {
            Table::Parquet(files, columns) => text_bytes(files, *columns),
            Table::Grouped(files, columns) => text_bytes(files, *columns),
            Table::Arrow(files, _) => files.iter().map(|file| files::size(file)).sum(),
            Table::Memory(table) => Ok(table.bytes()),
            #[cfg(feature = "sqlite")]
            Table::Sqlite(source) => files::size(&source.path),
            // A log is no larger than that of the largest projects, and groups on disk alone ask, which never read an export.
            Table::Git { .. } | Table::Export(_) => Ok(1 << 30),
        }
    }

    /// Reads all rows in order.
    pub(super) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        match self {
            Table::Parquet(files, columns) => read_parquet(files, *columns, on_rows),
            Table::Grouped(files, columns) => read_parquet(files, *columns, on_rows),
            Table::Arrow(files, columns) => each(files, *columns, on_rows, &mut arrow::read),
            Table::Memory(table) => table.read(on_rows),
            #[cfg(feature = "sqlite")]
            Table::Sqlite(source) => super::sqlite::read(source, on_rows),
            Table::Export(source) => source.read(on_rows),
            Table::Git { path, commit, salt } => {
                git::read(path, commit, &|address| pseudonym(salt, address), on_rows)
            }
        }
    }
}

/// Reads a file of Parquet or Arrow by the ending of its name.
pub(super) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    if files::extension(path) == "parquet" {
        parquet::read(path, columns, on_rows)
    } else {
        arrow::read(path, columns, on_rows)
    }
}

/// The names of the columns of a Parquet file, from its schema.
pub(super) fn columns(path: &Path) -> Result<Vec<String>> {
    let opened = parquet::Opened::open(path)?;
    let fields = opened.metadata.schema().fields();
    Ok(fields.iter().map(|field| field.name().clone()).collect())
}

fn text_bytes(files: &[PathBuf], columns: Columns<'_>) -> Result<u64> {
    files.iter().try_fold(0, |sum: u64, file| {
        Ok(sum.saturating_add(parquet::text_bytes(file, columns)?))
    })
}

fn read_parquet(files: &[PathBuf], columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    if files.len() == 1 {
        return each(files, columns, on_rows, &mut parquet::read);
    }
    let total = files
        .iter()
        .map(|file| parquet::num_rows(file))
        .try_fold(0, |sum: u64, rows| Ok::<_, DataError>(sum.saturating_add(rows?)))?;
    let on_rows: &mut OnRows<'_> = &mut |rows, _| on_rows(rows, Some(total));
    each(files, columns, on_rows, &mut parquet::read)
}

/// Reads one file after another.
fn each(
    files: &[PathBuf],
    columns: Columns<'_>,
    on_rows: &mut OnRows<'_>,
    read: &mut dyn FnMut(&Path, Columns<'_>, &mut OnRows<'_>) -> Result<()>,
) -> Result<()> {
    let mut parts = Parts::default();
    for file in files {
        let mut read = |columns: Columns<'_>, on_rows: &mut OnRows<'_>| read(file, columns, on_rows);
        parts.add(hive::read(file, columns, &mut read, on_rows))?;
    }
    parts.finish()
}

//! Sources of rows, behind one function.

mod arrow;
pub(crate) mod coded;
pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod exports;
pub(crate) mod files;
mod foreign;
mod git;
pub(crate) mod hive;
mod json;
pub(crate) mod lines;
mod memory;
#[cfg(test)]
mod mutations;
pub(crate) mod parquet;
mod plain;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Result, invalid, missing_column};
use crate::grouped::Grouped;
use crate::hash::pseudonym;
use crate::path::expand;
use crate::progress::Progress;
use crate::rows::OnRows;
use crate::source::exports::{ExportSource, hint};
use crate::synthetic::Population;
use undertone_settings::{GroupedSource, MemorySource, SourceSpec, SyntheticSource};

use coded::Coded;

pub use git::GitSource;
pub use memory::MemoryTable;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteSource;

/// A source with its paths resolved and its contents identified.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    Synthetic(Box<Population>),
    Parquet(Vec<PathBuf>, Columns<'a>),
    Arrow(Vec<PathBuf>, Columns<'a>),
    Jsonl(Vec<PathBuf>, Columns<'a>, Option<&'a str>),
    Csv(Vec<PathBuf>, Columns<'a>, csv::Format<'a>),
    /// The log of a git repository, which only an import reads.
    Git {
        path: &'a Path,
        commit: String,
        salt: &'a [u8],
    },
    /// Rows of a query, which only an import reads.
    #[cfg(feature = "sqlite")]
    Sqlite(&'a SqliteSource),
    /// An export of people, which only an import reads.
    Export(&'a ExportSource),
    Grouped(Vec<PathBuf>, Columns<'static>),
    Memory(&'a MemoryTable),
}

/// Files and commits a source reads, as a line that goes into the corpus digest.
pub(crate) type Identity = String;

impl<'a> Source<'a> {
    pub(crate) fn open(
        spec: &'a SourceSpec,
        base: &Path,
        progress: &dyn Progress,
    ) -> Result<(Source<'a>, Identity)> {
        let table = |path: &str, extensions| {
            let files = files::files(&expand("data.source.path", path, base)?, extensions)?;
            let identity = files::identity(&files, progress)?;
            Ok::<_, DataError>((files, identity))
        };
        match spec {
            SourceSpec::Synthetic(source) => Ok(Source::synthetic(source)),
            SourceSpec::Parquet(source) => {
                let (files, identity) = table(&source.path, files::PARQUET)?;
                Ok((Source::Parquet(files, Columns::from(source)), identity))
            }
            SourceSpec::Arrow(source) => {
                let files = arrow::files(&expand("data.source.path", &source.path, base)?)?;
                let identity = files::identity(&files, progress)?;
                Ok((Source::Arrow(files, Columns::from(source)), identity))
            }
            SourceSpec::Jsonl(source) => {
                let (files, identity) = table(&source.path, files::JSONL)?;
                Ok((
                    Source::Jsonl(files, Columns::from(source), source.records.as_deref()),
                    identity,
                ))
            }
            SourceSpec::Csv(source) => {
                let (files, identity) = table(&source.path, files::CSV)?;
                let format = csv::Format::of(source);
                // Earlier versions cut these files at commas.
                let tabs = source.delimiter == ','
                    && files
                        .iter()
                        .any(|file| format.delimiter(files::extension(file)) == b'\t');
                let identity = if tabs { identity + " tabs" } else { identity };
                Ok((Source::Csv(files, Columns::from(source), format), identity))
            }
            SourceSpec::Grouped(source) => Source::grouped(source, base),
            SourceSpec::Memory(source) => Err(DataError::Memory {
                expected: source.in_words(),
                got: "no table: give it to the function `train` of the Python package as `data`".to_owned(),
            }),
        }
    }

    /// A table in memory, which must be the one that the settings name.
    pub(crate) fn memory(spec: &SourceSpec, table: &'a MemoryTable) -> Result<(Source<'a>, Identity)> {
        table.check(spec)?;
        let MemorySource { rows, sha256, .. } = table.source();
        Ok((Source::Memory(table), format!("table {rows} {sha256}")))
    }

    fn grouped(source: &GroupedSource, base: &Path) -> Result<(Source<'static>, Identity)> {
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
        Ok((Source::Grouped(files, columns), format!("grouped {digest}")))
    }

    /// About how many bytes of users and text there are: what memory is divided by.
    pub(crate) fn text_bytes(&self) -> Result<u64> {
        match self {
            // A few hundred words per user, as drawn.
            Source::Synthetic(population) => Ok(4096 * population.num_users()),
            Source::Arrow(files, _) => files.iter().map(|file| files::size(file)).sum(),
            Source::Jsonl(files, ..) | Source::Csv(files, ..) => {
                files.iter().map(|file| coded::unpacked_bytes(file)).sum()
            }
            #[cfg(feature = "sqlite")]
            Source::Sqlite(source) => files::size(&source.path),
            // A log is no larger than that of the largest projects.
            Source::Git { .. } => Ok(1 << 30),
            // Groups on disk alone ask, and they never read an export.
            Source::Export(_) => Ok(1 << 30),
            Source::Parquet(files, columns) => text_bytes(files, *columns),
            Source::Grouped(files, columns) => text_bytes(files, *columns),
            Source::Memory(table) => Ok(table.bytes()),
        }
    }

    fn synthetic(source: &SyntheticSource) -> (Source<'static>, Identity) {
        (
            Source::Synthetic(Box::new(Population::new(source))),
            "synthetic process 1".to_owned(),
        )
    }

    /// The log of a repository, whose authors are replaced by hashes under `salt`.
    pub(crate) fn git(source: &'a GitSource, salt: &'a [u8]) -> Result<Source<'a>> {
        let (path, commit) = (source.path.as_path(), git::resolve(source)?);
        Ok(Source::Git { path, commit, salt })
    }

    /// Reads all rows in order.
    pub(crate) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        match self {
            Source::Synthetic(population) => population.read(on_rows),
            Source::Parquet(files, columns) => read_parquet(files, *columns, on_rows),
            Source::Grouped(files, columns) => read_parquet(files, *columns, on_rows),
            Source::Memory(table) => table.read(on_rows),
            #[cfg(feature = "sqlite")]
            Source::Sqlite(source) => sqlite::read(source, on_rows),
            Source::Arrow(files, columns) => each(files, *columns, on_rows, &mut arrow::read),
            Source::Jsonl(files, columns, records) => read_json(files, *columns, *records, on_rows),
            Source::Csv(files, columns, format) => {
                let mut read = |content: Coded<'_>, columns: Columns<'_>, on_rows: &mut OnRows<'_>| {
                    csv::read(content, columns, *format, on_rows)
                };
                each_text(files, files::CSV, *columns, on_rows, &mut read)
            }
            Source::Export(source) => source.read(on_rows),
            Source::Git { path, commit, salt } => {
                git::read(path, commit, &|address| pseudonym(salt, address), on_rows)
            }
        }
    }
}

/// Objects may lack the time and the text, but a name that no object has is a mistake.
fn read_json(
    files: &[PathBuf],
    columns: Columns<'_>,
    records: Option<&str>,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    let mut seen = json::Seen::default();
    let mut read = |content: Coded<'_>, columns: Columns<'_>, on_rows: &mut OnRows<'_>| {
        json::read(content, columns, records, &mut seen, on_rows)
    };
    each_text(files, files::JSONL, columns, on_rows, &mut read)?;
    let given = files.iter().any(|file| hive::gives_time(file, columns));
    seen.check(&source_of(files), columns, given)
}

/// The name of a source in an error that concerns all of its files.
fn source_of(files: &[PathBuf]) -> PathBuf {
    match files {
        [single] => single.clone(),
        several => several
            .first()
            .and_then(|file| file.parent())
            .map(Path::to_owned)
            .unwrap_or_default(),
    }
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

/// Reads the contents of one text file after another; those of archives have names with these endings.
fn each_text(
    files: &[PathBuf],
    extensions: &[&str],
    columns: Columns<'_>,
    on_rows: &mut OnRows<'_>,
    read: &mut dyn FnMut(Coded<'_>, Columns<'_>, &mut OnRows<'_>) -> Result<()>,
) -> Result<()> {
    let mut parts = Parts::default();
    for file in files {
        let mut read = |columns: Columns<'_>, on_rows: &mut OnRows<'_>| {
            let result = coded::each(file, extensions, &mut |content| {
                parts.add(read(content, columns, on_rows))
            });
            result.map_err(|error| hint::explained(file, error))
        };
        hive::read(file, columns, &mut read, on_rows)?;
    }
    parts.finish()
}

/// The parts of a source. Of several, some may be empty: programs that write in parts leave such files.
#[derive(Default)]
struct Parts {
    found: bool,
    empty: Option<DataError>,
}

impl Parts {
    fn add(&mut self, part: Result<()>) -> Result<()> {
        match part {
            Ok(()) => self.found = true,
            Err(error @ DataError::Empty { .. }) => self.empty = Some(error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self.empty {
            Some(error) if !self.found => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reads the texts of a public corpus, whose format follows from its name. `keys` name the settings in errors.
pub(crate) fn read_texts(
    path: &Path,
    text: &str,
    keys: &'static Keys,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    read_columns(path, Columns::texts(text, keys), on_rows)
}

/// `true` if the first rows of a public text have a column of this name; plain text has each.
///
/// # Errors
/// Whatever reading the text says, except that the column is missing.
pub fn has_column(path: &str, column: &str, base_dir: &Path) -> Result<bool> {
    let path = expand("data.vocabulary.path", path, base_dir)?;
    // Reading ends at the first rows, by an error that is not seen.
    let mut found = false;
    match read_texts(&path, column, Keys::PUBLIC, &mut |rows, _| {
        found = rows.noted.count(json::NO_TEXT) < rows.len() as u64;
        Err(DataError::Interrupted)
    }) {
        Err(DataError::Interrupted) | Ok(()) => Ok(found),
        Err(DataError::MissingColumn { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a file with other columns beside the text; plain text has none.
pub(crate) fn read_columns(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let files = files::files(path, files::TEXTS)?;
    // The number of rows is known of one file, not of several of several kinds.
    let single = files.len() == 1;
    let (mut parts, mut seen) = (Parts::default(), json::Seen::default());
    for file in &files {
        parts.add(read_file(file, columns, &mut seen, &mut |rows, total| {
            on_rows(rows, total.filter(|_| single))
        }))?;
    }
    let given = files.iter().any(|file| hive::gives_time(file, columns));
    seen.check(path, columns, given)?;
    parts.finish()
}

fn read_file(
    path: &Path,
    columns: Columns<'_>,
    seen: &mut json::Seen,
    on_rows: &mut OnRows<'_>,
) -> Result<()> {
    let extension = files::extension(path);
    if extension == "parquet" {
        return parquet::read(path, columns, on_rows);
    }
    if files::ARROW.contains(&extension) {
        return arrow::read(path, columns, on_rows);
    }
    let mut read = |content: Coded<'_>, columns: Columns<'_>, on_rows: &mut OnRows<'_>| match extension {
        "jsonl" | "ndjson" | "json" => json::read(content, columns, None, seen, on_rows),
        "csv" | "tsv" => csv::read(content, columns, csv::Format::default(), on_rows),
        _ => match columns.user {
            None => plain::read(content, columns, on_rows),
            Some(column) => Err(missing_column(path, columns.keys.user, column, Vec::new())),
        },
    };
    each_text(&[path.to_owned()], &[extension], columns, on_rows, &mut read)
}

/// Formats, which follow from names, and contents of a public corpus.
pub(crate) fn texts_identity(path: &Path, progress: &dyn Progress) -> Result<Identity> {
    let files = files::files(path, files::TEXTS)?;
    let formats: Vec<&str> = files.iter().map(|file| files::extension(file)).collect();
    Ok(format!(
        "{} {}",
        formats.join(","),
        files::identity(&files, progress)?
    ))
}

//! Sources of rows, behind one function.

#[cfg(feature = "tables")]
mod arrow;
pub(crate) mod coded;
#[cfg(feature = "tables")]
pub(crate) mod columns;
pub(crate) mod csv;
mod expansion;
#[cfg(feature = "tables")]
pub(crate) mod exports;
pub(crate) mod files;
mod foreign;
#[cfg(feature = "tables")]
mod git;
pub(crate) mod hive;
mod json;
pub(crate) mod lines;
#[cfg(feature = "tables")]
mod memory;
#[cfg(test)]
mod mutations;
#[cfg(feature = "tables")]
pub(crate) mod parquet;
mod plain;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "tables")]
pub(crate) mod table;
#[cfg(not(feature = "tables"))]
#[path = "source/no_table.rs"]
pub(crate) mod table;
#[cfg(all(test, feature = "tables"))]
mod tables;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::columns::{Columns, Keys};
use crate::error::{DataError, Result, invalid, missing_column, no_files};
use crate::path::expand;
use crate::progress::Progress;
use crate::rows::OnRows;
use crate::synthetic::Population;
use undertone_settings::{SourceSpec, SyntheticSource};

use coded::Coded;
use table::Table;

#[cfg(feature = "tables")]
pub use git::GitSource;
#[cfg(feature = "tables")]
pub use memory::MemoryTable;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteSource;

/// A source with its paths resolved and its contents identified.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    Synthetic(Box<Population>),
    Jsonl(Vec<PathBuf>, Columns<'a>, Option<&'a str>),
    Csv(Vec<PathBuf>, Columns<'a>, csv::Format<'a>),
    /// A source that the feature `tables` reads.
    Table(Table<'a>),
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
            other => {
                let (table, identity) = Table::open(other, base, progress)?;
                Ok((Source::Table(table), identity))
            }
        }
    }

    /// About how many bytes of users and text there are: what memory is divided by.
    pub(crate) fn text_bytes(&self) -> Result<u64> {
        match self {
            // A few hundred words per user, as drawn.
            Source::Synthetic(population) => Ok(4096 * population.num_users()),
            Source::Jsonl(files, ..) | Source::Csv(files, ..) => {
                files.iter().map(|file| coded::unpacked_bytes(file)).sum()
            }
            Source::Table(table) => table.text_bytes(),
        }
    }

    fn synthetic(source: &SyntheticSource) -> (Source<'static>, Identity) {
        (
            Source::Synthetic(Box::new(Population::new(source))),
            "synthetic process 1".to_owned(),
        )
    }

    /// Reads all rows in order.
    pub(crate) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        match self {
            Source::Synthetic(population) => population.read(on_rows),
            Source::Jsonl(files, columns, records) => read_json(files, *columns, *records, on_rows),
            Source::Csv(files, columns, format) => {
                let mut read = |content: Coded<'_>, columns: Columns<'_>, on_rows: &mut OnRows<'_>| {
                    csv::read(content, columns, *format, on_rows)
                };
                each_text(files, files::CSV, *columns, on_rows, &mut read)
            }
            Source::Table(table) => table.read(on_rows),
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
            result.map_err(|error| table::explained(file, error))
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

/// The names of the columns of a table: from its header, its schema, or the fields of its first objects, in its first file.
///
/// No value of a row is kept, and no text of a row is in an error.
///
/// # Errors
/// A file that cannot be read; another kind of source than JSON, CSV and Parquet.
pub fn column_names(source: &SourceSpec, base_dir: &Path) -> Result<Vec<String>> {
    let (path, extensions, format) = match source {
        SourceSpec::Jsonl(source) => (&source.path, files::JSONL, None),
        SourceSpec::Csv(source) => (&source.path, files::CSV, Some(csv::Format::of(source))),
        SourceSpec::Parquet(source) => (&source.path, files::PARQUET, None),
        _ => {
            return Err(invalid(
                "data.source.kind",
                "jsonl, csv or parquet",
                "another kind",
            ));
        }
    };
    let path = expand("data.source.path", path, base_dir)?;
    let all = files::files(&path, extensions)?;
    let Some(file) = all.first() else {
        return Err(no_files(&path, extensions));
    };
    let mut found = Vec::new();
    if extensions == files::PARQUET {
        found = table::columns(file)?;
    } else {
        let mut take = |content: Coded<'_>| {
            if found.is_empty() {
                found = match format {
                    Some(format) => csv::columns(content, format)?,
                    None => json::fields(content)?,
                };
            }
            Ok(())
        };
        coded::each(file, extensions, &mut take).map_err(|error| table::explained(file, error))?;
    }
    found.extend(hive::names(file));
    Ok(found)
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
    if extension == "parquet" || files::ARROW.contains(&extension) {
        return table::read(path, columns, on_rows);
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

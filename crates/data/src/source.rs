//! Sources of rows, behind one function.

mod csv;
mod git;
mod jsonl;
mod parquet;
mod plain;

use std::path::{Path, PathBuf};

use crate::error::{DataError, Result, io};
use crate::grouped::Grouped;
use crate::hash::{Hash, hash_bytes, hash_file, hex, pseudonym};
use crate::path::expand;
use crate::progress::Progress;
use crate::rows::Rows;
use crate::spec::{Columns, CsvSource, GitSource, GroupedSource, SourceSpec, SyntheticSource, TableSource};
use crate::synthetic::Population;

/// Receives batches; the `Option<u64>` is the total number of rows, where the source knows it.
pub(crate) type OnRows<'a> = dyn FnMut(&Rows, Option<u64>) -> Result<()> + 'a;

/// A source with its paths resolved and its contents identified.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    Synthetic(Box<Population>),
    Parquet(PathBuf, Columns<'a>),
    Jsonl(PathBuf, Columns<'a>),
    Csv(PathBuf, Columns<'a>, char),
    Git {
        path: PathBuf,
        commit: String,
        salt: Vec<u8>,
    },
    Grouped(Vec<PathBuf>, Columns<'static>),
}

/// Files and commits a source reads, as a line that goes into the corpus digest.
pub(crate) type Identity = String;

impl<'a> Source<'a> {
    /// `default_salt` is used where a git source gives none.
    pub(crate) fn open(
        spec: &'a SourceSpec,
        base: &Path,
        default_salt: Option<&[u8]>,
        progress: &dyn Progress,
    ) -> Result<(Source<'a>, Identity)> {
        let table = |source: &TableSource| expand("data.source.path", &source.path, base);
        match spec {
            SourceSpec::Synthetic(source) => Ok(Source::synthetic(source)),
            SourceSpec::Parquet(source) => {
                let path = table(source)?;
                let identity = file_identity(&path, progress)?;
                Ok((Source::Parquet(path, source.columns()), identity))
            }
            SourceSpec::Jsonl(source) => {
                let path = table(source)?;
                let identity = file_identity(&path, progress)?;
                Ok((Source::Jsonl(path, source.columns()), identity))
            }
            SourceSpec::Csv(source) => Source::csv(source, base, progress),
            SourceSpec::Git(source) => Source::git(source, base, default_salt),
            SourceSpec::Grouped(source) => Source::grouped(source, base),
        }
    }

    fn grouped(source: &GroupedSource, base: &Path) -> Result<(Source<'static>, Identity)> {
        let folder = expand("data.source.path", &source.path, base)?;
        let (files, columns, digest) = Grouped::files(&folder)?;
        let has = |key, asked: bool, column: Option<&'static str>| match (asked, column) {
            (true, None) => Err(DataError::InvalidSetting {
                key,
                expected: format!("false, because {} was grouped without it", folder.display()),
                got: "true".to_owned(),
            }),
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
        let size = |path: &Path| {
            std::fs::metadata(path)
                .map(|file| file.len())
                .map_err(io("read", path))
        };
        match self {
            // A few hundred words a user, as drawn.
            Source::Synthetic(population) => Ok(4096 * population.num_users()),
            Source::Parquet(path, columns) => parquet::text_bytes(path, *columns),
            Source::Jsonl(path, _) | Source::Csv(path, ..) => size(path),
            // A log is no larger than that of the largest projects.
            Source::Git { .. } => Ok(1 << 30),
            Source::Grouped(files, columns) => {
                files.iter().map(|file| parquet::text_bytes(file, *columns)).sum()
            }
        }
    }

    fn synthetic(source: &SyntheticSource) -> (Source<'static>, Identity) {
        (
            Source::Synthetic(Box::new(Population::new(source))),
            "synthetic process 1".to_owned(),
        )
    }

    fn csv(source: &'a CsvSource, base: &Path, progress: &dyn Progress) -> Result<(Source<'a>, Identity)> {
        let path = expand("data.source.path", &source.path, base)?;
        let identity = file_identity(&path, progress)?;
        Ok((Source::Csv(path, source.columns(), source.delimiter), identity))
    }

    fn git(
        source: &GitSource,
        base: &Path,
        default_salt: Option<&[u8]>,
    ) -> Result<(Source<'static>, Identity)> {
        let path = expand("data.source.path", &source.path, base)?;
        let commit = git::resolve(&path, &source.revision)?;
        let identity = format!("git {commit} mailmap {}", hex(&hash_bytes(&git::mailmap(&path))));
        // Deriving the salt from the commit keeps held-out users the same from one opening to the next. It is no secret,
        // which is enough here: neither names nor their hashes are stored or shown.
        let salt = match (&source.salt, default_salt) {
            (Some(salt), _) => salt.as_bytes().to_vec(),
            (None, Some(salt)) => salt.to_vec(),
            (None, None) => identity.as_bytes().to_vec(),
        };
        Ok((Source::Git { path, commit, salt }, identity))
    }

    /// Reads all rows in order.
    pub(crate) fn read(&self, on_rows: &mut OnRows<'_>) -> Result<()> {
        match self {
            Source::Synthetic(population) => population.read(on_rows),
            Source::Parquet(path, columns) => parquet::read(path, *columns, on_rows),
            Source::Jsonl(path, columns) => jsonl::read(path, *columns, on_rows),
            Source::Csv(path, columns, delimiter) => csv::read(path, *columns, *delimiter, on_rows),
            Source::Git { path, commit, salt } => {
                git::read(path, commit, &|address| pseudonym(salt, address), on_rows)
            }
            Source::Grouped(files, columns) => files
                .iter()
                .try_for_each(|file| parquet::read(file, *columns, &mut |rows, _| on_rows(rows, None))),
        }
    }
}

/// Reads the texts of a public corpus, whose format follows from its name.
pub(crate) fn read_texts(path: &Path, text: &str, on_rows: &mut OnRows<'_>) -> Result<()> {
    let columns = Columns {
        user: None,
        text,
        time: None,
        split: None,
    };
    read_columns(path, columns, on_rows)
}

/// The same with other columns beside the text; plain text has none.
pub(crate) fn read_columns(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("parquet") => parquet::read(path, columns, on_rows),
        Some("jsonl" | "ndjson") => jsonl::read(path, columns, on_rows),
        Some("csv") => csv::read(path, columns, ',', on_rows),
        Some("tsv") => csv::read(path, columns, '\t', on_rows),
        _ => match columns.user {
            None => plain::read(path, on_rows),
            Some(column) => Err(DataError::MissingColumn {
                file: path.to_owned(),
                key: "the settings",
                column: column.to_owned(),
                found: Vec::new(),
            }),
        },
    }
}

pub(crate) fn file_identity(path: &Path, progress: &dyn Progress) -> Result<Identity> {
    let (size, hash): (u64, Hash) = hash_file(path, progress)?;
    Ok(format!("file {size} {}", crate::hash::hex(&hash)))
}

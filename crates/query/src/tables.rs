//! Locations of a query's tables, and the kinds of their files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use futures_util::TryStreamExt;

use crate::error::{QueryError, Result, said};

/// A table of a query: a file, a folder of files of one kind, or a pattern such as `posts/2024-*.parquet`; on this machine, or at
/// `s3://bucket/prefix/` or `https://host/file` (with feature `remote`).
///
/// Kinds are told from the names: `.parquet`; `.jsonl`, `.ndjson`, `.json` (one object per line); `.csv`, `.tsv` (with a header; all
/// columns are text), the text ones also with `.gz`, `.bz2`, `.xz` or `.zst` behind. Folders are read with the folders in them, which may be
/// divided by values, `lang=en/part-0.parquet`: `lang` is a column then. Names that begin with `.` or `_` are passed over, unless they are of
/// the table's kind, as something unfinished is: that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    name: String,
    location: String,
}

impl Table {
    /// The table `name` at `location`.
    #[must_use]
    pub fn new(name: impl Into<String>, location: impl Into<String>) -> Table {
        Table {
            name: name.into(),
            location: location.into(),
        }
    }
}

impl FromStr for Table {
    type Err = QueryError;

    fn from_str(text: &str) -> Result<Table> {
        let is_name = |name: &str| {
            let mut bytes = name.bytes();
            bytes
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match text.split_once('=') {
            Some((name, location)) if is_name(name) && !location.is_empty() => Ok(Table::new(name, location)),
            _ => Err(QueryError::NotATable { got: text.to_owned() }),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.location)
    }
}

/// Makes `tables` known to a session.
pub(crate) async fn register(session: &SessionContext, tables: &[Table]) -> Result<()> {
    for (number, table) in tables.iter().enumerate() {
        // The engine does not tell capitals apart in names, so neither do we.
        let twice = |other: &&Table| other.name.eq_ignore_ascii_case(&table.name);
        if let Some(first) = tables[..number].iter().find(twice) {
            return Err(QueryError::TableTwice {
                name: table.name.clone(),
                first: first.location.clone(),
                second: table.location.clone(),
            });
        }
        let provider = table.listing(session).await?;
        session
            .register_table(table.name.to_ascii_lowercase(), Arc::new(provider))
            .map_err(|error| table.bad(said(&error)))?;
    }
    Ok(())
}

impl Table {
    fn bad(&self, detail: impl Into<String>) -> QueryError {
        QueryError::BadTable {
            name: self.name.clone(),
            location: self.location.clone(),
            detail: detail.into(),
        }
    }

    async fn listing(&self, session: &SessionContext) -> Result<ListingTable> {
        let bad = |error: &DataFusionError| self.bad(said(error));
        let url = ListingTableUrl::parse(&self.location).map_err(|error| bad(&error))?;
        if url.scheme() == "file" && url.get_glob().is_none() && !Path::new(&self.location).exists() {
            return Err(self.bad("there is no such file or folder"));
        }
        self.connect(session, &url)?;
        let kind = self.kind(session, &url).await?;
        let options = ListingOptions::new(kind.format()).with_file_extension(&kind.extension);
        let state = session.state();
        let config = ListingTableConfig::new(url).with_listing_options(options);
        let config = config.infer_schema(&state).await.map_err(|error| bad(&error))?;
        let config = config
            .infer_partitions_from_path(&state)
            .await
            .map_err(|error| bad(&error))?;
        ListingTable::try_new(config).map_err(|error| bad(&error))
    }

    /// Opens the store that a URL names.
    #[cfg(feature = "remote")]
    fn connect(&self, session: &SessionContext, url: &ListingTableUrl) -> Result<()> {
        use object_store::ObjectStore;
        use object_store::aws::AmazonS3Builder;
        use object_store::http::HttpBuilder;

        let root = url.object_store();
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            "file" => return Ok(()),
            "s3" => {
                // Region, credentials and endpoint are those of the environment, as for every other program.
                let bucket = url.get_url().host_str().unwrap_or_default();
                let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
                Arc::new(store.map_err(|error| self.bad(error.to_string()))?)
            }
            "http" | "https" => {
                // SECURITY: without encryption anybody on the way could change the text, so only this machine is asked that
                // way. The setting holds for redirections, too.
                let here = is_this_machine(root.as_str());
                if url.scheme() == "http" && !here {
                    return Err(self.bad("expected https://, got http:// to another machine".to_owned()));
                }
                let options = object_store::ClientOptions::new().with_allow_http(here);
                let builder = HttpBuilder::new()
                    .with_url(root.as_str())
                    .with_client_options(options);
                Arc::new(builder.build().map_err(|error| self.bad(error.to_string()))?)
            }
            other => return Err(self.bad(format!("expected a path, s3:// or https://, got {other}://"))),
        };
        session.register_object_store(root.as_ref(), store);
        Ok(())
    }

    #[cfg(not(feature = "remote"))]
    fn connect(&self, _: &SessionContext, url: &ListingTableUrl) -> Result<()> {
        match url.scheme() {
            "file" => Ok(()),
            other => Err(self.bad(format!("{other}:// needs a build with the feature remote"))),
        }
    }

    /// The kind of all files of a table.
    async fn kind(&self, session: &SessionContext, url: &ListingTableUrl) -> Result<Kind> {
        let bad = |error: &DataFusionError| self.bad(said(error));
        let store = session
            .runtime_env()
            .object_store(url)
            .map_err(|error| bad(&error))?;
        let state = session.state();
        let mut files = url
            .list_all_files(&state, store.as_ref(), "")
            .await
            .map_err(|error| bad(&error))?;
        let mut found: BTreeMap<String, (Kind, String)> = BTreeMap::new();
        let mut hidden = Vec::new();
        while let Some(file) = files.try_next().await.map_err(|error| bad(&error))? {
            let name = file.location.filename().unwrap_or_default();
            let mut below = url.strip_prefix(&file.location).into_iter().flatten();
            if name.starts_with(['.', '_']) || below.any(|part| part.starts_with(['.', '_'])) {
                hidden.push(file.location.to_string());
                continue;
            }
            if file.size == 0 {
                continue;
            }
            let Some(kind) = Kind::of(name) else {
                return Err(self.bad(format!(
                    "\"{name}\" is of no kind that is known: expected {KINDS}"
                )));
            };
            // Stores list in any order; the error is the same in all of them.
            let (_, first) = found
                .entry(kind.extension.clone())
                .or_insert_with(|| (kind, name.to_owned()));
            if name < first.as_str() {
                name.clone_into(first);
            }
        }
        let mut found = found.into_values();
        match (found.next(), found.next()) {
            // The engine reads whatever ends as the table's files do, and whose text that would be is not known.
            (Some((kind, _)), None) => match hidden.iter().find(|path| path.ends_with(&kind.extension)) {
                Some(path) => Err(self.bad(format!(
                    "\"{path}\" seems to be unfinished or hidden; remove it, or name the others by a pattern"
                ))),
                None => Ok(kind),
            },
            (Some((_, one)), Some((_, other))) => Err(self.bad(format!(
                "files of several kinds, such as \"{one}\" and \"{other}\""
            ))),
            _ => Err(self.bad(format!("it holds no file: expected {KINDS}"))),
        }
    }
}

/// Returns `true` if an address `http://HOST:PORT` names this machine.
#[cfg(feature = "remote")]
fn is_this_machine(address: &str) -> bool {
    let host = address.split_once("://").map_or(address, |(_, host)| host);
    let host = host.split('/').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

const KINDS: &str =
    ".parquet, .jsonl, .ndjson, .json, .csv or .tsv, the text ones also with .gz, .bz2, .xz or .zst behind";

/// Format and compression of a table's files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    /// With its dots, as `.csv.gz`.
    extension: String,
    format: Format,
    compression: FileCompressionType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Json,
    Csv(u8),
}

impl Kind {
    fn of(name: &str) -> Option<Kind> {
        let compressions = [
            (".gz", FileCompressionType::GZIP),
            (".bz2", FileCompressionType::BZIP2),
            (".xz", FileCompressionType::XZ),
            (".zst", FileCompressionType::ZSTD),
        ];
        let (plain, ending, compression) = compressions
            .into_iter()
            .find_map(|(ending, compression)| Some((name.strip_suffix(ending)?, ending, compression)))
            .unwrap_or((name, "", FileCompressionType::UNCOMPRESSED));
        let (_, extension) = plain.rsplit_once('.')?;
        let format = match extension {
            // Its pages are compressed already.
            "parquet" if ending.is_empty() => Format::Parquet,
            "jsonl" | "ndjson" | "json" => Format::Json,
            "csv" => Format::Csv(b','),
            "tsv" => Format::Csv(b'\t'),
            _ => return None,
        };
        Some(Kind {
            extension: format!(".{extension}{ending}"),
            format,
            compression,
        })
    }

    fn format(&self) -> Arc<dyn FileFormat> {
        match self.format {
            // Views of texts keep whole pages in memory behind them, which sorts that spill do not reckon with.
            Format::Parquet => Arc::new(ParquetFormat::default().with_force_view_types(false)),
            Format::Json => Arc::new(JsonFormat::default().with_file_compression_type(self.compression)),
            Format::Csv(delimiter) => Arc::new(
                CsvFormat::default()
                    .with_has_header(true)
                    .with_delimiter(delimiter)
                    // Texts have lines.
                    .with_newlines_in_values(true)
                    // Columns are text: names such as 007 stay what they are, and the engine's guesses at types are wrong
                    // where a quoted text has lines.
                    .with_schema_infer_max_rec(0)
                    .with_file_compression_type(self.compression),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_names() {
        let check = |name, expected: Option<(&str, Format)>| {
            let kind = Kind::of(name);
            let kind = kind.as_ref().map(|kind| (&*kind.extension, kind.format));
            assert_eq!(kind, expected, "{name}");
        };
        check("a.parquet", Some((".parquet", Format::Parquet)));
        check("a.b.jsonl.zst", Some((".jsonl.zst", Format::Json)));
        check("a.tsv.gz", Some((".tsv.gz", Format::Csv(b'\t'))));
        check("a.parquet.gz", None);
        check("a.txt", None);
        check("parquet", None);
    }

    #[cfg(feature = "remote")]
    #[test]
    fn only_this_machine_is_asked_without_encryption() {
        for here in ["http://127.0.0.1:8080/", "http://localhost/x", "http://[::1]:80/"] {
            assert!(is_this_machine(here), "{here}");
        }
        for elsewhere in [
            "http://example.org/",
            "http://127.0.0.1.example.org/",
            "http://10.0.0.1:80/",
        ] {
            assert!(!is_this_machine(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn tables_are_named() {
        let posts: Table = "posts=s3://bucket/a=b/".parse().unwrap();
        assert_eq!(posts, Table::new("posts", "s3://bucket/a=b/"));
        for bad in ["posts", "=x", "posts=", "1a=x", "a b=x"] {
            assert!(bad.parse::<Table>().is_err(), "{bad}");
        }
    }
}

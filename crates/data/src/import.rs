//! Any source to one user-partitioned Parquet file that can be handed on.

#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use undertone_vocabulary::MadeFromPeople;

use crate::error::{Result, invalid, io, no_text, quoted};
use crate::file::{Spool, parent, persist, refuse_existing};
use crate::hash::pseudonym;
use crate::made_from::{self, people_of, people_of_source};
use crate::names::{Chosen, UserNames};
use crate::noted::Noted;
use crate::progress::{Progress, Stage};
use crate::rows::number;
use crate::source::exports::ExportSource;
use crate::source::{GitSource, Source, table};
use crate::split::Split;
use crate::splitter::{Splitter, assign_as};
use undertone_settings::time::NO_TIME;
use undertone_settings::{CorpusSpec, SourceSpec, SplitSpec, name_of_source};

#[cfg(feature = "sqlite")]
pub use sqlite::import_sqlite;

/// Rows of one batch and of one row group of the written file.
const BATCH_ROWS: usize = 8192;
const GROUP_ROWS: usize = 65_536;

/// Options of an import.
#[derive(Debug, Clone)]
pub struct ImportOptions<'a> {
    /// Salt of the hashes that replace users. Fresh and random unless two imports must agree; then keep it secret.
    pub salt: &'a [u8],
    /// Keeps the users of a table as they are. Authors of a git log are always hashed, synthetic users never.
    pub keep_user_ids: bool,
    /// Takes names that differ only in case, outer white space, characters without width or normal form for one user, under that form.
    pub join_users: bool,
    /// Leaves out the rows of these users, such as `[deleted]`. A name that no row has is an error.
    pub drop_users: &'a [String],
    /// Writes a split column by this rule; without one, the source's split column is copied, if it has one.
    pub split: Option<SplitSpec>,
    /// Declares that the text is public. Without it, or where the record of the source says otherwise, a record beside the file says that it
    /// was made from people's text.
    pub public: bool,
    /// Replaces an existing file.
    pub overwrite: bool,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSummary {
    /// Rows written.
    pub rows: u64,
    /// Rows left out because they have no text.
    pub rows_without_text: u64,
    /// Rows left out because their user is dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows_dropped: u64,
    /// Names of users that may not be one person each.
    #[serde(default, skip_serializing_if = "UserNames::is_empty")]
    pub names: UserNames,
    /// Users written.
    pub users: u64,
    /// Rows of the training, validation and test partition, where a split column was written.
    pub split_rows: Option<[u64; 3]>,
    /// `true` if the file has a time column.
    pub has_time: bool,
    /// `true` if users were replaced by salted hashes.
    pub users_hashed: bool,
    /// Names of the first pieces that were skipped, such as ids of commits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Counts of what readers replaced, skipped or cut, by kind.
    #[serde(default, skip_serializing_if = "Noted::is_empty")]
    pub noted: Noted,
    /// Size of the file.
    pub bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

struct Record {
    user: u32,
    split: Option<Split>,
    time: i64,
    start: usize,
    bytes: usize,
}

/// Writes `source` as a Parquet file with the columns `user_id`, `text`, `timestamp` (unix seconds, if the source has
/// times) and `split` (if there is a rule or a column), sorted by user and time. The file appears when it is whole.
///
/// # Guarantee
/// Users are pseudonymous, not anonymous: the text itself stays as it is.
///
/// # Errors
/// [`DataError::OutputExists`](crate::DataError::OutputExists) unless overwriting is asked for; any error of the source or of
/// writing.
pub fn import(
    source: &SourceSpec,
    base_dir: &Path,
    output: &Path,
    options: &ImportOptions<'_>,
    progress: &dyn Progress,
) -> Result<ImportSummary> {
    refuse_existing(output, options.overwrite)?;
    // A specification carries the rules that rows and splits are checked by; what it says of tokens is not used.
    let spec = CorpusSpec {
        split: options.split.clone(),
        ..CorpusSpec::new(source.clone(), None)
    };
    spec.validate_split()?;
    let hashes = !options.keep_user_ids && !matches!(source, SourceSpec::Synthetic(_));
    let plan = Plan {
        writes_split: options.split.is_some() || source.has_split(),
        splitter: Splitter::new(&spec.split_in_force())?,
        has_time: source.has_time(),
        hashes,
        users_hashed: hashes,
        people: people_of_source(source, base_dir, options.public)?,
        origin: source.describe(),
    };
    let (reader, _) = Source::open(source, base_dir, progress)?;
    write_users(&reader, &plan, output, options, progress)
}

/// Reads the log of a git repository and writes its messages as [`import`] does: the author is the user, always replaced by
/// the hash of the address, the author's time is the time. Lines that name people are left out.
///
/// No program but git is started, and nothing is fetched, whatever the repository's configuration says.
///
/// # Errors
/// [`DataError::OutputExists`](crate::DataError::OutputExists), [`DataError::NoGitProgram`](crate::DataError::NoGitProgram),
/// [`DataError::GitFailed`](crate::DataError::GitFailed), any error of reading or writing.
pub fn import_git(
    source: &GitSource,
    output: &Path,
    options: &ImportOptions<'_>,
    progress: &dyn Progress,
) -> Result<ImportSummary> {
    refuse_existing(output, options.overwrite)?;
    let plan = Plan {
        writes_split: options.split.is_some(),
        splitter: splitter(options, true)?,
        has_time: true,
        hashes: false,
        users_hashed: true,
        people: people_of(None, options.public, || {
            name_of_source(&source.path.to_string_lossy())
        }),
        origin: format!("the log of {}", source.path.display()),
    };
    let reader = Source::Table(table::Table::git(source, options.salt)?);
    write_users(&reader, &plan, output, options, progress)
}

/// Reads an export of people and writes its messages as [`import`] does: the account is the user. What no person wrote is left out and
/// counted.
///
/// # Errors
/// [`DataError::OutputExists`](crate::DataError::OutputExists), [`DataError::BadValue`](crate::DataError::BadValue) with file and place,
/// [`DataError::Empty`](crate::DataError::Empty), any error of reading or writing.
pub fn import_export(
    source: &ExportSource,
    output: &Path,
    options: &ImportOptions<'_>,
    progress: &dyn Progress,
) -> Result<ImportSummary> {
    refuse_existing(output, options.overwrite)?;
    let splitter = splitter(options, source.kind.has_time())?;
    let plan = Plan {
        writes_split: options.split.is_some(),
        splitter,
        has_time: source.kind.has_time(),
        hashes: !options.keep_user_ids,
        users_hashed: !options.keep_user_ids,
        people: people_of(None, options.public, || {
            name_of_source(&source.path.to_string_lossy())
        }),
        origin: format!("the export {}", source.path.display()),
    };
    write_users(
        &Source::Table(table::Table::Export(source)),
        &plan,
        output,
        options,
        progress,
    )
}

/// The rule of the split column, or one that is not used where none is written.
fn splitter(options: &ImportOptions<'_>, has_time: bool) -> Result<Splitter> {
    let held_out = SplitSpec::HeldOutUsers {
        validation: 0.0,
        test: 0.0,
        seed: 0,
    };
    let split = options.split.as_ref().unwrap_or(&held_out);
    split.validate_for(has_time, false)?;
    Splitter::new(split)
}

/// The columns that are written, and the source that they come from.
struct Plan {
    writes_split: bool,
    splitter: Splitter,
    has_time: bool,
    /// Users are hashed here; those of a git log come as hashes.
    hashes: bool,
    users_hashed: bool,
    /// The names of the texts of people.
    people: Option<Vec<String>>,
    origin: String,
}

fn write_users(
    reader: &Source<'_>,
    plan: &Plan,
    output: &Path,
    options: &ImportOptions<'_>,
    progress: &dyn Progress,
) -> Result<ImportSummary> {
    let Plan {
        writes_split, hashes, ..
    } = *plan;
    let directory = parent(output);
    let mut spool = Spool::new(directory)?;
    let mut records: Vec<Record> = Vec::new();
    let mut users: Vec<Box<str>> = Vec::new();
    let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
    let (mut start, mut done, mut without_text) = (0_usize, 0_u64, 0_u64);
    let (mut noted, mut skipped) = (Noted::default(), Vec::new());
    let mut chosen = Chosen::new(options.join_users, options.drop_users);
    let mut form = String::new();
    reader.read(&mut |rows, total| {
        for row in 0..rows.len() {
            let Some(name) = chosen.name(rows.users.get(row), &mut form) else {
                continue;
            };
            let split = writes_split
                .then(|| assign_as(&plan.splitter, rows, row, name))
                .transpose()?;
            let text = rows.texts.get(row);
            if text.trim().is_empty() {
                without_text += 1;
                continue;
            }
            let user = number(&mut numbers, name);
            if user as usize == users.len() {
                users.push(match hashes {
                    true => pseudonym(options.salt, name).into(),
                    false => name.into(),
                });
            }
            spool.write(text.as_bytes())?;
            records.push(Record {
                user,
                split,
                time: rows.times[row],
                start,
                bytes: text.len(),
            });
            start += text.len();
        }
        noted.merge(&rows.noted);
        skipped.extend_from_slice(&rows.skipped);
        done += rows.len() as u64;
        progress.update(Stage::Reading, done, total);
        Ok(())
    })?;
    if let Some(name) = chosen.unseen() {
        return Err(invalid(
            "--drop-user",
            "the name of a user of the source",
            format!("{}, whom no row names", quoted(name)),
        ));
    }
    let mut names = vec![Box::default(); users.len()];
    numbers
        .into_iter()
        .for_each(|(name, number)| names[number as usize] = name);
    let names = UserNames::of(&names, records.iter().map(|record| record.user));
    if records.is_empty() {
        return Err(no_text(plan.origin.clone(), "a text of a user", done));
    }
    let texts = spool.map()?;

    // Sorting by the written name hides the order in which users appeared.
    records.sort_by(|one, other| {
        users[one.user as usize]
            .cmp(&users[other.user as usize])
            .then(one.time.cmp(&other.time))
    });
    let mut split_rows = [0_u64; 3];
    records
        .iter()
        .filter_map(|record| record.split)
        .for_each(|split| split_rows[split.index()] += 1);
    let table = Table {
        records: &records,
        users: &users,
        texts: &texts,
        has_time: plan.has_time,
        writes_split,
    };
    // PRIVACY: the record comes first, so that the text never lies there as if it were public.
    if let Some(people) = &plan.people {
        made_from::write_beside(output, &MadeFromPeople::text(people.clone()))?;
    }
    let bytes = table.write(directory, output, options.overwrite, progress)?;
    if plan.people.is_none() {
        made_from::remove(output)?;
    }
    Ok(ImportSummary {
        rows: records.len() as u64,
        rows_without_text: without_text,
        rows_dropped: chosen.rows_dropped,
        names,
        users: users.len() as u64,
        split_rows: writes_split.then_some(split_rows),
        has_time: plan.has_time,
        users_hashed: plan.users_hashed,
        skipped,
        noted,
        bytes,
    })
}

struct Table<'a> {
    records: &'a [Record],
    users: &'a [Box<str>],
    texts: &'a [u8],
    has_time: bool,
    writes_split: bool,
}

impl Table<'_> {
    fn write(
        &self,
        directory: &Path,
        output: &Path,
        overwrite: bool,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let failed = |error: ParquetError| io("write", output)(std::io::Error::other(error));
        let file = NamedTempFile::new_in(directory).map_err(io("write a file in", directory))?;
        let mut fields = vec![
            Field::new("user_id", DataType::Utf8, false),
            Field::new("text", DataType::Utf8, false),
        ];
        if self.has_time {
            let untimed = self.records.iter().any(|record| record.time == NO_TIME);
            fields.push(Field::new("timestamp", DataType::Int64, untimed));
        }
        if self.writes_split {
            fields.push(Field::new("split", DataType::Utf8, false));
        }
        let schema = Arc::new(Schema::new(fields));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(failed)?;
        let total = self.records.len() as u64;
        let mut done = 0;
        for records in self.records.chunks(BATCH_ROWS) {
            let users = records.iter().map(|record| &*self.users[record.user as usize]);
            let mut columns: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from_iter_values(users)),
                Arc::new(self.texts(records, output)?),
            ];
            if self.has_time {
                let times = records.iter().map(|record| record.time);
                columns.push(Arc::new(Int64Array::from_iter(
                    times.map(|time| Some(time).filter(|&time| time != NO_TIME)),
                )));
            }
            if self.writes_split {
                let splits = records.iter().map(|record| record.split.map_or("", Split::name));
                columns.push(Arc::new(StringArray::from_iter_values(splits)));
            }
            let batch =
                RecordBatch::try_new(schema.clone(), columns).map_err(|error| failed(error.into()))?;
            writer.write(&batch).map_err(failed)?;
            done += records.len() as u64;
            progress.update(Stage::Writing, done, Some(total));
        }
        let file = writer.into_inner().map_err(failed)?;
        persist(file, output, overwrite)
    }

    fn texts(&self, records: &[Record], output: &Path) -> Result<StringArray> {
        let mut texts = Vec::with_capacity(records.len());
        for record in records {
            let bytes = &self.texts[record.start..record.start + record.bytes];
            let text = std::str::from_utf8(bytes).map_err(|error| {
                io("read back the temporary file beside", output)(std::io::Error::other(error))
            })?;
            texts.push(text);
        }
        Ok(StringArray::from_iter_values(texts))
    }
}

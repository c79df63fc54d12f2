//! Parquet files, read in batches of rows and only the columns named.

mod delta;
mod header;
pub(crate) mod pages;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection,
};
use parquet::file::metadata::RowGroupMetaData;

use crate::error::{DataError, Place, Result, bad_value, empty, io, quoted};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::spec::Columns;
use undertone_text::guard::caught;

/// Maximum size of the description at a file's end.
const MAX_FOOTER_BYTES: u64 = 16 << 20;
/// A file may expand to this size, or to [`MAX_EXPANSION`] times its own where that is more.
const EXPANSION_BYTES: u64 = 64 << 20;
const MAX_EXPANSION: u64 = 1000;
/// Bytes that every row costs, beside its text.
const ROW_BYTES: u64 = 40;

/// Bytes to which a file of `size` bytes may expand.
fn max_expanded(size: u64) -> u64 {
    EXPANSION_BYTES.max(size.saturating_mul(MAX_EXPANSION))
}

/// The message about a file that expands beyond that.
fn too_large() -> String {
    format!(
        "it expands to more than {} MiB and {MAX_EXPANSION} times its size",
        EXPANSION_BYTES >> 20
    )
}

/// A file whose description was read.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) metadata: ArrowReaderMetadata,
    size: u64,
}

impl Opened {
    /// The error is what is wrong, in words.
    fn load(mut file: File) -> Result<Opened, String> {
        let failed = |error: std::io::Error| error.to_string();
        let size = file.metadata().map_err(failed)?.len();
        // The library reads a description of any length, and believes the counts in it.
        if size >= 8 {
            let mut end = [0; 8];
            file.seek(SeekFrom::Start(size - 8)).map_err(failed)?;
            file.read_exact(&mut end).map_err(failed)?;
            let [length @ .., _, _, _, _] = end;
            let length = u64::from(u32::from_le_bytes(length));
            if end[4..] == *b"PAR1" && length > MAX_FOOTER_BYTES {
                return Err(format!(
                    "its description has {length} bytes, and at most {MAX_FOOTER_BYTES} are read"
                ));
            }
        }
        let metadata = caught(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        let metadata = metadata.map_err(|error| error.to_string())?;
        Ok(Opened { file, metadata, size })
    }

    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let file = File::open(path).map_err(io("read", path))?;
        Opened::load(file).map_err(damaged(path))
    }

    /// A reader of the wanted columns (of all rows, or of those of `selection`), in batches that fit in memory whatever the file holds.
    pub(crate) fn reader(
        &self,
        path: &Path,
        mask: ProjectionMask,
        selection: Option<RowSelection>,
    ) -> Result<Batches> {
        let pages = pages::inspect(&self.file, self.metadata.metadata(), &|leaf| {
            mask.leaf_included(leaf)
        })
        .map_err(damaged(path))?;
        let file = self.file.try_clone().map_err(io("read", path))?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(mask)
            .with_batch_size(pages.batch_rows);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        Batches::build(path, builder, self.size)
    }
}

fn damaged(path: &Path) -> impl Fn(String) -> DataError {
    let file = path.to_owned();
    move |detail| DataError::BadParquet {
        file: file.clone(),
        detail,
    }
}

/// The batches of a file, which is given up where it expands beyond what an honest one does.
pub(crate) struct Batches {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    left: u64,
}

impl Batches {
    /// `size`: bytes of the file.
    pub(crate) fn build(
        path: &Path,
        builder: ParquetRecordBatchReaderBuilder<File>,
        size: u64,
    ) -> Result<Batches> {
        let reader = caught(|| builder.build()).map_err(damaged(path))?;
        Ok(Batches {
            path: path.to_owned(),
            reader: reader.map_err(|error| damaged(path)(error.to_string()))?,
            left: max_expanded(size),
        })
    }

    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>> {
        let damaged = damaged(&self.path);
        let batch = caught(|| self.reader.next()).map_err(&damaged)?;
        let Some(batch) = batch else { return Ok(None) };
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        let bytes = ROW_BYTES * batch.num_rows() as u64 + expanded(&batch);
        self.left = self.left.checked_sub(bytes).ok_or_else(|| damaged(too_large()))?;
        Ok(Some(batch))
    }
}

/// Bytes of the values of a batch, repeated ones each time.
fn expanded(batch: &RecordBatch) -> u64 {
    let of = |array: &ArrayRef| match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value_data().len(),
        DataType::LargeUtf8 => array.as_string::<i64>().value_data().len(),
        DataType::Utf8View | DataType::Dictionary(..) => {
            let mut bytes = 0;
            let mut add = |text: Option<&str>| bytes += text.map_or(0, str::len);
            // Other dictionaries than those of text are counted as they lie.
            match each_text(array, &mut add) {
                Some(()) => bytes,
                None => array.get_buffer_memory_size(),
            }
        }
        _ => array.get_buffer_memory_size(),
    };
    batch.columns().iter().map(|array| of(array) as u64).sum()
}

pub(crate) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let file = File::open(path).map_err(io("read", path))?;
    if file.metadata().map_err(io("read", path))?.len() == 0 {
        return Err(empty(path, "bytes: it is an empty file"));
    }
    let damaged = damaged(path);
    let opened = Opened::load(file).map_err(&damaged)?;
    let (schema, metadata) = (opened.metadata.schema(), opened.metadata.metadata());
    let total = u64::try_from(metadata.file_metadata().num_rows()).ok();
    if total == Some(0) {
        return Err(empty(path, "rows"));
    }

    let names = || {
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect::<Vec<_>>()
    };
    let mut wanted = Vec::new();
    for (key, column, role) in [
        ("data.source.user", columns.user, Role::User),
        ("data.source.text", Some(columns.text), Role::Text),
        ("data.source.time", columns.time, Role::Time),
        ("data.source.split", columns.split, Role::Split),
    ] {
        let Some(column) = column else { continue };
        let Some(position) = schema.fields().iter().position(|field| field.name() == column) else {
            let (file, column) = (path.to_owned(), column.to_owned());
            return Err(DataError::MissingColumn {
                file,
                key,
                column,
                found: names(),
            });
        };
        let kind = schema.field(position).data_type();
        if !role.accepts(kind) {
            return Err(DataError::WrongType {
                file: path.to_owned(),
                column: column.to_owned(),
                expected: role.expected(),
                got: kind.to_string(),
            });
        }
        wanted.push((position, role));
    }
    let mask = ProjectionMask::roots(
        opened.metadata.parquet_schema(),
        wanted.iter().map(|(position, _)| *position),
    );
    let mut batches = opened.reader(path, mask, None)?;

    let mut rows = Rows::of_table(path, columns);
    let mut first_row = 1_u64;
    while let Some(batch) = batches.next()? {
        for &(position, role) in &wanted {
            let name = schema.field(position).name();
            let column = Column {
                path,
                name,
                first_row,
                array: find(&batch, name).ok_or_else(|| damaged(format!("column {name} is absent")))?,
            };
            match role {
                Role::User => column.each_name(|user| rows.users.push(user))?,
                Role::Text => column.each_text(|text| rows.texts.push(text.unwrap_or("")))?,
                Role::Time => column.each_time(|seconds| rows.times.push(seconds))?,
                Role::Split => column.each_name(|split| rows.splits.push(split))?,
            }
        }
        let count = batch.num_rows();
        rows.places.extend(first_row..first_row + count as u64);
        if columns.time.is_none() {
            rows.times.resize(rows.places.len(), NO_TIME);
        }
        first_row += count as u64;
        rows.hand_over(on_rows, total)?;
    }
    match rows.len() {
        0 => Ok(()),
        _ => on_rows(&rows, total),
    }
}

/// Rows, as the file tells.
pub(crate) fn num_rows(path: &Path) -> Result<u64> {
    let rows = Opened::open(path)?.metadata.metadata().file_metadata().num_rows();
    Ok(u64::try_from(rows).unwrap_or(0))
}

/// Bytes of users and texts before compression, as the file tells.
pub(crate) fn text_bytes(path: &Path, columns: Columns<'_>) -> Result<u64> {
    let Opened { metadata, size, .. } = Opened::open(path)?;
    let wanted = [columns.user, Some(columns.text)];
    let groups = metadata.metadata().row_groups().iter();
    let bytes = groups
        .flat_map(RowGroupMetaData::columns)
        .filter(|chunk| wanted.contains(&Some(chunk.column_path().string().as_str())))
        .map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0))
        .fold(0, u64::saturating_add);
    Ok(bytes.min(max_expanded(size)))
}

fn find<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a ArrayRef> {
    batch.column_by_name(name)
}

#[derive(Clone, Copy)]
enum Role {
    User,
    Text,
    Time,
    Split,
}

impl Role {
    fn accepts(self, kind: &DataType) -> bool {
        match self {
            Role::Text | Role::Split => is_text(kind),
            Role::User => is_text(kind) || kind.is_integer(),
            Role::Time => {
                kind.is_integer()
                    || matches!(
                        kind,
                        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
                    )
            }
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Role::Text | Role::Split => "a string type (Utf8, LargeUtf8, Utf8View or a dictionary of them)",
            Role::User => "a string or integer type",
            Role::Time => "an integer (unix seconds), Timestamp or Date type",
        }
    }
}

/// Gives the texts of an array in order; `None` for an array of another kind.
fn each_text(array: &ArrayRef, take: &mut dyn FnMut(Option<&str>)) -> Option<()> {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().for_each(take),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().for_each(take),
        DataType::Utf8View => array.as_string_view().iter().for_each(take),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = dictionary.values();
            let text = |index: usize| match values.data_type() {
                DataType::Utf8 => values.as_string::<i32>().value(index),
                DataType::LargeUtf8 => values.as_string::<i64>().value(index),
                _ => values.as_string_view().value(index),
            };
            if !is_text(dictionary.values().data_type()) {
                return None;
            }
            if values.is_empty() {
                (0..dictionary.len()).for_each(|_| take(None));
                return Some(());
            }
            for (index, key) in dictionary.normalized_keys().into_iter().enumerate() {
                let null = dictionary.keys().is_null(index) || values.is_null(key);
                take(if null { None } else { Some(text(key)) });
            }
        }
        _ => return None,
    }
    Some(())
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => {
            matches!(
                **values,
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
            )
        }
        _ => false,
    }
}

/// One column of one batch.
struct Column<'a> {
    path: &'a Path,
    name: &'a str,
    first_row: u64,
    array: &'a ArrayRef,
}

impl Column<'_> {
    fn bad(&self, index: usize, expected: &str, got: String) -> DataError {
        bad_value(
            self.path,
            Place::Row(self.first_row + index as u64),
            format!("column {}", quoted(self.name)),
            expected,
            got,
        )
    }

    fn wrong_type(&self, expected: &'static str) -> DataError {
        let (file, column) = (self.path.to_owned(), self.name.to_owned());
        DataError::WrongType {
            file,
            column,
            expected,
            got: self.array.data_type().to_string(),
        }
    }

    fn each_text(&self, mut take: impl FnMut(Option<&str>)) -> Result<()> {
        let (mut long, mut index) = (None, 0);
        let known = each_text(self.array, &mut |text| {
            let bytes = text.map_or(0, str::len);
            if bytes > MAX_TEXT_BYTES {
                long = long.or(Some((index, bytes)));
            } else {
                take(text);
            }
            index += 1;
        });
        known.ok_or_else(|| self.wrong_type(Role::Text.expected()))?;
        match long {
            Some((index, bytes)) => {
                let expected = format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)");
                Err(self.bad(index, &expected, format!("{bytes} bytes")))
            }
            None => Ok(()),
        }
    }

    /// Texts and integers as text; null and the empty text are errors.
    fn each_name(&self, mut take: impl FnMut(&str)) -> Result<()> {
        let mut missing = None;
        let mut index = 0;
        let mut each = |name: Option<&str>| {
            match name {
                Some(name) if !name.is_empty() => take(name),
                other => {
                    missing = missing.or(Some((
                        index,
                        if other.is_none() {
                            "null"
                        } else {
                            "an empty string"
                        },
                    )));
                }
            }
            index += 1;
        };
        if is_text(self.array.data_type()) {
            self.each_text(&mut each)?;
        } else {
            let mut digits = String::new();
            self.each_integer(&mut |value| match value {
                None => each(None),
                Some(value) => {
                    use std::fmt::Write;
                    digits.clear();
                    // Writing to a String cannot fail.
                    let _ = write!(digits, "{value}");
                    each(Some(&digits));
                }
            })?;
        }
        match missing {
            Some((index, got)) => Err(self.bad(index, "a value", got.to_owned())),
            None => Ok(()),
        }
    }

    fn each_integer(&self, take: &mut dyn FnMut(Option<i128>)) -> Result<()> {
        fn each<T: ArrowPrimitiveType<Native: Into<i128>>>(
            array: &ArrayRef,
            take: &mut dyn FnMut(Option<i128>),
        ) {
            array
                .as_primitive::<T>()
                .iter()
                .for_each(|value| take(value.map(Into::into)));
        }
        match self.array.data_type() {
            DataType::Int8 => each::<Int8Type>(self.array, take),
            DataType::Int16 => each::<Int16Type>(self.array, take),
            DataType::Int32 => each::<Int32Type>(self.array, take),
            DataType::Int64 => each::<Int64Type>(self.array, take),
            DataType::UInt8 => each::<UInt8Type>(self.array, take),
            DataType::UInt16 => each::<UInt16Type>(self.array, take),
            DataType::UInt32 => each::<UInt32Type>(self.array, take),
            DataType::UInt64 => each::<UInt64Type>(self.array, take),
            DataType::Timestamp(TimeUnit::Second, _) => each::<TimestampSecondType>(self.array, take),
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                each::<TimestampMillisecondType>(self.array, take);
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                each::<TimestampMicrosecondType>(self.array, take);
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => each::<TimestampNanosecondType>(self.array, take),
            DataType::Date32 => each::<Date32Type>(self.array, take),
            DataType::Date64 => each::<Date64Type>(self.array, take),
            _ => return Err(self.wrong_type(Role::User.expected())),
        }
        Ok(())
    }

    /// Seconds, or [`NO_TIME`] for null.
    fn each_time(&self, mut take: impl FnMut(i64)) -> Result<()> {
        let (multiply, divide) = match self.array.data_type() {
            DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => (1, 1_000),
            DataType::Timestamp(TimeUnit::Microsecond, _) => (1, 1_000_000),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => (1, 1_000_000_000),
            DataType::Date32 => (86_400, 1),
            _ => (1, 1),
        };
        let mut wrong = None;
        let mut index = 0;
        self.each_integer(&mut |value| {
            match value.map(|value| i64::try_from(value * multiply / divide)) {
                None => take(NO_TIME),
                Some(Ok(seconds)) if seconds != NO_TIME => take(seconds),
                Some(_) => wrong = wrong.or(Some(index)),
            }
            index += 1;
        })?;
        match wrong {
            Some(index) => Err(self.bad(index, "a time", "a number beyond 64 bits".to_owned())),
            None => Ok(()),
        }
    }
}

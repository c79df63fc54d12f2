//! Parquet files, read in batches of rows and only the columns named.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use crate::error::{DataError, Place, Result, io};
use crate::rows::{NO_TIME, Rows};
use crate::source::OnRows;
use crate::spec::Columns;

const BATCH_ROWS: usize = 8192;

pub(crate) fn read(path: &Path, columns: Columns<'_>, on_rows: &mut OnRows<'_>) -> Result<()> {
    let file = File::open(path).map_err(io("read", path))?;
    if file.metadata().map_err(io("read", path))?.len() == 0 {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "bytes: it is an empty file",
        });
    }
    let damaged = |detail: String| DataError::BadParquet {
        file: path.to_owned(),
        detail,
    };
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(error.to_string()))?;
    let schema = builder.schema().clone();
    let total = u64::try_from(builder.metadata().file_metadata().num_rows()).ok();
    if total == Some(0) {
        return Err(DataError::Empty {
            path: path.to_owned(),
            expected: "rows",
        });
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
        builder.parquet_schema(),
        wanted.iter().map(|(position, _)| *position),
    );
    let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
    let reader = reader.map_err(|error| damaged(error.to_string()))?;

    let mut rows = Rows::of_table(path);
    let mut first_row = 1_u64;
    for batch in reader {
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
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
        if columns.time.is_none() {
            rows.times.resize(count, NO_TIME);
        }
        rows.places.extend(first_row..first_row + count as u64);
        first_row += count as u64;
        on_rows(&rows, total)?;
        rows.clear();
    }
    Ok(())
}

/// Rows, as the file tells.
pub(crate) fn num_rows(path: &Path) -> Result<u64> {
    let rows = metadata(path)?.file_metadata().num_rows();
    Ok(u64::try_from(rows).unwrap_or(0))
}

/// Bytes of users and texts before compression, as the file tells.
pub(crate) fn text_bytes(path: &Path, columns: Columns<'_>) -> Result<u64> {
    let metadata = metadata(path)?;
    let wanted = [columns.user, Some(columns.text)];
    let chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    Ok(chunks
        .filter(|chunk| wanted.contains(&Some(chunk.column_path().string().as_str())))
        .map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0))
        .sum())
}

fn metadata(path: &Path) -> Result<Arc<ParquetMetaData>> {
    let file = File::open(path).map_err(io("read", path))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| DataError::BadParquet {
        file: path.to_owned(),
        detail: error.to_string(),
    })?;
    Ok(Arc::clone(builder.metadata()))
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

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
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
        DataError::BadValue {
            file: self.path.to_owned(),
            place: Place::Row(self.first_row + index as u64),
            what: format!("column \"{}\"", self.name),
            expected: expected.to_owned(),
            got,
        }
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
        self.each_text_of(self.array, &mut take)
    }

    fn each_text_of(&self, array: &ArrayRef, take: &mut dyn FnMut(Option<&str>)) -> Result<()> {
        match array.data_type() {
            DataType::Utf8 => array.as_string::<i32>().iter().for_each(take),
            DataType::LargeUtf8 => array.as_string::<i64>().iter().for_each(take),
            DataType::Utf8View => array.as_string_view().iter().for_each(take),
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let mut values: Vec<Option<String>> = Vec::with_capacity(dictionary.values().len());
                self.each_text_of(dictionary.values(), &mut |value| {
                    values.push(value.map(str::to_owned));
                })?;
                if values.is_empty() {
                    (0..dictionary.len()).for_each(|_| take(None));
                    return Ok(());
                }
                for (index, key) in dictionary.normalized_keys().into_iter().enumerate() {
                    take(if dictionary.keys().is_null(index) {
                        None
                    } else {
                        values[key].as_deref()
                    });
                }
            }
            _ => return Err(self.wrong_type(Role::Text.expected())),
        }
        Ok(())
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
                Some(Ok(seconds)) => take(seconds),
                Some(Err(_)) => wrong = wrong.take().or(Some((index, "a number beyond 64 bits"))),
                None => wrong = wrong.take().or(Some((index, "null"))),
            }
            index += 1;
        })?;
        match wrong {
            Some((index, got)) => Err(self.bad(index, "a time", got.to_owned())),
            None => Ok(()),
        }
    }
}

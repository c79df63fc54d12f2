//! The columns of Arrow batches, as rows.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema, TimeUnit};

use crate::error::{DataError, Place, Result, bad_value, quoted};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::{NO_TIME, Rows};
use crate::spec::Columns;

/// The wanted columns of a table, found in its schema.
pub(crate) struct Wanted {
    path: PathBuf,
    columns: Vec<(usize, String, Role)>,
    timed: bool,
}

impl Wanted {
    /// Finds the columns and checks their types. `path` names the table in errors.
    pub(crate) fn find(path: &Path, schema: &Schema, columns: Columns<'_>) -> Result<Wanted> {
        let mut wanted = Wanted {
            path: path.to_owned(),
            columns: Vec::new(),
            timed: columns.time.is_some(),
        };
        for (key, column, role) in [
            ("data.source.user", columns.user, Role::User),
            ("data.source.text", Some(columns.text), Role::Text),
            ("data.source.time", columns.time, Role::Time),
            ("data.source.split", columns.split, Role::Split),
        ] {
            let Some(column) = column else { continue };
            let Some(position) = schema.fields().iter().position(|field| field.name() == column) else {
                let (file, column) = (path.to_owned(), column.to_owned());
                let names = schema.fields().iter().map(|field| field.name().clone());
                return Err(DataError::MissingColumn {
                    file,
                    key,
                    column,
                    found: names.collect(),
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
            wanted.columns.push((position, column.to_owned(), role));
        }
        Ok(wanted)
    }

    /// The positions of the columns in the schema.
    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|(position, ..)| *position)
    }

    /// Appends the rows of a batch, which may hold only the wanted columns; the first one has the number `first_row`.
    pub(crate) fn take(&self, batch: &RecordBatch, first_row: u64, rows: &mut Rows) -> Result<()> {
        for (_, name, role) in &self.columns {
            let Some(array) = batch.column_by_name(name) else {
                return Err(DataError::MissingColumn {
                    file: self.path.clone(),
                    key: "the schema",
                    column: name.clone(),
                    found: Vec::new(),
                });
            };
            let column = Column {
                path: &self.path,
                name,
                first_row,
                array,
            };
            match role {
                Role::User => column.each_name(|user| rows.users.push(user))?,
                Role::Text => column.each_text(|text| rows.texts.push(text.unwrap_or("")))?,
                Role::Time => column.each_time(|seconds| rows.times.push(seconds))?,
                Role::Split => column.each_name(|split| rows.splits.push(split))?,
            }
        }
        rows.places.extend(first_row..first_row + batch.num_rows() as u64);
        if !self.timed {
            rows.times.resize(rows.places.len(), NO_TIME);
        }
        Ok(())
    }
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
pub(crate) fn each_text(array: &ArrayRef, take: &mut dyn FnMut(Option<&str>)) -> Option<()> {
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

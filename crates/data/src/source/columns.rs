//! The columns of Arrow batches, as rows.

mod cells;

use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit as Parts};

use crate::columns::Columns;
use crate::error::{DataError, Place, Result, bad_value, missing_column, quoted};
use crate::limits::MAX_TEXT_BYTES;
use crate::rows::Rows;
use cells::{is_number, is_text, value_type};
use undertone_settings::TimeUnit;
use undertone_settings::time::NO_TIME;

pub(crate) use cells::{Cell, Refused, Unit, text_bytes};

/// The key of a field's metadata under which Arrow names the types of other programs.
const EXTENSION: &str = "ARROW:extension:name";
/// Arrow's name of UUIDs, which are stored as 16 bytes.
const UUID: &str = "arrow.uuid";

/// The wanted columns of a table, found in its schema.
pub(crate) struct Wanted {
    path: PathBuf,
    columns: Vec<Found>,
    timed: bool,
    /// The unit of times whose type says none.
    time_unit: Option<TimeUnit>,
}

/// A wanted column.
struct Found {
    position: usize,
    name: String,
    role: Role,
}

impl Wanted {
    /// Finds the columns and checks their types. `path` names the table in errors.
    pub(crate) fn find(path: &Path, schema: &Schema, columns: Columns<'_>) -> Result<Wanted> {
        let mut wanted = Wanted {
            path: path.to_owned(),
            columns: Vec::new(),
            timed: columns.time.is_some(),
            time_unit: columns.time_unit,
        };
        for (key, column, role) in [
            (columns.keys.user, columns.user, Role::User),
            (columns.keys.text, Some(columns.text), Role::Text),
            (columns.keys.time, columns.time, Role::Time),
            (columns.keys.split, columns.split, Role::Split),
        ] {
            let Some(column) = column else { continue };
            let Some(position) = schema.fields().iter().position(|field| field.name() == column) else {
                let names = schema.fields().iter().map(|field| field.name().clone());
                return Err(missing_column(path, key, column, names.collect()));
            };
            let field = schema.field(position);
            if let Err(got) = role.accepts(field) {
                return Err(DataError::WrongType {
                    file: path.to_owned(),
                    column: column.to_owned(),
                    expected: role.expected(),
                    got,
                });
            }
            wanted.columns.push(Found {
                position,
                name: column.to_owned(),
                role,
            });
        }
        Ok(wanted)
    }

    /// The positions of the columns in the schema.
    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|found| found.position)
    }

    /// Appends the rows of a batch, which may hold only the wanted columns; the first one has the number `first_row`.
    pub(crate) fn take(&self, batch: &RecordBatch, first_row: u64, rows: &mut Rows) -> Result<()> {
        for Found { name, role, .. } in &self.columns {
            let Some(array) = batch.column_by_name(name) else {
                return Err(missing_column(&self.path, "the schema", name, Vec::new()));
            };
            let column = Column {
                path: &self.path,
                name,
                role: *role,
                first_row,
                array,
            };
            match role {
                Role::User => column.each_name(|user| rows.users.push(user))?,
                Role::Text => column.each_text(|text| rows.texts.push(text))?,
                Role::Time => column.each_time(self.time_unit, |seconds| rows.times.push(seconds))?,
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
    /// The error is the type in words.
    fn accepts(self, field: &Field) -> Result<(), String> {
        let kind = field.data_type();
        // Other programs give the stored numbers and bytes another meaning.
        if let Some(name) = field.metadata().get(EXTENSION)
            && name != UUID
            && name != "arrow.json"
        {
            let advice = match &**name {
                "pandas.period" => ".dt.to_timestamp() makes times",
                _ => "convert it to such a type",
            };
            return Err(format!("the extension type {} of {kind}; {advice}", quoted(name)));
        }
        let accepted = match self {
            Role::Text | Role::Split => is_text(kind),
            Role::User => {
                is_text(kind) || is_number(kind) || matches!(value_type(kind), DataType::FixedSizeBinary(16))
            }
            Role::Time => {
                is_text(kind)
                    || is_number(kind)
                    || matches!(
                        value_type(kind),
                        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
                    )
            }
        };
        match accepted {
            true => Ok(()),
            false => Err(kind.to_string()),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Role::Text | Role::Split => {
                "a string type (Utf8, LargeUtf8, Utf8View, binary UTF-8 or a dictionary of them)"
            }
            Role::User => "a string type, UUIDs (16 bytes), or whole numbers of any type",
            Role::Time => {
                "a Timestamp or Date type, unix seconds of any number type, or ISO times in a string type"
            }
        }
    }
}

/// One column of one batch.
struct Column<'a> {
    path: &'a Path,
    name: &'a str,
    role: Role,
    first_row: u64,
    array: &'a ArrayRef,
}

impl<'a> Column<'a> {
    fn bad(&self, index: u64, expected: &str, got: String) -> DataError {
        bad_value(
            self.path,
            Place::Row(self.first_row + index),
            format!("column {}", quoted(self.name)),
            expected,
            got,
        )
    }

    /// Gives all values to `take`, and returns the first refusal as the error of its row.
    fn each(&self, take: &mut dyn FnMut(Cell<'a>) -> Result<(), Refused>) -> Result<()> {
        let (mut wrong, mut index) = (None, 0_u64);
        let known = cells::each(self.array, &mut |cell| {
            if wrong.is_none()
                && let Err(refused) = take(cell)
            {
                wrong = Some((index, refused));
            }
            index += 1;
        });
        if known.is_none() {
            return Err(DataError::WrongType {
                file: self.path.to_owned(),
                column: self.name.to_owned(),
                expected: self.role.expected(),
                got: self.array.data_type().to_string(),
            });
        }
        match wrong {
            Some((index, (expected, got))) => Err(self.bad(index, &expected, got)),
            None => Ok(()),
        }
    }

    /// Null is the empty text.
    fn each_text(&self, mut take: impl FnMut(&str)) -> Result<()> {
        self.each(&mut |cell| {
            take(bounded(cell.text()?.unwrap_or(""))?);
            Ok(())
        })
    }

    /// Null and the empty text are errors.
    fn each_name(&self, mut take: impl FnMut(&str)) -> Result<()> {
        let mut digits = String::new();
        self.each(&mut |cell| {
            take(bounded(cell.name(&mut digits)?)?);
            Ok(())
        })
    }

    /// Seconds, or [`NO_TIME`] for null.
    fn each_time(&self, numbers: Option<TimeUnit>, mut take: impl FnMut(i64)) -> Result<()> {
        let unit = match value_type(self.array.data_type()) {
            DataType::Timestamp(Parts::Second, _) => Unit::Parts(1),
            DataType::Timestamp(Parts::Millisecond, _) | DataType::Date64 => Unit::Parts(1_000),
            DataType::Timestamp(Parts::Microsecond, _) => Unit::Parts(1_000_000),
            DataType::Timestamp(Parts::Nanosecond, _) => Unit::Parts(1_000_000_000),
            DataType::Date32 => Unit::Days,
            _ => Unit::Number,
        };
        self.each(&mut |cell| {
            take(cell.seconds(unit, numbers)?);
            Ok(())
        })
    }
}

fn bounded(text: &str) -> Result<&str, Refused> {
    match text.len() <= MAX_TEXT_BYTES {
        true => Ok(text),
        false => Err((
            format!("at most {MAX_TEXT_BYTES} bytes (max_text_bytes)"),
            format!("{} bytes", text.len()),
        )),
    }
}

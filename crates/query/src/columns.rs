//! Conversion of the query's columns to rows of people.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema, TimeUnit};
use datafusion::error::DataFusionError;
use undertone_data::{GroupedRow, Split};

use crate::error::{QueryError, Result};

const USER: &str = "user_id";
const TEXT: &str = "text";
const TIME: &str = "timestamp";
const SPLIT: &str = "split";

/// The kind of value that a column must hold.
struct Role {
    column: &'static str,
    expected: &'static str,
    fits: fn(&DataType) -> bool,
    hint: &'static str,
}

const ROLES: [Role; 4] = [
    Role {
        column: USER,
        expected: "text or integers",
        fits: |kind| is_text(kind) || kind.is_integer(),
        hint: "",
    },
    Role {
        column: TEXT,
        expected: "text",
        fits: is_text,
        hint: "",
    },
    Role {
        column: TIME,
        expected: "an integer (unix seconds), a timestamp or a date",
        fits: is_time,
        hint: " (CAST(... AS BIGINT) or CAST(... AS TIMESTAMP) reads text)",
    },
    Role {
        column: SPLIT,
        expected: "text",
        fits: is_text,
        hint: "",
    },
];

impl Role {
    /// The one column of this name, if there is one, of a type that fits.
    fn find(&self, schema: &Schema) -> Result<Option<usize>> {
        let mut found = (0..schema.fields().len()).filter(|&at| schema.field(at).name() == self.column);
        let Some(index) = found.next() else {
            return Ok(None);
        };
        if found.next().is_some() {
            return Err(QueryError::ColumnTwice { column: self.column });
        }
        let kind = schema.field(index).data_type();
        if !(self.fits)(kind) {
            return Err(QueryError::WrongType {
                column: self.column,
                expected: self.expected,
                got: kind.to_string(),
                hint: self.hint,
            });
        }
        Ok(Some(index))
    }
}

/// Columns of a query's rows that are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    user: usize,
    text: usize,
    pub(crate) time: Option<usize>,
    pub(crate) split: Option<usize>,
    /// Names of columns that nothing is done with.
    pub(crate) ignored: Vec<String>,
}

impl Columns {
    /// Finds the columns by name and checks their types.
    pub(crate) fn of(schema: &Schema) -> Result<Columns> {
        let [user, text, time, split] = ROLES.each_ref().map(|role| role.find(schema));
        let (user, text, time, split) = (user?, text?, time?, split?);
        let used = [user, text, time, split];
        let all = schema.fields().iter().enumerate();
        let ignored = all
            .filter(|(index, _)| !used.contains(&Some(*index)))
            .map(|(_, field)| field.name().clone())
            .collect();
        let needed = |column, index: Option<usize>| {
            index.ok_or_else(|| {
                let names = schema
                    .fields()
                    .iter()
                    .map(|field| format!("\"{}\"", field.name()));
                QueryError::MissingColumn {
                    column,
                    found: names.collect::<Vec<_>>().join(", "),
                }
            })
        };
        Ok(Columns {
            user: needed(USER, user)?,
            text: needed(TEXT, text)?,
            time,
            split,
            ignored,
        })
    }

    /// Gives `take` every row of a batch.
    pub(crate) fn rows(
        &self,
        batch: &RecordBatch,
        take: &mut dyn FnMut(&GroupedRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let users = strings(batch.column(self.user))?;
        let texts = strings(batch.column(self.text))?;
        let times = self.time.map(|index| seconds(batch.column(index))).transpose()?;
        let splits = self.split.map(|index| strings(batch.column(index))).transpose()?;
        let null = |column, expected, hint| QueryError::BadValue {
            column,
            expected,
            got: "null".to_owned(),
            hint,
        };
        if users.null_count() > 0 {
            let hint = " (WHERE user_id IS NOT NULL leaves out text of nobody)";
            return Err(null(USER, "whose the text is", hint));
        }
        for row in 0..batch.num_rows() {
            let split = match &splits {
                None => None,
                Some(splits) if splits.is_null(row) => return Err(null(SPLIT, SPLITS, "")),
                Some(splits) => {
                    Some(
                        Split::parse(splits.value(row)).ok_or_else(|| QueryError::BadValue {
                            column: SPLIT,
                            expected: SPLITS,
                            got: format!("\"{}\"", splits.value(row)),
                            hint: "",
                        })?,
                    )
                }
            };
            take(&GroupedRow {
                user: users.value(row),
                // As in every other source: a null text is an empty one.
                text: if texts.is_null(row) { "" } else { texts.value(row) },
                // Nothing here needs the time of every row.
                time: times
                    .as_ref()
                    .filter(|times| !times.is_null(row))
                    .map(|times| times.value(row)),
                split,
            })?;
        }
        Ok(())
    }
}

const SPLITS: &str = "\"train\", \"validation\" or \"test\"";

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

fn is_time(kind: &DataType) -> bool {
    kind.is_integer()
        || matches!(
            kind,
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
        )
}

/// Casts, with an error where a value does not fit.
fn cast(array: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, kind, &options)
        .map_err(|error| QueryError::planning(&DataFusionError::from(error)))
}

fn strings(array: &ArrayRef) -> Result<StringViewArray> {
    // By way of plain strings where a view cannot be made at once, as of integers.
    let array = match array.data_type() {
        kind if kind.is_integer() => cast(array, &DataType::Utf8)?,
        _ => array.clone(),
    };
    Ok(cast(&array, &DataType::Utf8View)?.as_string_view().clone())
}

/// Unix seconds, rounded down.
fn seconds(array: &ArrayRef) -> Result<Int64Array> {
    let (factor, divisor) = match array.data_type() {
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => (1, 1_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => (1, 1_000_000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => (1, 1_000_000_000),
        DataType::Date32 => (86_400, 1),
        _ => (1, 1),
    };
    // Days are 32 bits wide, so that the product fits.
    let days = match array.data_type() {
        DataType::Date32 => cast(array, &DataType::Int32)?,
        _ => array.clone(),
    };
    let numbers = cast(&days, &DataType::Int64)?;
    let numbers = numbers.as_primitive::<Int64Type>();
    Ok(numbers.unary(|value| (value * factor).div_euclid(divisor)))
}

//! Single values of Arrow arrays, whichever type holds them.

use std::fmt::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit as Parts};

use crate::error::quoted;
use undertone_settings::TimeUnit;
use undertone_settings::time::{self, NO_TIME};

/// Floats beyond this are not exact whole numbers.
const MAX_WHOLE_FLOAT: f64 = 9_007_199_254_740_992.0;

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Text(&'a str),
    /// Bytes that should be UTF-8.
    Bytes(&'a [u8]),
    /// The 16 bytes of a UUID.
    Uuid(&'a [u8]),
    Whole(i128),
    /// A number with so many digits behind the point; `None` for one beyond 128 bits.
    Decimal(Option<i128>, i8),
    Float(f64),
}

/// The reason why a cell cannot be used: the expected value, and the found one.
pub(crate) type Refused = (String, String);

fn refused<T>(expected: &str, got: impl Into<String>) -> Result<T, Refused> {
    Err((expected.to_owned(), got.into()))
}

impl<'a> Cell<'a> {
    /// The text; `None` for null.
    pub(crate) fn text(self) -> Result<Option<&'a str>, Refused> {
        match self {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            Cell::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => refused("UTF-8", "other bytes"),
            },
            other => refused("text", format!("{other:?}")),
        }
    }

    /// The name of a user: a text, or a whole number in digits, which are written into `buffer`.
    pub(crate) fn name<'b>(self, buffer: &'b mut String) -> Result<&'b str, Refused>
    where
        'a: 'b,
    {
        const EXPECTED: &str = "a whole number, because it names a user";
        buffer.clear();
        // Writing to a String cannot fail.
        match self {
            Cell::Null => return refused("a value", "null"),
            Cell::Text(_) | Cell::Bytes(_) => {
                return match self.text()? {
                    Some(text) if !text.is_empty() => Ok(text),
                    _ => refused("a value", "an empty string"),
                };
            }
            Cell::Uuid(bytes) => {
                for (place, byte) in bytes.iter().enumerate() {
                    if matches!(place, 4 | 6 | 8 | 10) {
                        buffer.push('-');
                    }
                    let _ = write!(buffer, "{byte:02x}");
                }
            }
            Cell::Whole(value) => {
                let _ = write!(buffer, "{value}");
            }
            Cell::Decimal(value, scale) => match value.and_then(|value| whole(value, scale)) {
                Some(value) => {
                    let _ = write!(buffer, "{value}");
                }
                None => return refused(EXPECTED, decimal(value, scale)),
            },
            Cell::Float(value) if value.fract() == 0.0 && value.abs() <= MAX_WHOLE_FLOAT => {
                let _ = write!(buffer, "{}", value as i64);
            }
            Cell::Float(value) => return refused(EXPECTED, format!("{value}")),
        }
        Ok(buffer)
    }

    /// The time, floored to seconds; [`NO_TIME`] for null, for an empty text and for no number. `numbers` is the unit of values whose type
    /// says none.
    pub(crate) fn seconds(self, unit: Unit, numbers: Option<TimeUnit>) -> Result<i64, Refused> {
        let typed = |seconds: Option<i64>| seconds.map(Some).ok_or_else(|| "a time of 64 bits".to_owned());
        let seconds = match (self, unit) {
            (Cell::Null, _) => return Ok(NO_TIME),
            (Cell::Whole(value), Unit::Parts(parts)) => typed(time::floored(value, parts)),
            (Cell::Whole(value), Unit::Days) => typed(time::floored(value * 86_400, 1)),
            (Cell::Whole(value), Unit::Number) => time::of_integer(value, numbers).map(Some),
            (Cell::Float(value), _) => time::of_float(value, numbers),
            (Cell::Decimal(value, scale), _) => {
                let whole = value
                    .and_then(|value| floor(value, scale))
                    .ok_or_else(time::expected);
                whole.and_then(|whole| time::of_integer(whole, numbers)).map(Some)
            }
            (cell, _) => time::of_text(cell.text()?.unwrap_or_default(), numbers),
        };
        match seconds {
            Ok(Some(NO_TIME)) => Err((time::expected(), self.shown())),
            Ok(seconds) => Ok(seconds.unwrap_or(NO_TIME)),
            Err(expected) => Err((expected, self.shown())),
        }
    }

    fn shown(self) -> String {
        match self {
            Cell::Whole(value) => value.to_string(),
            Cell::Float(value) => value.to_string(),
            Cell::Decimal(value, scale) => decimal(value, scale),
            Cell::Text(text) => quoted(text.trim()),
            Cell::Bytes(bytes) => quoted(String::from_utf8_lossy(bytes).trim()),
            other => format!("{other:?}"),
        }
    }
}

/// The unit of the numbers of a time column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    /// So many make a second.
    Parts(i128),
    Days,
    /// A type of numbers, which says nothing.
    Number,
}

/// The value of a decimal that is a whole number.
fn whole(value: i128, scale: i8) -> Option<i128> {
    let power = 10_i128.checked_pow(u32::from(scale.unsigned_abs()));
    match (scale, power) {
        (_, _) if value == 0 => Some(0),
        (..0, power) => value.checked_mul(power?),
        (_, power) => Some(value / power?).filter(|_| power.is_some_and(|power| value % power == 0)),
    }
}

/// The largest whole number that does not exceed a decimal.
pub(crate) fn floor(value: i128, scale: i8) -> Option<i128> {
    match (scale, 10_i128.checked_pow(u32::from(scale.unsigned_abs()))) {
        (..0, power) => value.checked_mul(power?),
        (_, Some(power)) => Some(value.div_euclid(power)),
        (_, None) => Some(if value < 0 { -1 } else { 0 }),
    }
}

fn decimal(value: Option<i128>, scale: i8) -> String {
    match value {
        Some(value) => format!("{value} with {scale} digits behind the point"),
        None => "a number beyond 128 bits".to_owned(),
    }
}

/// `true` for the types of texts and of bytes that should be texts, also in a dictionary.
pub(crate) fn is_text(kind: &DataType) -> bool {
    matches!(
        value_type(kind),
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// `true` for the types of numbers, also in a dictionary.
pub(crate) fn is_number(kind: &DataType) -> bool {
    let kind = value_type(kind);
    kind.is_integer() || kind.is_floating() || kind.is_decimal()
}

/// The type of the values of a dictionary; other types are their own.
pub(crate) fn value_type(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => values,
        kind => kind,
    }
}

/// Gives the values of an array in order; `None` for an array of another kind.
pub(crate) fn each<'a>(array: &'a ArrayRef, take: &mut dyn FnMut(Cell<'a>)) -> Option<()> {
    let text = |text: Option<&'a str>| text.map_or(Cell::Null, Cell::Text);
    match array.data_type() {
        DataType::Utf8 => array
            .as_string::<i32>()
            .iter()
            .for_each(|value| take(text(value))),
        DataType::LargeUtf8 => array
            .as_string::<i64>()
            .iter()
            .for_each(|value| take(text(value))),
        DataType::Utf8View => array.as_string_view().iter().for_each(|value| take(text(value))),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = dictionary.values();
            if values.is_empty() {
                (0..dictionary.len()).for_each(|_| take(Cell::Null));
                return Some(());
            }
            for (index, key) in dictionary.normalized_keys().into_iter().enumerate() {
                match dictionary.keys().is_null(index) {
                    true => take(Cell::Null),
                    false => take(at(values, key)?),
                }
            }
        }
        _ => {
            for index in 0..array.len() {
                take(at(array, index)?);
            }
        }
    }
    Some(())
}

/// One value of an array that is no dictionary.
fn at(array: &ArrayRef, index: usize) -> Option<Cell<'_>> {
    if array.is_null(index) {
        return Some(Cell::Null);
    }
    fn of<T: ArrowPrimitiveType>(array: &ArrayRef, index: usize) -> T::Native {
        array.as_primitive::<T>().value(index)
    }
    Some(match array.data_type() {
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(index)),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(index)),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(index)),
        DataType::Binary => Cell::Bytes(array.as_binary::<i32>().value(index)),
        DataType::LargeBinary => Cell::Bytes(array.as_binary::<i64>().value(index)),
        DataType::BinaryView => Cell::Bytes(array.as_binary_view().value(index)),
        DataType::FixedSizeBinary(16) => Cell::Uuid(array.as_fixed_size_binary().value(index)),
        DataType::Int8 => Cell::Whole(of::<Int8Type>(array, index).into()),
        DataType::Int16 => Cell::Whole(of::<Int16Type>(array, index).into()),
        DataType::Int32 => Cell::Whole(of::<Int32Type>(array, index).into()),
        DataType::Int64 => Cell::Whole(of::<Int64Type>(array, index).into()),
        DataType::UInt8 => Cell::Whole(of::<UInt8Type>(array, index).into()),
        DataType::UInt16 => Cell::Whole(of::<UInt16Type>(array, index).into()),
        DataType::UInt32 => Cell::Whole(of::<UInt32Type>(array, index).into()),
        DataType::UInt64 => Cell::Whole(of::<UInt64Type>(array, index).into()),
        DataType::Float16 => Cell::Float(of::<Float16Type>(array, index).into()),
        DataType::Float32 => Cell::Float(of::<Float32Type>(array, index).into()),
        DataType::Float64 => Cell::Float(of::<Float64Type>(array, index)),
        DataType::Decimal32(_, scale) => {
            Cell::Decimal(Some(of::<Decimal32Type>(array, index).into()), *scale)
        }
        DataType::Decimal64(_, scale) => {
            Cell::Decimal(Some(of::<Decimal64Type>(array, index).into()), *scale)
        }
        DataType::Decimal128(_, scale) => Cell::Decimal(Some(of::<Decimal128Type>(array, index)), *scale),
        DataType::Decimal256(_, scale) => Cell::Decimal(of::<Decimal256Type>(array, index).to_i128(), *scale),
        DataType::Date32 => Cell::Whole(of::<Date32Type>(array, index).into()),
        DataType::Date64 => Cell::Whole(of::<Date64Type>(array, index).into()),
        DataType::Timestamp(unit, _) => Cell::Whole(i128::from(match unit {
            Parts::Second => of::<TimestampSecondType>(array, index),
            Parts::Millisecond => of::<TimestampMillisecondType>(array, index),
            Parts::Microsecond => of::<TimestampMicrosecondType>(array, index),
            Parts::Nanosecond => of::<TimestampNanosecondType>(array, index),
        })),
        _ => return None,
    })
}

/// Bytes of the texts of an array, repeated ones each time; `None` for an array of another kind.
pub(crate) fn text_bytes(array: &ArrayRef) -> Option<u64> {
    if !is_text(array.data_type()) {
        return None;
    }
    let mut bytes = 0;
    each(array, &mut |cell| {
        bytes += match cell {
            Cell::Text(text) => text.len() as u64,
            Cell::Bytes(found) => found.len() as u64,
            _ => 0,
        }
    })?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_every_kind_have_one_spelling() {
        let name = |cell: Cell<'_>| cell.name(&mut String::new()).map(str::to_owned);
        for cell in [
            Cell::Whole(12),
            Cell::Float(12.0),
            Cell::Decimal(Some(12), 0),
            Cell::Decimal(Some(1200), 2),
            Cell::Text("12"),
            Cell::Bytes(b"12"),
        ] {
            assert_eq!(name(cell).as_deref(), Ok("12"), "{cell:?}");
        }
        assert_eq!(name(Cell::Decimal(Some(3), -2)).as_deref(), Ok("300"));
        assert_eq!(name(Cell::Decimal(Some(0), 70)).as_deref(), Ok("0"));
        assert_eq!(name(Cell::Float(-0.0)).as_deref(), Ok("0"));
        assert_eq!(
            name(Cell::Whole(i128::from(u64::MAX))).as_deref(),
            Ok("18446744073709551615")
        );
        let uuid = *b"\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17\x40\x00";
        assert_eq!(
            name(Cell::Uuid(&uuid)).as_deref(),
            Ok("123e4567-e89b-12d3-a456-426614174000")
        );
        for cell in [
            Cell::Float(12.5),
            Cell::Float(f64::NAN),
            Cell::Float(f64::INFINITY),
            Cell::Float(1e16),
            Cell::Decimal(Some(1250), 2),
            Cell::Decimal(Some(1), 70),
            Cell::Decimal(None, 0),
            Cell::Null,
            Cell::Text(""),
            Cell::Bytes(b"caf\xe9"),
        ] {
            assert!(name(cell).is_err(), "{cell:?}");
        }
    }

    #[test]
    fn decimals_are_floored() {
        for (value, scale, expected) in [
            (15, 1, Some(1)),
            (-15, 1, Some(-2)),
            (-1, 70, Some(-1)),
            (1, 70, Some(0)),
            (2, -3, Some(2000)),
            (i128::MAX, -3, None),
        ] {
            assert_eq!(floor(value, scale), expected, "{value} {scale}");
        }
    }
}

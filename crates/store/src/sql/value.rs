//! The values of rows, as both databases have them: signed numbers, texts and bytes.

use crate::Millis;
use crate::clock::MAX_MILLIS;
use crate::names::Named;

/// A value for a place of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Param<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Integer(_) => "a number",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
        }
    }
}

/// A type that is written to a place.
pub(crate) trait ToParam {
    fn to_param(&self) -> Param<'_>;
}

/// A type that is read from a row. The error says what was expected and what is there.
pub(crate) trait FromCell: Sized {
    fn from_cell(cell: &Cell) -> Result<Self, String>;
}

fn other<T>(expected: &str, cell: &Cell) -> Result<T, String> {
    Err(format!("expected {expected}, got {}", cell.kind()))
}

impl ToParam for i64 {
    fn to_param(&self) -> Param<'_> {
        Param::Integer(*self)
    }
}

impl ToParam for u32 {
    fn to_param(&self) -> Param<'_> {
        Param::Integer(i64::from(*self))
    }
}

impl ToParam for str {
    fn to_param(&self) -> Param<'_> {
        Param::Text(self)
    }
}

impl ToParam for String {
    fn to_param(&self) -> Param<'_> {
        Param::Text(self)
    }
}

impl ToParam for [u8] {
    fn to_param(&self) -> Param<'_> {
        Param::Bytes(self)
    }
}

impl ToParam for Vec<u8> {
    fn to_param(&self) -> Param<'_> {
        Param::Bytes(self)
    }
}

impl<const N: usize> ToParam for [u8; N] {
    fn to_param(&self) -> Param<'_> {
        Param::Bytes(self)
    }
}

impl<T: ToParam + ?Sized> ToParam for &T {
    fn to_param(&self) -> Param<'_> {
        (**self).to_param()
    }
}

impl<T: ToParam> ToParam for Option<T> {
    fn to_param(&self) -> Param<'_> {
        self.as_ref().map_or(Param::Null, T::to_param)
    }
}

impl FromCell for i64 {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        match cell {
            Cell::Integer(number) => Ok(*number),
            cell => other("a number", cell),
        }
    }
}

impl FromCell for u32 {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        let number = i64::from_cell(cell)?;
        Self::try_from(number).map_err(|_| format!("expected a number from 0 to 2^32 - 1, got {number}"))
    }
}

impl FromCell for bool {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        Ok(i64::from_cell(cell)? != 0)
    }
}

impl FromCell for String {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        match cell {
            Cell::Text(text) => Ok(text.clone()),
            cell => other("a text", cell),
        }
    }
}

impl FromCell for Vec<u8> {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        match cell {
            Cell::Bytes(bytes) => Ok(bytes.clone()),
            cell => other("bytes", cell),
        }
    }
}

impl<const N: usize> FromCell for [u8; N] {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        let bytes = Vec::<u8>::from_cell(cell)?;
        let found = bytes.len();
        bytes
            .try_into()
            .map_err(|_| format!("expected {N} bytes, got {found}"))
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        match cell {
            Cell::Null => Ok(None),
            cell => T::from_cell(cell).map(Some),
        }
    }
}

/// An unsigned number as the signed one with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bits(pub(crate) u64);

impl ToParam for Bits {
    fn to_param(&self) -> Param<'_> {
        Param::Integer(self.0.cast_signed())
    }
}

impl FromCell for Bits {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        i64::from_cell(cell).map(|bits| Self(bits.cast_unsigned()))
    }
}

/// A time. Times beyond the range of the database are its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Millis);

impl ToParam for Time {
    fn to_param(&self) -> Param<'_> {
        Param::Integer(self.0.min(MAX_MILLIS).cast_signed())
    }
}

impl FromCell for Time {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        let time = i64::from_cell(cell)?;
        u64::try_from(time)
            .map(Self)
            .map_err(|_| format!("expected a time of 0 or more, got {time}"))
    }
}

/// A value by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<T>(pub(crate) T);

impl<T: Named> ToParam for Name<T> {
    fn to_param(&self) -> Param<'_> {
        Param::Text(self.0.name())
    }
}

impl<T: Named> FromCell for Name<T> {
    fn from_cell(cell: &Cell) -> Result<Self, String> {
        let Cell::Text(name) = cell else {
            return other("a name", cell);
        };
        T::from_name(name).map(Self).ok_or_else(|| {
            let shown: String = name.chars().take(32).collect();
            format!("expected the name of {}, got {shown:?}", T::WHAT)
        })
    }
}

/// The values for the places of a statement, in their order.
pub(crate) trait Params {
    fn give<T>(self, take: impl FnOnce(&[Param<'_>]) -> T) -> T;
}

impl<T: ToParam, const N: usize> Params for [T; N] {
    fn give<R>(self, take: impl FnOnce(&[Param<'_>]) -> R) -> R {
        take(&self.each_ref().map(T::to_param))
    }
}

/// No values.
impl Params for () {
    fn give<R>(self, take: impl FnOnce(&[Param<'_>]) -> R) -> R {
        take(&[])
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))+) => {$(
        impl<$($name: ToParam),+> Params for ($($name,)+) {
            fn give<R>(self, take: impl FnOnce(&[Param<'_>]) -> R) -> R {
                #[allow(non_snake_case, reason = "the names of types name the values")]
                let ($($name,)+) = &self;
                take(&[$($name.to_param()),+])
            }
        }
    )+};
}

tuples! {
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I)
    (A, B, C, D, E, F, G, H, I, J)
    (A, B, C, D, E, F, G, H, I, J, K)
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N)
}

#[cfg(test)]
mod tests {
    use undertone_protocol::TaskState;

    use super::*;

    #[test]
    fn a_value_of_another_kind_is_named() {
        let read = u32::from_cell(&Cell::Integer(-1));
        assert_eq!(read.unwrap_err(), "expected a number from 0 to 2^32 - 1, got -1");
        assert_eq!(
            <[u8; 4]>::from_cell(&Cell::Bytes(vec![1; 3])).unwrap_err(),
            "expected 4 bytes, got 3"
        );
        assert_eq!(
            String::from_cell(&Cell::Null).unwrap_err(),
            "expected a text, got null"
        );
        assert_eq!(
            Time::from_cell(&Cell::Integer(-5)).unwrap_err(),
            "expected a time of 0 or more, got -5"
        );
        let name = Name::<TaskState>::from_cell(&Cell::Text("gone".to_owned())).unwrap_err();
        assert_eq!(name, "expected the name of the state of a task, got \"gone\"");
        assert_eq!(Option::<i64>::from_cell(&Cell::Null), Ok(None));
    }

    #[test]
    fn unsigned_numbers_keep_their_bits() {
        for number in [0, 1, u64::MAX, 1 << 63] {
            let Param::Integer(held) = Bits(number).to_param() else {
                panic!()
            };
            assert_eq!(Bits::from_cell(&Cell::Integer(held)), Ok(Bits(number)));
        }
    }
}

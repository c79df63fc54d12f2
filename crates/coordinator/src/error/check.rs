//! The refusals of a value that has a key: ranges, and keys that exclude each other.

use super::{CoordinatorError, Result};

/// Refuses a value unless `holds`.
pub(crate) fn require(holds: bool, key: &str, expected: impl Into<String>, got: impl ToString) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(CoordinatorError::value(key, expected, got)),
    }
}

/// Refuses a key that the rest of the configuration rules out, where it is given.
pub(crate) fn exclude(given: bool, key: &str, reason: &str) -> Result<()> {
    match given {
        true => Err(CoordinatorError::left_out(key, reason)),
        false => Ok(()),
    }
}

/// Refuses two keys that exclude each other, where both are given.
pub(crate) fn apart(both: bool, key: &str, with: &str, remedy: &str) -> Result<()> {
    match both {
        true => Err(CoordinatorError::conflict(key, with, remedy)),
        false => Ok(()),
    }
}

pub(crate) fn positive(key: &str, value: f64) -> Result<()> {
    require(
        value > 0.0 && value.is_finite(),
        key,
        "a finite number above 0",
        value,
    )
}

pub(crate) fn open_unit(key: &str, value: f64) -> Result<()> {
    require(value > 0.0 && value < 1.0, key, "a number in (0, 1)", value)
}

pub(crate) fn below_one(key: &str, value: f64) -> Result<()> {
    require((0.0..1.0).contains(&value), key, "a number in [0, 1)", value)
}

/// Refuses zero.
///
/// # Errors
/// [`CoordinatorError::ConfigValue`] naming the key.
pub fn at_least_one(key: &str, value: usize) -> Result<()> {
    require(value > 0, key, "at least 1", value)
}

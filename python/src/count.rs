//! Counts: one reading for every whole number that Python gives as an argument.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat};

use crate::error::{refused, wrong_type};

/// A type that counts.
pub(crate) trait Count: Sized {
    /// The numbers that fit, in words.
    const RANGE: &'static str;

    /// The count of a number, if it fits.
    fn of(number: u64) -> Option<Self>;

    /// The value of Python's `None`, for a type that has one.
    fn absent() -> Option<Self> {
        None
    }
}

impl Count for u64 {
    const RANGE: &'static str = "a whole number in [0, 2^64)";

    fn of(number: u64) -> Option<Self> {
        Some(number)
    }
}

impl Count for usize {
    const RANGE: &'static str = u64::RANGE;

    fn of(number: u64) -> Option<Self> {
        number.try_into().ok()
    }
}

impl Count for u32 {
    const RANGE: &'static str = "a whole number in [0, 2^32)";

    fn of(number: u64) -> Option<Self> {
        number.try_into().ok()
    }
}

impl<T: Count> Count for Option<T> {
    const RANGE: &'static str = T::RANGE;

    fn of(number: u64) -> Option<Self> {
        T::of(number).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// A count from a Python `int`, or from a whole number of another library.
///
/// # Errors
/// `ValueError` with the range for a number outside it and for a truth value, which Python counts as an `int`; `TypeError` for anything else.
pub(crate) fn read<T: Count>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    if value.is_none()
        && let Some(absent) = T::absent()
    {
        return Ok(absent);
    }
    if !value.is_instance_of::<PyBool>() {
        if let Some(count) = value.extract().ok().and_then(T::of) {
            return Ok(count);
        }
        if value.is_instance_of::<PyFloat>() || !value.hasattr("__index__")? {
            return Err(wrong_type(name, "a whole number", value));
        }
    }
    Err(refused(name, T::RANGE, value))
}

/// Readings of arguments by their names, for `from_py_with`: an error names the argument.
macro_rules! named {
    ($($name:ident),* $(,)?) => { $(
        pub(crate) fn $name<T: Count>(value: &Bound<'_, PyAny>) -> PyResult<T> {
            read(stringify!($name), value)
        }
    )* };
}

named!(
    bands,
    bits,
    buffers,
    clients,
    dim,
    gap,
    group_size,
    max_participation,
    neighbours,
    num_users,
    population,
    report_goal,
    rounds,
    seed,
    size,
    threads,
    threshold,
    times,
    users,
    users_per_round,
);

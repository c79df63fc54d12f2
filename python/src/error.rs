//! Exceptions: errors of the Rust crates with their message byte for byte, and with their variant as `kind`.

use std::fmt::{Debug, Display};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use undertone_accounting::AccountingError;

pyo3::create_exception!(
    undertone_dp,
    UndertoneError,
    PyValueError,
    "An input that Undertone refuses. `kind` names the reason in kebab-case."
);
pyo3::create_exception!(
    undertone_dp,
    AccountingFailure,
    UndertoneError,
    "A question about privacy that has no answer, or a quantity outside its domain.\n\n\
     >>> import undertone_dp as udp\n\
     >>> try:\n\
     ...     udp.Event.Gaussian(noise_multiplier=-1.0)\n\
     ... except udp.AccountingError as error:\n\
     ...     print(error.kind, '|', error)\n\
     out-of-range | noise_multiplier: expected a finite number > 0, got -1\n"
);

/// An error on its way to Python: one of a Rust crate, or an exception that a callback raised.
#[derive(Debug)]
pub(crate) enum Failure {
    Accounting(AccountingError),
    Python(PyErr),
}

/// Result of everything that Python calls.
pub(crate) type Answer<T> = Result<T, Failure>;

impl From<AccountingError> for Failure {
    fn from(error: AccountingError) -> Self {
        Self::Accounting(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Accounting(error) => with_kind(AccountingFailure::new_err(error.to_string()), &error),
            Failure::Python(error) => error,
        }
    }
}

/// The exception with the name of the error's variant as the attribute `kind`.
pub(crate) fn with_kind(raised: PyErr, error: &(impl Debug + Display)) -> PyErr {
    named_kind(raised, &kind(error))
}

pub(crate) fn named_kind(raised: PyErr, kind: &str) -> PyErr {
    Python::attach(|py| match raised.value(py).setattr("kind", kind) {
        Ok(()) => raised,
        Err(other) => other,
    })
}

/// The refusal of a value that no number of Rust holds, as the Rust crates word it.
pub(crate) fn refused(name: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    // Python prints no integer of more than 4300 digits.
    let got = got.str().map_or_else(
        |_| "a number of thousands of digits".to_owned(),
        |got| got.to_string(),
    );
    let message = format!("{name}: expected {expected}, got {got}");
    named_kind(AccountingFailure::new_err(message), "out-of-range")
}

/// A refusal that no Rust crate words, with its kind.
pub(crate) fn refusal(kind: &str, message: String) -> Failure {
    Failure::Python(named_kind(AccountingFailure::new_err(message), kind))
}

/// The variant's name in kebab-case: `OutOfRange { .. }` is `out-of-range`.
fn kind(error: &impl Debug) -> String {
    let shown = format!("{error:?}");
    let name = shown
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    let mut kind = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !kind.is_empty() {
            kind.push('-');
        }
        kind.extend(c.to_lowercase());
    }
    kind
}

/// A `TypeError` that names the argument, the expected type and the type that was given.
pub(crate) fn wrong_type(name: &str, expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    let got = got.get_type();
    match got.name() {
        Ok(got) => PyTypeError::new_err(format!("{name}: expected {expected}, got {got}")),
        Err(error) => error,
    }
}

/// A `TypeError` for a field that is `None` and must not be.
pub(crate) fn missing(name: &str) -> PyErr {
    PyTypeError::new_err(format!("{name}: expected a value, got None"))
}

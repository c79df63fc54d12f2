//! Exceptions of mechanisms and samplers.

use pyo3::prelude::*;
use undertone_accounting::grid::GridError;
use undertone_coordinator::CoordinatorError;
use undertone_mechanisms::MechanismError;

use crate::error::{AccountingFailure, Failure, UndertoneError, with_kind};

pyo3::create_exception!(
    undertone_dp,
    MechanismFailure,
    UndertoneError,
    "A matrix, a stream or a saved state that cannot be used.\n\n\
     >>> import undertone_dp as udp\n\
     >>> try:\n\
     ...     udp.Workload.momentum(1.5)\n\
     ... except udp.MechanismError as error:\n\
     ...     print(error.kind, '|', error)\n\
     setting | momentum must be in [0, 1), got 1.5\n"
);

impl From<MechanismError> for Failure {
    fn from(error: MechanismError) -> Self {
        Self::Python(with_kind(MechanismFailure::new_err(error.to_string()), &error))
    }
}

impl From<GridError> for Failure {
    fn from(error: GridError) -> Self {
        Self::Python(with_kind(AccountingFailure::new_err(error.to_string()), &error))
    }
}

impl From<CoordinatorError> for Failure {
    fn from(error: CoordinatorError) -> Self {
        Self::Python(with_kind(UndertoneError::new_err(error.to_string()), &error))
    }
}

/// A description that is not JSON, or not of the value that is read.
pub(crate) fn unreadable(what: &str, error: &serde_json::Error) -> PyErr {
    MechanismFailure::new_err(format!("{what}: {error}"))
}

/// A setting outside its values.
pub(crate) fn setting(message: String) -> PyErr {
    MechanismFailure::new_err(message)
}

/// Adds the exceptions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let mechanism = module.py().get_type::<MechanismFailure>();
    mechanism.setattr("__name__", "MechanismError")?;
    mechanism.setattr("__qualname__", "MechanismError")?;
    module.add("MechanismError", mechanism)
}

//! Exceptions of runs, data, aggregation and secure aggregation: the words of the command line, with the variant as `kind`.

use std::path::Path;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use undertone_aggregation::AggregationError;
use undertone_coordinator::CoordinatorError;
use undertone_data::DataError;
use undertone_report::ReportError;
use undertone_run::RunError;
use undertone_run_directory::error::DirectoryError;
use undertone_secagg::SecAggError;
use undertone_settings::SettingsError;
use undertone_vocabulary::VocabularyError;

use crate::error::{Failure, UndertoneError, named_kind, with_kind};

pyo3::create_exception!(
    undertone_dp,
    RunFailure,
    UndertoneError,
    "A run that cannot be started, continued, read or finished.\n\n\
     >>> import undertone_dp as udp\n\
     >>> issubclass(udp.RunError, udp.UndertoneError)\n\
     True\n"
);
pyo3::create_exception!(
    undertone_dp,
    ConfigFailure,
    UndertoneError,
    "A setting of a run that is unknown, missing or outside its range. The message names its key.\n\n\
     >>> import undertone_dp as udp\n\
     >>> try:\n\
     ...     udp.train({'name': None})\n\
     ... except udp.ConfigError as error:\n\
     ...     print(error.kind, '|', error)\n\
     config-value | configuration key `name`: expected a value (leave the key out for its default), got null\n"
);
pyo3::create_exception!(
    undertone_dp,
    DataFailure,
    UndertoneError,
    "Text that no corpus can be made from. The message names file and line, or the row of a table.\n\n\
     >>> import undertone_dp as udp\n\
     >>> try:\n\
     ...     udp.Corpus.from_table({'user': [None], 'text': ['two words']}, user='user', text='text',\n\
     ...                           vocabulary={'kind': 'training_data', 'size': 9})\n\
     ... except udp.DataError as error:\n\
     ...     print(error.kind, '|', error)\n\
     bad-value | table, row 1: column \"user\": expected a value, got null\n"
);
pyo3::create_exception!(
    undertone_dp,
    AggregationFailure,
    UndertoneError,
    "An update or a layout that cannot be summed.\n\n\
     >>> import undertone_dp as udp\n\
     >>> try:\n\
     ...     udp.ParamLayout({'w': (3, 0)})\n\
     ... except udp.AggregationError as error:\n\
     ...     print(error.kind)\n\
     empty-tensor\n"
);
pyo3::create_exception!(
    undertone_dp,
    SecAggFailure,
    UndertoneError,
    "A secure sum that is not possible with these clients or settings.\n\n\
     >>> import undertone_dp as udp\n\
     >>> try:\n\
     ...     udp.secagg.parameters(1)\n\
     ... except udp.SecAggError as error:\n\
     ...     print(error.kind, '|', error)\n\
     setting | the number of clients must be 2 to 2^20, got 1\n"
);

/// The exception of a run's error.
pub(crate) fn of_run(error: &RunError) -> PyErr {
    match error {
        RunError::Data(error) => of_data(error),
        RunError::Directory(error) => of_directory(error),
        RunError::Coordinator(error) => of_coordinator(error),
        _ => with_kind(RunFailure::new_err(error.to_string()), error),
    }
}

/// The exception of an error of a run directory.
pub(crate) fn of_directory(error: &DirectoryError) -> PyErr {
    match error {
        DirectoryError::Io { path, source, .. } => of_file(error, path, source),
        DirectoryError::Vocabulary(error) => of_vocabulary(error),
        DirectoryError::Coordinator(error) => of_coordinator(error),
        DirectoryError::ConfigSyntax { .. }
        | DirectoryError::Config { .. }
        | DirectoryError::Override { .. } => with_kind(ConfigFailure::new_err(error.to_string()), error),
        _ => with_kind(RunFailure::new_err(error.to_string()), error),
    }
}

/// The exception of a corpus's error.
pub(crate) fn of_data(error: &DataError) -> PyErr {
    match error {
        DataError::Io { path, source, .. } => of_file(error, path, source),
        DataError::Setting(error) => of_setting(error),
        DataError::UnsetVariable { .. } => with_kind(ConfigFailure::new_err(error.to_string()), error),
        DataError::Accounting(error) => Failure::from(error.clone()).into(),
        DataError::Vocabulary(error) => of_vocabulary(error),
        _ => with_kind(DataFailure::new_err(error.to_string()), error),
    }
}

fn of_vocabulary(error: &VocabularyError) -> PyErr {
    match error {
        VocabularyError::Io { path, source, .. } => of_file(error, path, source),
        VocabularyError::Setting(error) => of_setting(error),
        VocabularyError::Accounting(error) => Failure::from(error.clone()).into(),
        _ => with_kind(DataFailure::new_err(error.to_string()), error),
    }
}

pub(crate) fn of_setting(error: &SettingsError) -> PyErr {
    let kind = match error {
        SettingsError::Invalid { .. } => "invalid-setting",
        SettingsError::Missing { .. } => "missing-setting",
        SettingsError::Conflict { .. } => "conflicting-setting",
    };
    named_kind(ConfigFailure::new_err(error.to_string()), kind)
}

fn of_coordinator(error: &CoordinatorError) -> PyErr {
    match error {
        CoordinatorError::ConfigValue { .. }
        | CoordinatorError::ConfigMissing { .. }
        | CoordinatorError::ConfigCombination { .. }
        | CoordinatorError::ConfigConflict { .. } => {
            with_kind(ConfigFailure::new_err(error.to_string()), error)
        }
        CoordinatorError::Accounting(error) => Failure::from(error.clone()).into(),
        CoordinatorError::Aggregation(error) => of_aggregation(error),
        CoordinatorError::SecAgg(error) => of_secagg(error),
        _ => with_kind(RunFailure::new_err(error.to_string()), error),
    }
}

/// The exception of a report's error.
pub(crate) fn of_report(error: &ReportError) -> PyErr {
    match error {
        ReportError::Run(error) => of_run(error),
        _ => with_kind(RunFailure::new_err(error.to_string()), error),
    }
}

pub(crate) fn of_aggregation(error: &AggregationError) -> PyErr {
    with_kind(AggregationFailure::new_err(error.to_string()), error)
}

pub(crate) fn of_secagg(error: &SecAggError) -> PyErr {
    with_kind(SecAggFailure::new_err(error.to_string()), error)
}

/// `OSError` with `errno` and `filename`, and the whole sentence as a note.
fn of_file(error: &dyn std::error::Error, path: &Path, source: &std::io::Error) -> PyErr {
    // The run crate makes errors of its own about files that are missing.
    let missing = (source.kind() == std::io::ErrorKind::NotFound).then_some(2);
    let Some(number) = source.raw_os_error().or(missing) else {
        return PyOSError::new_err(error.to_string());
    };
    let reason = source.to_string();
    // Rust adds the number to the system's words, and so does Python.
    let reason = reason.split(" (os error").next().unwrap_or_default().to_owned();
    let raised = PyOSError::new_err((number, reason, path.as_os_str().to_owned()));
    Python::attach(|py| {
        let _ = raised.value(py).call_method1("add_note", (error.to_string(),));
    });
    raised
}

/// Adds the exceptions of this file.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (name, class) in [
        ("RunError", py.get_type::<RunFailure>()),
        ("ConfigError", py.get_type::<ConfigFailure>()),
        ("DataError", py.get_type::<DataFailure>()),
        ("AggregationError", py.get_type::<AggregationFailure>()),
        ("SecAggError", py.get_type::<SecAggFailure>()),
    ] {
        class.setattr("__name__", name)?;
        class.setattr("__qualname__", name)?;
        module.add(name, class)?;
    }
    Ok(())
}

//! The extension module of the Python package `undertone-dp`.
//!
//! Python calls what the Rust crates prove. No guarantee is computed in Python.

use pyo3::prelude::*;

mod account;
mod buffer;
mod calibrate;
mod clip_report;
mod closed;
mod command;
mod count;
mod error;
mod event;
mod failures;
mod field;
mod grid;
mod guarantee;
mod mechanism;
mod names;
mod repetitions;
mod sampler;
mod sensitivity;
mod session;
mod stream;
mod threads;

// Runs, data and sums.
mod corpus;
mod run;
mod run_error;
mod sum;
mod table;
mod watched;

/// Native part of undertone_dp; use the names of undertone_dp instead.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("UndertoneError", py.get_type::<error::UndertoneError>())?;
    let accounting = py.get_type::<error::AccountingFailure>();
    accounting.setattr("__name__", "AccountingError")?;
    accounting.setattr("__qualname__", "AccountingError")?;
    module.add("AccountingError", accounting)?;
    event::register(module)?;
    module.add_class::<repetitions::PyRepetitions>()?;
    module.add_class::<guarantee::PyGuarantee>()?;
    module.add_class::<account::PyAccountant>()?;
    module.add_class::<sensitivity::PyParticipation>()?;
    module.add_function(wrap_pyfunction!(repetitions::_repetitions, module)?)?;
    module.add_function(wrap_pyfunction!(account::_accountant, module)?)?;
    module.add_function(wrap_pyfunction!(account::epsilon, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate::noise_multiplier, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate::sampling_probability, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate::rounds, module)?)?;
    module.add_function(wrap_pyfunction!(calibrate::parameter, module)?)?;
    module.add_function(wrap_pyfunction!(closed::gaussian_epsilon, module)?)?;
    module.add_function(wrap_pyfunction!(closed::gaussian_delta, module)?)?;
    module.add_function(wrap_pyfunction!(closed::gaussian_noise_multiplier, module)?)?;
    module.add_function(wrap_pyfunction!(closed::zcdp_epsilon, module)?)?;
    module.add_function(wrap_pyfunction!(closed::zcdp_epsilon_of_gaussians, module)?)?;
    module.add_function(wrap_pyfunction!(closed::group_privacy, module)?)?;
    module.add_function(wrap_pyfunction!(sensitivity::_participation, module)?)?;
    module.add_function(wrap_pyfunction!(sensitivity::sensitivity_tree, module)?)?;
    module.add_function(wrap_pyfunction!(sensitivity::sensitivity_toeplitz, module)?)?;
    module.add_function(wrap_pyfunction!(sensitivity::sensitivity_banded, module)?)?;
    module.add_function(wrap_pyfunction!(sensitivity::sensitivity_general, module)?)?;
    module.add_function(wrap_pyfunction!(sensitivity::_plan, module)?)?;
    grid::register(module)?;
    stream::register(module)?;
    session::register(module)?;
    mechanism::register(module)?;
    sampler::register(module)?;
    module.add_function(wrap_pyfunction!(command::_answer, module)?)?;
    module.add_function(wrap_pyfunction!(command::_command, module)?)?;
    // Runs, data and sums.
    run_error::register(module)?;
    sum::register(module)?;
    module.add_class::<clip_report::ClipReport>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<corpus::PyCorpus>()?;
    module.add_function(wrap_pyfunction!(table::_records, module)?)?;
    module.add_function(wrap_pyfunction!(corpus::_corpus, module)?)?;
    module.add_function(wrap_pyfunction!(run::_train, module)?)?;
    module.add_function(wrap_pyfunction!(run::_read_run, module)?)?;
    module.add_function(wrap_pyfunction!(run::_read_ledger, module)?)?;
    module.add_function(wrap_pyfunction!(run::_verify, module)?)?;
    module.add_function(wrap_pyfunction!(run::_not_private, module)?)?;
    module.add_function(wrap_pyfunction!(run::_pictures, module)?)?;
    module.add_function(wrap_pyfunction!(run::_pretrain, module)?)?;
    module.add_function(wrap_pyfunction!(run::_report, module)?)?;
    module.add_function(wrap_pyfunction!(run::_export, module)?)?;
    module.add_function(wrap_pyfunction!(run::_publish, module)?)?;
    module.add_function(wrap_pyfunction!(run::_epsilon_delta, module)?)
}

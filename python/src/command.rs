//! The command line, which the wheel carries: for a person at a terminal, and for the methods of a run.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::error::named_kind;
use crate::run_error::RunFailure;
use crate::watched::watched;

/// Runs a command line of `undertone`, whose first word is the name of the program, and returns its exit status.
#[pyfunction]
pub(crate) fn _command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| undertone_cli::run(words))
}

/// The JSON document that a command prints with `--json`, and its warnings.
#[pyfunction]
pub(crate) fn _answer(py: Python<'_>, words: Vec<OsString>) -> PyResult<(String, Vec<String>)> {
    let done = watched(py, None, None, move |watch, _| {
        undertone_cli::answer(words, watch.flag())
    })?;
    if let Some(interrupt) = done.interrupt {
        return Err(interrupt);
    }
    match done.result {
        Ok(answer) => Ok((answer.document, answer.warnings)),
        Err(message) => Err(named_kind(RunFailure::new_err(message), "command")),
    }
}

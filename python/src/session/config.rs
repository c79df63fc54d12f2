//! The settings of a session from Python's objects.

use std::path::PathBuf;
use undertone_run_directory::session_config::{UnitRng, text_of_json};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use undertone_models::ExternalTensor;

use super::failure::raised;

/// Settings as text, with the name of their place for errors, and the folder where their relative paths start.
pub(super) struct Given {
    pub(super) text: String,
    pub(super) name: PathBuf,
    pub(super) base: PathBuf,
}

impl Given {
    /// Reads a mapping, a text of several lines, or the path of a file.
    pub(super) fn read(config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let here = |text: String| Self {
            text,
            name: PathBuf::from("config"),
            base: PathBuf::from("."),
        };
        if let Ok(text) = config.cast::<PyString>() {
            let text = text.to_string();
            if text.contains('\n') {
                return Ok(here(text));
            }
        } else if config.hasattr("keys")? {
            let json = config.py().import("json")?;
            let dict = config.py().get_type::<pyo3::types::PyDict>().call1((config,))?;
            let text: String = json.call_method1("dumps", (dict,))?.extract()?;
            return Ok(here(text_of_json(&text).map_err(raised)?));
        }
        let path: PathBuf = config.extract().map_err(|_| {
            PyTypeError::new_err("config: expected a mapping, the text of a run file, or a path")
        })?;
        let text = undertone_run_directory::files::read_given_text(&path).map_err(raised)?;
        let base = undertone_run_directory::config::RunConfig::base_of(&path).to_owned();
        Ok(Self {
            text,
            name: path,
            base,
        })
    }
}

/// The tensors of a layout, or one tensor of all parameters.
pub(super) fn tensors(dim: usize, layout: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<ExternalTensor>> {
    let Some(layout) = layout else {
        return Ok(vec![ExternalTensor {
            name: "parameters".to_owned(),
            shape: vec![dim],
        }]);
    };
    let mut tensors = Vec::new();
    let mut total: usize = 0;
    for item in layout.call_method0("items")?.try_iter()? {
        let (name, shape) = item?.extract::<(String, Vec<usize>)>()?;
        let len = shape.iter().fold(1, |len: usize, &axis| len.saturating_mul(axis));
        total = total.saturating_add(len);
        tensors.push(ExternalTensor { name, shape });
    }
    if total != dim {
        return Err(PyValueError::new_err(format!(
            "layout: expected shapes of {dim} parameters in all, got {total}"
        )));
    }
    Ok(tensors)
}

/// The origin of the random numbers of units by its name.
pub(super) fn unit_rng(name: &str) -> PyResult<UnitRng> {
    [UnitRng::Own, UnitRng::Caller]
        .into_iter()
        .find(|&origin| name_of(origin) == name)
        .ok_or_else(|| {
            PyValueError::new_err(format!("unit_rng: expected \"own\" or \"caller\", got {name:?}"))
        })
}

/// The name of an origin of random numbers.
pub(super) fn name_of(origin: UnitRng) -> &'static str {
    match origin {
        UnitRng::Own => "own",
        UnitRng::Caller => "caller",
    }
}

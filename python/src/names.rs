//! Names of recipes and relations, as in JSON.

use pyo3::prelude::*;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};
use undertone_accounting::{Adjacency, Recipe};

use crate::error::UndertoneError;

/// The value of a name, or an error that says which names exist.
fn named<T: for<'de> Deserialize<'de>>(what: &str, name: &str) -> PyResult<T> {
    let deserializer: StrDeserializer<'_, Error> = name.into_deserializer();
    T::deserialize(deserializer).map_err(|error| UndertoneError::new_err(format!("{what}: {error}")))
}

/// The recipe of a name; `None` for `auto`, the tightest that covers everything composed.
pub(crate) fn recipe(name: &str) -> PyResult<Option<Recipe>> {
    if name == "auto" {
        return Ok(None);
    }
    named("recipe", name).map(Some)
}

/// The relation of a name; `None` for that of the first event.
pub(crate) fn adjacency(name: Option<&str>) -> PyResult<Option<Adjacency>> {
    name.map(|name| named("adjacency", name)).transpose()
}

/// The name of a recipe, a relation or a sampling scheme.
pub(crate) fn name(value: impl Serialize) -> PyResult<String> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => Ok(name),
        other => Err(UndertoneError::new_err(format!("expected a name, got {other:?}"))),
    }
}

//! The models and algorithms that the engine trains, and the errors of all others.

use undertone_local::LocalError;
use undertone_models::ModelSpec;
use undertone_settings::{Algorithm, SettingsError, UserSettings};

/// The families of models that the engine trains, for errors.
const FAMILIES: &str = "`dplm`, `stackoverflow` or `cifg`";

/// Refuses a model or an algorithm that [`GpuEngine`](crate::GpuEngine) does not know.
///
/// # Errors
/// An error that names the key of the run file.
pub fn check(spec: &ModelSpec, settings: &UserSettings) -> Result<(), LocalError> {
    use ModelSpec::{Cifg, Dplm, StackOverflow};
    if !matches!(spec, Dplm { .. } | StackOverflow { .. } | Cifg { .. }) {
        return Err(unknown_family(spec));
    }
    match settings.algorithm {
        Algorithm::FedAvg => Ok(()),
        other => Err(unusable("user_update.algorithm", "`fedavg`", other.name())),
    }
}

/// The error of a model of another family.
pub(crate) fn unknown_family(spec: &ModelSpec) -> LocalError {
    unusable("model.family", FAMILIES, spec.family())
}

/// The error of a setting that training on a GPU does not know.
pub(crate) fn unusable(key: &str, expected: &str, got: &str) -> LocalError {
    SettingsError::invalid(key, format!("{expected} on a GPU"), got).into()
}

//! The final model against the ledger's last line.

use super::{Check, Run};
use crate::run::{MODEL_FILE, digest_of};

/// The parameters are those that the last round ended with.
pub(super) fn is_the_ledger_s(run: &Run<'_>) -> Check {
    let mut check = Check::new("model");
    let read = crate::files::read(&run.folder.join(MODEL_FILE)).and_then(|bytes| {
        Ok(undertone_models::weights::from_safetensors(
            run.model.layout(),
            &bytes,
        )?)
    });
    let (Some(parameters), Some(last)) = (check.keep(read), run.entries.last()) else {
        return check;
    };
    let digest = digest_of(&parameters);
    if digest != last.parameters_sha256 {
        check.problem(format!(
            "{MODEL_FILE}: parameters of SHA-256 {digest}, the ledger's last round ended with {}",
            last.parameters_sha256
        ));
    }
    check.found = format!("{} parameters, those of round {}", parameters.len(), last.round);
    check
}

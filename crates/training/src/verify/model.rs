//! The final model against the ledger's last line.

use super::{Check, Run};
use crate::identity::ModelIdentity;
use crate::run::{MODEL_FILE, trained_model};

/// The parameters are those that the last round ended with, and what adapters are added to is what it was.
pub(super) fn is_the_ledger_s(run: &Run<'_>) -> Check {
    let mut check = Check::new("model");
    let read = trained_model(run.folder, &run.config.model, &run.vocabulary);
    let (Some((model, parameters)), Some(last)) = (check.keep(read), run.entries.last()) else {
        return check;
    };
    let digest = ModelIdentity::new(model.as_ref()).digest(&parameters);
    if digest != last.parameters_sha256 {
        check.problem(format!(
            "{MODEL_FILE}: parameters of SHA-256 {digest}, the ledger's last round ended with {}",
            last.parameters_sha256
        ));
    }
    check.found = format!("{}, those of round {}", run.counts, last.round);
    check
}

//! The checks of a session, whose model another program trained.

use std::path::Path;

use undertone_models::weights;

use super::{Check, Run, Settings};
use crate::driver::{LEDGER_FILE, MODEL_FILE, strategy_of};
use crate::error::{Result, RunError};
use crate::session::{self, SessionConfig};
use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::LedgerEntry;

/// The finding of a check that has nothing to compute with.
pub(super) const NOT_RECOMPUTED: &str = "trained outside: not recomputed";

/// The figures of a session that its files do not determine.
pub(super) const NOT_DETERMINED: &str = "That the model follows from the released averages (released_sha256), who the \
    pseudonyms are, which examples the updates were computed from, and that the noise was drawn as the ledger says: no file \
    determines them, and they are the word of the program that trained.";

/// The plan of a session, made for the users of its configuration.
pub(super) fn settings(folder: &Path, config: &SessionConfig, entries: &[LedgerEntry]) -> Result<Settings> {
    let first = entries.first();
    let first = first.ok_or_else(|| RunError::damaged(&folder.join(LEDGER_FILE), "no rounds"))?;
    let kept = session::reads_counts(config).then_some(first.total_weight);
    let population = session::population(config, kept);
    let layout = config.task.model.layout(0)?;
    let plan = PrivacyPlan::with_strategy(&config.task, strategy_of(folder)?.as_ref(), &layout, population)?;
    Ok(Settings {
        vocabulary: None,
        counts: ParameterCounts::of(&config.task.model, 0)?,
        plan,
        trainings: Vec::new(),
    })
}

/// Checks that the file holds the tensors of the configuration. Their values are the other program's.
pub(super) fn model(run: &Run<'_>) -> Check {
    let mut check = Check::new("model");
    let read = run
        .task()
        .model
        .layout(0)
        .map_err(RunError::from)
        .and_then(|layout| {
            let path = run.folder.join(MODEL_FILE);
            let max = session::max_model_bytes(&layout);
            Ok(weights::from_safetensors(
                &layout,
                &crate::files::read_at_most(&path, max)?,
            )?)
        });
    check.keep(read);
    check.found = format!("{}, {NOT_RECOMPUTED}", run.counts);
    check
}

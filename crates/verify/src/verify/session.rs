//! The checks of a session, whose model another program trained.

use std::path::Path;

use undertone_coordinator::identity::ParameterCounts;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::record::{LedgerEntry, PrivacyReport};
use undertone_models::weights;

use super::{Check, Run, Settings};
use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files::names::{LEDGER_FILE, MODEL_FILE};
use undertone_run_directory::plan_inputs::begun;
use undertone_run_directory::session_config::SessionConfig;

/// The finding of a check that has nothing to compute with.
pub(super) const NOT_RECOMPUTED: &str = "trained outside: not recomputed";

/// The figures of a session that its files do not determine.
pub(super) const NOT_DETERMINED: &str = "That the model follows from the released averages (released_sha256), who the \
    pseudonyms are, which examples the updates were computed from, and that the noise was drawn as the ledger says: no file \
    determines them, and they are the word of the program that trained.";

/// The fault of a model file of an earlier version, which does not tell of its own training.
const UNDESCRIBED: &str =
    "it does not say what it was trained on, so a run that starts from it does not count this session";

/// The plan of a session, made for the users of its configuration.
pub(super) fn settings(folder: &Path, config: &SessionConfig, entries: &[LedgerEntry]) -> Result<Settings> {
    let first = entries.first();
    let first = first.ok_or_else(|| DirectoryError::damaged(&folder.join(LEDGER_FILE), "no rounds"))?;
    let kept = undertone_run_directory::session_config::reads_counts(config).then_some(first.total_weight);
    let population = undertone_run_directory::session_config::population(config, kept);
    let layout = config.task.model.layout(0)?;
    let plan = PrivacyPlan::of_begun(
        &config.task,
        &begun(folder, first.noise_multiplier)?,
        &layout,
        population,
    )?;
    Ok(Settings {
        vocabulary: None,
        counts: ParameterCounts::of(&config.task.model, 0)?,
        plan,
        trainings: Vec::new(),
    })
}

/// Checks that the file holds the tensors of the configuration, and that it tells of the guarantee of the session. The values are the
/// other program's.
pub(super) fn model(run: &Run<'_>, report: Option<&PrivacyReport>) -> Check {
    let mut check = Check::new("model");
    let read = tensors(run, &mut check);
    check.found = format!("{}, {NOT_RECOMPUTED}", run.counts);
    match (check.keep(read), report) {
        (Some(Some(text)), Some(report)) => {
            if let Some(claims) = check.keep(run.claims()) {
                let made = undertone_run_directory::session_config::described(
                    &claims,
                    report,
                    run.entries.len() as u64,
                );
                super::model::is_described(&text, made, &mut check);
            }
        }
        (Some(None), _) => check.warning(format!("{MODEL_FILE}: {UNDESCRIBED}")),
        _ => {}
    }
    check
}

/// The description of the model, after a check of its tensors.
fn tensors(run: &Run<'_>, check: &mut Check) -> Result<Option<String>> {
    let layout = run.task().model.layout(0)?;
    let path = run.folder.join(MODEL_FILE);
    let bytes = undertone_run_directory::files::read_at_most(
        &path,
        undertone_run_directory::session_config::max_model_bytes(&layout),
    )?;
    weights::from_safetensors(&layout, &bytes)?;
    super::model::nothing_else_said(&bytes, check)?;
    Ok(weights::description(&bytes)?)
}

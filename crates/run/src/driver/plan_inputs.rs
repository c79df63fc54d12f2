//! The inputs of a plan from files: the strategy that the run file names, and the cost of its private words.

use std::path::Path;

use undertone_accounting::Delta;
use undertone_data::PrivateVocabulary;
use undertone_mechanisms::{Mechanism, Strategy};

use crate::error::{Result, RunError};
use crate::files;
use undertone_coordinator::plan::{PrivacyPlan, VocabularyCost};
use undertone_coordinator::task::TaskConfig;

/// The strategy of the file that `privacy.mechanism.file` names; relative paths start at `base`.
///
/// # Errors
/// [`RunError::Io`]; [`RunError::Damaged`] for a file that holds no strategy.
pub fn named_strategy(task: &TaskConfig, base: &Path) -> Result<Option<Strategy>> {
    let mechanism = task
        .privacy
        .as_ref()
        .and_then(|privacy| privacy.mechanism.as_ref());
    let file = mechanism.and_then(|mechanism| mechanism.file.as_ref());
    file.map(|file| read_strategy(&base.join(file))).transpose()
}

/// The cost of the private choice of the words, under the relation of the plan; `None` without a record or without privacy.
///
/// # Errors
/// From the accountant, where the cost is not known under this relation.
pub(crate) fn vocabulary_cost(
    plan: &PrivacyPlan,
    record: Option<&PrivateVocabulary>,
) -> Result<Option<VocabularyCost>> {
    let (Some(record), Some(delta)) = (record, plan.delta()) else {
        return Ok(None);
    };
    // The threshold has a delta of its own, which may be more than the run's.
    let delta = delta.max(2.0 * record.threshold_delta().get());
    let chosen = record.guarantee(plan.adjacency(), Delta::new(delta)?)?;
    Ok(Some(VocabularyCost::new(&chosen, record.key())))
}

/// Reads a strategy, or the strategy of a mechanism, as `undertone mechanism optimize --out` writes them.
fn read_strategy(file: &Path) -> Result<Strategy> {
    let bytes = files::read_given(file, files::MAX_GIVEN)?;
    let damaged = |error: serde_json::Error| RunError::damaged(file, error);
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
    if value.get("strategy").is_some() {
        let mechanism: Mechanism = serde_json::from_value(value).map_err(damaged)?;
        return Ok(mechanism.strategy().clone());
    }
    serde_json::from_value(value).map_err(|error| {
        let expected =
            "expected a mechanism or a strategy as `undertone mechanism optimize --out` writes them";
        RunError::damaged(file, format!("{expected}: {error}"))
    })
}

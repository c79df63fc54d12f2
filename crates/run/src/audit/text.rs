//! Canaries with text: invented users in a copy of a run, for an attacker who sees the final model alone.

use std::path::Path;

use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::{EstimatorConfig, TaskConfig};

use crate::error::{Result, RunError};
use crate::files::names::LEDGER_FILE;
use crate::ledger::{self, genesis_of};

/// The level of canaries with text, in `audit.json`.
pub const LEVEL: &str = "text";

/// Fixes what would otherwise follow from the number of users: the sampling probability and the denominator that the rounds of a run had.
/// Then a copy with other users has the guarantee of the run, and a user who is in or out changes nothing else.
///
/// # Errors
/// [`RunError`] naming the setting of a run whose cohorts are no Poisson sample, one with `[aggregation]`, one whose denominator follows from
/// the users, and one without rounds.
pub fn fix_rates(run_dir: &Path, task: &mut TaskConfig) -> Result<()> {
    if task.cohort.sampling != Sampling::Poisson {
        // PRIVACY: a user who is absent would move the cohorts of the others, and the claim speaks of no such neighbour.
        let expected = "`poisson`: elsewhere a user who is absent moves the cohorts of others";
        return Err(RunError::value(
            "cohort.sampling",
            expected,
            task.cohort.sampling.name(),
        ));
    }
    if task.aggregation.is_some() {
        let expected = "no table where canaries have text: more users move floors and rotations";
        return Err(RunError::value("aggregation", expected, "a table"));
    }
    if !task.estimator.is_fixed() {
        let expected = "`fixed_denominator` where canaries have text";
        return Err(RunError::value("estimator.kind", expected, "another average"));
    }
    let path = run_dir.join(LEDGER_FILE);
    let entries = ledger::read(&path, &genesis_of(run_dir)?)?.entries;
    let first = entries.first();
    let rates =
        first.and_then(|first| Some((first.sampling_probability, first.clip_norm? / first.sensitivity?)));
    let Some((sampling_probability, expected_weight)) = rates else {
        let message = "expected a round with a clip norm and a sensitivity";
        return Err(RunError::damaged(&path, message));
    };
    if let Some(privacy) = &mut task.privacy {
        privacy.noise_multiplier = first.and_then(|first| first.noise_multiplier);
        (privacy.target_epsilon, privacy.max_epsilon) = (None, None);
    }
    task.cohort.sampling_probability = Some(sampling_probability);
    task.cohort.users_per_round = None;
    task.cohort.examples_per_round = None;
    task.cohort.compute_budget = None;
    task.estimator = EstimatorConfig::FixedDenominator {
        expected_weight: Some(expected_weight),
    };
    Ok(())
}

//! Canaries with text: invented users in a copy of a run, for an attacker who sees the final model alone.

use std::path::Path;

use undertone_coordinator::record::LedgerEntry;
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::task::{EstimatorConfig, TaskConfig};

use undertone_run_directory::error::{DirectoryError, Result};
use undertone_run_directory::files::names::LEDGER_FILE;
use undertone_run_directory::ledger::{self, genesis_of};

/// The relative difference that the figures of a copy may have from those of its run: the last digits of a quotient.
const SAME: f64 = 1e-9;

/// Fixes what would otherwise follow from the number of users: the sampling probability, the denominator and the noise that the rounds of a
/// run had. Then a copy with other users has the guarantee of the run, and a user who is in or out changes nothing else.
///
/// # Errors
/// [`DirectoryError`] naming the setting of a run whose cohorts are no Poisson sample, one with `[aggregation]`, one whose denominator follows from
/// the users, and one without rounds.
pub fn fix_rates(run_dir: &Path, task: &mut TaskConfig) -> Result<()> {
    if task.cohort.sampling != Sampling::Poisson {
        // PRIVACY: a user who is absent would move the cohorts of the others, and the claim speaks of no such neighbour.
        let expected = "`poisson`: elsewhere a user who is absent moves the cohorts of others";
        return Err(DirectoryError::value(
            "cohort.sampling",
            expected,
            task.cohort.sampling.name(),
        ));
    }
    if task.aggregation.is_some() {
        let reason = "canaries have text here, and more users move floors and rotations";
        return Err(DirectoryError::left_out("aggregation", reason));
    }
    if !task.estimator.is_fixed() {
        let expected = "`fixed_denominator` where canaries have text";
        return Err(DirectoryError::value(
            "estimator.kind",
            expected,
            "another average",
        ));
    }
    let path = run_dir.join(LEDGER_FILE);
    let entries = rounds_of(run_dir)?;
    let first = entries.first();
    let rates =
        first.and_then(|first| Some((first.sampling_probability, first.clip_norm? / first.sensitivity?)));
    let Some((sampling_probability, expected_weight)) = rates else {
        let message = "expected a round with a clip norm and a sensitivity";
        return Err(DirectoryError::damaged(&path, message));
    };
    if let Some(privacy) = &mut task.privacy {
        privacy.noise_multiplier = first.and_then(|first| first.noise_multiplier);
        (privacy.target_epsilon, privacy.max_epsilon) = (None, None);
    }
    // PRIVACY: a ledger line has the multiplier of the run's own cohorts. `[estimate]` would scale it once more.
    task.estimate = None;
    for point in &mut task.schedule {
        let Some(noise_multiplier) = &mut point.noise_multiplier else {
            continue;
        };
        let line = entries.iter().find(|entry| entry.round == point.from_round);
        let Some(own) = line.and_then(|line| line.noise_multiplier) else {
            let message = format!(
                "expected a line of round {} with a noise multiplier",
                point.from_round
            );
            return Err(DirectoryError::damaged(&path, message));
        };
        *noise_multiplier = own;
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

/// Refuses a copy of a run whose rounds had another sampling, sensitivity or noise than those of the run.
///
/// # Errors
/// [`DirectoryError::Damaged`] naming the ledger of the copy, the round and the figure.
pub fn check_copy(run_dir: &Path, copy_dir: &Path) -> Result<()> {
    let (own, copied) = (rounds_of(run_dir)?, rounds_of(copy_dir)?);
    let path = copy_dir.join(LEDGER_FILE);
    if own.len() != copied.len() {
        let message = format!(
            "expected the {} rounds of the run, got {}",
            own.len(),
            copied.len()
        );
        return Err(DirectoryError::damaged(&path, message));
    }
    for (own, copied) in own.iter().zip(&copied) {
        for (name, expected, got) in [
            (
                "sampling_probability",
                Some(own.sampling_probability),
                Some(copied.sampling_probability),
            ),
            ("sensitivity", own.sensitivity, copied.sensitivity),
            ("noise_multiplier", own.noise_multiplier, copied.noise_multiplier),
        ] {
            let (expected, got) = (expected.unwrap_or(f64::NAN), got.unwrap_or(f64::NAN));
            let holds = (got - expected).abs() <= SAME * expected.abs();
            // Written so that a figure that is missing is another one.
            if !holds {
                let message = format!(
                    "round {}: expected the {name} {expected} of the run, got {got}",
                    own.round
                );
                return Err(DirectoryError::damaged(&path, message));
            }
        }
    }
    Ok(())
}

fn rounds_of(run_dir: &Path) -> Result<Vec<LedgerEntry>> {
    Ok(ledger::read(&run_dir.join(LEDGER_FILE), &genesis_of(run_dir)?)?.entries)
}

//! `metrics.jsonl` against the ledger.

use super::{Check, Run};
use crate::report;
use crate::run::METRICS_FILE;

/// Every round of the metrics is the ledger's round, and running guarantees never fall.
pub(super) fn agree(run: &Run<'_>) -> Check {
    let mut check = Check::new("metrics");
    let data = match report::read(run.folder) {
        Ok(data) => data,
        Err(error) => {
            check.problem(error);
            return check;
        }
    };
    if data.rounds.len() != run.entries.len() {
        check.problem(format!(
            "{METRICS_FILE}: {} rounds, the ledger has {}",
            data.rounds.len(),
            run.entries.len()
        ));
    }
    check.same(
        format!("{METRICS_FILE}, start.rounds"),
        &run.config.rounds,
        &data.start.rounds,
    );
    check.same(
        format!("{METRICS_FILE}, start.train_users"),
        &run.plan.population().users,
        &(data.start.train_users as u64),
    );
    let mut epsilon = 0.0;
    for (record, entry) in data.rounds.iter().zip(&run.entries) {
        let place = |what: &str| format!("{METRICS_FILE}, round {}, {what}", entry.round);
        check.same(place("round"), &entry.round, &record.round);
        check.same(
            place("cohort_size"),
            &entry.cohort_size,
            &(record.cohort_size as u64),
        );
        check.same(place("clip_norm"), &entry.clip_norm, &record.clip_norm);
        check.same(place("noise_std"), &entry.noise_std, &record.noise_std);
        if let Some(running) = record.epsilon {
            // Within rounding: the search for the worst user ends a digit earlier or later.
            if running < epsilon * (1.0 - 1e-9) {
                check.problem(format!("{}: {running} after {epsilon}", place("epsilon")));
            }
            epsilon = running;
        }
    }
    let last = data.evaluations.last().map(|evaluation| evaluation.round);
    if last != Some(run.entries.len() as u64) {
        check.problem(format!("{METRICS_FILE}: no evaluation of the final model"));
    }
    check.found = format!(
        "{} rounds and {} evaluations",
        data.rounds.len(),
        data.evaluations.len()
    );
    check
}

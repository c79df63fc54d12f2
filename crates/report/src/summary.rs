//! The summary table, with equal rows on the terminal and in the page.

use super::RunData;
use undertone_coordinator::record::{GuaranteeRecord, PrivacyReport};
use undertone_present::numbers::{grouped, number, share, upper_bound};
use undertone_run_directory::metrics::{EvaluationRecord, Metrics, accuracy};

/// Number of tokens that a run trained on; a service never learns it.
pub(super) fn tokens_of(run: &RunData) -> Option<u64> {
    let tokens = run.rounds.iter().filter_map(|round| round.tokens);
    tokens.reduce(u64::saturating_add)
}

/// The summary of a run, as rows of name and value.
#[must_use]
pub fn summary(run: &RunData) -> Vec<(&'static str, String)> {
    let start = &run.start;
    let mut rows = vec![
        ("run", start.run.clone()),
        ("model", format!("{}, {}", start.model, start.counts())),
    ];
    match start.train_tokens {
        Some(tokens) => {
            rows.push(("training users", grouped(start.train_users as u64)));
            rows.push(("training tokens", grouped(tokens)));
        }
        None => rows.push((
            "declared population",
            format!("at most {} users", grouped(start.train_users as u64)),
        )),
    }
    rows.push((
        "rounds",
        format!(
            "{} of {}",
            grouped(run.rounds.len() as u64),
            grouped(start.rounds)
        ),
    ));
    if !run.rounds.is_empty() {
        let mean = run
            .rounds
            .iter()
            .map(|round| round.cohort_size as f64)
            .sum::<f64>()
            / run.rounds.len() as f64;
        let seconds: f64 = run.rounds.iter().map(|round| round.seconds).sum();
        rows.push(("users per round (mean)", number(mean)));
        rows.extend(tokens_of(run).map(|tokens| ("tokens trained on", grouped(tokens))));
        if !run.is_of_session() {
            rows.push(("training time", duration(seconds)));
        }
    }
    if let Some(EvaluationRecord {
        round,
        split,
        metrics,
        ..
    }) = run.evaluations.last()
    {
        rows.push((
            "evaluated on",
            format!(
                "{split}, after round {}, {} targets{}",
                grouped(*round),
                grouped(metrics.targets),
                metrics.users.map_or(String::new(), |users| {
                    format!(" of {} users; ± is one standard error over them", grouped(users))
                })
            ),
        ));
        rows.push((accuracy::KEYBOARD, top1(metrics)));
        rows.extend(run.initial().map(|initial| {
            (
                "initial model",
                format!(
                    "top-1 {}, perplexity {}",
                    top1(initial),
                    number(initial.perplexity)
                ),
            )
        }));
        rows.push((
            "top-3 / top-5",
            format!(
                "{} / {}",
                share(metrics.top3, metrics.top3_standard_error),
                share(metrics.top5, metrics.top5_standard_error)
            ),
        ));
        let accuracies = metrics.other_accuracies().into_iter();
        rows.extend(accuracies.map(|(name, value, error)| (name, share(value, error))));
        rows.push(("perplexity", number(metrics.perplexity)));
    }
    rows.extend(
        start
            .unigram_accuracy
            .map(|value| ("most frequent word", percent(value))),
    );
    rows.extend(
        start
            .best_accuracy
            .map(|value| ("best reachable", percent(value))),
    );
    match &run.privacy {
        Some(privacy) if privacy.private => {
            let named = [
                ("planned", privacy.planned.as_ref()),
                ("worst case", privacy.worst_case.as_ref()),
                ("claimed, for all rounds", after_stop(privacy)),
                ("observed", privacy.observed.as_ref()),
                ("guarantee with the vocabulary", privacy.with_vocabulary.as_ref()),
                (
                    "guarantee with the initial model",
                    privacy.with_initial_model.as_ref(),
                ),
                ("estimate, not a guarantee", privacy.estimate.as_ref()),
            ];
            for (name, record) in named {
                rows.extend(record.map(|record| (name, guarantee(record))));
            }
        }
        Some(_) => rows.push(("privacy", "none: no noise was added".to_owned())),
        None => {
            let epsilon = run.rounds.last().and_then(|round| round.epsilon);
            rows.extend(epsilon.map(|epsilon| ("epsilon so far", upper_bound(epsilon))));
        }
    }
    rows
}

/// The guarantee that a run claims after a stop.
fn after_stop(privacy: &PrivacyReport) -> Option<&GuaranteeRecord> {
    privacy.stopped.as_ref()?.claimed.as_ref()
}

/// A guarantee in one line.
pub(super) fn guarantee(record: &GuaranteeRecord) -> String {
    format!(
        "({}, {})-DP, {}",
        upper_bound(record.epsilon),
        upper_bound(record.delta),
        record.adjacency
    )
}

/// The accuracy of an evaluation with its standard error.
pub(super) fn top1(metrics: &Metrics) -> String {
    share(metrics.top1, metrics.top1_standard_error)
}

pub(super) fn percent(value: f64) -> String {
    format!("{:.2} %", 100.0 * value)
}

pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) => format!("{seconds:.1} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_and_counts_grouped() {
        let check = |got: String, expected: &str| assert_eq!(got, expected);
        check(grouped(7), "7");
        check(grouped(1_234_567), "1,234,567");
        check(duration(3.25), "3.2 s");
        check(duration(125.0), "2 min 5 s");
        check(duration(7260.0), "2 h 1 min");
    }
}

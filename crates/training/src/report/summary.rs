//! The summary table: the same rows on the terminal and in the page.

use super::RunData;
use crate::record::{EvaluationRecord, GuaranteeRecord};

/// What a reader asks first, as rows of name and value.
#[must_use]
pub fn summary(run: &RunData) -> Vec<(&'static str, String)> {
    let start = &run.start;
    let mut rows = vec![
        ("run", start.run.clone()),
        (
            "model",
            format!("{}, {} parameters", start.model, grouped(start.parameters as u64)),
        ),
        ("training users", grouped(start.train_users as u64)),
        ("training tokens", grouped(start.train_tokens)),
        (
            "rounds",
            format!(
                "{} of {}",
                grouped(run.rounds.len() as u64),
                grouped(start.rounds)
            ),
        ),
    ];
    if !run.rounds.is_empty() {
        let mean = run
            .rounds
            .iter()
            .map(|round| round.cohort_size as f64)
            .sum::<f64>()
            / run.rounds.len() as f64;
        let tokens: u64 = run.rounds.iter().map(|round| round.tokens).sum();
        let seconds: f64 = run.rounds.iter().map(|round| round.seconds).sum();
        rows.push(("users a round (mean)", number(mean)));
        rows.push(("tokens trained on", grouped(tokens)));
        rows.push(("training time", duration(seconds)));
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
                "{split}, after round {}, {} targets",
                grouped(*round),
                grouped(metrics.targets)
            ),
        ));
        rows.push(("top-1 accuracy", percent(metrics.top1)));
        rows.push((
            "top-3 / top-5",
            format!("{} / {}", percent(metrics.top3), percent(metrics.top5)),
        ));
        rows.push(("top-1, UNK a candidate", percent(metrics.top1_all_ids)));
        rows.extend(
            metrics
                .in_vocab_top1
                .map(|value| ("top-1 in vocabulary", percent(value))),
        );
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
                ("planned", &privacy.planned),
                ("observed", &privacy.observed),
                ("estimate", &privacy.estimate),
            ];
            for (name, record) in named {
                rows.extend(record.as_ref().map(|record| (name, guarantee(record))));
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

/// A guarantee in one line.
pub(super) fn guarantee(record: &GuaranteeRecord) -> String {
    format!(
        "({}, {})-DP, {}",
        upper_bound(record.epsilon),
        scientific(record.delta),
        record.adjacency
    )
}

/// `12345` as `12,345`.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Four significant digits, in plain notation where that is short.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..7.0).contains(&magnitude) {
        return scientific(value);
    }
    let text = format!("{value:.*}", (3.0 - magnitude).max(0.0) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// As [`number`], but never less than the value.
pub(super) fn upper_bound(value: f64) -> String {
    let text = number(value);
    match text.parse::<f64>() {
        // PRIVACY: a bound that is rounded down is a claim that does not hold.
        Ok(shown) if shown < value => number(shown + 10f64.powf(value.abs().log10().floor() - 3.0)),
        _ => text,
    }
}

/// `1e-6`, `2.5e-7`.
pub(super) fn scientific(value: f64) -> String {
    let text = format!("{value:.3e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => {
            format!(
                "{}e{exponent}",
                mantissa.trim_end_matches('0').trim_end_matches('.')
            )
        }
        _ => text,
    }
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
    fn numbers_read_well() {
        let check = |got: String, expected: &str| assert_eq!(got, expected);
        check(grouped(7), "7");
        check(grouped(1_234_567), "1,234,567");
        check(number(1.5), "1.5");
        check(number(12_345.6), "12346");
        check(number(0.001_234_56), "0.001235");
        check(number(1.0e-9), "1e-9");
        check(number(4.0e12), "4e12");
        check(number(f64::INFINITY), "inf");
        check(scientific(2.5e-7), "2.5e-7");
        check(upper_bound(4.0374), "4.038");
        check(upper_bound(4.0376), "4.038");
        check(upper_bound(4.037), "4.037");
        check(upper_bound(9.999_91), "10");
        check(upper_bound(1234.2), "1235");
        check(upper_bound(0.012_341), "0.01235");
        check(upper_bound(0.0), "0");
        check(upper_bound(f64::INFINITY), "inf");
        check(duration(3.25), "3.2 s");
        check(duration(125.0), "2 min 5 s");
        check(duration(7260.0), "2 h 1 min");
    }
}

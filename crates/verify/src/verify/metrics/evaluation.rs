//! The figures of an evaluation over users: standard errors, the commonest prediction, and the sample that the curve shows.
//!
//! No file determines them. They are checked for being possible beside the other figures of their line.

use undertone_text::{EosTargets, Vocab};

use super::{possible, possible_metrics};
use crate::verify::Check;
use undertone_run_directory::metrics::Metrics;

/// The settings that the figures of an evaluation depend on.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) vocabulary: &'a Vocab,
    /// The number of ids that the model predicts; more than the vocabulary has where its matrix has more rows.
    pub(super) ids: usize,
    pub(super) eos: EosTargets,
}

/// Checks that the figures over users are possible; a file of an older version has none of them.
pub(super) fn possible_over_users(place: &str, metrics: &Metrics, by: Measured<'_>, check: &mut Check) {
    let at = |name: &str| format!("{place}.{name}");
    let known = metrics.targets.saturating_sub(metrics.out_of_vocabulary);
    let share = |name, share, error| (name, Some(share), error);
    let errors = [
        share("top1_standard_error", metrics.top1, metrics.top1_standard_error),
        share("top3_standard_error", metrics.top3, metrics.top3_standard_error),
        share("top5_standard_error", metrics.top5, metrics.top5_standard_error),
        share(
            "top1_all_ids_standard_error",
            metrics.top1_all_ids,
            metrics.top1_all_ids_standard_error,
        ),
        (
            "in_vocab_top1_standard_error",
            metrics.in_vocab_top1.filter(|_| known > 0),
            metrics.in_vocab_top1_standard_error,
        ),
    ];
    let Some(users) = metrics.users else {
        let figures = errors.map(|(name, _, error)| (name, error.is_some()));
        let others = [
            ("loss_standard_error", metrics.loss_standard_error.is_some()),
            ("commonest_prediction", metrics.commonest_prediction.is_some()),
            ("sample", metrics.sample.is_some()),
        ];
        for (name, _) in figures
            .into_iter()
            .chain(others)
            .filter(|(_, is_there)| *is_there)
        {
            check.problem(format!(
                "{}: a figure over users without {}",
                at(name),
                at("users")
            ));
        }
        return;
    };
    possible(&at("users"), users as f64, 1.0..=metrics.targets as f64, check);
    // The influences above zero sum up to at most r (1 - r) for a share r, and those below to the same.
    let users = users as f64;
    let several = users > 1.0;
    let factor = (2.0 * users / (users - 1.0)).sqrt();
    for (name, share, error) in errors {
        let largest = |share: f64| (factor * share * (1.0 - share)).max(0.0);
        match (error, share.filter(|_| several)) {
            (Some(error), Some(share)) => possible(&at(name), error, 0.0..=largest(share), check),
            (None, None) => {}
            (None, Some(_)) => check.problem(format!("{}: missing", at(name))),
            (Some(error), None) => check.wrong(at(name), "nothing", error),
        }
    }
    let (loss, place) = (metrics.perplexity.ln(), at("loss_standard_error"));
    match metrics.loss_standard_error {
        // A model that diverged has losses that are no numbers.
        Some(error) if several && loss.is_finite() => {
            possible(&place, error, 0.0..=(factor * loss).max(0.0), check);
        }
        Some(error) if !several || error < 0.0 => check.wrong(place, "nothing, or at least 0", error),
        None if several => check.problem(format!("{place}: missing")),
        _ => {}
    }
    possible_prediction(&at("commonest_prediction"), metrics, by, check);
    if let Some(sample) = &metrics.sample {
        possible_sample(&at("sample"), sample, metrics, by, check);
    }
}

fn possible_prediction(place: &str, metrics: &Metrics, by: Measured<'_>, check: &mut Check) {
    let Some(commonest) = metrics.commonest_prediction else {
        if !metrics.perplexity.is_nan() {
            check.problem(format!("{place}: missing"));
        }
        return;
    };
    let special = by.vocabulary.special();
    let is_candidate = special.is_candidate(commonest.id, by.eos == EosTargets::Included);
    if commonest.id as usize >= by.ids || !is_candidate {
        let expected = format!("a word among {} ids", by.ids);
        check.wrong(format!("{place}.id"), expected, commonest.id);
    }
    let targets = metrics.targets.max(1) as f64;
    let place = format!("{place}.share");
    possible(&place, commonest.share, 1.0 / targets..=1.0, check);
    let count = commonest.share * targets;
    if (count - count.round()).abs() > 1e-6 * count.max(1.0) {
        check.wrong(place, format!("a share of {targets} targets"), commonest.share);
    }
}

/// Checks that a sample is a part of the whole.
fn possible_sample(place: &str, sample: &Metrics, whole: &Metrics, by: Measured<'_>, check: &mut Check) {
    let at = |name: &str| format!("{place}.{name}");
    if sample.sample.is_some() {
        check.problem(format!("{}: a sample has none", at("sample")));
        return;
    }
    if sample.head_words.is_some() {
        check.problem(format!("{}: a sample has none", at("head_words")));
    }
    if sample.users.is_none() {
        check.problem(format!("{}: missing", at("users")));
    }
    // Sentences in other batches may be rounded in another way, so a few targets may be right in one of them alone.
    let right = |metrics: &Metrics| metrics.top1 * metrics.targets as f64;
    let slack = 1.0 + 1e-4 * whole.targets as f64;
    for (name, part, all, slack) in [
        ("targets", sample.targets as f64, whole.targets as f64, 0.0),
        (
            "users",
            sample.users.unwrap_or(0) as f64,
            whole.users.unwrap_or(0) as f64,
            0.0,
        ),
        (
            "out_of_vocabulary",
            sample.out_of_vocabulary as f64,
            whole.out_of_vocabulary as f64,
            0.0,
        ),
        ("top1", right(sample), right(whole), slack),
    ] {
        if part > all + slack {
            let expected = format!("at most the {all} of the whole");
            check.wrong(at(name), expected, part);
        }
    }
    possible_metrics(place, sample, by, check);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use undertone_text::VocabProvenance;

    use super::*;

    /// Forty targets of eight users, ten of them right, beside a sample of half of them.
    fn honest() -> Value {
        let part = |targets: u64, users: u64| {
            json!({
                "top1": 0.25, "top3": 0.5, "top5": 0.5, "top1_all_ids": 0.25, "in_vocab_top1": 0.3125, "perplexity": 20.0,
                "targets": targets, "out_of_vocabulary": targets / 5, "users": users,
                "top1_standard_error": 0.05, "top3_standard_error": 0.06, "top5_standard_error": 0.07,
                "top1_all_ids_standard_error": 0.05, "in_vocab_top1_standard_error": 0.06, "loss_standard_error": 0.2,
                "commonest_prediction": { "id": 3, "share": 0.5 },
            })
        };
        let mut whole = part(40, 8);
        whole["sample"] = part(20, 4);
        whole
    }

    fn problems(metrics: Value) -> String {
        let vocabulary = Vocab::new(vec!["a".into(), "b".into()], VocabProvenance::File);
        let measured = Measured {
            vocabulary: &vocabulary,
            ids: vocabulary.len(),
            eos: EosTargets::Excluded,
        };
        let metrics: Metrics = serde_json::from_value(metrics).unwrap();
        let mut check = Check::new("metrics");
        possible_metrics("m", &metrics, measured, &mut check);
        check.problems.join("\n")
    }

    /// Each line has a pointer, a value to put there, and a part of the problem.
    #[test]
    fn figures_over_users_that_cannot_be_are_refused() {
        assert_eq!(problems(honest()), "");
        let table = r#"
            /users 0 m.users: expected from 1 to 40, got 0
            /users 41 m.users: expected from 1 to 40, got 41
            /users 1 m.top1_standard_error: expected nothing, got 0.05
            /users 1 m.loss_standard_error: expected nothing, or at least 0, got 0.2
            /top1_standard_error -0.001 m.top1_standard_error: expected from 0 to
            /top1_standard_error 0.3 m.top1_standard_error: expected from 0 to
            /top1_standard_error null m.top1_standard_error: missing
            /top3_standard_error 0.4 m.top3_standard_error: expected from 0 to
            /top5_standard_error -1 m.top5_standard_error: expected from 0 to
            /top1_all_ids_standard_error null m.top1_all_ids_standard_error: missing
            /in_vocab_top1_standard_error 0.4 m.in_vocab_top1_standard_error: expected from 0 to
            /loss_standard_error -0.1 m.loss_standard_error: expected from 0 to
            /loss_standard_error 5 m.loss_standard_error: expected from 0 to
            /loss_standard_error "nan" m.loss_standard_error: expected from 0 to
            /commonest_prediction null m.commonest_prediction: missing
            /commonest_prediction/id 0 m.commonest_prediction.id: expected a word among 5 ids, got 0
            /commonest_prediction/id 2 m.commonest_prediction.id: expected a word among 5 ids, got 2
            /commonest_prediction/id 5 m.commonest_prediction.id: expected a word among 5 ids, got 5
            /commonest_prediction/share 1.5 m.commonest_prediction.share: expected from 0.025 to 1
            /commonest_prediction/share 0 m.commonest_prediction.share: expected from 0.025 to 1
            /commonest_prediction/share 0.51 m.commonest_prediction.share: expected a share of 40 targets
            /sample/targets 60 m.sample.targets: expected at most the 40 of the whole, got 60
            /sample/users 9 m.sample.users: expected at most the 8 of the whole, got 9
            /sample/users null m.sample.users: missing
            /sample/top1 0.75 m.sample.top1: expected at most the 10 of the whole, got 15
            /sample/top1_standard_error -1 m.sample.top1_standard_error: expected from 0 to
            /sample/head_words {"top10":[],"top50":[],"top100":[]} m.sample.head_words: a sample has none
        "#;
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut parts = line.splitn(3, ' ');
            let mut next = || parts.next().expect(line);
            let (pointer, value, expected) = (next(), next(), next());
            let mut metrics = honest();
            let (place, name) = pointer.rsplit_once('/').expect("a pointer");
            let value: Value = serde_json::from_str(value).expect("JSON");
            // An optional number is absent, and never null.
            let object = metrics.pointer_mut(place).and_then(Value::as_object_mut);
            let object = object.expect("an object");
            match value {
                Value::Null => drop(object.remove(name)),
                value => drop(object.insert(name.to_owned(), value)),
            }
            let found = problems(metrics);
            assert!(found.contains(expected), "{line}: {found}");
        }
        let mut nested = honest();
        nested["sample"]["sample"] = nested["sample"].clone();
        assert_eq!(problems(nested), "m.sample.sample: a sample has none");
        // Without `users` a line is of an older version, and such a line has none of the others.
        let mut old = honest();
        old.as_object_mut().unwrap().remove("users");
        let found = problems(old);
        let count = found.matches("a figure over users without m.users").count();
        assert_eq!(count, 8, "{found}");
    }
}

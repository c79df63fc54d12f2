//! One order of held-out users per corpus: evaluations of a run and of other runs, their samples and their standard errors.

use std::path::Path;
use undertone_text::EosTargets;

use undertone_run::pretrain::{PretrainFile, pretrain};
use undertone_run::{RunFile, Silent, Summary};
use undertone_run_directory::config::EvaluationSplit;
use undertone_run_directory::metrics::{EvaluationRecord, Metrics};

use crate::support::{changed, config, holds, options, problems};

/// The start of the runs below, trained on a population of other people who speak alike.
fn start(folder: &Path) {
    let text = r#"
        name = "start"
        steps = 40
        data = { source = { kind = "synthetic", users = 200, words = 40 } }
        model = { family = "dplm", embed = 6, hidden = 8 }
        training = { batch_size = 64, optimizer = { kind = "adam" }, learning_rate = 0.05 }
        evaluation = { every = 20, max_tokens = 200 }
    "#;
    std::fs::write(folder.join("start.toml"), text).expect("writing");
    let file = PretrainFile::read(&folder.join("start.toml"), &[]).expect("a file");
    pretrain(&file, &options(folder), &Silent).expect("a start");
}

/// Trains a run without a seed whose model never moves, with these settings of its evaluations.
fn unchanged(folder: &Path, name: &str, evaluation: &str) -> Summary {
    let changes = [
        &format!("name={name}"),
        "rounds=5",
        "clip.norm=1e-8",
        "initial_model=start/model.safetensors",
        "data.source.users=900",
        "evaluation.every=2",
    ];
    let limits = evaluation.split_whitespace();
    let mut config = config(&changes.into_iter().chain(limits).collect::<Vec<_>>());
    config.seed = None;
    undertone_run::train(&RunFile::new(config, folder), &options(folder), &Silent).expect("a run")
}

fn evaluations(summary: &Summary) -> Vec<EvaluationRecord> {
    let run = undertone_run_directory::read::read(&summary.run_dir).expect("a run");
    run.evaluations
}

fn evaluated(summary: &Summary) -> Metrics {
    let (split, eos) = (EvaluationSplit::Validation, EosTargets::Excluded);
    undertone_run::evaluate(&summary.run_dir, None, split, eos, 2, &Silent).expect("an evaluation")
}

/// The figures that a person compares.
fn shown(metrics: &Metrics) -> (f64, Option<f64>, Option<u64>, u64) {
    (
        metrics.top1,
        metrics.top1_standard_error,
        metrics.users,
        metrics.targets,
    )
}

/// The figures at the start, on the way, at the end and in `eval` are equal, in two runs that share no randomness. A smaller sample is the
/// prefix of a larger one, whose figures are then those of a run that reads no more.
#[test]
#[ignore = "slow"]
fn an_unchanged_model_has_one_accuracy_at_each_evaluation_of_any_run() {
    let folder = tempfile::tempdir().expect("a folder");
    start(folder.path());
    let whole = [
        unchanged(folder.path(), "one", ""),
        unchanged(folder.path(), "two", ""),
    ];
    let expected = shown(&whole[0].metrics);
    assert!(expected.1.is_some_and(|error| error > 0.0) && expected.2.is_some_and(|users| users > 50));
    for summary in &whole {
        let points = evaluations(summary);
        let rounds: Vec<u64> = points.iter().map(|point| point.round).collect();
        assert_eq!(rounds, [0, 2, 4, 5]);
        for metrics in points.iter().map(|point| &point.metrics) {
            assert_eq!((shown(metrics), &metrics.sample), (expected, &None));
        }
        let evaluated = evaluated(summary);
        assert_eq!((shown(&evaluated), &evaluated.sample), (expected, &None));
        holds(&summary.run_dir);
    }

    // Equal limits: `eval` reads all users, and beside them those of the run.
    let equal = "evaluation.max_tokens=700 evaluation.final_max_tokens=700";
    let equal = [
        unchanged(folder.path(), "three", equal),
        unchanged(folder.path(), "four", equal),
    ];
    let part = shown(&equal[0].metrics);
    assert!(part.3 < expected.3 && part.2 < expected.2, "{part:?}");
    for summary in &equal {
        for point in evaluations(summary) {
            assert_eq!((shown(&point.metrics), point.metrics.sample), (part, None));
        }
        let evaluated = evaluated(summary);
        assert_eq!(shown(&evaluated), expected);
        assert_eq!(shown(evaluated.on_curve()), part);
        holds(&summary.run_dir);
    }

    // A sample on the curve, and everybody in the table.
    let sampled = unchanged(folder.path(), "five", "evaluation.max_tokens=700");
    assert_eq!(shown(&sampled.metrics), expected);
    for point in evaluations(&sampled) {
        assert_eq!(shown(point.metrics.on_curve()), part);
        let between = (1..5).contains(&point.round);
        assert_eq!(point.metrics.sample.is_none(), between);
    }
    assert_eq!(shown(evaluated(&sampled).on_curve()), part);
    holds(&sampled.run_dir);

    // A limit of the last evaluation is one of all.
    let last = unchanged(
        folder.path(),
        "six",
        "evaluation.max_tokens=900 evaluation.final_max_tokens=700",
    );
    for point in evaluations(&last) {
        assert_eq!((shown(&point.metrics), point.metrics.sample), (part, None));
    }
}

/// `verify` refuses evaluations of one curve on other targets, and a sample that is more than the whole. The unit tests of
/// `verify/metrics/evaluation.rs` walk through the other figures.
#[test]
#[ignore = "slow"]
fn a_curve_of_other_targets_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    start(folder.path());
    let run = unchanged(folder.path(), "run", "evaluation.max_tokens=700");
    let folder = &run.run_dir;
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).expect("metrics");
    // The start of a line up to a figure, that figure, and the same start with another value.
    let figure = |line: &str, name: &str, value: u64| {
        let at = line.find(&format!("\"{name}\":")).expect(name) + name.len() + 3;
        let end = at + line[at..].find(',').expect("an end");
        assert_ne!(line[at..end], value.to_string());
        (line[..end].to_owned(), format!("{}{value}", &line[..at]))
    };
    let line = |round: u64| {
        let start = format!("{{\"kind\":\"evaluation\",\"round\":{round},");
        text.lines()
            .find(|line| line.starts_with(&start))
            .expect("a line")
    };
    let (from, to) = figure(line(2), "users", 99);
    let expected = "users of the evaluation before it, got";
    changed(folder, "metrics.jsonl", &from, &to, expected);
    let sample = &line(0)[line(0).find("\"sample\":").expect("a sample")..];
    let (from, to) = figure(sample, "targets", 99_999_999);
    let expected = "metrics.sample.targets: expected at most the";
    changed(folder, "metrics.jsonl", &from, &to, expected);
    // A sample where all of the evaluation is on the curve.
    let whole = line(2).trim_end_matches("}}");
    let (from, to) = (format!("{whole}}}}}"), format!("{whole},{sample}"));
    let expected = "metrics.sample: only the first and the last evaluation have one";
    changed(folder, "metrics.jsonl", &from, &to, expected);
    assert_eq!(problems(folder), "");
}

/// The figures are the operator's: a release has none of them.
#[test]
#[ignore = "slow"]
fn no_figure_over_users_is_in_a_published_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&["rounds=2", "data.source.users=300", "evaluation.every=1"]);
    config.seed = None;
    let file = RunFile::new(config, folder.path());
    let run = undertone_run::train(&file, &options(folder.path()), &Silent).expect("a run");
    let names = |path: &Path| -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            for word in ["standard_error", "commonest_prediction", "\"users\":"] {
                if text.contains(word) {
                    found.push(format!("{}: {word}", path.display()));
                }
            }
        }
        found
    };
    assert_eq!(names(&run.run_dir).len(), 3, "{:?}", names(&run.run_dir));
    let release = folder.path().join("release");
    undertone_verify::publish(&run.run_dir, &release).expect("a release");
    assert_eq!(names(&release), [""; 0]);
}

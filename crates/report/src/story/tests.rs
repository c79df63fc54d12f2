use super::*;
use std::path::Path;
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::metrics::CommonestPrediction;
use undertone_run_directory::read::read;

const PRIVATE: &str = r#"
name = "words"
rounds = 40
data = { source = { kind = "synthetic", users = 60, words = 40 } }
model = { family = "dplm", embed = 6, hidden = 8 }
cohort.users_per_round = 12
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 0.5 }
clip = { kind = "flat", norm = 0.3 }
privacy = { noise_multiplier = 2.0, delta = 1e-5 }
"#;

/// A finished run of 40 rounds with this configuration, and this accuracy at its end.
fn finished(config: &str, top1: f64) -> RunData {
    let mut run = crate::tests::run(40, true);
    run.config = Some(config.to_owned());
    run.start.rounds = 40;
    run.evaluations.remove(0);
    let last = run.evaluations.last_mut().unwrap();
    last.metrics = Metrics {
        sample: None,
        ..crate::tests::metrics(top1)
    };
    run
}

/// The run without privacy, as `train --without-privacy` writes it.
fn ceiling(config: &str) -> RunData {
    let config = RunConfig::parse(config, Path::new("run.toml"), &[]).unwrap();
    let text = undertone_run_directory::plan_inputs::config_text(&config.without_privacy()).unwrap();
    let mut run = finished(&text, 0.18);
    run.privacy = Some(PrivacyReport::default());
    run.start.warning = Some("The noise is gone.".to_owned());
    run
}

/// The story of a run that stands in a folder, beside another one.
fn told(run: &RunData, twin: Option<&RunData>) -> Story {
    let folder = tempfile::tempdir().unwrap();
    let put = |run: &RunData, name: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        crate::tests::store(run, &folder);
        folder
    };
    let own = put(run, "anything");
    twin.map(|twin| put(twin, "words-without-privacy"));
    Story::of(&read(&own).unwrap()).unwrap()
}

fn lines(story: &Story) -> Vec<String> {
    story.rows().iter().map(|row| row.join(" | ")).collect()
}

#[test]
fn four_rows_tell_a_private_run_and_the_last_one_is_its_twin() {
    let story = told(&finished(PRIVATE, 0.16), Some(&ceiling(PRIVATE)));
    let expected = [
        "commonest word | 5.10 % ± 0.12 |  | ",
        "start | random |  | ",
        "private | 16.00 % ± 0.31 | 156 | epsilon 3.214, delta 1e-6, add or remove one user",
        "the same without privacy | 18.00 % ± 0.31 | 138 | no guarantee",
    ];
    assert_eq!(lines(&story), expected);
    assert_eq!(story.sentences(), [NOTE_OF_BOTH]);
}

/// 40 rounds of 2.5 seconds are more than a minute.
#[test]
fn without_a_twin_the_last_row_is_the_command_that_makes_it() {
    let story = told(&finished(PRIVATE, 0.16), None);
    let expected = "the same without privacy | not trained yet |  | undertone train RUN_FILE --without-privacy, about 2 minutes";
    assert_eq!(lines(&story)[3], expected);
    assert_eq!(story.sentences(), [NOTE]);
    let by = story.by("undertone train my.toml --without-privacy".to_owned());
    assert!(lines(&by)[3].ends_with("undertone train my.toml --without-privacy, about 2 minutes"));
}

/// Another setting, another text, other targets and an end before the last round.
#[test]
fn another_run_of_the_name_is_no_twin() {
    let own = finished(PRIVATE, 0.16);
    let changed = |change: &dyn Fn(&mut RunData)| {
        let mut twin = ceiling(PRIVATE);
        change(&mut twin);
        told(&own, Some(&twin)).without_privacy
    };
    assert!(changed(&|_| {}).is_some());
    let other = ceiling(&PRIVATE.replace("embed = 6", "embed = 7")).config;
    assert_eq!(changed(&|twin| twin.config.clone_from(&other)), None);
    assert_eq!(changed(&|twin| twin.start.train_tokens = Some(7)), None);
    let last = |twin: &mut RunData| twin.evaluations.pop().unwrap();
    assert_eq!(changed(&|twin| drop(last(twin))), None);
    let targets = |twin: &mut RunData| {
        let mut evaluation = last(twin);
        evaluation.metrics.targets += 1;
        twin.evaluations.push(evaluation);
    };
    assert_eq!(changed(&targets), None);
}

#[test]
fn a_run_without_privacy_has_no_row_to_compare_with() {
    let story = told(&ceiling(PRIVATE), None);
    let expected = "without privacy | 18.00 % ± 0.31 | 138 | no guarantee";
    assert_eq!(lines(&story)[2..], [expected]);
    assert_eq!(story.sentences(), [NOTE]);
}

/// The first evaluation of a run with an initial model is that of the start.
#[test]
fn a_start_has_its_own_row_and_a_run_that_did_not_leave_it_says_so() {
    let mut run = finished(&format!("initial_model = \"start.safetensors\"\n{PRIVATE}"), 0.16);
    let mut first = run.evaluations[0].clone();
    (first.round, first.metrics) = (0, crate::tests::metrics(0.158));
    run.evaluations.insert(0, first);
    let story = told(&run, None);
    assert_eq!(lines(&story)[1], "start | 15.80 % ± 0.31 | 157.8 | ");
    assert!(story.verdict.unwrap().contains("that of the start"));
}

/// A file of an older version lacks standard errors, and a session has no evaluation.
#[test]
fn old_runs_show_what_they_have() {
    let mut old = finished(PRIVATE, 0.16);
    let metrics = &mut old.evaluations.last_mut().unwrap().metrics;
    (
        metrics.top1_standard_error,
        metrics.users,
        metrics.commonest_prediction,
    ) = (None, None, None);
    (old.start.unigram_standard_error, old.privacy) = (None, None);
    let story = told(&old, None);
    assert_eq!(lines(&story)[0], "commonest word | 5.10 % |  | ");
    assert_eq!(
        lines(&story)[2],
        "private | 16.00 % | 156 | no guarantee is stated"
    );
    old.evaluations.clear();
    assert_eq!(Story::of(&old), None);
}

#[test]
fn a_guarantee_that_cannot_be_stated_is_no_epsilon() {
    let mut run = finished(PRIVATE, 0.16);
    run.privacy.as_mut().unwrap().observed = None;
    let story = told(&run, None);
    assert!(lines(&story)[2].ends_with("no guarantee is stated"));
}

#[test]
fn json_has_the_figures_under_the_names_of_the_rows() {
    let story = told(&finished(PRIVATE, 0.16), Some(&ceiling(PRIVATE)));
    let json = serde_json::to_value(&story).unwrap();
    assert_eq!(json["commonest_word"]["top1"], 0.051);
    assert_eq!(json["start"], "random");
    assert_eq!(
        (&json["private"]["top1"], &json["private"]["epsilon"]),
        (&0.16.into(), &3.214.into())
    );
    assert_eq!(json["without_privacy"]["top1_standard_error"], 0.0031);
    assert!(json.get("without_privacy_by").is_none() && json.get("verdict").is_none());
}

/// A planted model that always says one word. Its word stands in the vocabulary of the run.
#[test]
fn a_model_of_one_word_is_told_by_its_word() {
    let mut run = finished(PRIVATE, 0.051);
    let metrics = &mut run.evaluations.last_mut().unwrap().metrics;
    metrics.commonest_prediction = Some(CommonestPrediction { id: 4, share: 1.0 });
    let folder = tempfile::tempdir().unwrap();
    crate::tests::store(&run, folder.path());
    let told = || {
        let run = read(folder.path()).unwrap();
        Story::of(&run).unwrap().verdict.unwrap()
    };
    assert!(
        told().starts_with("The model says one word in 100 % of the places"),
        "{}",
        told()
    );
    std::fs::write(folder.path().join("vocab.txt"), "the\nlet\n").unwrap();
    assert!(
        told().starts_with("The model says `let` in 100 % of the places"),
        "{}",
        told()
    );
}

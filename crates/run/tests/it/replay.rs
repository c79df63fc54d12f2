//! The replay of runs beside their neighbours: clean runs pass each check that speaks of them.

use undertone_run::replay::{ReplayOptions, replay};
use undertone_run_directory::replays::{Battery, PopulationMode, Replay};

use super::support::*;

pub(crate) fn questions(scratch: &std::path::Path) -> ReplayOptions {
    ReplayOptions {
        scratch: scratch.to_owned(),
        base: None,
        threads: 2,
        users: 6,
        rounds: None,
        twin: false,
        battery: Battery::Natural,
        population: PopulationMode::Public,
    }
}

/// Trains the base run with these changes, and replays it.
fn replayed(changes: &[&str], change: impl Fn(&mut ReplayOptions)) -> Result<Replay, String> {
    let (scratch, (_runs, summary)) = (tempfile::tempdir().expect("a folder"), train(&config(changes), 2));
    let mut options = questions(scratch.path());
    change(&mut options);
    replay(&summary.run_dir, &options).map_err(|error| error.to_string())
}

/// Checks a clean replay: no failure, and comparisons for exactly these checks.
fn clean(changes: &[&str], compared: &[&str]) -> Replay {
    let replay = replayed(changes, |_| ()).expect("a replay");
    assert!(!replay.contradicts(), "{changes:?}: {:?}", replay.checks);
    let asked: Vec<&str> = replay
        .checks
        .iter()
        .filter(|check| check.compared > 0)
        .map(|check| check.name.as_str())
        .collect();
    assert_eq!(asked, compared, "{changes:?}");
    assert!(replay.pairs > 0 && replay.tested == "this run");
    replay
}

const ALL: [&str; 6] = ["R0", "R1", "R2", "R3", "R4", "R6"];

#[test]
#[ignore = "slow"]
fn clean_runs_of_sampled_cohorts_pass_every_check() {
    for changes in [
        &[][..],
        &["clip={kind=\"per_layer\",norm=0.3}"],
        &["user_update={algorithm=\"uls\",group_size=3}"],
        &["cohort={sampling=\"fixed_size\",users_per_round=12}"],
        &[
            "user_update={algorithm=\"els\",group_size=3,batch_size=1}",
            "cohort={sampling=\"poisson\",examples_per_round=20}",
        ],
    ] {
        clean(changes, &ALL);
    }
}

#[test]
fn microbatches_of_several_examples_have_no_exact_parts() {
    let changes = [
        "user_update={algorithm=\"els\",group_size=3,batch_size=8}",
        "cohort={sampling=\"poisson\",examples_per_round=40}",
    ];
    clean(&changes, &["R0", "R1", "R2", "R3", "R6"]);
}

#[test]
#[ignore = "slow"]
fn correlated_noise_is_checked_over_the_whole_run() {
    let cohort = "cohort={sampling=\"fixed_size\",users_per_round=5}";
    for kind in ["blt", "fhu"] {
        let mechanism = format!("privacy={{noise_multiplier=2.0,delta=1e-5,mechanism={{kind=\"{kind}\"}}}}");
        let replay = clean(
            &[cohort, "participation={min_sep=3}", &mechanism],
            &["R0", "R1", "R2", "R3", "R4", "R5", "R6"],
        );
        assert!(replay.whole_users > 0);
    }
}

/// The norm in force moves with adaptive clipping, so R5 says nothing of it.
#[test]
fn adaptive_clipping_is_checked_without_whole_runs() {
    let changes = [
        "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
        "user_update.clip_every_step=false",
        "clip={kind=\"adaptive\",initial_norm=0.3,bit_noise_std=6.0}",
        "privacy={noise_multiplier=2.0,delta=1e-5,mechanism={kind=\"tree\",restarts={first=4,every=4}}}",
    ];
    clean(&changes, &ALL);
}

#[test]
fn a_run_without_a_seed_is_replayed_as_a_twin_only() {
    let scratch = tempfile::tempdir().unwrap();
    let mut config = config(&[]);
    config.seed = None;
    let (_runs, summary) = train(&config, 2);
    let mut options = questions(scratch.path());
    let error = replay(&summary.run_dir, &options).unwrap_err().to_string();
    assert!(error.contains("seed") && error.contains("--twin"), "{error}");
    options.twin = true;
    let replay = replay(&summary.run_dir, &options).unwrap();
    assert!(!replay.contradicts() && replay.tested == "a twin of this run");
}

#[test]
fn a_ledger_that_the_seed_does_not_make_is_refused() {
    let (scratch, (_runs, summary)) = (tempfile::tempdir().unwrap(), train(&config(&[]), 2));
    let path = summary.run_dir.join("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replace("seed = 1", "seed = 2");
    assert_ne!(text, changed);
    std::fs::write(&path, changed).unwrap();
    let error = replay(&summary.run_dir, &questions(scratch.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("ledger.jsonl"), "{error}");
}

#[test]
#[ignore = "slow"]
fn what_cannot_be_replayed_is_refused_by_name() {
    let error = replayed(&[], |options| options.users = 1000).unwrap_err();
    assert!(error.contains("--users") && error.contains("1000"), "{error}");
    let mut open = config(&[]);
    (open.task.privacy, open.task.clip) = (None, undertone_coordinator::task::ClipConfig::None);
    let (scratch, (_runs, summary)) = (tempfile::tempdir().unwrap(), train(&open, 2));
    let error = replay(&summary.run_dir, &questions(scratch.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("privacy"), "{error}");
}

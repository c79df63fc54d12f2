//! The replays that a run makes of itself: they leave the run as it is, go on with it, and are checked where somebody reads them.

use std::path::Path;

use undertone_audit::record::of_replay;
use undertone_run::replay::{ReplayOptions, replay};
use undertone_run::{RunFile, RunOptions, Silent, train as train_file};
use undertone_run_directory::plan_inputs::config_digest;
use undertone_verify::{publish, read_replays};

use crate::replay::questions;
use crate::support::{
    EndsAfter, bytes, changed, check_refusals, config, cut_and_resumed, holds, ledger, options, parsed, train,
};

const LIVE: &str = "audit={noise_probe=0,replay_every=2}";

/// Kinds of run, with the checks that apply to each beside R0 and R1. Only a fixed denominator shows R3, and only single updates add up
/// exactly for R4.
const KINDS: [(&[&str], &[&str]); 9] = [
    (&[], &["R2", "R3", "R4"]),
    (
        &["user_update={algorithm=\"uls\",group_size=3}"],
        &["R2", "R3", "R4"],
    ),
    (
        &[
            "user_update={algorithm=\"els\",group_size=3,batch_size=4}",
            "cohort={sampling=\"poisson\",examples_per_round=20}",
        ],
        &["R2"],
    ),
    (&["clip={kind=\"per_layer\",norm=0.3}"], &["R2", "R3", "R4"]),
    (
        &["cohort={sampling=\"fixed_size\",users_per_round=12}"],
        &["R2", "R4"],
    ),
    (
        &[
            "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
            "privacy.mechanism={kind=\"tree\"}",
        ],
        &["R2", "R4"],
    ),
    (
        &[
            "cohort={sampling=\"shuffled_epochs\",users_per_round=12}",
            "privacy.mechanism={kind=\"blt\"}",
            "audit={lane=20,noise_probe=12,replay_every=2}",
        ],
        &["R2", "R4"],
    ),
    (
        &[
            "cohort={sampling=\"fixed_size\",users_per_round=5}",
            "participation={min_sep=3}",
            "privacy.mechanism={kind=\"fhu\"}",
        ],
        &["R2", "R4"],
    ),
    (
        &[
            "cohort={sampling=\"fixed_size\",users_per_round=12}",
            "aggregation={sum=\"plain\",encoding={kind=\"rotated_rounding\",scale=10000.0},min_clients=8}",
        ],
        &["R2", "R4"],
    ),
];

/// Makes a run again, without the replays that it made while it ran, and compares the parameters of each round.
fn made_again(run_dir: &Path) {
    let scratch = tempfile::tempdir().expect("a folder");
    let options = ReplayOptions {
        users: 1,
        ..questions(scratch.path())
    };
    let replayed = replay(run_dir, &options).expect("a replay");
    assert!(!replayed.contradicts());
}

#[test]
#[ignore = "slow"]
fn a_run_replays_itself_and_stays_as_it_is() {
    for (changes, expected) in KINDS {
        for seed in [Some(1), None] {
            let with: Vec<&str> = [LIVE].iter().chain(changes).copied().collect();
            let mut audited = config(&with);
            audited.seed = seed;
            let (_runs, summary) = train(&audited, 2);
            holds(&summary.run_dir);
            let replay = read_replays(&summary.run_dir).unwrap();
            assert_eq!(replay.tested, "this run, while it ran");
            assert_eq!(
                (replay.rounds, replay.pairs),
                (summary.rounds / 2, summary.rounds / 2)
            );
            for name in ["R0", "R1"].iter().chain(expected) {
                let check = replay.checks.iter().find(|check| check.name == *name).unwrap();
                assert!(
                    check.compared == replay.pairs && check.failed == 0,
                    "{with:?}: {check:?}"
                );
            }
            if audited.task.aggregation.is_some() {
                // Rotations follow from the whole configuration, so the run is made again with the same one, by a replay.
                if seed.is_some() {
                    made_again(&summary.run_dir);
                }
            } else if seed.is_some() {
                let mut plain = config(changes);
                plain.audit = plain.audit.map(|mut audit| {
                    audit.replay_every = 0;
                    audit
                });
                let (_runs, plain) = train(&plain, 1);
                for name in ["model.safetensors", "mechanism.json", "lane.f32"] {
                    if plain.run_dir.join(name).exists() {
                        let same = bytes(&plain.run_dir, name) == bytes(&summary.run_dir, name);
                        assert!(same, "{with:?}: {name}");
                    }
                }
                assert_eq!(plain.privacy, summary.privacy, "{with:?}");
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn a_run_that_goes_on_after_its_checkpoint_has_each_replay_once() {
    for changes in [KINDS[0].0, KINDS[6].0] {
        let mut settings = config(&[&[LIVE, "checkpoint.every=3"], changes].concat());
        settings.seed = None;
        // The replay of round 3 is made, and its round is not in the checkpoint.
        let (_folder, summary) = cut_and_resumed(&RunFile::new(settings, "."), 5);
        holds(&summary.run_dir);
        assert_eq!(read_replays(&summary.run_dir).unwrap().rounds, summary.rounds / 2);
    }
}

#[test]
fn a_run_whose_replay_is_missing_does_not_go_on() {
    let file = RunFile::new(config(&[LIVE, "checkpoint.every=4"]), ".");
    let folder = tempfile::tempdir().unwrap();
    train_file(&file, &options(folder.path()), &EndsAfter::rounds(5)).unwrap_err();
    let path = folder.path().join("test/replays.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"round\": 3", "\"round\": 2", 1)).unwrap();
    let resume = RunOptions {
        resume: true,
        ..options(folder.path())
    };
    let error = train_file(&file, &resume, &Silent).unwrap_err().to_string();
    assert!(
        error.contains("replays.json") && error.contains("round 3"),
        "{error}"
    );
}

/// An empty cohort is an exact statistic, so each replayed round has the same list of checks.
#[test]
#[ignore = "slow"]
fn the_replays_of_a_run_do_not_tell_which_cohorts_were_empty() {
    let (_runs, summary) = train(
        &config(&[
            LIVE,
            "rounds=20",
            "cohort={sampling=\"poisson\",sampling_probability=0.01}",
        ]),
        1,
    );
    holds(&summary.run_dir);
    let empty = ledger(&summary.run_dir)
        .iter()
        .filter(|entry| entry.round % 2 == 1 && entry.cohort_size == 0)
        .count();
    assert!(empty > 0 && empty < 10, "{empty}");
    let text = String::from_utf8(bytes(&summary.run_dir, "replays.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let replays = record["replays"].as_array().unwrap();
    assert_eq!(replays.len(), 10);
    for replay in replays {
        assert_eq!(
            replay["passed"],
            serde_json::json!(["R0", "R1", "R2", "R3", "R4"])
        );
    }
}

#[test]
#[ignore = "slow"]
fn changed_replays_are_named_and_published_ones_hold() {
    let mut settings = config(&[LIVE]);
    settings.seed = None;
    let (runs, summary) = train(&settings, 1);
    let folder = &summary.run_dir;
    let replay = read_replays(folder).unwrap();
    let digest = config_digest(&settings).unwrap();
    let audit = of_replay("test", &digest, replay);
    undertone_audit::record(folder, audit).unwrap();
    holds(folder);
    let published = runs.path().join("published");
    let files = publish(folder, &published).unwrap().files;
    assert!(files.iter().any(|name| name == "replays.json"));
    holds(&published);
    assert_eq!(read_replays(&published).unwrap(), read_replays(folder).unwrap());
    let (audit, replays) = ("audit.json", "replays.json");
    let all_passed = "expected the checks R0, R1, R2, R3, R4 to have passed, got R0, R0";
    for (name, from, to, expected) in [
        (audit, "\"pairs\": 5", "\"pairs\": 6", "replay.pairs"),
        (
            audit,
            "\"compared\": 5",
            "\"compared\": 6",
            "replay.checks[0].compared",
        ),
        (
            replays,
            "\"round\": 9",
            "\"round\": 11",
            "expected the replay of round 9",
        ),
        (replays, "\"R1\"", "\"R8\"", "R8"),
        (replays, "\"R1\"", "\"R0\"", all_passed),
        (replays, "\"R0\",", "", "to have passed, got R1"),
        (
            replays,
            "_per_round\": 1",
            "_per_round\": 2",
            "clip_norms_per_round",
        ),
    ] {
        changed(folder, name, from, to, expected);
    }
}

#[test]
fn runs_that_cannot_replay_themselves_refuse_it_by_name() {
    check_refusals(
        &[],
        "
        audit={noise_probe=0}
        audit.noise_probe ... at least 2
        audit={lane=10,noise_probe=0,replay_every=2}
        audit.noise_probe ... no `audit.lane`
        audit={noise_probe=0,replay_every=1} rounds=65537
        audit.replay_every ... at least 2 ... of 65537 rounds
        audit={replay_every=-1}
        test.toml: with `audit = { replay_every = -1 }` ... `-1`
        ",
        |changes| parsed(changes).unwrap_err().to_string(),
    );
    let mut open = config(&[LIVE]);
    open.task.privacy = None;
    let folder = tempfile::tempdir().unwrap();
    let error = train_file(&RunFile::new(open, "."), &options(folder.path()), &Silent).unwrap_err();
    assert!(error.to_string().contains("privacy"), "{error}");
}

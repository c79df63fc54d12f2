//! Planted errors, each caught by the check that is named for it: `cargo test -p undertone-studies --features fault-points --test mutants`.
//!
//! Each error runs in a process of its own, because the variable that plants it is read once. The table says which checks failed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

use undertone_coordinator::random::Randomness;
use undertone_run::config::{Override, RunFile};
use undertone_run::replay::{ReplayOptions, replay};
use undertone_run::{RunOptions, Silent, train};
use undertone_studies::audit::lane::{self, Setting, Size};
use undertone_studies::audit::noise::NoiseTests;

const BASE: &str = r#"
name = "mutant"
seed = 1
rounds = 12
data = { source = { kind = "synthetic", users = 300, words = 40 } }
model = { family = "dplm", embed = 6, hidden = 8 }
cohort = { sampling = "poisson", users_per_round = 30 }
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 2.0 }
clip = { kind = "flat", norm = 0.05 }
privacy = { noise_multiplier = 2.0, delta = 1e-5 }
"#;

/// Local training does not clip, so that the sum alone does.
const UNCLIPPED: &[&str] = &["user_update.clip_every_step=false"];
const PER_LAYER: &[&str] = &["clip={kind='per_layer',norm=0.05}"];
const FIXED: &[&str] = &["cohort={sampling='fixed_size',users_per_round=30}"];
const ELS: &[&str] = &[
    "user_update={algorithm='els',group_size=2,batch_size=1}",
    "cohort={sampling='poisson',examples_per_round=150}",
    "rounds=40",
];
const BANDED: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=60}",
    "participation={min_sep=3}",
    "privacy.mechanism={kind='fhu'}",
];

/// Each error with a run that shows it and the checks that may be named for it.
const MUTANTS: [(&str, &[&str], &str); 11] = [
    ("M01", UNCLIPPED, "R1"),
    ("M02", PER_LAYER, "R1"),
    ("M09", &[], "R2"),
    ("M12", FIXED, "R2"),
    ("M15", &[], "R6"),
    ("M17", &[], "N1"),
    ("M19", &[], "N1"),
    ("M20", BANDED, "N3"),
    ("M25", ELS, "R6"),
    ("M26", BANDED, "R6"),
    ("M27", &[], "R4"),
];

fn file(changes: &[&str]) -> RunFile {
    let changes: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let config = RunFile::parse(BASE, "mutant.toml".as_ref(), &changes).unwrap();
    RunFile::new(config, ".")
}

/// The checks that a run fails: those of its replay, and those of its noise in a rehearsal.
fn failed(changes: &[&str], check: &str) -> Vec<String> {
    let file = file(changes);
    if check.starts_with('N') {
        let size = Size {
            canaries: 100,
            probes: 128,
            noise_factor: 1.0,
        };
        let setting = Setting {
            task: &file.config.task,
            strategy: None,
            users: 300,
        };
        let lane = lane::run(&setting, &size, &Randomness::seeded(7)).unwrap();
        let tests = NoiseTests::of(&lane.probes, size.probes, &lane.cohort_sizes).unwrap();
        let failed = tests.tests.into_iter().filter(|test| test.p_holm < 1e-6);
        return failed.map(|test| test.name).collect();
    }
    let (runs, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = |out: &Path| RunOptions {
        out: out.to_owned(),
        threads: 2,
        resume: false,
    };
    let summary = train(&file, &options(runs.path()), &Silent).unwrap();
    let questions = ReplayOptions {
        scratch: scratch.path().to_owned(),
        base: None,
        threads: 2,
        users: 60,
        rounds: None,
        twin: false,
    };
    let replayed = replay(&summary.run_dir, &questions).unwrap();
    let failed = replayed.checks.into_iter().filter(|check| check.failed > 0);
    failed.map(|check| check.name.to_owned()).collect()
}

/// One error in a process of its own: runs only where the parent asks for it, and prints the failed checks.
#[test]
#[ignore = "started by the test below, once per error"]
fn one() {
    let asked = std::env::var("UNDERTONE_MUTANT").unwrap();
    let (_, changes, check) = MUTANTS.iter().find(|(name, ..)| *name == asked).unwrap();
    println!("failed: {}", failed(changes, check).join(" "));
}

fn checks(mutant: &str, planted: bool) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["one", "--exact", "--ignored", "--nocapture"]);
    child.env("UNDERTONE_MUTANT", mutant);
    match planted {
        true => child.env("UNDERTONE_FAULT", mutant),
        false => child.env_remove("UNDERTONE_FAULT"),
    };
    let output = child.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once("failed: "));
    match line {
        Some((_, failed)) => failed.split_whitespace().map(str::to_owned).collect(),
        None => panic!("{mutant}: {text}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// A clean run of the same settings fails nothing, and the planted error fails the named check.
#[test]
fn each_planted_error_is_caught_by_its_check_and_clean_runs_pass() {
    let mut missed = Vec::new();
    for (mutant, _, check) in MUTANTS {
        let (clean, planted) = (checks(mutant, false), checks(mutant, true));
        println!("{mutant}  named {check}  failed {}", planted.join(" "));
        if !clean.is_empty() || !planted.iter().any(|failed| failed == check) {
            missed.push(format!(
                "{mutant}: clean {clean:?}, planted {planted:?}, expected {check}"
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

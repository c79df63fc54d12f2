//! Planted errors, each caught by the check that is named for it: `cargo test -p undertone-studies --test mutants -- --ignored each_planted`.
//!
//! Each error runs in a process of its own, because the variable that plants it is read once. The table says which checks failed.

// Nothing is planted in a build without debug assertions.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::process::{Command, Output};
use std::time::Instant;

use undertone_coordinator::random::Randomness;
use undertone_run::replay::{Battery, PopulationMode};
use undertone_run::{Silent, train};
use undertone_studies::audit::lane::{self, LaneInputs, Size};
use undertone_studies::audit::noise::NoiseTests;

use support::{BANDED, ELS, FIXED, SECURE, file, options, trained_and_replayed};

/// Each error must be caught within a minute.
const MOST_SECONDS: f64 = 60.0;

/// Local training does not clip, so that the sum alone does.
const UNCLIPPED: &[&str] = &["user_update.clip_every_step=false"];
const PER_LAYER: &[&str] = &["clip={kind='per_layer',norm=0.05}"];

const WEIGHTS: &[&str] = &[
    "user_update.clip_every_step=false",
    "user_update.weight_cap=6.0",
    "estimator={kind='fixed_denominator',expected_weight=25.0}",
];
const NORMALISED: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=60}",
    "participation={min_sep=3}",
    "privacy.mechanism={kind='normalised-square-root'}",
];
const ADAPTIVE: &[&str] = &[
    "cohort={sampling='shuffled_epochs',users_per_round=20}",
    "privacy.mechanism={kind='tree',restarts={first=12,every=12}}",
    "clip={kind='adaptive',initial_norm=0.5,bit_noise_std=3.0}",
    "privacy.noise_multiplier=4.0",
    "user_update.clip_every_step=false",
];
const RATE: &[&str] = &["cohort={sampling='poisson',sampling_probability=0.1}"];
const TINY_NORM: &[&str] = &["clip={kind='flat',norm=1e-4}"];
const SHORT_TEXTS: &[&str] = &[
    "data.source={kind='synthetic',users=300,words=40,median_sentences=3.0}",
    "user_update.clip_every_step=false",
];

/// The question that a run is asked.
#[derive(Clone, Copy, PartialEq)]
enum Ask {
    /// A replay of the users' own texts.
    Natural,
    /// A replay with invented updates in the audited slot.
    Adversarial,
    /// A replay whose neighbours are planned again.
    Recomputed,
    /// A rehearsal of the noise.
    Noise,
}
use Ask::{Adversarial, Natural, Noise, Recomputed};

/// Each error with a run that shows it, the question, and the check that is named for it.
const MUTANTS: [(&str, &[&str], Ask, &str); 32] = [
    ("M01", UNCLIPPED, Natural, "R1"),
    ("M02", PER_LAYER, Natural, "R1"),
    ("M03", WEIGHTS, Natural, "R1"),
    ("M04", &[], Adversarial, "R1"),
    ("M05", &[], Adversarial, "R0"),
    ("M06", TINY_NORM, Adversarial, "R1"),
    ("M07", SECURE, Natural, "R1"),
    ("M08", SECURE, Natural, "R2"),
    ("M09", &[], Natural, "R2"),
    ("M10", RATE, Recomputed, "R2"),
    ("M11", WEIGHTS, Recomputed, "R2"),
    ("M12", FIXED, Natural, "R2"),
    ("M13", &[], Natural, "R3"),
    ("M14", &[], Natural, "R6"),
    ("M15", &[], Natural, "R6"),
    ("M16", ELS, Natural, "R6"),
    ("M17", &[], Noise, "N1"),
    ("M18", NORMALISED, Noise, "N1"),
    ("M19", &[], Noise, "N1"),
    ("M20", BANDED, Noise, "N3"),
    ("M21", &[], Noise, "N5"),
    ("M22", &[], Natural, "R3"),
    ("M23", &[], Noise, "N5"),
    ("M24", ELS, Natural, "R6"),
    ("M25", ELS, Natural, "R6"),
    ("M26", BANDED, Natural, "R6"),
    ("M27", &[], Natural, "R4"),
    ("M28", SHORT_TEXTS, Natural, "R4"),
    ("M29", UNCLIPPED, Natural, "R4"),
    ("M30", ADAPTIVE, Natural, "R3"),
    ("M31", SECURE, Natural, "R0"),
    ("M32", &[], Natural, "R0"),
];

/// The checks that a run fails with the first round that fails each: those of its replay, or those of its noise in a rehearsal.
fn failed(changes: &[&str], ask: Ask) -> Vec<String> {
    let file = file(changes);
    if ask == Noise {
        let size = Size {
            canaries: 100,
            probes: 4096,
            directions: None,
            control: None,
        };
        let inputs = LaneInputs {
            task: &file.config.task,
            strategy: None,
            users: 300,
        };
        let lane = lane::run(&inputs, &size, &Randomness::seeded(7)).unwrap();
        let tests = NoiseTests::of(&lane.probes, size.probes, &lane.cohort_sizes).unwrap();
        let failed = tests.tests.into_iter().filter(|test| test.p_holm < 1e-6);
        return failed.map(|test| test.name).collect();
    }
    let (battery, population) = match ask {
        Adversarial => (Battery::Adversarial, PopulationMode::Public),
        Recomputed => (Battery::Natural, PopulationMode::Recomputed),
        Natural | Noise => (Battery::Natural, PopulationMode::Public),
    };
    // An error that carries something from user to user trains another model with each division of the users among threads, and a
    // replay accepts the same model only.
    let replayed = trained_and_replayed(&file, 1, battery, population);
    let failed = replayed.checks.into_iter().filter(|check| check.failed > 0);
    failed
        .map(|check| format!("{}@{}", check.name, check.first_failure.unwrap_or_default()))
        .collect()
}

/// A test of the module `children` in a process of its own, with or without an error.
fn child(test: &str, mutant: &str, planted: bool) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([
        &format!("children::{test}"),
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    child.env("UNDERTONE_MUTANT", mutant);
    match planted {
        true => child.env("UNDERTONE_FAULT", mutant),
        false => child.env_remove("UNDERTONE_FAULT"),
    };
    child.output().unwrap()
}

fn checks(mutant: &str, planted: bool) -> Vec<String> {
    let output = child("one_planted_error_prints_the_checks_it_fails", mutant, planted);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once("failed: "));
    match line {
        Some((_, failed)) => failed.split_whitespace().map(str::to_owned).collect(),
        None => panic!("{mutant}: {text}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

mod children {
    use super::*;

    /// One error in a process of its own: runs only where the parent asks for it, and prints the failed checks.
    #[test]
    #[ignore = "started by a test of this file, once per error"]
    fn one_planted_error_prints_the_checks_it_fails() {
        let asked = std::env::var("UNDERTONE_MUTANT").unwrap();
        let (_, changes, ask, _) = MUTANTS.iter().find(|(name, ..)| *name == asked).unwrap();
        println!("failed: {}", failed(changes, *ask).join(" "));
    }

    /// A run that replays itself, in a process of its own.
    #[test]
    #[ignore = "started by a test of this file"]
    fn a_run_that_replays_itself_prints_its_end() {
        let file = file(&[UNCLIPPED, &["audit={noise_probe=0,replay_every=4}"]].concat());
        let runs = tempfile::tempdir().unwrap();
        match train(&file, &options(runs.path(), 1, false), &Silent) {
            Ok(_) => println!("ended: well"),
            Err(error) => {
                println!("ended: {error}");
                let again = train(&file, &options(runs.path(), 1, true), &Silent);
                println!("again: {}", again.unwrap_err());
            }
        }
    }
}

#[test]
#[ignore = "slow"]
fn a_run_that_replays_itself_ends_at_a_planted_error_and_does_not_go_on() {
    let said = |planted: bool| {
        let output = child("a_run_that_replays_itself_prints_its_end", "M01", planted);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(said(false).contains("ended: well"));
    let planted = said(true);
    assert!(
        planted.contains("ended: round 3: the replay of this round contradicts"),
        "{planted}"
    );
    assert!(planted.contains("Check R1 failed"), "{planted}");
    assert!(
        planted.contains("again: ") && planted.contains("expected the replay of round 3"),
        "{planted}"
    );
}

/// A clean run of the same settings fails nothing, and the planted error fails the named check.
#[test]
#[ignore = "slow"]
fn each_planted_error_is_caught_by_its_check_and_clean_runs_pass() {
    let mut missed = Vec::new();
    // One run stands for several errors, and passes once.
    let mut passed: Vec<(&[&str], Ask)> = Vec::new();
    println!("error  named  seconds  failed checks, each with its first round");
    for (mutant, changes, ask, check) in MUTANTS {
        let clean = match passed.contains(&(changes, ask)) {
            true => Vec::new(),
            false => checks(mutant, false),
        };
        passed.push((changes, ask));
        let started = Instant::now();
        let planted = checks(mutant, true);
        let seconds = started.elapsed().as_secs_f64();
        println!("{mutant}    {check}     {seconds:7.1}  {}", planted.join(" "));
        let named = planted
            .iter()
            .any(|failed| failed.split('@').next() == Some(check));
        if !clean.is_empty() || !named || seconds > MOST_SECONDS {
            missed.push(format!(
                "{mutant}: clean {clean:?}, planted {planted:?}, expected {check}"
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

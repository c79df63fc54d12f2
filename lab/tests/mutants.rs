//! Planted errors, each caught by the check that is named for it: `lab/mutants/run`.
//!
//! The script applies `lab/mutants/mutants.toml` to a copy of the tree and starts these tests there. Each error runs in a process of its
//! own, because the variable that switches it on is read once. The table says which checks failed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../crates/studies/tests/support/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Instant;

use serde::Deserialize;
use undertone_coordinator::random::Randomness;
use undertone_run::{Silent, train};
use undertone_run_directory::replays::{Battery, PopulationMode};
use undertone_studies::audit::lane::{self, LaneInputs, Size};
use undertone_studies::audit::noise::NoiseTests;

use support::{file, options, trained_and_replayed};

/// Each error must be caught within a minute.
const MOST_SECONDS: f64 = 60.0;

/// An error in the table.
#[derive(Deserialize)]
struct Mutant {
    planted: String,
    check: String,
    ask: Ask,
    settings: Vec<String>,
}

impl Mutant {
    fn settings(&self) -> Vec<&str> {
        self.settings.iter().map(String::as_str).collect()
    }
}

/// All errors by their names.
fn mutants() -> BTreeMap<String, Mutant> {
    let mut table: toml::Table = include_str!("../mutants/mutants.toml").parse().unwrap();
    table
        .remove("hook")
        .expect("the function that switches errors on");
    table
        .into_iter()
        .map(|(name, entry)| (name, entry.try_into().unwrap()))
        .collect()
}

/// The question that a run is asked.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
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
        let mutants = mutants();
        let mutant = &mutants[&asked];
        println!("failed: {}", failed(&mutant.settings(), mutant.ask).join(" "));
    }

    /// A run that replays itself, in a process of its own.
    #[test]
    #[ignore = "started by a test of this file"]
    fn a_run_that_replays_itself_prints_its_end() {
        let settings = [
            "user_update.clip_every_step=false",
            "audit={noise_probe=0,replay_every=4}",
        ];
        let file = file(&settings);
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

/// Only a copy of the tree with the edits of the table has the errors.
mod by_hand {
    use super::*;

    #[test]
    #[ignore = "lab/mutants/run starts it"]
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
    #[ignore = "lab/mutants/run starts it"]
    fn each_planted_error_is_caught_by_its_check_and_clean_runs_pass() {
        let mut missed = Vec::new();
        // One run stands for several errors, and passes once.
        let mut passed: Vec<(Vec<String>, Ask)> = Vec::new();
        println!("| error | planted | named check | seconds | failed checks, each with its first round |");
        println!("|---|---|---|---|---|");
        for (name, mutant) in mutants() {
            let question = (mutant.settings.clone(), mutant.ask);
            let clean = match passed.contains(&question) {
                true => Vec::new(),
                false => checks(&name, false),
            };
            passed.push(question);
            let started = Instant::now();
            let planted = checks(&name, true);
            let seconds = started.elapsed().as_secs_f64();
            let (error, check) = (&mutant.planted, &mutant.check);
            println!(
                "| {name} | {error} | {check} | {seconds:.1} | {} |",
                planted.join(" ")
            );
            let named = planted
                .iter()
                .any(|failed| failed.split('@').next() == Some(check));
            if !clean.is_empty() || !named || seconds > MOST_SECONDS {
                missed.push(format!(
                    "{name}: clean {clean:?}, planted {planted:?}, expected {check}"
                ));
            }
        }
        assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
    }
}

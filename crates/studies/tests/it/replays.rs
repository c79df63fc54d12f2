//! Replays of clean runs of all kinds: no check fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use undertone_run_directory::replays::{Battery, PopulationMode, Replay};

use undertone_run::{Observer, Silent, train};
use undertone_run_directory::metrics::RoundRecord;

use crate::ranks;
use crate::support::{BANDED, ELS, FIXED, SECURE, file, options, replayed, trained_and_replayed};

const ULS: &[&str] = &["user_update={algorithm='uls',group_size=4,batch_size=4}"];
const ELS_IN_BATCHES: &[&str] = &[
    "user_update={algorithm='els',group_size=2,batch_size=16}",
    "cohort={sampling='poisson',examples_per_round=150}",
];
const ADAPTIVE: &[&str] = &[
    "cohort={sampling='shuffled_epochs',users_per_round=20}",
    "privacy.mechanism={kind='tree',restarts={first=6,every=6}}",
    "clip={kind='adaptive',initial_norm=0.5,bit_noise_std=3.0}",
    "privacy.noise_multiplier=4.0",
    "user_update.clip_every_step=false",
];
const PER_LAYER: &[&str] = &["clip={kind='per_layer',norm=0.05}"];
const IDENTITY: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=30}",
    "aggregation={sum='plain',encoding={kind='identity'},min_clients=20}",
];
const LOSSES: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=30}",
    "aggregation={sum='secagg',encoding={kind='rotated_rounding',scale=10000.0},min_clients=24,dropout={before_upload=0.2}}",
];
const SKELLAM: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=30}",
    "aggregation={sum='plain',encoding={kind='skellam',scale=2000.0},min_clients=20}",
    "participation={min_sep=3}",
];
const BLT: &[&str] = &[
    "cohort={sampling='shuffled_epochs',users_per_round=60}",
    "privacy.mechanism={kind='blt'}",
];
const TREE: &[&str] = &[
    "cohort={sampling='shuffled_epochs',users_per_round=60}",
    "privacy.mechanism={kind='tree',restarts={first=5,every=4}}",
];
const TIMERS: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=40}",
    "participation={min_sep=3,max_part=2}",
    "privacy.mechanism={kind='banded-toeplitz'}",
];

/// Simulated devices whose timers keep them away for three days, with at most one round per day.
const DEVICES: &[&str] = &[
    "cohort={sampling='device_timers',users_per_round=30,timers={timer_hours=72.0,min_round_minutes=1440.0,round_timeout_minutes=2880.0}}",
    "participation={min_sep=3}",
    "privacy.mechanism={kind='fhu'}",
];

/// The kinds of run. Restarts belong to trees alone, so there is no BLT with restarts.
const KINDS: [(&str, &[&str]); 15] = [
    ("FedAvg", &[]),
    ("fixed size", FIXED),
    ("ULS", ULS),
    ("ELS", ELS),
    ("ELS in microbatches", ELS_IN_BATCHES),
    ("adaptive", ADAPTIVE),
    ("per layer", PER_LAYER),
    ("identity", IDENTITY),
    ("rotated rounding", SECURE),
    ("abandoned rounds", LOSSES),
    ("BLT", BLT),
    ("tree with restarts", TREE),
    ("banded", BANDED),
    ("min separation", TIMERS),
    ("device timers", DEVICES),
];

fn clean(kind: &str, found: &Replay) {
    let natural = found.battery == Battery::Natural;
    for check in &found.checks {
        assert_eq!(check.failed, 0, "{kind}: {check:?}");
    }
    assert!(found.pairs > 0, "{kind}");
    let asked = |name: &str| {
        found
            .checks
            .iter()
            .any(|check| check.name == name && check.compared > 0)
    };
    for name in ["R0", "R1", "R2", "R6"] {
        assert!(asked(name), "{kind}: {name} was not asked");
    }
    let correlated = matches!(
        kind,
        "BLT" | "tree with restarts" | "banded" | "min separation" | "device timers" | "two ranks"
    );
    assert!(!correlated || !natural || asked("R5"), "{kind}: R5 was not asked");
}

fn all_kinds(seed: u64) {
    for (kind, changes) in KINDS {
        let seed = format!("seed={seed}");
        let changes: Vec<&str> = changes.iter().copied().chain([seed.as_str()]).collect();
        let file = file(&changes);
        clean(
            kind,
            &trained_and_replayed(&file, 2, Battery::Natural, PopulationMode::Recomputed),
        );
        if kind != "abandoned rounds" {
            clean(
                kind,
                &trained_and_replayed(&file, 2, Battery::Adversarial, PopulationMode::Public),
            );
        }
    }
}

/// The test of cohort sizes alarms falsely once in a million replays; all other checks of a replay never do.
#[test]
#[ignore = "slow"]
fn clean_runs_of_all_kinds_fail_no_check() {
    all_kinds(1);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "long: 406 replays"]
    fn many_clean_runs_of_all_kinds_fail_no_check() {
        for seed in 2..16 {
            all_kinds(seed);
            println!("seed {seed}: 29 replays, no failed check");
        }
    }
}

/// The releases of the clients' noise are compared, and their sums are not: R1 and R4 do not apply.
#[test]
#[ignore = "slow"]
fn the_noise_of_clients_is_replayed_by_its_releases() {
    let found = trained_and_replayed(&file(SKELLAM), 2, Battery::Natural, PopulationMode::Public);
    for check in &found.checks {
        let asked = matches!(check.name.as_str(), "R0" | "R2" | "R6");
        assert_eq!((check.failed, check.compared > 0), (0, asked), "{check:?}");
    }
}

/// Stops a run in its seventh round.
struct Stops;

impl Observer for Stops {
    fn on_round(&self, round: &RoundRecord) {
        assert!(round.round != 6, "stopped by the test");
    }
}

#[test]
#[ignore = "slow"]
fn a_resumed_run_replays_as_one() {
    let file = file(&[BANDED, &["checkpoint={every=5}"]].concat());
    let runs = tempfile::tempdir().unwrap();
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        train(&file, &options(runs.path(), 2, false), &Stops)
    }));
    assert!(stopped.is_err());
    let summary = train(&file, &options(runs.path(), 2, true), &Silent).unwrap();
    clean(
        "resumed",
        &replayed(&summary.run_dir, 2, Battery::Natural, PopulationMode::Public),
    );
}

/// Two ranks train the run, and one process replays it.
#[test]
#[ignore = "slow"]
fn a_run_of_two_ranks_replays_as_one() {
    let file = file(BANDED);
    let runs = tempfile::tempdir().unwrap();
    let run_dir = ranks::trained_by_two(&file, &options(runs.path(), 2, false));
    for battery in [Battery::Natural, Battery::Adversarial] {
        clean(
            "two ranks",
            &replayed(&run_dir, 2, battery, PopulationMode::Public),
        );
    }
}

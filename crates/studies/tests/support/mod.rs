//! Small runs and their replays.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use undertone_run_directory::replays::{Battery, PopulationMode, Replay};

use undertone_run::replay::{ReplayOptions, replay};
use undertone_run::{RunFile, RunOptions, Silent, train};
use undertone_run_directory::config::{Override, RunConfig};

const BASE: &str = r#"
name = "audited"
seed = 1
rounds = 12
data = { source = { kind = "synthetic", users = 300, words = 40 } }
model = { family = "dplm", embed = 6, hidden = 8 }
cohort = { sampling = "poisson", users_per_round = 30 }
user_update = { algorithm = "fedavg", batch_size = 4, learning_rate = 2.0 }
clip = { kind = "flat", norm = 0.05 }
privacy = { noise_multiplier = 2.0, delta = 1e-5 }
"#;

pub(crate) const FIXED: &[&str] = &["cohort={sampling='fixed_size',users_per_round=30}"];
pub(crate) const ELS: &[&str] = &[
    "user_update={algorithm='els',group_size=2,batch_size=1}",
    "cohort={sampling='poisson',examples_per_round=150}",
    "rounds=40",
];
pub(crate) const BANDED: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=60}",
    "participation={min_sep=3}",
    "privacy.mechanism={kind='fhu'}",
];
pub(crate) const SECURE: &[&str] = &[
    "cohort={sampling='fixed_size',users_per_round=30}",
    "aggregation={sum='plain',encoding={kind='rotated_rounding',scale=10000.0},min_clients=20}",
];

/// The run file with these changes.
pub(crate) fn file(changes: &[&str]) -> RunFile {
    let changes: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let config = RunConfig::parse(BASE, "audited.toml".as_ref(), &changes).unwrap();
    RunFile::new(config, ".")
}

pub(crate) fn options(out: &Path, threads: usize, resume: bool) -> RunOptions {
    RunOptions {
        out: out.to_owned(),
        threads,
        resume,
    }
}

/// The replay of a run directory.
pub(crate) fn replayed(
    run_dir: &Path,
    threads: usize,
    battery: Battery,
    population: PopulationMode,
) -> Replay {
    let scratch = tempfile::tempdir().unwrap();
    let questions = ReplayOptions {
        scratch: scratch.path().to_owned(),
        base: None,
        threads,
        users: 60,
        rounds: None,
        twin: false,
        battery,
        population,
    };
    replay(run_dir, &questions).unwrap()
}

/// The replay of a run that is trained for it.
pub(crate) fn trained_and_replayed(
    file: &RunFile,
    threads: usize,
    battery: Battery,
    population: PopulationMode,
) -> Replay {
    let runs = tempfile::tempdir().unwrap();
    let summary = train(file, &options(runs.path(), threads, false), &Silent).unwrap();
    replayed(&summary.run_dir, threads, battery, population)
}

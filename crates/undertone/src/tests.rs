//! The names of the facade do what a program needs from the first run to the check of its claims.

use crate::{RunFile, RunOptions, Silent};

const RUN: &str = r#"
name = "small"
rounds = 2
seed = 1

[data]
source = { kind = "synthetic", users = 200, words = 50 }

[model]
family = "dplm"
embed = 8
hidden = 8

[cohort]
sampling = "poisson"
users_per_round = 20

[user_update]
algorithm = "fedavg"
batch_size = 8
learning_rate = 1.0
max_examples = 8

[clip]
kind = "flat"
norm = 1.0

[privacy]
noise_multiplier = 1.0
delta = 1e-5

[server]
optimizer = { kind = "sgd" }
"#;

#[test]
#[ignore = "slow"]
fn a_run_is_trained_verified_evaluated_and_reported_through_the_facade() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.toml");
    std::fs::write(&path, RUN).unwrap();
    let file = RunFile::read(&path, &[]).unwrap();
    let options = RunOptions {
        out: folder.path().join("runs"),
        threads: 2,
        resume: false,
    };
    let summary = crate::train(&file, &options, &Silent).unwrap();
    assert_eq!(summary.rounds, 2);
    assert!(crate::verify(&summary.run_dir).unwrap().holds());
    let metrics = crate::evaluate(&summary.run_dir, 2).unwrap();
    assert!((0.0..=1.0).contains(&metrics.top1));

    std::fs::remove_file(summary.run_dir.join("report.html")).unwrap();
    crate::report(&summary.run_dir).unwrap();
    assert!(summary.run_dir.join("report.html").is_file());

    let error = crate::resume(&file, &options, &Silent).unwrap_err();
    assert!(error.to_string().contains("checkpoint"), "{error}");
}

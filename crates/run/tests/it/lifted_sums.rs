//! Runs of before noise was added modulo `M`: `verify` prices them as they were made, and they do not go on.
//!
//! The folders were written by version 0.1.0 at commit e5e3cc4, from run files over the built-in population, without the report.

use std::path::{Path, PathBuf};

use undertone_coordinator::record::NoiseLabel;
use undertone_run::{RunFile, RunOptions, Silent, train};
use undertone_verify::verify;

use crate::support::{ledger, options, overrides};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/lifted-sums")
        .join(name)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, &target).expect("a copy")),
        }
    }
}

/// The figures of the old way hold, with its condition beside them.
#[test]
fn verify_prices_old_runs_as_they_were_made() {
    for (name, epsilon) in [("rotated", 8.0), ("identity", 0.946_9)] {
        let verification = verify(&fixture(name)).expect("a run directory");
        assert!(verification.holds(), "{name}: {:?}", verification.checks);
        let recomputed = verification.recomputed.expect("a guarantee");
        assert!(
            (recomputed.epsilon - epsilon).abs() < 1e-4,
            "{name}: {}",
            recomputed.epsilon
        );
        let condition = |note: &&str| note.contains("if every participant follows the encoding");
        assert!(verification.notes.iter().any(condition), "{name}");
    }
}

/// A line with the key of the new way would be priced without the old condition: it is refused.
#[test]
fn a_line_that_claims_noise_modulo_m_is_refused_in_an_old_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("rotated");
    copy(&fixture("rotated"), &run);
    let path = run.join("ledger.jsonl");
    let text = std::fs::read_to_string(&path).expect("a ledger");
    let first = text.replacen(
        "\"parameters_sha256\"",
        "\"noise_domain\":\"modular\",\"parameters_sha256\"",
        1,
    );
    for text in [
        first,
        text.replace(
            "\"parameters_sha256\"",
            "\"noise_domain\":\"modular\",\"parameters_sha256\"",
        ),
    ] {
        std::fs::write(&path, text).expect("a ledger");
        assert!(!verify(&run).expect("a run directory").holds());
    }
}

#[test]
fn an_interrupted_old_run_does_not_go_on() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("interrupted");
    copy(&fixture("interrupted"), &run);
    let file = RunFile::read(&run.join("config.toml"), &[]).expect("a run file");
    let resumed = RunOptions {
        resume: true,
        ..options(out.path())
    };
    let error = train(&file, &resumed, &Silent)
        .expect_err("a refusal")
        .to_string();
    assert!(error.contains("an earlier version made this round"), "{error}");
    let entries = ledger(&run);
    assert!(entries.iter().all(|entry| entry.noise_domain.is_none()));
    // The same run file makes a run of today elsewhere.
    let fresh = tempfile::tempdir().expect("a folder");
    let file = RunFile::read(&run.join("config.toml"), &overrides(&["rounds=3"])).expect("a run file");
    let summary = train(&file, &options(fresh.path()), &Silent).expect("a run");
    let entries = ledger(&summary.run_dir);
    assert_eq!(entries.len(), 3);
    let modular = |label| label == Some(NoiseLabel::Modular);
    assert!(entries.iter().all(|entry| modular(entry.noise_domain)));
    let verification = verify(&summary.run_dir).expect("a run directory");
    assert!(verification.holds(), "{:?}", verification.checks);
    assert!(
        !verification
            .notes
            .iter()
            .any(|note| note.contains("follows the encoding"))
    );
}

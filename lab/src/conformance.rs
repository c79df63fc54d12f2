//! Conformance of any reference file: `undertone-lab conformance models FILE.json`, and the same for `accounting` and `mechanisms`.
//!
//! It prints every failure with both numbers, then `N passed, M failed` (and, for models, `, K skipped`); the exit status is 1 when
//! anything failed.

use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use undertone_conformance::{Kind, check};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Losses, predictions, gradients and client updates of the language models
    Models {
        /// Reference file in the format of `vectors/models.json`
        file: PathBuf,
    },
    /// Guarantees, divergences, sensitivities and calibrated parameters of the privacy accounting
    Accounting {
        /// Reference file in the format of `vectors/accounting.json`
        file: PathBuf,
    },
    /// Sensitivities, errors, losses and optima of the noise mechanisms
    Mechanisms {
        /// Reference file in the format of `vectors/mechanisms.json`
        file: PathBuf,
    },
}

/// Reads a reference file and checks every case of it. Returns whether all of them passed.
pub(crate) fn run(command: &Command) -> anyhow::Result<bool> {
    let (kind, path) = match command {
        Command::Models { file } => (Kind::Models, file),
        Command::Accounting { file } => (Kind::Accounting, file),
        Command::Mechanisms { file } => (Kind::Mechanisms, file),
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    let tally = check(kind, &file)?;
    match kind {
        Kind::Models => println!("{tally}"),
        Kind::Accounting | Kind::Mechanisms => println!("{}", tally.verdict()),
    }
    Ok(!tally.failed())
}

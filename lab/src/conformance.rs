//! Conformance: Undertone's numbers against reference files computed by other software.
//!
//! `undertone-lab conformance models FILE.json`, `undertone-lab conformance accounting FILE.json` and `undertone-lab conformance
//! mechanisms FILE.json` print every failure with both numbers, then `N passed, M failed` (and, for models, `, K
//! skipped`); the exit status is 1 when anything failed.

mod accounting;
mod case;
mod mechanisms;
mod models;
mod tally;

use anyhow::Context;
use clap::Subcommand;
use std::path::{Path, PathBuf};
use tally::Tally;

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
    let mut tally = Tally::default();
    match command {
        Command::Models { file } => {
            models::check(&read(file)?, &mut tally)?;
            println!("{tally}");
        }
        Command::Accounting { file } => {
            accounting::check(&read(file)?, &mut tally)?;
            println!("{}", tally.verdict());
        }
        Command::Mechanisms { file } => {
            mechanisms::check(&read(file)?, &mut tally)?;
            println!("{}", tally.verdict());
        }
    }
    Ok(!tally.failed())
}

fn read(file: &Path) -> anyhow::Result<serde_json::Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

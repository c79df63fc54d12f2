//! `undertone audit`.

mod mechanism;
mod plan;
mod replay;
mod text;

use std::fmt;
use std::path::PathBuf;

use clap::Subcommand;
use undertone_run::files::write_json;
use undertone_studies::audit::record::{Audit, Verdict};

use crate::output::{Output, value};

/// Arguments of `undertone audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what an audit of a given size can show, and the number of guesses to fix before it.
    Plan(plan::PlanArgs),
    /// Make the sums of a run with and without single users, and check each stated sensitivity.
    ///
    /// The run is made again from its seed in a temporary folder, and each round must have the parameters that the ledger names.
    /// An audited round costs about twice its training. Runs with `[aggregation]` are not supported.
    Replay(replay::ReplayArgs),
    /// Let canaries take part in a rehearsal of a run's mechanism, and bound epsilon from guesses about them.
    ///
    /// The rehearsal has no users and no model. Cohorts, clipping, sums, noise and ledger lines are made by the code of a run.
    Canaries(mechanism::CanariesArgs),
    /// Test the noise of a run's mechanism in a rehearsal, on coordinates that nobody contributes to.
    Noise(mechanism::NoiseArgs),
}

/// Runs an audit and shows it.
pub(crate) fn run(args: &AuditArgs, output: &Output) -> anyhow::Result<()> {
    match &args.command {
        Command::Plan(args) => plan::run(args, output),
        Command::Replay(args) => replay::run(args, output),
        Command::Canaries(args) => mechanism::canaries(args, output),
        Command::Noise(args) => mechanism::noise(args, output),
    }
}

/// The error of an audit that contradicts the claim; the exit status is 3.
#[derive(Debug)]
pub(crate) struct Contradicted(&'static str);

impl fmt::Display for Contradicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Contradicted {}

/// The option of all audits that write a file.
#[derive(Debug, clap::Args)]
struct FileArgs {
    /// Write the audit as JSON to this file, for example `audit.json`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl FileArgs {
    /// Writes and shows an audit. A claim that is contradicted is an error.
    fn finish(&self, audit: &Audit, output: &Output) -> anyhow::Result<()> {
        if let Some(file) = &self.out {
            write_json(file, audit)?;
        }
        output.show(audit, || {
            let written = self.out.as_ref().map(|file| {
                let file = file.display().to_string();
                format!("\n\nThe audit is in {}.", value(&file))
            });
            text::of(audit) + &written.unwrap_or_default()
        })?;
        let nothing = Verdict::Nothing.sentence();
        match audit.verdict == nothing {
            true => Ok(()),
            false => Err(Contradicted(audit.verdict).into()),
        }
    }
}

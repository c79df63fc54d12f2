//! `undertone audit`.

mod attack;
mod mechanism;
mod plan;
mod replay;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Subcommand;
use undertone_run_directory::files::write_json;
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
    /// An audited round costs about twice its training.
    Replay(replay::ReplayArgs),
    /// Attack the final model of a run: tell users of its training partition from others, or find the secrets of invented users.
    ///
    /// Figures about users are exact statistics of them. They are for those who run the training, and no part of a release. No verdict follows
    /// from them. A secret that is exposed more than the claim allows contradicts the claim.
    Attack(attack::AttackArgs),
    /// Bound epsilon from guesses about canaries, in a rehearsal of a run's mechanism or in the run itself.
    ///
    /// The rehearsal has no users and no model. Cohorts, clipping, sums, noise and ledger lines are made by the code of a run. The canaries
    /// of a run itself have coordinates beside the model, which a run file with `[audit] lane` asks for.
    Canaries(mechanism::CanariesArgs),
    /// Test the noise of a run, or of a rehearsal of its mechanism, on coordinates that nobody contributes to.
    Noise(mechanism::NoiseArgs),
}

/// Runs an audit and shows it.
pub(crate) fn run(args: &AuditArgs, output: &Output) -> anyhow::Result<()> {
    match &args.command {
        Command::Plan(args) => plan::run(args, output),
        Command::Replay(args) => replay::run(args, output),
        Command::Attack(args) => attack::run(args, output),
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
    /// Record the audit in `audit.json` of the run directory. Verification and report read it.
    ///
    /// It replaces an earlier audit of the same kind and level, whose alarm stays in the file and in the verdict. Audits of other kinds and
    /// levels stay beside it.
    #[arg(long)]
    record: bool,
}

impl FileArgs {
    /// Refuses, before an audit is made, to record one that cannot be recorded: it is of a run file, or has a planted error.
    fn check(&self, run: &Path, planted: bool) -> anyhow::Result<()> {
        if self.record && !run.is_dir() {
            bail!("--record: expected a run directory, got {}", run.display());
        }
        if self.record && planted {
            bail!("--record: expected an audit of the run as it is, got a positive control");
        }
        Ok(())
    }

    /// Writes and shows an audit of a run directory or run file. A claim that is contradicted is an error.
    fn finish(&self, run: &Path, audit: Audit, output: &Output) -> anyhow::Result<()> {
        let audit = match self.record {
            true => undertone_audit::record(run, audit)?,
            false => audit,
        };
        if let Some(file) = &self.out {
            write_json(file, &audit)?;
        }
        output.show(&audit, || {
            let written = self.out.as_ref().map(|file| {
                let file = file.display().to_string();
                format!("\n\nThe audit is in {}.", value(&file))
            });
            text::of(&audit) + &written.unwrap_or_default()
        })?;
        judged(&audit)
    }
}

/// The error of an audit that raises an alarm.
fn judged(audit: &Audit) -> anyhow::Result<()> {
    match audit.judged() {
        Verdict::Nothing => Ok(()),
        other => Err(Contradicted(other.sentence()).into()),
    }
}

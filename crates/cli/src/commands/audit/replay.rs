//! `undertone audit replay`.

use std::path::PathBuf;

use anyhow::Context;
use undertone_run::config::RunFile;
use undertone_run::config_digest;
use undertone_run::replay::{ReplayOptions, replay};
use undertone_studies::audit::record;

use super::FileArgs;
use crate::commands::train::threads;
use crate::output::Output;

/// Arguments of `undertone audit replay`.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArgs {
    /// Read the run from this directory.
    run: PathBuf,
    /// Set the number of audited users: those with the most text, those with the least, and users spread over all indices.
    #[arg(long, value_name = "N", default_value_t = 20)]
    users: usize,
    /// Replay only this many rounds from the first on.
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Replay a twin of the run under a fresh seed. A run without a seed needs it: its keys are gone.
    #[arg(long)]
    twin: bool,
    /// Resolve relative paths of the run's data settings in this folder.
    ///
    /// By default this is the folder in which the run resolved them. A copied run directory needs the option.
    #[arg(long, value_name = "FOLDER")]
    base: Option<PathBuf>,
    /// Set the number of threads (default: one per core).
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    #[command(flatten)]
    file: FileArgs,
}

pub(super) fn run(args: &ReplayArgs, output: &Output) -> anyhow::Result<()> {
    let file = RunFile::read(&args.run.join("config.toml"), &[])
        .with_context(|| format!("{} is not a run directory", args.run.display()))?;
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let options = ReplayOptions {
        scratch: scratch.path().to_owned(),
        base: args.base.clone(),
        threads: threads(args.threads),
        users: args.users,
        rounds: args.rounds,
        twin: args.twin,
    };
    let bar = output.spinner("replaying");
    let replayed = replay(&args.run, &options);
    bar.finish_and_clear();
    let audit = record::of_replay(&file.config.task.name, &config_digest(&file.config)?, replayed?);
    args.file.finish(&audit, output)
}

//! `undertone audit replay`.

use std::path::PathBuf;
use undertone_run_directory::replays::{Battery, PopulationMode, Replay};

use anyhow::Context;
use clap::ValueEnum;
use undertone_run::RunFile;
use undertone_run::replay::{ReplayOptions, replay};
use undertone_run_directory::plan_inputs::config_digest;
use undertone_studies::audit::record;
use undertone_verify::read_replays;

use super::FileArgs;
use crate::commands::train::threads;
use crate::output::Output;

/// The contributions in the audited slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BatteryArg {
    /// Let the users' own texts stand in the slot.
    Natural,
    /// Let invented texts and updates stand in the slot: not finite, too long, at the worst rounding.
    Adversarial,
}

/// The numbers that the neighbour is planned with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PopulationArg {
    /// Keep the number of users and the denominator as planned.
    Public,
    /// Plan the neighbour again: nothing may follow from what people wrote.
    Recomputed,
}

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
    /// Show the replays that the run made while it ran, by `replay_every` in its [audit]. Nothing is replayed, and no text is read.
    #[arg(long, conflicts_with_all = ["users", "rounds", "twin", "battery", "population", "base", "threads"])]
    live: bool,
    /// Set the contributions in the audited slot: the users' own, or invented ones that attack the bound.
    #[arg(long, value_enum, default_value = "natural")]
    battery: BatteryArg,
    /// Set the numbers that the neighbour is planned with: those of the run, or its own.
    #[arg(long, value_enum, default_value = "public")]
    population: PopulationArg,
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
    args.file.check(&args.run, false)?;
    let replayed = match args.live {
        true => read_replays(&args.run)?,
        false => replayed(args, output)?,
    };
    let audit = record::of_replay(&file.config.task.name, &config_digest(&file.config)?, replayed);
    args.file.finish(&args.run, audit, output)
}

fn replayed(args: &ReplayArgs, output: &Output) -> anyhow::Result<Replay> {
    let scratch = tempfile::tempdir().context("cannot create a temporary folder")?;
    let options = ReplayOptions {
        scratch: scratch.path().to_owned(),
        base: args.base.clone(),
        threads: threads(args.threads),
        users: args.users,
        rounds: args.rounds,
        twin: args.twin,
        battery: match args.battery {
            BatteryArg::Natural => Battery::Natural,
            BatteryArg::Adversarial => Battery::Adversarial,
        },
        population: match args.population {
            PopulationArg::Public => PopulationMode::Public,
            PopulationArg::Recomputed => PopulationMode::Recomputed,
        },
    };
    let bar = output.spinner("replaying");
    let replayed = replay(&args.run, &options);
    bar.finish_and_clear();
    Ok(replayed?)
}

//! `undertone train --mpi`: one run in several processes.

use anyhow::Context;
use undertone_run::RunOptions;
use undertone_run::ranks::{MpiRanks, Ranks};

use super::{RunArgs, TrainArgs, show, start_threads};
use crate::output::Output;

/// Rank 0 reads the run file, shows and writes; the others train for it. An error of one ends all.
pub(super) fn run(args: RunArgs, output: &Output) -> anyhow::Result<()> {
    let ranks = MpiRanks::start()?;
    let result = match ranks.rank() {
        0 => lead(args, &ranks, output),
        _ => train_as_follower(args.common, &ranks),
    };
    if let Err(error) = result.with_context(|| format!("rank {} of {} processes", ranks.rank(), ranks.size()))
    {
        output.error(&error);
        ranks.abort();
    }
    Ok(())
}

fn lead(args: RunArgs, ranks: &MpiRanks, output: &Output) -> anyhow::Result<()> {
    let file = super::read(&args, output)?;
    let name = file.config.task.name.clone();
    show(args.common, (&name, "round"), output, |options, observer| {
        undertone_run::train_as_leader(&file, options, ranks, observer)
    })
}

fn train_as_follower(args: TrainArgs, ranks: &MpiRanks) -> anyhow::Result<()> {
    let options = RunOptions {
        out: args.out,
        threads: start_threads(args.threads)?,
        resume: false,
    };
    Ok(undertone_run::train_as_follower(&options, ranks)?)
}

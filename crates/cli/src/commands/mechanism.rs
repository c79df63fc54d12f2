//! `undertone mechanism {optimize,compare,show}`.

mod bars;
mod compare;
mod description;
mod head;
mod kind;
mod optimize;
mod privacy;
mod run;
mod setting;
mod show;
mod sweep;
pub(super) mod table;
mod timing;
mod workload;

use crate::output::Output;

/// Arguments of `undertone mechanism`.
#[derive(Debug, clap::Args)]
pub(crate) struct MechanismArgs {
    #[command(subcommand)]
    command: MechanismCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MechanismCommand {
    /// Find the matrix of a kind with the smallest loss for a run, and compute its guarantee.
    ///
    /// A loss is the noise in the iterates at equal privacy: its standard deviation in clip norms, for a noise multiplier equal
    /// to the sensitivity.
    Optimize(Box<optimize::OptimizeArgs>),
    /// Compare the losses, privacy, memory and time of all mechanisms for one run.
    ///
    /// A loss is the noise in the iterates at equal privacy: its standard deviation in clip norms, for a noise multiplier equal
    /// to the sensitivity.
    Compare(Box<compare::CompareArgs>),
    /// Show the coefficients, sensitivities and robustness of mechanisms, from files or by name.
    Show(Box<show::ShowArgs>),
}

/// Finds, compares or shows noise mechanisms.
pub(crate) fn run(args: MechanismArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        MechanismCommand::Optimize(args) => optimize::run(&args, output),
        MechanismCommand::Compare(args) => compare::run(&args, output),
        MechanismCommand::Show(args) => show::run(&args, output),
    }
}

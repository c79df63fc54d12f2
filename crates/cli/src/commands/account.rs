//! `undertone account {gaussian,poisson,ftrl,els,uls,convert,compose}`.

mod answer;
mod compose;
mod convert;
mod els;
mod ftrl;
mod gaussian;
mod options;
mod poisson;
mod question;
mod search;

use crate::output::Output;

/// Arguments of `undertone account`.
#[derive(Debug, clap::Args)]
pub(crate) struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AccountCommand {
    /// Account for Gaussian releases that every user takes part in.
    Gaussian(gaussian::GaussianArgs),
    /// Account for rounds that every user joins at random: DP-FedAvg, DP-FedSGD, DP-SGD.
    Poisson(poisson::PoissonArgs),
    /// Account for correlated noise without sampling: DP-FTRL with a tree, a BLT or other Toeplitz coefficients.
    Ftrl(Box<ftrl::FtrlArgs>),
    /// Account for DP-SGD that samples examples, with a guarantee for whole users who have several.
    Els(els::ElsArgs),
    /// Account for DP-SGD that samples users, each with any number of examples.
    Uls(poisson::PoissonArgs),
    /// Convert rho (zCDP) to epsilon at a delta, or epsilon and delta to rho.
    Convert(convert::ConvertArgs),
    /// Account for a list of different events, read from a file.
    Compose(compose::ComposeArgs),
}

/// Answers one question about privacy.
pub(crate) fn run(args: AccountArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        AccountCommand::Gaussian(args) => gaussian::run(&args, output),
        AccountCommand::Poisson(args) => poisson::run(&args, output),
        AccountCommand::Ftrl(args) => ftrl::run(&args, output),
        AccountCommand::Els(args) => els::run(&args, output),
        AccountCommand::Uls(args) => poisson::run_user_level(&args, output),
        AccountCommand::Convert(args) => convert::run(&args, output),
        AccountCommand::Compose(args) => compose::run(&args, output),
    }
}

//! `undertone account {gaussian,sampled,ftrl,convert,compose}`.

mod answer;
mod compose;
mod convert;
mod ftrl;
mod gaussian;
mod options;
mod question;
mod sampled;
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
    /// Account for rounds that every user, or every example, joins at random: DP-FedAvg, DP-FedSGD, DP-SGD.
    Sampled(sampled::SampledArgs),
    /// Account for correlated noise without sampling: DP-FTRL with a tree, a BLT or other Toeplitz coefficients.
    Ftrl(Box<ftrl::FtrlArgs>),
    /// Convert rho (zCDP) to epsilon at a delta, or epsilon and delta to rho.
    Convert(convert::ConvertArgs),
    /// Account for a list of different events, read from a file.
    Compose(compose::ComposeArgs),
    /// Account for sampled users: an older name of `sampled`.
    #[command(hide = true)]
    Poisson(sampled::RoundsArgs),
    /// Account for sampled users, each with any number of examples: an older name of `sampled`.
    #[command(hide = true)]
    Uls(sampled::RoundsArgs),
    /// Account for sampled examples: an older name of `sampled --group-size`.
    #[command(hide = true)]
    Els(sampled::ElsArgs),
}

/// Answers one question about privacy.
pub(crate) fn run(args: AccountArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        AccountCommand::Gaussian(args) => gaussian::run(&args, output),
        AccountCommand::Sampled(args) => sampled::run(&args, output),
        AccountCommand::Ftrl(args) => ftrl::run(&args, output),
        AccountCommand::Convert(args) => convert::run(&args, output),
        AccountCommand::Compose(args) => compose::run(&args, output),
        AccountCommand::Poisson(args) => sampled::of_users(sampled::POISSON, &args, output),
        AccountCommand::Uls(args) => sampled::of_users(sampled::USER_LEVEL, &args, output),
        AccountCommand::Els(args) => sampled::run_els(&args, output),
    }
}

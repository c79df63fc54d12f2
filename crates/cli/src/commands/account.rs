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
    /// Gaussian releases about every user, one or many.
    Gaussian(gaussian::GaussianArgs),
    /// Rounds that every user joins by chance: DP-FedAvg, DP-FedSGD, DP-SGD.
    Poisson(poisson::PoissonArgs),
    /// Correlated noise without any sampling: DP-FTRL with a tree, a BLT or other Toeplitz coefficients.
    Ftrl(Box<ftrl::FtrlArgs>),
    /// Example-level sampling: what DP-SGD over examples promises to users who have several.
    Els(els::ElsArgs),
    /// User-level sampling: every user joins a step by chance, with any number of examples.
    Uls(poisson::PoissonArgs),
    /// From rho to epsilon and delta, or from epsilon and delta to rho.
    Convert(convert::ConvertArgs),
    /// A file of events, one after another.
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

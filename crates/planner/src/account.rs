//! `undertone account {gaussian,sampled,ftrl,convert,compose}`.

mod answer;
mod compose;
mod convert;
mod fact;
mod ftrl;
mod gaussian;
mod options;
mod question;
mod sampled;
mod sampling;
mod search;
mod statement;
#[cfg(test)]
mod tests;
mod unit;
mod words;

use crate::shown::Shown;

/// Arguments of `undertone account`.
#[derive(Debug, clap::Args)]
pub struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AccountCommand {
    /// Account for Gaussian releases that every user takes part in.
    Gaussian(gaussian::GaussianArgs),
    /// Account for Gaussian rounds that every user, or every example, joins at random: DP-FedAvg, DP-FedSGD, DP-SGD.
    Sampled(sampled::SampledArgs),
    /// Account for correlated noise without sampling: DP-FTRL with a tree, a BLT or other Toeplitz coefficients.
    Ftrl(Box<ftrl::FtrlArgs>),
    /// Convert rho (zCDP) to epsilon at a delta, or epsilon and delta to rho.
    Convert(convert::ConvertArgs),
    /// Account for a list of different events, read from a file.
    Compose(compose::ComposeArgs),
}

impl AccountArgs {
    /// The answer to the question about privacy that the arguments ask.
    ///
    /// # Errors
    /// An error names the option or the file, the expected value and the value found.
    pub fn answer(&self) -> anyhow::Result<Shown> {
        match &self.command {
            AccountCommand::Gaussian(args) => gaussian::run(args),
            AccountCommand::Sampled(args) => sampled::run(args),
            AccountCommand::Ftrl(args) => ftrl::run(args),
            AccountCommand::Convert(args) => convert::run(args),
            AccountCommand::Compose(args) => compose::run(args),
        }
    }
}

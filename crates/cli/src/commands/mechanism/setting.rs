//! The options of a run for `optimize` and `show`.

use super::kind::SizeArgs;
use super::privacy::PrivacyArgs;
use super::run::RunArgs;
use super::workload::WorkloadArgs;
use crate::commands::NO_GROUP;

/// The run that a mechanism is made for or looked at in.
#[derive(Debug, clap::Args)]
pub(super) struct SettingArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    #[command(flatten)]
    pub(super) sizes: SizeArgs,
    #[command(flatten)]
    pub(super) privacy: PrivacyArgs,
    /// Set the number of model parameters, for the memory.
    #[arg(long, default_value_t = 1_000_000, help_heading = NO_GROUP)]
    pub(super) dim: u64,
}

impl SettingArgs {
    /// Refuses a model without parameters.
    pub(super) fn check_dim(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.dim > 0, "--dim: expected at least 1, got 0");
        Ok(())
    }
}

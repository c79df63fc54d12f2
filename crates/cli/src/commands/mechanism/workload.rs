//! The workload that the noise has to suit: the server optimizer and the loss.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use undertone_mechanisms::optimize::Problem;
use undertone_mechanisms::{Objective, Workload};

use super::run::Run;

/// Options of the workload and the objective.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Workload")]
pub(super) struct WorkloadArgs {
    /// Set the momentum of the server optimizer, in [0, 1).
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    momentum: f64,
    /// Read the learning rate of each round from this file (default: all are equal).
    ///
    /// Spaces, commas or line ends separate the numbers.
    #[arg(long, value_name = "FILE")]
    learning_rates: Option<PathBuf>,
    /// Minimise the loss of the worst iterate, or the root mean square over the iterates.
    #[arg(long, value_enum, default_value = "rms")]
    objective: ObjectiveName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ObjectiveName {
    /// Minimise MaxLoss, the loss of the worst iterate.
    Max,
    /// Minimise RmsLoss, the root mean square over the iterates.
    Rms,
}

impl WorkloadArgs {
    /// The loss that counts.
    pub(super) fn objective(&self) -> Objective {
        match self.objective {
            ObjectiveName::Max => Objective::MaxLoss,
            ObjectiveName::Rms => Objective::RmsLoss,
        }
    }

    /// The workload of this number of rounds.
    pub(super) fn workload(&self, rounds: usize) -> anyhow::Result<Workload> {
        let workload = Workload::momentum(self.momentum).context("--momentum")?;
        let Some(file) = &self.learning_rates else {
            return Ok(workload);
        };
        let place = || format!("--learning-rates {}", file.display());
        let text =
            std::fs::read_to_string(file).with_context(|| format!("{}: cannot read the file", place()))?;
        let words = text.split(|c: char| c.is_whitespace() || "[],;".contains(c));
        let rates = words.filter(|word| !word.is_empty()).map(|word| {
            word.parse::<f64>()
                .with_context(|| format!("{}: expected numbers, got '{word}'", place()))
        });
        let rates = rates.collect::<anyhow::Result<Vec<f64>>>()?;
        ensure!(
            rates.len() >= rounds,
            "{}: expected a number for each of the {rounds} rounds, got {} numbers",
            place(),
            rates.len()
        );
        workload.with_learning_rates(rates).with_context(place)
    }

    /// The problem of a run.
    pub(super) fn problem(&self, run: &Run) -> anyhow::Result<Problem> {
        Ok(Problem::new(run.rounds, run.participation)
            .with_objective(self.objective())
            .with_workload(self.workload(run.rounds)?))
    }

    /// The workload in words.
    pub(super) fn shown(&self) -> String {
        let mut shown = if self.momentum == 0.0 {
            "prefix sums".to_owned()
        } else {
            format!("momentum {}", self.momentum)
        };
        if let Some(file) = &self.learning_rates {
            shown += &format!(", learning rates of {}", file.display());
        }
        shown
    }
}

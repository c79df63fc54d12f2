//! The run that a strategy is optimised for.

use undertone_accounting::participation::Participation;

use crate::error::Result;
use crate::loss::{Losses, Objective};
use crate::strategy::Strategy;
use crate::workload::Workload;

/// A run to find a strategy for: what the optimisers of matrices take.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Rounds of the run.
    pub rounds: usize,
    /// The participation schema: how often, and how far apart, one user takes part.
    pub participation: Participation,
    /// The linear map that the server applies to the sums.
    pub workload: Workload,
    /// The loss to minimise.
    pub objective: Objective,
}

impl Problem {
    /// RmsLoss on prefix sums.
    #[must_use]
    pub fn new(rounds: usize, participation: Participation) -> Self {
        Self {
            rounds,
            participation,
            workload: Workload::prefix_sum(),
            objective: Objective::RmsLoss,
        }
    }

    /// Replaces the objective.
    #[must_use]
    pub fn with_objective(self, objective: Objective) -> Self {
        Self { objective, ..self }
    }

    /// Replaces the workload.
    #[must_use]
    pub fn with_workload(self, workload: Workload) -> Self {
        Self { workload, ..self }
    }

    /// Losses of a strategy in this run, at its certified sensitivity.
    ///
    /// # Errors
    /// As the strategy's errors and sensitivity.
    pub fn losses(&self, strategy: &Strategy) -> Result<Losses> {
        let certified = strategy.squared_sensitivity(self.rounds, &self.participation)?;
        let errors = strategy.errors(self.rounds, &self.workload)?;
        Ok(errors.losses(certified.squared))
    }
}

//! The matrix that a run file asks for.

use undertone_accounting::participation::Participation;
use undertone_mechanisms::optimize::{Kind, Problem, Sizes};
use undertone_mechanisms::{Objective, Strategy, Tree, Workload};

use super::PrivacyPlan;
use crate::error::{CoordinatorError, Result};
use crate::task::{MechanismConfig, OptimizerConfig, RestartsConfig, TaskConfig, WorkloadName};

/// The strategy that a task asks for: `read` where it names a file, and otherwise one that is optimised for the task.
pub(super) fn strategy(
    config: &TaskConfig,
    mechanism: &MechanismConfig,
    participation: Participation,
    read: Option<&Strategy>,
) -> Result<Strategy> {
    if let Some(file) = &mechanism.file {
        return read.cloned().ok_or_else(|| {
            let expected = format!("the strategy of the file {}", file.display());
            CoordinatorError::missing("privacy.mechanism.file", expected)
        });
    }
    if let (Some(Kind::Tree), Some(RestartsConfig { first, every })) = (mechanism.kind, mechanism.restarts) {
        return Ok(Strategy::Tree(Tree::with_restarts(first, every)?));
    }
    let kind = mechanism.kind.unwrap_or(Kind::Independent);
    let problem = Problem::new(config.rounds as usize, participation)
        .with_objective(mechanism.objective.unwrap_or(Objective::RmsLoss))
        .with_workload(workload(config, mechanism.workload)?);
    let sizes = Sizes {
        buffers: mechanism.buffers,
        bands: mechanism.bands,
    };
    Ok(kind.make(&problem, sizes)?.strategy)
}

impl PrivacyPlan {
    /// The matrix that a run file asks for, where it says all of it: neither read from a file nor searched for.
    pub fn unsearched_strategy(&self, config: &TaskConfig) -> Option<Result<Strategy>> {
        let mechanism = config.privacy.as_ref()?.mechanism.as_ref()?;
        let searched = mechanism.kind.is_some_and(Kind::is_optimised);
        if mechanism.file.is_some() || searched {
            return None;
        }
        let participation = self.participation()?;
        Some(strategy(config, mechanism, participation, None))
    }
}

/// The workload that the noise ends up in.
fn workload(config: &TaskConfig, name: WorkloadName) -> Result<Workload> {
    if name == WorkloadName::PrefixSum {
        return Ok(Workload::prefix_sum());
    }
    let OptimizerConfig::Sgd { momentum } = config.server.optimizer else {
        return Err(CoordinatorError::value(
            "privacy.mechanism.workload",
            "`prefix_sum` with an adaptive optimizer, whose iterates are no linear function of the updates",
            "server",
        ));
    };
    let workload = Workload::momentum(momentum)?;
    if config.server.decay.is_none() {
        return Ok(workload);
    }
    let server = config.server;
    let rates =
        (0..config.rounds).map(|round| server.learning_rate_at(round, config.rounds) / server.learning_rate);
    Ok(workload.with_learning_rates(rates.collect())?)
}

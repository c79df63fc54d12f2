//! The matrix that a run file asks for.

use std::path::Path;

use undertone_accounting::participation::Participation;
use undertone_mechanisms::optimize::{Kind, Problem, Sizes};
use undertone_mechanisms::{Mechanism, Objective, Strategy, Tree, Workload};

use super::PrivacyPlan;
use crate::config::{MechanismConfig, OptimizerConfig, RestartsConfig, RunConfig, WorkloadName};
use crate::error::{Result, TrainingError};
use crate::files;

/// The strategy that a run file asks for, optimised for this run; relative files start at `base`.
pub(super) fn strategy(
    config: &RunConfig,
    mechanism: &MechanismConfig,
    participation: Participation,
    base: &Path,
) -> Result<Strategy> {
    if let Some(file) = &mechanism.file {
        return read_strategy(&base.join(file));
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
    pub(crate) fn unsearched_strategy(&self, config: &RunConfig) -> Option<Result<Strategy>> {
        let mechanism = config.privacy.as_ref()?.mechanism.as_ref()?;
        let searched = !matches!(
            mechanism.kind,
            None | Some(
                Kind::Independent
                    | Kind::Tree
                    | Kind::TreeFull
                    | Kind::Fhu
                    | Kind::Bisr
                    | Kind::SquareRoot
                    | Kind::NormalisedSquareRoot
            )
        );
        if mechanism.file.is_some() || searched {
            return None;
        }
        let participation = self.participation()?;
        Some(strategy(config, mechanism, participation, Path::new("")))
    }
}

/// Reads a strategy, or the strategy of a mechanism, as `undertone mechanism optimize --out` writes them.
fn read_strategy(file: &Path) -> Result<Strategy> {
    let bytes = files::read_given(file, files::MAX_GIVEN)?;
    let damaged = |message: String| TrainingError::Damaged {
        path: file.to_owned(),
        message,
    };
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if value.get("strategy").is_some() {
        let mechanism: Mechanism =
            serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
        return Ok(mechanism.strategy().clone());
    }
    serde_json::from_value(value).map_err(|error| {
        damaged(format!(
            "expected a mechanism or a strategy as `undertone mechanism optimize --out` writes them: {error}"
        ))
    })
}

/// What the noise ends up in.
fn workload(config: &RunConfig, name: WorkloadName) -> Result<Workload> {
    if name == WorkloadName::PrefixSum {
        return Ok(Workload::prefix_sum());
    }
    let OptimizerConfig::Sgd { momentum } = config.server.optimizer else {
        return Err(TrainingError::value(
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

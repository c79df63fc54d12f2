//! The guarantee of a task: planned, observed and worst case, and the participations behind it.

use serde::Serialize;
use undertone_coordinator::record::GuaranteeRecord;
use undertone_service::Result;

use super::Dashboard;
use super::overview::cell;

/// The answer about the privacy of a task.
#[derive(Serialize)]
pub(super) struct PrivacyView {
    /// Number of released rounds that the figures speak of.
    round: u64,
    rounds: u64,
    private: bool,
    planned: Option<Stated>,
    observed: Option<Stated>,
    worst_case: Option<Stated>,
    with_vocabulary: Option<Stated>,
    with_initial_model: Option<Stated>,
    /// The max epsilon of the task file.
    max_epsilon: Option<f64>,
    /// The budget of the population for all of its tasks.
    population: Option<PopulationBudgetView>,
    /// Number of released rounds, and the epsilon after them.
    history: Vec<(u64, f64)>,
    min_sep: u64,
    max_part: u64,
    /// Number of subjects that took part; `null` below ten.
    subjects: Option<u64>,
    /// Subjects by their number of participations.
    participations: Vec<(u64, Option<u64>)>,
    /// Subjects with two participations at a distance of so many rounds, as ranges with both ends.
    separations: Vec<(u64, u64, Option<u64>)>,
    /// The digest of the last line of the ledger.
    chain: String,
    /// The sentence of the identity level.
    identity: &'static str,
    statements: Vec<String>,
    warnings: Vec<String>,
}

/// A guarantee.
#[derive(Serialize)]
struct Stated {
    epsilon: f64,
    delta: f64,
    rho: Option<f64>,
    adjacency: String,
    /// The number of rounds that it covers.
    rounds: u64,
}

impl From<&GuaranteeRecord> for Stated {
    fn from(record: &GuaranteeRecord) -> Self {
        Self {
            epsilon: record.epsilon,
            delta: record.delta,
            rho: record.schema.as_ref().map(|schema| schema.rho),
            adjacency: record.adjacency.clone(),
            rounds: record.rounds,
        }
    }
}

#[derive(Serialize)]
struct PopulationBudgetView {
    name: String,
    max_epsilon: f64,
    delta: f64,
}

impl PrivacyView {
    /// The privacy of the task of this identifier or name.
    ///
    /// # Errors
    /// A task that does not exist; from the store and the accountant.
    pub(super) fn of(dashboard: &Dashboard, task: &str) -> Result<Self> {
        let row = dashboard.find(task)?;
        let known = dashboard.guarantees.current(&dashboard.service, &row)?;
        let task = dashboard.guarantees.task(&dashboard.service, &row)?;
        let observed = dashboard.service.shared().store.observed(row.task.id)?;
        let budgets = dashboard.admin().budgets()?;
        let budget = budgets
            .into_iter()
            .find(|budget| budget.population == row.task.population);
        let report = &known.report;
        let privacy = task.file.task.privacy.as_ref();
        Ok(Self {
            round: known.round,
            rounds: row.task.rounds,
            private: report.private,
            planned: report.planned.as_ref().map(Stated::from),
            observed: report.observed.as_ref().map(Stated::from),
            worst_case: report.worst_case.as_ref().map(Stated::from),
            with_vocabulary: report.with_vocabulary.as_ref().map(Stated::from),
            with_initial_model: report.with_initial_model.as_ref().map(Stated::from),
            max_epsilon: privacy.and_then(|privacy| privacy.max_epsilon),
            population: budget.map(|budget| PopulationBudgetView {
                name: budget.population,
                max_epsilon: budget.max_epsilon,
                delta: budget.delta,
            }),
            history: known.history.clone(),
            min_sep: row.task.participation.gap().get(),
            max_part: row.task.participation.max_participation(),
            subjects: cell(observed.users),
            participations: observed
                .participations
                .iter()
                .map(|(times, subjects)| (*times, cell(*subjects)))
                .collect(),
            separations: known.separations.clone(),
            chain: known.chain.clone(),
            identity: task.file.service.identity.statement(),
            statements: report.statements.clone(),
            warnings: report.warnings.clone(),
        })
    }
}

//! A population: the devices that come, against the pace that its tasks ask for.

use serde::Serialize;
use undertone_service::Result;
use undertone_service::identity::DAY;
use undertone_service::metrics::{Arrived, SPAN};
use undertone_store::{Millis, StoreError};

use super::Dashboard;
use super::overview::cell;

/// Days of enrolments that are shown.
const DAYS: u64 = 30;

/// The answer about a population.
#[derive(Serialize)]
pub(super) struct PopulationView {
    name: String,
    now: Millis,
    /// Readings of the board since the start of the process; all counts are in steps of ten, and `null` below ten.
    boards: Option<u64>,
    check_ins: Option<u64>,
    /// Check-ins by the version of the app, for versions of at least ten devices.
    versions: Vec<(u32, u64)>,
    /// Milliseconds of a span of check-ins.
    span: Millis,
    /// The begin of each span of the last hour, and its check-ins.
    spans: Vec<(Millis, Option<u64>)>,
    tasks: Vec<PaceView>,
    /// The begin of each day, and the devices that were enrolled.
    enrolments: Vec<(Millis, Option<u64>)>,
    max_epsilon: Option<f64>,
    delta: Option<f64>,
}

/// The pace of a task.
#[derive(Serialize)]
struct PaceView {
    id: String,
    name: String,
    /// Check-ins that are asked for per second.
    offered: f64,
    /// Sessions that are needed per second.
    needed: f64,
    /// Estimated number of subjects that come.
    population: Option<u64>,
    /// Expected milliseconds per round.
    round: Millis,
    results: Vec<(&'static str, Option<u64>)>,
}

impl PopulationView {
    /// The population of this name.
    ///
    /// # Errors
    /// A population without tasks; from the store.
    pub(super) fn of(dashboard: &Dashboard, population: &str) -> Result<Self> {
        let store = &dashboard.service.shared().store;
        let rows: Vec<_> = store
            .tasks()?
            .into_iter()
            .filter(|row| row.task.population == population)
            .collect();
        if rows.is_empty() {
            return Err(StoreError::Missing {
                what: "population",
                name: super::super::shortened(population),
            }
            .into());
        }
        let now = dashboard.now();
        let metrics = dashboard.service.metrics();
        let Arrived {
            boards,
            check_ins,
            versions,
            spans,
        } = metrics.arrivals_of(population, now);
        let mut tasks = Vec::new();
        for row in &rows {
            let Some(room) = dashboard.service.room(row.task.id) else {
                continue;
            };
            let pace = room.pace();
            tasks.push(PaceView {
                id: row.task.id.to_string(),
                name: row.task.name.clone(),
                offered: pace.offered,
                needed: pace.needed,
                population: cell(pace.population),
                round: pace.round,
                results: metrics.check_ins_of(row.task.id),
            });
        }
        let today = now / DAY;
        let counted = store.enrolments(population, today.saturating_sub(DAYS - 1))?;
        let budgets = dashboard.admin().budgets()?;
        let budget = budgets.iter().find(|budget| budget.population == population);
        let of_day = |day: u64| {
            let found = counted.iter().find(|(found, _)| *found == day);
            (day * DAY, found.and_then(|(_, devices)| cell(*devices)))
        };
        let first = counted.first().map_or(today, |(day, _)| *day);
        Ok(Self {
            name: population.to_owned(),
            now,
            boards,
            check_ins,
            versions,
            span: SPAN,
            spans,
            tasks,
            enrolments: (first..=today).map(of_day).collect(),
            max_epsilon: budget.map(|budget| budget.max_epsilon),
            delta: budget.map(|budget| budget.delta),
        })
    }
}

//! The metrics of a service as a listener serves them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use undertone_protocol::TaskState;
use undertone_store::{TaskId, TaskRow};

use super::Admin;
use crate::error::Result;
use crate::metrics::{TaskFigures, text};
use crate::server::Service;

/// The epsilon of each task by its ledger, with the number of released rounds for which it was computed.
pub(super) type Spent = Mutex<BTreeMap<TaskId, (u64, Option<f64>)>>;

/// The metrics as text.
///
/// # Errors
/// From the store.
pub(super) fn scrape(service: &Service, folder: &Path, spent: &Spent) -> Result<String> {
    let mut figures = BTreeMap::new();
    for row in service.shared().store.tasks()? {
        if row.state == TaskState::Draft {
            continue;
        }
        let sessions = service.room(row.task.id).map(|room| room.session_states());
        let task = TaskFigures {
            epsilon: epsilon(&Admin::new(service, folder), &row, spent),
            name: row.task.name,
            population: row.task.population,
            head_round: row.head_round,
            sessions: sessions.unwrap_or_default(),
        };
        figures.insert(row.task.id, task);
    }
    Ok(text(service.metrics(), &figures))
}

/// The epsilon of the released rounds. It is computed once per release, since its cost grows with the ledger.
fn epsilon(admin: &Admin<'_>, row: &TaskRow, spent: &Spent) -> Option<f64> {
    let mut spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((round, epsilon)) = spent.get(&row.task.id)
        && *round == row.head_round
    {
        return *epsilon;
    }
    let epsilon = match admin.observed(row) {
        Ok(observed) => observed.map(|figures| figures.epsilon),
        Err(error) => {
            tracing::warn!(task = %row.task.id, %error, "the guarantee of a task could not be computed for the metrics");
            return None;
        }
    };
    spent.insert(row.task.id, (row.head_round, epsilon));
    epsilon
}

//! The figures of a service, as its listener serves them and other collectors read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_protocol::TaskState;
use undertone_store::TaskRow;

use super::dashboard::Guarantees;
use crate::error::Result;
use crate::metrics::{ShownFigure, TaskFigures, shown};
use crate::server::Service;

/// A reader of the figures of a service.
#[derive(Clone)]
pub struct Reader {
    service: Arc<Service>,
    guarantees: Arc<Guarantees>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(service: Arc<Service>, guarantees: Arc<Guarantees>) -> Self {
        Self { service, guarantees }
    }

    /// The figures that may leave the process, now.
    ///
    /// # Errors
    /// From the store.
    pub fn read(&self) -> Result<Vec<ShownFigure>> {
        scrape(&self.service, &self.guarantees)
    }
}

/// The figures that may leave the process.
///
/// # Errors
/// From the store.
fn scrape(service: &Service, guarantees: &Guarantees) -> Result<Vec<ShownFigure>> {
    let mut figures = BTreeMap::new();
    for row in service.shared().store.tasks()? {
        if row.state == TaskState::Draft {
            continue;
        }
        let sessions = service.room(row.task.id).map(|room| room.session_states());
        let task = TaskFigures {
            epsilon: epsilon(service, &row, guarantees),
            name: row.task.name,
            population: row.task.population,
            head_round: row.head_round,
            sessions: sessions.unwrap_or_default(),
        };
        figures.insert(row.task.id, task);
    }
    Ok(shown(service.metrics(), &figures))
}

/// The epsilon of the released rounds.
fn epsilon(service: &Service, row: &TaskRow, guarantees: &Guarantees) -> Option<f64> {
    match guarantees.current(service, row) {
        Ok(known) => known.report.observed.as_ref().map(|observed| observed.epsilon),
        Err(error) => {
            tracing::warn!(task = %row.task.id, %error, "the guarantee of a task could not be computed for the metrics");
            None
        }
    }
}

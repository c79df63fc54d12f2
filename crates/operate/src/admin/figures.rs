//! The figures of a service, as its listener serves them and other collectors read them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_protocol::TaskState;
use undertone_service::Result;
use undertone_service::metrics::{
    ProcessFigures, ShownFigure, TaskFigures, free_bytes, process, resident_bytes, shown, task_states,
};
use undertone_service::server::Service;
use undertone_store::TaskRow;

use super::guarantees::Guarantees;

/// A reader of the figures of a service.
#[derive(Clone)]
pub struct Reader {
    service: Arc<Service>,
    guarantees: Arc<Guarantees>,
    folder: PathBuf,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(service: Arc<Service>, guarantees: Arc<Guarantees>, folder: &Path) -> Self {
        Self {
            service,
            guarantees,
            folder: folder.to_owned(),
        }
    }

    /// The figures that may leave the process, now.
    ///
    /// # Errors
    /// From the store.
    pub fn read(&self) -> Result<Vec<ShownFigure>> {
        scrape(&self.service, &self.guarantees, &self.folder)
    }
}

/// The figures that may leave the process.
///
/// # Errors
/// From the store.
fn scrape(service: &Service, guarantees: &Guarantees, folder: &Path) -> Result<Vec<ShownFigure>> {
    let mut figures = BTreeMap::new();
    // A store that does not answer keeps no scraper from the figures that say so.
    let mut rows = service.shared().store.tasks().unwrap_or_default();
    rows.retain(|row| !row.deleted);
    let states = task_states(&rows);
    for row in rows {
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
    let mut all = shown(service.metrics(), &figures);
    all.push(states);
    let numbers = ProcessFigures {
        connections: service.connections().count() as u64,
        downloads: service.downloads().open(),
        bodies: service.in_flight().taken(),
        certificate: service.certificate_ends(),
        memory: resident_bytes(),
        disk: free_bytes(folder),
    };
    all.extend(process(&numbers, service.troubles()));
    Ok(all)
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

//! The boards that devices read.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use undertone_protocol::{Blob, Board, Code, Label, Problem, TaskCard, TaskState, write};
use undertone_store::{Blobs, Millis, StoreError, TaskId, TaskRow};

use super::boards::Posted;
use super::{Service, store};
use crate::error::ServiceError;
use crate::pace;
use crate::room::{Reply, newest_model};
use crate::task::Task;

/// The max time that an operator waits for the process that leads a task.
const PATIENCE: Duration = Duration::from_secs(5);

/// The card of a task on the board; `bytes` are those that a device loads and sends in a round.
fn card(blobs: &dyn Blobs, task: &Task, row: &TaskRow, (down_bytes, up_bytes): (u64, u64)) -> TaskCard {
    let pinned = row.pinned.and_then(|(_, model)| {
        let found = newest_model(blobs, &model);
        found
            .inspect_err(|error| tracing::warn!(task = %task.id, %error, "no board names the pinned release"))
            .ok()
    });
    let schema = row.task.participation;
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let service = &task.file.service;
    TaskCard {
        task: task.id.0.to_vec(),
        kind: row.task.kind.into(),
        state: row.state.into(),
        round: row.head_round,
        min_sep: narrow(schema.gap().get()),
        max_part: narrow(schema.max_participation()),
        timer_s: service.eligibility.timer.millis() / 1000,
        min_examples: service.eligibility.min_examples,
        plan: Some(Blob::of(&task.plan)),
        down_bytes,
        up_bytes,
        min_client_version: service.eligibility.min_client_version,
        pinned_round: row
            .pinned
            .filter(|_| pinned.is_some())
            .map_or(0, |(round, _)| round),
        pinned,
    }
}

impl Service {
    /// The board of a population, signed, as it travels.
    ///
    /// # Errors
    /// From the store.
    pub fn board(&self, population: &str) -> Reply<Vec<u8>> {
        Ok(self.posted_board(population)?.body.to_vec())
    }

    /// The board of a population, if there is one that need not be made. It waits for nothing.
    pub(crate) fn fresh_board(&self, population: &str) -> Option<Arc<Posted>> {
        let board = self.boards.fresh(population, self.shared.store.now())?;
        self.metrics.board_read(population);
        Some(board)
    }

    /// The board of a population, which is made where the last one is too old.
    pub(crate) fn posted_board(&self, population: &str) -> Reply<Arc<Posted>> {
        let _making = self.boards.making();
        let now = self.shared.store.now();
        if let Some(board) = self.boards.fresh(population, now) {
            self.metrics.board_read(population);
            return Ok(board);
        }
        let blobs = self.shared.blobs.as_ref();
        let mut tasks = Vec::new();
        let mut min_interval = Millis::MAX;
        for room in self.rooms() {
            let task = room.task();
            if task.population == population {
                min_interval = min_interval.min(task.file.service.pace.min_interval.millis());
                let row = self.shared.store.task(task.id).map_err(store)?;
                tasks.push(card(blobs, task, &row, room.bytes()));
            }
        }
        for other in self.elsewhere_of(population) {
            min_interval = min_interval.min(other.task.file.service.pace.min_interval.millis());
            tasks.push(card(blobs, &other.task, &other.row, other.bytes));
        }
        // A task that this process has not looked at yet, since it has just started or is about to lead it: a device that misses it on the
        // board would come back much later, or never.
        let rows = self.shared.store.tasks().map_err(store)?;
        let known = rows.iter().any(|row| row.task.population == population);
        for row in rows {
            let is_live = matches!(row.state, TaskState::Active | TaskState::Paused);
            let is_there = tasks.iter().any(|card| card.task == row.task.id.0);
            if row.task.population != population || !is_live || is_there {
                continue;
            }
            let id = row.task.id;
            match self.other(row) {
                Ok(other) => {
                    min_interval = min_interval.min(other.task.file.service.pace.min_interval.millis());
                    tasks.push(card(blobs, &other.task, &other.row, other.bytes));
                }
                Err(ServiceError::Store(error)) => return Err(store(error)),
                // The work at the task says so, and tries again.
                Err(error) => {
                    tracing::debug!(task = %id, %error, "no board names a task that cannot be read");
                }
            }
        }
        if tasks.is_empty() && !known {
            return Err(Problem::new(
                Code::NotFound,
                "there is no population of this name",
            ));
        }
        self.metrics.board_read(population);
        let board = Board {
            issued_ms: now,
            tasks,
            idle: Some(pace::idle(min_interval.min(900_000))),
            population: population.to_owned(),
        };
        let signed = write(&self.shared.keys.board().sign(Label::Board, write(&board)));
        Ok(self.boards.post(population, now, signed))
    }

    /// Makes the boards of this process anew.
    pub fn renew_boards(&self) {
        self.boards.renew();
    }

    /// Waits until the boards of this process show a task that is active now. A device that reads an earlier one comes back much later.
    /// `task` is its identifier in hexadecimal digits.
    pub fn wait_for_board(&self, task: &str) {
        let begun = Instant::now();
        let is_it = |id: &TaskId| id.to_string() == task;
        let is_led = || {
            let elsewhere = self.elsewhere.read().unwrap_or_else(PoisonError::into_inner);
            self.rooms().iter().any(|room| is_it(&room.task().id)) || elsewhere.keys().any(is_it)
        };
        while !is_led() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.boards.renew();
    }

    pub(super) fn knows(&self, population: &str) -> Result<bool, StoreError> {
        Ok(self
            .shared
            .store
            .tasks()?
            .iter()
            .any(|row| row.task.population == population))
    }
}

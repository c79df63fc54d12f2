//! The progress of the tasks, as a server prints it.
//!
//! A store that does not answer ends no server: it is a trouble that the service has logged, and the next look finds it again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_operate::admin::{Admin, Figures, RoundView, TaskSummary};
use undertone_present::numbers::{grouped, number};
use undertone_protocol::TaskState;
use undertone_service::server::Service;
use undertone_store::{Store, TaskId, TaskRow};

use super::{ServedTask, stated};
use crate::output::Output;

/// The time until the next look after one that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The releases that were seen.
pub(super) struct Progress<'o> {
    folder: PathBuf,
    service: Arc<Service>,
    output: &'o Output,
    /// The state and the number of released rounds of each task; `None` until the first look.
    seen: Option<BTreeMap<TaskId, (TaskState, u64)>>,
    released: u64,
    /// `true` once a task was active or paused.
    began: bool,
    /// `true` while looks fail.
    failing: bool,
    /// The time of the next look after one that failed.
    next: Option<Instant>,
}

impl<'o> Progress<'o> {
    pub(super) fn new(service: &Arc<Service>, folder: &Path, output: &'o Output) -> Self {
        let mut progress = Self {
            folder: folder.to_owned(),
            service: service.clone(),
            output,
            seen: None,
            released: 0,
            began: false,
            failing: false,
            next: None,
        };
        progress.look();
        progress
    }

    /// Number of rounds that were released since the first look.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    fn store(&self) -> &dyn Store {
        self.service.shared().store.as_ref()
    }

    /// Shows what has happened since the last look. Where the store does not answer, the next look shows it.
    pub(super) fn look(&mut self) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        match self.shown() {
            Ok(()) => {
                self.next = None;
                self.failing = false;
            }
            Err(error) => {
                if !self.failing {
                    self.output
                        .warn(&format!("the progress cannot be shown for the moment: {error:#}"));
                }
                self.failing = true;
                self.next = Some(Instant::now() + PAUSE);
            }
        }
    }

    fn shown(&mut self) -> anyhow::Result<()> {
        let rows = self.store().tasks()?;
        let Some(mut seen) = self.seen.take() else {
            let state = |row: &TaskRow| (row.task.id, (row.state, row.head_round));
            self.seen = Some(rows.iter().map(state).collect());
            return Ok(());
        };
        let shown = rows.iter().try_for_each(|row| self.show(row, &mut seen));
        self.seen = Some(seen);
        shown
    }

    fn show(&mut self, row: &TaskRow, seen: &mut BTreeMap<TaskId, (TaskState, u64)>) -> anyhow::Result<()> {
        let now = (row.state, row.head_round);
        let before = *seen.entry(row.task.id).or_insert((TaskState::Draft, 0));
        if before == now {
            return Ok(());
        }
        // What cannot be shown is counted all the same.
        seen.insert(row.task.id, now);
        self.released += row.head_round.saturating_sub(before.1);
        let shown = match row.head_round > before.1 {
            true => self.show_rounds(row, before.1),
            false => Ok(()),
        };
        if row.state != before.0 {
            let name = TaskSummary::new(row).state;
            self.output.note(&format!("task {} is {name}", row.task.name));
        }
        shown
    }

    fn show_rounds(&self, row: &TaskRow, from: u64) -> anyhow::Result<()> {
        let guarantee = stated(self.observed(row)?.as_ref());
        for line in self.store().metrics(row.task.id)? {
            let Some(round) = RoundView::read(&line)?.filter(|view| view.round >= from) else {
                continue;
            };
            self.output.note(&format!(
                "task {}: round {} of {} released, {} devices included{guarantee}, {} s",
                row.task.name,
                grouped(round.round + 1),
                grouped(row.task.rounds),
                grouped(round.included),
                number(round.seconds)
            ));
        }
        Ok(())
    }

    fn observed(&self, row: &TaskRow) -> anyhow::Result<Option<Figures>> {
        Ok(Admin::new(&self.service, &self.folder).observed(row)?)
    }

    /// The tasks at the end; none where the store does not answer.
    pub(super) fn tasks(&self) -> Vec<ServedTask> {
        self.tasks_now().unwrap_or_else(|error| {
            self.output.warn(&format!("the tasks cannot be shown: {error:#}"));
            Vec::new()
        })
    }

    fn tasks_now(&self) -> anyhow::Result<Vec<ServedTask>> {
        let served = |row: &TaskRow| {
            Ok(ServedTask {
                task: TaskSummary::new(row),
                observed: self.observed(row)?,
            })
        };
        let rows = self.store().tasks()?;
        rows.iter().filter(|row| !row.deleted).map(served).collect()
    }

    /// `true` once the rounds that were asked for are released, or nothing is left to be done. A store that does not answer has no end.
    pub(super) fn is_over(&mut self, exit: bool, rounds: Option<u64>) -> bool {
        if !exit {
            return false;
        }
        let Some(seen) = self.seen.as_ref().filter(|_| !self.failing) else {
            return false;
        };
        let any = |wanted: &[TaskState]| seen.values().any(|(state, _)| wanted.contains(state));
        let live = any(&[TaskState::Active, TaskState::Paused]);
        let drafts = any(&[TaskState::Draft]);
        self.began |= live;
        let enough = rounds.is_some_and(|rounds| self.released >= rounds);
        // A draft may still be activated, unless everything that was has ended.
        enough || (!live && (self.began || !drafts))
    }
}

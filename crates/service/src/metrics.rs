//! The metrics of a service, in the text format of Prometheus.
//!
//! The names and labels are fixed. A label is a task, a result, a state, a reason, a phase or a transaction, and never a device, a
//! subject, a group or an address.
//!
//! PRIVACY: figures of devices and of groups move in steps of ten. A value is shown once ten events have come, and stands until the
//! next ten are there. So no figure, and no difference of two figures, describes fewer than ten of them.

mod crowd;
mod curve;
mod figure;
mod funnel;
mod observed;
mod passage;
mod process;
#[cfg(test)]
mod tests;
mod text;
mod traces;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use undertone_protocol::{Code, Digest32};
use undertone_store::{Millis, TaskId};

use crate::attempt::group::Phase;
pub use crowd::{Arrived, SPAN};
pub use curve::Curve;
use figure::Figure;
pub use figure::in_steps;
pub use funnel::FunnelRow;
pub use funnel::Funnels;
pub(crate) use observed::ObservedStore;
pub use observed::name as reason_name;
pub use passage::Passage;
pub use process::{ProcessFigures, free_bytes, no_descriptor, process, resident_bytes, task_states};
pub use text::{FigureKind, Sample, ShownFigure};
pub use text::{TaskFigures, shown, text};
use traces::Traces;
pub use traces::{AttemptTrace, TracedStep};

/// Min number of devices, or of groups, that a figure describes.
pub(crate) const STEP: u64 = 10;

/// A family of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    CheckIns,
    Attempts,
    AttemptSeconds,
    UploadBytes,
    AddSeconds,
    PhaseSeconds,
    TransactionSeconds,
    TransactionRetries,
    LeasesLost,
}

/// A series: its family, its task and its label.
type Series = (Family, Option<TaskId>, &'static str);

/// The counts of a service since its start.
#[derive(Default)]
pub struct Metrics {
    inner: Mutex<Inner>,
    funnels: Funnels,
    traces: Traces,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // PRIVACY: exact numbers wait inside for the next step.
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inner {
    series: BTreeMap<Series, Figure>,
    /// The phase of each group, and its begin. A group of a later attempt takes the place of the one before.
    phases: BTreeMap<(TaskId, u32), (Phase, Instant)>,
    /// The open attempt of each task, by the clock of the store.
    attempts: BTreeMap<TaskId, Millis>,
    /// The sessions of attempts that have ended.
    passages: BTreeMap<TaskId, Passage>,
    /// The devices that came, by population.
    arrivals: BTreeMap<String, crowd::Arrivals>,
    curves: BTreeMap<TaskId, Curve>,
    /// Hides the keys of the first devices of a count.
    salt: Option<Digest32>,
}

impl Metrics {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The funnels of the tasks by the version of the app.
    pub fn funnels(&self) -> &Funnels {
        &self.funnels
    }

    /// The course of attempts, for a program that collects traces.
    pub(crate) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Hands the course of each attempt that ends to `sink`. The first call counts.
    pub fn trace_to(&self, sink: impl Fn(AttemptTrace) + Send + Sync + 'static) {
        self.traces.hand_to(Box::new(sink));
    }

    /// Counts a check-in of a device. `None` for one that was assigned; `task` is the task that answered.
    pub(crate) fn check_in(&self, task: Option<TaskId>, refused: Option<Code>) {
        let name = refused.map_or("ASSIGNED", |code| code.as_str_name());
        let result = name.strip_prefix("CODE_").unwrap_or(name);
        self.lock().device(Family::CheckIns, task, result, 1.0);
    }

    /// The check-ins of a task by their result, in steps of ten. `None` stands for fewer than ten.
    pub fn check_ins_of(&self, task: TaskId) -> Vec<(&'static str, Option<u64>)> {
        let inner = self.lock();
        let of_task = inner.series.iter();
        of_task
            .filter(|((family, found, _), _)| *family == Family::CheckIns && *found == Some(task))
            .map(|((_, _, result), figure)| (*result, figure.shown().map(|(count, _)| count)))
            .collect()
    }

    /// Counts an upload that was added to a sum.
    pub(crate) fn added(&self, bytes: u64, took: Duration) {
        let mut inner = self.lock();
        inner.device(Family::UploadBytes, None, "", bytes as f64);
        inner.device(Family::AddSeconds, None, "", took.as_secs_f64());
    }

    /// Notes that a group of a secure sum has entered a phase.
    pub(crate) fn phase(&self, task: TaskId, group: u32, phase: Phase) {
        let mut inner = self.lock();
        let before = match phase.is_end() {
            true => inner.phases.remove(&(task, group)),
            false => inner.phases.insert((task, group), (phase, Instant::now())),
        };
        if let Some((before, since)) = before.filter(|(before, _)| *before < phase) {
            let seconds = since.elapsed().as_secs_f64();
            inner.device(Family::PhaseSeconds, None, before.name(), seconds);
        }
    }

    /// Notes that an attempt was opened.
    pub(crate) fn opened(&self, task: TaskId, now: Millis) {
        self.lock().attempts.insert(task, now);
    }

    /// Notes the end of an attempt, and its reason: `committed`, or the one for which it was abandoned.
    pub(crate) fn ended(&self, task: TaskId, reason: &'static str, now: Millis) {
        let mut inner = self.lock();
        // A repeated call is no other end.
        let Some(opened) = inner.attempts.remove(&task) else {
            return;
        };
        inner.own(Family::Attempts, Some(task), reason, 1.0);
        let seconds = now.saturating_sub(opened) as f64 / 1000.0;
        inner.own(Family::AttemptSeconds, Some(task), "", seconds);
    }

    /// Counts a transaction at the wish of a device.
    pub(crate) fn device_transaction(&self, name: &'static str, took: Duration) {
        let seconds = took.as_secs_f64();
        self.lock()
            .device(Family::TransactionSeconds, None, name, seconds);
    }

    /// Counts a transaction of the service itself.
    pub(crate) fn transaction(&self, name: &'static str, took: Duration) {
        let seconds = took.as_secs_f64();
        self.lock().own(Family::TransactionSeconds, None, name, seconds);
    }

    /// Counts a release that is committed once more, since the answer of the store was lost.
    pub(crate) fn retried(&self) {
        self.lock().own(Family::TransactionRetries, None, "", 1.0);
    }

    /// Counts a lease that another process has taken over.
    pub(crate) fn lease_lost(&self) {
        self.lock().own(Family::LeasesLost, None, "", 1.0);
    }
}

impl Inner {
    /// An event of a device or of a group.
    fn device(&mut self, family: Family, task: Option<TaskId>, label: &'static str, value: f64) {
        let figure = self.series.entry((family, task, label));
        figure.or_insert_with(|| Figure::in_steps_of(STEP)).add(value);
    }

    /// An event of the service, which says nothing of single devices.
    fn own(&mut self, family: Family, task: Option<TaskId>, label: &'static str, value: f64) {
        let figure = self.series.entry((family, task, label));
        figure.or_insert_with(|| Figure::in_steps_of(1)).add(value);
    }
}

//! The figures of a room for the metrics of its service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use undertone_store::{AttemptState, Millis, SessionId};

use super::{Current, Room};
use crate::attempt::group::{Change, Phase};
use crate::attempt::session::Stage;
use crate::metrics::{Metrics, Passage};

/// The open attempt of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The round.
    pub round: u64,
    /// The number of the attempt within its round, from 0.
    pub number: u32,
    pub state: AttemptState,
    pub opened: Millis,
    /// The end of the selection.
    pub select_until: Millis,
    /// The end of the reports.
    pub report_until: Millis,
    /// The sessions of the attempt, by the stages that they have reached.
    pub passage: Passage,
}

/// The pace of a room's devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Check-ins that are asked for per second.
    pub offered: f64,
    /// Sessions that are needed per second.
    pub needed: f64,
    /// Estimated number of subjects that come.
    pub population: u64,
    /// Expected time per round.
    pub round: Millis,
}

impl Room {
    /// Reports counts and times to these metrics from now on.
    pub(crate) fn report_to(&self, metrics: Arc<Metrics>) {
        // The first call counts; a room belongs to one service.
        let _ = self.metrics.set(metrics);
    }

    /// Notes a change of a group.
    pub(super) fn note_group(&self, group: u32, change: &Change) {
        if let Some(metrics) = self.metrics.get() {
            let phase = match change {
                Change::Entered { phase, .. } => *phase,
                Change::Summed { .. } => Phase::Summed,
                Change::Failed { .. } => Phase::Failed,
            };
            metrics.phase(self.task.id, group, phase);
        }
    }

    /// Notes an upload that was added to a sum since `started`.
    pub(super) fn note_added(&self, bytes: u64, started: Instant) {
        if let Some(metrics) = self.metrics.get() {
            metrics.added(bytes, started.elapsed());
        }
    }

    /// Adds the sessions of an attempt that has ended to the metrics.
    pub(super) fn note_passage(&self, current: &Current, included: &[SessionId]) {
        if let Some(metrics) = self.metrics.get() {
            let mut passage = Passage::default();
            for (id, session) in current.sessions.iter() {
                passage.add(session, included.binary_search(&id).is_ok());
            }
            metrics.passed(self.task.id, &passage);
        }
    }

    /// The open attempt; `None` between two attempts, and while a release is made.
    pub fn live(&self) -> Option<Live> {
        let inner = self.lock();
        let current = inner.current.as_ref()?;
        let settings = current.machine.settings();
        let mut passage = Passage::default();
        for (_, session) in current.sessions.iter() {
            passage.add(session, false);
        }
        Some(Live {
            round: current.opened.round(),
            number: current.number,
            state: current.machine.state(),
            opened: current.opened_at,
            select_until: settings.select_until(),
            report_until: settings.report_until(),
            passage,
        })
    }

    /// `true` while a release is made.
    pub fn is_releasing(&self) -> bool {
        self.lock().releasing.is_some()
    }

    /// The pace of its devices.
    pub fn pace(&self) -> Pace {
        let now = self.now();
        let outlook = self.outlook(&self.lock(), now);
        Pace {
            offered: outlook.demand.offered(outlook.round),
            needed: outlook.demand.needed(outlook.round),
            population: outlook.population,
            round: outlook.round,
        }
    }

    /// `true` while devices of an ended attempt may still ask for their verdict.
    pub(crate) fn has_verdicts(&self) -> bool {
        let now = self.now();
        self.lock().ended.values().any(|(_, until)| *until > now)
    }

    /// The number of sessions of the open attempt by their state.
    pub fn session_states(&self) -> BTreeMap<&'static str, u64> {
        let mut states = BTreeMap::new();
        if let Some(current) = &self.lock().current {
            for (_, session) in current.sessions.iter() {
                let state = match session.end() {
                    Some(_) => "ended",
                    None => stage(session.stage()),
                };
                *states.entry(state).or_default() += 1;
            }
        }
        states
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Assigned => "assigned",
        Stage::Ready => "ready",
        Stage::Reported => "reported",
    }
}

//! The figures of a room for the metrics of its service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::Room;
use crate::group::{Change, Phase};
use crate::metrics::Metrics;
use crate::session::Stage;

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

    /// `true` while devices of an ended attempt may still ask for their verdict.
    pub(crate) fn has_verdicts(&self) -> bool {
        let now = self.now();
        self.lock().ended.values().any(|(_, until)| *until > now)
    }

    /// The number of sessions of the open attempt by their state.
    pub(crate) fn session_states(&self) -> BTreeMap<&'static str, u64> {
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
        Stage::Configured => "configured",
        Stage::Training => "training",
        Stage::Ready => "ready",
        Stage::Keys => "keys",
        Stage::Shares => "shares",
        Stage::Uploading => "uploading",
        Stage::Reported => "reported",
        Stage::Unmasked => "unmasked",
    }
}

//! The things that an earlier process left over, and the failures of taking them up.

use undertone_store::{AbandonReason, AttemptState, Lease, Outcome};

use super::{LeftOver, Room, Shared};
use crate::error::Result;

impl Room {
    /// Halts the task for a failure that does not pass by itself.
    pub(super) fn unless_passing<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| match error.passes() {
            true => error,
            false => self.halt(&error.to_string()),
        })
    }

    /// Abandons the attempt that an earlier process left open, and deletes the staged files of abandoned attempts.
    pub(super) fn end_left_over(&self, lease: &Lease, left: Option<&LeftOver>) -> Result<()> {
        let Shared { store, blobs, .. } = &*self.shared;
        if let Some((attempt, state)) = store.open_attempt_of(self.task.id)?
            && !matches!(state, AttemptState::Committed | AttemptState::Abandoned)
        {
            // Nobody knows who had reported: each session that was not lost before it was ready counts.
            let known = left.filter(|(known, _)| *known == attempt);
            let users = known.map_or(&[][..], |(_, users)| users);
            store.abandon(lease, attempt, AbandonReason::Crash, users)?;
            crate::failpoint!("lead.abandoned");
        }
        // Files of an attempt that the store calls committed wait for their publication.
        for attempt in blobs.staged()? {
            let abandoned = |outcome: Outcome| outcome.state == AttemptState::Abandoned;
            if store.outcome(attempt).is_ok_and(abandoned) {
                blobs.sweep(attempt)?;
                crate::failpoint!("lead.swept");
            }
        }
        Ok(())
    }
}

//! The end of a process's work at a task, which is not the end of the task.

use undertone_store::AbandonReason;

use super::Room;
use crate::error::Result;

impl Room {
    /// Ends the work of this process: makes the release whose sum is ready, abandons an attempt that is open otherwise, and hands
    /// the lease back. Participants of the abandoned attempt count. The room does nothing more.
    ///
    /// # Errors
    /// The errors of [`tick`](Self::tick). The next process then waits for the end of the lease and abandons the attempt.
    pub fn close(&self) -> Result<()> {
        let releases = |room: &Self| {
            let inner = room.lock();
            let asked = inner.current.as_ref().is_some_and(|current| current.release);
            asked && inner.broken.is_none()
        };
        if releases(self) {
            self.release()?;
        }
        let now = self.now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.abandon(inner, now, AbandonReason::Operator)?;
        inner.head = None;
        match self.shared.store.hand_back(inner.lease.clone()) {
            // The task has ended, or another process leads it: there is nothing to hand back.
            Ok(()) | Err(undertone_store::StoreError::Fenced { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

//! Sessions that end without an update.

use undertone_store::{Millis, SessionId, SessionState};

use super::{Inner, Room, Sums, Uploading, lock};
use crate::attempt::Event;
use crate::attempt::session::LostAt;
use crate::error::Result;

impl Room {
    /// Ends sessions whose time is over.
    pub(super) fn expire(&self, inner: &mut Inner, now: Millis) -> Result<()> {
        let Some(current) = &mut inner.current else {
            return Ok(());
        };
        let lost = current.sessions.expire(now);
        for (session, at) in lost {
            self.lose(inner, now, session, at)?;
        }
        if inner
            .current
            .as_ref()
            .is_some_and(|current| current.wake.is_some_and(|wake| wake <= now))
        {
            self.event(inner, now, Event::Tick)?;
        }
        Ok(())
    }

    /// Ends a session in the machine, in its group and in the store.
    pub(super) fn lose(&self, inner: &mut Inner, now: Millis, session: SessionId, at: LostAt) -> Result<()> {
        let done = self.lose_one(inner, now, session, at);
        inner.noted(done)
    }

    fn lose_one(&self, inner: &mut Inner, now: Millis, session: SessionId, mut at: LostAt) -> Result<()> {
        let Some(current) = &mut inner.current else {
            return Ok(());
        };
        if let Some(device) = current.devices.get_mut(&session) {
            // The bytes of its upload go with it.
            device.upload = Uploading::Nothing;
            current.shards.take_back(session);
            if let Sums::Groups(groups) = &current.sums
                && let Some(group) = groups.get(device.shard as usize)
            {
                at = lock(group).lose(session).unwrap_or(at);
            }
        }
        if let Some(state) = current.sessions.get_mut(session) {
            state.lost_in_group(at);
        }
        let state = match at.counts() {
            true => SessionState::Lost,
            false => SessionState::LostBeforeReady,
        };
        self.shared.store.note_sessions(&[(session, state)])?;
        self.event(inner, now, Event::Lost(session, at))
    }
}

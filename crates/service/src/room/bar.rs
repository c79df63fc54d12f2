//! The end of the participation of a subject that was barred.

use undertone_coordinator::participation::ParticipantId;
use undertone_store::{SessionId, SessionState};

use super::Room;
use crate::attempt::session::Stage;
use crate::error::Result;

/// The session of a barred subject in the open attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenSession {
    /// The subject had no session.
    None,
    /// The session was ended. Nothing of its update is in a sum.
    Ended,
    /// The update of the session was accepted before. It stays in the sum of the attempt, and counts as a participation.
    Reported,
}

impl Room {
    /// The name of a subject of an issuer in this task.
    pub fn name_of(&self, issuer: &[u8; 32], subject: &[u8; 32]) -> ParticipantId {
        self.pseudonyms
            .name(&self.shared.keys, self.task.id, issuer, subject)
    }

    /// Ends the open session of a subject that the store admits no more.
    ///
    /// # Errors
    /// From the store.
    pub fn end_session_of(&self, user: ParticipantId) -> Result<OpenSession> {
        let now = self.now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Some(current) = &mut inner.current else {
            return Ok(OpenSession::None);
        };
        // Check-ins that the store admitted just before the bar get no place.
        let pending: Vec<SessionId> = current
            .pending
            .iter()
            .filter(|(_, of)| **of == user)
            .map(|(session, _)| *session)
            .collect();
        let mut found = OpenSession::None;
        for session in &pending {
            current.pending.remove(session);
            found = OpenSession::Ended;
        }
        let sessions: Vec<SessionId> = current
            .devices
            .iter()
            .filter(|(_, device)| device.user == user)
            .map(|(session, _)| *session)
            .collect();
        let mut lost = Vec::new();
        for id in sessions {
            let Some(session) = current.sessions.get_mut(id) else {
                continue;
            };
            match session.stage() >= Stage::Reported && session.end().is_none() {
                true => found = OpenSession::Reported,
                false => lost.extend(session.lose().map(|at| (id, at))),
            }
        }
        for (session, at) in lost {
            self.lose(inner, now, session, at)?;
            if found == OpenSession::None {
                found = OpenSession::Ended;
            }
        }
        drop(guard);
        for session in pending {
            self.note(session, SessionState::LostBeforeReady)?;
        }
        self.notify();
        Ok(found)
    }
}

//! The checks that every message passes first, and the early end of a session.

use super::Server;
use super::roster::JoinedClients;
use crate::context::SessionId;
use crate::error::{Result, SecAggError};
use crate::members::Members;
use crate::phase::ServerPhase;

impl Server {
    pub(super) fn expect_phase(&self, phase: ServerPhase, message: &'static str) -> Result<()> {
        if self.phase == phase {
            Ok(())
        } else {
            self.out_of_turn(message)
        }
    }

    pub(super) fn out_of_turn<T>(&self, message: &'static str) -> Result<T> {
        Err(SecAggError::ServerPhase {
            message,
            phase: self.phase,
        })
    }

    pub(super) fn clients(&self, message: &'static str) -> Result<&JoinedClients> {
        match &self.clients {
            Some(clients) => Ok(clients),
            None => self.out_of_turn(message),
        }
    }

    /// The joined clients, where `index` is one of them and the message is of this session.
    pub(super) fn member(
        &self,
        message: &'static str,
        session: &SessionId,
        index: u32,
    ) -> Result<&JoinedClients> {
        let clients = self.clients(message)?;
        session.check(&clients.session, message)?;
        clients.check_index(message, index)?;
        Ok(clients)
    }

    pub(super) fn sharer(&self, message: &'static str, index: u32) -> Result<&JoinedClients> {
        match self.shares.get(index as usize) {
            Some(Some(_)) => self.clients(message),
            _ => Err(SecAggError::Stranger { message, index }),
        }
    }

    pub(super) fn survivor(
        &self,
        message: &'static str,
        session: &SessionId,
        index: u32,
    ) -> Result<&JoinedClients> {
        if self.survivors.contains(index) {
            self.member(message, session, index)
        } else {
            Err(SecAggError::Stranger { message, index })
        }
    }

    /// The clients whose secrets must be opened once the survivors are known: those that shared, and either survived or left
    /// masks on a survivor.
    pub(super) fn needed_secrets(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.shares)
            .filter(|(_, shared)| shared.is_some())
            .map(|(index, _)| index)
            .filter(|index| self.survivors.contains(*index) || self.among(*index, &self.survivors) > 0)
    }

    /// The neighbours of a client; none before the roster is closed.
    pub(super) fn neighbours(&self, index: u32) -> &[u32] {
        self.clients
            .as_ref()
            .map_or(&[], |clients| clients.neighbours(index))
    }

    /// The number of neighbours of `index` among `members`.
    pub(super) fn among(&self, index: u32, members: &Members) -> u32 {
        let is_member = |other: &&u32| members.contains(**other);
        self.neighbours(index).iter().filter(is_member).count() as u32
    }

    /// The smallest number of neighbours among `members` of any client whose secret must be opened.
    pub(super) fn fewest_among(&self, members: &Members) -> u32 {
        let among = |index| self.among(index, members);
        self.needed_secrets().map(among).min().unwrap_or(0)
    }

    /// Aborts where `got` is below `needed`.
    pub(super) fn at_least(&mut self, what: &'static str, got: u32, needed: u32) -> Result<()> {
        if got >= needed {
            return Ok(());
        }
        self.abort();
        Err(SecAggError::TooFew { what, needed, got })
    }

    /// Ends the session without a sum. A caller that waits no longer for missing answers calls it. It waits for the additions
    /// of [`Ticket`](super::Ticket)s that have begun.
    ///
    /// PRIVACY: nothing of the vectors outlives a session that failed.
    pub fn abort(&mut self) {
        self.phase = ServerPhase::Aborted;
        self.incoming.discard();
        self.sum.clear();
        self.shares.fill(None);
        self.answers.fill_with(|| None);
    }
}

/// Writes a client's message where there is none; the same again is a retry.
pub(super) fn commit<T: Clone + PartialEq>(
    slots: &mut [Option<T>],
    index: u32,
    message: &'static str,
    value: &T,
) -> Result<()> {
    match slots.get_mut(index as usize) {
        Some(slot @ None) => {
            *slot = Some(value.clone());
            Ok(())
        }
        Some(Some(first)) if first == value => Ok(()),
        Some(Some(_)) => Err(SecAggError::Committed { message, index }),
        None => Err(SecAggError::Stranger { message, index }),
    }
}

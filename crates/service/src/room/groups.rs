//! The groups of a secure attempt, as their room moves them on.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_store::{Millis, SessionId};

use super::{Current, Inner, Room, Sums, lock};
use crate::attempt::Event;
use crate::attempt::group::{Change, Phase};
use crate::attempt::session::LostAt;
use crate::error::Result;

impl Room {
    /// Closes the lobby of a group.
    pub(super) fn close_lobby(&self, inner: &mut Inner, now: Millis, shard: u32) -> Result<()> {
        let Some(Current {
            sums: Sums::Groups(groups),
            ..
        }) = &inner.current
        else {
            return Ok(());
        };
        let Some(group) = groups.get(shard as usize).cloned() else {
            return Ok(());
        };
        let change = lock(&group).close(Phase::Lobby, &mut inner.rng);
        match change {
            Some(change) => self.changed_group(inner, now, shard, change),
            None => Ok(()),
        }
    }

    /// Closes phases of groups whose time is over, and those for which nothing more is awaited. The room is not locked meanwhile:
    /// taking masks off is heavy.
    pub(super) fn advance_groups(&self) -> Result<()> {
        let (attempt, groups, due, mut rng) = {
            let mut inner = self.lock();
            let mut seed = <ChaCha20Rng as SeedableRng>::Seed::default();
            rand_core::Rng::fill_bytes(&mut inner.rng, &mut seed);
            match &mut inner.current {
                Some(Current {
                    id,
                    sums: Sums::Groups(groups),
                    due,
                    ..
                }) => (
                    *id,
                    groups.clone(),
                    std::mem::take(due),
                    ChaCha20Rng::from_seed(seed),
                ),
                _ => return Ok(()),
            }
        };
        for (shard, group) in (0..).zip(&groups) {
            let change = {
                let mut group = lock(group);
                let mut phases = due.iter().filter(|(of, _)| *of == shard);
                phases
                    .find_map(|(_, phase)| group.close(*phase, &mut rng))
                    .or_else(|| group.advance(&mut rng))
            };
            let mut inner = self.lock();
            let open = inner.current.as_ref();
            if let Some(change) = change
                && open.is_some_and(|current| current.id == attempt)
            {
                self.changed_group(&mut inner, self.now(), shard, change)?;
            }
        }
        Ok(())
    }

    /// Takes note of a change of a group: sessions it lost, its next phase, its sum or its failure.
    pub(super) fn changed_group(
        &self,
        inner: &mut Inner,
        now: Millis,
        shard: u32,
        change: Change,
    ) -> Result<()> {
        self.note_group(shard, &change);
        let lose = |inner: &mut Inner, lost: Vec<(SessionId, LostAt)>| -> Result<()> {
            for (session, at) in lost {
                if let Some(current) = &mut inner.current
                    && let Some(session) = current.sessions.get_mut(session)
                {
                    session.lose();
                }
                self.lose(inner, now, session, at)?;
            }
            Ok(())
        };
        match change {
            Change::Entered { phase, lost } => {
                lose(inner, lost)?;
                self.event(inner, now, Event::GroupEntered { shard, phase })
            }
            Change::Summed { included } => self.event(inner, now, Event::GroupSummed { shard, included }),
            Change::Failed {
                at,
                why,
                lost,
                exclude,
            } => {
                tracing::warn!(task = %self.task.id, shard, reason = %why, "a group has failed");
                for session in exclude {
                    let session = crate::identity::hex(&session.0);
                    tracing::warn!(task = %self.task.id, shard, session, "the shares of this session kept the sum closed");
                }
                lose(inner, lost)?;
                self.event(inner, now, Event::GroupFailed { shard, at })
            }
        }?;
        self.notify();
        Ok(())
    }
}

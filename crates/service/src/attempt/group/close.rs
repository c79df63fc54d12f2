//! The ends of the phases of a group.

use rand_core::CryptoRng;
use undertone_protocol::digest_of;
use undertone_secagg::message::{Consistency, MaskedInput, Message, ShareKeys, UnmaskShares};
use undertone_secagg::{SecAggError, Server, ServerPhase};
use undertone_store::SessionId;

use super::{Blame, Change, FixedSet, Group, GroupSum, Member, Phase};
use crate::attempt::session::{Contributor, LostAt};

impl Group {
    /// Closes the phase if every device that it waits for has answered. The lobby closes by [`close`](Self::close) alone.
    pub(crate) fn advance(&mut self, rng: &mut dyn CryptoRng) -> Option<Change> {
        let answered = |kind: u8| self.alive().all(|(_, member)| member.left || member.has(kind));
        let complete = match self.phase {
            Phase::Keys => self.alive().all(|(_, member)| member.seen),
            Phase::Shares => answered(ShareKeys::KIND),
            // A machine that aborted has lost the sum; what is there then is closed as a failure.
            Phase::Inputs => {
                self.closing || answered(MaskedInput::KIND) || self.server.phase() == ServerPhase::Aborted
            }
            Phase::Signatures => answered(Consistency::KIND),
            Phase::Unmask => answered(UnmaskShares::KIND),
            Phase::Lobby | Phase::Summed | Phase::Failed => false,
        };
        complete.then(|| self.close(self.phase, rng)).flatten()
    }

    /// Closes a phase, if the group still stands in it. Closing the last one takes the masks off the sum, which is heavy work. While
    /// vectors are being added, the inputs take no more of them, and close when the group [advances](Self::advance) after the last.
    pub(crate) fn close(&mut self, phase: Phase, rng: &mut dyn CryptoRng) -> Option<Change> {
        if phase != self.phase {
            return None;
        }
        let (next, lost) = match phase {
            Phase::Lobby => (self.close_lobby(), Vec::new()),
            Phase::Keys => {
                let lost = self.drop_out(LostAt::Keys, |member| member.seen);
                (self.make_roster(rng), lost)
            }
            Phase::Shares => {
                let lost = self.drop_out(LostAt::Shares, |member| member.has(ShareKeys::KIND));
                (self.server.close_shares().map(|()| Phase::Inputs), lost)
            }
            Phase::Inputs => {
                let closed = self.server.close_inputs();
                if matches!(closed, Err(SecAggError::StillAdding { .. })) {
                    self.closing = true;
                    return None;
                }
                let lost = self.drop_out(LostAt::Uploading, |member| member.has(MaskedInput::KIND));
                (closed.and_then(|()| self.fix_survivors()), lost)
            }
            Phase::Signatures => {
                // A survivor that did not sign answers no request.
                for member in self.members.values_mut() {
                    member.left |= !member.has(Consistency::KIND);
                }
                (self.server.close_signatures().map(|()| Phase::Unmask), Vec::new())
            }
            Phase::Unmask => (self.finish(), Vec::new()),
            Phase::Summed | Phase::Failed => return None,
        };
        match next {
            Ok(Phase::Summed) => {
                self.phase = Phase::Summed;
                let included = self.sum.as_ref().map_or(0, |sum| sum.included.len() as u32);
                Some(Change::Summed { included })
            }
            Ok(phase) => {
                self.phase = phase;
                Some(Change::Entered { phase, lost })
            }
            Err(why) => Some(self.fail(why, lost)),
        }
    }

    /// Loses the devices that did not do what the phase asked.
    fn drop_out(&mut self, at: LostAt, did: impl Fn(&Member) -> bool) -> Vec<(SessionId, LostAt)> {
        let mut lost = Vec::new();
        for (session, member) in &mut self.members {
            if member.lost.is_none() && !did(member) {
                member.lost = Some(at);
                lost.push((*session, at));
            }
        }
        lost
    }

    fn close_lobby(&self) -> Result<Phase, SecAggError> {
        self.enough("devices in the lobby")?;
        Ok(Phase::Keys)
    }

    fn enough(&self, what: &'static str) -> Result<(), SecAggError> {
        let (needed, got) = (self.context.terms.min_survivors(), self.present());
        match got >= needed {
            true => Ok(()),
            false => Err(SecAggError::TooFew { what, needed, got }),
        }
    }

    /// Makes the roster of those who were seen: the server of the lobby holds the keys of all who ever joined, so it is replaced.
    fn make_roster(&mut self, rng: &mut dyn CryptoRng) -> Result<Phase, SecAggError> {
        self.enough("devices at the roll-call")?;
        let mut server = Server::new(self.context, self.trust.clone())?;
        for (_, member) in self.alive() {
            server.receive_keys(&member.keys)?;
        }
        let graph = self.graph;
        server.close_keys(|clients| graph.topology(clients), rng)?;
        let mut roster = vec![None; self.present() as usize];
        for (session, member) in &mut self.members {
            if member.lost.is_none() {
                member.index = server.index_of(&member.keys.entry.identity);
                if let Some(place) = member.index.and_then(|index| roster.get_mut(index as usize)) {
                    *place = Some(*session);
                }
            }
        }
        self.roster = roster.into_iter().flatten().collect();
        self.server = server;
        Ok(Phase::Shares)
    }

    fn fix_survivors(&mut self) -> Result<Phase, SecAggError> {
        let survivors = self.server.survivors()?;
        self.fixed = Some(FixedSet {
            size: survivors.survivors.count(),
            digest: digest_of(&survivors.encode()),
        });
        Ok(match self.server.phase() {
            ServerPhase::Signatures => Phase::Signatures,
            _ => Phase::Unmask,
        })
    }

    fn finish(&mut self) -> Result<Phase, SecAggError> {
        let outcome = self.server.finish()?;
        let contributor = |index: u32| {
            let session = *self.roster.get(index as usize)?;
            let user = self.members.get(&session)?.user;
            Some(Contributor { session, user })
        };
        let included: Vec<Contributor> = outcome.included.iter().filter_map(contributor).collect();
        let blame = |index: u32, about: u32| {
            let (session, about) = (contributor(index)?.session, contributor(about)?.session);
            Some(Blame { session, about })
        };
        let culprits = outcome.culprits.iter();
        let culprits = culprits.filter_map(|culprit| blame(culprit.index, culprit.about));
        self.sum = Some(GroupSum {
            culprits: culprits.collect(),
            included,
            sum: outcome.sum,
        });
        Ok(Phase::Summed)
    }

    fn fail(&mut self, why: SecAggError, mut lost: Vec<(SessionId, LostAt)>) -> Change {
        let at = self.phase;
        self.phase = Phase::Failed;
        self.server.abort();
        let point = |member: &Member| match at {
            Phase::Lobby => LostAt::Lobby,
            Phase::Keys => LostAt::Keys,
            Phase::Shares => LostAt::Shares,
            _ if member.has(MaskedInput::KIND) => LostAt::Reported,
            _ => LostAt::Uploading,
        };
        for (session, member) in &mut self.members {
            if member.lost.is_none() {
                let point = point(member);
                member.lost = Some(point);
                lost.push((*session, point));
            }
        }
        lost.sort_unstable_by_key(|(session, _)| *session);
        let exclude = match &why {
            SecAggError::Unrecoverable { exclude } => exclude
                .iter()
                .filter_map(|index| self.roster.get(*index as usize).copied())
                .collect(),
            _ => Vec::new(),
        };
        Change::Failed {
            at,
            why,
            lost,
            exclude,
        }
    }
}

//! Sessions: one device in one attempt.
//!
//! | state | entered when | a loss here |
//! |---|---|---|
//! | assigned | the device was admitted | frees the slot, and is no participation |
//! | ready | it joined a sum, with its update encoded | counts as a participation |
//! | reported | its update was accepted | counts |
//!
//! A session moves forward only. Plan and model are blobs that any device may read, so the server does not see when a device has them or
//! trains. What a device of a secure sum does after it joined is the phase of its group.

use std::collections::BTreeMap;

use undertone_coordinator::participation::ParticipantId;
use undertone_store::{Millis, SessionId};

/// The state of a session that was not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The device has its assignment.
    Assigned,
    /// The device joined a sum, with its update ready.
    Ready,
    /// The update was accepted.
    Reported,
}

/// The point at which a session was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LostAt {
    /// The session was lost before the device joined a sum.
    Assigned,
    /// The session was lost while its group waited for devices.
    Lobby,
    /// The session was lost while its group called the roll.
    Keys,
    /// The session was lost before the device sent its shares.
    Shares,
    /// The session was lost before its update was accepted.
    Uploading,
    /// The session was lost after its update was accepted: its group or its aggregator failed.
    Reported,
}

impl LostAt {
    /// `true` if the device may have sent something of its update, so that the loss counts as a participation.
    #[must_use]
    pub(crate) fn counts(self) -> bool {
        self >= Self::Lobby
    }
}

/// The end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The session was lost.
    Lost(LostAt),
    /// The report came after the goal. It is in no sum, and no participation.
    Late,
}

/// A session whose update is in a sum, with the subject behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contributor {
    /// The session.
    pub session: SessionId,
    /// The pseudonym of its subject in the task.
    pub user: ParticipantId,
}

/// The outcome of a message that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The message was taken.
    Now,
    /// The message repeats one that was taken before, and changed nothing.
    Before,
}

/// A step that a session does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OutOfTurn {
    /// The session has passed the stage.
    #[error("the session stands at {at:?} and cannot go back to {to:?}")]
    Backward {
        /// The stage of the session.
        at: Stage,
        /// The stage of the step.
        to: Stage,
    },
    /// The session has ended.
    #[error("the session has ended: {0:?}")]
    Ended(End),
}

/// One session. Time comes as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    stage: Stage,
    end: Option<End>,
    /// The time at which it expires, if it has not reported.
    until: Millis,
}

impl Session {
    /// A session that was assigned, and must have reported before `until`, unless that is [extended](Self::extend).
    #[must_use]
    pub(crate) fn new(until: Millis) -> Self {
        Self {
            stage: Stage::Assigned,
            end: None,
            until,
        }
    }

    /// The last stage that it reached.
    #[must_use]
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The end; `None` while it goes on.
    #[must_use]
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// Moves to a later stage. Returns `false` where it stands there already.
    ///
    /// # Errors
    /// [`OutOfTurn`] for an earlier stage, and after its end.
    pub(crate) fn reach(&mut self, to: Stage) -> Result<bool, OutOfTurn> {
        if let Some(end) = self.end {
            return Err(OutOfTurn::Ended(end));
        }
        if to < self.stage {
            return Err(OutOfTurn::Backward { at: self.stage, to });
        }
        let moved = to > self.stage;
        self.stage = to;
        Ok(moved)
    }

    /// Sets the time before which the device must have reported. In groups, the deadlines of the phases do that from the join on.
    pub(crate) fn extend(&mut self, until: Millis) {
        self.until = until;
    }

    /// Loses the session. `None` where it has ended already. A device of a group was lost in its phase, which the group
    /// [says](Self::lost_in_group).
    pub(crate) fn lose(&mut self) -> Option<LostAt> {
        if self.end.is_some() {
            return None;
        }
        let at = self.point();
        self.end = Some(End::Lost(at));
        Some(at)
    }

    /// The point at which a lost session was lost, as its group saw it.
    pub(crate) fn lost_in_group(&mut self, at: LostAt) {
        if let Some(End::Lost(before)) = &mut self.end {
            *before = at;
        }
    }

    /// Loses the session if it has not reported in time. After the report the deadlines of its group count.
    pub(crate) fn expire(&mut self, now: Millis) -> Option<LostAt> {
        (now >= self.until && self.stage < Stage::Reported)
            .then(|| self.lose())
            .flatten()
    }

    /// Ends the session with a report after the goal. Returns `false` where it has ended already.
    pub(crate) fn late(&mut self) -> bool {
        let open = self.end.is_none();
        if open {
            self.end = Some(End::Late);
        }
        open
    }

    /// `true` if it is a participation of its subject where its attempt ends now.
    #[must_use]
    pub(crate) fn counts(&self) -> bool {
        match self.end {
            None => self.stage >= Stage::Ready,
            Some(End::Lost(at)) => at.counts(),
            Some(End::Late) => false,
        }
    }

    fn point(&self) -> LostAt {
        match self.stage {
            Stage::Assigned => LostAt::Assigned,
            Stage::Ready => LostAt::Uploading,
            Stage::Reported => LostAt::Reported,
        }
    }
}

/// The sessions of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: BTreeMap<SessionId, Session>,
}

impl Sessions {
    /// No sessions.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds an assigned session. Returns `false` for a session that is known, and changes nothing then.
    pub(crate) fn assign(&mut self, session: SessionId, until: Millis) -> bool {
        let vacant = !self.all.contains_key(&session);
        if vacant {
            self.all.insert(session, Session::new(until));
        }
        vacant
    }

    /// A session.
    #[must_use]
    pub(crate) fn get(&self, session: SessionId) -> Option<&Session> {
        self.all.get(&session)
    }

    /// A session, to move it.
    pub(crate) fn get_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&session)
    }

    /// All sessions, in the order of their identifiers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }

    /// Loses the sessions whose time has passed, and names them.
    pub(crate) fn expire(&mut self, now: Millis) -> Vec<(SessionId, LostAt)> {
        self.all
            .iter_mut()
            .filter_map(|(id, session)| Some((*id, session.expire(now)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAGES: [Stage; 3] = [Stage::Assigned, Stage::Ready, Stage::Reported];

    #[test]
    fn a_loss_counts_from_ready_on() {
        for stage in STAGES {
            let mut session = Session::new(10);
            session.reach(stage).unwrap();
            assert_eq!(session.counts(), stage >= Stage::Ready, "{stage:?}");
            let at = session.lose().unwrap();
            assert_eq!(at.counts(), stage >= Stage::Ready, "{stage:?}");
            assert_eq!(session.counts(), stage >= Stage::Ready, "{stage:?}");
            assert_eq!(session.lose(), None);
        }
    }

    #[test]
    fn a_group_says_where_its_device_was_lost_and_ends_no_session() {
        let mut session = Session::new(10);
        session.reach(Stage::Ready).unwrap();
        session.lost_in_group(LostAt::Shares);
        assert_eq!(session.end(), None);
        session.lose();
        session.lost_in_group(LostAt::Shares);
        assert_eq!(session.end(), Some(End::Lost(LostAt::Shares)));
    }

    #[test]
    fn a_late_report_is_no_participation() {
        let mut session = Session::new(10);
        session.reach(Stage::Ready).unwrap();
        assert!(session.late() && !session.late());
        assert!(!session.counts());
        assert_eq!(session.reach(Stage::Reported), Err(OutOfTurn::Ended(End::Late)));
    }

    #[test]
    fn sessions_that_have_not_reported_expire_at_their_time() {
        let id = |byte| SessionId([byte; 16]);
        let mut sessions = Sessions::new();
        assert!(sessions.assign(id(1), 10) && !sessions.assign(id(1), 99));
        assert!(sessions.assign(id(2), 20) && sessions.assign(id(3), 30));
        sessions.get_mut(id(2)).unwrap().reach(Stage::Reported).unwrap();
        sessions.get_mut(id(3)).unwrap().reach(Stage::Ready).unwrap();
        assert_eq!(sessions.expire(9), []);
        assert_eq!(sessions.expire(25), [(id(1), LostAt::Assigned)]);
        sessions.get_mut(id(3)).unwrap().extend(40);
        assert_eq!(sessions.expire(39), []);
        assert_eq!(sessions.expire(40), [(id(3), LostAt::Uploading)]);
        assert_eq!(sessions.iter().count(), 3);
    }

    proptest! {
        #[test]
        fn a_session_never_goes_back_and_ends_once(steps in prop::collection::vec((0..6usize, 0..50u64), 0..40)) {
            let mut session = Session::new(25);
            let mut now = 0;
            for (step, later) in steps {
                let (before, ended) = (session.stage(), session.end());
                match step {
                    3 => { let _ = session.lose(); }
                    4 => { let _ = session.late(); }
                    5 => { now += later; let _ = session.expire(now); }
                    stage => {
                        let moved = session.reach(STAGES[stage]);
                        prop_assert_eq!(moved.is_ok(), ended.is_none() && STAGES[stage] >= before);
                    }
                }
                prop_assert!(session.stage() >= before);
                prop_assert!(ended.is_none() || session.end() == ended);
            }
        }
    }
}

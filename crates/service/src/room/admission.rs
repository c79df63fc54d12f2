//! Admission: the store decides who takes part, and the room gives the place.
//!
//! | step | lock of the room | what it does |
//! |---|---|---|
//! | begin | held | notes the session as pending |
//! | the store admits | free | checks and holds the subject, and writes the row of the session |
//! | settle | held | makes the pending session one of the attempt |
//!
//! Check-ins that stand before the store at one time are committed together. The same check-in may come twice at once: the
//! first that comes back from the store settles the session, and both get its assignment.

use rand_core::Rng;
use undertone_aggregation::Clipping;
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{
    Assignment, Code, Deadlines, Problem, RoundSettings, SessionClaims, SumMode, TokenKey,
};
use undertone_store::{Admission, Admitted, Millis, SessionId, SessionLimits, SessionState, StoreError};

use super::devices::{Reply, gone};
use super::{Current, Device, Inner, Room, Sums, Uploading};
use crate::attempt::Event;
use crate::error::ServiceError;
use crate::identity::Member;
use crate::identity::person::{departed, revoked, still_here};
use crate::keys::random;
use crate::pace::Cause;

/// A check-in on its way to the store.
#[derive(Debug)]
pub struct Begun {
    /// The admission, as the store gets it.
    pub admission: Admission,
    round: u64,
    /// The name of the subject in the estimate of the population.
    name: ParticipantId,
}

impl Room {
    /// Admits a device to the open attempt. The same check-in gets the same answer.
    ///
    /// # Errors
    /// A refusal with the window in which the device comes back.
    pub fn admit(&self, member: &Member, checkin: [u8; 16], token: &TokenKey) -> Reply<Assignment> {
        self.admit_within(member, checkin, token, SessionLimits::NONE)
    }

    /// Admits a device as [`admit`](Self::admit) does, within limits of its subject.
    ///
    /// # Errors
    /// A refusal with the window in which the device comes back.
    pub(crate) fn admit_within(
        &self,
        member: &Member,
        checkin: [u8; 16],
        token: &TokenKey,
        limits: SessionLimits,
    ) -> Reply<Assignment> {
        let mut begun = self.begin(member, checkin)?;
        begun.admission.limits = limits;
        let answer = self.shared.store.admit(&begun.admission);
        self.settle(&begun, answer, token)
    }

    /// Notes a check-in that goes to the store now.
    ///
    /// # Errors
    /// A refusal where no attempt is open; no entropy.
    pub fn begin(&self, member: &Member, checkin: [u8; 16]) -> Reply<Begun> {
        let (user, device) = self.names_in_store(member)?;
        let name = self.name_in_memory(member);
        let keys = &self.shared.keys;
        let person = keys.person(&self.task.population, &member.issuer, &member.subject);
        let session = SessionId(random()?);
        let mut guard = self.lock();
        let Some(current) = &mut guard.current else {
            drop(guard);
            // No admission says whether the device may take part.
            let store = self.shared.store.as_ref();
            still_here(store, &self.task.population, &member.device, &person)?;
            let now = self.now();
            let mut inner = self.lock();
            inner.population.seen(now, name);
            return Err(self.later(
                &inner,
                Code::NoTask,
                "the task has no open attempt now",
                Cause::Later,
            ));
        };
        current.pending.insert(session, user);
        Ok(Begun {
            admission: Admission {
                attempt: current.id,
                session,
                user,
                person,
                key: member.device,
                device,
                checkin,
                hold_until: current.machine.settings().attempt_until(),
                limits: SessionLimits::NONE,
            },
            round: current.opened.round(),
            name,
        })
    }

    /// Gives a check-in the answer of the store, and its place in the attempt.
    ///
    /// # Errors
    /// A refusal where the store admitted nobody, or the session is over.
    pub fn settle(
        &self,
        begun: &Begun,
        answer: Result<Admitted, StoreError>,
        token: &TokenKey,
    ) -> Reply<Assignment> {
        let Begun {
            admission,
            round,
            name,
        } = begun;
        let mut guard = self.lock();
        let inner = &mut *guard;
        if !matches!(&answer, Ok(Admitted::Revoked | Admitted::Departed(_))) {
            inner.population.seen(self.now(), *name);
        }
        let over = |inner: &Inner| {
            Err(self.later(
                inner,
                Code::Gone,
                "the session of this check-in is over",
                Cause::Later,
            ))
        };
        let current = inner.current.as_mut();
        let current = current.filter(|current| current.id == admission.attempt);
        let session = match &answer {
            Ok(Admitted::Yes) => admission.session,
            Ok(Admitted::Before(session)) => *session,
            _ => {
                if let Some(current) = current {
                    current.pending.remove(&admission.session);
                }
                let answer = answer.map_err(ServiceError::from)?;
                return Err(self.refused(inner, &answer, *round));
            }
        };
        // The attempt has ended meanwhile: whether the session counts is decided by the end of the attempt.
        let Some(current) = current else {
            return over(inner);
        };
        if session != admission.session {
            current.pending.remove(&admission.session);
        }
        if let Some(user) = current.pending.remove(&session) {
            crate::failpoint!("admit.held");
            let draw = inner.rng.next_u64();
            let Some(shard) = current.machine.place(draw) else {
                let full = self.later(inner, Code::Full, "the attempt has its devices", Cause::Later);
                drop(guard);
                self.note(session, SessionState::LostBeforeReady)?;
                return Err(full);
            };
            let now = self.now();
            let until = now + self.task.file.service.deadlines.report.millis();
            current.sessions.assign(session, until);
            let device = Device {
                user,
                shard,
                at: current.shards.place(session),
                upload: Uploading::Nothing,
            };
            current.devices.insert(session, device);
            self.event(inner, now, Event::Slot { session, shard })?;
            crate::failpoint!("admit.assigned");
        }
        let open = inner.current.as_ref();
        if !open.is_some_and(|current| current.devices.contains_key(&session)) {
            return over(inner);
        }
        self.assignment(inner, session, token)
    }

    /// The refusal of a device that the store does not admit.
    fn refused(&self, inner: &Inner, answer: &Admitted, round: u64) -> Problem {
        match answer {
            Admitted::TooSoon { last } => {
                let min_sep = self.min_sep();
                let rounds = (last + min_sep).saturating_sub(round).max(1);
                let why =
                    format!("the subject took part in round {last}, and {min_sep} rounds must lie between");
                self.later(inner, Code::TooSoon, &why, Cause::TooSoon { rounds })
            }
            Admitted::Held(_) => self.later(
                inner,
                Code::TooSoon,
                "the subject has an open session; it may come again after it",
                Cause::TooSoon { rounds: 1 },
            ),
            Admitted::TooOften => self.later(
                inner,
                Code::TooOften,
                "the subject has taken part as often as the task allows",
                Cause::Never,
            ),
            Admitted::Revoked => revoked(),
            Admitted::Departed(how) => departed(*how),
            Admitted::Barred => self.later(
                inner,
                Code::TooOften,
                "the subject takes part in this task no more, by its own wish or that of the operator",
                Cause::Never,
            ),
            Admitted::TooMany => self.later(
                inner,
                Code::TooOften,
                "the subject has opened as many sessions as one attempt allows, and none of them became ready",
                Cause::TooSoon { rounds: 1 },
            ),
            Admitted::TooFast(until) => self.later(
                inner,
                Code::TooSoon,
                "the subject lost a session a short time ago",
                Cause::After(until.saturating_sub(self.now())),
            ),
            Admitted::Yes | Admitted::Before(_) | Admitted::Full => {
                self.later(inner, Code::Full, "the attempt has its devices", Cause::Later)
            }
        }
    }

    /// Notes the state of a session in the store. Call it without the lock of the room: other sessions go on meanwhile. Notes that
    /// pass each other do no harm, since the store moves a session only forward.
    pub(super) fn note(&self, session: SessionId, state: SessionState) -> crate::error::Result<()> {
        Ok(self.shared.store.note_sessions(&[(session, state)])?)
    }

    /// The path under which a device reaches its session.
    fn place_of(&self, current: &Current, device: &Device) -> String {
        let leader = self.cluster.as_ref().map_or("0", |cluster| cluster.name());
        let process = current.shards.process(device.at).unwrap_or(leader);
        format!("/v1/agg/{process}")
    }

    fn assignment(&self, inner: &Inner, session: SessionId, token: &TokenKey) -> Reply<Assignment> {
        let current = inner.current.as_ref().ok_or_else(gone)?;
        let device = current.devices.get(&session).ok_or_else(gone)?;
        let settings = current.machine.settings();
        let claims = SessionClaims {
            session: session.0,
            pseudonym: device.user.get(),
            attempt: current.id.0,
            shard: device.shard,
            expires_ms: settings.attempt_until(),
        };
        let now = self.now();
        let sealed = token.seal(&claims, random()?).map_err(|_| gone())?;
        let plan = current.opened.plan();
        let mut chain = [0; 32];
        if let Some(bytes) = crate::identity::unhex(&current.chain)
            && bytes.len() == 32
        {
            chain.copy_from_slice(&bytes);
        }
        let aggregation = self.task.file.task.aggregation.as_ref();
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let left = |until: Millis| until.saturating_sub(now);
        Ok(Assignment {
            session: session.0.to_vec(),
            token: sealed,
            task: self.task.id.0.to_vec(),
            round: current.opened.round(),
            attempt: current.number,
            aggregator: self.place_of(current, device),
            plan: Some(self.plan.clone()),
            model: Some(current.model.clone()),
            settings: Some(RoundSettings {
                clip_norm: plan.clipping.bound().unwrap_or(0.0),
                layer_norms: match &plan.clipping {
                    Clipping::PerLayer { clip_norms } => clip_norms.clone(),
                    _ => Vec::new(),
                },
                estimate: current.opened.estimate(),
                mode: match &current.sums {
                    Sums::Plain(_) => SumMode::Plain.into(),
                    Sums::Groups(_) => SumMode::Secagg.into(),
                },
                min_clients: narrow(self.task.file.floor()),
                max_clients: narrow(
                    aggregation
                        .and_then(|aggregation| aggregation.max_clients)
                        .unwrap_or(self.task.file.sessions()),
                ),
                modulus: self
                    .task
                    .privacy
                    .encoding()
                    .map_or(0, |encoding| encoding.modulus().get()),
                run: self.names.run().to_vec(),
            }),
            deadlines: Some(Deadlines {
                report_ms: left(settings.report_until()),
                attempt_ms: left(settings.attempt_until()),
            }),
            chain: chain.to_vec(),
            shard: device.shard,
        })
    }
}

#[cfg(test)]
mod tests;

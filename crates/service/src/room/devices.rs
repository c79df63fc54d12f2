//! The requests of devices to the attempt of a task.

use std::sync::{Arc, Mutex};

use undertone_coordinator::task::IdentityLevel;
use undertone_protocol::{Code, Next, Problem, UploadGrant, Wait, limits, next};
use undertone_secagg::Trust;
use undertone_secagg::message::{AdvertiseKeys, Message, RelayedShares, Roster, Survivors, Unmask};
use undertone_store::{SessionId, SessionState, StoreError};

use super::{Current, Inner, Room, Sums, Uploading, lock};
use crate::attempt::Event;
use crate::attempt::group::{Phase, Step};
use crate::attempt::refusal::Refusal;
use crate::attempt::session::{Accepted, Stage};
use crate::error::ServiceError;
use crate::trouble::Seldom;
use crate::upload::Upload;

pub use undertone_protocol::SessionClaims as Claims;

/// The answer to a request of a session.
pub type Reply<T = Next> = std::result::Result<T, Problem>;

pub(super) fn gone() -> Problem {
    Refusal::Gone.problem()
}

pub(super) fn step(step: next::Step) -> Next {
    Next {
        step: Some(step),
        retry: None,
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        static FAILED: Seldom = Seldom::new();
        // A store that does not answer was logged as a trouble of the process.
        let known = matches!(error, ServiceError::Store(StoreError::Unavailable { .. }));
        // PRIVACY: the reason may name files or rows; it stays here.
        if !known && let Some(left_out) = FAILED.speaks() {
            tracing::error!(%error, left_out, "a request failed");
        }
        Problem::new(
            Code::Busy,
            "the service could not serve the request; try again later",
        )
    }
}

impl Room {
    /// The identities that the group of a secure sum accepts.
    pub(super) fn trust(&self) -> Trust {
        super::vouch::trust(&self.task, &self.shared.keys, &self.shared.store)
    }

    /// A session whose update is ready joins its sum. `keys` is empty in a plain attempt.
    ///
    /// # Errors
    /// A refusal: the session is over, or its keys are not accepted.
    pub fn join(&self, claims: &Claims, keys: &[u8]) -> Reply {
        let now = self.now();
        let session = SessionId(claims.session);
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(verdict) = self.ended(inner, session) {
            return Ok(verdict);
        }
        let current = current_of(inner, claims)?;
        let (Some(device), Some(state)) = (
            current.devices.get_mut(&session),
            current.sessions.get_mut(session),
        ) else {
            return Err(gone());
        };
        if state.end().is_some() {
            return Err(gone());
        }
        let (length, what) = match &current.sums {
            Sums::Plain(sum) => {
                let length = sum.upload_bytes();
                (length, next::Step::Upload(grant(length)))
            }
            Sums::Groups(groups) => {
                let group = groups.get(device.shard as usize).ok_or_else(gone)?;
                let mut group = lock(group);
                let joined = group
                    .join(session, device.user, keys)
                    .map_err(|refusal| refusal.problem())?;
                if joined == Accepted::Now
                    && let Err(problem) = self.spend(keys)
                {
                    group.lose(session);
                    return Err(problem);
                }
                let length = group.input_bytes();
                let length = length.map_err(|error| Refusal::from(error).problem())?;
                (length, next::Step::Wait(Wait {}))
            }
        };
        if matches!(device.upload, Uploading::Nothing) {
            let upload = Upload::new(&self.spool, length);
            device.upload = Uploading::Open(Arc::new(Mutex::new(upload)));
        }
        if state.stage() < Stage::Ready {
            state
                .reach(Stage::Ready)
                .map_err(|error| Refusal::OutOfTurn(error.to_string()).problem())?;
            self.event(inner, now, Event::Ready(session))?;
        }
        drop(guard);
        // Also for a repeat, which may overtake the note of the first request: it is answered only after the store has one.
        self.note(session, SessionState::Ready)?;
        Ok(step(what))
    }

    /// Spends the session certificate of a device that has joined. One certificate joins one session, so a subject has at most as
    /// many places in rosters as the issuer has given it certificates.
    fn spend(&self, keys: &[u8]) -> Reply<()> {
        if self.task.file.service.identity == IdentityLevel::Dev {
            return Ok(());
        }
        let keys = AdvertiseKeys::decode(keys).map_err(|error| Refusal::from(error).problem())?;
        // Its certificate has ended by then.
        let until = self.now() + 2 * crate::identity::DAY;
        let spent = self.shared.store.spend(&keys.entry.identity, until);
        match spent.map_err(ServiceError::from)? {
            true => Ok(()),
            false => Err(Problem::new(
                Code::BadCertificate,
                "the session certificate was used before",
            )),
        }
    }

    /// The next step of a session. `after` is the kind of the last message that the device has handled, and 0 before the first.
    ///
    /// # Errors
    /// A refusal: the session is over.
    pub fn next(&self, claims: &Claims, after: u8) -> Reply {
        let session = SessionId(claims.session);
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(answer) = self.settled(inner, claims) {
            return Ok(answer);
        }
        let current = current_of(inner, claims)?;
        let Some(device) = current.devices.get(&session) else {
            return Err(gone());
        };
        match &current.sums {
            Sums::Plain(sum) => {
                let reported = current
                    .sessions
                    .get(session)
                    .is_some_and(|state| state.stage() >= Stage::Reported);
                match reported {
                    true => Ok(step(next::Step::Wait(Wait {}))),
                    false => Ok(step(next::Step::Upload(grant(sum.upload_bytes())))),
                }
            }
            Sums::Groups(groups) => {
                let group = groups.get(device.shard as usize).cloned().ok_or_else(gone)?;
                let after = phase_after(after);
                drop(guard);
                let step_of = lock(&group)
                    .next(session, after)
                    .map_err(|refusal| refusal.problem())?;
                Ok(match step_of {
                    Step::Message(bytes) => step(next::Step::Secagg(bytes)),
                    Step::Wait | Step::Done => step(next::Step::Wait(Wait {})),
                })
            }
        }
    }

    /// Takes a message of a secure sum: shares, a signature, or shares that open the sum.
    ///
    /// # Errors
    /// A refusal: the session is over, or the message is not accepted.
    pub fn message(&self, claims: &Claims, bytes: &[u8]) -> Reply {
        let session = SessionId(claims.session);
        let group = {
            let mut inner = self.lock();
            if let Some(verdict) = self.ended(&inner, session) {
                return Ok(verdict);
            }
            let current = current_of(&mut inner, claims)?;
            match (&current.sums, current.devices.get(&session)) {
                (Sums::Groups(groups), Some(device)) => {
                    groups.get(device.shard as usize).cloned().ok_or_else(gone)?
                }
                _ => return Err(Refusal::OutOfTurn("the task has no secure sum".to_owned()).problem()),
            }
        };
        lock(&group)
            .receive(session, bytes)
            .map_err(|refusal| refusal.problem())?;
        self.notify();
        Ok(step(next::Step::Wait(Wait {})))
    }
}

fn grant(length: u64) -> UploadGrant {
    UploadGrant {
        length,
        chunk: limits::MAX_CHUNK as u32,
    }
}

/// The phase whose message has this kind.
fn phase_after(kind: u8) -> Phase {
    match kind {
        Roster::KIND => Phase::Shares,
        RelayedShares::KIND => Phase::Inputs,
        Survivors::KIND => Phase::Signatures,
        Unmask::KIND => Phase::Unmask,
        _ => Phase::Lobby,
    }
}

pub(super) fn current_of<'i>(inner: &'i mut Inner, claims: &Claims) -> Reply<&'i mut Current> {
    match &mut inner.current {
        Some(current) if current.id.0 == claims.attempt => Ok(current),
        _ => Err(gone()),
    }
}

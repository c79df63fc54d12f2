//! The reports of devices: their uploads, and the commit that adds an upload to its sum.
//!
//! A request that holds an upload may wait for the lock of the room. Nobody waits for an upload, so there is no deadlock: a second
//! request of the session is refused as busy. Updates of several sessions are added beside each other, outside of every lock that
//! they share.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Commit, Problem, Verdict, Wait, crc32c, limits, next};
use undertone_store::{SessionId, SessionState};

use super::devices::{Claims, Reply, current_of, gone, step};
use super::{Inner, Room, Sums, Uploading, lock};
use crate::attempt::Event;
use crate::attempt::group::{AddedVector, Group, Input};
use crate::attempt::plain::{PlainSum, Report};
use crate::attempt::refusal::Refusal;
use crate::attempt::session::Stage;
use crate::upload::{Trouble, Upload};

/// The sum that an upload goes to.
enum Target {
    Plain(Arc<PlainSum>, ParticipantId),
    Group(Arc<Mutex<Group>>),
}

impl Room {
    /// Takes a chunk of an upload, and returns the number of bytes that are there.
    ///
    /// # Errors
    /// A refusal: the session is over, the checksum does not fit, the chunk lies outside the upload or differs from what is there.
    /// [`Code::Busy`](undertone_protocol::Code::Busy) while another request of the session is being served.
    pub fn upload(&self, claims: &Claims, offset: u64, checksum: u32, chunk: &[u8]) -> Reply<u64> {
        self.upload_parts(claims, offset, checksum, &[chunk])
    }

    /// [`upload`](Self::upload) for a chunk in parts that follow each other.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub(crate) fn upload_parts<P: AsRef<[u8]>>(
        &self,
        claims: &Claims,
        offset: u64,
        checksum: u32,
        parts: &[P],
    ) -> Reply<u64> {
        let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        if length > limits::MAX_CHUNK {
            let expected = format!("at most {}", limits::MAX_CHUNK);
            return Err(Refusal::range("the length of a chunk", expected, length).problem());
        }
        let computed = parts.iter().fold(0, |crc, part| crc32c(crc, part.as_ref()));
        if computed != checksum {
            return Err(Refusal::Malformed("the checksum of the chunk does not fit".to_owned()).problem());
        }
        let upload = match self.upload_of(claims)? {
            Uploading::Open(upload) => upload,
            Uploading::Done(length) => return Ok(length),
            Uploading::Nothing => return Err(early()),
        };
        let taken = hold(&upload)?.take(offset, checksum, parts);
        taken.or_else(|trouble| self.fails(claims, trouble))
    }

    /// The number of bytes of an upload that are there.
    ///
    /// # Errors
    /// A refusal: the session is over. [`Code::Busy`](undertone_protocol::Code::Busy) while another request of the session is being served.
    pub fn offset(&self, claims: &Claims) -> Reply<u64> {
        match self.upload_of(claims)? {
            Uploading::Open(upload) => Ok(hold(&upload)?.offset()),
            Uploading::Done(length) => Ok(length),
            Uploading::Nothing => Err(early()),
        }
    }

    fn upload_of(&self, claims: &Claims) -> Reply<Uploading> {
        let session = SessionId(claims.session);
        let mut inner = self.lock();
        let current = current_of(&mut inner, claims)?;
        let state = current.sessions.get(session);
        if state.is_none_or(|state| state.end().is_some()) {
            return Err(gone());
        }
        let device = current.devices.get(&session).ok_or_else(gone)?;
        if device.at != 0 {
            // PRIVACY: a device that goes to two shards is added once.
            return Err(Refusal::OutOfTurn("the upload goes to another process".to_owned()).problem());
        }
        Ok(device.upload.clone())
    }

    /// Ends an upload and adds it to the sum. The first commit of a session counts, and later ones get its answer.
    ///
    /// # Errors
    /// A refusal: the session is over, the upload is not whole, or the update is not accepted.
    /// [`Code::Busy`](undertone_protocol::Code::Busy) while another request of the session is being served.
    pub fn commit(&self, claims: &Claims, commit: &Commit) -> Reply {
        let session = SessionId(claims.session);
        if let Some(answer) = self.settled(&self.lock(), claims) {
            return Ok(answer);
        }
        let upload = match self.upload_of(claims)? {
            Uploading::Open(upload) => upload,
            Uploading::Done(_) => return Ok(step(next::Step::Wait(Wait {}))),
            Uploading::Nothing => return Err(early()),
        };
        let mut upload = hold(&upload)?;
        if upload.is_done() {
            return Ok(step(next::Step::Wait(Wait {})));
        }
        upload.check_length(commit).map_err(|refusal| refusal.problem())?;
        let Some(target) = self.target(claims)? else {
            return self.too_late(&mut self.lock(), session);
        };
        let started = std::time::Instant::now();
        let added = upload.with(commit.crc32c, |bytes| match &target {
            Target::Plain(sum, user) => sum
                .commit(&Report {
                    session,
                    user: *user,
                    bytes,
                    weight: commit.weight,
                    below: commit.below,
                })
                .map(|_| None),
            Target::Group(group) => add_input(group, session, bytes),
        });
        let added = match added {
            Ok(added) => added,
            Err(trouble) => return self.fails(claims, trouble),
        };
        match added {
            Ok(added) => {
                self.note_added(commit.length, started);
                upload.end();
                self.reported(claims, &target, added, commit.length)
            }
            Err(Refusal::Late) => self.too_late(&mut self.lock(), session),
            Err(refusal @ Refusal::Norm) => {
                upload.clear();
                self.lose_session(&mut self.lock(), claims)?;
                Err(refusal.problem())
            }
            Err(refusal) => Err(refusal.problem()),
        }
    }

    /// The sum of a session whose upload is whole; `None` where its attempt takes no more reports.
    fn target(&self, claims: &Claims) -> Reply<Option<Target>> {
        let session = SessionId(claims.session);
        let mut inner = self.lock();
        let current = current_of(&mut inner, claims)?;
        if !current.machine.awaits(session) || !current.shards.grant(session, self.task.file.goal()) {
            return Ok(None);
        }
        let until = current.machine.settings().attempt_until();
        if let Some(state) = current.sessions.get_mut(session) {
            // The device has done its part: the session does not expire while its update is added.
            state.extend(until);
        }
        let device = current.devices.get(&session).ok_or_else(gone)?;
        Ok(Some(match &current.sums {
            Sums::Plain(sum) => Target::Plain(sum.clone(), device.user),
            Sums::Groups(groups) => {
                Target::Group(groups.get(device.shard as usize).cloned().ok_or_else(gone)?)
            }
        }))
    }

    fn too_late(&self, inner: &mut Inner, session: SessionId) -> Reply {
        if let Some(current) = &mut inner.current {
            if let Some(state) = current.sessions.get_mut(session) {
                state.late();
            }
            if let Some(device) = current.devices.get_mut(&session) {
                device.upload = Uploading::Nothing;
            }
        }
        Ok(self.verdict(inner, Verdict::Late))
    }

    /// Counts a session whose update is in its sum. A masked vector becomes one of its group in the same step, so that the group
    /// never closes its inputs with more of them than its attempt has counted.
    fn reported(&self, claims: &Claims, target: &Target, added: Option<AddedVector>, length: u64) -> Reply {
        let now = self.now();
        let session = SessionId(claims.session);
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(answer) = self.settled(inner, claims) {
            // The attempt has its sum, with this update in it, since the addition.
            return Ok(answer);
        }
        let current = current_of(inner, claims)?;
        if let (Target::Group(group), Some(added)) = (target, added) {
            let committed = lock(group).commit_input(added);
            committed.map_err(|refusal| refusal.problem())?;
        }
        if let Some(state) = current.sessions.get_mut(session) {
            // The update is in the sum, whatever the session was taken for.
            let _ = state.reach(Stage::Reported);
        }
        if let Some(device) = current.devices.get_mut(&session)
            && matches!(device.upload, Uploading::Open(_))
        {
            device.upload = Uploading::Done(length);
        }
        self.event(inner, now, Event::Reported(session))?;
        drop(guard);
        self.note(session, SessionState::Reported)?;
        Ok(step(next::Step::Wait(Wait {})))
    }

    /// A device gives its session up.
    ///
    /// # Errors
    /// A refusal: the session is over. [`Code::Busy`](undertone_protocol::Code::Busy) while another request of the session is being served.
    pub fn give_up(&self, claims: &Claims) -> Reply<()> {
        let mut inner = self.lock();
        let current = current_of(&mut inner, claims)?;
        let device = current.devices.get(&SessionId(claims.session));
        let upload = match device.map(|device| &device.upload) {
            Some(Uploading::Open(upload)) => Some(upload.clone()),
            _ => None,
        };
        // An update that is being added cannot be taken out of its sum any more.
        let _held = upload.as_deref().map(hold).transpose()?;
        self.lose_session(&mut inner, claims)
    }

    /// The answer where an upload cannot go on. A damaged one ends its session.
    fn fails<T>(&self, claims: &Claims, trouble: Trouble) -> Reply<T> {
        match trouble {
            Trouble::Refused(problem) => Err(problem),
            Trouble::Damaged => {
                self.lose_session(&mut self.lock(), claims)?;
                Err(gone())
            }
        }
    }

    fn lose_session(&self, inner: &mut Inner, claims: &Claims) -> Reply<()> {
        let now = self.now();
        let session = SessionId(claims.session);
        let current = current_of(inner, claims)?;
        let state = current.sessions.get_mut(session);
        match state.and_then(crate::attempt::session::Session::lose) {
            Some(at) => Ok(self.lose(inner, now, session, at)?),
            None => Ok(()),
        }
    }
}

/// Adds a masked vector. Its group is locked before and afterwards, and not while the vector is added. `None` for a vector that is
/// in the sum already.
fn add_input(
    group: &Mutex<Group>,
    session: SessionId,
    packed: &[u8],
) -> Result<Option<AddedVector>, Refusal> {
    let admitted = lock(group).admit_input(session, packed.len() as u64)?;
    match admitted {
        Input::Before => Ok(None),
        Input::Add(ticket) => Ok(Some(ticket.add_packed(packed)?)),
    }
}

/// The refusal of an upload before its session has joined a sum.
fn early() -> Problem {
    Refusal::OutOfTurn("the session has not joined".to_owned()).problem()
}

/// The upload, for one request at a time. It never waits, so it may be called under the lock of the room.
fn hold(upload: &Mutex<Upload>) -> Reply<MutexGuard<'_, Upload>> {
    match upload.try_lock() {
        Ok(upload) => Ok(upload),
        // A change of an upload is one assignment or append, so a thread that panicked left it whole.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Refusal::Busy.problem()),
    }
}

#[cfg(test)]
mod tests;

//! The requests of devices to the attempt of a task.

use std::sync::{Arc, Mutex, PoisonError};

use undertone_coordinator::task::IdentityLevel;
use undertone_protocol::{
    Assignment, Blob, Code, Commit, Deadlines, Next, Problem, RetryWindow, RoundSettings, SessionClaims,
    SumMode, TokenKey, UploadGrant, Verdict, Wait, crc32c, limits, next,
};
use undertone_secagg::Trust;
use undertone_secagg::message::{AdvertiseKeys, Message, RelayedShares, Roster, Survivors, Unmask};
use undertone_store::{Admission, Admitted, Millis, SessionId, SessionState};
use zeroize::Zeroizing;

use super::upload::Upload;
use super::{Current, Device, Inner, Room, Sums, lock};
use crate::attempt::Event;
use crate::group::{Phase, Step};
use crate::identity::Member;
use crate::keys::random;
use crate::pace::{self, Cause, Demand, Outlook};
use crate::plain::Report;
use crate::refusal::Refusal;
use crate::session::{Accepted, Stage};

pub use undertone_protocol::SessionClaims as Claims;

/// The answer to a request of a session.
pub type Reply<T = Next> = std::result::Result<T, Problem>;

fn gone() -> Problem {
    Refusal::Gone.problem()
}

fn step(what: next::What) -> Next {
    Next {
        what: Some(what),
        retry: None,
    }
}

impl From<crate::error::ServiceError> for Problem {
    fn from(error: crate::error::ServiceError) -> Self {
        // PRIVACY: the reason may name files or rows; it stays here.
        tracing::error!(%error, "a request failed");
        Problem::new(
            Code::Busy,
            "the service could not serve the request; try again later",
        )
    }
}

impl Room {
    /// Admits a device to the open attempt. The same check-in gets the same answer.
    ///
    /// # Errors
    /// A refusal with the window in which the device comes back.
    pub fn admit(&self, member: &Member, checkin: [u8; 16], token: &TokenKey) -> Reply<Assignment> {
        let now = self.now();
        let user = self
            .shared
            .keys
            .pseudonym(self.task.id, &member.issuer, &member.subject);
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.population.seen(now, user);
        let outlook = self.outlook(inner, now);
        let later = |code: Code, why: &str, cause: Cause| {
            Err(Problem::new(code, why).with_retry(pace::window(&outlook, cause)))
        };
        let draw = rand_core::Rng::next_u64(&mut inner.rng);
        let Some(current) = &mut inner.current else {
            return later(Code::NoTask, "the task has no open attempt now", Cause::Later);
        };
        let session = SessionId(random()?);
        let until = now + self.task.file.service.deadlines.report.millis();
        let shard = current.machine.place(draw);
        let admission = Admission {
            attempt: current.id,
            session,
            user,
            device: member.device,
            checkin,
            hold_until: current.machine.settings().attempt_until(),
        };
        // A check-in that was answered before is answered again, even where no place is left.
        match self
            .shared
            .store
            .admit(&admission)
            .map_err(crate::error::ServiceError::from)?
        {
            Admitted::Yes => {
                let Some(shard) = shard else {
                    let lost = [(session, SessionState::LostBeforeReady)];
                    self.shared
                        .store
                        .note_sessions(&lost)
                        .map_err(crate::error::ServiceError::from)?;
                    return later(Code::Full, "the attempt has its devices", Cause::Later);
                };
                current.sessions.assign(session, until);
                let device = Device {
                    user,
                    shard,
                    upload: Arc::new(Mutex::new(Upload::new())),
                };
                current.devices.insert(session, device);
                self.event(inner, now, Event::Slot { session, shard })?;
                self.assignment(inner, session, user.get(), now, token)
            }
            Admitted::Before(session) if current.devices.contains_key(&session) => {
                self.assignment(inner, session, user.get(), now, token)
            }
            Admitted::Before(_) => later(Code::Gone, "the session of this check-in is over", Cause::Later),
            Admitted::Held(_) => later(
                Code::TooSoon,
                "the subject has an open session; it may come again after it",
                Cause::TooSoon { rounds: 1 },
            ),
            Admitted::TooSoon { last } => {
                let min_sep = self.min_sep();
                let round = current.opened.round();
                let rounds = (last + min_sep).saturating_sub(round).max(1);
                let why =
                    format!("the subject took part in round {last}, and {min_sep} rounds must lie between");
                later(Code::TooSoon, &why, Cause::TooSoon { rounds })
            }
            Admitted::TooOften => later(
                Code::TooOften,
                "the subject has taken part as often as the task allows",
                Cause::Never,
            ),
            Admitted::Full => later(Code::Full, "the attempt has its devices", Cause::Later),
        }
    }

    fn min_sep(&self) -> u64 {
        let schema = self.task.file.task.participation.as_ref();
        schema.map_or(1, |schema| schema.min_sep)
    }

    fn outlook(&self, inner: &Inner, now: Millis) -> Outlook {
        let service = &self.task.file.service;
        let demand = Demand {
            goal: u32::try_from(self.task.file.goal()).unwrap_or(u32::MAX),
            over_selection: service.over_selection,
            checkins_per_needed: service.pace.checkins_per_needed,
            min_interval: service.pace.min_interval.millis(),
        };
        let offered = demand.offered(inner.round_time.expected());
        Outlook {
            demand,
            population: inner.population.estimate(now, offered),
            round: inner.round_time.expected(),
            next_attempt: match &inner.current {
                Some(current) if current.machine.free() > 0 => 0,
                Some(current) => (current.opened_at + inner.round_time.expected()).saturating_sub(now),
                None => inner.not_before.saturating_sub(now),
            },
        }
    }

    /// The window for a device that the board finds ineligible, or that has reported.
    #[must_use]
    pub fn window(&self) -> RetryWindow {
        let now = self.now();
        let inner = self.lock();
        pace::window(&self.outlook(&inner, now), Cause::Later)
    }

    fn assignment(
        &self,
        inner: &Inner,
        session: SessionId,
        pseudonym: u64,
        now: Millis,
        token: &TokenKey,
    ) -> Reply<Assignment> {
        let (Some(current), Some(device)) = (
            &inner.current,
            inner
                .current
                .as_ref()
                .and_then(|current| current.devices.get(&session)),
        ) else {
            return Err(gone());
        };
        let settings = current.machine.settings();
        let claims = SessionClaims {
            session: session.0,
            pseudonym,
            attempt: current.id.0,
            shard: device.shard,
            expires_ms: settings.attempt_until(),
        };
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
        Ok(Assignment {
            session: session.0.to_vec(),
            token: sealed,
            task: self.task.id.0.to_vec(),
            round: current.opened.round(),
            attempt: current.number,
            aggregator: "/v1/agg/0".to_owned(),
            plan: Some(Blob::of(&self.task.plan)),
            model: Some(current.model.clone()),
            settings: Some(RoundSettings {
                clip_norm: plan.clipping.bound().unwrap_or(0.0),
                layer_norms: match &plan.clipping {
                    undertone_aggregation::Clipping::PerLayer { clip_norms } => clip_norms.clone(),
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
                report_ms: settings.report_until().saturating_sub(now),
                attempt_ms: settings.attempt_until().saturating_sub(now),
            }),
            chain: chain.to_vec(),
            shard: device.shard,
        })
    }

    /// The identities that the group of a secure sum accepts.
    pub(super) fn trust(&self) -> Trust {
        crate::vouch::trust(&self.task, &self.shared.keys, &self.shared.store)
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
        let Some(device) = current.devices.get(&session) else {
            return Err(gone());
        };
        let length = match &current.sums {
            Sums::Plain(sum) => sum.upload_bytes(),
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
                group
                    .input_bytes()
                    .map_err(|error| Refusal::from(error).problem())?
            }
        };
        lock_upload(&device.upload).length = length;
        let plain = matches!(current.sums, Sums::Plain(_));
        let Some(state) = current.sessions.get_mut(session) else {
            return Err(gone());
        };
        if state.end().is_some() {
            return Err(gone());
        }
        if state.stage() < Stage::Ready {
            state
                .reach(Stage::Ready)
                .map_err(|error| Refusal::OutOfTurn(error.to_string()).problem())?;
            let noted = [(session, SessionState::Ready)];
            self.shared
                .store
                .note_sessions(&noted)
                .map_err(crate::error::ServiceError::from)?;
            self.event(inner, now, Event::Ready(session))?;
        }
        Ok(match plain {
            true => step(next::What::Upload(grant(length))),
            false => step(next::What::Wait(Wait {})),
        })
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
        match spent.map_err(crate::error::ServiceError::from)? {
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
        if let Some(verdict) = self.ended(inner, session) {
            return Ok(verdict);
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
                    true => Ok(step(next::What::Wait(Wait {}))),
                    false => Ok(step(next::What::Upload(grant(sum.upload_bytes())))),
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
                    Step::Message(bytes) => step(next::What::Secagg(bytes)),
                    Step::Wait | Step::Done => step(next::What::Wait(Wait {})),
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
        Ok(step(next::What::Wait(Wait {})))
    }

    /// Takes a chunk of an upload, and returns the number of bytes that are there.
    ///
    /// # Errors
    /// A refusal: the session is over, the checksum does not fit, the chunk lies outside the upload or differs from what is there.
    pub fn upload(&self, claims: &Claims, offset: u64, checksum: u32, chunk: &[u8]) -> Reply<u64> {
        if chunk.len() > limits::MAX_CHUNK {
            let expected = format!("at most {}", limits::MAX_CHUNK);
            return Err(Refusal::range("the length of a chunk", expected, chunk.len()).problem());
        }
        if crc32c(0, chunk) != checksum {
            return Err(Refusal::Malformed("the checksum of the chunk does not fit".to_owned()).problem());
        }
        let upload = self.upload_of(claims)?;
        let mut upload = lock_upload(&upload);
        upload.take(offset, chunk)
    }

    /// The number of bytes of an upload that are there.
    ///
    /// # Errors
    /// A refusal: the session is over.
    pub fn offset(&self, claims: &Claims) -> Reply<u64> {
        let upload = self.upload_of(claims)?;
        let upload = lock_upload(&upload);
        Ok(if upload.done {
            upload.length
        } else {
            upload.bytes.len() as u64
        })
    }

    fn upload_of(&self, claims: &Claims) -> Reply<Arc<Mutex<Upload>>> {
        let session = SessionId(claims.session);
        let mut inner = self.lock();
        let current = current_of(&mut inner, claims)?;
        let open = current
            .sessions
            .get(session)
            .is_some_and(|state| state.end().is_none());
        match current.devices.get(&session) {
            Some(device) if open && lock_upload(&device.upload).length > 0 => Ok(device.upload.clone()),
            Some(_) if open => Err(Refusal::OutOfTurn("the session has not joined".to_owned()).problem()),
            _ => Err(gone()),
        }
    }

    /// Ends an upload and adds it to the sum. The first commit of a session counts, and later ones get its answer.
    ///
    /// # Errors
    /// A refusal: the session is over, the upload is not whole, or the update is not accepted.
    pub fn commit(&self, claims: &Claims, commit: &Commit) -> Reply {
        let session = SessionId(claims.session);
        if let Some(verdict) = self.ended(&self.lock(), session) {
            return Ok(verdict);
        }
        let upload = self.upload_of(claims)?;
        // The additions of several sessions go on beside each other: only this session's upload is locked.
        let mut upload = lock_upload(&upload);
        if upload.done {
            return Ok(step(next::What::Wait(Wait {})));
        }
        if commit.length != upload.length || upload.bytes.len() as u64 != upload.length {
            let expected = format!("{} bytes, all of them sent", upload.length);
            let got = format!("{} of {}", upload.bytes.len(), commit.length);
            return Err(Refusal::range("the upload", expected, got).problem());
        }
        if crc32c(0, &upload.bytes) != commit.crc32c {
            upload.bytes = Zeroizing::new(Vec::new());
            return Err(Refusal::Malformed("the checksum of the upload does not fit".to_owned()).problem());
        }
        let (sums, user, shard) = {
            let mut inner = self.lock();
            let current = current_of(&mut inner, claims)?;
            let device = current.devices.get(&session).ok_or_else(gone)?;
            if !current.machine.awaits(session) {
                return self.too_late(&mut inner, session);
            }
            let sum = match &current.sums {
                Sums::Plain(sum) => Ok(sum.clone()),
                Sums::Groups(groups) => Err(groups.get(device.shard as usize).cloned().ok_or_else(gone)?),
            };
            (sum, device.user, device.shard)
        };
        let added = match &sums {
            Ok(sum) => sum.commit(&Report {
                session,
                user,
                bytes: &upload.bytes,
                weight: commit.weight,
                below: commit.below,
            }),
            Err(group) => lock(group).input(session, &upload.bytes),
        };
        tracing::trace!(shard, "an update was taken");
        match added {
            Ok(_) => {
                upload.done = true;
                upload.bytes = Zeroizing::new(Vec::new());
                drop(upload);
                self.reported(claims, session)
            }
            Err(Refusal::Late) => self.too_late(&mut self.lock(), session),
            Err(refusal @ Refusal::Norm) => {
                upload.bytes = Zeroizing::new(Vec::new());
                drop(upload);
                self.give_up(claims)?;
                Err(refusal.problem())
            }
            Err(refusal) => Err(refusal.problem()),
        }
    }

    fn too_late(&self, inner: &mut Inner, session: SessionId) -> Reply {
        if let Some(current) = &mut inner.current
            && let Some(state) = current.sessions.get_mut(session)
        {
            state.late();
        }
        Ok(self.verdict(inner, Verdict::Late))
    }

    /// The verdict of a session of an earlier attempt.
    fn ended(&self, inner: &Inner, session: SessionId) -> Option<Next> {
        let (verdict, _) = inner.ended.get(&session)?;
        Some(self.verdict(inner, *verdict))
    }

    /// A verdict, with the window in which the device comes back.
    fn verdict(&self, inner: &Inner, verdict: Verdict) -> Next {
        let cause = match verdict {
            Verdict::Late | Verdict::Unspecified => Cause::Later,
            // The subject counts as having taken part.
            Verdict::Included | Verdict::Abandoned => Cause::TooSoon {
                rounds: self.min_sep(),
            },
        };
        Next {
            what: Some(next::What::Verdict(verdict.into())),
            retry: Some(pace::window(&self.outlook(inner, self.now()), cause)),
        }
    }

    fn reported(&self, claims: &Claims, session: SessionId) -> Reply {
        let now = self.now();
        let mut guard = self.lock();
        let inner = &mut *guard;
        let current = current_of(inner, claims)?;
        if let Some(state) = current.sessions.get_mut(session) {
            // The update is in the sum, whatever the session was taken for.
            let _ = state.reach(Stage::Reported);
        }
        let noted = [(session, SessionState::Reported)];
        self.shared
            .store
            .note_sessions(&noted)
            .map_err(crate::error::ServiceError::from)?;
        self.event(inner, now, Event::Reported(session))?;
        Ok(step(next::What::Wait(Wait {})))
    }

    /// A device gives its session up.
    ///
    /// # Errors
    /// A refusal: the session is over.
    pub fn give_up(&self, claims: &Claims) -> Reply<()> {
        let now = self.now();
        let session = SessionId(claims.session);
        let mut guard = self.lock();
        let inner = &mut *guard;
        let current = current_of(inner, claims)?;
        let lost = current
            .sessions
            .get_mut(session)
            .and_then(crate::session::Session::lose);
        match lost {
            Some(at) => Ok(self.lose(inner, now, session, at)?),
            None => Ok(()),
        }
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

fn current_of<'i>(inner: &'i mut Inner, claims: &Claims) -> Reply<&'i mut Current> {
    match &mut inner.current {
        Some(current) if current.id.0 == claims.attempt => Ok(current),
        _ => Err(gone()),
    }
}

fn lock_upload(upload: &Mutex<Upload>) -> std::sync::MutexGuard<'_, Upload> {
    upload.lock().unwrap_or_else(PoisonError::into_inner)
}

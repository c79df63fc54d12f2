//! A service: its tasks, its identities, and the boards that devices read.

mod board;
mod boards;
mod several;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tokio::sync::Semaphore;
use undertone_coordinator::record::EndReason;
use undertone_coordinator::task::IdentityLevel;
use undertone_protocol::{
    Assignment, CheckIn, Code, Digest32, Enrol, Enrolled, Problem, RequestSignature, RetryWindow,
    SessionCertificates, SessionKeys, Signed, TaskKind, TaskState, limits, read, write,
};
use undertone_store::{BlobError, Millis, SessionId, StoreError, TaskId, TaskRow};
use zeroize::Zeroizing;

use crate::capacity::Capacity;
use crate::cluster::Cluster;
use crate::error::{Result, ServiceError};
use crate::http::tls::ServerCertificate;
use crate::http::{Connections, Downloads, InFlight, Rates};
use crate::identity::attest::Admissions;
use crate::identity::person::{Arrivals, is_gone, revoked, still_here};
use crate::identity::{self, DAY, Identity, IdentityRefusal, Issuer, IssuerKeys, Member};
use crate::keys::random;
use crate::metrics::{Metrics, ObservedStore};
use crate::pace;
use crate::room::{Claims, LeftOver, Reply, Room, Shared};
use crate::storage::spool::Spool;
use crate::task::{self, Task};
use crate::trouble::{Trouble, Troubles};
use boards::Boards;

pub(crate) use several::CheckedIn;

/// Session certificates that a subject may have per day of a window.
const CERTIFICATES_PER_DAY: u32 = 8;

/// The time until a task that could not go on is led again, in milliseconds of the store.
const RETRY: Millis = 1000;

/// The next try to lead a task.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Millis,
    /// The blobs must take as many bytes as a release has before, because they refused some.
    tries_blobs: bool,
}

/// A service in one process. Its methods block; listeners give them a thread.
pub struct Service {
    shared: Arc<Shared>,
    spool: Arc<Spool>,
    in_flight: InFlight,
    downloads: Downloads,
    rates: Rates,
    /// The connections of devices.
    connections: Arc<Connections>,
    /// The certificate of TLS that the listener shows.
    certificate: OnceLock<Arc<ServerCertificate>>,
    /// One permit per update that is checked and added.
    workers: Semaphore,
    identity: Identity,
    /// The rules of enrolment; the defaults until they are set.
    admissions: OnceLock<Admissions>,
    /// The rules before: no evidence is accepted.
    closed_admissions: Admissions,
    issuers: IssuerKeys,
    token: Zeroizing<[u8; 32]>,
    rooms: RwLock<BTreeMap<TaskId, Arc<Room>>>,
    boards: Boards,
    /// The last check-ins of people.
    arrivals: Arrivals,
    /// The other processes, once this one has joined them.
    cluster: OnceLock<Arc<Cluster>>,
    /// The attempts of rooms that could not go on, for the next rooms of their tasks.
    left: Mutex<BTreeMap<TaskId, LeftOver>>,
    /// The parts of sums that this process holds for other leaders.
    shards: crate::cluster::shard::Shards,
    /// The tasks that other processes lead.
    elsewhere: RwLock<BTreeMap<TaskId, Arc<several::Elsewhere>>>,
    /// `true` once the service assigns nobody any more.
    closed: AtomicBool,
    metrics: Arc<Metrics>,
    troubles: Arc<Troubles>,
    /// The next tries to lead tasks that could not go on.
    retries: Mutex<BTreeMap<TaskId, Retry>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

fn refused(refusal: IdentityRefusal) -> Problem {
    Problem::new(refusal.code, refusal.reason)
}

fn malformed(error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Malformed, error.to_string())
}

fn store(error: StoreError) -> Problem {
    Problem::from(ServiceError::from(error))
}

/// `true` for a task that a process leads.
fn is_live(state: TaskState) -> bool {
    matches!(state, TaskState::Active | TaskState::Paused)
}

impl Service {
    /// A service over a store. It leads no task yet.
    ///
    /// # Errors
    /// No entropy.
    pub fn new(shared: Shared, identity: Identity) -> Result<Self> {
        Self::with_capacity(shared, identity, &Capacity::default())
    }

    /// A service over a store, with this share of its machine. It leads no task yet.
    ///
    /// # Errors
    /// No entropy.
    pub fn with_capacity(mut shared: Shared, identity: Identity, capacity: &Capacity) -> Result<Self> {
        let folder = capacity.spool_folder.clone();
        let spool = Spool::new(capacity.spool_ram, &folder.unwrap_or_else(std::env::temp_dir))?;
        let metrics = Arc::new(Metrics::default());
        let troubles = Arc::new(Troubles::default());
        shared.store = Arc::new(ObservedStore::new(
            shared.store,
            metrics.clone(),
            troubles.clone(),
        ));
        let issuers = IssuerKeys::of(&shared.keys);
        Ok(Self {
            issuers,
            identity,
            admissions: OnceLock::new(),
            closed_admissions: Admissions::default(),
            spool: Arc::new(spool),
            in_flight: InFlight::new(capacity.in_flight),
            downloads: Downloads::new(capacity.downloads),
            rates: Rates::new(&capacity.rates),
            connections: Arc::new(Connections::new(capacity.connections(), Some(troubles.clone()))),
            certificate: OnceLock::new(),
            workers: Semaphore::new(capacity.workers.clamp(1, Semaphore::MAX_PERMITS)),
            token: Zeroizing::new(random()?),
            shared: Arc::new(shared),
            rooms: RwLock::default(),
            boards: Boards::default(),
            arrivals: Arrivals::default(),
            cluster: OnceLock::new(),
            left: Mutex::default(),
            shards: crate::cluster::shard::Shards::default(),
            elsewhere: RwLock::default(),
            closed: AtomicBool::new(false),
            metrics,
            troubles,
            retries: Mutex::default(),
        })
    }

    /// The evidence for identities that this service asks for.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Sets the rules of enrolment, and the verifier of evidence. The first call counts. Until then no evidence is accepted.
    pub fn admit_by(&self, admissions: Admissions) {
        // A second call has no meaning, since rules do not change while devices come.
        let _ = self.admissions.set(admissions);
    }

    fn admissions(&self) -> &Admissions {
        self.admissions.get().unwrap_or(&self.closed_admissions)
    }

    /// The counts and times of this service since its start.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The troubles that this process is in.
    #[must_use]
    pub fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// The things that all tasks share.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// `true` once the service assigns nobody any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The spool of uploads on their way.
    #[must_use]
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }

    /// The key of session tokens.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn token(&self) -> undertone_protocol::TokenKey {
        self.token_key(0)
    }

    /// The memory for bodies of requests.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// The places of downloads.
    pub fn downloads(&self) -> &Downloads {
        &self.downloads
    }

    /// The rates that clients must keep to.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The places of connections of devices.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Shows the end of this certificate among the figures. The first call counts.
    pub fn shows(&self, certificate: Arc<ServerCertificate>) {
        // A certificate that is read again stays the same value.
        let _ = self.certificate.set(certificate);
    }

    /// Reads the certificate of TLS again. Where that fails, the one before stays in use.
    ///
    /// # Errors
    /// [`ServiceError::Value`] naming the file that holds no certificate or no key; a service without TLS.
    pub fn reload(&self) -> Result<()> {
        let none = || ServiceError::Value {
            key: "the certificate of TLS".to_owned(),
            expected: "one, to be read again".to_owned(),
            got: "a server or a process without `--tls`".to_owned(),
        };
        self.certificate.get().ok_or_else(none)?.reload()
    }

    /// The end of the certificate of TLS, where it is known.
    pub fn certificate_ends(&self) -> Option<Millis> {
        self.certificate.get()?.ends()
    }

    /// One permit per update that may be checked and added at one time.
    pub(crate) fn workers(&self) -> &Semaphore {
        &self.workers
    }

    /// Leads the tasks of the store that are neither drafts nor completed, and does what is due in each of them. A task that fails
    /// does not keep the others from going on; its error is logged.
    ///
    /// # Errors
    /// From the store.
    pub fn tick(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let rows = self.shared.store.tasks()?;
        // A release that cannot be kept costs its participants a round, so no attempt opens that could end so.
        let opens = !self.troubles.is_in(Trouble::Disk);
        for row in &rows {
            let room = self.room(row.task.id);
            let live = is_live(row.state);
            if let Some(room) = &room
                && self.must_leave(room)
            {
                self.close_room(row.task.id);
                continue;
            }
            match (room, live) {
                (None, true) if !self.may_lead(row) => {}
                (None, true) if !self.may_retry(row.task.id) => {}
                (None, true) => self.lead(row.task.id),
                (Some(room), true) => match room.tick_while(opens) {
                    Ok(()) => self.goes_on(row.task.id),
                    Err(error) => {
                        self.stumbled(row.task.id, &error);
                        self.keep_left_over(row.task.id, &room);
                        self.leave(row.task.id);
                    }
                },
                // The devices of the last round learn their verdicts.
                (Some(room), false) if row.state == TaskState::Completed && room.has_verdicts() => {}
                (Some(_), false) => self.leave(row.task.id),
                (None, false) => {}
            }
        }
        let live = |id: TaskId| rows.iter().any(|row| row.task.id == id && is_live(row.state));
        self.troubles.keep_tasks(live);
        self.retries().retain(|id, _| live(*id));
        self.look_elsewhere(rows);
        Ok(())
    }

    /// Ends the work of this process: assigns nobody any more, makes the releases whose sums are ready, abandons the other open
    /// attempts, and hands all leases back. Call it when no [`tick`](Self::tick) runs. Tasks keep their state.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for (id, room) in std::mem::take(&mut *self.write_rooms()) {
            if let Err(error) = room.close() {
                tracing::error!(task = %id, %error, "the work at a task could not be ended; its attempt is abandoned at the next start");
            }
        }
    }

    fn lead(&self, id: TaskId) {
        let led = || {
            let row = self.shared.store.task(id)?;
            if self.retries().get(&id).is_some_and(|retry| retry.tries_blobs) {
                self.try_blobs(&row)?;
            }
            let task = Task::load(&row, self.shared.blobs.as_ref(), &self.shared.keys)?;
            self.led(task)
        };
        match led() {
            Ok(Some(room)) => {
                room.report_to(self.metrics.clone());
                self.write_rooms().insert(id, room);
            }
            Ok(None) => {}
            Err(error) => self.stumbled(id, &error),
        }
    }

    /// Stores and deletes as many bytes as the last release of a task has.
    fn try_blobs(&self, row: &TaskRow) -> Result<()> {
        let blobs = &self.shared.blobs;
        let mut length = 0;
        for digest in std::iter::once(&row.head_model).chain(&row.head_state) {
            match blobs.get(digest, 0) {
                Ok(blob) => length += blob.length,
                // A task that only evaluates has none.
                Err(BlobError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // No other blob has these bytes.
        let name: [u8; 32] = random()?;
        let stored = blobs.put(&mut name.chain(std::io::repeat(0).take(length)))?;
        blobs.remove(&stored.digest)?;
        Ok(())
    }

    fn retries(&self) -> std::sync::MutexGuard<'_, BTreeMap<TaskId, Retry>> {
        self.retries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `true` unless the task could not go on a moment ago.
    fn may_retry(&self, id: TaskId) -> bool {
        let now = self.shared.store.now();
        self.retries().get(&id).is_none_or(|retry| retry.at <= now)
    }

    fn goes_on(&self, id: TaskId) {
        self.retries().remove(&id);
        self.troubles.task_works(id);
    }

    /// A task could not go on. It is led again after a moment, and the others go on.
    pub(crate) fn stumbled(&self, id: TaskId, error: &ServiceError) {
        // The first failure may be over with the room that had it.
        let now = self.shared.store.now();
        let refused = matches!(error, ServiceError::Blob(BlobError::Io { .. }));
        self.retries()
            .entry(id)
            .and_modify(|retry| {
                retry.at = now + RETRY;
                retry.tries_blobs |= refused;
            })
            .or_insert(Retry {
                at: now,
                tries_blobs: refused,
            });
        match error {
            // A store that does not answer is a trouble of the process, and no task's.
            ServiceError::Store(StoreError::Unavailable { .. }) => {}
            ServiceError::Store(StoreError::Fenced { .. }) => {
                tracing::warn!(task = %id, %error, "another process leads the task");
            }
            _ => self.troubles.task_failed(id, error),
        }
    }

    /// Destroys the keys of the pseudonyms of tasks that have ended and ask for it, with the rows about their users. A task does so at its
    /// end; this is for one that a crash kept from it, and for one that an earlier version forgot, whose rows it left.
    ///
    /// # Errors
    /// From the store.
    pub fn forget_ended(&self) -> Result<()> {
        let mut gone = false;
        for row in self.shared.store.tasks()? {
            if row.state != TaskState::Completed || row.deleted {
                continue;
            }
            match task::is_forgotten(&row, self.shared.store.as_ref()) {
                Ok(false) => {}
                Ok(true) => {
                    let store = &self.shared.store;
                    gone |= store.forget_pseudonym_key(row.task.id, &self.shared.process)?;
                }
                // A task that this version cannot read keeps the others from nothing.
                Err(error) => tracing::warn!(task = %row.task.id, %error, "an ended task cannot be read"),
            }
        }
        if gone && let Err(error) = self.shared.store.scrub() {
            tracing::warn!(%error, "the files of the database may hold deleted rows yet");
        }
        Ok(())
    }

    fn leave(&self, id: TaskId) {
        self.write_rooms().remove(&id);
    }

    fn write_rooms(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<TaskId, Arc<Room>>> {
        self.rooms.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The room of a task that this process leads.
    #[must_use]
    pub fn room(&self, id: TaskId) -> Option<Arc<Room>> {
        self.rooms
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned()
    }

    fn rooms(&self) -> Vec<Arc<Room>> {
        self.rooms
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// The room of the attempt that a session belongs to.
    fn room_of(&self, claims: &Claims) -> Reply<Arc<Room>> {
        let room = self.rooms().into_iter().find(|room| room.knows(claims));
        room.ok_or_else(|| Problem::new(Code::Gone, "the session is over"))
    }

    /// Ends a task at the wish of its operator.
    ///
    /// # Errors
    /// From the store; a task that this process does not lead.
    pub fn stop(&self, id: TaskId) -> Result<()> {
        self.room(id).map_or(Ok(()), |room| room.end(EndReason::Stopped))
    }

    /// Enrols a device.
    ///
    /// # Errors
    /// A refusal.
    pub fn enrol(&self, population: &str, body: &[u8]) -> Reply<Vec<u8>> {
        let request: Enrol = read("the enrolment", body, limits::MAX_MESSAGE).map_err(malformed)?;
        let now = self.shared.store.now();
        if !self.knows(population).map_err(store)? {
            return Err(Problem::new(
                Code::NotFound,
                "there is no population of this name",
            ));
        }
        let issuer = Issuer::new(&self.shared.keys, population, self.identity);
        let (certificate, subject) = issuer.enrol(&request, now).map_err(refused)?;
        let device: Digest32 = request.device_key.as_slice().try_into().map_err(malformed)?;
        let issuer = self.shared.keys.issuer_name();
        let person = self.shared.keys.person(population, &issuer, &subject);
        let row = self.admissions().enrol(
            self.shared.store.as_ref(),
            &issuer,
            (&device, population, &person),
        )?;
        // A device that has a row renews its certificate, unless its person has gone since.
        still_here(self.shared.store.as_ref(), population, &device, &person)?;
        if row.revoked {
            return Err(revoked());
        }
        Ok(write(&Enrolled {
            certificate: Some(certificate),
        }))
    }

    /// Checks who signed a request.
    fn member(
        &self,
        population: &str,
        certificate: Option<&Signed>,
        signature: &str,
        path: &str,
        body: &[u8],
    ) -> Reply<Member> {
        let now = self.shared.store.now();
        let missing = || Problem::new(Code::BadCertificate, "the request has no certificate");
        let certificate = certificate.ok_or_else(missing)?;
        let member = identity::member(certificate, &self.issuers, population, now).map_err(refused)?;
        let bad =
            |error: undertone_protocol::ProtocolError| Problem::new(Code::BadSignature, error.to_string());
        let signature = RequestSignature::from_header(signature).map_err(bad)?;
        signature
            .check(&member.device, now, "POST", path, body)
            .map_err(bad)?;
        Ok(member)
    }

    /// The name of the subject of a device in a population.
    fn person(&self, population: &str, member: &Member) -> Digest32 {
        self.shared
            .keys
            .person(population, &member.issuer, &member.subject)
    }

    /// Refuses a device that was revoked, and one whose person takes part no more. A check-in needs it only where no admission says so.
    pub(crate) fn still_here(&self, population: &str, member: &Member) -> Reply<()> {
        let person = self.person(population, member);
        still_here(self.shared.store.as_ref(), population, &member.device, &person)
    }

    /// Certifies keys of secure sums for a device that shows its certificate.
    ///
    /// # Errors
    /// A refusal; [`Code::TooOften`] beyond the number of certificates per subject and day.
    pub fn certify(&self, population: &str, signature: &str, path: &str, body: &[u8]) -> Reply<Vec<u8>> {
        let request: SessionKeys = read("the session keys", body, limits::MAX_MESSAGE).map_err(malformed)?;
        let member = self.member(population, request.certificate.as_ref(), signature, path, body)?;
        self.still_here(population, &member)?;
        let now = self.shared.store.now();
        let issuer = Issuer::new(&self.shared.keys, population, self.identity);
        let certificates = issuer.certify(&request.keys, now).map_err(refused)?;
        let number = certificates.len() as u32;
        let counted = issuer.counted_as(&member.subject);
        match self
            .shared
            .store
            .issue(&counted, now / DAY, number, 2 * CERTIFICATES_PER_DAY)
            .map_err(store)?
        {
            true => Ok(write(&SessionCertificates { certificates })),
            false => Err(Problem::new(
                Code::TooOften,
                format!(
                    "a subject gets at most {} session certificates per day",
                    2 * CERTIFICATES_PER_DAY
                ),
            )
            .with_retry(RetryWindow::between(DAY / 4, DAY))),
        }
    }

    /// Takes the check-in of a device.
    ///
    /// # Errors
    /// A refusal, with the window in which the device comes back.
    pub fn check_in(&self, population: &str, signature: &str, path: &str, body: &[u8]) -> Reply<Assignment> {
        let mut asked = None;
        let answer = self
            .checked_in(population, signature, path, body)
            .and_then(|checked| {
                let answer = self.answer(&checked, &mut asked);
                self.answered(&checked, answer.as_ref().err());
                answer
            });
        self.metrics
            .check_in(asked, answer.as_ref().err().map(Problem::code));
        answer
    }

    /// Reads a check-in, and checks who signed it. It does not ask whether the device was revoked or its person has left: the answer does. Then
    /// call [`answered`](Self::answered).
    pub(crate) fn checked_in(
        &self,
        population: &str,
        signature: &str,
        path: &str,
        body: &[u8],
    ) -> Reply<CheckedIn> {
        let request: CheckIn = read("the check-in", body, limits::MAX_MESSAGE).map_err(malformed)?;
        let member =
            Box::new(self.member(population, request.certificate.as_ref(), signature, path, body)?);
        let checkin: [u8; 16] = request.checkin.as_slice().try_into().map_err(malformed)?;
        if request.eligible.len() > limits::MAX_ELIGIBLE {
            return Err(malformed(format!("at most {} tasks", limits::MAX_ELIGIBLE)));
        }
        let now = self.shared.store.now();
        let (person, interval) = (
            self.person(population, &member),
            self.admissions().person().interval,
        );
        if let Err(early) = self.arrivals.note(&person, checkin, now, interval) {
            self.metrics
                .arrived(population, &member.device, request.client_version, now);
            return Err(early);
        }
        let id = |id: &Vec<u8>| Some(TaskId(id.as_slice().try_into().ok()?));
        Ok(CheckedIn {
            population: population.to_owned(),
            member,
            checkin,
            client_version: request.client_version,
            eligible: request.eligible.iter().filter_map(id).collect(),
            evidence: request.evidence,
        })
    }

    /// Notes the end of a check-in. One of a device that was revoked, or whose person has left, leaves no trace.
    pub(crate) fn answered(&self, request: &CheckedIn, refusal: Option<&Problem>) {
        let (population, member) = (&request.population, &request.member);
        if refusal.is_some_and(is_gone) {
            let person = self.person(population, member);
            self.arrivals.forget(&person, request.checkin);
        } else {
            let (version, now) = (request.client_version, self.shared.store.now());
            self.metrics.arrived(population, &member.device, version, now);
        }
    }

    /// The answer of this process to a check-in; `asked` becomes the last task that was asked for a place.
    pub(crate) fn answer(&self, request: &CheckedIn, asked: &mut Option<TaskId>) -> Reply<Assignment> {
        let mut is_here = false;
        let answer = self.offer(request, asked, &mut is_here);
        if answer.is_err() && !is_here {
            self.still_here(&request.population, &request.member)?;
        }
        answer
    }

    /// The answer of the tasks of this process to a check-in. `is_here` becomes `true` once the store has said that the device was not revoked
    /// and that its person has not left. An admission says so, and for any other refusal the store is asked apart.
    pub(crate) fn offer(
        &self,
        request: &CheckedIn,
        asked: &mut Option<TaskId>,
        is_here: &mut bool,
    ) -> Reply<Assignment> {
        if self.closed.load(Ordering::Acquire) {
            let problem = Problem::new(Code::Busy, "the service is being stopped");
            return Err(problem.with_retry(pace::idle(60_000)));
        }
        let mut rooms: Vec<Arc<Room>> = request
            .eligible
            .iter()
            .filter_map(|id| self.room(*id))
            .filter(|room| room.task().population == request.population)
            .collect();
        rooms.sort_by_key(|room| std::cmp::Reverse(room.need()));
        rooms.dedup_by_key(|room| room.task().id);
        let token = self.token_key(0);
        let mut last = None;
        let count = |room: &Room, answer: Result<SessionId, Code>| {
            let funnels = self.metrics.funnels();
            funnels.answered(
                room.task().id,
                request.client_version,
                &request.member.device,
                answer,
            );
        };
        // Judged for the first task that asks for it.
        let mut verdict: Option<Reply<()>> = None;
        for room in rooms {
            *asked = Some(room.task().id);
            let version = room.task().file.service.eligibility.min_client_version;
            let attested = room.task().file.service.identity == IdentityLevel::Attested;
            let is_old = request.client_version < version;
            // Evidence is judged, and counted for its hardware, before the task is asked for a place.
            if (is_old || attested) && !*is_here {
                self.still_here(&request.population, &request.member)?;
                *is_here = true;
            }
            if is_old {
                count(&room, Err(Code::Upgrade));
                last = Some(Problem::new(
                    Code::Upgrade,
                    format!("the task needs version {version} of the app"),
                ));
                continue;
            }
            if attested {
                let store = self.shared.store.as_ref();
                let judged = verdict.get_or_insert_with(|| {
                    self.admissions()
                        .attest(store, &request.population, &request.member, &request.evidence)
                });
                if let Err(problem) = judged {
                    count(&room, Err(problem.code()));
                    last = Some(problem.clone());
                    continue;
                }
            }
            let limits = self.admissions().person().sessions();
            match room.admit_within(&request.member, request.checkin, &token, limits) {
                Ok(assignment) => {
                    if let Ok(session) = assignment.session.as_slice().try_into() {
                        count(&room, Ok(SessionId(session)));
                    }
                    return Ok(assignment);
                }
                Err(problem) if is_gone(&problem) => return Err(problem),
                Err(problem) => {
                    *is_here = true;
                    count(&room, Err(problem.code()));
                    last = Some(problem);
                }
            }
        }
        let none = || Problem::new(Code::NoTask, "none of the tasks takes devices now");
        let problem = last.unwrap_or_else(none);
        match problem.retry {
            Some(_) => Err(problem),
            None => Err(problem.with_retry(pace::idle(900_000))),
        }
    }

    /// The claims of a session token, with the room of its attempt.
    ///
    /// # Errors
    /// [`Code::Gone`] for a token of an earlier process, of another session, or after its end.
    pub fn session(&self, token: &[u8], session: &[u8]) -> Reply<(Arc<Room>, Claims)> {
        let gone = || Problem::new(Code::Gone, "the session is over");
        let claims = self.open_token(token).ok_or_else(gone)?;
        if claims.session != session {
            return Err(gone());
        }
        Ok((self.room_of(&claims)?, claims))
    }

    /// A blob that devices may read: a plan, a vocabulary, a released model.
    ///
    /// # Errors
    /// [`Code::NotFound`] for any other digest.
    pub fn blob(&self, digest: &Digest32) -> Reply<Vec<u8>> {
        let missing = || Problem::new(Code::NotFound, "there is no blob of this digest");
        self.may_read(digest)?;
        crate::storage::blobs::read(self.shared.blobs.as_ref(), digest).map_err(|_| missing())
    }

    /// Checks that devices may read a blob.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub(crate) fn may_read(&self, digest: &Digest32) -> Reply<()> {
        let part_of_task = self.rooms().iter().any(|room| {
            let task = room.task();
            task.vocabulary == *digest || undertone_protocol::digest_of(&task.plan) == *digest
        });
        // PRIVACY: the sealed state of the noise has a digest, too; it is no model of the store, so it is not served.
        let part_of_task = part_of_task || self.is_part_elsewhere(digest);
        match part_of_task || self.shared.store.may_serve(digest).map_err(store)? {
            true => Ok(()),
            false => Err(Problem::new(Code::NotFound, "there is no blob of this digest")),
        }
    }

    /// The purpose of a task, for listings.
    #[must_use]
    pub fn kind(&self, id: TaskId) -> Option<TaskKind> {
        self.shared.store.task(id).ok().map(|row| row.task.kind)
    }
}

//! A task that this process leads: its head, its attempt, and the sessions of its devices.
//!
//! Everything about one attempt lives here, in memory: sessions, uploads, sums and keys. The store knows what a crash must not
//! lose. A thread calls [`Room::tick`], the listeners call the rest.

mod admission;
mod bar;
mod closing;
mod device_ledger;
mod devices;
mod evaluation;
mod figures;
mod groups;
mod guard;
mod left_over;
mod losses;
mod opening;
mod outlook;
mod release;
mod reports;
mod shards;
mod vouch;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use undertone_coordinator::head::{Opened, RunHead};
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::session_terms::TaskSessionTerms;
use undertone_protocol::{Blob, TaskState, Verdict, digest_of};
use undertone_store::{AbandonReason, AttemptId, Blobs, Lease, Millis, SessionId, Store, StoreError};

use crate::attempt::group::{Group, Phase};
use crate::attempt::plain::PlainSum;
use crate::attempt::session::Sessions;
use crate::attempt::{Attempt, Effect, Event};
use crate::cluster::{Cluster, LEASE};
use crate::error::{Result, ServiceError};
use crate::keys::pseudonyms::{self, Pseudonyms};
use crate::keys::{Keys, random};
use crate::pace::{CheckInCounter, RoundTime};
use crate::storage::spool::Spool;
use crate::task::Task;
use crate::upload::Upload;

pub use admission::Begun;
pub use bar::OpenSession;
pub use devices::{Claims, Reply};
pub use evaluation::ReleasedScores;
pub(crate) use evaluation::newest_model;
pub use release::{MODEL, STATE};

/// Attempts after which a task pauses that enough devices came to, and that failed all the same. Also the attempts in a row to which too few
/// came after which the log says so.
const MAX_ABANDONED: u32 = 5;

/// The time from an abandoned attempt to the next one, in milliseconds. It doubles with each attempt in a row to which too few devices came,
/// up to the time that an attempt waits for devices.
const RETRY: Millis = 1000;

/// The max time to the next attempt, in milliseconds, where an attempt waits for devices for a shorter time.
const MAX_RETRY: Millis = 60_000;

/// The end of a session is kept for its device for this long, in milliseconds.
const VERDICTS_KEPT: Millis = 10 * 60_000;

/// The things that all tasks of a service share.
pub struct Shared {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The blobs.
    pub blobs: Arc<dyn Blobs>,
    /// The keys.
    pub keys: Keys,
    /// The name of this process, unique over restarts.
    pub process: String,
    /// A file outside the backup of the store that remembers the newest head of each task; none where it is empty.
    pub witness: Option<std::path::PathBuf>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

/// A task that this process leads.
pub struct Room {
    shared: Arc<Shared>,
    spool: Arc<Spool>,
    task: Task,
    pseudonyms: Pseudonyms,
    /// The signed plan, as devices read it.
    plan: Blob,
    names: TaskSessionTerms,
    /// Hides the keys of devices in the rows of sessions.
    salt: [u8; 32],
    inner: Mutex<Inner>,
    /// Grows with everything that a waiting device may want to know.
    changed: tokio::sync::watch::Sender<u64>,
    /// The metrics of the service, once it has this room.
    metrics: std::sync::OnceLock<Arc<crate::metrics::Metrics>>,
    /// The time of a lease, in milliseconds.
    lease_time: Millis,
    /// The other processes; `None` for a service of one.
    cluster: Option<Arc<Cluster>>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room")
            .field("task", &self.task.id)
            .finish_non_exhaustive()
    }
}

/// The state of a room, under one lock.
struct Inner {
    lease: Lease,
    state: TaskState,
    /// `None` while a release is made, and after it was lost.
    head: Option<RunHead>,
    /// The model of the head, as devices read it.
    model: Blob,
    current: Option<Current>,
    /// The attempt whose release is being made. Its devices wait for their verdict.
    releasing: Option<AttemptId>,
    /// The ends of sessions of earlier attempts.
    ended: BTreeMap<SessionId, (Verdict, Millis)>,
    /// Attempts that failed since the last release though enough devices came to them.
    failed: u32,
    /// Attempts abandoned in a row to which fewer devices came than a release needs.
    deserted: u32,
    rng: ChaCha20Rng,
    population: CheckInCounter,
    /// The estimate of the population, with the time at which it was made.
    estimate: Cell<Option<(Millis, u64)>>,
    round_time: RoundTime,
    /// The time when the current round's first attempt was opened.
    round_opened: Option<Millis>,
    /// No attempt opens before this time.
    not_before: Millis,
    /// The failure that left a change half made, for example at the request of a device. The task is then led anew.
    broken: Option<String>,
    /// The participants of an attempt whose end the store has not answered yet.
    ending: Option<LeftOver>,
}

/// An attempt that this process had open, with those of its users who count as having taken part.
pub(crate) type LeftOver = (AttemptId, Vec<ParticipantId>);

impl Inner {
    /// Notes the failure of a change.
    fn noted<T>(&mut self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.broken.get_or_insert_with(|| error.to_string());
        }
        done
    }
}

/// The attempt that is open.
struct Current {
    id: AttemptId,
    /// The number of the attempt within the round.
    number: u32,
    machine: Attempt,
    sessions: Sessions,
    /// Check-ins that stand before the store. An answer of the store makes each of them a device, or nothing.
    pending: BTreeMap<SessionId, ParticipantId>,
    devices: BTreeMap<SessionId, Device>,
    opened: Opened,
    /// The model that its devices load.
    model: Blob,
    /// The digest of the last line of the ledger.
    chain: String,
    sums: Sums,
    wake: Option<Millis>,
    /// The phases of groups that are to be closed when the groups are moved on next.
    due: Vec<(u32, Phase)>,
    opened_at: Millis,
    release: bool,
    /// The parts of the sum that other processes hold.
    shards: shards::Shards,
}

/// A session's device.
struct Device {
    user: ParticipantId,
    shard: u32,
    /// The shard of the sum of a plain attempt: 0 for the leader's own.
    at: u32,
    upload: Uploading,
}

/// The upload of a device.
#[derive(Clone)]
enum Uploading {
    /// The device has not joined its sum, or its session was lost.
    Nothing,
    /// The upload is on its way, or is being added.
    Open(Arc<Mutex<Upload>>),
    /// The upload is in its sum, and had this many bytes. A cohort has thousands of these, so nothing else is kept of it.
    Done(u64),
}

/// The sums of an attempt.
enum Sums {
    Plain(Arc<PlainSum>),
    Groups(Vec<Arc<Mutex<Group>>>),
}

/// Locks a value. A thread that panicked holds no half change of it: every change is made whole by its type.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Room {
    /// Leads a task: takes its lease, abandons what an earlier process left open, loads the head, compares it with the published
    /// heads, and publishes what was committed and not published.
    ///
    /// # Errors
    /// [`ServiceError::Halted`] where store and published heads disagree, or the state of the noise is missing or damaged: the task
    /// is then halted in the store, too. `Ok(None)` while another process leads the task.
    pub fn lead(shared: Arc<Shared>, spool: Arc<Spool>, task: Task) -> Result<Option<Arc<Self>>> {
        Self::lead_among(shared, spool, task, None, None)
    }

    /// Leads a task as [`lead`](Self::lead) does, as one of several processes. `left` is the attempt that an earlier room of this process
    /// had open: its participants count, also where a server that crashed has forgotten them.
    ///
    /// # Errors
    /// The errors of [`lead`](Self::lead).
    pub(crate) fn lead_among(
        shared: Arc<Shared>,
        spool: Arc<Spool>,
        task: Task,
        cluster: Option<Arc<Cluster>>,
        left: Option<&LeftOver>,
    ) -> Result<Option<Arc<Self>>> {
        let lease_time = cluster.as_ref().map_or(LEASE, |cluster| cluster.lease());
        let Some(lease) = shared.store.lease(task.id, &shared.process, lease_time)? else {
            return Ok(None);
        };
        crate::failpoint!("lead.leased");
        let row = shared.store.task(task.id)?;
        let digest = task.pseudonyms.as_ref();
        let pseudonyms = Pseudonyms::open(shared.store.as_ref(), &shared.keys, task.id, digest)?
            .ok_or_else(|| pseudonyms::destroyed(&task.file.task.name))?;
        let names = TaskSessionTerms::new(&task.id.0, digest_of(&task.plan), &random()?);
        let until = task.file.service.deadlines.report.millis();
        let room = Self {
            pseudonyms,
            plan: Blob::of(&task.plan),
            names,
            salt: random()?,
            inner: Mutex::new(Inner {
                lease: lease.clone(),
                state: row.state,
                head: None,
                model: Blob::default(),
                current: None,
                releasing: None,
                ended: BTreeMap::new(),
                failed: 0,
                deserted: 0,
                rng: ChaCha20Rng::from_seed(random()?),
                population: CheckInCounter::new(shared.store.now(), 0),
                estimate: Cell::new(None),
                round_time: RoundTime::new(until),
                round_opened: None,
                not_before: 0,
                broken: None,
                ending: None,
            }),
            changed: tokio::sync::watch::Sender::new(0),
            metrics: std::sync::OnceLock::new(),
            lease_time,
            cluster,
            shared,
            spool,
            task,
        };
        if row.state != TaskState::Completed {
            // A store of the past abandons and deletes nothing: the newer one may come back.
            room.unless_passing(room.guard())?;
        }
        room.end_left_over(&lease, left)?;
        if row.state != TaskState::Completed {
            let (head, model) = room.unless_passing(room.publish().and_then(|()| room.load()))?;
            let mut inner = room.lock();
            inner.head = Some(head);
            inner.model = model;
            drop(inner);
        }
        Ok(Some(Arc::new(room)))
    }

    /// The task.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// A receiver that wakes with everything that a waiting device may want to know.
    #[must_use]
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn now(&self) -> Millis {
        self.shared.store.now()
    }

    /// Stops the task for good until a person looks at it. A process that leads the task no more halts nothing: what it saw may be the
    /// work of the next leader.
    fn halt(&self, reason: &str) -> ServiceError {
        let store = &self.shared.store;
        let lease = self.lock().lease.clone();
        if let Err(error @ StoreError::Fenced { .. }) = store.renew(&lease, self.lease_time) {
            tracing::warn!(task = %self.task.id, reason, "a process that leads the task no more would halt it");
            return error.into();
        }
        if let Ok(row) = store.task(self.task.id)
            && !matches!(row.state, TaskState::Halted | TaskState::Completed)
        {
            // The error that halts the task is worth more than one of writing it down.
            let _ = store.set_state(
                self.task.id,
                row.state,
                TaskState::Halted,
                &self.shared.process,
                reason,
            );
        }
        self.lock().state = TaskState::Halted;
        tracing::error!(task = %self.task.id, reason, "the task is halted");
        ServiceError::Halted {
            task: self.task.file.task.name.clone(),
            reason: reason.to_owned(),
        }
    }

    /// Does everything that is due: renews the lease, opens an attempt, ends sessions whose time is over, and releases.
    ///
    /// # Errors
    /// [`ServiceError::Halted`]; [`StoreError::Fenced`] where another process leads the task now; [`ServiceError::Broken`] after a
    /// failure at the request of a device. This room is then over, and the task is led anew.
    pub fn tick(&self) -> Result<()> {
        self.tick_while(true)
    }

    /// [`tick`](Self::tick), which opens an attempt only where `opens` says that its release could be kept.
    pub(crate) fn tick_while(&self, opens: bool) -> Result<()> {
        if let Some(reason) = self.lock().broken.clone() {
            return Err(ServiceError::Broken { reason });
        }
        self.keep_lease()?;
        let now = self.now();
        {
            let mut inner = self.lock();
            inner.ended.retain(|_, (_, until)| *until > now);
            inner.state = self.shared.store.task(self.task.id)?.state;
            if inner.current.is_none() && opens {
                self.open_attempt(&mut inner, now)?;
            }
            self.lose_shards(&mut inner)?;
            self.expire(&mut inner, now)?;
        }
        self.advance_groups()?;
        if self
            .lock()
            .current
            .as_ref()
            .is_some_and(|current| current.release)
        {
            self.release()?;
        }
        // Also after a crash between the last release and the end.
        self.complete()
    }

    fn keep_lease(&self) -> Result<()> {
        let mut inner = self.lock();
        // Renewed after a third of it, so that two renewals may fail.
        if inner.lease.until.saturating_sub(self.now()) < self.lease_time - self.lease_time / 3 {
            inner.lease = self.shared.store.renew(&inner.lease, self.lease_time)?;
        }
        Ok(())
    }

    /// Gives an event to the machine and does what it asks for.
    fn event(&self, inner: &mut Inner, now: Millis, event: Event) -> Result<()> {
        let Some(current) = &mut inner.current else {
            return Ok(());
        };
        let effects = current.machine.on(now, event);
        self.apply(inner, now, effects)
    }

    /// Does what the machine asks for. The machine has moved on, so effects that are not done leave the room broken.
    fn apply(&self, inner: &mut Inner, now: Millis, effects: Vec<Effect>) -> Result<()> {
        let done = self.apply_all(inner, now, effects);
        inner.noted(done)
    }

    fn apply_all(&self, inner: &mut Inner, now: Millis, mut effects: Vec<Effect>) -> Result<()> {
        // A phase that closes here arms the deadline of the next one. The wake-up that was asked for before must not replace it.
        effects.sort_by_key(|effect| !matches!(effect, Effect::WakeAt(_)));
        for effect in effects {
            let Some(current) = &mut inner.current else {
                return Ok(());
            };
            match effect {
                // Admission asks the machine itself.
                Effect::OfferSlots(_) => {}
                Effect::CloseSelection => {
                    self.shared.store.close_selection(&inner.lease, current.id)?;
                    crate::failpoint!("attempt.selected");
                }
                Effect::CloseLobby(shard) => self.close_lobby(inner, now, shard)?,
                // The end of a phase may be heavy work, for which the room is not locked.
                Effect::ClosePhase { shard, phase } => current.due.push((shard, phase)),
                Effect::WakeAt(wake) => current.wake = Some(wake),
                Effect::Release => current.release = true,
                Effect::Abandon(reason) => self.abandon(inner, now, reason)?,
            }
        }
        Ok(())
    }

    /// Ends the attempt without a release. Its participants count from now on.
    fn abandon(&self, inner: &mut Inner, now: Millis, reason: AbandonReason) -> Result<()> {
        let Some(current) = inner.current.take() else {
            return Ok(());
        };
        match &current.sums {
            Sums::Plain(sum) => sum.abort(),
            Sums::Groups(groups) => groups.iter().for_each(|group| lock(group).abort()),
        }
        let counted: Vec<ParticipantId> = current.counted().collect();
        inner.ending = Some((current.id, counted.clone()));
        self.shared
            .store
            .abandon(&inner.lease, current.id, reason, &counted)?;
        inner.ending = None;
        crate::failpoint!("attempt.abandoned");
        tracing::warn!(task = %self.task.id, round = current.opened.round(), ?reason, "an attempt was abandoned");
        self.end_sessions(inner, &current, now, Verdict::Abandoned, &[]);
        let came = u64::from(current.machine.counts().assigned);
        let few = reason == AbandonReason::Few || came < self.task.file.floor();
        let wait = match (reason, few) {
            // A planned stop says nothing about the task.
            (AbandonReason::Operator, _) => RETRY,
            // Nor does a quiet night. PRIVACY: an attempt counts for the devices that came to it, so the next one waits longer.
            (_, true) => {
                inner.deserted += 1;
                if inner.deserted == MAX_ABANDONED {
                    self.warn_of_desertion()?;
                }
                let select = self.task.file.service.deadlines.select.millis();
                match came {
                    0 => RETRY,
                    _ => (RETRY << (inner.deserted - 1).min(20)).min(select.max(MAX_RETRY)),
                }
            }
            (_, false) => {
                inner.deserted = 0;
                inner.failed += 1;
                RETRY
            }
        };
        inner.not_before = now + wait;
        if inner.failed >= MAX_ABANDONED {
            let note = format!(
                "{MAX_ABANDONED} attempts were abandoned since the last release, though enough devices came to each; the last one because \
                 of {reason:?}"
            );
            self.pause(inner, &note)?;
        }
        self.notify();
        Ok(())
    }

    /// Says once that too few devices come. The task goes on, since they may come back.
    fn warn_of_desertion(&self) -> Result<()> {
        let users = self.shared.store.observed(self.task.id)?.users;
        // PRIVACY: the log is read by operators.
        let subjects = crate::metrics::in_steps(users)
            .map_or_else(|| "fewer than 10".to_owned(), |users| format!("{users} or more"));
        tracing::warn!(
            task = %self.task.id,
            attempts = MAX_ABANDONED,
            subjects,
            "too few devices came to the last attempts; the task goes on, with longer pauses between them. Subjects that have taken part may \
             have to wait for their next round, or have none left"
        );
        Ok(())
    }

    fn pause(&self, inner: &mut Inner, note: &str) -> Result<()> {
        tracing::warn!(task = %self.task.id, note, "the task pauses");
        match self.shared.store.set_state(
            self.task.id,
            TaskState::Active,
            TaskState::Paused,
            &self.shared.process,
            note,
        ) {
            Ok(()) => inner.state = TaskState::Paused,
            // An operator was faster.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        inner.failed = 0;
        inner.deserted = 0;
        Ok(())
    }

    /// Keeps the verdicts of an attempt for its devices.
    fn end_sessions(
        &self,
        inner: &mut Inner,
        current: &Current,
        now: Millis,
        verdict: Verdict,
        included: &[SessionId],
    ) {
        self.note_passage(current, included);
        for (session, state) in current.sessions.iter() {
            let verdict = match () {
                () if included.binary_search(&session).is_ok() => Verdict::Included,
                () if state.end() == Some(crate::attempt::session::End::Late) => Verdict::Late,
                () => verdict,
            };
            inner.ended.insert(session, (verdict, now + VERDICTS_KEPT));
        }
    }

    /// `true` if the session is one of the open attempt, or has ended a short while ago.
    #[must_use]
    pub fn knows(&self, claims: &Claims) -> bool {
        let inner = self.lock();
        let open = inner
            .current
            .as_ref()
            .is_some_and(|current| current.id.0 == claims.attempt);
        let releasing = inner.releasing.is_some_and(|id| id.0 == claims.attempt);
        open || releasing || inner.ended.contains_key(&SessionId(claims.session))
    }

    /// The attempt that is left to the next room of the task, where this one cannot go on.
    pub(crate) fn left_over(&self) -> Option<LeftOver> {
        let inner = self.lock();
        let open = || {
            let current = inner.current.as_ref()?;
            Some((current.id, current.counted().collect()))
        };
        inner.ending.clone().or_else(open)
    }

    /// `true` while no release is being made and every session of the open attempt has ended: nobody loses anything by its end.
    #[must_use]
    pub(crate) fn is_vacant(&self) -> bool {
        let inner = self.lock();
        let empty = |current: &Current| {
            current
                .sessions
                .iter()
                .all(|(_, session)| session.end().is_some())
        };
        inner.releasing.is_none() && inner.current.as_ref().is_none_or(empty)
    }

    /// Number of devices that the open attempt still wants.
    #[must_use]
    pub fn need(&self) -> u32 {
        self.lock()
            .current
            .as_ref()
            .map_or(0, |current| current.machine.free())
    }

    /// Bytes that a device loads, and sends, in one round.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let model = self.lock().model.length;
        (
            model + self.task.plan.len() as u64,
            crate::task::upload_bytes(&self.task.privacy),
        )
    }
}

impl Current {
    /// Users whose sessions count as participations.
    fn counted(&self) -> impl Iterator<Item = ParticipantId> + '_ {
        self.sessions
            .iter()
            .filter(|(_, session)| session.counts())
            .filter_map(|(id, _)| self.devices.get(&id).map(|device| device.user))
    }
}

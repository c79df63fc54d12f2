//! A store in memory.

mod oversight;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::participation::policy::Last;
use undertone_protocol::{Digest32, TaskState};

use crate::audit::AuditRow;
use crate::clock::{Clock, SystemClock, Watch};
use crate::rules::{self, AttemptFacts, Lost, Receipt, Standing, TaskFacts, missing};
use crate::{
    AbandonReason, Admission, Admitted, AttemptId, AttemptState, Departure, DeviceRow, Lease, Millis,
    NewTask, ProcessRow, Quota, Result, SessionId, SessionState, TaskHolder, TaskId, TaskRow, Unpublished,
};

/// A store in memory, for simulations and tests. It forgets everything at the end of the process.
///
/// # Guarantee
/// Every transaction has the outcome that it has on a database, with the same words in its errors.
pub struct Memory {
    watch: Watch,
    state: Mutex<State>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    start: u64,
    /// Tasks in the order of their creation.
    tasks: Vec<Task>,
    /// Attempt `n` stands at `n - 1`.
    attempts: Vec<Attempt>,
    sessions: HashMap<SessionId, Session>,
    checkins: HashMap<(Digest32, [u8; 16]), SessionId>,
    devices: HashMap<Digest32, Device>,
    /// The departures of subjects, by their hashes in each population.
    departed: BTreeMap<String, HashMap<Digest32, Departure>>,
    spent: HashMap<Digest32, Millis>,
    counters: HashMap<(Digest32, u64), Counter>,
    processes: BTreeMap<String, ProcessRow>,
    /// The sealed keys of pseudonyms.
    pseudonym_keys: HashMap<TaskId, Vec<u8>>,
    audit: Vec<AuditRow>,
}

struct Device {
    row: DeviceRow,
    person: Digest32,
}

struct Counter {
    number: u32,
    at: Millis,
}

struct Task {
    facts: TaskFacts,
    task: NewTask,
    head_model: Digest32,
    head_state: Option<Digest32>,
    users: BTreeMap<ParticipantId, User>,
    barred: BTreeSet<ParticipantId>,
    lines: Vec<Vec<u8>>,
    metrics: Vec<Vec<u8>>,
    models: BTreeMap<u64, Model>,
    /// The histogram of a task whose users were deleted.
    histogram: BTreeMap<u64, u64>,
    deleted: bool,
    pinned: Option<u64>,
}

#[derive(Default)]
struct User {
    last: Option<Last>,
    hold: Option<Millis>,
}

struct Model {
    digest: Digest32,
    /// `None` for the initial model.
    made: Option<Unpublished>,
    published: bool,
}

struct Attempt {
    facts: AttemptFacts,
    number: u32,
    target: u32,
    opened: Millis,
    select_until: Millis,
    report_until: Millis,
    /// Sessions that take a place.
    occupied: u32,
    reason: Option<AbandonReason>,
    closed: Option<Millis>,
    /// The sessions that were not lost before they were ready.
    members: BTreeMap<ParticipantId, SessionId>,
    /// Sessions that were lost before they were ready, by their user and by their device.
    lost: BTreeMap<ParticipantId, Lost>,
    dropped: HashMap<Digest32, Lost>,
    /// The users of an abandoned attempt, ascending.
    participants: Vec<ParticipantId>,
    receipt: Option<Receipt>,
    /// Number of users in its release.
    included: Option<u64>,
}

struct Session {
    attempt: AttemptId,
    user: ParticipantId,
    state: SessionState,
    checkin: (Digest32, [u8; 16]),
    opened: Millis,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl Memory {
    /// A store without tasks that goes by this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            watch: Watch::new(clock),
            state: Mutex::new(State {
                start: 1,
                ..State::default()
            }),
        }
    }

    /// Does what opening a database anew does: attempts that are open can only be abandoned from here on.
    pub fn restart(&self) {
        self.state().start += 1;
    }

    /// The audit log, in its order.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditRow> {
        self.state().audit.clone()
    }

    /// The state. A caller that panicked had not begun to change it: all conditions are checked before the first change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn task(&self, id: TaskId) -> Result<&Task> {
        let found = self.tasks.iter().find(|task| task.facts.id == id);
        found.ok_or_else(|| missing("task", id.to_string()))
    }

    fn task_mut(&mut self, id: TaskId) -> Result<&mut Task> {
        let found = self.tasks.iter_mut().find(|task| task.facts.id == id);
        found.ok_or_else(|| missing("task", id.to_string()))
    }

    fn attempt(&self, id: AttemptId) -> Result<&Attempt> {
        place(id)
            .and_then(|at| self.attempts.get(at))
            .ok_or_else(|| missing("attempt", id.to_string()))
    }

    fn attempt_mut(&mut self, id: AttemptId) -> Result<&mut Attempt> {
        place(id)
            .and_then(|at| self.attempts.get_mut(at))
            .ok_or_else(|| missing("attempt", id.to_string()))
    }

    fn open_attempt(&self, task: TaskId) -> Option<&Attempt> {
        let mut of_task = self
            .attempts
            .iter()
            .rev()
            .filter(|attempt| attempt.facts.task == task);
        // Only the last attempt of a task can be open.
        of_task
            .next()
            .filter(|attempt| rules::is_open(attempt.facts.state))
    }

    /// The facts of a task under a lease, and of its attempt.
    fn led(&self, lease: &Lease, attempt: AttemptId) -> Result<(&TaskFacts, &AttemptFacts)> {
        let facts = &self.task(lease.task)?.facts;
        facts.led_by(lease)?;
        let attempt = &self.attempt(attempt)?.facts;
        attempt.of_task(lease.task)?;
        Ok((facts, attempt))
    }

    fn departure(&self, population: &str, person: &Digest32) -> Option<Departure> {
        self.departed.get(population)?.get(person).copied()
    }

    /// Notes a departure; `false` where that or more was noted before.
    fn depart(
        &mut self,
        now: Millis,
        population: &str,
        person: &Digest32,
        how: Departure,
        actor: &str,
    ) -> bool {
        if self.departure(population, person) >= Some(how) {
            return false;
        }
        let of = self.departed.entry(population.to_owned()).or_default();
        of.insert(*person, how);
        let (action, detail) = rules::departed(population, how);
        self.note(now, actor, action, &detail);
        true
    }

    /// Counts in a window; `false` where it would exceed the limit.
    fn issue(&mut self, now: Millis, quota: &Quota, number: u32) -> bool {
        let counter = self.counters.entry((quota.counter, quota.window));
        let counter = counter.or_insert(Counter { number: 0, at: now });
        let total = u64::from(counter.number) + u64::from(number);
        let fits = total <= u64::from(quota.limit);
        if fits {
            counter.number += number;
            counter.at = now;
        }
        fits
    }

    /// Deletes what a task that has ended knows about users and sessions; `false` where it knows nothing. Its histogram stays.
    fn forget_users(&mut self, id: TaskId) -> Result<bool> {
        let task = self.task_mut(id)?;
        let mut rows = !task.users.is_empty() || !task.barred.is_empty();
        for user in std::mem::take(&mut task.users).into_values() {
            if let Some(last) = user.last {
                *task.histogram.entry(last.participations).or_default() += 1;
            }
        }
        task.barred.clear();
        self.forget_sessions(|attempt| attempt.facts.task == id);
        for attempt in self
            .attempts
            .iter_mut()
            .filter(|attempt| attempt.facts.task == id)
        {
            rows |= !attempt.participants.is_empty();
            attempt.participants.clear();
            attempt.members.clear();
        }
        Ok(rows)
    }

    /// Deletes the sessions of some attempts.
    fn forget_sessions(&mut self, of: impl Fn(&Attempt) -> bool) {
        let (attempts, checkins) = (&mut self.attempts, &mut self.checkins);
        self.sessions.retain(|_, session| {
            let attempt = place(session.attempt).and_then(|at| attempts.get(at));
            let keeps = !attempt.is_some_and(&of);
            if !keeps {
                checkins.remove(&session.checkin);
            }
            keeps
        });
        for attempt in attempts.iter_mut().filter(|attempt| of(attempt)) {
            attempt.lost.clear();
            attempt.dropped.clear();
        }
    }

    fn note(&mut self, at: Millis, actor: &str, action: &str, detail: &str) {
        let last = self.audit.last().map(|row| (row.seq, row.digest.clone()));
        self.audit
            .push(AuditRow::following(last, at, actor, action, detail));
    }

    /// Abandons an attempt that has not ended.
    fn abandon(
        &mut self,
        now: Millis,
        attempt: AttemptId,
        fence: u64,
        reason: AbandonReason,
        users: &[ParticipantId],
    ) -> Result<()> {
        let found = self.attempt_mut(attempt)?;
        let mut participants: Vec<ParticipantId> = found.members.keys().chain(users).copied().collect();
        participants.sort_unstable();
        participants.dedup();
        found.participants.clone_from(&participants);
        found.facts.state = AttemptState::Abandoned;
        found.facts.fence = fence;
        found.reason = Some(reason);
        found.closed = Some(now);
        let (task, round) = (found.facts.task, found.facts.round);
        let task = self.task_mut(task)?;
        for user in participants {
            task.count(user, round);
        }
        Ok(())
    }

    /// The answer to an admission that opens no session; `None` for one that does.
    fn refusal(&self, admission: &Admission, now: Millis) -> Result<Option<Admitted>> {
        let attempt = self.attempt(admission.attempt)?;
        let task = self.task(attempt.facts.task)?;
        let device = self.devices.get(&admission.key);
        let departure = self.departure(&task.task.population, &admission.person);
        let gone = rules::gone(device.is_some_and(|device| device.row.revoked), departure);
        if gone.is_some() {
            return Ok(gone);
        }
        let before = self.checkins.get(&(admission.device, admission.checkin));
        if let Some(&session) = before {
            return Ok(Some(Admitted::Before(session)));
        }
        if task.barred.contains(&admission.user) {
            return Ok(Some(Admitted::Barred));
        }
        let user = task.users.get(&admission.user);
        let session = attempt.members.get(&admission.user);
        let standing = Standing {
            last: user.and_then(|user| user.last),
            hold: user.and_then(|user| user.hold),
            session: session
                .and_then(|id| self.sessions.get(id))
                .map(|found| found.state),
        };
        let (facts, round) = (&task.facts, attempt.facts.round);
        let refused = rules::refusal(
            facts.participation,
            round,
            admission.user,
            &standing,
            now,
            attempt.report_until,
        );
        let lost = attempt.lost.get(&admission.user).copied().unwrap_or_default();
        let dropped = attempt.dropped.get(&admission.device).copied();
        let lost = lost.or(dropped.unwrap_or_default());
        let refused = refused.or_else(|| lost.refusal(admission.limits, now));
        if refused.is_some() {
            return Ok(refused);
        }
        let takes = attempt.facts.state == AttemptState::Selecting
            && facts.state == TaskState::Active
            && attempt.facts.start == self.start
            && now < attempt.select_until
            && attempt.occupied < attempt.target;
        Ok((!takes).then_some(Admitted::Full))
    }
}

impl Task {
    /// Counts a participation and ends the hold.
    fn count(&mut self, user: ParticipantId, round: u64) {
        let found = self.users.entry(user).or_default();
        let (last, before) = found
            .last
            .map_or((round, 0), |last| (last.round, last.participations));
        found.last = Some(Last {
            round: round.max(last),
            participations: before.saturating_add(1),
        });
        found.hold = None;
    }

    fn row(&self) -> TaskRow {
        TaskRow {
            task: self.task.clone(),
            state: self.facts.state,
            head_round: self.facts.head_round,
            head_model: self.head_model,
            head_state: self.head_state,
            chain: self.facts.chain.clone(),
            fence: self.facts.fence,
            holder: self.facts.owner.clone().map(|process| TaskHolder {
                process,
                until: self.facts.until,
            }),
            deleted: self.deleted,
            pinned: self
                .pinned
                .and_then(|round| Some((round, self.models.get(&round)?.digest))),
        }
    }
}

fn place(attempt: AttemptId) -> Option<usize> {
    usize::try_from(attempt.0.checked_sub(1)?).ok()
}

//! The conditions of transactions, as pure functions of rows. Every store calls these, so no two stores refuse differently.

use sha2::{Digest, Sha256};
use undertone_accounting::participation::Participation;
use undertone_coordinator::participation::policy::{Last, violation};
use undertone_coordinator::participation::{ParticipantId, Violation};
use undertone_protocol::{Digest32, TaskState};

use crate::audit::hex;
use crate::clock::after;
use crate::names::Named;
use crate::oversight::about;
use crate::{
    Admitted, AttemptId, AttemptState, Departure, DeviceRow, Enrolled, Enrolment, Lease, Millis, NewAttempt,
    NewTask, Release, Result, SessionLimits, SessionState, StoreError, TaskId,
};

/// The time for which the sessions of an attempt are kept after its end, in milliseconds: 7 days.
pub(crate) const KEEP_SESSIONS: Millis = 7 * 86_400_000;

/// The time for which a counter of certificates is kept after its last issue, in milliseconds: 60 days, twice the longest life of a
/// certificate.
pub(crate) const KEEP_COUNTERS: Millis = 60 * 86_400_000;

/// The time for which a process that gives no sign of life is listed, in milliseconds: a day.
pub(crate) const KEEP_PROCESSES: Millis = 86_400_000;

/// The columns of a task that transactions depend on.
#[derive(Debug, Clone)]
pub(crate) struct TaskFacts {
    pub(crate) id: TaskId,
    pub(crate) state: TaskState,
    pub(crate) participation: Participation,
    pub(crate) rounds: u64,
    pub(crate) min_included: u64,
    pub(crate) head_round: u64,
    pub(crate) chain: String,
    pub(crate) fence: u64,
    pub(crate) owner: Option<String>,
    pub(crate) until: Millis,
}

/// The columns of an attempt that transactions depend on.
#[derive(Debug, Clone)]
pub(crate) struct AttemptFacts {
    pub(crate) id: AttemptId,
    pub(crate) task: TaskId,
    pub(crate) round: u64,
    pub(crate) state: AttemptState,
    pub(crate) fence: u64,
    /// The start of the database under which it was opened.
    pub(crate) start: u64,
}

pub(crate) fn conflict(
    what: impl Into<String>,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> StoreError {
    StoreError::Conflict {
        what: what.into(),
        expected: expected.into(),
        got: got.into(),
    }
}

pub(crate) fn missing(what: &'static str, name: impl Into<String>) -> StoreError {
    StoreError::Missing {
        what,
        name: name.into(),
    }
}

/// Checks that no task has the identifier or the name of a new one.
pub(crate) fn is_new(taken: bool, task: &NewTask) -> Result<()> {
    ensure(
        !taken,
        format!("the name {:?} in population {:?}", task.name, task.population),
        "a name that no task has",
        "the name of a task",
    )
}

/// A session whose identifier is taken. PRIVACY: no identifier is drawn twice from 16 bytes, so its source is broken.
pub(crate) fn session_taken() -> StoreError {
    conflict("the identifier of a session", "16 fresh bytes", "a known session")
}

/// A model that was never committed.
pub(crate) fn no_model(task: TaskId, round: u64) -> StoreError {
    missing("model", format!("of task {task} after {round} rounds"))
}

/// The detail of an audit row about the state of a task.
pub(crate) fn moved(task: TaskId, from: TaskState, to: TaskState, note: &str) -> String {
    format!("{}{} to {}: {note}", about(task), from.name(), to.name())
}

/// The detail of the audit log for a subject that takes part no more. It does not name the subject.
pub(crate) fn barred(task: TaskId) -> String {
    format!("task {task}: one subject takes part no more")
}

/// The detail of the audit log for the end of a key of pseudonyms.
pub(crate) fn forgotten(task: TaskId) -> String {
    format!("task {task}: the key of its pseudonyms was destroyed")
}

/// Checks that the key of a task's pseudonyms may be destroyed: no admission needs it any more.
pub(crate) fn may_forget(task: TaskId, state: TaskState) -> Result<()> {
    match state {
        TaskState::Completed => Ok(()),
        other => Err(conflict(
            format!("the state of task {task}"),
            "completed, since admission needs the key of the pseudonyms until then",
            other.name(),
        )),
    }
}

/// The act and the detail of the audit log for a departure. It does not name the subject.
pub(crate) fn departed(population: &str, how: Departure) -> (&'static str, String) {
    let (action, what) = match how {
        Departure::Withdrawn => ("withdraw", "one invitation was withdrawn"),
        Departure::Left => ("bar", "one subject takes part no more"),
        Departure::Revoked => ("revoke", "one subject was revoked"),
    };
    (action, format!("population {population}: {what}"))
}

/// The detail of the audit log for a task whose rows were deleted.
pub(crate) fn deleted(task: TaskId) -> String {
    format!("{}its models and its ledger were deleted", about(task))
}

/// The act and the detail of the audit log for a release that was pinned, or is pinned no more.
pub(crate) fn pinned(task: TaskId, round: Option<u64>) -> (&'static str, String) {
    match round {
        Some(round) => (
            "pin",
            format!("task {task}: devices predict with the release after round {round}"),
        ),
        None => (
            "unpin",
            format!("task {task}: devices predict with the newest release"),
        ),
    }
}

/// The error for a release that a task does not have.
pub(crate) fn not_released(task: TaskId, round: u64, released: u64) -> StoreError {
    conflict(
        format!("the pinned release of task {task}"),
        format!("a number of releases from 0 to {released} whose model is there"),
        round.to_string(),
    )
}

/// Checks that a task may be deleted.
pub(crate) fn may_delete(task: TaskId, state: TaskState) -> Result<()> {
    ensure(
        state == TaskState::Completed,
        format!("the state of task {task}"),
        "completed, since only an ended task can be deleted",
        state.name(),
    )
}

/// The name of a device in a database.
///
/// PRIVACY: the key itself is in no file, so nobody finds it there by looking for it. It has too many values to be guessed.
pub(crate) fn device_name(key: &[u8]) -> Digest32 {
    Sha256::new()
        .chain_update(DEVICE)
        .chain_update(key)
        .finalize()
        .into()
}

/// The answer to a device that was revoked, or whose subject takes part in the population no more.
pub(crate) fn gone(revoked: bool, departure: Option<Departure>) -> Option<Admitted> {
    match departure {
        _ if revoked => Some(Admitted::Revoked),
        Some(how) if how.ends_participation() => Some(Admitted::Departed(how)),
        _ => None,
    }
}

/// The bytes before the key of a device in its hash.
pub(crate) const DEVICE: &[u8] = b"undertone device\0";

/// The answer to a device beyond the limits of its subject, which has enrolled `ever` devices and has `devices` now.
pub(crate) fn may_enrol(enrolment: &Enrolment, ever: u64, devices: u64) -> Option<Enrolled> {
    if devices >= u64::from(enrolment.max_devices) {
        return Some(Enrolled::Devices);
    }
    (ever >= u64::from(enrolment.max_enrolments)).then_some(Enrolled::Enrolments)
}

/// The row of a device that is enrolled now.
pub(crate) fn enrolled(population: &str, now: Millis) -> DeviceRow {
    DeviceRow {
        population: population.to_owned(),
        enrolled_day: now / 86_400_000,
        revoked: false,
    }
}

/// The parts of a committed release by which a repeated commit is known. The digest covers the users, whom the line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) round: u64,
    pub(crate) digest: String,
    pub(crate) model: Digest32,
    pub(crate) state: Option<Digest32>,
    pub(crate) noise_key: Option<String>,
}

impl Receipt {
    pub(crate) fn of(release: &Release) -> Self {
        Self {
            round: release.round,
            digest: release.digest.clone(),
            model: release.model,
            state: release.state,
            noise_key: release.noise_key.clone(),
        }
    }

    /// Checks that a release is the committed one.
    pub(crate) fn repeats(&self, release: &Release) -> Result<()> {
        ensure(
            *self == Self::of(release),
            format!("the release of attempt {}", release.attempt),
            format!("line {} and model {}", self.digest, hex(&self.model)),
            format!("line {} and model {}", release.digest, hex(&release.model)),
        )
    }
}

/// A condition, or the conflict of this row.
fn ensure(
    holds: bool,
    what: impl Into<String>,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(conflict(what, expected, got))
    }
}

impl TaskFacts {
    fn name(&self) -> String {
        format!("task {}", self.id)
    }

    /// `true` if the process gets the lease now.
    pub(crate) fn is_free_for(&self, process: &str, now: Millis) -> bool {
        self.until <= now || self.owner.as_deref().is_none_or(|owner| owner == process)
    }

    /// Checks that the lease is the last one, and was not handed back.
    pub(crate) fn led_by(&self, lease: &Lease) -> Result<()> {
        if lease.fence == self.fence && self.owner.as_deref() == Some(lease.process.as_str()) {
            return Ok(());
        }
        Err(StoreError::Fenced {
            fence: lease.fence,
            current: self.fence,
        })
    }

    /// Checks that a person may move the task.
    pub(crate) fn may_move(&self, from: TaskState, to: TaskState, note: &str) -> Result<()> {
        use TaskState::{Active, Draft, Halted, Paused};
        ensure(
            self.state == from,
            format!("the state of {}", self.name()),
            from.name(),
            self.state.name(),
        )?;
        let legal = matches!(
            (from, to),
            (Draft | Paused | Halted, Active) | (Active | Halted, Paused) | (Draft | Active | Paused, Halted)
        );
        ensure(
            legal,
            format!("a move of {} from {}", self.name(), from.name()),
            "a move that the states of a task have",
            format!("a move to {}", to.name()),
        )?;
        ensure(
            from != Halted || !note.trim().is_empty(),
            format!("the note for {}, which is halted", self.name()),
            "a sentence that says why it goes on",
            "an empty note",
        )
    }

    /// Checks that the next attempt can be opened.
    pub(crate) fn may_open(&self, open: Option<AttemptId>, attempt: &NewAttempt) -> Result<()> {
        let what = || format!("the state of {}", self.name());
        ensure(
            self.state == TaskState::Active,
            what(),
            "active",
            self.state.name(),
        )?;
        self.head_is(attempt.round)?;
        ensure(
            self.head_round < self.rounds,
            format!("the head of {}", self.name()),
            format!("a round below {}", self.rounds),
            self.head_round.to_string(),
        )?;
        match open {
            None => Ok(()),
            Some(open) => Err(conflict(
                format!("the open attempt of {}", self.name()),
                "none",
                format!("attempt {open}"),
            )),
        }
    }

    /// Checks that an attempt of a leader's task may be released, before the sum is read.
    pub(crate) fn may_reserve(&self, attempt: &AttemptFacts, start: u64, included: u64) -> Result<()> {
        ensure(
            matches!(attempt.state, AttemptState::Selecting | AttemptState::Reporting),
            attempt.state_name(),
            "selecting or reporting",
            attempt.state.name(),
        )?;
        self.may_release()?;
        self.head_is(attempt.round)?;
        ensure(
            attempt.start == start,
            format!("the start of the database under attempt {}", attempt.id),
            start.to_string(),
            attempt.start.to_string(),
        )?;
        self.above_floor(included)
    }

    /// Checks all of a release but its users.
    pub(crate) fn may_commit(&self, attempt: &AttemptFacts, lease: &Lease, release: &Release) -> Result<()> {
        ensure(
            attempt.state == AttemptState::Releasing,
            attempt.state_name(),
            AttemptState::Releasing.name(),
            attempt.state.name(),
        )?;
        ensure(
            attempt.fence == lease.fence,
            format!("the fence of attempt {}", attempt.id),
            lease.fence.to_string(),
            attempt.fence.to_string(),
        )?;
        self.may_release()?;
        ensure(
            release.round == attempt.round,
            format!("the round of attempt {}", attempt.id),
            attempt.round.to_string(),
            release.round.to_string(),
        )?;
        self.head_is(release.round)?;
        self.above_floor(release.included.len() as u64)?;
        self.follows(&release.line, &release.digest, &release.previous)
    }

    /// Checks that a task may end with this line.
    pub(crate) fn may_end(
        &self,
        open: Option<AttemptId>,
        line: &[u8],
        digest: &str,
        previous: &str,
    ) -> Result<()> {
        ensure(
            !matches!(self.state, TaskState::Draft | TaskState::Completed),
            format!("the state of {}", self.name()),
            "active, paused or halted",
            self.state.name(),
        )?;
        if let Some(open) = open {
            return Err(conflict(
                format!("the open attempt of {}", self.name()),
                "none",
                format!("attempt {open}"),
            ));
        }
        self.follows(line, digest, previous)
    }

    /// PRIVACY: a halted task releases nothing, even what was on its way.
    fn may_release(&self) -> Result<()> {
        ensure(
            matches!(self.state, TaskState::Active | TaskState::Paused),
            format!("the state of {}", self.name()),
            "active or paused",
            self.state.name(),
        )
    }

    fn head_is(&self, round: u64) -> Result<()> {
        ensure(
            self.head_round == round,
            format!("the head of {}", self.name()),
            format!("round {round}"),
            format!("round {}", self.head_round),
        )
    }

    fn above_floor(&self, included: u64) -> Result<()> {
        ensure(
            included >= self.min_included,
            format!("the users in a release of {}", self.name()),
            format!("{} or more", self.min_included),
            included.to_string(),
        )
    }

    /// Checks that a line follows the last one of the ledger, and is the line of its digest.
    fn follows(&self, line: &[u8], digest: &str, previous: &str) -> Result<()> {
        ensure(
            previous == self.chain,
            format!("the end of the ledger of {}", self.name()),
            previous,
            self.chain.as_str(),
        )?;
        let computed = hex(&Sha256::digest(line));
        ensure(digest == computed, "the digest of a line", computed, digest)
    }
}

impl AttemptFacts {
    fn state_name(&self) -> String {
        format!("the state of attempt {}", self.id)
    }

    /// Checks that the attempt belongs to the task of a lease.
    pub(crate) fn of_task(&self, task: TaskId) -> Result<()> {
        ensure(
            self.task == task,
            format!("the task of attempt {}", self.id),
            task.to_string(),
            self.task.to_string(),
        )
    }

    /// Checks that the selection can end.
    pub(crate) fn may_close_selection(&self) -> Result<()> {
        ensure(
            self.state == AttemptState::Selecting,
            self.state_name(),
            AttemptState::Selecting.name(),
            self.state.name(),
        )
    }

    /// `true` if the attempt is to be abandoned now, `false` if it was abandoned before.
    pub(crate) fn may_abandon(&self) -> Result<bool> {
        ensure(
            self.state != AttemptState::Committed,
            self.state_name(),
            "not committed",
            self.state.name(),
        )?;
        Ok(self.state != AttemptState::Abandoned)
    }
}

/// `true` if an attempt in this state has not ended.
pub(crate) fn is_open(state: AttemptState) -> bool {
    !matches!(state, AttemptState::Committed | AttemptState::Abandoned)
}

/// The users of a release in ascending order.
pub(crate) fn distinct(release: &Release) -> Result<Vec<ParticipantId>> {
    let mut users = [&release.included[..], &release.lost].concat();
    users.sort_unstable();
    match users.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(users),
        // PRIVACY: a user who counts twice in one sum moves it by two clip norms.
        Some(pair) => Err(StoreError::Refused(Violation::Twice {
            round: release.round,
            user: pair[0],
        })),
    }
}

/// Checks one user of a release.
pub(crate) fn keeps_to_schema(
    declared: Participation,
    last: Option<Last>,
    round: u64,
    user: ParticipantId,
) -> Result<()> {
    match violation(declared, last, round, user) {
        None => Ok(()),
        Some(found) => Err(StoreError::Refused(found)),
    }
}

/// `true` if a note moves a session from one state to the other.
pub(crate) fn moves(from: SessionState, to: SessionState) -> bool {
    use SessionState::{Assigned, Lost, LostBeforeReady, Ready, Reported};
    matches!(
        (from, to),
        (Assigned, Ready | Reported | LostBeforeReady | Lost) | (Ready, Reported | Lost) | (Reported, Lost)
    )
}

/// `true` if a session in this state takes a place of its attempt.
pub(crate) fn takes_place(state: SessionState) -> bool {
    use SessionState::{Assigned, Included, Ready, Reported};
    matches!(state, Assigned | Ready | Reported | Included)
}

/// The facts about a subject that an admission depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) last: Option<Last>,
    pub(crate) hold: Option<Millis>,
    /// The state of its session in the attempt, if that was not lost before it was ready.
    pub(crate) session: Option<SessionState>,
}

/// The sessions of an attempt that a subject or a device lost before they were ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lost {
    pub(crate) sessions: u32,
    /// The opening of the last one.
    pub(crate) last: Option<Millis>,
}

impl Lost {
    /// Notes a session that was lost.
    pub(crate) fn count(&mut self, opened: Millis) {
        self.sessions = self.sessions.saturating_add(1);
        self.last = self.last.max(Some(opened));
    }

    /// The more of two.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            sessions: self.sessions.max(other.sessions),
            last: self.last.max(other.last),
        }
    }

    /// The answer to a subject or device that opens too many sessions; `None` for one that does not.
    pub(crate) fn refusal(self, limits: SessionLimits, now: Millis) -> Option<Admitted> {
        if self.sessions >= limits.sessions {
            return Some(Admitted::TooMany);
        }
        let next = after(self.last?, limits.interval);
        (now < next).then_some(Admitted::TooFast(next))
    }
}

/// The answer to a subject that may not take part; `None` for one that may.
pub(crate) fn refusal(
    declared: Participation,
    round: u64,
    user: ParticipantId,
    standing: &Standing,
    now: Millis,
    report_until: Millis,
) -> Option<Admitted> {
    if let Some(hold) = standing.hold.filter(|hold| now < *hold) {
        return Some(Admitted::Held(hold));
    }
    match standing.session {
        // The hold has ended, but the session may still become ready.
        Some(SessionState::Assigned) => return Some(Admitted::Held(report_until)),
        // PRIVACY: it counts at the end of the attempt, so it counts now.
        Some(_) => return Some(Admitted::TooSoon { last: round }),
        None => {}
    }
    Some(match violation(declared, standing.last, round, user)? {
        Violation::TooSoon { last, .. } => Admitted::TooSoon { last },
        Violation::OutOfStep {
            came, expected, last, ..
        } if came < expected => Admitted::TooSoon { last },
        // A subject that missed its round in an exact schema never meets one again.
        _ => Admitted::TooOften,
    })
}

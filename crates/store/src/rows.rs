//! The rows of the store, as values.

use std::fmt;

use undertone_accounting::participation::Participation;
use undertone_coordinator::participation::ParticipantId;
use undertone_coordinator::record::AbandonReason;
use undertone_protocol::{Digest32, TaskKind, TaskState};

/// A time in milliseconds since 1970, by the clock of the store.
pub type Millis = u64;

/// The identifier of a task: SHA-256 of its population, its name and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub Digest32);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The number of an attempt in the store. It grows over all tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u64);

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The identifier of a session: 16 bytes of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

/// A task to create, as a draft.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Identifier of the task.
    pub id: TaskId,
    /// Population of the task.
    pub population: String,
    /// Name of the task, which no other task of the population has.
    pub name: String,
    /// Purpose of the task.
    pub kind: TaskKind,
    /// Text of the task's settings, in their canonical form.
    pub config: String,
    /// Digest of the task's signed plan.
    pub plan: Digest32,
    /// The digest that the first line of its ledger follows, in hexadecimal digits.
    pub genesis: String,
    /// The schema that admission and commit enforce.
    pub participation: Participation,
    /// Number of rounds.
    pub rounds: u64,
    /// Min number of users in a release.
    pub min_included: u64,
    /// The initial model: the release of round 0.
    pub model: Digest32,
}

/// A task.
#[derive(Debug, Clone)]
pub struct TaskRow {
    /// The task as it was created. `model` is the initial one.
    pub task: NewTask,
    /// State of the task.
    pub state: TaskState,
    /// Number of released rounds, which is the round that is open.
    pub head_round: u64,
    /// The model after them.
    pub head_model: Digest32,
    /// The sealed noise after them; `None` where there is nothing to keep.
    pub head_state: Option<Digest32>,
    /// The digest of the last line of the ledger, in hexadecimal digits.
    pub chain: String,
    /// The fence of the last lease.
    pub fence: u64,
    /// The holder of the last lease; `None` once it was handed back.
    pub holder: Option<TaskHolder>,
    /// `true` if the task has ended, and its models and its ledger were deleted.
    pub deleted: bool,
    /// The release that boards name for predictions: the number of releases that made it, and its model. `None` for the newest one.
    pub pinned: Option<(u64, Digest32)>,
}

/// The process that leads a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHolder {
    /// The name of the process.
    pub process: String,
    /// The end of its lease, by the clock of the store. The lease may be over.
    pub until: Millis,
}

/// A process to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProcess {
    /// Name of the process, which no other process has at the same time.
    pub name: String,
    /// The address at which other processes reach it.
    pub url: String,
    /// The roles it takes new work for, with commas in between.
    pub roles: String,
}

/// A registered process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRow {
    /// Name of the process.
    pub name: String,
    /// The number of its start. A later start of the same name has a higher one.
    pub epoch: u64,
    /// The address at which other processes reach it.
    pub url: String,
    /// The roles it takes new work for, with commas in between.
    pub roles: String,
    /// Last sign of life of the process, by the clock of the store.
    pub beat: Millis,
}

/// The right to lead a task. A later lease of the task has a higher fence, and makes this one void.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The task.
    pub task: TaskId,
    /// The process that holds it.
    pub process: String,
    /// Grows by one with each lease of the task.
    pub fence: u64,
    /// The end, by the clock of the store.
    pub until: Millis,
}

/// An attempt to open.
#[derive(Debug, Clone, Copy)]
pub struct NewAttempt {
    /// The round, which must be the head of the task.
    pub round: u64,
    /// Number of sessions that may be open or reported at one time.
    pub target: u32,
    /// The end of the selection, by the clock of the store.
    pub select_until: Millis,
    /// The end of the reports, by the clock of the store.
    pub report_until: Millis,
}

/// The state of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptState {
    /// Devices are assigned.
    Selecting,
    /// Devices report.
    Reporting,
    /// The sum is being released.
    Releasing,
    /// The release is out.
    Committed,
    /// There was no release, and there will be none.
    Abandoned,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// The session has its assignment.
    Assigned,
    /// The session has trained, is ready and has joined a sum. From here on it counts as a participation.
    Ready,
    /// The session's update was accepted.
    Reported,
    /// The session was lost before it was ready: it sent nothing.
    LostBeforeReady,
    /// The session was lost after it was ready.
    Lost,
    /// The session is in a release.
    Included,
}

/// A device that asks for a place in an attempt.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The attempt.
    pub attempt: AttemptId,
    /// The session that it gets.
    pub session: SessionId,
    /// The pseudonym of its subject in the task.
    pub user: ParticipantId,
    /// The hash of the subject in its population, by which a departure is known.
    pub person: Digest32,
    /// Key of the device, by which its revocation is known. The store looks for its hash, and no row of a session holds it.
    pub key: Digest32,
    /// A hash of the key of the device, under a salt that is in no file.
    pub device: Digest32,
    /// The check-in, which gets one answer for good.
    pub checkin: [u8; 16],
    /// The end of the hold on the subject, by the clock of the store: until then no other session of it opens.
    pub hold_until: Millis,
    /// The limits of sessions that sent nothing.
    pub limits: SessionLimits,
}

/// The limits of a subject, and of a device, in one attempt. They bound the sessions that were lost before they were ready: any other
/// session is its subject's only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Max number of sessions.
    pub sessions: u32,
    /// Min time from the opening of one session to that of the next, in milliseconds.
    pub interval: Millis,
}

impl SessionLimits {
    /// No limits.
    pub const NONE: Self = Self {
        sessions: u32::MAX,
        interval: 0,
    };
}

/// The answer to an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// A new session.
    Yes,
    /// The session that this check-in was given before.
    Before(SessionId),
    /// The subject has an open session until this time.
    Held(Millis),
    /// The subject took part in this round; it may come again `min_sep` rounds later.
    TooSoon {
        /// The round of its last participation.
        last: u64,
    },
    /// The subject has taken part as often as the task allows.
    TooOften,
    /// The key of the device was revoked.
    Revoked,
    /// The subject takes part in the population no more.
    Departed(Departure),
    /// The subject takes part in the task no more.
    Barred,
    /// The subject or its device had all the sessions of this attempt that it may have.
    TooMany,
    /// The last session of the subject or its device was opened too short a time ago; it may come again at this time.
    TooFast(Millis),
    /// The attempt has its sessions, or takes no more.
    Full,
}

/// A release to commit.
#[derive(Debug, Clone)]
pub struct Release {
    /// The attempt, which must have been reserved.
    pub attempt: AttemptId,
    /// The round.
    pub round: u64,
    /// Users in the sum, each once.
    pub included: Vec<ParticipantId>,
    /// Users who joined the attempt, and are not in the sum.
    pub lost: Vec<ParticipantId>,
    /// The line of the ledger, without a line feed.
    pub line: Vec<u8>,
    /// Digest of the line of the ledger, in hexadecimal digits.
    pub digest: String,
    /// The digest of the line before, in hexadecimal digits.
    pub previous: String,
    /// The model after the round.
    pub model: Digest32,
    /// The sealed noise after the round; `None` where there is nothing to keep.
    pub state: Option<Digest32>,
    /// The name of the key of the round's noise.
    pub noise_key: Option<String>,
    /// A line of `metrics.jsonl`.
    pub metrics: Vec<u8>,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// State of the attempt.
    pub state: AttemptState,
    /// The reason where it was abandoned.
    pub reason: Option<AbandonReason>,
    /// The fence under which it last moved.
    pub fence: u64,
}

/// A committed model that is not published yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpublished {
    /// Number of released rounds.
    pub round: u64,
    /// The attempt that made it.
    pub attempt: AttemptId,
    /// The number of the attempt within its round, from 0.
    pub attempt_of_round: u32,
    /// The model.
    pub model: Digest32,
    /// The sealed noise.
    pub state: Option<Digest32>,
    /// The digest of the line of the ledger, in hexadecimal digits.
    pub chain: String,
}

/// An attempt that made no release, with the users who count as having taken part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbandonedRow {
    /// The round.
    pub round: u64,
    /// The number of the attempt within its round, from 0.
    pub attempt_of_round: u32,
    /// The reason.
    pub reason: AbandonReason,
    /// The users, ascending.
    pub participants: Vec<ParticipantId>,
}

/// The numbers of participations of the users of a task, those in abandoned attempts included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histograms {
    /// Number of users by their number of participations.
    pub participations: Vec<(u64, u64)>,
    /// Number of users that took part at all.
    pub users: u64,
}

/// A subject that takes part in a population no more, or only with the devices that it has. A departure moves down this list alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// The invitation of the subject was withdrawn: it enrols no device any more. Its devices go on.
    Withdrawn,
    /// The subject takes part no more, by its own wish.
    Left,
    /// The operator revoked the subject: it takes part no more.
    Revoked,
}

impl Departure {
    /// `true` if the subject may not take part.
    #[must_use]
    pub fn ends_participation(self) -> bool {
        self >= Self::Left
    }
}

/// A device that asks for its first certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// Key of the device. The store keeps its hash alone.
    pub key: Digest32,
    /// Population of the device.
    pub population: String,
    /// The hash of its subject in the population.
    pub person: Digest32,
    /// Max number of devices of the subject that are not revoked.
    pub max_devices: u32,
    /// Max number of devices that the subject has ever enrolled.
    pub max_enrolments: u32,
    /// The new devices of its issuer on this day. Only a device that its subject may have is counted.
    pub day: Quota,
}

/// A counter with its limit, as [`Store::issue`](crate::Store::issue) counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The name of the counter. The store hides it.
    pub counter: Digest32,
    /// Window of the counter.
    pub window: u64,
    /// Max count in the window.
    pub limit: u32,
}

/// The answer to an enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enrolled {
    /// The device has a row, of now or of before.
    Device(DeviceRow),
    /// The subject enrols no device any more.
    Departed(Departure),
    /// The subject has all the devices that it may have.
    Devices,
    /// The subject has enrolled as many devices as its invitation allows.
    Enrolments,
    /// The issuer has enrolled all the devices of this day.
    Day,
}

/// The standing of a device and its subject.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// The device; `None` where it was never enrolled here.
    pub device: Option<DeviceRow>,
    /// The departure of its subject.
    pub departure: Option<Departure>,
}

/// A device that was given a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRow {
    /// Population of the device.
    pub population: String,
    /// The day of its enrolment, counted from 1970.
    pub enrolled_day: u64,
    /// `true` if its key was revoked.
    pub revoked: bool,
}

//! The structures that functions fill.

use std::ffi::c_char;

use undertone_device::{
    Ended, Evaluation, HeldModel, Outcome, Participation, Progress, Stage, Status, Unmet,
};
use undertone_protocol::Verdict;

use crate::failure::UT_MESSAGE_BYTES;
use crate::text::{fill, room_for};

/// The end of a session.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ut_ended {
    /// The update was sent.
    UT_ENDED_REPORTED = 0,
    /// The device may take part in no task now.
    UT_ENDED_NOT_ELIGIBLE = 1,
    /// The device has no certificate that is valid now: see `ut_device_enrol` and `ut_device_renew`.
    UT_ENDED_NOT_ENROLLED = 2,
    /// The clock of the machine is wrong.
    UT_ENDED_CLOCK = 3,
    /// The service refused the device.
    UT_ENDED_REJECTED = 4,
    /// The device refused the offer of the service.
    UT_ENDED_REFUSED = 5,
    /// The service ended the session before the update was sent.
    UT_ENDED_LOST = 6,
    /// Local training used up its processor time.
    UT_ENDED_OUT_OF_TIME = 7,
    /// Local training gave no update.
    UT_ENDED_NOT_TRAINED = 8,
    /// A condition of the host is not met.
    UT_ENDED_HOST_NOT_READY = 9,
    /// The session was stopped, by the host or by a limit.
    UT_ENDED_STOPPED = 10,
    /// A deadline of the session passed.
    UT_ENDED_TIMED_OUT = 11,
    /// The upload was slower than the plan allows.
    UT_ENDED_TOO_SLOW = 12,
    /// The service cannot be reached.
    UT_ENDED_UNREACHABLE = 13,
    /// Another end, of a library that is newer than the header.
    UT_ENDED_OTHER = 99,
}

impl From<&Ended> for ut_ended {
    fn from(ended: &Ended) -> Self {
        match ended {
            Ended::Reported(_) => Self::UT_ENDED_REPORTED,
            Ended::NotEligible(_) => Self::UT_ENDED_NOT_ELIGIBLE,
            Ended::NotEnrolled => Self::UT_ENDED_NOT_ENROLLED,
            Ended::Clock => Self::UT_ENDED_CLOCK,
            Ended::Rejected(..) => Self::UT_ENDED_REJECTED,
            Ended::Refused(_) => Self::UT_ENDED_REFUSED,
            Ended::Lost(..) => Self::UT_ENDED_LOST,
            Ended::OutOfTime => Self::UT_ENDED_OUT_OF_TIME,
            Ended::NotTrained(_) => Self::UT_ENDED_NOT_TRAINED,
            Ended::HostNotReady(_) => Self::UT_ENDED_HOST_NOT_READY,
            Ended::Stopped => Self::UT_ENDED_STOPPED,
            Ended::TimedOut => Self::UT_ENDED_TIMED_OUT,
            Ended::TooSlow => Self::UT_ENDED_TOO_SLOW,
            Ended::Unreachable => Self::UT_ENDED_UNREACHABLE,
            _ => Self::UT_ENDED_OTHER,
        }
    }
}

/// The word of the service on an update. Nothing rests on it.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ut_verdict {
    /// The service has said nothing.
    UT_VERDICT_UNKNOWN = 0,
    /// The update is in the released sum.
    UT_VERDICT_INCLUDED = 1,
    /// The update came too late for the sum.
    UT_VERDICT_LATE = 2,
    /// The attempt was abandoned, so nothing was released from the update.
    UT_VERDICT_ABANDONED = 3,
}

impl From<Verdict> for ut_verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Unspecified => Self::UT_VERDICT_UNKNOWN,
            Verdict::Included => Self::UT_VERDICT_INCLUDED,
            Verdict::Late => Self::UT_VERDICT_LATE,
            Verdict::Abandoned => Self::UT_VERDICT_ABANDONED,
        }
    }
}

/// The progress of a participation.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ut_progress {
    /// The participation was written down. It counts from here on, whatever happens.
    UT_PROGRESS_BEGUN = 0,
    /// The service accepted the whole update.
    UT_PROGRESS_COMMITTED = 1,
    /// The service named the end of the session; see the verdict.
    UT_PROGRESS_ENDED = 2,
}

/// The stage of a session, in the order in which they come.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ut_stage {
    /// The device reads the board.
    UT_STAGE_BOARD = 0,
    /// The device offers itself to a task.
    UT_STAGE_CHECK_IN = 1,
    /// The device loads the plan, the vocabulary and the model.
    UT_STAGE_LOADING = 2,
    /// The device trains, or measures a model.
    UT_STAGE_TRAINING = 3,
    /// The device waits for its place in a sum.
    UT_STAGE_JOINING = 4,
    /// The device sends its update.
    UT_STAGE_SENDING = 5,
    /// The device waits for the end of the round.
    UT_STAGE_WAITING = 6,
    /// The session is over.
    UT_STAGE_OVER = 7,
}

impl From<Stage> for ut_stage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Board => Self::UT_STAGE_BOARD,
            Stage::CheckIn => Self::UT_STAGE_CHECK_IN,
            Stage::Loading => Self::UT_STAGE_LOADING,
            Stage::Training => Self::UT_STAGE_TRAINING,
            Stage::Joining => Self::UT_STAGE_JOINING,
            Stage::Sending => Self::UT_STAGE_SENDING,
            Stage::Waiting => Self::UT_STAGE_WAITING,
            _ => Self::UT_STAGE_OVER,
        }
    }
}

/// A condition under which a device may work.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ut_condition {
    /// The device is charging.
    UT_CHARGING = 1,
    /// Nobody uses the device.
    UT_IDLE = 2,
    /// The network costs nothing.
    UT_UNMETERED = 4,
    /// There is room for a model.
    UT_STORAGE = 8,
    /// The device is cool.
    UT_THERMAL = 16,
}

/// The conditions in the order in which they are asked for.
pub(crate) const CONDITIONS: [(ut_condition, Unmet); 5] = [
    (ut_condition::UT_CHARGING, Unmet::Charging),
    (ut_condition::UT_IDLE, Unmet::Idle),
    (ut_condition::UT_UNMETERED, Unmet::Unmetered),
    (ut_condition::UT_STORAGE, Unmet::Storage),
    (ut_condition::UT_THERMAL, Unmet::Thermal),
];

/// The end of a session, and the time for the next one.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_outcome {
    /// The end.
    pub ended: ut_ended,
    /// The word of the service on the update, after `UT_ENDED_REPORTED`.
    pub verdict: ut_verdict,
    /// The time for the next session, in milliseconds since 1970.
    pub wake_ms: u64,
    /// Bytes that the session loaded.
    pub down_bytes: u64,
    /// Bytes that the session sent.
    pub up_bytes: u64,
    /// One sentence in UTF-8 about the end.
    pub message: [c_char; UT_MESSAGE_BYTES],
}

impl ut_outcome {
    pub(crate) fn new(outcome: &Outcome) -> Self {
        let verdict = match outcome.ended {
            Ended::Reported(verdict) => verdict.unwrap_or(Verdict::Unspecified),
            _ => Verdict::Unspecified,
        };
        let mut message = room_for();
        fill(&mut message, &outcome.ended.to_string());
        Self {
            ended: (&outcome.ended).into(),
            verdict: verdict.into(),
            wake_ms: outcome.wake_ms,
            down_bytes: outcome.down_bytes,
            up_bytes: outcome.up_bytes,
            message,
        }
    }
}

/// The state of a device, for its person and its host.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_state {
    /// `true` if the device has a certificate that is valid now.
    pub enrolled: bool,
    /// The public key of the device.
    pub public_key: [u8; 32],
    /// Number of session keys that are certified and not used.
    pub session_keys: u64,
    /// Number of examples for training.
    pub training_examples: u64,
    /// Number of examples that are withheld from training.
    pub withheld_examples: u64,
    /// Number of participations, those that a restored store lost included.
    pub participations: u64,
    /// The planned zCDP cost (rho) of all tasks that the device took part in.
    pub spent_rho: f64,
    /// Processor time of the last training, in milliseconds.
    pub last_cpu_ms: u64,
    /// The time for the next session, in milliseconds since 1970; 0 before the first.
    pub wake_ms: u64,
}

impl ut_state {
    pub(crate) fn new(status: &Status, public_key: [u8; 32]) -> Self {
        Self {
            enrolled: status.enrolled,
            public_key,
            session_keys: status.session_keys as u64,
            training_examples: status.training_examples,
            withheld_examples: status.withheld_examples,
            participations: status.participations,
            spent_rho: status.spent_rho,
            last_cpu_ms: status.last_cpu_ms,
            wake_ms: status.wake_ms,
        }
    }
}

/// One participation: a round of a task for which the device may have sent an update.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_participation {
    /// The task.
    pub task: [u8; 32],
    /// The round.
    pub round: u64,
    /// The time at which it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// The attempt at this round.
    pub attempt: u32,
    /// The progress of the participation.
    pub progress: ut_progress,
    /// The word of the service, after `UT_PROGRESS_ENDED`.
    pub verdict: ut_verdict,
}

impl From<&Participation> for ut_participation {
    fn from(row: &Participation) -> Self {
        let (progress, verdict) = match row.progress {
            Progress::Begun => (ut_progress::UT_PROGRESS_BEGUN, Verdict::Unspecified),
            Progress::Committed => (ut_progress::UT_PROGRESS_COMMITTED, Verdict::Unspecified),
            Progress::Ended(verdict) => (ut_progress::UT_PROGRESS_ENDED, verdict),
        };
        Self {
            task: row.task,
            round: row.round,
            at_ms: row.at_ms,
            attempt: row.attempt,
            progress,
            verdict: verdict.into(),
        }
    }
}

/// A released model that the device holds.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_model {
    /// The task.
    pub task: [u8; 32],
    /// The number of releases before the model.
    pub round: u64,
    /// The time of the session that loaded it, in milliseconds since 1970.
    pub at_ms: u64,
}

impl From<&HeldModel> for ut_model {
    fn from(held: &HeldModel) -> Self {
        Self {
            task: held.task,
            round: held.round,
            at_ms: held.at_ms,
        }
    }
}

/// The quality of a model on texts that the device withheld from training.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ut_evaluation {
    /// Number of examples.
    pub examples: u64,
    /// Number of predicted words.
    pub words: u64,
    /// Mean loss per word, in nats.
    pub loss: f64,
    /// The rate of words that were the model's first choice.
    pub top1: f64,
    /// The rate of words that were the model's first choice, among the words of the vocabulary.
    pub in_vocabulary_top1: f64,
}

impl From<&Evaluation> for ut_evaluation {
    fn from(measured: &Evaluation) -> Self {
        Self {
            examples: measured.examples,
            words: measured.words,
            loss: measured.loss,
            top1: measured.top1,
            in_vocabulary_top1: measured.in_vocabulary_top1,
        }
    }
}

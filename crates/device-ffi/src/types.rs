//! The values of the interface.

use undertone_device as device;
use undertone_device::{DeviceError, Ended, Unmet};
use undertone_protocol as protocol;

/// A failure of the device itself. A service that refuses or cannot be reached in a session is an [`Outcome`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, uniffi::Error)]
#[uniffi(flat_error)]
pub enum Failure {
    /// A value is not usable; the message says what is expected.
    #[error("{0}")]
    Value(String),
    /// Another call works on the device now, or this is a call from its own callback.
    #[error("the device is at work in another call; wait for its end, or stop it")]
    Busy,
    /// The device was forgotten.
    #[error("the device was forgotten; open its folder to make a new one")]
    Forgotten,
    /// The device holds no released model yet.
    #[error("the device holds no model; a session that trains brings the model of its round")]
    NoModel,
    /// The service cannot be reached.
    #[error("{0}")]
    Network(String),
    /// The service refused, or its message cannot be trusted.
    #[error("{0}")]
    Refused(String),
    /// The key store failed, or holds another key than the one of the folder.
    #[error("{0}")]
    KeyStore(String),
    /// A file or the database of the folder failed.
    #[error("{0}")]
    Files(String),
    /// The folder is open in another process, or by another object.
    #[error("{0}")]
    FolderOpen(String),
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let text = error.to_string();
        match error {
            DeviceError::Value { .. } => Self::Value(text),
            DeviceError::NoModel => Self::NoModel,
            DeviceError::Network(_) => Self::Network(text),
            DeviceError::Enrolment { .. } | DeviceError::Protocol(_) => Self::Refused(text),
            DeviceError::KeyStore(_) | DeviceError::OtherKey | DeviceError::Entropy(_) => {
                Self::KeyStore(text)
            }
            DeviceError::Busy(_) => Self::FolderOpen(text),
            _ => Self::Files(text),
        }
    }
}

/// A condition under which a device may work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, uniffi::Enum)]
pub enum Condition {
    /// The device is charging.
    Charging,
    /// Nobody uses the device.
    Idle,
    /// The network costs nothing.
    Unmetered,
    /// There is room for a model.
    Storage,
    /// The device is cool.
    Thermal,
}

/// The conditions in the order in which they are asked for.
pub(crate) const CONDITIONS: [(Condition, Unmet); 5] = [
    (Condition::Charging, Unmet::Charging),
    (Condition::Idle, Unmet::Idle),
    (Condition::Unmetered, Unmet::Unmetered),
    (Condition::Storage, Unmet::Storage),
    (Condition::Thermal, Unmet::Thermal),
];

/// The stage of a session, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Stage {
    /// The device reads the board.
    Board,
    /// The device offers itself to a task.
    CheckIn,
    /// The device loads the plan, the vocabulary and the model.
    Loading,
    /// The device trains, or measures a model.
    Training,
    /// The device waits for its place in a sum.
    Joining,
    /// The device sends its update.
    Sending,
    /// The device waits for the end of the round.
    Waiting,
    /// The session is over.
    Over,
}

impl From<device::Stage> for Stage {
    fn from(stage: device::Stage) -> Self {
        match stage {
            device::Stage::Board => Self::Board,
            device::Stage::CheckIn => Self::CheckIn,
            device::Stage::Loading => Self::Loading,
            device::Stage::Training => Self::Training,
            device::Stage::Joining => Self::Joining,
            device::Stage::Sending => Self::Sending,
            device::Stage::Waiting => Self::Waiting,
            _ => Self::Over,
        }
    }
}

/// The word of the service on an update. Nothing rests on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Verdict {
    /// The service has said nothing.
    Unknown,
    /// The update is in the released sum.
    Included,
    /// The update came too late for the sum.
    Late,
    /// The attempt was abandoned, so nothing was released from the update.
    Abandoned,
}

impl From<protocol::Verdict> for Verdict {
    fn from(verdict: protocol::Verdict) -> Self {
        match verdict {
            protocol::Verdict::Unspecified => Self::Unknown,
            protocol::Verdict::Included => Self::Included,
            protocol::Verdict::Late => Self::Late,
            protocol::Verdict::Abandoned => Self::Abandoned,
        }
    }
}

/// The end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum End {
    /// The update was sent.
    Reported,
    /// The device may take part in no task now.
    NotEligible,
    /// The device has no certificate that is valid now.
    NotEnrolled,
    /// The clock of the machine is wrong.
    Clock,
    /// The service refused the device.
    Rejected,
    /// The device refused the offer of the service.
    Refused,
    /// The service ended the session before the update was sent.
    Lost,
    /// Local training used up its processor time.
    OutOfTime,
    /// Local training gave no update.
    NotTrained,
    /// A condition of the host is not met.
    HostNotReady,
    /// The session was stopped, by the host or by a limit.
    Stopped,
    /// A deadline of the session passed.
    TimedOut,
    /// The upload was slower than the plan allows.
    TooSlow,
    /// The service cannot be reached.
    Unreachable,
    /// Another end, of a newer library.
    Other,
}

impl From<&Ended> for End {
    fn from(ended: &Ended) -> Self {
        match ended {
            Ended::Reported(_) => Self::Reported,
            Ended::NotEligible(_) => Self::NotEligible,
            Ended::NotEnrolled => Self::NotEnrolled,
            Ended::Clock => Self::Clock,
            Ended::Rejected(..) => Self::Rejected,
            Ended::Refused(_) => Self::Refused,
            Ended::Lost(..) => Self::Lost,
            Ended::OutOfTime => Self::OutOfTime,
            Ended::NotTrained(_) => Self::NotTrained,
            Ended::HostNotReady(_) => Self::HostNotReady,
            Ended::Stopped => Self::Stopped,
            Ended::TimedOut => Self::TimedOut,
            Ended::TooSlow => Self::TooSlow,
            Ended::Unreachable => Self::Unreachable,
            _ => Self::Other,
        }
    }
}

/// The end of a session, and the time for the next one.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Outcome {
    /// The end.
    pub ended: End,
    /// The word of the service on the update, after `Reported`.
    pub verdict: Verdict,
    /// The time for the next session, in milliseconds since 1970.
    pub wake_ms: u64,
    /// Bytes that the session loaded.
    pub down_bytes: u64,
    /// Bytes that the session sent.
    pub up_bytes: u64,
    /// One sentence about the end.
    pub message: String,
}

impl From<&device::Outcome> for Outcome {
    fn from(outcome: &device::Outcome) -> Self {
        let verdict = match outcome.ended {
            Ended::Reported(Some(verdict)) => verdict.into(),
            _ => Verdict::Unknown,
        };
        Self {
            ended: (&outcome.ended).into(),
            verdict,
            wake_ms: outcome.wake_ms,
            down_bytes: outcome.down_bytes,
            up_bytes: outcome.up_bytes,
            message: outcome.ended.to_string(),
        }
    }
}

/// The state of a device, for its person and its host.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct State {
    /// `true` if the device has a certificate that is valid now.
    pub enrolled: bool,
    /// The public key of the device.
    pub public_key: Vec<u8>,
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

/// The progress of a participation, which counts from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, uniffi::Enum)]
pub enum Progress {
    /// The participation was written down.
    Begun,
    /// The service accepted the whole update.
    Committed,
    /// The service named the end of the session.
    Ended,
}

/// A round of a task for which the device may have sent an update.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Participation {
    /// The task.
    pub task: Vec<u8>,
    /// The round.
    pub round: u64,
    /// The attempt at this round.
    pub attempt: u32,
    /// The time at which it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// The progress of the participation.
    pub progress: Progress,
    /// The word of the service, after `Ended`.
    pub verdict: Verdict,
}

impl From<&device::Participation> for Participation {
    fn from(row: &device::Participation) -> Self {
        let (progress, verdict) = match row.progress {
            device::Progress::Begun => (Progress::Begun, Verdict::Unknown),
            device::Progress::Committed => (Progress::Committed, Verdict::Unknown),
            device::Progress::Ended(verdict) => (Progress::Ended, verdict.into()),
        };
        Self {
            task: row.task.to_vec(),
            round: row.round,
            attempt: row.attempt,
            at_ms: row.at_ms,
            progress,
            verdict,
        }
    }
}

/// A released model that the device holds.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Model {
    /// The task.
    pub task: Vec<u8>,
    /// The number of releases before the model.
    pub round: u64,
    /// The time of the session that loaded it, in milliseconds since 1970.
    pub at_ms: u64,
}

impl From<&device::HeldModel> for Model {
    fn from(held: &device::HeldModel) -> Self {
        Self {
            task: held.task.to_vec(),
            round: held.round,
            at_ms: held.at_ms,
        }
    }
}

/// The quality of a model on texts that the device withheld from training.
#[derive(Debug, Clone, Copy, PartialEq, uniffi::Record)]
pub struct Evaluation {
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

/// A word that may come next.
#[derive(Debug, Clone, PartialEq, uniffi::Record)]
pub struct Prediction {
    /// The word, in lower case.
    pub word: String,
    /// The probability of the word, from 0 to 1.
    pub probability: f64,
}

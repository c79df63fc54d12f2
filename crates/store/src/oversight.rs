//! The part of a store that an operator looks at: attempts, leases, enrolments, and the audit log.

use undertone_protocol::TaskState;

use crate::names::Named;
use crate::{AbandonReason, AttemptState, AuditRow, Millis, Result, TaskId};

/// Figures of a store for its operators. Each method is one transaction.
///
/// PRIVACY: the numbers are exact. A caller that shows them hides those of fewer devices than its smallest cell.
pub trait Oversight: Send + Sync {
    /// The last attempts of a task, at most `limit`, the newest first. Empty for a task that does not exist.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    fn attempts(&self, task: TaskId, limit: u32) -> Result<Vec<AttemptRow>>;

    /// The leases that tasks have now, in the order of the creation of their tasks.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    fn leases(&self) -> Result<Vec<LeaseRow>>;

    /// Number of devices of a population that were enrolled on each day from `from` on, ascending. Days are counted from 1970; a day
    /// without an enrolment is not listed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    fn enrolments(&self, population: &str, from: u64) -> Result<Vec<(u64, u64)>>;

    /// The last acts on a task in the audit log, at most `limit`, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    fn acts(&self, task: TaskId, limit: u32) -> Result<Vec<AuditRow>>;

    /// Adds a row about a task to the audit log. Its detail is `task`, the identifier, a colon and the note.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable).
    fn note_act(&self, task: TaskId, actor: &str, action: &str, note: &str) -> Result<()>;
}

/// An attempt, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// The round.
    pub round: u64,
    /// The number within the round, from 0.
    pub attempt_of_round: u32,
    /// State of the attempt.
    pub state: AttemptState,
    /// The reason where it was abandoned.
    pub reason: Option<AbandonReason>,
    /// The time of its opening, by the clock of the store.
    pub opened: Millis,
    /// The time of its end; `None` while it is open.
    pub closed: Option<Millis>,
    /// Number of users in its release; `None` without one.
    pub included: Option<u64>,
}

/// A lease, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The task.
    pub task: TaskId,
    /// The process that holds it.
    pub process: String,
    /// Fence of the lease.
    pub fence: u64,
    /// The end, by the clock of the store.
    pub until: Millis,
}

impl AuditRow {
    /// The note of a person or a program in a row about a task: the text behind the identifier, and behind the states that it moved
    /// between. `None` for a row about something else.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        let rest = self.detail.strip_prefix("task ")?;
        let (_, rest) = rest.split_once(": ")?;
        Some(match self.moved() {
            Some(_) => rest.split_once(": ").map_or("", |(_, note)| note),
            None => rest,
        })
    }

    /// The states between which the row moved a task; `None` for a row that moved none.
    #[must_use]
    pub fn moved(&self) -> Option<(TaskState, TaskState)> {
        if !matches!(self.action.as_str(), "set_state" | "end") {
            return None;
        }
        let rest = self.detail.strip_prefix("task ")?;
        let (_, rest) = rest.split_once(": ")?;
        let (states, _) = rest.split_once(": ")?;
        let (from, to) = states.split_once(" to ")?;
        Some((TaskState::from_name(from)?, TaskState::from_name(to)?))
    }
}

/// The beginning of the detail of each audit row about a task.
pub(crate) fn about(task: TaskId) -> String {
    format!("task {task}: ")
}

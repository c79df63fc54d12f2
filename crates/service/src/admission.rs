//! Admission: the tasks that a device is tried for, and the answer where none takes it.
//!
//! The decision is made from the state of the board, without the store. The store then admits the subject or says why not.

use std::cmp::Reverse;

use undertone_protocol::{Code, Problem, RetryWindow, TaskState, limits};
use undertone_store::{Admitted, AttemptId, Millis, SessionId, TaskId};

use crate::pace::{self, Cause, Outlook};

/// An attempt that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAttempt {
    /// The attempt.
    pub attempt: AttemptId,
    /// Number of devices that may be admitted now.
    pub free: u32,
    /// Number of sessions that it wants at one time.
    pub target: u32,
}

/// A task as admission sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// The task.
    pub task: TaskId,
    /// Its state.
    pub state: TaskState,
    /// The current round.
    pub round: u64,
    /// Min distance of two participations of one subject, in rounds.
    pub min_sep: u64,
    /// The oldest app that may take part.
    pub min_client_version: u32,
    /// The attempt that takes devices.
    pub open: Option<OpenAttempt>,
    /// Its pace.
    pub outlook: Outlook,
}

/// The tasks to try, or a refusal.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The store is asked for these attempts in turn, the least served task first.
    Try(Vec<(TaskId, AttemptId)>),
    /// No task takes the device now.
    Reject(Rejection),
}

/// A refusal of a check-in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rejection {
    /// Its code.
    pub code: Code,
    /// A sentence for the log of the device.
    pub why: &'static str,
    /// The window in which the device comes back.
    pub retry: RetryWindow,
}

impl Rejection {
    /// The refusal as it travels.
    #[must_use]
    pub fn problem(&self) -> Problem {
        Problem::new(self.code, self.why).with_retry(self.retry)
    }
}

/// The answer of the store to one task.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The device has a new session.
    New,
    /// The check-in was answered with this session before.
    Before(SessionId),
    /// The task does not take the device now.
    Rejected(Rejection),
}

fn reject(code: Code, why: &'static str, retry: RetryWindow) -> Rejection {
    Rejection { code, why, retry }
}

/// Decides which tasks a device is tried for. `idle` is the window for a device that no task of the board concerns.
#[must_use]
pub fn decide(board: &[Offer], eligible: &[TaskId], client_version: u32, idle: RetryWindow) -> Decision {
    if eligible.len() > limits::MAX_ELIGIBLE {
        return Decision::Reject(reject(Code::Malformed, "the check-in names too many tasks", idle));
    }
    if eligible.is_empty() {
        let why = "the device meets the conditions of no task";
        return Decision::Reject(reject(Code::NotEligible, why, idle));
    }
    let named = |offer: &&Offer| offer.state == TaskState::Active && eligible.contains(&offer.task);
    let active: Vec<&Offer> = board.iter().filter(named).collect();
    let (fit, old): (Vec<&Offer>, Vec<&Offer>) = active
        .into_iter()
        .partition(|offer| client_version >= offer.min_client_version);
    let mut tries: Vec<(u64, TaskId, AttemptId)> = fit
        .iter()
        .filter_map(|offer| {
            let open = offer.open.filter(|open| open.free > 0)?;
            Some((unserved(open), offer.task, open.attempt))
        })
        .collect();
    if !tries.is_empty() {
        tries.sort_by_key(|(unserved, task, _)| (Reverse(*unserved), *task));
        return Decision::Try(
            tries
                .into_iter()
                .map(|(_, task, attempt)| (task, attempt))
                .collect(),
        );
    }
    let full = fit.iter().map(|offer| full(offer));
    Decision::Reject(match (soonest(full), old.first()) {
        (Some(full), _) => full,
        (None, Some(offer)) => {
            let retry = pace::window(&offer.outlook, Cause::Never);
            reject(Code::Upgrade, "the app is too old for this task", retry)
        }
        (None, None) => reject(Code::NoTask, "no task takes devices now", idle),
    })
}

/// The fraction of an attempt that is free, in parts of `2^32`.
fn unserved(open: OpenAttempt) -> u64 {
    (u64::from(open.free.min(open.target)) << 32) / u64::from(open.target.max(1))
}

fn full(offer: &Offer) -> Rejection {
    let why = "the attempt has the devices that it wants";
    reject(Code::Full, why, pace::window(&offer.outlook, Cause::Later))
}

/// The answer to a device from what the store said about one task.
#[must_use]
pub fn answer(offer: &Offer, admitted: &Admitted, now: Millis) -> Answer {
    let later = |cause| pace::window(&offer.outlook, cause);
    Answer::Rejected(match admitted {
        Admitted::Yes => return Answer::New,
        Admitted::Before(session) => return Answer::Before(*session),
        Admitted::Full => full(offer),
        Admitted::Held(until) => {
            let retry = later(Cause::After(until.saturating_sub(now)));
            reject(Code::TooSoon, "the subject has an open session", retry)
        }
        Admitted::TooSoon { last } => {
            let again = last.saturating_add(offer.min_sep);
            let rounds = again.saturating_sub(offer.round).max(1);
            let retry = later(Cause::TooSoon { rounds });
            reject(Code::TooSoon, "the subject took part too few rounds ago", retry)
        }
        Admitted::TooOften => {
            let why = "the subject has taken part as often as the task allows";
            reject(Code::TooOften, why, later(Cause::Never))
        }
    })
}

/// The refusal after which the device may come back first; `None` for none. It answers a check-in that several tasks refused.
#[must_use]
pub fn soonest(rejections: impl IntoIterator<Item = Rejection>) -> Option<Rejection> {
    rejections
        .into_iter()
        .min_by_key(|rejection| (rejection.retry.min_ms, rejection.retry.max_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Demand;

    const MINUTE: Millis = 60_000;

    fn offer(task: u8, free: u32, target: u32) -> Offer {
        Offer {
            task: TaskId([task; 32]),
            state: TaskState::Active,
            round: 10,
            min_sep: 5,
            min_client_version: 3,
            open: Some(OpenAttempt {
                attempt: AttemptId(u64::from(task)),
                free,
                target,
            }),
            outlook: Outlook {
                demand: Demand {
                    goal: 100,
                    over_selection: 1.3,
                    checkins_per_needed: 3.0,
                    min_interval: 15 * MINUTE,
                },
                population: 200,
                round: 10 * MINUTE,
                next_attempt: 4 * MINUTE,
            },
        }
    }

    fn idle() -> RetryWindow {
        pace::idle(15 * MINUTE)
    }

    fn tried(board: &[Offer], eligible: &[u8]) -> Vec<u64> {
        let eligible: Vec<TaskId> = eligible.iter().map(|task| TaskId([*task; 32])).collect();
        match decide(board, &eligible, 3, idle()) {
            Decision::Try(tries) => tries.into_iter().map(|(_, attempt)| attempt.0).collect(),
            Decision::Reject(_) => Vec::new(),
        }
    }

    #[test]
    fn the_least_served_task_is_tried_first() {
        let board = [
            offer(1, 10, 100),
            offer(2, 40, 50),
            offer(3, 0, 100),
            offer(4, 30, 300),
        ];
        assert_eq!(tried(&board, &[1, 2, 3, 4]), [2, 1, 4]);
        assert_eq!(tried(&board, &[4, 1, 9]), [1, 4]);
        assert_eq!(tried(&board, &[3]), [0u64; 0]);
    }

    #[test]
    fn each_refusal_has_its_code() {
        let code =
            |board: &[Offer], eligible: &[TaskId], version| match decide(board, eligible, version, idle()) {
                Decision::Reject(rejection) => Some(rejection.code),
                Decision::Try(_) => None,
            };
        let paused = Offer {
            state: TaskState::Paused,
            ..offer(1, 10, 100)
        };
        let closed = Offer {
            open: None,
            ..offer(1, 10, 100)
        };
        let task = [TaskId([1; 32])];
        assert_eq!(code(&[offer(1, 1, 100)], &task, 3), None);
        assert_eq!(code(&[offer(1, 1, 100)], &[], 3), Some(Code::NotEligible));
        assert_eq!(
            code(&[offer(1, 1, 100)], &[TaskId([2; 32])], 3),
            Some(Code::NoTask)
        );
        assert_eq!(code(&[paused], &task, 3), Some(Code::NoTask));
        assert_eq!(code(&[offer(1, 1, 100)], &task, 2), Some(Code::Upgrade));
        assert_eq!(code(&[offer(1, 0, 100)], &task, 3), Some(Code::Full));
        assert_eq!(code(&[closed], &task, 3), Some(Code::Full));
        let many = vec![task[0]; limits::MAX_ELIGIBLE + 1];
        assert_eq!(code(&[offer(1, 1, 100)], &many, 3), Some(Code::Malformed));
    }

    #[test]
    fn a_subject_that_comes_too_soon_waits_for_its_rounds() {
        let offer = offer(1, 10, 100);
        let retry = |admitted: &Admitted| match answer(&offer, admitted, 1000) {
            Answer::Rejected(rejection) => (rejection.code, rejection.retry.min_ms, rejection.retry.max_ms),
            other => panic!("{other:?}"),
        };
        // Attempts open in 4, 14, 24, .. minutes. Four rounds of ten minutes are still to pass.
        let (code, min, max) = retry(&Admitted::TooSoon { last: 9 });
        assert_eq!((code, min, max), (Code::TooSoon, 44 * MINUTE, 45 * MINUTE));
        // A hold of twenty minutes ends before the fourth opening.
        let (code, min, _) = retry(&Admitted::Held(1000 + 20 * MINUTE));
        assert_eq!((code, min), (Code::TooSoon, 24 * MINUTE));
        let (code, min, _) = retry(&Admitted::Full);
        assert_eq!((code, min), (Code::Full, 24 * MINUTE));
        assert_eq!(retry(&Admitted::TooOften).0, Code::TooOften);
        assert_eq!(answer(&offer, &Admitted::Yes, 0), Answer::New);
        let session = SessionId([7; 16]);
        assert_eq!(
            answer(&offer, &Admitted::Before(session), 0),
            Answer::Before(session)
        );
    }

    #[test]
    fn several_refusals_give_the_first_time() {
        let rejection = |min| reject(Code::Full, "full", RetryWindow::between(min, min + 10));
        let first = soonest([rejection(30), rejection(20), rejection(25)]);
        assert_eq!(first.map(|rejection| rejection.retry.min_ms), Some(20));
        assert_eq!(soonest([]), None);
        assert_eq!(rejection(20).problem().retry, Some(RetryWindow::between(20, 30)));
    }
}

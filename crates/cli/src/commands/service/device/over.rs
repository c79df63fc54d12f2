//! The end of a device that keeps running: no task can want it any more.

use undertone_device::{Ended, Ineligible};

/// Sessions and looks in a row that reach no service, after which the service is taken to have ended.
const UNREACHED: u32 = 3;

/// The sessions of a device, as far as they tell whether its tasks are over.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// `true` once the device has seen a task.
    seen: bool,
    /// Sessions and looks in a row that reached no service.
    unreached: u32,
}

impl Tasks {
    /// The tasks of a device. `known` is `true` if it was offered one in an earlier run.
    pub(super) fn new(known: bool) -> Self {
        Self {
            seen: known,
            unreached: 0,
        }
    }

    /// Notes that the service answers, or does not; `true` if it has gone for good.
    pub(super) fn are_over_without(&mut self, answers: bool) -> bool {
        self.unreached = if answers { 0 } else { self.unreached + 1 };
        self.seen && self.unreached >= UNREACHED
    }

    /// `true` if, after a session with this end, no task can want the device any more: the board has none but such that the device has
    /// taken part in as often as they allow, or the service has gone. A board without a task before the first one is none of these.
    pub(super) fn are_over(&mut self, ended: &Ended) -> bool {
        if self.are_over_without(!matches!(ended, Ended::Unreachable)) {
            return true;
        }
        match ended {
            Ended::Unreachable => false,
            Ended::NotEligible(reasons) => {
                self.seen |= !reasons.is_empty();
                let over = |reason: &Ineligible| matches!(reason, Ineligible::Closed | Ineligible::TooOften);
                self.seen && reasons.iter().all(|(_, reason)| over(reason))
            }
            Ended::Clock | Ended::HostNotReady(_) | Ended::Stopped => false,
            _ => {
                self.seen = true;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_over_when_the_board_wants_the_device_no_more_and_not_before_it_had_one() {
        let board = |reasons: &[Ineligible]| {
            Ended::NotEligible(reasons.iter().map(|reason| ([1; 32], *reason)).collect())
        };
        let mut tasks = Tasks::new(false);
        assert!(!tasks.are_over(&board(&[])), "no task yet");
        assert!(
            !tasks.are_over(&board(&[Ineligible::TooFewRounds])),
            "a later round may want it"
        );
        assert!(tasks.are_over(&board(&[])));
        assert!(tasks.are_over(&board(&[Ineligible::TooOften])));
        assert!(!tasks.are_over(&board(&[Ineligible::TooOften, Ineligible::TooFewRounds])));
        assert!(!tasks.are_over(&Ended::Reported(None)));
        assert!(
            Tasks::new(true).are_over(&board(&[])),
            "it had a task in an earlier run"
        );
    }

    #[test]
    fn a_service_is_taken_to_have_ended_after_three_sessions_in_a_row() {
        let mut tasks = Tasks::new(true);
        let busy = Ended::Lost(undertone_protocol::Code::Busy, String::new());
        for ended in [&Ended::Unreachable, &Ended::Unreachable, &busy] {
            assert!(!tasks.are_over(ended));
        }
        assert!(!tasks.are_over(&Ended::Unreachable) && !tasks.are_over(&Ended::Unreachable));
        assert!(tasks.are_over(&Ended::Unreachable));
        // A look between two sessions counts, too.
        let mut tasks = Tasks::new(true);
        assert!(!tasks.are_over(&Ended::Unreachable) && !tasks.are_over_without(false));
        assert!(!tasks.are_over_without(true) && !tasks.are_over_without(false));
        assert!(!tasks.are_over_without(false) && tasks.are_over_without(false));
        let mut never = Tasks::new(false);
        assert!((0..10).all(|_| !never.are_over(&Ended::Unreachable)));
    }
}

//! The decision whether a device may take part in a task of the board, from the board and the device's own memory.

use undertone_protocol::{Digest32, TaskCard, TaskKind, TaskState};

use crate::floors::Limits;
use crate::memory::Memory;

/// The reason why a device does not take part in a task now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ineligible {
    /// The card cannot be read, or the task takes no devices.
    Closed,
    /// The app is too old for the task.
    Version,
    /// The device has too few examples.
    TooFewExamples,
    /// The store has seen every participation only since a time that is too near: it is new, or was restored.
    TooNew {
        /// The time at which the device may take part, in milliseconds since 1970.
        until_ms: u64,
    },
    /// The last participation was too short a time ago.
    TooSoon {
        /// The time at which the device may take part, in milliseconds since 1970.
        until_ms: u64,
    },
    /// The last participation was too few rounds ago.
    TooFewRounds,
    /// The device has taken part as often as the task allows.
    TooOften,
    /// The board shows a round before one that the device has seen.
    OldRound,
    /// The task would load or send more bytes than the limits allow.
    TooLarge,
    /// The plan's training used up its processor time on this device.
    PlanBackoff {
        /// The time at which the device tries again, in milliseconds since 1970.
        until_ms: u64,
    },
}

/// Decides about one task. `now_ms` is the device's clock, which the caller has compared with the board's.
///
/// # Errors
/// [`Ineligible`] with the first reason.
pub fn eligible(
    card: &TaskCard,
    memory: &Memory,
    limits: &Limits,
    client_version: u32,
    now_ms: u64,
) -> Result<Digest32, Ineligible> {
    let Ok(task) = Digest32::try_from(&card.task[..]) else {
        return Err(Ineligible::Closed);
    };
    let kind = card.kind();
    if card.state() != TaskState::Active || kind == TaskKind::Unspecified || card.plan.is_none() {
        return Err(Ineligible::Closed);
    }
    if card.min_client_version > client_version {
        return Err(Ineligible::Version);
    }
    let examples = match kind {
        TaskKind::Evaluate => memory.withheld_examples,
        _ => memory.training_examples,
    };
    if examples < u64::from(card.min_examples.max(1)) {
        return Err(Ineligible::TooFewExamples);
    }
    if card.down_bytes > limits.down_bytes || card.up_bytes > limits.up_bytes {
        return Err(Ineligible::TooLarge);
    }
    let plan = card.plan.as_ref().and_then(|plan| plan.digest().ok());
    let plan_backoff = plan.and_then(|plan| memory.plan_backoff.get(&plan));
    if let Some(&until_ms) = plan_backoff.filter(|until| now_ms < **until) {
        return Err(Ineligible::PlanBackoff { until_ms });
    }
    separated(
        memory,
        &task,
        &Schedule {
            round: card.round,
            min_sep: card.min_sep,
            max_part: card.max_part,
            timer_ms: card.timer_s.saturating_mul(1000),
        },
        now_ms,
    )?;
    Ok(task)
}

/// The schedule of a task, and the round that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) round: u64,
    pub(crate) min_sep: u32,
    pub(crate) max_part: u32,
    pub(crate) timer_ms: u64,
}

/// PRIVACY: the device's own word on how often and how far apart it takes part. The server's ledger decides on its own.
pub(crate) fn separated(
    memory: &Memory,
    task: &Digest32,
    schedule: &Schedule,
    now_ms: u64,
) -> Result<(), Ineligible> {
    let Schedule {
        round,
        min_sep,
        max_part,
        timer_ms,
    } = *schedule;
    if memory.heads.get(task).is_some_and(|(seen, _)| round < *seen) {
        return Err(Ineligible::OldRound);
    }
    if memory.count(task) >= u64::from(max_part) {
        return Err(Ineligible::TooOften);
    }
    let until_ms = memory.trusted_from_ms.saturating_add(timer_ms);
    if now_ms < until_ms {
        return Err(Ineligible::TooNew { until_ms });
    }
    if let Some((last_round, last_ms)) = memory.last(task) {
        let until_ms = last_ms.saturating_add(timer_ms);
        if now_ms < until_ms {
            return Err(Ineligible::TooSoon { until_ms });
        }
        // A round before the last one is as near as one behind it.
        if round < last_round.saturating_add(u64::from(min_sep)) {
            return Err(Ineligible::TooFewRounds);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use undertone_protocol::Blob;

    use super::*;
    use crate::memory::{Participation, Progress};

    const HOUR: u64 = 3_600_000;

    fn card() -> TaskCard {
        TaskCard {
            task: vec![1; 32],
            kind: TaskKind::Train.into(),
            state: TaskState::Active.into(),
            round: 50,
            min_sep: 10,
            max_part: 3,
            timer_s: 3600,
            min_examples: 2,
            plan: Some(Blob::of(b"plan")),
            down_bytes: 10,
            up_bytes: 10,
            min_client_version: 2,
            pinned: None,
            pinned_round: 0,
        }
    }

    fn memory() -> Memory {
        Memory {
            training_examples: 5,
            withheld_examples: 2,
            ..Memory::default()
        }
    }

    fn took_part(round: u64, at_ms: u64) -> Participation {
        Participation {
            task: [1; 32],
            round,
            attempt: 0,
            at_ms,
            progress: Progress::Begun,
        }
    }

    fn decide(card: &TaskCard, memory: &Memory, now_ms: u64) -> Result<Digest32, Ineligible> {
        eligible(card, memory, &Limits::default(), 2, now_ms)
    }

    #[test]
    fn each_condition_of_the_board_is_checked() {
        let now = 10 * HOUR;
        assert_eq!(decide(&card(), &memory(), now), Ok([1; 32]));
        type Change = fn(&mut TaskCard);
        let changes: [(Change, Ineligible); 8] = [
            (|card| card.task = vec![1; 31], Ineligible::Closed),
            (|card| card.set_state(TaskState::Paused), Ineligible::Closed),
            (|card| card.kind = 7, Ineligible::Closed),
            (|card| card.plan = None, Ineligible::Closed),
            (|card| card.min_client_version = 3, Ineligible::Version),
            (|card| card.down_bytes = u64::MAX, Ineligible::TooLarge),
            (|card| card.up_bytes = u64::MAX, Ineligible::TooLarge),
            (|card| card.max_part = 0, Ineligible::TooOften),
        ];
        for (change, expected) in changes {
            let mut card = card();
            change(&mut card);
            assert_eq!(decide(&card, &memory(), now), Err(expected));
        }
        let no_text = Memory {
            training_examples: 1,
            ..memory()
        };
        assert_eq!(decide(&card(), &no_text, now), Err(Ineligible::TooFewExamples));
        let evaluation = TaskCard {
            kind: TaskKind::Evaluate.into(),
            ..card()
        };
        assert!(decide(&evaluation, &no_text, now).is_ok());
    }

    #[test]
    fn a_fresh_store_waits_the_timer() {
        let fresh = Memory {
            trusted_from_ms: 10 * HOUR,
            ..memory()
        };
        let until_ms = 11 * HOUR;
        assert_eq!(
            decide(&card(), &fresh, until_ms - 1),
            Err(Ineligible::TooNew { until_ms })
        );
        assert!(decide(&card(), &fresh, until_ms).is_ok());
        let forever = TaskCard {
            timer_s: u64::MAX,
            ..card()
        };
        assert!(decide(&forever, &fresh, until_ms).is_err());
    }

    #[test]
    fn rounds_time_and_number_each_bar_a_device() {
        let mut memory = memory();
        memory.participations = vec![took_part(41, 10 * HOUR)];
        let until_ms = 11 * HOUR;
        assert_eq!(
            decide(&card(), &memory, until_ms - 1),
            Err(Ineligible::TooSoon { until_ms })
        );
        assert_eq!(decide(&card(), &memory, until_ms), Err(Ineligible::TooFewRounds));
        let later = TaskCard { round: 51, ..card() };
        assert!(decide(&later, &memory, until_ms).is_ok());
        memory.lost = 2;
        assert_eq!(decide(&later, &memory, until_ms), Err(Ineligible::TooOften));
        memory.lost = 0;
        memory.heads.insert([1; 32], (52, [0; 32]));
        assert_eq!(decide(&later, &memory, until_ms), Err(Ineligible::OldRound));
        let other_task = TaskCard {
            task: vec![2; 32],
            ..card()
        };
        assert!(decide(&other_task, &memory, until_ms).is_ok());
    }

    proptest! {
        #[test]
        fn admitted_rounds_are_far_enough_apart(rounds in proptest::collection::vec(0u64..200, 1..60)) {
            let mut memory = memory();
            let mut admitted: Vec<u64> = Vec::new();
            for (step, round) in (0u64..).zip(rounds) {
                let card = TaskCard { round, ..card() };
                let now = 10 * HOUR + step * HOUR;
                if decide(&card, &memory, now).is_ok() {
                    admitted.push(round);
                    memory.participations.push(took_part(round, now));
                }
            }
            prop_assert!(admitted.len() <= 3);
            prop_assert!(admitted.windows(2).all(|pair| pair[1] >= pair[0] + 10));
        }
    }
}

//! The operations of a history.

use super::*;

#[derive(Debug, Clone)]
pub(super) enum Op {
    Lease {
        process: u8,
        ttl: u64,
    },
    Renew {
        old: bool,
    },
    HandBack,
    Open {
        target: u32,
        wrong_round: bool,
    },
    CloseSelection,
    Admit {
        user: u64,
        device: u8,
        repeat: bool,
    },
    /// A subject departs, or without `how` a device of it is revoked. Then it asks for a place.
    Leave {
        user: u64,
        device: u8,
        how: Option<Departure>,
        /// `true` for the subject and the device of the last admission, which come again with its check-in.
        last: bool,
    },
    Note {
        session: usize,
        state: usize,
    },
    Reserve {
        included: u64,
        old: bool,
    },
    Commit {
        split: u16,
        twist: u8,
        old: bool,
    },
    Repeat,
    Abandon {
        reason: usize,
        extra: Option<u64>,
        old: bool,
    },
    Advance {
        by: u64,
    },
    Move {
        from: usize,
        to: usize,
    },
    Publish {
        round: u64,
    },
    Restart,
    Sweep,
    End,
    /// All steps of a round, from the lease to the release.
    Round {
        process: u8,
        mask: u8,
        split: u16,
    },
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2u8, 1..4u64).prop_map(|(process, ttl)| Op::Lease { process, ttl: ttl * 10_000 }),
        1 => prop::bool::weighted(0.3).prop_map(|old| Op::Renew { old }),
        1 => Just(Op::HandBack),
        14 => (1..6u32, prop::bool::weighted(0.05))
            .prop_map(|(target, wrong_round)| Op::Open { target, wrong_round }),
        3 => Just(Op::CloseSelection),
        50 => (0..USERS, 0..3u8, prop::bool::weighted(0.1))
            .prop_map(|(user, device, repeat)| Op::Admit { user, device, repeat }),
        3 => (0..USERS, 0..3u8, 0..4usize, prop::bool::weighted(0.5))
            .prop_map(|(user, device, how, last)| Op::Leave { user, device, how: DEPARTURES[how], last }),
        12 => (any::<prop::sample::Index>(), 0..STATES.len())
            .prop_map(|(session, state)| Op::Note { session: session.index(1 << 16), state }),
        14 => (0..4u64, prop::bool::weighted(0.1)).prop_map(|(included, old)| Op::Reserve { included, old }),
        16 => (any::<u16>(), 0..24u8, prop::bool::weighted(0.1))
            .prop_map(|(split, twist, old)| Op::Commit { split, twist, old }),
        2 => Just(Op::Repeat),
        8 => (0..9usize, prop::option::weighted(0.3, 0..USERS), prop::bool::weighted(0.1))
            .prop_map(|(reason, extra, old)| Op::Abandon { reason, extra, old }),
        8 => (0..3u32).prop_map(|power| Op::Advance { by: 40 * 100u64.pow(power) }),
        2 => (0..5usize, 0..5usize).prop_map(|(from, to)| Op::Move { from, to }),
        2 => (0..6u64).prop_map(|round| Op::Publish { round }),
        1 => prop::bool::weighted(0.25).prop_map(|restart| if restart { Op::Restart } else { Op::Sweep }),
        24 => (0..2u8, any::<u8>(), any::<u16>())
            .prop_map(|(process, mask, split)| Op::Round { process, mask, split }),
        1 => prop::bool::weighted(0.1).prop_map(|end| if end { Op::End } else { Op::Repeat }),
    ]
}

pub(super) const REASONS: [AbandonReason; 9] = [
    AbandonReason::Few,
    AbandonReason::Deadline,
    AbandonReason::Crash,
    AbandonReason::Fence,
    AbandonReason::Store,
    AbandonReason::Network,
    AbandonReason::Duplicate,
    AbandonReason::Protocol,
    AbandonReason::Operator,
];

pub(super) const DEPARTURES: [Option<Departure>; 4] = [
    None,
    Some(Departure::Withdrawn),
    Some(Departure::Left),
    Some(Departure::Revoked),
];

pub(super) const STATES: [SessionState; 6] = [
    SessionState::Assigned,
    SessionState::Ready,
    SessionState::Reported,
    SessionState::LostBeforeReady,
    SessionState::Lost,
    SessionState::Included,
];

pub(super) const TASK_STATES: [TaskState; 5] = [
    TaskState::Draft,
    TaskState::Active,
    TaskState::Paused,
    TaskState::Completed,
    TaskState::Halted,
];

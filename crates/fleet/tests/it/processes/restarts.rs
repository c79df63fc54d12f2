//! Rolling restarts under load, and a later process of a name.

use std::time::{Duration, Instant};

use undertone_coordinator::record::LedgerLine;
use undertone_fleet::Doom;
use undertone_store::Store as _;

use super::service::{NAMES, Service};
use super::task::Size;
use crate::server::Server;

/// Restarts all processes one after the other, `turns` times, while a task runs.
fn rolling(rounds: u64, turns: u64) {
    let Some(server) = Server::start() else { return };
    let size = Size {
        rounds,
        users_per_round: 8,
        min_sep: 2,
        max_part: rounds,
        ..Size::default()
    };
    // Nobody has to take over in haste here, and a busy machine must not end a lease.
    let service = Service::with_leases(&server, size, 11, ["front,aggregator,leader"; 3], 30_000);
    let looked = service.clone();
    let (mut turn, mut ending) = (0, false);
    let mut next = Instant::now() + Duration::from_millis(1500);
    service.play(
        60,
        |_| Doom::None,
        |_| {
            let number = (turn % NAMES.len() as u64) as usize;
            let ended = looked.look();
            if ending && ended.contains(&number) {
                looked.start(number, Doom::None);
                (turn, ending) = (turn + 1, false);
                next = Instant::now() + Duration::from_millis(1500);
            } else if !ending && turn < turns * NAMES.len() as u64 && Instant::now() >= next {
                looked.terminate(number);
                ending = true;
            }
        },
    );
    // A process that was asked to end gave its attempts the time to end. It leaves one that no device has joined, by which nobody loses
    // anything.
    for line in service.store.ledger(service.task, 0).unwrap() {
        let attempts = match LedgerLine::read(&line).unwrap() {
            LedgerLine::Round(entry) => entry.attempts,
            LedgerLine::End(end) => end.attempts,
        };
        let lost = attempts
            .iter()
            .any(|attempt| !attempt.participants.is_empty() || attempt.row_spent);
        assert!(!lost, "{attempts:?}");
    }
    assert!(turn >= turns * NAMES.len() as u64, "{turn} restarts");
    assert_eq!(service.deaths(), turn + NAMES.len() as u64);
}

#[test]
#[ignore = "slow"]
fn a_rolling_restart_loses_no_attempt_with_a_device() {
    rolling(14, 1);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "two minutes"]
    fn ten_rolling_restarts_lose_no_attempt_with_a_device() {
        rolling(100, 10);
    }
}

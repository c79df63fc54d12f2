//! Several processes on one server of Postgres, its crashes, and its schema.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use undertone_coordinator::participation::ParticipantId;
use undertone_store::{Admitted, ManualClock, Postgres, Store, StoreError};

use common::postgres::{Server, shared};
use common::*;

fn open_at(url: &str, clock: &ManualClock) -> Postgres {
    Postgres::with_clock(url, Arc::new(clock.clone())).unwrap()
}

/// A hundred subjects check in at four processes at once, each at all of them: each is admitted once, and no place is given twice.
#[test]
fn processes_that_admit_at_once_admit_each_subject_once() {
    let Some(server) = shared() else { return };
    let (url, clock) = (server.database(), ManualClock::at(BEGIN));
    let stores: Vec<Postgres> = (0..4).map(|_| open_at(&url, &clock)).collect();
    let (_, lease) = active(&stores[0], "crowd", at_least(2, 5));
    let round = stores[0].task(lease.task).unwrap().head_round;
    let attempt = undertone_store::NewAttempt {
        target: 60,
        ..new_attempt(&stores[0], round)
    };
    let attempt = stores[0].open_attempt(&lease, &attempt).unwrap();
    let admitted: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0u64..)
            .zip(&stores)
            .flat_map(|(process, store)| (0..5u64).map(move |part| (process, part, store)))
            .map(|(process, part, store)| {
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for who in (0..100u64).filter(|who| who % 5 == part) {
                        let number = 1_000 * (process + 1) + who;
                        let mut asked = admission(store, attempt, who, number);
                        asked.device = sha(&number.to_le_bytes());
                        if store.admit(&asked).unwrap() == Admitted::Yes {
                            mine.push(who);
                        }
                    }
                    mine
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let distinct: BTreeSet<u64> = admitted.iter().copied().collect();
    assert_eq!(distinct.len(), admitted.len(), "a subject was admitted twice");
    assert_eq!(admitted.len(), 60, "places were left, or given twice");
}

/// Two processes lease a task at once, 50 times: one of them gets it, and the fence grows by one.
#[test]
fn of_two_processes_one_leads() {
    let Some(server) = shared() else { return };
    let (url, clock) = (server.database(), ManualClock::at(BEGIN));
    let stores = [open_at(&url, &clock), open_at(&url, &clock)];
    let (task, lease) = active(&stores[0], "led", at_least(2, 5));
    stores[0].hand_back(lease).unwrap();
    for turn in 2..52 {
        let leases: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = ["a", "b"]
                .into_iter()
                .zip(&stores)
                .map(|(process, store)| scope.spawn(move || store.lease(task, process, 30_000).unwrap()))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0].fence, turn);
        stores[0].hand_back(leases.into_iter().next().unwrap()).unwrap();
    }
}

/// The server loses power after admissions: whatever it forgot, no attempt that was open then is released.
#[test]
fn an_attempt_that_was_open_in_a_crash_is_never_released() {
    let Some(mut server) = Server::start() else { return };
    let (url, clock) = (server.database(), ManualClock::at(BEGIN));
    let store = open_at(&url, &clock);
    let (task, lease) = active(&store, "crash", at_least(2, 5));
    let attempt = open(&store, &lease);
    for who in 0..5 {
        assert_eq!(
            store.admit(&admission(&store, attempt, who, who)).unwrap(),
            Admitted::Yes
        );
    }
    server.restart("immediate");
    // The same process goes on, by new connections.
    let again = store.admit(&admission(&store, attempt, 3, 103)).unwrap();
    assert!(matches!(again, Admitted::Full | Admitted::Held(_)), "{again:?}");
    let error = store.reserve(&lease, attempt, 5).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { what, .. } if what.contains("the start of the database")),
        "{error}"
    );
    let joined: Vec<ParticipantId> = users(0..5);
    store
        .abandon(&lease, attempt, undertone_store::Reason::Crash, &joined)
        .unwrap();
    assert_eq!(store.observed(task).unwrap().users, 5);
    // The next attempt belongs to the new start. The five have counted in this round, so it takes others.
    let next = open(&store, &lease);
    assert!(matches!(
        store.admit(&admission(&store, next, 3, 203)).unwrap(),
        Admitted::TooSoon { .. }
    ));
    assert_eq!(
        store.admit(&admission(&store, next, 9, 209)).unwrap(),
        Admitted::Yes
    );
}

#[test]
fn a_process_that_is_alone_keeps_others_of_its_kind_out() {
    let Some(server) = shared() else { return };
    let url = server.database();
    let first = Postgres::open_alone(&url).unwrap();
    let refused = Postgres::open_alone(&url).map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    drop(first);
    // The server learns of the closed connection a moment later.
    let mut again = Postgres::open_alone(&url);
    for _ in 0..100 {
        if again.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        again = Postgres::open_alone(&url);
    }
    again.unwrap();
}

/// The clock is the server's, and never goes back.
#[test]
fn the_time_is_that_of_the_server() {
    let Some(server) = shared() else { return };
    let store = Postgres::open(&server.database()).unwrap();
    store.create_task(&new_task("timed", at_least(2, 5))).unwrap();
    let here = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64;
    // The server runs on this machine. A minute is far more than a slow test takes.
    assert!(store.now().abs_diff(here) < 60_000, "{} and {here}", store.now());
    let first = store.now();
    assert!(store.now() >= first);
}

#[test]
fn two_processes_that_open_an_empty_database_both_find_one_schema() {
    let Some(server) = shared() else { return };
    let url = server.database();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| Postgres::open(&url).map(drop)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for result in opened {
        result.unwrap();
    }
    Postgres::migrate(&url).unwrap();
}

#[test]
fn databases_of_other_programs_and_versions_are_refused() {
    let Some(server) = shared() else { return };
    let url = server.database();
    server.sql(&url, "CREATE TABLE theirs (a BIGINT)");
    for error in [
        Postgres::open(&url).map(drop).unwrap_err(),
        Postgres::migrate(&url).unwrap_err(),
    ] {
        assert!(error.to_string().contains("another program's tables"), "{error}");
    }
    let url = server.database();
    drop(Postgres::open(&url).unwrap());
    server.sql(&url, "UPDATE undertone_schema SET version = 99");
    for error in [
        Postgres::open(&url).map(drop).unwrap_err(),
        Postgres::migrate(&url).unwrap_err(),
    ] {
        assert!(error.to_string().contains("newer program"), "{error}");
    }
    server.sql(&url, "UPDATE undertone_schema SET version = 0");
    let error = Postgres::open(&url).map(drop).unwrap_err().to_string();
    assert!(error.contains("migrate it"), "{error}");
    let missing = Postgres::open("postgres://nobody@/none?host=/nowhere")
        .map(drop)
        .unwrap_err();
    assert!(matches!(missing, StoreError::Unavailable { .. }), "{missing}");
}

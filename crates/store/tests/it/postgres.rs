//! Several processes on one server of Postgres, its crashes, and its schema.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undertone_coordinator::participation::ParticipantId;
use undertone_store::{Admitted, ManualClock, Postgres, Store, StoreError};

use crate::common::postgres::{Server, shared};
use crate::common::*;

fn open_at(url: &str, clock: &ManualClock) -> Postgres {
    Postgres::with_clock(url, Arc::new(clock.clone())).unwrap()
}

/// A hundred subjects check in at four processes at once, each at all of them: each is admitted once, and no place is given twice.
#[test]
#[ignore = "slow"]
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
#[ignore = "slow"]
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
#[ignore = "slow"]
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
        .abandon(&lease, attempt, undertone_store::AbandonReason::Crash, &joined)
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

/// Opens a database whose lock a connection had that has ended. The server learns of the end a moment later.
fn once_freed(open: impl Fn() -> undertone_store::Result<Postgres>) -> Postgres {
    let ended = Instant::now();
    loop {
        match open() {
            Err(StoreError::Locked { .. }) if ended.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            opened => return opened.unwrap(),
        }
    }
}

#[test]
#[ignore = "slow"]
fn a_process_that_is_alone_keeps_others_of_its_kind_out() {
    let Some(server) = shared() else { return };
    let url = server.database();
    let first = Postgres::open_alone(&url).unwrap();
    let refused = Postgres::open_alone(&url).map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Locked { .. }), "{refused}");
    drop(first);
    once_freed(|| Postgres::open_alone(&url));
}

/// The clock is the server's, and never goes back.
#[test]
#[ignore = "slow"]
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
#[ignore = "slow"]
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
#[ignore = "slow"]
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

/// A process that has a database alone keeps processes of a service out, and they keep it out; they do not hinder each other.
#[test]
#[ignore = "slow"]
fn a_database_is_open_to_one_process_alone_or_to_those_of_a_service() {
    let Some(server) = shared() else { return };
    let url = server.database();
    let locked = |opened: undertone_store::Result<Postgres>| {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    };
    let first = Postgres::open_beside(&url).unwrap();
    let second = Postgres::open_beside(&url).unwrap();
    locked(Postgres::open_alone(&url));
    drop(first);
    locked(Postgres::open_alone(&url));
    drop(second);
    let alone = once_freed(|| Postgres::open_alone(&url));
    locked(Postgres::open_beside(&url));
    locked(Postgres::open_alone(&url));
    drop(alone);
    once_freed(|| Postgres::open_beside(&url));
}

/// A process that only reads goes by the clock of the server, not by 1970.
#[test]
#[ignore = "slow"]
fn a_store_that_was_only_read_shows_the_time_of_the_server() {
    let Some(server) = shared() else { return };
    let url = server.database();
    drop(Postgres::open(&url).unwrap());
    let store = Postgres::open(&url).unwrap();
    assert!(store.tasks().unwrap().is_empty());
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let here = since.unwrap().as_millis() as u64;
    assert!(here.abs_diff(store.now()) < 60_000, "{} and {here}", store.now());
}

/// An authority, and a certificate of it for a host name, with its key: all in PEM.
fn certificates(host: &str) -> (String, String, String) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "authority of a test");
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(params, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new([host.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    (authority.pem(), leaf.pem(), key.serialize_pem())
}

#[test]
#[ignore = "slow"]
fn connections_are_encrypted_to_a_server_whose_certificate_fits_and_to_no_other() {
    let (authority, certificate, key) = certificates("localhost");
    let Some(server) = Server::start_with_tls(&certificate, &key) else {
        return;
    };
    let folder = folder();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let right = file("right.pem", &authority);
    let foreign = file("foreign.pem", &certificates("localhost").0);
    let local = server.database();
    let name = local.split(['/', '?']).nth(3).unwrap();
    let at = |host: &str, rest: &str| {
        format!(
            "postgres://postgres@{host}:{}/{name}?hostaddr=127.0.0.1{rest}",
            server.port()
        )
    };
    for mode in ["require", "verify-full"] {
        let tls = |host: &str, roots: &str| at(host, &format!("&sslmode={mode}&sslrootcert={roots}"));
        let store = Postgres::open(&tls("localhost", &right)).unwrap();
        active(&store, &format!("words-{mode}"), at_least(2, 3));
        let encrypted = "SELECT 1 / count(*) FROM pg_stat_ssl WHERE ssl AND pid <> pg_backend_pid()";
        server.sql(&local, encrypted);
        let error = Postgres::open(&tls("localhost", &foreign))
            .unwrap_err()
            .to_string();
        assert!(error.contains("certificate"), "{error}");
        let error = Postgres::open(&tls("other.example", &right))
            .unwrap_err()
            .to_string();
        assert!(error.contains("certificate"), "{error}");
    }
    // The server lets nobody in without TLS, and the store does not fall back to it unasked.
    let error = Postgres::open(&at("localhost", "")).unwrap_err().to_string();
    assert!(
        error.contains("no encryption") || error.contains("SSL"),
        "{error}"
    );
}

/// The server loses power between two admissions of one subject at two processes that live on: `times` subjects, each in an attempt
/// of its own. Whatever the server forgot, the second device gets no place, and no sum with the first one is released.
fn between_two_admissions(times: u64) {
    let Some(mut server) = Server::start() else { return };
    let (url, clock) = (server.database(), ManualClock::at(BEGIN));
    let stores = [open_at(&url, &clock), open_at(&url, &clock)];
    let (_, lease) = active(&stores[0], "words", at_least(1, 1000));
    let mut forgotten = 0;
    for turn in 0..times {
        let attempt = open(&stores[0], &lease);
        let who = 1000 + turn;
        let first = admission(&stores[0], attempt, who, 2 * turn + 1);
        assert_eq!(stores[0].admit(&first).unwrap(), Admitted::Yes);
        server.restart("immediate");
        let mut second = admission(&stores[1], attempt, who, 2 * turn + 2);
        second.device = sha(&turn.to_le_bytes());
        let answer = stores[1].admit(&second).unwrap();
        assert_ne!(answer, Admitted::Yes, "turn {turn}");
        forgotten += u64::from(!matches!(answer, Admitted::Held(_)));
        let refused = stores[0].reserve(&lease, attempt, 1000).unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
        stores[0]
            .abandon(
                &lease,
                attempt,
                undertone_store::AbandonReason::Store,
                &[first.user],
            )
            .unwrap();
        // Its participation counts, although the server may have forgotten the session.
        let again = open(&stores[0], &lease);
        let third = admission(&stores[1], again, who, 1_000_000 + turn);
        let answer = stores[1].admit(&third).unwrap();
        assert!(matches!(answer, Admitted::TooSoon { .. }), "{answer:?}");
        stores[0]
            .abandon(&lease, again, undertone_store::AbandonReason::Few, &[])
            .unwrap();
    }
    println!("{forgotten} of {times} admissions were forgotten");
}

#[test]
#[ignore = "slow"]
fn a_subject_whose_admission_may_be_forgotten_is_never_twice_in_a_sum() {
    between_two_admissions(5);
}

mod by_hand {
    use super::*;

    #[test]
    #[ignore = "two minutes"]
    fn of_a_hundred_subjects_whose_admission_may_be_forgotten_none_is_twice_in_a_sum() {
        between_two_admissions(100);
    }
}

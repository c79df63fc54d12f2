//! The store in a file: threads, files and refusals to open.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undertone_store::{
    AbandonReason, Admitted, ManualClock, NewAttempt, SessionState, Sqlite, Store, StoreError,
};

use crate::common::*;

/// All bytes of the files of a folder.
fn contents(folder: &Path) -> Vec<u8> {
    fs::read_dir(folder)
        .unwrap()
        .flat_map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect()
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Eight threads admit the same users by devices of their own; gives the number of admissions per user.
fn race(store: &dyn Store, users: u64, target: u32) -> Vec<u64> {
    let (_, lease) = active(store, &format!("race for {target}"), at_least(2, 5));
    let new = NewAttempt {
        target,
        ..new_attempt(store, 0)
    };
    let attempt = store.open_attempt(&lease, &new).unwrap();
    let admitted: Vec<AtomicU64> = (0..users).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let admitted = &admitted;
            scope.spawn(move || {
                for step in 0..users {
                    // Neighbouring threads meet at the same users.
                    let who = (step + thread) % users;
                    let mut admission = admission(store, attempt, who, 1 + thread * users + who);
                    admission.device = sha(&[thread as u8, who as u8, (who >> 8) as u8]);
                    admission.session.0[14] = target as u8;
                    match store.admit(&admission).unwrap() {
                        Admitted::Yes => {
                            admitted[who as usize].fetch_add(1, Ordering::SeqCst);
                        }
                        Admitted::Held(_) | Admitted::Full => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    store
        .abandon(&lease, attempt, AbandonReason::Operator, &[])
        .unwrap();
    let counted = store.abandoned_since_release(lease.task).unwrap();
    let admitted: Vec<u64> = admitted.into_iter().map(AtomicU64::into_inner).collect();
    assert_eq!(
        counted[0].participants.len() as u64,
        admitted.iter().sum::<u64>(),
        "every admission counts"
    );
    admitted
}

#[test]
#[ignore = "slow"]
fn eight_threads_admit_no_user_twice() {
    for world in [World::memory(), World::sqlite()] {
        let admitted = race(world.store(), 1_000, 100_000);
        assert!(admitted.iter().all(|times| *times == 1), "{admitted:?}");
    }
}

#[test]
fn eight_threads_never_take_more_places_than_there_are() {
    for world in [World::memory(), World::sqlite()] {
        let admitted = race(world.store(), 300, 100);
        assert!(admitted.iter().all(|times| *times <= 1));
        assert_eq!(admitted.iter().sum::<u64>(), 100);
    }
}

#[test]
fn a_transaction_that_fails_undoes_nothing_of_its_neighbours() {
    let world = World::sqlite();
    let store = world.store();
    let (task, lease) = active(store, "neighbours", at_least(1, 5));
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let lease = &lease;
            scope.spawn(move || {
                for step in 0..50u8 {
                    store.append_metrics(task, &[thread, step]).unwrap();
                    assert!(store.published(task, 999).is_err());
                    assert!(store.open_attempt(lease, &new_attempt(store, 1)).is_err());
                    assert!(
                        store
                            .create_task(&new_task("neighbours", at_least(1, 1)))
                            .is_err()
                    );
                }
            });
        }
    });
    let lines = store.metrics(task).unwrap();
    assert_eq!(lines.len(), 400);
    for thread in 0..8 {
        let steps: Vec<u8> = lines
            .iter()
            .filter(|line| line[0] == thread)
            .map(|line| line[1])
            .collect();
        assert_eq!(steps, (0..50).collect::<Vec<_>>(), "thread {thread}");
    }
}

#[test]
fn a_reader_never_sees_half_a_release() {
    let world = World::sqlite();
    let store = world.store();
    let (task, lease) = active(store, "readers", at_least(1, 50));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    // Read in this order, each can only be later than the one before.
                    let models = store.unpublished(task).unwrap().len() as u64;
                    let row = store.task(task).unwrap();
                    let lines = store.ledger(task, 0).unwrap();
                    assert!(models <= row.head_round && row.head_round <= lines.len() as u64);
                    if let Some(at) = row.head_round.checked_sub(1) {
                        assert_eq!(hex(&sha(&lines[at as usize])), row.chain);
                    }
                }
            });
        }
        for _ in 0..40 {
            released(store, &lease, &[1, 2, 3]);
        }
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_second_opening_is_refused_while_the_first_lives() {
    let folder = folder();
    let path = folder.path().join("service.db");
    let first = Sqlite::open(&path).unwrap();
    for second in [Sqlite::open(&path).map(drop), Sqlite::migrate(&path)] {
        let error = second.unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        assert!(error.to_string().contains("service.db is in use"), "{error}");
    }
    drop(first);
    let again = Sqlite::open(&path).unwrap();
    assert!(again.now() > BEGIN / 2);
    assert!(again.tasks().unwrap().is_empty());
}

#[test]
fn a_file_that_is_no_database_of_ours_is_refused() {
    let folder = folder();
    let path = folder.path().join("service.db");
    fs::write(&path, vec![0x5a; 8192]).unwrap();
    let error = Sqlite::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("service.db"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = Sqlite::migrate(&path).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    let nowhere = folder.path().join("nowhere/service.db");
    let error = Sqlite::open(&nowhere).unwrap_err().to_string();
    assert!(error.contains("nowhere/service.db.lock"), "{error}");
    // A database of the present schema needs no migration, and survives one.
    drop(Sqlite::open(&path).unwrap());
    Sqlite::migrate(&path).unwrap();
    drop(Sqlite::open(&path).unwrap());
}

#[test]
fn a_newer_schema_is_refused_and_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("service.db");
    drop(Sqlite::open(&path).unwrap());
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    for refused in [Sqlite::open(&path).map(drop), Sqlite::migrate(&path)] {
        let error = refused.unwrap_err();
        let StoreError::Schema { expected, got, .. } = &error else {
            panic!("{error}");
        };
        assert!(*expected < 99 && *got == 99, "{error}");
        assert!(error.to_string().contains("use that one"), "{error}");
    }
    let conn = rusqlite::Connection::open(&path).unwrap();
    let starts: i64 = conn
        .query_row("SELECT starts FROM database", [], |row| row.get(0))
        .unwrap();
    assert_eq!(starts, 1, "a refused opening counts nothing");
}

#[test]
fn a_damaged_value_is_an_error_that_names_it() {
    let folder = folder();
    let path = folder.path().join("service.db");
    let store = Sqlite::open(&path).unwrap();
    let (task, _) = active(&store, "damaged", at_least(1, 1));
    drop(store);
    let damage = |sql: &str, words: &str| {
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.execute_batch(sql).unwrap();
        drop(conn);
        let store = Sqlite::open(&path).unwrap();
        let error = store.task(task).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    };
    damage(
        "UPDATE tasks SET min_sep = 0",
        "the participation schema of a task",
    );
    damage(
        "UPDATE tasks SET min_sep = 1, state = 'dancing'",
        "got \"dancing\"",
    );
    damage(
        "UPDATE tasks SET state = 'active', head_model = x'00'",
        "in the database is damaged",
    );
}

#[cfg(unix)]
#[test]
fn the_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::sqlite();
    active(world.store(), "private", at_least(1, 1));
    let folder = world.path().unwrap().parent().unwrap().to_owned();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "service.db",
            "service.db-shm",
            "service.db-wal",
            "service.db.lock"
        ]
    );
}

#[test]
fn no_subject_is_in_any_file() {
    let world = World::sqlite();
    let store = world.store();
    let folder = world.path().unwrap().parent().unwrap().to_owned();
    let subject = sha(b"the subject of a certificate");
    for window in 0..20 {
        assert!(store.issue(&subject, window, 3, 8).unwrap());
        assert!(!store.issue(&subject, window, 9, 8).unwrap());
    }
    let (_, lease) = active(store, "canary", at_least(1, 5));
    let attempt = open(store, &lease);
    let admitted = admission(store, attempt, 0x1234_5678_9abc_def0, 1);
    store.admit(&admitted).unwrap();
    store
        .note_sessions(&[(session(1), SessionState::Reported)])
        .unwrap();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    let bytes = contents(&folder);
    // The search finds what is there.
    assert!(holds(&bytes, &admitted.device));
    assert!(holds(&bytes, &0x1234_5678_9abc_def0u64.to_be_bytes()));
    assert!(!holds(&bytes, &subject));
    assert!(!holds(&bytes, hex(&subject).as_bytes()));
    // Neither is a plain hash of it, by which a thief could try subjects.
    assert!(!holds(&bytes, &sha(&subject)));
}

#[test]
fn a_clock_that_is_set_back_frees_no_hold() {
    let folder = folder();
    let clock = ManualClock::at(BEGIN);
    let store = Sqlite::with_clock(&folder.path().join("service.db"), Arc::new(clock.clone())).unwrap();
    let (task, _) = active(&store, "clock", at_least(1, 5));
    clock.advance(20_000);
    assert_eq!(store.now(), BEGIN + 20_000);
    clock.set(0);
    assert_eq!(store.now(), BEGIN + 20_000);
    assert_eq!(store.lease(task, "two", 10).unwrap(), None);
    clock.set(BEGIN + 30_000);
    assert_eq!(
        store.lease(task, "two", 10).unwrap().unwrap().until,
        BEGIN + 30_010
    );
}

#[test]
fn a_destroyed_key_is_in_no_byte_of_the_file() {
    let folder = folder();
    let path = folder.path().join("service.db");
    let store = Sqlite::open(&path).unwrap();
    let key = b"a key that must not stay behind";
    let (task, lease) = active(&store, "words", at_least(1, 1));
    store.keep_pseudonym_key(task, key).unwrap();
    assert!(holds(&contents(folder.path()), key));
    let chain = store.task(task).unwrap().chain;
    store.end(&lease, b"{}", &hex(&sha(b"{}")), &chain).unwrap();
    assert!(store.forget_pseudonym_key(task, "operator").unwrap());
    drop(store);
    assert!(!holds(&contents(folder.path()), key));
}

//! Copies of a whole database between a server of Postgres and a file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::types::Value;
use undertone_coordinator::participation::ParticipantId;
use undertone_store::{
    AbandonReason, Departure, ManualClock, Postgres, SessionState, Sqlite, Store, StoreError,
};

use crate::common::postgres::shared;
use crate::common::*;

/// A service after a release, an abandoned attempt and an open one, with a row in every table.
fn fill(store: &dyn Store) {
    let (task, lease) = active(store, "words", at_least(2, 3));
    released(store, &lease, &[1, 2, 3]);
    let attempt = open(store, &lease);
    store.admit(&admission(store, attempt, 7, 1)).unwrap();
    store.note_sessions(&[(session(1), SessionState::Ready)]).unwrap();
    store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
    let attempt = open(store, &lease);
    store.admit(&admission(store, attempt, 8, 2)).unwrap();
    store
        .append_metrics(task, "{\"text\":\"\u{e9}\"}".as_bytes())
        .unwrap();
    store.enrol(&enrolment(&sha(b"device"), "keyboard-en")).unwrap();
    assert!(store.issue(&sha(b"subject"), 1, 2, 8).unwrap());
    assert!(store.spend(&sha(b"key"), u64::MAX / 4).unwrap());
    assert!(store.bar(task, ParticipantId::new(u64::MAX), "operator").unwrap());
    assert!(
        store
            .depart("keyboard-en", &sha(b"person"), Departure::Left, "operator")
            .unwrap()
    );
    store.keep_pseudonym_key(task, b"sealed\0\xff").unwrap();
    // Histograms are kept for a task whose users were forgotten.
    let (over, lease) = active(store, "over", at_least(2, 3));
    released(store, &lease, &[4, 5]);
    let chain = store.task(over).unwrap().chain;
    store.end(&lease, b"{}", &hex(&sha(b"{}")), &chain).unwrap();
    store.forget_pseudonym_key(over, "operator").unwrap();
    store.register(&process("one")).unwrap();
}

/// All rows of all tables of a file, each table sorted by its text.
fn rows(path: &Path) -> Vec<(String, Vec<String>)> {
    let file = Connection::open(path).unwrap();
    let sql =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut tables = file.prepare(sql).unwrap();
    let names: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    names
        .into_iter()
        .map(|table| {
            let mut select = file.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = select.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let cells: Vec<Value> = (0..columns).map(|at| row.get(at).unwrap()).collect();
                Ok(format!("{cells:?}"))
            };
            let mut found: Vec<String> = select.query_map([], row).unwrap().map(Result::unwrap).collect();
            found.sort();
            (table, found)
        })
        .collect()
}

#[test]
#[ignore = "slow"]
fn a_server_goes_to_a_file_and_back_with_every_row() {
    let Some(server) = shared() else { return };
    let (folder, clock) = (folder(), ManualClock::at(BEGIN));
    let at = |name: &str| folder.path().join(name);
    let (first, second) = (server.database(), server.database());
    let store = Postgres::with_clock(&first, Arc::new(clock.clone())).unwrap();
    fill(&store);
    Postgres::copy(&first, &at("one")).unwrap();
    let copied = rows(&at("one"));
    assert!(copied.len() >= 16, "{copied:?}");
    for (table, rows) in &copied {
        assert!(!rows.is_empty(), "no row of {table} is tested");
    }
    Postgres::fill(&second, &at("one")).unwrap();
    Postgres::copy(&second, &at("two")).unwrap();
    // A file that was opened counts its openings; everything else is as it was.
    let without_starts = |path: &Path| -> Vec<_> {
        let all = rows(path).into_iter();
        all.filter(|(table, _)| table != "database").collect()
    };
    assert_eq!(without_starts(&at("two")), without_starts(&at("one")));
    // Both stores show the same, the file too, and the next attempt has a number of its own.
    let here = Postgres::with_clock(&second, Arc::new(clock.clone())).unwrap();
    let file = Sqlite::with_clock(&at("one"), Arc::new(clock.clone())).unwrap();
    let task = store.tasks().unwrap().remove(0).task.id;
    for other in [&here as &dyn Store, &file] {
        assert_eq!(other.ledger(task, 0).unwrap(), store.ledger(task, 0).unwrap());
        assert_eq!(other.observed(task).unwrap(), store.observed(task).unwrap());
        assert_eq!(
            other.pseudonym_key(task).unwrap(),
            store.pseudonym_key(task).unwrap()
        );
        let (before, state) = store.open_attempt_of(task).unwrap().unwrap();
        assert_eq!(other.open_attempt_of(task).unwrap(), Some((before, state)));
        let lease = other.lease(task, "one", 30_000).unwrap().unwrap();
        other.abandon(&lease, before, AbandonReason::Crash, &[]).unwrap();
        assert!(open(other, &lease) > before);
    }
    assert_eq!(here.audit().unwrap().len() + 1, {
        // The audit chain goes on where it stood.
        let note = here.set_state(
            task,
            undertone_protocol::TaskState::Active,
            undertone_protocol::TaskState::Paused,
            "operator",
            "",
        );
        note.unwrap();
        here.audit().unwrap().len()
    });
}

#[test]
#[ignore = "slow"]
fn a_file_of_one_process_goes_to_a_server() {
    let Some(server) = shared() else { return };
    let (folder, clock) = (folder(), ManualClock::at(BEGIN));
    let path = folder.path().join("service.db");
    let store = Sqlite::with_clock(&path, Arc::new(clock.clone())).unwrap();
    fill(&store);
    drop(store);
    let url = server.database();
    Postgres::fill(&url, &path).unwrap();
    let (back, before) = (folder.path().join("back"), rows(&path));
    Postgres::copy(&url, &back).unwrap();
    let after = rows(&back);
    for (one, two) in before.iter().zip(&after).filter(|(one, _)| one.0 != "database") {
        assert_eq!(one, two);
    }
}

#[test]
#[ignore = "slow"]
fn filled_foreign_and_older_databases_are_refused() {
    let Some(server) = shared() else { return };
    let (folder, clock) = (folder(), ManualClock::at(BEGIN));
    let at = |name: &str| folder.path().join(name);
    let (filled, empty, foreign, older) = (
        server.database(),
        server.database(),
        server.database(),
        server.database(),
    );
    fill(&Postgres::with_clock(&filled, Arc::new(clock.clone())).unwrap());
    Postgres::copy(&filled, &at("one")).unwrap();
    let refused = Postgres::fill(&filled, &at("one")).unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    assert!(
        Postgres::copy(&filled, &at("one")).is_err(),
        "a file is not written over"
    );
    let missing = Postgres::copy(&empty, &at("two")).unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    assert!(!at("two").exists());
    server.sql(&foreign, "CREATE TABLE theirs (a int)");
    assert!(Postgres::fill(&foreign, &at("one")).is_err());
    drop(Postgres::with_clock(&older, Arc::new(clock.clone())).unwrap());
    server.sql(&older, "UPDATE undertone_schema SET version = 1");
    let old = Postgres::copy(&older, &at("three")).unwrap_err();
    assert!(matches!(old, StoreError::Schema { .. }), "{old}");
    // A file that fails in the middle leaves no row behind.
    let broken = at("broken");
    std::fs::copy(at("one"), &broken).unwrap();
    let file = Connection::open(&broken).unwrap();
    file.pragma_update(None, "foreign_keys", false).unwrap();
    file.execute("UPDATE models SET task = task + 98", []).unwrap();
    drop(file);
    assert!(Postgres::fill(&empty, &broken).is_err());
    Postgres::fill(&empty, &at("one")).unwrap();
}

/// A snapshot has whole transactions alone: the rows of a release and its line are there together.
#[test]
#[ignore = "slow"]
fn a_copy_of_a_server_that_works_is_one_moment() {
    let Some(server) = shared() else { return };
    let (folder, clock) = (folder(), ManualClock::at(BEGIN));
    let url = server.database();
    let store = Postgres::with_clock(&url, Arc::new(clock.clone())).unwrap();
    let (task, lease) = active(&store, "words", at_least(1, 50));
    let over = AtomicBool::new(false);
    let copies = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40 {
                released(&store, &lease, &[1, 2, 3]);
            }
            over.store(true, Ordering::SeqCst);
        });
        let mut copies = 0;
        while !over.load(Ordering::SeqCst) || copies == 0 {
            let path = folder.path().join(copies.to_string());
            Postgres::copy(&url, &path).unwrap();
            let copy = Sqlite::with_clock(&path, Arc::new(clock.clone())).unwrap();
            let row = copy.task(task).unwrap();
            assert_eq!(copy.ledger(task, 0).unwrap().len() as u64, row.head_round);
            assert_eq!(
                copy.observed(task).unwrap().users,
                if row.head_round == 0 { 0 } else { 3 }
            );
            copies += 1;
        }
        copies
    });
    assert!(copies >= 1);
}

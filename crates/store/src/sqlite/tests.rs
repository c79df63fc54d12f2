//! The writer and the settings of its connection, from within.

use std::sync::mpsc::channel;

use super::*;
use crate::Store as _;
use crate::rules::missing;
use crate::sql::writer::Durability::{self, Full, Normal};
use crate::sql::{change, one};

fn open() -> (tempfile::TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("service.db")).unwrap();
    (folder, store)
}

fn setting(store: &Sqlite, durability: Durability) -> i64 {
    store
        .database
        .write(durability, |conn| Ok(one(conn, "PRAGMA synchronous", ())?))
        .unwrap()
}

#[test]
fn durable_transactions_alone_are_synced() {
    let (_folder, store) = open();
    // 2 is FULL, 1 is NORMAL.
    for (durability, expected) in [(Normal, 1), (Full, 2), (Full, 2), (Normal, 1), (Full, 2)] {
        assert_eq!(setting(&store, durability), expected);
    }
}

/// Number of commits in the log of a database: frames that end one name the size of the database.
fn commits(store: &Sqlite) -> usize {
    let mut name = store.path.as_os_str().to_owned();
    name.push("-wal");
    let log = std::fs::read(std::path::PathBuf::from(name)).unwrap();
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let salts = &log[16..24];
    log[32..]
        .chunks_exact(24 + page)
        .filter(|frame| frame[8..16] == *salts && frame[4..8] != [0; 4])
        .count()
}

#[test]
fn waiting_transactions_share_a_commit() {
    let (_folder, store) = open();
    let before = commits(&store);
    let (let_go, gate) = channel::<()>();
    let (entered, inside) = channel::<()>();
    std::thread::scope(|scope| {
        let store = &store;
        scope.spawn(move || {
            store
                .database
                .write(Normal, move |_| {
                    entered.send(()).unwrap();
                    gate.recv().unwrap();
                    Ok(())
                })
                .unwrap();
        });
        inside.recv().unwrap();
        // The writer is busy; these wait together.
        let waiting: Vec<_> = (0..20u8)
            .map(|number| {
                scope.spawn(move || {
                    store.database.write(Normal, move |conn| {
                        let sql = "INSERT INTO devices VALUES (?1, 'p', 0, 0, NULL)";
                        change(conn, sql, [[number; 32]])?;
                        match number {
                            7 => Err(missing("row", number.to_string()).into()),
                            _ => Ok(()),
                        }
                    })
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let_go.send(()).unwrap();
        let answers: Vec<bool> = waiting
            .into_iter()
            .map(|thread| thread.join().unwrap().is_ok())
            .collect();
        assert_eq!(answers.iter().filter(|made| !**made).count(), 1);
        assert!(!answers[7]);
    });
    let rows: i64 = store
        .database
        .read(|conn| Ok(one(conn, "SELECT count(*) FROM devices", ())?))
        .unwrap();
    assert_eq!(
        rows, 19,
        "the failed transaction left nothing, and took nothing with it"
    );
    // The busy one changed nothing, so it has no frame. A slow machine may cut the twenty in two or three.
    let shared = commits(&store) - before;
    assert!((1..=5).contains(&shared), "{shared} commits for 20 transactions");
}

fn fill(store: &Sqlite, from: u32) -> Result<()> {
    store.database.write(Full, move |conn| {
        for number in from..from + 2_000 {
            let key = [&number.to_le_bytes()[..], &[0; 28]].concat();
            change(
                conn,
                "INSERT INTO devices VALUES (?1, 'population', 0, 0, NULL)",
                [key],
            )?;
        }
        Ok(())
    })
}

fn limit_pages(store: &Sqlite, pages: u32) {
    store
        .database
        .write(Full, move |conn| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            Ok(one::<i64>(conn, &sql, ()).map(drop)?)
        })
        .unwrap();
}

#[test]
fn a_full_database_goes_on_after_space_is_made() {
    let (_folder, store) = open();
    fill(&store, 0).unwrap();
    limit_pages(&store, 1);
    let error = fill(&store, 10_000).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(
        error.to_string().contains("service.db") && error.to_string().contains("full"),
        "{error}"
    );
    let rows = || -> i64 {
        store
            .database
            .read(|conn| Ok(one(conn, "SELECT count(*) FROM devices", ())?))
            .unwrap()
    };
    assert_eq!(rows(), 2_000, "no half transaction");
    limit_pages(&store, 1_000_000);
    fill(&store, 10_000).unwrap();
    assert_eq!(rows(), 4_000);
}

#[test]
fn a_panic_in_a_transaction_ends_the_writer_and_answers_its_callers() {
    let (_folder, store) = open();
    let error = store
        .database
        .write::<(), _>(Normal, |_| panic!("a bug"))
        .unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let error = store.database.write(Normal, |_| Ok(())).unwrap_err();
    assert!(
        error.to_string().contains("the thread that writes has ended"),
        "{error}"
    );
    // Reading goes on.
    assert!(store.tasks().unwrap().is_empty());
}

#[test]
fn a_reader_cannot_write() {
    let (_folder, store) = open();
    let error = store
        .database
        .read(|conn| {
            Ok(change(
                conn,
                "INSERT INTO devices VALUES (x'00', 'p', 0, 0, NULL)",
                (),
            )?)
        })
        .unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

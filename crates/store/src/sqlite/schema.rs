//! The schema of the database, its version and its migrations.

use rusqlite::Connection;

use super::sql_error;
use crate::{Result, StoreError, rules};

/// Marks a database as one of this program: "UDT1".
const APPLICATION: i32 = 0x5544_5431;

/// The steps from an empty database to the present schema. A step that was released never changes; a new schema is a new step.
pub(crate) const MIGRATIONS: [&str; 4] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

/// The version of the schema that this program reads and writes.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// The version from which on a device is named by a hash of its key.
pub(crate) const HASHED: u32 = 4;

/// Creates the schema in an empty database, and refuses every database of another schema.
pub(super) fn open(conn: &Connection, place: &str) -> Result<()> {
    let (application, version) = marks(conn, place)?;
    if application == 0 && version == 0 && is_empty(conn, place)? {
        // All steps in one transaction: a crash leaves an empty database or a whole one.
        return step(conn, place, &MIGRATIONS.concat(), VERSION);
    }
    check_application(application, place)?;
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::Schema {
        place: place.to_owned(),
        expected: VERSION,
        got: version,
        hint: match version < VERSION {
            true => "keep a copy of it, then migrate it (`undertone serve --migrate`)",
            false => "it was written by a newer program; use that one",
        },
    })
}

/// Brings an older database to the present schema.
pub(super) fn migrate(conn: &Connection, place: &str) -> Result<()> {
    let (application, _) = marks(conn, place)?;
    check_application(application, place)?;
    migrate_with(conn, place, &MIGRATIONS)
}

/// Makes the steps that the database lacks, all in one transaction: a process that dies meanwhile leaves the schema before them.
fn migrate_with(conn: &Connection, place: &str, steps: &[&str]) -> Result<()> {
    let (_, version) = marks(conn, place)?;
    let done = version as usize;
    if done > steps.len() {
        return Err(StoreError::Schema {
            place: place.to_owned(),
            expected: steps.len() as u32,
            got: version,
            hint: "it was written by a newer program; use that one",
        });
    }
    for (at, statements) in steps.iter().enumerate().skip(done) {
        step(conn, place, statements, at as u32 + 1)?;
    }
    Ok(())
}

/// Makes one step to a version of the schema, in a transaction.
fn step(conn: &Connection, place: &str, statements: &str, version: u32) -> Result<()> {
    let made = || {
        conn.execute_batch(&format!("BEGIN IMMEDIATE;\n{statements}"))?;
        if version == HASHED {
            hash_devices(conn)?;
        }
        conn.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION};\nPRAGMA user_version = {version};\nCOMMIT;"
        ))
    };
    if let Err(error) = made() {
        if !conn.is_autocommit() {
            // The first error is the one to report.
            let _ = conn.execute_batch("ROLLBACK");
        }
        return Err(sql_error(&error, place));
    }
    Ok(())
}

/// PRIVACY: replaces the keys of devices by their hashes.
fn hash_devices(conn: &Connection) -> rusqlite::Result<()> {
    let mut keys = conn.prepare("SELECT key FROM devices")?;
    let keys: Vec<Vec<u8>> = keys
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut renamed = conn.prepare("UPDATE devices SET key = ?2 WHERE key = ?1")?;
    for key in keys {
        renamed.execute((&key, rules::device_name(&key)))?;
    }
    Ok(())
}

fn marks(conn: &Connection, place: &str) -> Result<(i32, u32)> {
    let number = |name: &str| {
        conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            .map_err(|error| sql_error(&error, place))
    };
    let version = number("user_version")?;
    Ok((number("application_id")?, version.cast_unsigned()))
}

fn is_empty(conn: &Connection, place: &str) -> Result<bool> {
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    })
    .map(|tables| tables == 0)
    .map_err(|error| sql_error(&error, place))
}

fn check_application(application: i32, place: &str) -> Result<()> {
    if application == APPLICATION {
        return Ok(());
    }
    Err(StoreError::Damaged {
        what: format!("the file {place}"),
        reason: format!(
            "expected a database of Undertone's service ({APPLICATION:#x}), got {application:#x}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of a later program.
    fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
        MIGRATIONS.iter().chain(more).copied().collect()
    }

    fn tables(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn a_migration_keeps_the_rows_of_a_filled_database() {
        let conn = Connection::open_in_memory().unwrap();
        open(&conn, "here").unwrap();
        conn.execute_batch("INSERT INTO devices VALUES (x'01', 'p', 3, 0, NULL)")
            .unwrap();
        migrate_with(
            &conn,
            "here",
            &with(&["ALTER TABLE devices ADD COLUMN class TEXT NOT NULL DEFAULT 'phone';"]),
        )
        .unwrap();
        let class: String = conn
            .query_row("SELECT class FROM devices WHERE enrolled_day = 3", [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(class, "phone");
        // This program is now the older one.
        let error = open(&conn, "here").unwrap_err().to_string();
        assert!(
            error.contains(&format!("schema {VERSION}, got {}", VERSION + 1))
                && error.contains("newer program"),
            "{error}"
        );
        let error = migrate(&conn, "here").unwrap_err().to_string();
        assert!(error.contains("newer program"), "{error}");
    }

    /// A row of a table as SQLite gives it.
    type Cells = Vec<rusqlite::types::Value>;

    /// The tables of a database with their columns.
    fn columns(conn: &Connection) -> Vec<(String, Vec<String>)> {
        let sql = "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' \
                   ORDER BY m.name, c.cid";
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        let mut statement = conn.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
        for (table, column) in rows.unwrap().map(|row| row.unwrap()) {
            match found.last_mut().filter(|(last, _)| *last == table) {
                Some((_, columns)) => columns.push(column),
                None => found.push((table, vec![column])),
            }
        }
        found
    }

    fn rows(conn: &Connection, table: &str, columns: &[String]) -> Vec<Cells> {
        let sql = format!("SELECT {} FROM {table}", columns.join(", "));
        let read = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|at| row.get(at)).collect();
        let mut statement = conn.prepare(&sql).unwrap();
        statement
            .query_map([], read)
            .unwrap()
            .map(|row| row.unwrap())
            .collect()
    }

    /// A database after a release, an abandoned attempt and an open one, with a row in every table.
    fn filled(path: &std::path::Path) {
        use crate::test_rows::{
            BEGIN, active, admission, at_least, enrolment, hex, open, process, released, session, sha,
        };
        use crate::{AbandonReason, Departure, ManualClock, SessionState, Sqlite, Store};
        use undertone_coordinator::participation::ParticipantId;
        let store = Sqlite::with_clock(path, std::sync::Arc::new(ManualClock::at(BEGIN))).unwrap();
        let (task, lease) = active(&store, "words", at_least(2, 3));
        released(&store, &lease, &[1, 2, 3]);
        let attempt = open(&store, &lease);
        store.admit(&admission(&store, attempt, 7, 1)).unwrap();
        store.note_sessions(&[(session(1), SessionState::Ready)]).unwrap();
        store.abandon(&lease, attempt, AbandonReason::Few, &[]).unwrap();
        let attempt = open(&store, &lease);
        store.admit(&admission(&store, attempt, 8, 2)).unwrap();
        store.append_metrics(task, b"{}").unwrap();
        store.enrol(&enrolment(&sha(b"device"), "keyboard-en")).unwrap();
        store
            .depart("keyboard-en", &sha(b"person"), Departure::Left, "operator")
            .unwrap();
        assert!(store.issue(&sha(b"subject"), 1, 2, 8).unwrap());
        assert!(store.spend(&sha(b"key"), u64::MAX / 4).unwrap());
        assert!(store.bar(task, ParticipantId::new(9), "operator").unwrap());
        store.keep_pseudonym_key(task, b"sealed").unwrap();
        store.register(&process("one")).unwrap();
        // Histograms are kept for a task whose users were forgotten.
        let (over, lease) = active(&store, "over", at_least(2, 3));
        released(&store, &lease, &[4, 5]);
        let (chain, line) = (store.task(over).unwrap().chain, hex(&sha(b"{}")));
        store.end(&lease, b"{}", &line, &chain).unwrap();
        store.forget_pseudonym_key(over, "operator").unwrap();
    }

    #[test]
    fn a_migration_keeps_every_row_that_a_service_wrote_and_the_older_program_refuses_the_result() {
        let folder = crate::test_rows::folder();
        let path = folder.path().join("service.db");
        filled(&path);
        let conn = Connection::open(&path).unwrap();
        let tables = columns(&conn);
        let all = |conn: &Connection| -> Vec<Vec<Cells>> {
            tables
                .iter()
                .map(|(table, columns)| rows(conn, table, columns))
                .collect()
        };
        let before = all(&conn);
        assert!(tables.len() >= 17, "{tables:?}");
        for ((table, _), rows) in tables.iter().zip(&before) {
            assert!(
                !rows.is_empty() || table.starts_with("sqlite_"),
                "no row of {table} is tested"
            );
        }
        // The schema of a later program: a column, an index and a table more.
        let steps = with(&[
            "ALTER TABLE users ADD COLUMN arm INTEGER NOT NULL DEFAULT 3; CREATE INDEX by_arm ON users (task, arm);",
            "CREATE TABLE arms (task INTEGER NOT NULL, arm INTEGER NOT NULL, PRIMARY KEY (task, arm)) STRICT; \
             INSERT INTO arms SELECT DISTINCT task, arm FROM users;",
        ]);
        migrate_with(&conn, "here", &steps).unwrap();
        assert_eq!(all(&conn), before);
        assert_eq!(marks(&conn, "here").unwrap().1, VERSION + 2);
        let arms: i64 = conn
            .query_row("SELECT count(*) FROM arms WHERE arm = 3", [], |row| row.get(0))
            .unwrap();
        assert_eq!(arms, 1);
        // A second call finds nothing to do.
        migrate_with(&conn, "here", &steps).unwrap();
        assert_eq!(all(&conn), before);
        drop(conn);
        let refused = crate::Sqlite::open(&path).unwrap_err().to_string();
        let expected = format!(
            "expected a database of schema {VERSION}, got {}; it was written by a newer program; use that one",
            VERSION + 2
        );
        assert!(refused.contains(&expected), "{refused}");
        assert!(crate::Sqlite::migrate(&path).is_err());
    }

    #[test]
    fn a_step_that_fails_leaves_the_schema_before_it() {
        let conn = Connection::open_in_memory().unwrap();
        open(&conn, "here").unwrap();
        let before = tables(&conn);
        let bad = with(&["CREATE TABLE extra (a) STRICT; SELECT nothing FROM nowhere;"]);
        assert!(migrate_with(&conn, "here", &bad).is_err());
        assert_eq!(
            (tables(&conn), marks(&conn, "here").unwrap().1),
            (before, VERSION)
        );
        open(&conn, "here").unwrap();
    }

    #[test]
    fn a_database_of_the_first_schema_is_migrated_to_this_one_with_its_rows() {
        let conn = Connection::open_in_memory().unwrap();
        migrate_with(&conn, "here", &MIGRATIONS[..1]).unwrap();
        conn.execute_batch("INSERT INTO devices VALUES (x'01', 'p', 3, 0)")
            .unwrap();
        assert!(open(&conn, "here").is_err());
        migrate(&conn, "here").unwrap();
        open(&conn, "here").unwrap();
        let rows: i64 = conn
            .query_row("SELECT count(*) FROM devices", [], |row| row.get(0))
            .unwrap();
        assert_eq!(rows, 1);
        assert_eq!(conn.execute("DELETE FROM barred", []).unwrap(), 0);
    }

    #[test]
    fn a_database_of_an_earlier_program_is_migrated_without_a_key_of_a_device_in_its_files() {
        use crate::{Sqlite, Store};
        let folder = crate::test_rows::folder();
        let path = folder.path().join("service.db");
        let key: Vec<u8> = (100..132).collect();
        let held = || -> usize {
            let files = std::fs::read_dir(folder.path()).unwrap();
            files
                .map(|file| std::fs::read(file.unwrap().path()).unwrap())
                .map(|bytes| bytes.windows(32).filter(|part| *part == key).count())
                .sum()
        };
        let conn = Connection::open(&path).unwrap();
        migrate_with(&conn, "here", &MIGRATIONS[..3]).unwrap();
        conn.execute_batch(
            "INSERT INTO tasks VALUES (1, x'07', 'p', 'n', 'train', '', x'07', '', 'at_least', 1, 1, 1, 1, x'07', 'completed', \
             0, x'07', NULL, '', 0, NULL, 0); \
             INSERT INTO attempts VALUES (1, 1, 0, 0, 'abandoned', 'few', 0, 1, 1, 1, 1, 1, 0, NULL, 1, 0);",
        )
        .unwrap();
        conn.execute("INSERT INTO devices VALUES (?1, 'p', 3, 1)", [&key])
            .unwrap();
        conn.execute(
            "INSERT INTO sessions VALUES (x'09', 1, 5, ?1, x'01', 'ready', 1)",
            [&key],
        )
        .unwrap();
        drop(conn);
        assert!(held() >= 3, "the search finds the rows and an index");
        assert!(Sqlite::open(&path).is_err());
        Sqlite::migrate(&path).unwrap();
        assert_eq!(held(), 0);
        // The device is known all the same.
        let store = Sqlite::open(&path).unwrap();
        let found = store.device(&key.clone().try_into().unwrap()).unwrap().unwrap();
        assert!(found.revoked && found.enrolled_day == 3);
        store.sweep().unwrap();
        let sessions: i64 = Connection::open(&path)
            .unwrap()
            .query_row("SELECT count(*) FROM sessions", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sessions, 0, "its task has ended");
    }

    #[test]
    fn a_database_of_another_program_is_refused() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE theirs (a)").unwrap();
        for result in [open(&conn, "here"), migrate(&conn, "here")] {
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains("the file here") && error.contains("got 0x0"),
                "{error}"
            );
        }
        assert_eq!(tables(&conn), 1);
    }

    #[test]
    fn an_older_database_is_refused_until_it_is_migrated() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&format!(
            "CREATE TABLE old (a); PRAGMA application_id = {APPLICATION};"
        ))
        .unwrap();
        let error = open(&conn, "here").unwrap_err().to_string();
        assert!(
            error.contains(&format!("schema {VERSION}, got 0")) && error.contains("migrate it"),
            "{error}"
        );
        migrate(&conn, "here").unwrap();
        open(&conn, "here").unwrap();
    }

    #[test]
    fn every_column_has_a_comment_or_a_name_that_needs_none() {
        let plain = [
            "id",
            "task",
            "round",
            "attempt",
            "population",
            "name",
            "digest",
            "state",
            "line",
            "seq",
            "user",
            "key",
            "at",
            "actor",
            "action",
            "detail",
            "opened",
            "revoked",
            "number",
        ];
        let lines = MIGRATIONS.iter().flat_map(|step| step.lines());
        for line in lines.filter(|line| line.starts_with("    ")) {
            let name = line.trim().split(' ').next().unwrap();
            let is_column = name
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '_');
            assert!(
                !is_column || line.contains("-- ") || plain.contains(&name),
                "{line}"
            );
        }
    }
}

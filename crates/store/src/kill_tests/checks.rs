//! The state that a killed process may leave.

use super::*;

pub(super) fn number(conn: &Connection, sql: &str) -> u64 {
    let number: i64 = conn
        .query_row(sql, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    number.cast_unsigned()
}

/// Checks a database by statements that are none of the store's own.
pub(super) fn check_database(path: &Path) {
    let conn = Connection::open(path).unwrap();
    let whole: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok");
    let broken: Vec<String> = conn
        .prepare("PRAGMA foreign_key_check")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(broken.is_empty(), "{broken:?}");
    let head = number(&conn, "SELECT ifnull(sum(head_round), 0) FROM tasks");
    for sql in [
        "SELECT count(*) FROM releases",
        "SELECT count(*) FROM ledger",
        "SELECT count(*) FROM metrics",
        "SELECT count(*) FROM models WHERE round > 0",
        "SELECT count(*) FROM attempts WHERE state = 'committed'",
    ] {
        assert_eq!(number(&conn, sql), head, "{sql}");
    }
    // The count of a user is the number of releases and abandonments that name it.
    let counted = number(&conn, "SELECT ifnull(sum(participations), 0) FROM users");
    let named = number(&conn, "SELECT ifnull(sum(included + lost), 0) FROM releases")
        + number(&conn, "SELECT count(*) FROM abandoned");
    assert_eq!(counted, named, "participations");
    for sql in [
        // Places are those of the open sessions.
        "SELECT count(*) FROM attempts a WHERE closed IS NULL AND occupied <> (SELECT count(*) FROM sessions s \
         WHERE s.attempt = a.id AND s.state NOT IN ('lost', 'lost_before_ready'))",
        // A hold stands for a session of an open attempt.
        "SELECT count(*) FROM users u WHERE holds_until IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions s \
         JOIN attempts a ON a.id = s.attempt WHERE a.closed IS NULL AND a.task = u.task AND s.user = u.user)",
        // An attempt that ended says how.
        "SELECT count(*) FROM attempts WHERE (closed IS NULL) <> (state IN ('selecting', 'reporting', 'releasing'))",
        "SELECT count(*) FROM attempts WHERE (reason IS NULL) <> (state <> 'abandoned')",
    ] {
        assert_eq!(number(&conn, sql), 0, "{sql}");
    }
}

/// Checks that every file under its final name is whole, and that heads and served blobs are of committed releases.
pub(super) fn check_blobs(root: &Path, store: &Sqlite, task: TaskId) {
    let list = |folder: PathBuf| -> Vec<PathBuf> {
        let found = fs::read_dir(folder).into_iter().flatten();
        found.map(|entry| entry.unwrap().path()).collect()
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    for path in list(root.join("blobs")) {
        assert_eq!(hex(&sha(&fs::read(&path).unwrap())), name(&path));
    }
    for folder in list(root.join("staged")) {
        let attempt = AttemptId(name(&folder).parse().unwrap());
        for path in list(folder) {
            let expected = match name(&path).as_str() {
                "model" => model(attempt),
                "state" => state(attempt),
                other => panic!("{other}"),
            };
            assert!(
                fs::read(&path).unwrap() == expected,
                "{} is not whole",
                path.display()
            );
        }
    }
    let lines = store.ledger(task, 0).unwrap();
    for path in list(root.join("heads").join(task.to_string())) {
        let round: u64 = name(&path).parse().unwrap();
        let bytes = fs::read_to_string(&path).unwrap();
        let line = lines
            .get(round as usize - 1)
            .expect("a head without a committed release");
        assert!(bytes.ends_with(&hex(&sha(line))), "{bytes}");
        assert!(bytes.starts_with(&format!("{round} ")), "{bytes}");
    }
}

/// Checks that the store holds all that it has answered.
pub(super) fn check_answers(folder: &Path, store: &Sqlite, task: TaskId) {
    let answers = fs::read_to_string(folder.join("answers")).unwrap_or_default();
    let (mut committed, mut heads) = (Vec::new(), 0);
    for line in answers.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let attempt = || AttemptId(words[1].parse().unwrap());
        match words[0] {
            "opened" if words.len() == 1 => {}
            "created" | "active" => assert_eq!(store.task(task).unwrap().task.name, "killed"),
            "fence" => assert!(store.task(task).unwrap().fence >= words[1].parse().unwrap()),
            "opened" | "reserved" | "staged" => drop(store.outcome(attempt()).unwrap()),
            "admitted" => assert_eq!(counted(store, attempt(), words[2].parse().unwrap()), 1, "{line}"),
            "abandoned" => assert_eq!(store.outcome(attempt()).unwrap().state, AttemptState::Abandoned),
            "committed" => {
                assert_eq!(store.outcome(attempt()).unwrap().state, AttemptState::Committed);
                committed.push(words[2].to_owned());
            }
            "head" => heads = heads.max(words[1].parse::<u64>().unwrap()),
            "published" => {
                let round: u64 = words[1].parse().unwrap();
                assert!(
                    store
                        .unpublished(task)
                        .unwrap()
                        .iter()
                        .all(|row| row.round > round)
                );
            }
            other => panic!("{other}"),
        }
    }
    if answers.contains("created") {
        let lines = store.ledger(task, 0).unwrap();
        let digests: Vec<String> = lines.iter().map(|line| hex(&sha(line))).collect();
        // A commit whose answer was lost may stand behind those that were answered.
        assert!(committed.iter().all(|digest| digests.contains(digest)));
        let head = store.task(task).unwrap().head_round;
        assert!(head >= heads && head == digests.len() as u64);
    }
}

/// Number of sessions of a user in an attempt, as the database has them.
pub(super) fn counted(store: &Sqlite, attempt: AttemptId, who: u64) -> u64 {
    let conn = Connection::open(store.path()).unwrap();
    let sql = format!(
        "SELECT count(*) FROM sessions WHERE attempt = {attempt} AND user = {who} AND state <> 'lost_before_ready'"
    );
    number(&conn, &sql)
}

/// Checks that no user broke the schema, from the ledger and the abandoned attempts.
pub(super) fn check_schema(store: &Sqlite) {
    let conn = Connection::open(store.path()).unwrap();
    let mut rounds = BTreeMap::<i64, Vec<i64>>::new();
    let sql = "SELECT s.user, a.round FROM sessions s JOIN attempts a ON a.id = s.attempt \
         WHERE a.closed IS NOT NULL AND s.state <> 'lost_before_ready' ORDER BY a.id";
    let mut statement = conn.prepare(sql).unwrap();
    let found = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    for (user, round) in found.map(Result::unwrap) {
        rounds.entry(user).or_default().push(round);
    }
    for (user, rounds) in rounds {
        let apart = rounds
            .windows(2)
            .all(|pair| pair[1] - pair[0] >= SEPARATION.cast_signed());
        assert!(apart, "user {user} in rounds {rounds:?}");
    }
}

/// All checks of a folder whose child has ended.
pub(super) fn check(folder: &Path) {
    let path = folder.join("service.db");
    let task = new_task("killed", at_least(SEPARATION, 50)).id;
    let store = Sqlite::open(&path).unwrap();
    check_answers(folder, &store, task);
    check_schema(&store);
    check_blobs(&folder.join("blobs"), &store, task);
    check_database(&path);
}

/// Checks that a child that was let go on has done everything.
pub(super) fn check_finished(folder: &Path) {
    check(folder);
    let store = Sqlite::open(&folder.join("service.db")).unwrap();
    let task = new_task("killed", at_least(SEPARATION, 50)).id;
    assert_eq!(store.task(task).unwrap().head_round, ROUNDS);
    assert!(store.unpublished(task).unwrap().is_empty());
    let blobs = FolderBlobs::open(&folder.join("blobs")).unwrap();
    assert_eq!(blobs.last_head(task).unwrap(), Some(ROUNDS));
    let row = store.task(task).unwrap();
    let served = |digest: Digest32| blobs.get(&digest, 0).unwrap().length;
    assert_eq!(served(row.head_model), 1_600_000);
    assert!(served(row.head_state.unwrap()) > 0);
    assert!(blobs.staged().unwrap().is_empty());
}

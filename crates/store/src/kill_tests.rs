//! A process that is killed, or whose files may not grow, at every place where it writes: whole transactions, and nothing lost that
//! was answered.
//!
//! A test starts its own program again as a child that leads a task, and kills it at a fail point. It then reads what is there.

#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rusqlite::Connection;
use undertone_protocol::Digest32;

use crate::failpoint::{VARIABLE, VISITS_VARIABLE};
use crate::test_rows::{admission, at_least, folder, hex, new_task, release, session, sha, user};
use crate::{
    AbandonReason, Admitted, AttemptId, AttemptState, Blobs, Created, FolderBlobs, Lease, NewAttempt,
    SessionState, Sqlite, Store, TaskId,
};

/// The variable that makes a test the child, and names its folder.
const CHILD: &str = "UNDERTONE_STORE_TEST_CHILD";

/// Number of rounds that the child leads.
const ROUNDS: u64 = 3;

/// Users of each attempt.
const USERS: u64 = 4;

const SEPARATION: u64 = 2;

/// A reason to stop, as text.
type Outcome<T> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The model of an attempt: bytes that its number decides, longer than the log of the database at that time.
fn model(attempt: AttemptId) -> Vec<u8> {
    attempt.0.to_le_bytes().repeat(200_000)
}

fn state(attempt: AttemptId) -> Vec<u8> {
    format!("state {attempt}").into_bytes()
}

/// The head of a task, from the columns of the outbox.
fn head(round: u64, attempt: AttemptId, chain: &str) -> Vec<u8> {
    format!("{round} {attempt} {chain}").into_bytes()
}

/// The child: it takes up what it finds, and leads the task to its last round.
struct Leader {
    store: Sqlite,
    blobs: FolderBlobs,
    answers: PathBuf,
    task: TaskId,
    /// Fresh numbers for sessions, apart from those of children before.
    next: u64,
}

impl Leader {
    /// Notes an answer of the store or the blobs. A kill by a signal leaves what was written.
    fn answered(&self, words: &str) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.answers)
            .expect("a file for the answers");
        writeln!(file, "{words}").expect("a line of the answers");
    }

    fn open(folder: &Path) -> Outcome<Self> {
        let answers = folder.join("answers");
        let before = fs::read_to_string(&answers).unwrap_or_default().lines().count() as u64;
        let leader = Self {
            store: Sqlite::open(&folder.join("service.db")).map_err(text)?,
            blobs: FolderBlobs::open(&folder.join("blobs")).map_err(text)?,
            answers,
            task: new_task("killed", at_least(SEPARATION, 50)).id,
            next: 1_000 * (before + 1),
        };
        leader.answered("opened");
        Ok(leader)
    }

    fn lead(&mut self) -> Outcome<()> {
        use undertone_protocol::TaskState::{Active, Draft};
        let new = new_task("killed", at_least(SEPARATION, 50));
        if self.store.task(new.id).is_err() {
            self.store.create_task(&new).map_err(text)?;
            self.answered("created");
        }
        if self.store.task(new.id).map_err(text)?.state == Draft {
            self.store
                .set_state(new.id, Draft, Active, "operator", "")
                .map_err(text)?;
            self.answered("active");
        }
        let lease = self.store.lease(self.task, "leader", 60_000).map_err(text)?;
        let lease = lease.ok_or("the lease is taken")?;
        self.answered(&format!("fence {}", lease.fence));
        if let Some((attempt, _)) = self.store.open_attempt_of(self.task).map_err(text)? {
            self.abandon(&lease, attempt, AbandonReason::Crash)?;
        }
        self.publish()?;
        self.sweep()?;
        loop {
            let round = self.store.task(self.task).map_err(text)?.head_round;
            if round >= ROUNDS {
                break;
            }
            // The first attempt of every second round fails.
            if round % 2 == 1
                && self
                    .store
                    .abandoned_since_release(self.task)
                    .map_err(text)?
                    .is_empty()
            {
                let attempt = self.attempt(&lease, round)?;
                self.abandon(&lease, attempt, AbandonReason::Few)?;
            }
            self.round(&lease, round)?;
            self.publish()?;
            self.sweep()?;
        }
        Ok(())
    }

    fn abandon(&self, lease: &Lease, attempt: AttemptId, reason: AbandonReason) -> Outcome<()> {
        self.store.abandon(lease, attempt, reason, &[]).map_err(text)?;
        self.answered(&format!("abandoned {attempt}"));
        Ok(())
    }

    /// Opens an attempt and admits users who may take part.
    fn attempt(&mut self, lease: &Lease, round: u64) -> Outcome<AttemptId> {
        let now = self.store.now();
        let new = NewAttempt {
            round,
            target: 10,
            select_until: now + 60_000,
            report_until: now + 60_000,
        };
        let attempt = self.store.open_attempt(lease, &new).map_err(text)?;
        self.answered(&format!("opened {attempt}"));
        let mut admitted = 0;
        for who in 0.. {
            self.next += 1;
            let admission = admission(&self.store, attempt, who, self.next);
            if self.store.admit(&admission).map_err(text)? == Admitted::Yes {
                self.answered(&format!("admitted {attempt} {who}"));
                let note = [(session(self.next), SessionState::Reported)];
                self.store.note_sessions(&note).map_err(text)?;
                admitted += 1;
            }
            if admitted == USERS {
                break;
            }
        }
        Ok(attempt)
    }

    fn round(&mut self, lease: &Lease, round: u64) -> Outcome<()> {
        let attempt = self.attempt(lease, round)?;
        self.store.close_selection(lease, attempt).map_err(text)?;
        self.store.reserve(lease, attempt, USERS).map_err(text)?;
        self.answered(&format!("reserved {attempt}"));
        let stage =
            |name: &str, bytes: Vec<u8>| self.blobs.stage(attempt, name, &mut &bytes[..]).map_err(text);
        let model = stage("model", model(attempt))?;
        let sealed = stage("state", state(attempt))?;
        self.answered(&format!("staged {attempt}"));
        let members = self.members(attempt)?;
        let (lost, included) = members.split_at(1);
        let mut release = release(&self.store, self.task, attempt, included, lost);
        release.model = model.digest;
        release.state = Some(sealed.digest);
        self.store.commit_release(lease, &release).map_err(text)?;
        self.answered(&format!("committed {attempt} {}", release.digest));
        Ok(())
    }

    /// The users of an attempt, as an aggregator knows them.
    fn members(
        &self,
        attempt: AttemptId,
    ) -> Outcome<Vec<undertone_coordinator::participation::ParticipantId>> {
        let prefix = format!("admitted {attempt} ");
        let answers = fs::read_to_string(&self.answers).map_err(text)?;
        let who = answers.lines().filter_map(|line| line.strip_prefix(&prefix));
        Ok(who.map(|who| user(who.parse().expect("a number"))).collect())
    }

    fn publish(&self) -> Outcome<()> {
        for row in self.store.unpublished(self.task).map_err(text)? {
            let bytes = head(row.round, row.attempt, &row.chain);
            let created = self
                .blobs
                .create_head(self.task, row.round, &bytes)
                .map_err(text)?;
            assert!(
                !matches!(created, Created::Other(_)),
                "two heads of round {}",
                row.round
            );
            self.answered(&format!("head {}", row.round));
            self.blobs
                .publish(row.attempt, "model", &row.model)
                .map_err(text)?;
            let sealed = row.state.ok_or("a release without its noise")?;
            self.blobs.publish(row.attempt, "state", &sealed).map_err(text)?;
            self.store.published(self.task, row.round).map_err(text)?;
            self.answered(&format!("published {}", row.round));
        }
        Ok(())
    }

    /// Deletes what abandoned attempts have staged, and what was published.
    fn sweep(&self) -> Outcome<()> {
        let waiting = self.store.unpublished(self.task).map_err(text)?;
        for attempt in self.blobs.staged().map_err(text)? {
            let ended = self.store.outcome(attempt).map_err(text)?.state;
            let waits = waiting.iter().any(|row| row.attempt == attempt);
            if ended == AttemptState::Abandoned || (ended == AttemptState::Committed && !waits) {
                self.blobs.sweep(attempt).map_err(text)?;
            }
        }
        Ok(())
    }
}

/// Runs as the child where a test asked for one.
fn is_child() -> bool {
    let Ok(folder) = std::env::var(CHILD) else {
        return false;
    };
    let led = Leader::open(Path::new(&folder)).and_then(|mut leader| leader.lead());
    if let Err(reason) = led {
        println!("stopped: {reason}");
    }
    true
}

/// The child on a folder, as a command. `shell` limits it first.
fn child(test: &str, folder: &Path, shell: Option<&str>) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match shell {
        None => Command::new(program),
        Some(limit) => {
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(format!("{limit}; exec \"$0\" \"$@\""))
                .arg(program);
            command
        }
    };
    command
        .args([
            &format!("kill_tests::{test}"),
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn finishes(test: &str, folder: &Path) {
    let output = child(test, folder, None).output().unwrap();
    let shown = show(&output);
    assert!(output.status.success() && !shown.contains("stopped: "), "{shown}");
}

fn show(output: &Output) -> String {
    [&output.stdout[..], &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

fn number(conn: &Connection, sql: &str) -> u64 {
    let number: i64 = conn
        .query_row(sql, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    number.cast_unsigned()
}

/// Checks a database by statements that are none of the store's own.
fn check_database(path: &Path) {
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
fn check_blobs(root: &Path, store: &Sqlite, task: TaskId) {
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
fn check_answers(folder: &Path, store: &Sqlite, task: TaskId) {
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
fn counted(store: &Sqlite, attempt: AttemptId, who: u64) -> u64 {
    let conn = Connection::open(store.path()).unwrap();
    let sql = format!(
        "SELECT count(*) FROM sessions WHERE attempt = {attempt} AND user = {who} AND state <> 'lost_before_ready'"
    );
    number(&conn, &sql)
}

/// Checks that no user broke the schema, from the ledger and the abandoned attempts.
fn check_schema(store: &Sqlite) {
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
fn check(folder: &Path) {
    let path = folder.join("service.db");
    let task = new_task("killed", at_least(SEPARATION, 50)).id;
    let store = Sqlite::open(&path).unwrap();
    check_answers(folder, &store, task);
    check_schema(&store);
    check_blobs(&folder.join("blobs"), &store, task);
    check_database(&path);
}

/// Checks that a child that was let go on has done everything.
fn check_finished(folder: &Path) {
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

/// Every fail point of the crate's sources.
fn fail_points() -> Vec<String> {
    let sources = [
        include_str!("sql/admission.rs"),
        include_str!("sql/attempts.rs"),
        include_str!("sql/release.rs"),
        include_str!("sql/tasks.rs"),
        include_str!("sql/writer.rs"),
        include_str!("blobs/folder.rs"),
    ];
    let mut names: Vec<String> = sources
        .iter()
        .flat_map(|source| source.split("failpoint!(\"").skip(1))
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
#[ignore = "slow"]
fn a_process_that_is_killed_anywhere_leaves_whole_transactions() {
    const TEST: &str = "a_process_that_is_killed_anywhere_leaves_whole_transactions";
    if is_child() {
        return;
    }
    // One run that nobody kills says how often each place is visited.
    let whole = folder();
    let visits = whole.path().join("visits");
    let output = child(TEST, whole.path(), None)
        .env(VISITS_VARIABLE, &visits)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", show(&output));
    check_finished(whole.path());
    let mut counts = BTreeMap::<String, u64>::new();
    for name in fs::read_to_string(&visits).unwrap().lines() {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    let visited: Vec<String> = counts.keys().cloned().collect();
    assert_eq!(visited, fail_points(), "the child visits every fail point");
    assert!(visited.len() >= 25, "{visited:?}");

    let mut kills = 0;
    for (name, count) in counts {
        let mut at = vec![1, count.div_ceil(2), count];
        at.dedup();
        for visit in at {
            let killed = folder();
            let output = child(TEST, killed.path(), None)
                .env(VARIABLE, format!("{name}:{visit}"))
                .output()
                .unwrap();
            assert_eq!(
                output.status.signal(),
                Some(9),
                "{name}:{visit}: {}",
                show(&output)
            );
            check(killed.path());
            finishes(TEST, killed.path());
            check_finished(killed.path());
            kills += 1;
        }
    }
    assert!(kills >= 60, "{kills} kills");
}

#[test]
#[ignore = "slow"]
fn every_prefix_of_the_log_is_a_whole_state() {
    const TEST: &str = "every_prefix_of_the_log_is_a_whole_state";
    if is_child() {
        return;
    }
    // A kill leaves the log of the database beside it; a loss of power may leave any part of the log.
    let killed = folder();
    let output = child(TEST, killed.path(), None)
        .env(VARIABLE, format!("commit: after the head:{ROUNDS}"))
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), Some(9), "{}", show(&output));
    let log = fs::read(killed.path().join("service.db-wal")).unwrap();
    let base = fs::read(killed.path().join("service.db")).unwrap();
    let frame = 24 + usize::from(u16::from_be_bytes([log[10], log[11]]));
    let frames = (log.len() - 32) / frame;
    assert!(frames > 100, "{frames} frames");
    let mut heads = std::collections::BTreeSet::new();
    for cut in 0..200 {
        let kept = frames * cut / 199;
        // Every third cut goes through a frame.
        let length = (32 + kept * frame + cut % 3 * 100).min(log.len());
        let copy = folder();
        let path = copy.path().join("service.db");
        fs::write(&path, &base).unwrap();
        fs::write(copy.path().join("service.db-wal"), &log[..length]).unwrap();
        match Sqlite::open(&path) {
            Ok(store) => {
                check_schema(&store);
                check_database(&path);
                let head = store.tasks().unwrap().first().map_or(0, |row| row.head_round);
                heads.insert(head);
            }
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
    assert_eq!(heads.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
#[ignore = "slow"]
fn a_process_whose_files_may_not_grow_leaves_whole_transactions() {
    const TEST: &str = "a_process_whose_files_may_not_grow_leaves_whole_transactions";
    if is_child() {
        return;
    }
    let mut stopped_at = BTreeMap::<&str, u32>::new();
    for kibibytes in [40, 90, 150, 200, 250, 320, 400, 500, 800, 1100, 1500] {
        let full = folder();
        // Beyond the limit, a write fails as on a full disk.
        let limit = format!("trap '' XFSZ; ulimit -f {}", kibibytes * 2);
        let output = child(TEST, full.path(), Some(&limit)).output().unwrap();
        let shown = show(&output);
        if let Some(reason) = shown.split("stopped: ").nth(1) {
            // The message names the path.
            let reason = reason.lines().next().unwrap();
            assert!(reason.contains(&full.path().display().to_string()), "{reason}");
            let place = if reason.contains("/tmp/") {
                "blobs"
            } else {
                "database"
            };
            *stopped_at.entry(place).or_default() += 1;
        }
        // Space was made.
        check(full.path());
        finishes(TEST, full.path());
        check_finished(full.path());
    }
    assert!(stopped_at.len() == 2, "{stopped_at:?}");
}

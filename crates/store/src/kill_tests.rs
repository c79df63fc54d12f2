//! A process that is killed, or whose files may not grow, at every place where it writes: whole transactions, and nothing lost that
//! was answered.
//!
//! A test starts its own program again as a child that leads a task, and kills it at a fail point. It then reads what is there.

#![cfg(unix)]

mod checks;

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
use checks::*;

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

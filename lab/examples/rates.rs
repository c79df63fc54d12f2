//! Prints how fast a store admits devices, refuses them and commits a release, beside what the disk and SQLite allow.
//!
//! `cargo run --release --manifest-path lab/Cargo.toml --example rates -- FOLDER` measures in a folder of the disk that a service would use.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sha2::{Digest, Sha256};
use undertone_accounting::participation::{Gap, Participation};
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{TaskKind, TaskState};
use undertone_store::{
    Admission, Admitted, AttemptId, Memory, NewAttempt, NewTask, Release, SessionId, SessionLimits, Sqlite,
    Store, TaskId,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Threads that admit at the same time.
const THREADS: u64 = 8;

/// Users in the release.
const PARTICIPANTS: u64 = 10_000;

fn main() -> Outcome<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(folder)?;
    println!("folder                     {}", folder.path().display());
    limits(folder.path())?;
    measure("memory", &Memory::default())?;
    measure("sqlite", &Sqlite::open(&folder.path().join("service.db"))?)
}

/// The rates of the disk and of SQLite without any of our work.
fn limits(folder: &Path) -> Outcome<()> {
    let mut file = File::create(folder.join("sync"))?;
    let begun = Instant::now();
    let syncs = 50;
    for _ in 0..syncs {
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
    }
    let each = begun.elapsed().as_secs_f64() * 1e3 / f64::from(syncs);
    println!("limit: sync                {each:.2} ms");
    let conn = rusqlite::Connection::open(folder.join("limit.db"))?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "NORMAL")?;
    conn.execute_batch("CREATE TABLE rows (id BLOB PRIMARY KEY, a INTEGER, b BLOB) WITHOUT ROWID")?;
    let begun = Instant::now();
    let rows = 20_000u64;
    let mut insert = conn.prepare("INSERT INTO rows VALUES (?1, ?2, ?3)")?;
    for row in 0..rows {
        let id = Sha256::digest(row.to_le_bytes());
        insert.execute((&id[..16], row.cast_signed(), &id[..]))?;
    }
    let rate = rows as f64 / begun.elapsed().as_secs_f64();
    println!("limit: commits of SQLite   {rate:.0} per second, one row each, not synced");
    Ok(())
}

fn admission(attempt: AttemptId, user: u64, checkin: u64) -> Admission {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&Sha256::digest(checkin.to_le_bytes())[..8]);
    id[8..].copy_from_slice(&checkin.to_le_bytes());
    Admission {
        attempt,
        session: SessionId(id),
        user: ParticipantId::new(pseudonym(user)),
        person: Sha256::digest(user.to_le_bytes()).into(),
        key: Sha256::digest(user.to_be_bytes()).into(),
        device: Sha256::digest(user.to_be_bytes()).into(),
        checkin: id,
        hold_until: u64::MAX,
        limits: SessionLimits {
            sessions: 4,
            interval: 1000,
        },
    }
}

/// Pseudonyms are spread like hashes.
fn pseudonym(user: u64) -> u64 {
    user.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Admits users on all threads; gives the number per second and the number of new sessions.
fn admit(store: &dyn Store, attempt: AttemptId, users: u64, first: u64) -> (f64, u64) {
    let new = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let new = &new;
            scope.spawn(move || {
                for user in (0..users).filter(|user| user % THREADS == thread) {
                    let answer = store.admit(&admission(attempt, user, first + user));
                    if matches!(answer, Ok(Admitted::Yes)) {
                        new.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    (users as f64 / begun.elapsed().as_secs_f64(), new.into_inner())
}

fn measure(name: &str, store: &dyn Store) -> Outcome<()> {
    let task = NewTask {
        id: TaskId([1; 32]),
        population: "keyboard".to_owned(),
        name: "rates".to_owned(),
        kind: TaskKind::Train,
        config: String::new(),
        plan: [2; 32],
        genesis: "genesis".to_owned(),
        participation: Participation::at_least(Gap::new(100)?, 8)?,
        rounds: 2_000,
        min_included: 1_000,
        model: [3; 32],
    };
    store.create_task(&task)?;
    store.set_state(task.id, TaskState::Draft, TaskState::Active, "operator", "")?;
    let lease = store
        .lease(task.id, "rates", 3_600_000)?
        .ok_or("the lease is taken")?;
    let attempt = |round| NewAttempt {
        round,
        target: 20_000,
        select_until: u64::MAX,
        report_until: u64::MAX,
    };
    let first = store.open_attempt(&lease, &attempt(0))?;
    let (rate, new) = admit(store, first, PARTICIPANTS, 0);
    println!("{name}: admitted           {rate:.0} per second on {THREADS} threads ({new} sessions)");

    let included: Vec<ParticipantId> = (0..PARTICIPANTS)
        .map(|user| ParticipantId::new(pseudonym(user)))
        .collect();
    let names: Vec<String> = included.iter().map(|user| format!("\"{user}\"")).collect();
    let line = format!("{{\"participants\":[{}]}}", names.join(",")).into_bytes();
    let digest = Sha256::digest(&line)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    store.reserve(&lease, first, PARTICIPANTS)?;
    let release = Release {
        attempt: first,
        round: 0,
        included,
        lost: Vec::new(),
        line,
        digest,
        previous: task.genesis,
        model: [4; 32],
        state: Some([5; 32]),
        noise_key: None,
        metrics: Vec::new(),
    };
    let begun = Instant::now();
    store.commit_release(&lease, &release)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("{name}: commit             {seconds:.3} s for a release with {PARTICIPANTS} users");

    let second = store.open_attempt(&lease, &attempt(1))?;
    let (rate, new) = admit(store, second, PARTICIPANTS, 1_000_000);
    println!("{name}: refused            {rate:.0} per second on {THREADS} threads ({new} sessions)");
    Ok(())
}

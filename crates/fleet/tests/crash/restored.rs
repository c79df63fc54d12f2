//! A store that was put back to an earlier state: the task halts, and no round gets a second model.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use undertone_protocol::TaskState;
use undertone_service::ServiceError;
use undertone_service::data_folder::{BLOBS, DATABASE};
use undertone_service::room::Room;
use undertone_service::task::Task;
use undertone_store::{AttemptId, TaskId};

use super::inside::Inside;
use super::task::{Size, Template, copy_folder, data, temporary, witness};

/// Each device takes part in each round, so that each has seen the newest head.
const SIZE: Size = Size {
    rounds: 5,
    users_per_round: 8,
    min_sep: 1,
    max_part: 20,
    rate: 1.0,
    quick: false,
    secure: false,
};

/// Devices of a round: its goal with over-selection.
const DEVICES: usize = 12;

/// A task at round 3, and its folder as it was at round 1.
struct Past {
    template: Template,
    now: tempfile::TempDir,
    /// The folder of the same task at round 1.
    before: tempfile::TempDir,
    inside: Arc<Inside>,
    fleet: undertone_fleet::Fleet<'static>,
}

/// Runs the service of a folder until its task has released so many rounds, and puts it away.
fn run_to(inside: &Arc<Inside>, fleet: &undertone_fleet::Fleet<'_>, task: TaskId, rounds: u64) {
    inside.serve(inside.shared("local"));
    let mut ticks = 0;
    fleet
        .run_until(|| {
            ticks += 1;
            assert!(ticks < 20_000, "round {rounds} is not released");
            assert_eq!(inside.tick(task), [""; 0]);
            inside.service().shared().store.task(task).unwrap().head_round >= rounds
        })
        .unwrap();
    // The next attempt is open then.
    assert_eq!(inside.tick(task), [""; 0]);
    inside.put_away();
}

impl Past {
    fn new() -> Self {
        let template = Template::new(SIZE);
        let now = template.copy();
        let inside = Inside::new(now.path());
        inside.serve(inside.shared("local"));
        let fleet = inside.fleet(DEVICES, 1);
        fleet.enrol().unwrap();
        inside.put_away();
        run_to(&inside, &fleet, template.task, 1);
        let before = temporary();
        copy_folder(now.path(), before.path());
        run_to(&inside, &fleet, template.task, 3);
        Self {
            template,
            now,
            before,
            inside,
            fleet,
        }
    }

    fn restore_database(&self) {
        for entry in fs::read_dir(data(self.now.path())).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with(DATABASE) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let (from, to) = (data(self.before.path()), data(self.now.path()));
        fs::copy(from.join(DATABASE), to.join(DATABASE)).unwrap();
    }

    fn restore_blobs(&self) {
        let (from, to) = (
            data(self.before.path()).join(BLOBS),
            data(self.now.path()).join(BLOBS),
        );
        fs::remove_dir_all(&to).unwrap();
        copy_folder(&from, &to);
    }

    fn forget_the_witness(&self) {
        fs::remove_dir_all(witness(self.now.path())).unwrap();
    }

    /// The reason for which a process that leads the task halts it. Nothing is released, also after an operator has let it go on.
    fn halts(&self) -> String {
        let task = self.template.task;
        let heads = files(&data(self.now.path()).join(BLOBS).join("heads"));
        let mut reason = None;
        for note in ["", "it looks right to me"] {
            let shared = Arc::new(self.inside.shared("local"));
            let store = shared.store.clone();
            if !note.is_empty() {
                store
                    .set_state(task, TaskState::Halted, TaskState::Active, "operator", note)
                    .unwrap();
            }
            let row = store.task(task).unwrap();
            let spool =
                Arc::new(undertone_service::storage::spool::Spool::new(1 << 20, self.now.path()).unwrap());
            let loaded = Task::load(&row, shared.blobs.as_ref(), &shared.keys).unwrap();
            let error = Room::lead(shared, spool, loaded).map(drop).unwrap_err();
            let ServiceError::Halted { reason: why, .. } = error else {
                panic!("{error}");
            };
            let after = store.task(task).unwrap();
            assert_eq!(
                (after.state, after.head_round),
                (TaskState::Halted, row.head_round)
            );
            assert_eq!(*reason.get_or_insert(why.clone()), why);
        }
        assert_eq!(files(&data(self.now.path()).join(BLOBS).join("heads")), heads);
        reason.unwrap()
    }
}

/// The files of a folder with their bytes, in order.
fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn a_database_that_was_put_back_halts_its_task_and_says_what_to_do() {
    let past = Past::new();
    past.restore_database();
    // The database of the past has an open attempt of this number; its files may be those of a release that the newer one commits.
    let staged = past.inside.shared("local");
    staged
        .blobs
        .stage(AttemptId(2), "model", &mut &b"newer"[..])
        .unwrap();
    drop(staged);
    let reason = past.halts();
    assert_eq!(
        past.inside.shared("local").blobs.staged().unwrap(),
        [AttemptId(2)]
    );
    let expected = "the store stands at round 1, but the folder of blobs shows a head of round 3: the store was put back to an earlier \
                    state. Start a new task; its ledger composes with this one";
    assert_eq!(reason, expected);
}

#[test]
fn a_data_folder_that_was_put_back_is_seen_by_the_witness_before_any_noise() {
    let past = Past::new();
    past.restore_database();
    past.restore_blobs();
    let reason = past.halts();
    let path = witness(past.now.path()).join(format!("{}.head", past.template.task));
    let expected = format!(
        "the store stands at round 1, but {} shows a head of round 3",
        path.display()
    );
    assert!(reason.starts_with(&expected), "{reason}");
}

#[test]
#[ignore = "slow"]
fn a_damaged_witness_halts_its_task_and_a_missing_one_does_not() {
    let past = Past::new();
    let path = witness(past.now.path()).join(format!("{}.head", past.template.task));
    let good = fs::read(&path).unwrap();
    for damage in [
        &b""[..],
        b"3",
        b"three 00\n",
        b"\xff\xff",
        &good[..good.len() - 2],
        &[b'7'; 1000],
    ] {
        fs::write(&path, damage).unwrap();
        let reason = past.halts();
        assert!(
            reason.contains("expected a round and the digest of its head"),
            "{reason}"
        );
        let shared = past.inside.shared("local");
        shared
            .store
            .set_state(
                past.template.task,
                TaskState::Halted,
                TaskState::Active,
                "operator",
                "next",
            )
            .unwrap();
    }
    fs::remove_file(&path).unwrap();
    run_to(&past.inside, &past.fleet, past.template.task, 4);
    assert!(fs::read_to_string(&path).unwrap().starts_with("4 "));
}

#[test]
#[ignore = "slow"]
fn a_store_of_another_history_halts_its_task() {
    let past = Past::new();
    // The folder of round 1 has another round 2 elsewhere, and its heads come back.
    let elsewhere = Inside::new(past.before.path());
    elsewhere.serve(elsewhere.shared("local"));
    let fleet = elsewhere.fleet(DEVICES, 2);
    fleet.enrol().unwrap();
    elsewhere.put_away();
    run_to(&elsewhere, &fleet, past.template.task, 3);
    past.restore_database();
    let reason = past.halts();
    assert!(
        reason.contains("a head of round 3 was published with other bytes"),
        "{reason}"
    );
}

/// Devices that saw a newer head take no part in an older round, even where no witness and no published head tells of the newer one.
#[test]
#[ignore = "slow"]
fn devices_that_saw_a_newer_head_send_nothing_to_a_service_that_went_back() {
    let past = Past::new();
    let task = past.template.task;
    // All devices are shown round 3 before the service goes back.
    past.inside.serve(past.inside.shared("local"));
    let mut ticks = 0;
    past.fleet
        .run_until(|| {
            ticks += 1;
            assert!(ticks < 20_000, "round 3 is not shown");
            assert_eq!(past.inside.tick(task), [""; 0]);
            past.inside
                .service()
                .shared()
                .store
                .task(task)
                .unwrap()
                .head_round
                >= 4
        })
        .unwrap();
    past.inside.put_away();
    past.restore_database();
    past.restore_blobs();
    past.forget_the_witness();
    let before = past.fleet.participations();
    let in_round_3: std::collections::BTreeSet<usize> = before
        .iter()
        .filter(|row| row.participation.round == 3)
        .map(|row| row.device)
        .collect();
    assert!(in_round_3.len() >= 8, "{in_round_3:?}");
    past.inside.serve(past.inside.shared("local"));
    let mut ticks = 0;
    past.fleet
        .run_until(|| {
            ticks += 1;
            assert_eq!(past.inside.tick(task), [""; 0]);
            ticks >= 2000
        })
        .unwrap();
    let row = past.inside.service().shared().store.task(task).unwrap();
    assert_eq!(row.head_round, 1, "a round was released a second time");
    let known = |rows: &[undertone_fleet::Remembered]| {
        rows.iter().filter(|row| in_round_3.contains(&row.device)).count()
    };
    assert_eq!(known(&past.fleet.participations()), known(&before));
}

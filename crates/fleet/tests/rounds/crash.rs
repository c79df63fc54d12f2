//! A process that is killed at any fail point of a release, and started again.

use std::path::Path;
use std::process::{Command, Stdio};

use undertone_protocol::TaskState;

use super::world::{PLAIN, START, World};

/// The folder of a child's world.
const FOLDER: &str = "UNDERTONE_TEST_WORLD";

/// The number of starts of a child's world before this one.
const STARTS: &str = "UNDERTONE_TEST_STARTS";

/// The fail point that kills a child, as the store reads it.
const FAIL_POINT: &str = "UNDERTONE_FAIL_POINT";

/// Fail points between two arrows of a release, and in each of its transactions.
const POINTS: [&str; 22] = [
    "release.reserved",
    "release.sealed",
    "release.closed",
    "release.model_staged",
    "release.staged",
    "release.committed",
    "publish.head",
    "publish.witness",
    "publish.blobs",
    "publish.done",
    "reserve: before the move",
    "commit: before the users are checked",
    "commit: after the users are checked",
    "commit: between users and sessions",
    "commit: after the users",
    "commit: after the release",
    "commit: after the ledger",
    "commit: after the model",
    "commit: after the head",
    "commit: after the attempt",
    "blobs: before the name of a head",
    "blobs: after the name of a staged file",
];

/// The child: plays the task to its end, unless a fail point kills it.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let starts: u64 = std::env::var(STARTS).unwrap().parse().unwrap();
    let mut world = World::in_folder(folder, START + starts * 10_000_000, PLAIN, 40);
    while world.service.shared().store.task(world.task).unwrap().state != TaskState::Completed {
        let round = world.service.shared().store.task(world.task).unwrap().head_round;
        world.run_until_round((round + 1).min(3));
        world.step();
        // What was handed out stays known, whatever becomes of this process.
        let lines: String = world
            .served
            .iter()
            .map(|(round, model)| format!("{round} {model}\n"))
            .collect();
        std::fs::write(folder.join(format!("served-{starts}-{round}")), lines).unwrap();
    }
    world.exports();
    std::fs::write(folder.join("done"), "").unwrap();
}

fn start(folder: &Path, starts: u64, point: Option<&str>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "crash::child", "--nocapture"])
        .env(FOLDER, folder)
        .env(STARTS, starts.to_string());
    match point {
        Some(point) => command.env(FAIL_POINT, point),
        None => command.env_remove(FAIL_POINT),
    };
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

/// Plays a task whose process is killed at this visit of a fail point, and checks that each round was released once.
fn killed_at(point: &str, visit: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let survived = start(path, 0, Some(&format!("{point}:{visit}")));
    assert!(!survived, "{point} was not reached {visit} times");
    let mut starts = 1;
    while !path.join("done").exists() {
        assert!(
            starts < 4,
            "{point}, visit {visit}: the task did not end after {starts} starts"
        );
        start(path, starts, None);
        starts += 1;
    }
    // One digest per round, over all processes.
    let mut served = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if !entry
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("served-")
        {
            continue;
        }
        for line in std::fs::read_to_string(entry).unwrap().lines() {
            let (round, model) = line.split_once(' ').unwrap();
            let first = served.entry(round.to_owned()).or_insert_with(|| model.to_owned());
            assert_eq!(
                first, model,
                "{point}, visit {visit}: two models of round {round} were served"
            );
        }
    }
    assert!(!served.is_empty());
}

#[test]
fn a_process_that_is_killed_anywhere_in_a_release_releases_each_round_once() {
    for (place, point) in POINTS.into_iter().enumerate() {
        killed_at(point, 1 + place as u64 % 3);
    }
}

/// Every fail point is tried at three visits; it takes minutes.
#[test]
#[ignore = "takes minutes"]
fn a_process_that_is_killed_at_any_visit_releases_each_round_once() {
    for point in POINTS {
        for visit in 1..=3 {
            killed_at(point, visit);
        }
    }
}

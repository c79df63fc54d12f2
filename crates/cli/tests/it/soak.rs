//! A service that runs for long: its memory stays, and only the tables grow that keep what was released.
//!
//! The test takes a minute or two. `UNDERTONE_SOAK_SECONDS` makes it as long as its number says: 1800 for half an hour, 86400 for
//! a day. From 20 minutes on, ten minutes of warm-up come first. Task follows task, each with twelve rounds of the same 24 devices.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::federated::{Server, service_of};
use crate::support::Folder;

/// The tables that grow with releases and tasks, as the guide for operators lists them.
const GROWING: [&str; 10] = [
    "abandoned",
    "attempts",
    "audit",
    "ledger",
    "metrics",
    "models",
    "pseudonym_keys",
    "releases",
    "tasks",
    "users",
];

/// The tables whose rows are kept for some days.
const KEPT_FOR_DAYS: [&str; 3] = ["issued", "sessions", "spent"];

/// Max growth of the resident memory between the first third and the last one.
const GROWTH: f64 = 1.05;

/// Plays in which a process takes what it keeps: code pages, caches, arenas of its threads.
const WARM_UP: usize = 3;

/// A server keeps the verdicts of a task for its devices for this long. A long soak counts its seconds from then on, because memory grows
/// until the first tasks are forgotten.
const VERDICTS_KEPT: Duration = Duration::from_secs(10 * 60);

/// Soaks of this many seconds and more are long.
const LONG: u64 = 1200;

fn counts(data: &Path) -> BTreeMap<String, i64> {
    let file = Connection::open(data.join("service.sqlite")).expect("the database");
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = file.prepare(sql).expect("the tables");
    let names: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .expect("the names")
        .map(|name| name.expect("a name"))
        .collect();
    let count = |name: &String| {
        let sql = format!("SELECT count(*) FROM {name}");
        file.query_row(&sql, [], |row| row.get(0)).expect("a count")
    };
    names.iter().map(|name| (name.clone(), count(name))).collect()
}

/// Files below a folder of the blobs.
fn files(data: &Path, name: &str) -> u64 {
    let mut open = vec![data.join("blobs").join(name)];
    let mut found = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => open.push(path),
                false => found += 1,
            }
        }
    }
    found
}

/// Size of the database in KiB: the writer holds up to 2 MiB of its pages.
fn database(data: &Path) -> u64 {
    let file = std::fs::metadata(data.join("service.sqlite")).expect("the database");
    file.len() / 1024
}

/// Resident memory of a process in KiB, and the number of its open files.
fn resident(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let digits = line.expect("its memory").trim().trim_end_matches(" kB");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("its files")
        .count();
    (digits.parse().expect("a number"), open as u64)
}

fn median(values: &[u64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2] as f64
}

/// Plays one task to its end.
fn play(folder: &Folder, number: usize, text: &str, url: &str) {
    let name = format!("soak-{number}");
    folder.write(
        "next.toml",
        text.replace("name = \"federated\"", &format!("name = \"{name}\"")),
    );
    folder.succeed("task create next.toml --data service --population demo");
    folder.succeed(format!("task activate {name} --data service"));
    let shown = folder.json(format!(
        "fleet next.toml --data service --population demo --devices 24 --server {url} --max-pause 1 --updates synthetic --seed 5 \
         --threads 2"
    ));
    assert_eq!(
        shown["ended"], "the tasks of the population have ended",
        "{shown}"
    );
}

#[test]
#[ignore = "slow"]
fn a_long_service_keeps_its_memory_and_grows_no_table_but_those_of_its_releases() {
    let seconds = std::env::var("UNDERTONE_SOAK_SECONDS").map_or(15, |text| text.parse().expect("seconds"));
    let folder = service_of(&[
        ("rounds = 4\n", "rounds = 12\n"),
        ("max_part = 2\n", "max_part = 6\n"),
        ("noise_multiplier = 4.0", "noise_multiplier = 40.0"),
    ]);
    let data = folder.path("service");
    let text = folder.text("federated.toml");
    folder.succeed("task budget --data service --population demo --max-epsilon 1000000 --delta 1e-6");
    let server = Server::start(&folder, "--insecure");
    let warming = match seconds >= LONG {
        true => VERDICTS_KEPT,
        false => Duration::ZERO,
    };
    let (begun, mut memory, mut open, mut pages) = (Instant::now(), Vec::new(), Vec::new(), Vec::new());
    let (mut before, mut plays) = (None, 0);
    // The number of plays that warm the server up.
    let mut warm_up = WARM_UP;
    while plays < warm_up + 3 || begun.elapsed() < warming + Duration::from_secs(seconds) {
        play(&folder, plays, &text, &server.url);
        plays += 1;
        if begun.elapsed() < warming {
            warm_up = warm_up.max(plays);
        }
        let (kib, descriptors) = resident(server.pid());
        memory.push(kib);
        open.push(descriptors);
        pages.push(database(&data));
        if plays == warm_up {
            before = Some((counts(&data), plays));
        }
        assert_eq!(files(&data, "staged"), 0, "staged files stay");
        assert_eq!(files(&data, "tmp"), 0, "temporary files stay");
    }
    let ((before, then), after) = (before.expect("a begin"), counts(&data));
    let warm = &memory[warm_up..];
    let third = (warm.len() / 3).max(1);
    let (first, last) = (median(&warm[..third]), median(&warm[warm.len() - third..]));
    println!(
        "{plays} tasks of 12 rounds in {} s; resident {first} KiB at first, {last} KiB at last, all: {memory:?}; database {pages:?} KiB; open files {open:?}",
        begun.elapsed().as_secs()
    );
    println!("rows after {then} tasks: {before:?}");
    println!("rows after {plays} tasks: {after:?}");
    for (table, rows) in &after {
        let grows = GROWING.contains(&table.as_str()) || KEPT_FOR_DAYS.contains(&table.as_str());
        assert!(
            grows || *rows <= before[table],
            "{table} grows: {} to {rows} rows",
            before[table]
        );
    }
    // One row per round and none more, where the guide says so.
    for table in ["releases", "models"] {
        let per_task = (after[table] - before[table]) as f64 / (plays - then) as f64;
        assert!(
            (12.0..=13.0).contains(&per_task),
            "{table}: {per_task} rows per task"
        );
    }
    assert!(
        last <= GROWTH * first,
        "resident memory grew from {first} to {last} KiB"
    );
    let (few, many) = (open[warm_up], *open.last().expect("a play"));
    assert!(many <= few + 8, "open files grew from {few} to {many}");
}

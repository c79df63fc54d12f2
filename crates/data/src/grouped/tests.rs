use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::error::Result;
use crate::progress::NoProgress;
use crate::split::Split;
use undertone_settings::CorpusSpec;
use undertone_settings::{SourceSpec, TableSource};

/// 4000 rows of 299 users in no order; the user of number 5 has a third of all; times repeat.
fn rows() -> Vec<(String, i64, String, Split)> {
    (0..4000_u64)
        .map(|i| {
            let user = if i % 3 == 0 { 5 } else { i * 7919 % 299 };
            let text = format!("row {i} {}", "word ".repeat((i * 37 % 90) as usize));
            (
                format!("user{user}"),
                (i * 13 % 7) as i64,
                text,
                Split::ALL[(user % 3) as usize],
            )
        })
        .collect()
}

fn source(folder: &TempDir) -> SourceSpec {
    let lines: String = rows()
        .iter()
        .map(|(user, time, text, split)| {
            serde_json::json!({ "user_id": user, "t": time, "text": text, "split": split.name() }).to_string()
                + "\n"
        })
        .collect();
    let path = folder.path().join("rows.jsonl");
    fs::write(&path, lines).unwrap();
    SourceSpec::Jsonl(TableSource {
        path: path.display().to_string(),
        user: "user_id".to_owned(),
        text: "text".to_owned(),
        time: Some("t".to_owned()),
        split: Some("split".to_owned()),
        ..TableSource::default()
    })
}

fn options(overwrite: bool) -> GroupOptions {
    GroupOptions {
        memory: GroupOptions::MIN_MEMORY,
        split: None,
        public: false,
        overwrite,
    }
}

/// So little memory that there are many partitions, and that a third of the rows, which are one user's, do not fit.
const SMALL: grouper::Budget = grouper::Budget {
    rows: 20_000,
    buffers: 1 << 20,
};

fn build_small(folder: &TempDir) -> Grouped {
    let (source, output) = (source(folder), folder.path().join("grouped"));
    let places = (folder.path(), &*output);
    build::build(&source, places, &options(true), SMALL, &NoProgress).unwrap();
    let grouped = Grouped::open(&output).unwrap();
    assert!(grouped.manifest().shards.len() > 20);
    grouped
}

fn grouped(folder: &TempDir) -> Grouped {
    let (source, output) = (source(folder), folder.path().join("grouped"));
    group(&source, folder.path(), &output, &options(true), &NoProgress).unwrap();
    Grouped::open(&output).unwrap()
}

type Expected = HashMap<String, Vec<(i64, String, Split)>>;

/// Returns the expected rows by user, sorted by time, equal times in the order of the source.
fn expected() -> Expected {
    let mut users = Expected::new();
    for (user, time, text, split) in rows() {
        users.entry(user).or_default().push((time, text, split));
    }
    users.values_mut().for_each(|rows| rows.sort_by_key(|row| row.0));
    users
}

fn found(rows: &UserRows) -> Vec<(i64, String, Split)> {
    let row = |i| {
        (
            rows.time(i).unwrap(),
            rows.text(i).to_owned(),
            rows.split(i).unwrap(),
        )
    };
    (0..rows.len()).map(row).collect()
}

#[test]
#[ignore = "slow"]
fn every_row_comes_back_under_its_user_in_order() {
    let folder = TempDir::new().unwrap();
    let grouped = build_small(&folder);
    let expected = expected();
    assert_eq!((grouped.num_rows(), grouped.num_users()), (4000, expected.len()));
    let largest = expected.values().map(Vec::len).max().unwrap() as u64;
    assert_eq!(grouped.manifest().largest_user, largest);
    assert_eq!(grouped.user_sizes().sum::<u64>(), 4000);
    for (name, rows) in &expected {
        let user = grouped.find(name).unwrap().unwrap();
        assert_eq!(grouped.name(user).unwrap(), *name);
        assert_eq!(found(&grouped.read_user(user).unwrap()), *rows);
    }
    assert_eq!(grouped.find("nobody").unwrap(), None);
    // Any users at once, in the order asked for, repetitions too.
    let asked = [17, 3, 250, 3, 0, 17, 17];
    let together = grouped.read_users(&asked).unwrap();
    for (&user, rows) in asked.iter().zip(&together) {
        assert_eq!(rows.index(), user);
        assert_eq!(found(rows), found(&grouped.read_user(user).unwrap()));
    }
    assert!(grouped.read_users(&[]).unwrap().is_empty());
}

#[test]
#[ignore = "slow"]
fn streams_give_every_user_once_in_the_order_of_the_seed_alone() {
    let folder = TempDir::new().unwrap();
    let grouped = build_small(&folder);
    let order = |seed, window_users, window_rows| -> Vec<usize> {
        let options = StreamOptions {
            window_users,
            window_rows,
            max_rows: None,
        };
        let users = grouped
            .stream(seed, &options)
            .collect::<Result<Vec<_>>>()
            .unwrap();
        for rows in &users {
            assert_eq!(rows.len() as u64, grouped.user_sizes().nth(rows.index()).unwrap());
        }
        users.iter().map(UserRows::index).collect()
    };
    let first = order(1, 4096, 1 << 20);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..grouped.num_users()).collect::<Vec<_>>());
    assert_ne!(first, sorted);
    assert_eq!(first, order(1, 7, 1 << 20));
    assert_eq!(first, order(1, 4096, 1));
    assert_ne!(first, order(2, 4096, 1 << 20));
}

#[test]
fn a_cap_reads_a_choice_of_rows_in_order() {
    let folder = TempDir::new().unwrap();
    let grouped = grouped(&folder);
    let expected = expected();
    let options = StreamOptions {
        max_rows: Some(4),
        ..StreamOptions::default()
    };
    for rows in grouped.stream(3, &options) {
        let rows = rows.unwrap();
        let all = &expected[&grouped.name(rows.index()).unwrap()];
        assert_eq!(rows.len(), all.len().min(4));
        let mut all = all.iter();
        for row in found(&rows) {
            assert!(all.any(|other| *other == row), "out of order or foreign");
        }
    }
}

#[test]
#[ignore = "slow"]
fn folders_are_the_same_at_any_number_of_threads_and_replaced_whole() {
    let folder = TempDir::new().unwrap();
    let source = source(&folder);
    let output = folder.path().join("grouped");
    let digests: Vec<String> = [1, 2, 3]
        .iter()
        .map(|&threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| build_small(&folder).digest().to_owned())
        })
        .collect();
    group(&source, folder.path(), &output, &options(true), &NoProgress).unwrap();
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[1], digests[2]);
    let names = |folder: &Path| -> Vec<_> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(folder.path()), ["grouped", "rows.jsonl"]);
    // The record that the rows are people's stands beside them.
    let record = "manifest.json.privacy.json";
    assert_eq!(
        names(&output),
        ["manifest.json", record, "shard-00000.parquet", "users.index"]
    );
}

#[test]
#[ignore = "slow"]
fn rows_without_an_order_give_the_same_folder_in_any_order() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("grouped");
    let digest = |shuffle: &dyn Fn(usize) -> usize, ordered| {
        let rows = rows();
        let options = GrouperOptions {
            has_time: true,
            has_split: true,
            ordered,
            expected_bytes: None,
            memory: 16 << 20,
            public: false,
            overwrite: true,
        };
        // Too little to sort the largest user in one piece.
        let mut grouper = Grouper::within(&output, &options, SMALL).unwrap();
        for i in 0..rows.len() {
            let (user, time, text, split) = &rows[shuffle(i)];
            let (time, split) = (Some(*time), Some(*split));
            grouper
                .push(&GroupedRow {
                    user,
                    text,
                    time,
                    split,
                })
                .unwrap();
        }
        let manifest = grouper.finish("rows".to_owned(), &NoProgress).unwrap();
        assert_eq!((manifest.rows, manifest.users), (4000, expected().len() as u64));
        Grouped::open(&output).unwrap().digest().to_owned()
    };
    let shuffled = |i| i * 1237 % 4000;
    assert_eq!(digest(&|i| i, false), digest(&shuffled, false));
    assert_ne!(digest(&|i| i, true), digest(&shuffled, true));
}

#[test]
fn a_row_without_its_promised_split_is_refused() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("grouped");
    let promised = GrouperOptions {
        has_time: true,
        has_split: true,
        ordered: true,
        expected_bytes: Some(0),
        memory: 16 << 20,
        public: false,
        overwrite: false,
    };
    let row = |split| GroupedRow {
        user: "a",
        text: "",
        time: Some(0),
        split,
    };
    let mut grouper = Grouper::create(&output, &promised).unwrap();
    grouper.push(&row(Some(Split::ALL[0]))).unwrap();
    let error = grouper.push(&row(None)).unwrap_err().to_string();
    assert_eq!(
        error,
        "has_split: expected a split with every row, got row 2 without it"
    );
    assert_eq!(grouper.rows(), 1);
    drop(grouper);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let unpromised = GrouperOptions {
        has_split: false,
        ..promised
    };
    let mut grouper = Grouper::create(&output, &unpromised).unwrap();
    grouper.push(&row(None)).unwrap();
}

#[test]
fn bad_input_is_refused_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let good = source(&folder);
    let output = folder.path().join("grouped");
    let run = |source: &SourceSpec, options: &GroupOptions| {
        let result = group(source, folder.path(), &output, options, &NoProgress);
        result.map(|_| ()).unwrap_err().to_string()
    };
    let small = GroupOptions {
        memory: 1 << 20,
        ..options(false)
    };
    assert!(run(&good, &small).contains("memory: expected at least 16777216 bytes, got 1048576"));
    fs::write(
        folder.path().join("bad.jsonl"),
        "{\"user_id\": \"a\", \"text\": 1}\n",
    )
    .unwrap();
    let SourceSpec::Jsonl(table) = &good else {
        unreachable!()
    };
    let bad = SourceSpec::Jsonl(TableSource {
        path: "bad.jsonl".to_owned(),
        ..table.clone()
    });
    assert!(run(&bad, &options(false)).contains("bad.jsonl, line 1: \"text\": expected a string"));
    assert!(!output.exists());
    // Nothing is left of a build that failed.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    fs::create_dir(&output).unwrap();
    fs::write(output.join("precious"), "data").unwrap();
    assert!(run(&good, &options(false)).contains("exists"));
    assert!(run(&good, &options(true)).contains("no manifest.json, so it is not replaced"));
    assert_eq!(fs::read(output.join("precious")).unwrap(), b"data");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn damaged_folders_are_refused() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("grouped");
    drop(grouped(&folder));
    let check = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>, part: &str| {
        let path = output.join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, change(bytes.clone())).unwrap();
        let error = read_all(&output).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error} lacks {part}");
        fs::write(&path, bytes).unwrap();
    };
    let cut = |bytes: Vec<u8>| bytes[..bytes.len() - 32].to_vec();
    let replace = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(from, to).into_bytes()
    };
    let flip = |mut bytes: Vec<u8>| {
        bytes[8] ^= 1;
        bytes
    };
    let blot = |mut bytes: Vec<u8>| {
        let middle = bytes.len() / 3;
        bytes[middle..middle + 4096].fill(0xff);
        bytes
    };
    let (index, shard, manifest) = ("users.index", "shard-00000.parquet", "manifest.json");
    let entries = "the user index: expected 299 entries of 32 bytes";
    check(index, &cut, entries);
    check(index, &flip, "the user index: expected SHA-256");
    check(shard, &cut, "shard-00000.parquet: expected");
    check(shard, &blot, "not a readable Parquet file");
    let version = replace("\"version\": 1", "\"version\": 2");
    check(manifest, &version, "version 1, got");
    let rows = replace("\"rows\": 4000,\n  \"users", "\"rows\": 3999,\n  \"users");
    check(manifest, &rows, "its shards 4000");
    check(manifest, &|_| b"{".to_vec(), "its manifest");
    read_all(&output).unwrap();
}

#[test]
fn a_manifest_names_files_of_its_own_folder_only() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("grouped");
    drop(grouped(&folder));
    let shard = output.join("shard-00000.parquet");
    fs::copy(&shard, folder.path().join("other.parquet")).unwrap();
    let manifest = fs::read_to_string(output.join("manifest.json")).unwrap();
    let absolute = shard.display().to_string();
    for name in [
        "../other.parquet",
        "./shard-00000.parquet",
        "",
        ".",
        "..",
        &absolute,
    ] {
        let changed = manifest.replace("\"shard-00000.parquet\"", &format!("\"{name}\""));
        fs::write(output.join("manifest.json"), changed).unwrap();
        let error = read_all(&output).unwrap_err().to_string();
        assert!(
            error.contains("expected names of files in the folder"),
            "{name}: {error}"
        );
    }
    fs::write(output.join("manifest.json"), &manifest).unwrap();
    read_all(&output).unwrap();
    #[cfg(unix)]
    for name in ["shard-00000.parquet", "users.index"] {
        let away = folder.path().join("away");
        fs::rename(output.join(name), &away).unwrap();
        std::os::unix::fs::symlink(&away, output.join(name)).unwrap();
        let error = read_all(&output).unwrap_err().to_string();
        assert!(error.contains("expected a regular file"), "{name}: {error}");
        fs::remove_file(output.join(name)).unwrap();
        fs::rename(&away, output.join(name)).unwrap();
    }
}

#[test]
fn rows_without_a_time_are_grouped_before_the_others() {
    let folder = TempDir::new().unwrap();
    let rows = "user_id,text,time\na,late,9\na,first,\nb,only,\na,early,3\n";
    fs::write(folder.path().join("rows.csv"), rows).unwrap();
    let spec: CorpusSpec =
        toml::from_str("source = { kind = \"csv\", path = \"rows.csv\", time = \"time\" }").unwrap();
    let output = folder.path().join("grouped");
    group(&spec.source, folder.path(), &output, &options(false), &NoProgress).unwrap();
    let grouped = Grouped::open(&output).unwrap();
    let a = grouped.read_user(grouped.find("a").unwrap().unwrap()).unwrap();
    assert_eq!(a.texts().collect::<Vec<_>>(), ["first", "early", "late"]);
    assert_eq!([0, 1, 2].map(|row| a.time(row)), [None, Some(3), Some(9)]);
    let b = grouped.read_user(grouped.find("b").unwrap().unwrap()).unwrap();
    assert_eq!((b.len(), b.time(0)), (1, None));
}

fn read_all(folder: &Path) -> Result<u64> {
    let grouped = Grouped::open(folder)?;
    let users = grouped.stream(0, &StreamOptions::default());
    users.map(|rows| rows.map(|rows| rows.len() as u64)).sum()
}

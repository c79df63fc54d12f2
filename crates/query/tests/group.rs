//! Grouping keeps every row of a query under its user, whatever the tables, the threads and the memory.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use undertone_data::{GroupOptions, Grouped, NoProgress, SourceSpec, Split, TableSource, group};
use undertone_query::{QueryOptions, QuerySummary, Table, group_query};

/// Account, language, body and time of 3000 posts; accounts `2k` and `2k + 1` are of one person.
fn posts() -> Vec<(u64, &'static str, String, i64)> {
    (0..3000_u64)
        .map(|i| {
            let account = i * 7919 % 401;
            let language = ["en", "de", "fr"][(i % 3) as usize];
            let body = format!("line {i},\nquoted \"{}\"", "word ".repeat((i * 37 % 20) as usize));
            (account, language, body, (i * 13 % 50) as i64)
        })
        .collect()
}

fn csv(rows: &[(u64, &str, String, i64)]) -> String {
    let line = |(account, language, body, time): &(u64, &str, String, i64)| {
        format!("{account},{language},\"{}\",{time}\n", body.replace('"', "\"\""))
    };
    "account,language,body,time\n".to_owned() + &rows.iter().map(line).collect::<String>()
}

fn table(name: &str, folder: &Path, file: &str) -> Table {
    Table::new(name, folder.join(file).to_string_lossy())
}

fn run(sql: &str, tables: &[Table], output: &Path, options: &QueryOptions) -> QuerySummary {
    group_query(sql, tables, output, options, &NoProgress).unwrap()
}

/// Texts and times by user.
fn read(output: &Path) -> HashMap<String, Vec<(Option<i64>, String)>> {
    let grouped = Grouped::open(output).unwrap();
    (0..grouped.num_users())
        .map(|user| {
            let rows = grouped.read_user(user).unwrap();
            let row = |i| (rows.time(i), rows.text(i).to_owned());
            (grouped.name(user).unwrap(), (0..rows.len()).map(row).collect())
        })
        .collect()
}

const PERSONS: &str = "SELECT person AS user_id, body AS text, CAST(time AS BIGINT) AS timestamp
    FROM posts JOIN people USING (account) WHERE language <> 'fr'";

fn people(folder: &Path) -> Table {
    let lines: String = (0..401)
        .map(|account| format!("{{\"account\": {account}, \"person\": \"p{}\"}}\n", account / 2))
        .collect();
    fs::write(folder.join("people.jsonl"), lines).unwrap();
    table("people", folder, "people.jsonl")
}

#[test]
fn accounts_of_a_person_are_joined_and_rows_filtered() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("posts.csv"), csv(&posts())).unwrap();
    let tables = [table("posts", folder.path(), "posts.csv"), people(folder.path())];
    let output = folder.path().join("grouped");
    let summary = run(PERSONS, &tables, &output, &QueryOptions::default());

    let mut expected: HashMap<String, Vec<(Option<i64>, String)>> = HashMap::new();
    for (account, language, body, time) in posts() {
        if language != "fr" {
            let rows = expected.entry(format!("p{}", account / 2)).or_default();
            rows.push((Some(time), body));
        }
    }
    // By time, then by text.
    expected.values_mut().for_each(|rows| rows.sort());
    assert_eq!(summary.manifest.rows, 2000);
    assert_eq!(summary.manifest.users, expected.len() as u64);
    assert!(summary.manifest.source.starts_with("query sha256 "));
    assert!(read(&output) == expected);
}

/// One table as it is, through the engine and through the built-in path: the same users with the same rows.
#[test]
fn a_whole_table_is_what_the_built_in_path_groups() {
    let folder = TempDir::new().unwrap();
    let lines: String = posts()
        .iter()
        .map(|(account, _, body, time)| {
            let split = Split::ALL[(account % 3) as usize].name();
            serde_json::json!({ "user_id": account, "text": body, "timestamp": time, "split": split })
                .to_string()
                + "\n"
        })
        .collect();
    fs::write(folder.path().join("rows.jsonl"), lines).unwrap();
    let tables = [table("rows", folder.path(), "rows.jsonl")];
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let summary = run("SELECT * FROM rows", &tables, &one, &QueryOptions::default());
    let source = SourceSpec::Jsonl(TableSource {
        path: "rows.jsonl".to_owned(),
        time: Some("timestamp".to_owned()),
        split: Some("split".to_owned()),
        ..TableSource::default()
    });
    let options = GroupOptions {
        memory: 16 << 20,
        split: None,
        public: false,
        overwrite: false,
    };
    let manifest = group(&source, folder.path(), &other, &options, &NoProgress).unwrap();
    assert_eq!(
        (
            summary.manifest.rows,
            summary.manifest.users,
            summary.manifest.largest_user
        ),
        (manifest.rows, manifest.users, manifest.largest_user)
    );
    let mut expected = read(&other);
    expected.values_mut().for_each(|rows| rows.sort());
    assert!(read(&one) == expected);
    let (one, other) = (Grouped::open(&one).unwrap(), Grouped::open(&other).unwrap());
    for user in 0..one.num_users() {
        let name = one.name(user).unwrap();
        let same = other.find(&name).unwrap().unwrap();
        let (one, other) = (one.read_user(user).unwrap(), other.read_user(same).unwrap());
        assert_eq!(one.split(0), other.split(0));
    }
}

#[test]
fn folders_do_not_depend_on_threads_memory_or_the_files_rows_come_in() {
    let folder = TempDir::new().unwrap();
    let posts = posts();
    fs::write(folder.path().join("posts.csv"), csv(&posts)).unwrap();
    let mut turned = posts;
    turned.rotate_left(1234);
    let parts = folder.path().join("parts");
    fs::create_dir(&parts).unwrap();
    for (number, part) in turned.chunks(700).enumerate() {
        fs::write(parts.join(format!("part-{number}.csv")), csv(part)).unwrap();
    }
    // What programs that write in parts leave beside them.
    fs::write(parts.join("_SUCCESS"), "").unwrap();
    fs::write(parts.join("part-9.csv"), "").unwrap();
    // A folder in the folder belongs to it.
    fs::create_dir(parts.join("more")).unwrap();
    fs::rename(parts.join("part-2.csv"), parts.join("more/part-2.csv")).unwrap();
    let people = people(folder.path());
    let output = folder.path().join("grouped");
    let digest = |posts: &str, threads, memory| {
        let options = QueryOptions {
            memory,
            threads,
            overwrite: true,
        };
        let tables = [table("posts", folder.path(), posts), people.clone()];
        run(PERSONS, &tables, &output, &options);
        Grouped::open(&output).unwrap().digest().to_owned()
    };
    let first = digest("posts.csv", 1, 256 << 20);
    assert_eq!(first, digest("posts.csv", 4, 256 << 20));
    assert_eq!(first, digest("parts", 3, 256 << 20));
    assert_eq!(first, digest("parts/*part-*.csv", 2, 256 << 20));
    assert_eq!(first, digest("parts", 2, 64 << 20));
}

/// A join of 40 MB in 32 MiB: it is sorted on disk.
#[test]
fn what_does_not_fit_in_memory_goes_to_disk() {
    let folder = TempDir::new().unwrap();
    let filler = "word ".repeat(80);
    let texts: String = (1..=100_000).map(|id| format!("{id},{filler}{id}\n")).collect();
    fs::write(folder.path().join("texts.csv"), "id,body\n".to_owned() + &texts).unwrap();
    let owners: String = (1..=100_000)
        .map(|id| format!("{{\"id\": \"{id}\", \"person\": {}}}\n", id % 997))
        .collect();
    fs::write(folder.path().join("owners.jsonl"), owners).unwrap();
    let tables = [
        table("texts", folder.path(), "texts.csv"),
        table("owners", folder.path(), "owners.jsonl"),
    ];
    let output = folder.path().join("grouped");
    let options = QueryOptions {
        memory: QueryOptions::MIN_MEMORY,
        threads: 2,
        overwrite: false,
    };
    let sql = "SELECT person AS user_id, body AS text FROM texts JOIN owners USING (id)";
    let summary = run(sql, &tables, &output, &options);
    assert!(
        summary.spilled_bytes > 10_000_000,
        "spilled {}",
        summary.spilled_bytes
    );
    assert_eq!((summary.manifest.rows, summary.manifest.users), (100_000, 997));
    for (user, rows) in read(&output) {
        let user: u64 = user.parse().unwrap();
        assert!(
            rows.len() == if user == 0 || user > 300 { 100 } else { 101 },
            "{user}"
        );
        for (_, text) in rows {
            let number: u64 = text.rsplit(' ').next().unwrap().parse().unwrap();
            assert_eq!(number % 997, user);
        }
    }
    // Nothing else is left beside the folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn folders_divided_by_values_and_every_kind_of_time() {
    let folder = TempDir::new().unwrap();
    for language in ["en", "de"] {
        let part = folder.path().join(format!("posts/language={language}"));
        fs::create_dir_all(&part).unwrap();
        fs::write(
            part.join("part.jsonl"),
            "{\"who\": 7, \"body\": \"a\"}\n{\"who\": 7, \"body\": null}\n",
        )
        .unwrap();
    }
    let tables = [table("posts", folder.path(), "posts")];
    let times = [
        ("CAST(1717545600 AS INT)", 1_717_545_600),
        ("TIMESTAMP '2024-06-05T00:00:00'", 1_717_545_600),
        ("TIMESTAMP '1969-12-31T23:59:59.5'", -1),
        (
            "arrow_cast(1717545600999, 'Timestamp(Millisecond, Some(\"+02:00\"))')",
            1_717_545_600,
        ),
        ("CAST('2024-06-05' AS DATE)", 1_717_545_600),
        ("arrow_cast(1717545600000, 'Date64')", 1_717_545_600),
    ];
    for (number, (time, expected)) in times.into_iter().enumerate() {
        let sql = format!(
            "SELECT who AS user_id, body AS text, {time} AS timestamp, language FROM posts WHERE language = 'en'"
        );
        let output = folder.path().join(format!("grouped-{number}"));
        let summary = run(&sql, &tables, &output, &QueryOptions::default());
        assert_eq!(summary.ignored_columns, ["language"]);
        let rows = &read(&output)["7"];
        // A null text is an empty one.
        assert_eq!(
            *rows,
            [(Some(expected), String::new()), (Some(expected), "a".to_owned())],
            "{time}"
        );
    }
}

//! `undertone data group`: grouped text is the same corpus.

use serde_json::Value;

use crate::support::{Folder, json};

#[test]
fn grouped_text_is_a_source_with_the_same_corpus() {
    let folder = Folder::new();
    let rows: String = (0..500)
        .map(|i| {
            format!(
                "{{\"user_id\": \"u{}\", \"text\": \"text number {i} of many\", \"t\": {}}}\n",
                i * 7 % 90,
                1000 - i
            )
        })
        .collect();
    folder.write("rows.jsonl", &rows);
    let group = [
        "data",
        "group",
        "--jsonl",
        "rows.jsonl",
        "--time-column",
        "t",
        "--out",
        "grouped",
        "--json",
    ];
    let written = json(&folder.succeed(&group));
    assert_eq!((&written["rows"], &written["users"]), (&500.into(), &90.into()));
    assert!(folder.fail(&group).contains("grouped already exists"));
    let stats = |source: &[&str]| -> Value {
        let arguments = [&["data", "stats"], source, &["--json"]].concat();
        let mut stats = json(&folder.succeed(&arguments));
        stats["stats"]["source"].take();
        stats["stats"].take()
    };
    let table = stats(&["--jsonl", "rows.jsonl", "--time-column", "t"]);
    assert_eq!(table, stats(&["--grouped", "grouped"]));
    assert_eq!(
        table,
        stats(&["--grouped", "grouped", "--time-column", "timestamp"])
    );
    let error = folder.fail(&["data", "stats", "--grouped", "grouped", "--split-column", "split"]);
    assert!(
        error.contains("data.source.split: expected false, because grouped was grouped without it"),
        "{error}"
    );
    let error = folder.fail(&[
        "data",
        "group",
        "--jsonl",
        "rows.jsonl",
        "--out",
        "other",
        "--memory",
        "1kB",
    ]);
    assert!(
        error.contains("memory: expected at least 16777216 bytes, got 1000"),
        "{error}"
    );
    let error = folder.fail(&["data", "stats", "--grouped", "."]);
    assert!(
        error.contains("cannot read the manifest of grouped text"),
        "{error}"
    );
}

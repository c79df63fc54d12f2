//! `undertone data group`: grouped text is the same corpus.

use serde_json::Value;

use crate::support::Folder;

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
    let group = "data group --jsonl rows.jsonl --time-column t --out grouped";
    let written = folder.json(group);
    assert_eq!((&written["rows"], &written["users"]), (&500.into(), &90.into()));
    folder.refuse(group, "grouped already exists");
    let stats = |source: &str| -> Value {
        let mut stats = folder.json(format!("data stats {source}"));
        stats["stats"]["source"].take();
        stats["stats"].take()
    };
    let table = stats("--jsonl rows.jsonl --time-column t");
    assert_eq!(table, stats("--grouped grouped"));
    assert_eq!(table, stats("--grouped grouped --time-column timestamp"));
    folder.refuses(
        "
        $ data stats --grouped grouped --split-column split
        data.source.split: expected false, because grouped was grouped without it
        $ data group --jsonl rows.jsonl --out other --memory 1kB
        memory: expected at least 16777216 bytes, got 1000
        $ data stats --grouped .
        cannot read the manifest of grouped text
        ",
    );
}

//! `undertone data dedup`: near-duplicates of private text leave a public corpus.

use crate::support::Folder;

const DEDUP: &str = "data dedup public.jsonl --against private.jsonl";

#[test]
fn near_duplicates_of_private_text_leave_a_public_corpus() {
    let folder = Folder::new();
    folder.write(
        "private.jsonl",
        "{\"text\": \"the very same long sentence of somebody, written once\"}\n",
    );
    folder.write(
        "public.jsonl",
        "{\"text\": \"something else\"}\n{\"text\": \"The very same long sentence of somebody written once!\"}\n",
    );
    let line = format!("{DEDUP} --out kept.jsonl");
    let summary = folder.json(&line);
    assert_eq!(
        (&summary["rows"], &summary["near_duplicates"]),
        (&2.into(), &1.into())
    );
    assert_eq!(folder.read("kept.jsonl"), b"{\"text\": \"something else\"}\n");
    // What was kept depends on the private text, and their reader is told so.
    let record = folder.text("kept.jsonl.privacy.json");
    assert!(
        record.contains("\"not private\"") && record.contains("\"text\""),
        "{record}"
    );
    folder.succeed("data vocab --public --jsonl kept.jsonl -o words.txt");
    assert!(folder.text("words.txt.privacy.json").contains("\"words\""));
    folder.refuse(line, "kept.jsonl already exists");
    folder.refuse(
        format!("{DEDUP} --out o --text body"),
        "it lacks the column \"body\" that --text or --against-text names; its columns are \"text\"",
    );
}

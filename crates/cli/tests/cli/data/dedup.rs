//! `undertone data dedup`: near-duplicates of private text leave a public corpus.

use crate::support::{Folder, json};

fn dedup<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    [
        &["data", "dedup", "public.jsonl", "--against", "private.jsonl"],
        rest,
    ]
    .concat()
}

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
    let arguments = dedup(&["--out", "kept.jsonl", "--json"]);
    let summary = json(&folder.succeed(&arguments));
    assert_eq!(
        (&summary["rows"], &summary["near_duplicates"]),
        (&2.into(), &1.into())
    );
    assert_eq!(folder.read("kept.jsonl"), b"{\"text\": \"something else\"}\n");
    assert!(folder.fail(&arguments).contains("kept.jsonl already exists"));
    let column = dedup(&["--out", "o", "--text", "body"]);
    assert!(folder.fail(&column).contains("public.jsonl, line 1: \"body\""));
}

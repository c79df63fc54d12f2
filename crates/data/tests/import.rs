//! Importing a source into Parquet, and reading that file again.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use undertone_data::{
    Corpus, CorpusSpec, DataError, ImportOptions, NoProgress, SourceSpec, Split, SplitSpec, WordCounts,
    import, pseudonym,
};

const OPTIONS: ImportOptions<'_> = ImportOptions {
    salt: b"salt",
    keep_user_ids: false,
    split: None,
    overwrite: false,
};

fn source(text: &str) -> SourceSpec {
    let spec: CorpusSpec = toml::from_str(&format!("source = {{ {text} }}")).unwrap();
    spec.source
}

fn sentences(directory: &Path, text: &str) -> Vec<Vec<String>> {
    let spec: CorpusSpec = toml::from_str(text).unwrap();
    let corpus = Corpus::open(&spec, directory, &directory.join("cache"), &NoProgress).unwrap();
    let sentence = |ids: &[u32]| {
        ids.iter()
            .map(|&id| corpus.vocab().word(id))
            .collect::<Vec<_>>()
            .join(" ")
    };
    Split::ALL
        .iter()
        .flat_map(|&split| corpus.partition(split).users())
        .map(|user| user.examples().map(sentence).collect())
        .collect()
}

#[test]
fn jsonl_becomes_parquet_with_hashed_users() {
    let directory = TempDir::new().unwrap();
    let rows = r#"{"user_id": "b", "text": "two words", "t": 5, "part": "train"}
{"user_id": "a", "text": " ", "t": 5, "part": "train"}
{"user_id": "c", "text": "three more words", "t": 6, "part": "validation"}
{"user_id": "b", "text": "earlier words", "t": 1, "part": "train"}
"#;
    fs::write(directory.path().join("a.jsonl"), rows).unwrap();
    let jsonl = source(r#"kind = "jsonl", path = "a.jsonl", time = "t", split = "part""#);
    let output = directory.path().join("a.parquet");
    let summary = import(&jsonl, directory.path(), &output, &OPTIONS, &NoProgress).unwrap();
    assert_eq!(
        (summary.rows, summary.rows_without_text, summary.users),
        (3, 1, 2)
    );
    assert_eq!(summary.split_rows, Some([2, 1, 0]));
    assert!(summary.users_hashed && summary.has_time);

    let bytes = fs::read(&output).unwrap();
    assert_eq!(bytes.len() as u64, summary.bytes);
    let read = "source = { kind = \"parquet\", path = \"a.parquet\", time = \"timestamp\", split = \"split\" }\nvocabulary = { kind = \"training_data\", size = 9 }\n";
    let expected = [
        vec!["earlier words <eos>", "two words <eos>"],
        vec!["<unk> <unk> words <eos>"],
    ];
    assert_eq!(sentences(directory.path(), read), expected);

    // The name must not occur, and the hash must be the documented one.
    let again = import(&jsonl, directory.path(), &output, &OPTIONS, &NoProgress).unwrap_err();
    assert!(matches!(again, DataError::OutputExists { .. }), "{again}");
    let replaced = ImportOptions {
        overwrite: true,
        keep_user_ids: true,
        ..OPTIONS
    };
    let kept = import(&jsonl, directory.path(), &output, &replaced, &NoProgress).unwrap();
    assert!(!kept.users_hashed);
    assert_ne!(fs::read(&output).unwrap(), bytes);
    assert_eq!(pseudonym(b"salt", "b").len(), 16);
}

#[test]
fn a_synthetic_population_survives_the_detour() {
    let directory = TempDir::new().unwrap();
    let population = "kind = \"synthetic\", users = 40, seed = 3";
    let output = directory.path().join("s.parquet");
    let split = Some(SplitSpec::HeldOutUsers {
        validation: 0.0,
        test: 0.0,
        seed: 0,
    });
    let options = ImportOptions { split, ..OPTIONS };
    let summary = import(
        &source(population),
        directory.path(),
        &output,
        &options,
        &NoProgress,
    )
    .unwrap();
    assert_eq!((summary.users, summary.split_rows), (40, Some([40, 0, 0])));

    let direct = format!(
        "source = {{ {population} }}\nsplit = {{ kind = \"held_out_users\", validation = 0.0, test = 0.0 }}"
    );
    let detour = "source = { kind = \"parquet\", path = \"s.parquet\", split = \"split\" }\nvocabulary = { kind = \"training_data\", size = 1000 }";
    assert_eq!(
        sentences(directory.path(), &direct),
        sentences(directory.path(), detour)
    );
}

#[test]
fn vocabulary_files() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("t.txt"), "b b a a a c\n").unwrap();
    let counts = WordCounts::of_public_corpus("t.txt", "text", directory.path(), &NoProgress).unwrap();
    assert_eq!((counts.len(), counts.total()), (3, 6));
    let path = directory.path().join("v.txt");
    counts.write_vocab(&path, 2, true, false).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\t3\nb\t2\n");
    assert_eq!(
        undertone_data::read_words(&path)
            .unwrap()
            .words()
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    let error = counts
        .write_vocab(&path, 3, false, false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("v.txt already exists"), "{error}");
    counts.write_vocab(&path, 3, false, true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
}

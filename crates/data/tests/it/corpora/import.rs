//! Importing a source into Parquet, and reading that file again.

use std::fs;

use undertone_data::{DataError, ImportOptions, NoProgress, Split, WordCounts, WordRule, import};
use undertone_settings::{SourceSpec, SplitSpec};

use crate::support::{Folder, spec, texts};

const OPTIONS: ImportOptions<'_> = ImportOptions {
    salt: b"salt",
    keep_user_ids: false,
    join_users: false,
    drop_users: &[],
    split: None,
    public: false,
    overwrite: false,
};

fn source(text: &str) -> SourceSpec {
    spec(&format!("source = {{ {text} }}")).source
}

fn sentences(folder: &Folder, text: &str) -> Vec<Vec<String>> {
    let corpus = folder.open(text);
    Split::ALL.map(|split| texts(&corpus, split)).concat()
}

#[test]
fn jsonl_becomes_parquet_with_hashed_users() {
    let folder = Folder::new();
    let rows = r#"{"user_id": "b", "text": "two words", "t": 5, "part": "train"}
{"user_id": "a", "text": " ", "t": 5, "part": "train"}
{"user_id": "c", "text": "three more words", "t": 6, "part": "validation"}
{"user_id": "b", "text": "earlier words", "t": 1, "part": "train"}
"#;
    folder.write("a.jsonl", rows);
    let jsonl = source(r#"kind = "jsonl", path = "a.jsonl", time = "t", split = "part""#);
    let output = folder.path("a.parquet");
    let summary = import(&jsonl, folder.root(), &output, &OPTIONS, &NoProgress).unwrap();
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
    assert_eq!(sentences(&folder, read), expected);

    // The name must not occur, and the hash must be the documented one.
    let again = import(&jsonl, folder.root(), &output, &OPTIONS, &NoProgress).unwrap_err();
    assert!(matches!(again, DataError::OutputExists { .. }), "{again}");
    let replaced = ImportOptions {
        overwrite: true,
        keep_user_ids: true,
        join_users: false,
        drop_users: &[],
        ..OPTIONS
    };
    let kept = import(&jsonl, folder.root(), &output, &replaced, &NoProgress).unwrap();
    assert!(!kept.users_hashed);
    assert_ne!(fs::read(&output).unwrap(), bytes);
}

#[test]
fn a_synthetic_population_survives_the_detour() {
    let folder = Folder::new();
    let population = "kind = \"synthetic\", users = 40, seed = 3";
    let output = folder.path("s.parquet");
    let split = Some(SplitSpec::HeldOutUsers {
        validation: 0.0,
        test: 0.0,
        seed: 0,
    });
    let options = ImportOptions { split, ..OPTIONS };
    let summary = import(&source(population), folder.root(), &output, &options, &NoProgress).unwrap();
    assert_eq!((summary.users, summary.split_rows), (40, Some([40, 0, 0])));

    let direct = format!(
        "source = {{ {population} }}\nsplit = {{ kind = \"held_out_users\", validation = 0.0, test = 0.0 }}"
    );
    let detour = "source = { kind = \"parquet\", path = \"s.parquet\", split = \"split\" }\nvocabulary = { kind = \"training_data\", size = 1000 }";
    assert_eq!(sentences(&folder, &direct), sentences(&folder, detour));
}

#[test]
fn a_vocabulary_is_written_and_read_back() {
    let folder = Folder::new();
    folder.write("t.txt", "b b a a a c\n");
    let counts =
        WordCounts::of_public_corpus("t.txt", "text", folder.root(), WordRule::English, &NoProgress).unwrap();
    assert_eq!((counts.len(), counts.total()), (3, 6));
    let path = folder.path("v.txt");
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

#[test]
fn spellings_of_one_name_are_counted_joined_and_dropped() {
    let folder = Folder::new();
    let names = [
        "José",
        "Jose\u{301}",
        "josé",
        " José",
        "\u{200b}JOSÉ",
        "[deleted]",
        "ada",
        "null",
    ];
    let rows: String = (0..40)
        .map(|row| {
            let user = names[row % names.len()];
            format!("{{\"user_id\": \"{user}\", \"text\": \"two words of row {row}\"}}\n")
        })
        .collect();
    folder.write("a.jsonl", rows);
    let jsonl = source(r#"kind = "jsonl", path = "a.jsonl""#);
    let output = folder.path("a.parquet");
    let run = |join_users, drop: &[&str], split: Option<SplitSpec>| {
        let drop_users: Vec<String> = drop.iter().map(|&name| name.to_owned()).collect();
        let options = ImportOptions {
            keep_user_ids: true,
            join_users,
            drop_users: &drop_users,
            split,
            overwrite: true,
            ..OPTIONS
        };
        import(&jsonl, folder.root(), &output, &options, &NoProgress)
    };
    let summary = run(false, &[], None).unwrap();
    assert_eq!((summary.users, summary.rows, summary.rows_dropped), (8, 40, 0));
    assert_eq!((summary.names.alike, summary.names.alike_joined), (5, 1));
    let placeholders: Vec<_> = summary.names.placeholders.iter().collect();
    assert_eq!(
        placeholders,
        [(&"[deleted]".to_owned(), &5), (&"null".to_owned(), &5)]
    );

    // One person is in one partition, under every spelling.
    for seed in 0..20 {
        let held_out = SplitSpec::HeldOutUsers {
            validation: 0.3,
            test: 0.3,
            seed,
        };
        let summary = run(true, &["[Deleted]", "NULL"], Some(held_out)).unwrap();
        assert_eq!((summary.users, summary.rows, summary.rows_dropped), (2, 30, 10));
        assert!(summary.names.is_empty());
        let [train, validation, test] = summary.split_rows.unwrap();
        assert!(
            [train, validation, test]
                .iter()
                .all(|rows| [0, 5, 25, 30].contains(rows))
        );
    }
    let read = "source = { kind = \"parquet\", path = \"a.parquet\" }\nvocabulary = { kind = \"training_data\", size = 9 }\n\
                split = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }";
    assert_eq!(folder.open(read).stats().users, 2);

    let error = run(false, &["[Deleted]"], None).unwrap_err().to_string();
    assert!(
        error.contains("--drop-user") && error.contains("\"[Deleted]\", whom no row names"),
        "{error}"
    );
    let stats = folder.open(&format!(
        "source = {{ kind = \"jsonl\", path = \"a.jsonl\" }}\n{}",
        read.split_once('\n').unwrap().1
    ));
    assert_eq!(
        (stats.stats().names.alike, stats.stats().names.alike_joined),
        (5, 1)
    );
}

//! Error messages about input that cannot be used.

use std::fs;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use arrow_array::{DictionaryArray, TimestampMillisecondArray, UInt32Array, types::Int32Type};
use parquet::arrow::ArrowWriter;
use undertone_data::{Corpus, GitSource, ImportOptions, NoProgress, Split, import_git};
use undertone_settings::CorpusSpec;

use crate::support::cases;
use crate::support::{Folder, spec};
use crate::testing::contains;

const VOCABULARY: &str = "vocabulary = { kind = \"file\", path = \"vocab.txt\" }";
const ALL_TRAIN: &str = "split = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }";

/// Writes `contents` as the source and expects all `parts` in the message.
#[track_caller]
fn check(kind: &str, options: &str, contents: impl AsRef<[u8]>, parts: &str) {
    let folder = Folder::with_vocabulary();
    folder.write("input", contents);
    folder.fails(&source(kind, options), parts);
}

fn source(kind: &str, options: &str) -> String {
    format!("source = {{ kind = \"{kind}\", path = \"input\"{options} }}\n{VOCABULARY}\n")
}

fn table(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn strings(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// A table of two users who say the same.
fn good_table() -> Vec<u8> {
    table(vec![
        ("user_id", strings(&["a", "b"])),
        ("text", strings(&["two words", "two words"])),
    ])
}

fn empty_table() -> Vec<u8> {
    table(vec![("user_id", strings(&[])), ("text", strings(&[]))])
}

#[test]
fn missing_and_mistyped_parquet_columns_are_named() {
    for (options, parts) in cases(
        r#"
        $ , text = "txt"
        input: it lacks the column "txt" that data.source.text (--text-column) names ... "user_id", "text"
        $ , user = "who"
        lacks the column "who" that data.source.user (--user-column) names
        $ , split = "part"
        lacks the column "part" that data.source.split (--split-column) names
        $ , time = "text"
        row 1: column "text": expected unix seconds or an ISO date ... got "two words"
        "#,
    ) {
        check("parquet", options, good_table(), parts);
    }
    let two = || strings(&["a", "b"]);
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.0]));
    let missing: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    for (user, text, parts) in [
        (
            two(),
            numbers,
            "input: column \"text\": expected a string type ... got Int64",
        ),
        (
            floats,
            two(),
            "row 1: column \"user_id\": expected a whole number ... got 1.5",
        ),
        (
            missing,
            two(),
            "input, row 2: column \"user_id\": expected a value, got null",
        ),
    ] {
        check(
            "parquet",
            "",
            table(vec![("user_id", user), ("text", text)]),
            parts,
        );
    }
}

#[test]
fn parquet_text_of_any_string_type_is_read() {
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![2000, 1000]));
    let dictionary: DictionaryArray<Int32Type> = ["two words", "two"].into_iter().collect();
    let users: ArrayRef = Arc::new(UInt32Array::from(vec![7, 7]));
    let texts: [ArrayRef; 3] = [
        Arc::new(LargeStringArray::from(vec!["two words", "one"])),
        Arc::new(StringViewArray::from(vec!["two words", "one"])),
        Arc::new(dictionary),
    ];
    for text in texts {
        let folder = Folder::with_vocabulary();
        let bytes = table(vec![
            ("text", text),
            ("user_id", users.clone()),
            ("time", times.clone()),
        ]);
        folder.write("input", bytes);
        let corpus = folder.open(&format!("{}{ALL_TRAIN}", source("parquet", ", time = \"time\"")));
        assert_eq!(corpus.partition(Split::Train).user(0).tokens(), [3, 4, 2]);
    }
}

#[test]
fn damaged_and_empty_files_are_refused() {
    let good = good_table();
    let half = &good[..good.len() / 2];
    for (kind, contents, parts) in [
        ("parquet", &b""[..], "input holds no bytes: it is an empty file"),
        (
            "parquet",
            half,
            "input is not a readable Parquet file ... cut off",
        ),
        (
            "parquet",
            b"user_id,text\na,two words\n",
            "input is not a readable Parquet file",
        ),
        ("jsonl", b"", "input holds no JSON objects"),
        ("jsonl", b"\n\n", "input holds no JSON objects"),
        ("csv", b"", "input holds no header line"),
        (
            "csv",
            b"user_id,text\n",
            "input holds no rows below its header line",
        ),
        ("parquet", &empty_table(), "input holds no rows"),
    ] {
        check(kind, "", contents, parts);
    }
}

#[test]
fn bad_jsonl_lines_are_named() {
    let good = "{\"user_id\": \"a\", \"text\": \"two words\"}\n";
    for (line, parts) in cases(
        r#"
        $ {"user_id": 
        input, line 3: "line": expected a JSON object, got invalid JSON
        $ [1]
        line 3 ... expected a JSON object, got an array
        $ {"text": "a b"}
        line 3: "user_id": expected a non-empty string or an integer, got no such field
        $ {"user_id": 1.5, "text": "a b"}
        line 3: "user_id" ... got a number
        $ {"user_id": 1, "text": 5}
        line 3: "text": expected a string, got a number
        "#,
    ) {
        check("jsonl", "", format!("{good}\n{line}\n"), parts);
    }
    let when = "{\"user_id\": 1, \"text\": \"a b\", \"when\": \"noon\"}\n";
    let parts = "line 1: \"when\": expected unix seconds ... got \"noon\"";
    check("jsonl", ", time = \"when\"", when, parts);
}

#[test]
fn bad_csv_lines_are_named() {
    for (options, contents, parts) in [
        (
            "",
            &b"user_id,text\na,two words\nb,two,words\n"[..],
            "input, line 3: number of fields: expected 2 as in the header, got 3",
        ),
        (
            "",
            b"who,text\na,two words\n",
            "input: it lacks the column \"user_id\" that data.source.user (--user-column) names ... \"who\", \"text\"",
        ),
        (
            "",
            b"user_id,text\na,two words\n,two words\n",
            "line 3: column \"user_id\": expected a user",
        ),
        (
            "",
            b"user_id,text\na,two \xff\xfe\n",
            "line 2: column \"text\": expected UTF-8",
        ),
        (
            ", time = \"t\"",
            b"user_id,text,t\na,two words,5\na,two words,soon\n",
            "line 3: column \"t\": expected unix seconds or an ISO date ... got \"soon\"",
        ),
    ] {
        check("csv", options, contents, parts);
    }
}

#[test]
fn unknown_splits_and_empty_partitions_are_refused() {
    let row = |part: &str| format!("{{\"user_id\": 1, \"text\": \"a b\", \"part\": \"{part}\"}}\n");
    check(
        "jsonl",
        ", split = \"part\"",
        row("train") + &row("dev"),
        "input, line 2: split column: expected \"train\", \"validation\" or \"test\", got \"dev\"",
    );
    check(
        "jsonl",
        ", split = \"part\"",
        row("test"),
        "the train partition is empty ... the split puts no user",
    );
}

#[test]
fn a_missing_time_is_an_error_only_where_a_split_or_a_cap_needs_it() {
    let folder = Folder::with_vocabulary();
    let rows = "{\"user_id\": 1, \"text\": \"two words\", \"when\": 5}\n\
                {\"user_id\": 2, \"text\": \"two words two words\"}\n{\"user_id\": 2, \"text\": \"!\"}\n";
    folder.write("input", rows);
    let text = source("jsonl", ", time = \"when\"");
    let users = |text: &str| folder.open(text).partition(Split::Train).num_users();
    assert_eq!(users(&format!("{text}{ALL_TRAIN}")), 2);
    let expected = "input, line 2: column \"when\": expected a time, because";
    folder.fails(
        &format!("{text}split = {{ kind = \"time\", test_after = 3, validation_users = 0.0 }}"),
        &format!("{expected} ... a split by time needs the time of every row, got no time"),
    );
    let capped = format!("{text}{ALL_TRAIN}\nmax_examples = 1");
    folder.fails(
        &capped,
        &format!("{expected} ... data.keep = {{ kind = \"earliest\" }} with a cap"),
    );
    assert_eq!(users(&format!("{capped}\nkeep = {{ kind = \"random\" }}")), 2);
    // A name that no object has is a mistake, not a time that is missing everywhere.
    folder.fails(
        &format!("{}{ALL_TRAIN}", source("jsonl", ", time = \"wen\"")),
        "data.source.time (--time-column): expected a field that some object has, got \"wen\"",
    );
}

#[test]
fn pipes_and_devices_are_no_sources() {
    if !cfg!(unix) {
        return;
    }
    let folder = Folder::with_vocabulary();
    folder.fails(
        &format!("source = {{ kind = \"jsonl\", path = \"/dev/zero\" }}\n{VOCABULARY}"),
        "cannot read /dev/zero: it is not a regular file",
    );
    folder.write("input", good_table());
    folder.fails(
        &source("parquet", "").replace("vocab.txt", "/dev/zero"),
        "/dev/zero: expected a regular file of at most 67108864 bytes",
    );
}

#[test]
fn bad_parts_of_a_folder_are_named() {
    let folder = Folder::with_vocabulary();
    let part = |name: &str, contents: &[u8]| folder.write(&format!("input/{name}"), contents);
    fs::create_dir(folder.path("input")).unwrap();
    part("1.jsonl", b"");
    part("2.jsonl", b"\n");
    folder.fails(&source("jsonl", ""), "2.jsonl holds no JSON objects");
    let row = |part: &str| format!("{{\"user_id\": 1, \"text\": \"two words\", \"part\": \"{part}\"}}\n");
    part("1.jsonl", row("train").as_bytes());
    part("2.jsonl", format!("\n{}", row("dev")).as_bytes());
    folder.fails(
        &source("jsonl", ", split = \"part\""),
        "2.jsonl, line 2: split column: expected \"train\"",
    );
    part("2.jsonl", b"{\"user\": 1}\n");
    folder.fails(&source("jsonl", ""), "2.jsonl, line 1: \"user_id\"");

    let good = good_table();
    part("1.parquet", &good);
    for damaged in [&good[..good.len() / 2], b""] {
        part("2.parquet", damaged);
        folder.fails(&source("parquet", ""), "2.parquet is not a readable Parquet file");
    }
    part("2.parquet", &empty_table());
    let spec = format!("{}{ALL_TRAIN}", source("parquet", ""));
    assert_eq!(folder.open(&spec).stats().rows, 2);
}

#[test]
fn users_without_text_are_left_out() {
    let nothing = "{\"user_id\": 1, \"text\": \"word\"}\n{\"user_id\": 2, \"text\": \"!!!\"}\n";
    let parts = "no user has usable text: input has 2 users in 2 rows ... 2 of the users wrote text without one ... \
                 words = \"unicode\" ... undertone data tokenizer";
    check("jsonl", "", nothing, parts);
    let empty = "{\"user_id\": 1, \"text\": \" \"}\n";
    check(
        "jsonl",
        "",
        empty,
        "input has 1 users in 1 rows ... no row has any text",
    );

    let folder = Folder::with_vocabulary();
    let some = "{\"user_id\": 1, \"text\": \"word\"}\n{\"user_id\": 2, \"text\": \"two words\"}\n";
    folder.write("input", some);
    let text = format!("{}{ALL_TRAIN}", source("jsonl", ""));
    let corpus = folder.open(&text);
    assert_eq!((corpus.stats().users, corpus.stats().users_without_text), (2, 1));
    assert_eq!(corpus.partition(Split::Train).num_users(), 1);
    folder.fails(
        &format!("{text}\nmin_examples = 2"),
        "the train partition is empty: all 1 users ... min_examples = 2",
    );
}

#[test]
fn paths_that_cannot_be_used_are_named() {
    let folder = Folder::with_vocabulary();
    for (path, parts) in cases(
        r#"
        $ absent.jsonl
        cannot read ... absent.jsonl
        $ .
        the folder ... holds no file with the ending .jsonl, .ndjson, .json
        $ $UNDERTONE_TEST_UNSET/a
        data.source.path = "$UNDERTONE_TEST_UNSET/a" needs the environment variable UNDERTONE_TEST_UNSET
        "#,
    ) {
        folder.fails(
            &format!("source = {{ kind = \"jsonl\", path = \"{path}\" }}\n{VOCABULARY}"),
            parts,
        );
    }

    folder.write("input", good_table());
    let good = source("parquet", "");
    // A file where a directory should be is unwritable for every user, the superuser included.
    let blocked = folder.path("vocab.txt").join("cache");
    let error = Corpus::open(&spec(&good), folder.root(), &blocked, &NoProgress).unwrap_err();
    contains(
        &error.to_string(),
        "cannot create the cache directory ... vocab.txt",
    );

    folder.write("twice.txt", "two\nwords\ntwo\n");
    folder.write("empty.txt", "");
    for (vocabulary, parts) in cases(
        r#"
        $ kind = "file", path = "absent.txt"
        cannot read the vocabulary ... absent.txt
        $ kind = "file", path = "twice.txt"
        twice.txt, line 3: the word "two" is already listed on line 1
        $ kind = "public_corpus", path = "empty.txt", size = 5
        empty.txt holds no text
        "#,
    ) {
        let text = good.replace("kind = \"file\", path = \"vocab.txt\"", vocabulary);
        folder.fails(&text, parts);
    }
}

#[test]
fn what_is_no_repository_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.path("plain")).unwrap();
    for (path, parts) in cases(
        "
        $ absent
        cannot read the repository ... absent ... no such directory
        $ plain
        plain: git rev-parse failed ... not a git repository
        ",
    ) {
        let log = GitSource {
            path: folder.path(path),
            revision: "HEAD".to_owned(),
        };
        let options = ImportOptions {
            salt: b"salt",
            keep_user_ids: false,
            join_users: false,
            drop_users: &[],
            split: None,
            public: false,
            overwrite: false,
        };
        let output = folder.path("log.parquet");
        let error = import_git(&log, &output, &options, &NoProgress).expect_err(path);
        contains(&error.to_string(), parts);
        assert!(!output.exists());
    }
}

#[test]
fn a_run_file_that_names_git_is_told_of_the_import() {
    for (source, parts) in cases(
        r#"
        $ source = { kind = "git", path = "repository", salt = "x" }
        `undertone data import --git FOLDER -o log.parquet`
        $ source = { kind = "gin" }
        unknown variant `gin`
        "#,
    ) {
        let error = toml::from_str::<CorpusSpec>(source).unwrap_err();
        contains(&error.to_string(), parts);
    }
}

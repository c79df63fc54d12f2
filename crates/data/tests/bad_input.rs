//! Error messages about input that cannot be used.

#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use arrow_array::{DictionaryArray, TimestampMillisecondArray, UInt32Array, types::Int32Type};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;
use undertone_data::{
    Corpus, CorpusSpec, DataError, GitSource, ImportOptions, NoProgress, Split, import_git,
};

const VOCABULARY: &str = "vocabulary = { kind = \"file\", path = \"vocab.txt\" }";
const ALL_TRAIN: &str = "split = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }";

fn open_in(directory: &Path, text: &str) -> Result<Corpus, DataError> {
    let spec: CorpusSpec = toml::from_str(text).unwrap();
    Corpus::open(&spec, directory, &directory.join("cache"), &NoProgress)
}

fn fails(directory: &Path, text: &str, parts: &[&str]) {
    let message = open_in(directory, text).expect_err(text).to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn with_vocabulary() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("vocab.txt"), "two\nwords\n").unwrap();
    directory
}

/// Writes `contents` as the source and expects all `parts` in the message.
fn check(kind: &str, options: &str, contents: &[u8], parts: &[&str]) {
    let directory = with_vocabulary();
    fs::write(directory.path().join("input"), contents).unwrap();
    fails(directory.path(), &source(kind, options), parts);
}

fn source(kind: &str, options: &str) -> String {
    format!("source = {{ kind = \"{kind}\", path = \"input\"{options} }}\n{VOCABULARY}\n")
}

fn table(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn strings(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn good_table() -> Vec<u8> {
    table(vec![
        ("user_id", strings(&["a", "b"])),
        ("text", strings(&["two words", "two words"])),
    ])
}

#[test]
fn parquet_columns() {
    let columns = &[
        "input: the file lacks the column \"txt\" that data.source.text names",
        "\"user_id\", \"text\"",
    ];
    check("parquet", ", text = \"txt\"", &good_table(), columns);
    check(
        "parquet",
        ", user = \"who\"",
        &good_table(),
        &["lacks the column \"who\" that data.source.user names"],
    );
    check(
        "parquet",
        ", split = \"part\"",
        &good_table(),
        &["lacks the column \"part\" that data.source.split names"],
    );
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let wrong = table(vec![("user_id", strings(&["a", "b"])), ("text", numbers)]);
    check(
        "parquet",
        "",
        &wrong,
        &["input: column \"text\": expected a string type", "got Int64"],
    );
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let wrong = table(vec![("user_id", floats), ("text", strings(&["a", "b"]))]);
    check(
        "parquet",
        "",
        &wrong,
        &["column \"user_id\": expected a string or integer type, got Float64"],
    );
    check(
        "parquet",
        ", time = \"text\"",
        &good_table(),
        &["column \"text\": expected an integer (unix seconds), Timestamp"],
    );
    let missing: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let wrong = table(vec![("user_id", missing), ("text", strings(&["two words", "b"]))]);
    check(
        "parquet",
        "",
        &wrong,
        &["input, row 2: column \"user_id\": expected a value, got null"],
    );
}

#[test]
fn parquet_types_that_are_read() {
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![2000, 1000]));
    let dictionary: DictionaryArray<Int32Type> = ["two words", "two"].into_iter().collect();
    let users: ArrayRef = Arc::new(UInt32Array::from(vec![7, 7]));
    let texts: [ArrayRef; 3] = [
        Arc::new(LargeStringArray::from(vec!["two words", "one"])),
        Arc::new(StringViewArray::from(vec!["two words", "one"])),
        Arc::new(dictionary),
    ];
    for text in texts {
        let directory = with_vocabulary();
        let bytes = table(vec![
            ("text", text),
            ("user_id", users.clone()),
            ("time", times.clone()),
        ]);
        fs::write(directory.path().join("input"), bytes).unwrap();
        let text = format!("{}{ALL_TRAIN}", source("parquet", ", time = \"time\""));
        let corpus = open_in(directory.path(), &text).unwrap();
        assert_eq!(corpus.partition(Split::Train).user(0).tokens(), [3, 4, 2]);
    }
}

#[test]
fn damaged_files() {
    let good = good_table();
    check("parquet", "", b"", &["input holds no bytes: it is an empty file"]);
    check(
        "parquet",
        "",
        &good[..good.len() / 2],
        &["input is not a readable Parquet file", "cut off"],
    );
    check(
        "parquet",
        "",
        b"user_id,text\na,two words\n",
        &["input is not a readable Parquet file"],
    );
    check("jsonl", "", b"", &["input holds no JSON objects"]);
    check("jsonl", "", b"\n\n", &["input holds no JSON objects"]);
    check("csv", "", b"", &["input holds no header line"]);
    check(
        "csv",
        "",
        b"user_id,text\n",
        &["input holds no rows below its header line"],
    );
    let rows = table(vec![("user_id", strings(&[])), ("text", strings(&[]))]);
    check("parquet", "", &rows, &["input holds no rows"]);
}

#[test]
fn jsonl_lines() {
    let good = "{\"user_id\": \"a\", \"text\": \"two words\"}\n";
    let after = |line: &str| format!("{good}\n{line}\n").into_bytes();
    check(
        "jsonl",
        "",
        &after("{\"user_id\": "),
        &["input, line 3: \"line\": expected a JSON object, got invalid JSON"],
    );
    check(
        "jsonl",
        "",
        &after("[1]"),
        &["line 3", "expected a JSON object, got an array"],
    );
    check(
        "jsonl",
        "",
        &after("{\"text\": \"a b\"}"),
        &["line 3: \"user_id\": expected a non-empty string or an integer, got no such field"],
    );
    check(
        "jsonl",
        "",
        &after("{\"user_id\": 1.5, \"text\": \"a b\"}"),
        &["line 3: \"user_id\"", "got a number"],
    );
    check(
        "jsonl",
        "",
        &after("{\"user_id\": 1, \"text\": 5}"),
        &["line 3: \"text\": expected a string, got a number"],
    );
    check(
        "jsonl",
        "",
        &after("{\"user_id\": 1}"),
        &["line 3: \"text\": expected a string, got no such field"],
    );
    let when = "{\"user_id\": 1, \"text\": \"a b\", \"when\": \"noon\"}\n".as_bytes();
    check(
        "jsonl",
        ", time = \"when\"",
        when,
        &["line 1: \"when\": expected unix seconds", "got \"noon\""],
    );
}

#[test]
fn csv_lines() {
    let fields = &["input, line 3: number of fields: expected 2 as in the header, got 3"];
    check("csv", "", b"user_id,text\na,two words\nb,two,words\n", fields);
    check(
        "csv",
        "",
        b"who,text\na,two words\n",
        &[
            "input: the file lacks the column \"user_id\" that data.source.user names",
            "\"who\", \"text\"",
        ],
    );
    check(
        "csv",
        "",
        b"user_id,text\na,two words\n,two words\n",
        &["line 3: column \"user_id\": expected a user"],
    );
    check(
        "csv",
        "",
        b"user_id,text\na,two \xff\xfe\n",
        &["line 2: text: expected UTF-8"],
    );
    let times = b"user_id,text,t\na,two words,5\na,two words,soon\n";
    check(
        "csv",
        ", time = \"t\"",
        times,
        &["line 3: column \"t\": expected unix seconds or an ISO date in UTC, got \"soon\""],
    );
}

#[test]
fn split_values() {
    let rows = b"{\"user_id\": 1, \"text\": \"a b\", \"part\": \"train\"}\n{\"user_id\": 1, \"text\": \"a b\", \"part\": \"dev\"}\n";
    let parts = &["input, line 2: split column: expected \"train\", \"validation\" or \"test\", got \"dev\""];
    check("jsonl", ", split = \"part\"", rows, parts);
    let rows = b"{\"user_id\": 1, \"text\": \"a b\", \"part\": \"test\"}\n";
    check(
        "jsonl",
        ", split = \"part\"",
        rows,
        &["the train partition is empty", "the split puts no user"],
    );
}

#[test]
fn a_missing_time_is_an_error_only_where_a_split_or_a_cap_needs_it() {
    let directory = with_vocabulary();
    let rows = "{\"user_id\": 1, \"text\": \"two words\", \"when\": 5}\n\
                {\"user_id\": 2, \"text\": \"two words two words\"}\n{\"user_id\": 2, \"text\": \"!\"}\n";
    fs::write(directory.path().join("input"), rows).unwrap();
    let text = source("jsonl", ", time = \"when\"");
    let corpus = open_in(directory.path(), &format!("{text}{ALL_TRAIN}")).unwrap();
    assert_eq!(corpus.partition(Split::Train).num_users(), 2);
    let by_time = "split = { kind = \"time\", test_after = 3, validation_users = 0.0 }";
    let expected = "input, line 2: column \"when\": expected a time, because";
    fails(
        directory.path(),
        &format!("{text}{by_time}"),
        &[
            expected,
            "a split by time needs the time of every row, got no time",
        ],
    );
    let capped = format!("{text}{ALL_TRAIN}\nmax_examples = 1");
    fails(
        directory.path(),
        &capped,
        &[expected, "data.keep = { kind = \"earliest\" } with a cap"],
    );
    let random = format!("{capped}\nkeep = {{ kind = \"random\" }}");
    assert_eq!(
        open_in(directory.path(), &random)
            .unwrap()
            .partition(Split::Train)
            .num_users(),
        2
    );
    // A name that no object has is a mistake, not a time that is missing everywhere.
    fails(
        directory.path(),
        &format!("{}{ALL_TRAIN}", source("jsonl", ", time = \"wen\"")),
        &["data.source.time: expected a field that some object has, got \"wen\""],
    );
}

#[test]
fn pipes_and_devices_are_no_sources() {
    if !cfg!(unix) {
        return;
    }
    let directory = with_vocabulary();
    let zero = format!("source = {{ kind = \"jsonl\", path = \"/dev/zero\" }}\n{VOCABULARY}");
    fails(
        directory.path(),
        &zero,
        &["cannot read /dev/zero: it is not a regular file"],
    );
    fs::write(directory.path().join("input"), good_table()).unwrap();
    let words = "source = { kind = \"parquet\", path = \"input\" }\nvocabulary = { kind = \"file\", path = \"/dev/zero\" }";
    fails(
        directory.path(),
        words,
        &["/dev/zero: expected a regular file of at most 67108864 bytes"],
    );
}

#[test]
fn parts_of_a_folder() {
    let directory = with_vocabulary();
    let part =
        |name: &str, contents: &[u8]| fs::write(directory.path().join("input").join(name), contents).unwrap();
    fs::create_dir(directory.path().join("input")).unwrap();
    part("1.jsonl", b"");
    part("2.jsonl", b"\n");
    fails(
        directory.path(),
        &source("jsonl", ""),
        &["2.jsonl holds no JSON objects"],
    );
    part(
        "1.jsonl",
        b"{\"user_id\": 1, \"text\": \"two words\", \"part\": \"train\"}\n",
    );
    part(
        "2.jsonl",
        b"\n{\"user_id\": 1, \"text\": \"two words\", \"part\": \"dev\"}\n",
    );
    fails(
        directory.path(),
        &source("jsonl", ", split = \"part\""),
        &["2.jsonl, line 2: split column: expected \"train\""],
    );
    part("2.jsonl", b"{\"user\": 1}\n");
    fails(
        directory.path(),
        &source("jsonl", ""),
        &["2.jsonl, line 1: \"user_id\""],
    );

    let good = good_table();
    part("1.parquet", &good);
    part("2.parquet", &good[..good.len() / 2]);
    fails(
        directory.path(),
        &source("parquet", ""),
        &["2.parquet is not a readable Parquet file"],
    );
    part("2.parquet", b"");
    fails(
        directory.path(),
        &source("parquet", ""),
        &["2.parquet is not a readable Parquet file"],
    );
    part(
        "2.parquet",
        &table(vec![("user_id", strings(&[])), ("text", strings(&[]))]),
    );
    let spec = format!("{}{ALL_TRAIN}", source("parquet", ""));
    assert_eq!(open_in(directory.path(), &spec).unwrap().stats().rows, 2);
}

#[test]
fn users_without_text() {
    let nothing = "{\"user_id\": 1, \"text\": \"word\"}\n{\"user_id\": 2, \"text\": \"!!!\"}\n".as_bytes();
    check(
        "jsonl",
        "",
        nothing,
        &["no user has usable text: input has 2 users in 2 rows"],
    );

    let directory = with_vocabulary();
    let some = "{\"user_id\": 1, \"text\": \"word\"}\n{\"user_id\": 2, \"text\": \"two words\"}\n";
    fs::write(directory.path().join("input"), some).unwrap();
    let corpus = open_in(directory.path(), &format!("{}{ALL_TRAIN}", source("jsonl", ""))).unwrap();
    assert_eq!((corpus.stats().users, corpus.stats().users_without_text), (2, 1));
    assert_eq!(corpus.partition(Split::Train).num_users(), 1);

    let text = format!("{}{ALL_TRAIN}\nmin_examples = 2", source("jsonl", ""));
    fails(
        directory.path(),
        &text,
        &["the train partition is empty: all 1 users", "min_examples = 2"],
    );
}

#[test]
fn paths() {
    let directory = with_vocabulary();
    let at = |path: &str| format!("source = {{ kind = \"jsonl\", path = \"{path}\" }}\n{VOCABULARY}");
    fails(
        directory.path(),
        &at("absent.jsonl"),
        &["cannot read", "absent.jsonl"],
    );
    fails(
        directory.path(),
        &at("."),
        &[
            "the folder",
            "holds no file with the ending .jsonl, .ndjson, .json",
        ],
    );
    let unset =
        "data.source.path = \"$UNDERTONE_TEST_UNSET/a\" needs the environment variable UNDERTONE_TEST_UNSET";
    fails(directory.path(), &at("$UNDERTONE_TEST_UNSET/a"), &[unset]);

    fs::write(directory.path().join("input"), good_table()).unwrap();
    let spec: CorpusSpec = toml::from_str(&source("parquet", "")).unwrap();
    // A file where a directory should be is unwritable for every user, the superuser included.
    let blocked = directory.path().join("vocab.txt").join("cache");
    let error = Corpus::open(&spec, directory.path(), &blocked, &NoProgress)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot create the cache directory") && error.contains("vocab.txt"),
        "{error}"
    );

    let vocabulary = |kind: &str| {
        format!("source = {{ kind = \"parquet\", path = \"input\" }}\nvocabulary = {{ {kind} }}")
    };
    fails(
        directory.path(),
        &vocabulary("kind = \"file\", path = \"absent.txt\""),
        &["cannot read the vocabulary", "absent.txt"],
    );
    fs::write(directory.path().join("twice.txt"), "two\nwords\ntwo\n").unwrap();
    let twice = &["twice.txt, line 3: the word \"two\" is already listed on line 1"];
    fails(
        directory.path(),
        &vocabulary("kind = \"file\", path = \"twice.txt\""),
        twice,
    );
    fs::write(directory.path().join("empty.txt"), "").unwrap();
    let public = "kind = \"public_corpus\", path = \"empty.txt\", size = 5";
    fails(
        directory.path(),
        &vocabulary(public),
        &["empty.txt holds no text"],
    );
}

#[test]
fn repositories() {
    let directory = TempDir::new().unwrap();
    let fails = |path: &str, parts: &[&str]| {
        let log = GitSource {
            path: directory.path().join(path),
            revision: "HEAD".to_owned(),
        };
        let options = ImportOptions {
            salt: b"salt",
            keep_user_ids: false,
            split: None,
            overwrite: false,
        };
        let output = directory.path().join("log.parquet");
        let message = import_git(&log, &output, &options, &NoProgress)
            .expect_err(path)
            .to_string();
        for part in parts {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        assert!(!output.exists());
    };
    fails(
        "absent",
        &["cannot read the repository", "absent", "no such directory"],
    );
    fs::create_dir(directory.path().join("plain")).unwrap();
    fails("plain", &["plain: git rev-parse failed", "not a git repository"]);
}

#[test]
fn a_run_file_that_names_git_is_told_of_the_import() {
    let text = format!("source = {{ kind = \"git\", path = \"repository\", salt = \"x\" }}\n{VOCABULARY}");
    let error = toml::from_str::<CorpusSpec>(&text).unwrap_err().to_string();
    assert!(
        error.contains("`undertone data import --git FOLDER -o log.parquet`"),
        "{error}"
    );
    let other = toml::from_str::<CorpusSpec>("source = { kind = \"gin\" }").unwrap_err();
    assert!(other.to_string().contains("unknown variant `gin`"), "{other}");
}

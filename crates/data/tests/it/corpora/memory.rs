//! Tables in memory.

use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array,
    LargeStringArray, RecordBatch, RecordBatchIterator, StringArray, StringViewArray,
    TimestampMillisecondArray,
};
use undertone_data::{Corpus, DataError, MemoryTable, NoProgress, Progress, Split, Stage};
use undertone_settings::{CorpusSpec, MemorySource, SourceSpec};

use crate::support::{Folder, spec, texts};
use crate::testing::contains;

const USERS: [&str; 5] = ["7", "8", "7", "9", "8"];
const TEXTS: [&str; 5] = ["two words", "words two words", "two two", "", "two words two"];
const TIMES: [i64; 5] = [5, 4, 3, 2, 1];

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn rows(range: std::ops::Range<usize>) -> RecordBatch {
    batch(vec![
        (
            "user_id",
            Arc::new(StringArray::from(USERS[range.clone()].to_vec())),
        ),
        ("text", Arc::new(StringArray::from(TEXTS[range.clone()].to_vec()))),
        ("at", Arc::new(Int64Array::from(TIMES[range].to_vec()))),
    ])
}

fn source(time: Option<&str>) -> MemorySource {
    MemorySource {
        rows: 0,
        sha256: String::new(),
        user: "user_id".to_owned(),
        text: "text".to_owned(),
        time: time.map(str::to_owned),
        split: None,
        time_unit: None,
    }
}

fn read(batches: Vec<RecordBatch>, source: &MemorySource) -> Result<MemoryTable, DataError> {
    let schema = batches[0].schema();
    MemoryTable::new(
        RecordBatchIterator::new(batches.into_iter().map(Ok), schema),
        source,
        &NoProgress,
    )
}

fn settings(table: &MemoryTable) -> CorpusSpec {
    CorpusSpec {
        source: SourceSpec::Memory(table.source().clone()),
        ..spec(
            "source = { kind = \"synthetic\" }\nvocabulary = { kind = \"training_data\", size = 4 }\n\
             split = { kind = \"held_out_users\", validation = 0.0, test = 0.0 }",
        )
    }
}

fn open(table: &MemoryTable, folder: &Path) -> Corpus {
    Corpus::from_table(
        &settings(table),
        table,
        folder,
        &folder.join("cache"),
        &NoProgress,
    )
    .unwrap()
}

#[test]
fn the_digest_depends_on_rows_alone() {
    let whole = read(vec![rows(0..5)], &source(Some("at"))).unwrap();
    assert_eq!(whole.source().rows, 5);
    let parts = read(vec![rows(0..2), rows(2..2), rows(2..5)], &source(Some("at"))).unwrap();
    assert_eq!(whole.source(), parts.source());
    let other_types = batch(vec![
        ("ignored", Arc::new(Float64Array::from(vec![0.0; 5]))),
        (
            "at",
            Arc::new(TimestampMillisecondArray::from_iter_values(
                TIMES.map(|time| 1000 * time),
            )),
        ),
        ("user_id", Arc::new(Int64Array::from(vec![7, 8, 7, 9, 8]))),
        ("text", Arc::new(LargeStringArray::from(TEXTS.to_vec()))),
    ]);
    let other = read(vec![other_types], &source(Some("at"))).unwrap();
    assert_eq!(whole.source(), other.source());
    let views = batch(vec![
        (
            "user_id",
            Arc::new(DictionaryArray::<Int32Type>::from_iter(USERS)),
        ),
        ("text", Arc::new(StringViewArray::from(TEXTS.to_vec()))),
        ("at", Arc::new(Int64Array::from(TIMES.to_vec()))),
    ]);
    assert_eq!(
        whole.source(),
        read(vec![views], &source(Some("at"))).unwrap().source()
    );
    // Order, and whether there are times, are part of it.
    let swapped = read(vec![rows(2..5), rows(0..2)], &source(Some("at"))).unwrap();
    let untimed = read(vec![rows(0..5)], &source(None)).unwrap();
    assert_ne!(whole.source().sha256, swapped.source().sha256);
    assert_ne!(whole.source().sha256, untimed.source().sha256);
}

#[test]
fn a_table_makes_the_corpus_of_the_file_with_its_rows() {
    let folder = Folder::new();
    let line = |row: usize| {
        format!(
            "{{\"user_id\":{:?},\"text\":{:?},\"at\":{}}}\n",
            USERS[row], TEXTS[row], TIMES[row]
        )
    };
    folder.write("posts.jsonl", (0..5).map(line).collect::<String>());
    let table = read(vec![rows(0..3), rows(3..5)], &source(Some("at"))).unwrap();
    let corpus = open(&table, folder.root());
    let mut of_file = settings(&table);
    of_file.source = spec("source = { kind = \"jsonl\", path = \"posts.jsonl\", time = \"at\" }").source;
    let file = Corpus::open(&of_file, folder.root(), &folder.path("cache"), &NoProgress).unwrap();
    assert_eq!(texts(&corpus, Split::Train), texts(&file, Split::Train));
    assert_eq!(
        texts(&corpus, Split::Train)[0],
        ["two two <eos>", "two words <eos>"]
    );
    assert_eq!(corpus.stats().train, file.stats().train);
    // Opened again, it comes from the cache, with the same digest.
    assert_eq!(corpus.digest(), open(&table, folder.root()).digest());
}

#[test]
fn long_batches_are_read_in_parts() {
    let users: Vec<String> = (0..10_000).map(|row| (row % 50).to_string()).collect();
    let texts: Vec<String> = (0..10_000).map(|row| format!("word{} two", row % 3)).collect();
    let many = batch(vec![
        ("user_id", Arc::new(StringArray::from(users))),
        ("text", Arc::new(StringArray::from(texts))),
    ]);
    let folder = Folder::new();
    let table = read(vec![many], &source(None)).unwrap();
    let corpus = open(&table, folder.root());
    assert_eq!((corpus.stats().rows, corpus.stats().users), (10_000, 50));
}

#[test]
fn sixteen_bytes_are_a_user_without_the_mark_of_a_uuid() {
    let ids = (0_u8..12).map(|row| [row % 3; 16]);
    let texts: Vec<String> = (0..12).map(|row| format!("word{} two", row % 3)).collect();
    let table = batch(vec![
        (
            "user_id",
            Arc::new(FixedSizeBinaryArray::try_from_iter(ids).unwrap()),
        ),
        ("text", Arc::new(StringArray::from(texts))),
    ]);
    let folder = Folder::new();
    let corpus = open(&read(vec![table], &source(None)).unwrap(), folder.root());
    assert_eq!((corpus.stats().rows, corpus.stats().users), (12, 3));
}

#[test]
fn tables_that_cannot_be_used_are_refused() {
    let texts = |values: Vec<Option<&str>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let fails = |columns: Vec<(&str, ArrayRef)>, parts: &str| {
        let error = read(vec![batch(columns)], &source(None)).unwrap_err();
        contains(&error.to_string(), parts);
    };
    let good = || texts(vec![Some("two words")]);
    fails(
        vec![("user", good()), ("text", good())],
        "table: it lacks the column \"user_id\" that data.source.user (--user-column) names ... \"user\", \"text\"",
    );
    fails(
        vec![
            ("user_id", Arc::new(Float64Array::from(vec![1.5]))),
            ("text", good()),
        ],
        "table, row 1: column \"user_id\": expected a whole number ... got 1.5",
    );
    fails(
        vec![
            ("user_id", Arc::new(BooleanArray::from(vec![true]))),
            ("text", good()),
        ],
        "table: column \"user_id\": expected a string type, UUIDs (16 bytes), or whole numbers of any type, got Boolean",
    );
    fails(
        vec![
            ("user_id", texts(vec![Some("a"), None])),
            ("text", texts(vec![Some("b"), None])),
        ],
        "table, row 2: column \"user_id\": expected a value, got null",
    );
    fails(
        vec![("user_id", texts(vec![])), ("text", texts(vec![]))],
        "table holds no rows",
    );

    let table = read(vec![rows(0..5)], &source(None)).unwrap();
    let other = read(vec![rows(0..4)], &source(None)).unwrap();
    let folder = Folder::new();
    let opened = Corpus::from_table(
        &settings(&table),
        &other,
        folder.root(),
        folder.root(),
        &NoProgress,
    );
    contains(
        &opened.unwrap_err().to_string(),
        "data.source: expected the table of 5 rows ... got the table of 4 rows",
    );
    let opened = Corpus::open(&settings(&table), folder.root(), folder.root(), &NoProgress);
    contains(
        &opened.unwrap_err().to_string(),
        "expected the table of 5 rows ... got no table: give it",
    );
}

#[test]
fn an_opening_can_be_ended() {
    struct Ended;
    impl Progress for Ended {
        fn update(&self, _: Stage, _: u64, _: Option<u64>) {}
        fn stop(&self) -> bool {
            true
        }
    }
    let folder = Folder::new();
    let table = read(vec![rows(0..5)], &source(None)).unwrap();
    let error =
        Corpus::from_table(&settings(&table), &table, folder.root(), folder.root(), &Ended).unwrap_err();
    assert!(matches!(error, DataError::Interrupted), "{error}");
    folder.write("posts.jsonl", "{\"user_id\":\"a\",\"text\":\"two words\"}\n");
    let mut of_file = settings(&table);
    of_file.source = spec("source = { kind = \"jsonl\", path = \"posts.jsonl\" }").source;
    let error = Corpus::open(&of_file, folder.root(), &folder.path("cache"), &Ended).unwrap_err();
    assert!(matches!(error, DataError::Interrupted), "{error}");
}

//! Files that were made to harm: each ends in an error, in bounded memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::read_columns;
use crate::columns::{Columns, Keys};
use crate::error::DataError;
use crate::limits::{MAX_LINE_BYTES, MAX_TEXT_BYTES};
use undertone_settings::time::NO_TIME;

const COLUMNS: Columns<'static> = Columns {
    user: Some("user_id"),
    text: "text",
    time: Some("time"),
    split: None,
    time_unit: None,
    keys: Keys::SOURCE,
};

const UNTIMED: Columns<'static> = Columns {
    time: None,
    ..COLUMNS
};

/// Users, lengths of texts and times of a file.
fn rows(path: &Path, columns: Columns<'_>) -> Result<Vec<(String, usize, i64)>, DataError> {
    let mut found = Vec::new();
    read_columns(path, columns, &mut |rows, _| {
        found.extend((0..rows.len()).map(|row| {
            let user = rows.users.get(row).to_owned();
            (user, rows.texts.get(row).len(), rows.times[row])
        }));
        Ok(())
    })?;
    Ok(found)
}

fn fails(path: &Path, parts: &[&str]) {
    let message = rows(path, UNTIMED).expect_err("an error").to_string();
    assert!(message.lines().count() <= 3 && message.len() < 1000, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

/// A file of texts, written as `properties` say.
fn texts(path: &Path, properties: WriterProperties, texts: &[ByteArray], times: usize) {
    let schema = "message m { required binary user_id (UTF8); required binary text (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let file = fs::File::create(path).expect("a file");
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let users = vec![ByteArray::from("u"); texts.len() * times];
    for column in 0..2 {
        let mut writer = group.next_column().expect("a column").expect("a column");
        let typed = writer.typed::<ByteArrayType>();
        match column {
            0 => typed.write_batch(&users, None, None).map(|_| ()).expect("values"),
            _ => (0..times).for_each(|_| {
                typed.write_batch(texts, None, None).expect("values");
            }),
        }
        writer.close().expect("a column");
    }
    group.close().expect("a row group");
    writer.close().expect("a file");
}

fn zstd() -> parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
}

#[test]
#[ignore = "slow"]
fn a_dictionary_that_expands_a_thousandfold_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bomb.parquet");
    let value = ByteArray::from(vec![b'a'; 100 << 10]);
    texts(&path, zstd().build(), &vec![value; 100], 200);
    assert!(fs::metadata(&path).expect("a file").len() < 4096);
    // Two gigabytes of text.
    fails(
        &path,
        &[
            "bomb.parquet",
            "it expands to more than 64 MiB and 1000 times its size",
        ],
    );
}

#[test]
fn prefixes_and_lengths_that_expand_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bomb.parquet");
    // Each value repeats the one before.
    let properties = zstd()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .build();
    let value = ByteArray::from(vec![b'a'; 100 << 10]);
    texts(&path, properties, &vec![value; 100], 50);
    fails(&path, &["it expands to more than 64 MiB"]);
}

#[test]
fn columns_that_overlap_and_pages_of_zeros_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.parquet");
    texts(&path, zstd().build(), &[ByteArray::from("a text")], 10);
    let opened = super::parquet::Opened::open(&path).expect("a file");
    let metadata = opened.metadata.metadata();
    let look = |metadata: &ParquetMetaData| {
        super::parquet::pages::inspect(&opened.file, metadata, &|_| true).map(|pages| pages.batch_rows)
    };
    assert_eq!(look(metadata), Ok(8192));
    // A thousand row groups of the same bytes.
    let mut builder = ParquetMetaData::clone(metadata).into_builder();
    for _ in 0..1000 {
        builder = builder.add_row_group(metadata.row_group(0).clone());
    }
    let error = look(&builder.build()).expect_err("they overlap");
    assert!(error.contains("overlaps other columns"), "{error}");

    let zeros = ByteArray::from(vec![0; 80 << 20]);
    texts(&path, zstd().set_dictionary_enabled(false).build(), &[zeros], 1);
    assert!(fs::metadata(&path).expect("a file").len() < 65_536);
    fails(&path, &["it expands to more than 64 MiB"]);
}

#[test]
fn every_encoding_and_codec_of_honest_text_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("good.parquet");
    let values: Vec<ByteArray> = (0..3000)
        .map(|number| ByteArray::from(format!("text {} of {number}", number % 7).as_str()))
        .collect();
    let gzip = Compression::GZIP(GzipLevel::default());
    let brotli = Compression::BROTLI(BrotliLevel::default());
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for compression in [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            gzip,
            brotli,
            Compression::LZ4,
            Compression::LZ4_RAW,
        ] {
            for dictionary in [false, true] {
                let properties = zstd()
                    .set_writer_version(version)
                    .set_compression(compression)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_size_limit(4096)
                    .set_write_batch_size(64)
                    .build();
                texts(&path, properties, &values, 2);
                let found = rows(&path, UNTIMED).expect("rows");
                assert_eq!(found.len(), 6000);
                let lengths = found.iter().map(|(_, length, _)| *length);
                assert!(lengths.eq(values.iter().chain(&values).map(ByteArray::len)));
            }
        }
    }
}

#[test]
fn a_text_beyond_the_limit_is_an_error_that_names_row_and_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long.parquet");
    let long = ByteArray::from(vec![b'a'; MAX_TEXT_BYTES + 1]);
    let properties = zstd().set_dictionary_enabled(false).build();
    texts(&path, properties, &[ByteArray::from("short"), long], 1);
    let expected =
        "row 2: column \"text\": expected at most 16777216 bytes (max_text_bytes), got 16777217 bytes";
    fails(&path, &[expected]);

    let line = format!(
        "{{\"user_id\": \"u\", \"text\": \"{}\"}}\n",
        "a".repeat(MAX_TEXT_BYTES + 1)
    );
    fs::write(folder.path().join("long.jsonl"), line).expect("a file");
    fails(
        &folder.path().join("long.jsonl"),
        &["line 1: \"text\": expected at most 16777216 bytes (max_text_bytes)"],
    );
}

#[test]
#[ignore = "slow"]
fn lines_without_end_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let endless = "a".repeat(MAX_LINE_BYTES + (1 << 20));
    for (name, contents) in [
        ("a.jsonl", format!("{{\"user_id\": \"{endless}")),
        ("a.csv", format!("user_id,text\nu,\"{endless}")),
        ("b.csv", format!("user_id,text,{endless}\nu,a,b\n")),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, contents).expect("a file");
        fails(&path, &[name, "(max_line_bytes)"]);
    }
}

#[test]
fn unwanted_fields_cost_no_memory_and_bad_ones_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.jsonl");
    let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let line = format!(
        "{{\"x\": {nested}, \"text\": \"two words\", \"user_id\": 7, \"time\": null, \"y\": {{\"user_id\": 1}}}}\n"
    );
    fs::write(&path, &line).expect("a file");
    let found = rows(&path, COLUMNS).expect("rows");
    assert_eq!(found, [("7".to_owned(), 9, NO_TIME)]);
    fs::write(&path, line.replace("\"two words\"", "[1]")).expect("a file");
    fails(&path, &["line 1: \"text\": expected a string, got an array"]);
    fs::write(&path, format!("{}1", "[".repeat(100_000))).expect("a file");
    fails(
        &path,
        &["line 1: JSON: expected the end of a value", "it is cut off"],
    );
}

#[test]
fn a_missing_time_is_no_error_of_reading() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(
        at("a.jsonl"),
        "{\"user_id\": \"a\", \"text\": \"x\"}\n{\"user_id\": \"a\", \"text\": \"x\", \"time\": \"\"}\n\
         {\"user_id\": \"a\", \"text\": \"x\", \"time\": null}\n{\"user_id\": \"a\", \"text\": \"x\", \"time\": 5}\n",
    )
    .expect("a file");
    fs::write(at("a.csv"), "user_id,text,time\na,x,\na,x, \na,x,\na,x,5\n").expect("a file");
    let texts = StringArray::from(vec!["x"; 4]);
    let times = Int64Array::from(vec![None, None, None, Some(5)]);
    let columns: [(&str, arrow_array::ArrayRef); 3] = [
        ("user_id", Arc::new(StringArray::from(vec!["a"; 4]))),
        ("text", Arc::new(texts)),
        ("time", Arc::new(times)),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let file = fs::File::create(at("a.parquet")).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows");
    writer.close().expect("a file");
    for name in ["a.jsonl", "a.csv", "a.parquet"] {
        let found = rows(&at(name), COLUMNS).expect(name);
        let times: Vec<i64> = found.into_iter().map(|(_, _, time)| time).collect();
        assert_eq!(times, [NO_TIME, NO_TIME, NO_TIME, 5], "{name}");
    }
    // A time that cannot be read is an error still, and so is the number that stands for none.
    for time in ["soon", "-9223372036854775808"] {
        fs::write(at("b.csv"), format!("user_id,text,time\na,x,{time}\n")).expect("a file");
        let error = rows(&at("b.csv"), COLUMNS).expect_err(time).to_string();
        assert!(
            error.contains("line 2: column \"time\": expected unix seconds"),
            "{error}"
        );
    }
}

#[test]
#[ignore = "slow"]
fn mutations_of_a_parquet_file_never_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.parquet");
    let values: Vec<ByteArray> = (0..40)
        .map(|number| ByteArray::from(format!("text {number}").as_str()))
        .collect();
    let mut errors = 0;
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(version == WriterVersion::PARQUET_1_0)
            .build();
        texts(&path, properties, &values, 1);
        let honest = fs::read(&path).expect("a file");
        for at in 0..honest.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, honest[at] ^ 1, honest[at].wrapping_add(1)] {
                let mut bytes = honest.clone();
                bytes[at] = value;
                fs::write(&path, bytes).expect("a file");
                errors += usize::from(rows(&path, UNTIMED).is_err());
            }
        }
    }
    // Most of them are noticed; a changed letter of a text is not.
    assert!(errors > 1000, "{errors}");
}

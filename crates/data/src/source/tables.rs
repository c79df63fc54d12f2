//! Tables that pyarrow, polars, DuckDB and `datasets` wrote, against the rows that pyarrow finds in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};

use super::{arrow, read_columns};
use crate::columns::{Columns, Keys};
use crate::error::DataError;
use undertone_settings::time::NO_TIME;

/// User, text and time of a row.
type Row = (String, String, Option<i64>);

const COLUMNS: Columns<'static> = Columns {
    user: Some("user_id"),
    text: "text",
    time: Some("time"),
    split: None,
    time_unit: None,
    keys: Keys::SOURCE,
};

fn tables() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables")
}

fn rows(path: &Path) -> Result<Vec<Row>, DataError> {
    let mut found = Vec::new();
    read_columns(path, COLUMNS, &mut |rows, _| {
        found.extend((0..rows.len()).map(|row| {
            let time = Some(rows.times[row]).filter(|&time| time != NO_TIME);
            (
                rows.users.get(row).to_owned(),
                rows.texts.get(row).to_owned(),
                time,
            )
        }));
        Ok(())
    })?;
    Ok(found)
}

fn fails(path: &Path, parts: &[&str]) {
    let message = rows(path).expect_err("an error").to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[test]
fn tables_of_other_programs_have_the_rows_that_pyarrow_finds() {
    let expected = fs::read_to_string(tables().join("expected.json")).expect("a file");
    let expected: BTreeMap<String, Vec<Row>> = serde_json::from_str(&expected).expect("rows");
    assert!(expected.len() > 25);
    for (name, expected) in expected {
        let path = tables().join(&name);
        let found = match path.is_dir() {
            false => rows(&path).unwrap_or_else(|error| panic!("{error}")),
            true => {
                let files = arrow::files(&path).expect("files");
                files.iter().flat_map(|file| rows(file).expect("rows")).collect()
            }
        };
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn columns_and_bodies_that_cannot_be_read_say_why() {
    let at = |name: &str| tables().join(name);
    fails(
        &at("encrypted.parquet"),
        &["encrypted.parquet", "its columns are encrypted"],
    );
    fails(
        &at("compressed.feather"),
        &[
            "compressed.feather",
            "its batches are compressed (lz4)",
            "uncompressed",
        ],
    );
}

/// A stream of these batches.
fn stream(path: &Path, batches: &[RecordBatch]) {
    aligned_stream(path, batches, 64);
}

/// A stream of these batches, whose values begin at multiples of so many bytes.
fn aligned_stream(path: &Path, batches: &[RecordBatch], alignment: usize) {
    let file = fs::File::create(path).expect("a file");
    let options = IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5).expect("options");
    let mut writer =
        StreamWriter::try_new_with_options(file, &batches[0].schema(), options).expect("a writer");
    for batch in batches {
        writer.write(batch).expect("a batch");
    }
    writer.finish().expect("an end");
}

#[test]
fn lengths_of_arrow_are_believed_only_where_they_fit_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.arrow");
    let honest = fs::read(tables().join("stream.arrow")).expect("a file");
    let check = |bytes: &[u8], part: &str| {
        fs::write(&path, bytes).expect("a file");
        fails(&path, &["a.arrow", part]);
    };
    // Cut anywhere, between two messages too, a stream is no whole one.
    for end in 1..honest.len() {
        fs::write(&path, &honest[..end]).expect("a file");
        assert!(rows(&path).is_err(), "{end} bytes");
    }
    // So is a file, whose list of messages stands at its end.
    let file = fs::read(tables().join("file.arrow")).expect("a file");
    for end in 1..file.len() {
        fs::write(&path, &file[..end]).expect("a file");
        assert!(rows(&path).is_err(), "{end} bytes of a file");
    }
    check(b"", "it is an empty file");
    check(&honest[..honest.len() - 8], "it has no end");
    check(&[&honest[..], &honest].concat(), "bytes follow its end");
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = honest.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    check(
        &changed(4, &[0xff, 0xff, 0xff, 0x7f]),
        "at most 16777216 are read",
    );
    check(&changed(4, &[0, 0, 0, 1]), "and only");
    check(&changed(4, &[0; 4]), "bytes follow its end");
    check(&honest[honest.len() - 8..], "it does not begin with a schema");
    check(b"user_id,text\nada,one two\n", "a message of 1919251317 bytes");
    check(b"ARROW1\0\0 and no end of a file", "it has no end");
    check(b"FEA1 and more", "version 1");
}

#[test]
fn a_number_that_grew_in_the_description_of_a_batch_moves_no_letter_to_another_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.arrow");
    let users: ArrayRef = Arc::new(StringArray::from(vec!["ada", "bo", "cy", "ada"]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["one", "two words", "three", "four"]));
    let times: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    let columns = [("user_id", users), ("text", texts), ("time", times)];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    stream(&path, std::slice::from_ref(&batch));
    let expected = rows(&path).expect("rows");
    for alignment in [8, 16, 32, 64] {
        aligned_stream(&path, std::slice::from_ref(&batch), alignment);
        assert_eq!(rows(&path).expect("rows"), expected, "{alignment}");
    }
    let honest = fs::read(&path).expect("a file");
    let number = |at: usize| i64::from_le_bytes(honest[at..at + 8].try_into().expect("eight bytes"));
    let (mut refused, mut equal) = (0, 0);
    // A description is filled up to eight bytes, and the values follow it. The schema and the end are changed as well.
    for at in (0..honest.len() - 8).step_by(4) {
        for more in [1, 3, 8, 16, 64] {
            let mut changed = honest.clone();
            let letters = changed[at..at + 8].iter().any(u8::is_ascii_lowercase);
            if letters || number(at) > 1 << 16 {
                continue;
            }
            changed[at..at + 8].copy_from_slice(&(number(at) + more).to_le_bytes());
            fs::write(&path, &changed).expect("a file");
            match rows(&path) {
                Err(_) => refused += 1,
                Ok(found) => {
                    let letters = |rows: &[Row]| -> Vec<(String, String)> {
                        rows.iter().map(|row| (row.0.clone(), row.1.clone())).collect()
                    };
                    assert_eq!(letters(&found), letters(&expected), "{more} more at byte {at}");
                    equal += 1;
                }
            }
        }
    }
    assert!(refused > 100 && equal > 20, "{refused} {equal}");
}

#[test]
fn a_view_that_repeats_one_text_expands_no_further_than_other_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bomb.arrow");
    let text = "a".repeat(1 << 20);
    let mut texts = StringViewBuilder::new();
    let block = texts.append_block(text.into_bytes().into());
    let mut users = StringViewBuilder::new();
    for _ in 0..20_000 {
        texts.try_append_view(block, 0, 1 << 20).expect("a view");
        users.append_value("u");
    }
    let times = Int64Array::from(vec![1_717_588_800; 20_000]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("user_id", Arc::new(users.finish())),
        ("text", Arc::new(texts.finish())),
        ("time", Arc::new(times)),
    ];
    stream(&path, &[RecordBatch::try_from_iter(columns).expect("a batch")]);
    assert!(fs::metadata(&path).expect("a file").len() < 4 << 20);
    // Twenty gigabytes of text.
    fails(
        &path,
        &[
            "bomb.arrow",
            "it expands to more than 64 MiB and 1000 times its size",
        ],
    );
}

#[test]
fn folders_of_data_sets_are_read_once_and_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in [
        "data-00000-of-00002.arrow",
        "data-00001-of-00002.arrow",
        "state.json",
    ] {
        fs::copy(tables().join("saved").join(name), at(name)).expect("a copy");
    }
    // A cache of `map`, and a file that nobody lists.
    for name in ["cache-1f.arrow", "other.arrow"] {
        fs::copy(tables().join("stream.arrow"), at(name)).expect("a copy");
    }
    let names = || {
        let files = arrow::files(folder.path())?;
        let name = |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok::<_, DataError>(files.iter().filter_map(name).collect::<Vec<_>>())
    };
    assert_eq!(
        names().expect("files"),
        ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    );
    fs::remove_file(at("data-00001-of-00002.arrow")).expect("a file");
    let error = names().expect_err("a lost part").to_string();
    assert!(
        error.contains("data-00001-of-00002.arrow: it is missing, though state.json names it"),
        "{error}"
    );
    for (state, part) in [
        ("{", "invalid JSON"),
        (
            r#"{"_data_files": [{"filename": "../data.arrow"}]}"#,
            "names of files in the folder",
        ),
        (
            r#"{"_data_files": [], "_indices_data_files": [{"filename": "indices.arrow"}]}"#,
            "a file of indices",
        ),
    ] {
        fs::write(at("state.json"), state).expect("a file");
        let error = names().expect_err(state).to_string();
        assert!(error.contains(part), "{error}");
    }
    fs::remove_file(at("state.json")).expect("a file");
    fs::write(at("dataset_info.json"), "{}").expect("a file");
    assert_eq!(
        names().expect("files"),
        ["data-00000-of-00002.arrow", "other.arrow"]
    );
}

/// Changes of single bytes of every table end in an error, or in at most the rows that the table has.
#[test]
#[ignore = "slow"]
fn mutations_of_the_tables_of_other_programs_never_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut errors, mut accepted) = (0, 0);
    let names = fs::read_dir(tables()).expect("a folder");
    let mut names: Vec<PathBuf> = names.map(|entry| entry.expect("an entry").path()).collect();
    names.sort_unstable();
    for (number, honest) in names.iter().enumerate() {
        let ending = honest.extension().and_then(|ending| ending.to_str());
        let Some(ending @ ("parquet" | "arrow" | "ipc")) = ending else {
            continue;
        };
        let bytes = fs::read(honest).expect("a file");
        let path = folder.path().join(format!("a.{ending}"));
        for at in (number % 5..bytes.len()).step_by(5) {
            for value in [0, 0xff, bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = value;
                fs::write(&path, changed).expect("a file");
                match rows(&path) {
                    // No file of these has more rows.
                    Ok(rows) => {
                        assert!(rows.len() <= 6, "{}: byte {at} as {value}", honest.display());
                        accepted += 1;
                    }
                    Err(_) => errors += 1,
                }
            }
        }
    }
    assert!(errors > 3000 && accepted > 3000, "{errors} {accepted}");
}

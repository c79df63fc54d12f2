use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use zip::write::{SimpleFileOptions, ZipWriter};

use super::*;
use crate::columns::{Columns, Keys};
use crate::source::read_columns;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).expect("bytes");
    encoder.finish().expect("bytes")
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 3).expect("bytes")
}

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        archive
            .start_file(*name, SimpleFileOptions::default())
            .expect("an entry");
        archive.write_all(content).expect("bytes");
    }
    archive.finish().expect("bytes").into_inner()
}

/// The texts of a file, and their users unless the file is plain text.
fn rows(path: &Path) -> Result<Vec<(String, String)>> {
    let plain = super::super::files::extension(path) == "txt";
    let columns = Columns {
        user: (!plain).then_some("user_id"),
        text: "text",
        time: None,
        split: None,
        time_unit: None,
        keys: Keys::SOURCE,
    };
    let mut found = Vec::new();
    read_columns(path, columns, &mut |rows, _| {
        for row in 0..rows.len() {
            let user = if plain { "" } else { rows.users.get(row) };
            found.push((user.to_owned(), rows.texts.get(row).to_owned()));
        }
        Ok(())
    })?;
    Ok(found)
}

const FORMATS: [(&str, &str); 4] = [
    (
        "jsonl",
        "{\"user_id\": \"a\", \"text\": \"one\"}\n{\"user_id\": \"b\", \"text\": \"two\"}\n",
    ),
    ("csv", "user_id,text\na,one\nb,two\n"),
    ("tsv", "user_id\ttext\na\tone\nb\ttwo\n"),
    ("txt", "one\ntwo\n"),
];

#[test]
fn every_text_format_is_read_packed_whatever_its_name_says() {
    let folder = tempfile::tempdir().expect("a folder");
    for (format, text) in FORMATS {
        let plain = folder.path().join(format!("plain.{format}"));
        fs::write(&plain, text).expect("a file");
        let expected = rows(&plain).expect("rows");
        assert_eq!(expected.len(), 2, "{format}");
        let (first, second) = text.split_at(text.len() / 2);
        let members = |pack: fn(&[u8]) -> Vec<u8>| [pack(first.as_bytes()), pack(second.as_bytes())].concat();
        let marked = [BYTE_ORDER_MARK, text.as_bytes()].concat();
        let skippable = [&b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..], &zstd(text.as_bytes())].concat();
        for (name, bytes) in [
            (format!("a.{format}.gz"), gzip(text.as_bytes())),
            (format!("members.{format}.gz"), members(gzip)),
            (format!("named-plain.{format}"), gzip(text.as_bytes())),
            (format!("a.{format}.zst"), zstd(text.as_bytes())),
            (format!("frames.{format}.zst"), members(zstd)),
            (format!("skippable.{format}.zst"), skippable),
            (
                format!("a.{format}.zip"),
                zip(&[("export/table", text.as_bytes())]),
            ),
            (format!("marked.{format}"), marked.clone()),
            (format!("marked.{format}.gz"), gzip(&marked)),
            (format!("marked.{format}.zip"), zip(&[("a", &marked)])),
        ] {
            let path = folder.path().join(&name);
            fs::write(&path, bytes).expect("a file");
            let found = rows(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(found, expected, "{name}");
        }
    }
}

#[test]
fn an_archive_is_its_files_of_the_format_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.csv.zip");
    let bytes = zip(&[
        ("b/2.csv", b"user_id,text\nb,two\n"),
        ("readme.txt", b"no table"),
        ("__MACOSX/b/._1.csv", b"\0\x05\x16"),
        ("b/1.csv", b"text,user_id\none,a\n"),
    ]);
    fs::write(&path, bytes).expect("a file");
    let expected = [("a", "one"), ("b", "two")].map(|(user, text)| (user.to_owned(), text.to_owned()));
    assert_eq!(rows(&path).expect("rows"), expected);
    fs::write(&path, zip(&[("1.csv", b"user_id,text\nb\n"), ("2.csv", b"")])).expect("a file");
    let error = rows(&path).expect_err("too few fields").to_string();
    assert!(
        error.contains("a.csv.zip/1.csv, line 2: number of fields"),
        "{error}"
    );
    fs::write(&path, zip(&[("1.json", b""), ("2.json", b"")])).expect("a file");
    let error = rows(&path).expect_err("no table").to_string();
    assert!(
        error.contains("the archive") && error.ends_with("holds no file with the ending .csv"),
        "{error}"
    );
}

#[test]
fn damaged_packing_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let text: String = (0..2000)
        .map(|row| format!("{{\"user_id\": {row}, \"text\": \"{}\"}}\n", row * row))
        .collect();
    let text = text.as_bytes();
    let (gz, zst, archive) = (gzip(text), zstd(text), zip(&[("a", text)]));
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    // A frame that asks for a window of 2^31 bytes.
    let window = b"\x28\xb5\x2f\xfd\x00\xa8\x01\0\0".to_vec();
    for (bytes, part) in [
        (gz[..gz.len() / 2].to_vec(), "gzip content is damaged or cut off"),
        (gz[..gz.len() - 4].to_vec(), "gzip content is damaged or cut off"),
        (flipped(&gz, gz.len() - 8), "gzip content is damaged or cut off"),
        (
            [&gz[..], b"garbage"].concat(),
            "gzip content is damaged or cut off",
        ),
        (
            zst[..zst.len() / 2].to_vec(),
            "zstd content is damaged or cut off",
        ),
        (
            [&zst[..], b"garbage"].concat(),
            "zstd content is damaged or cut off",
        ),
        (
            window,
            "its zstd window is larger than 128 MiB; `zstd -d --long=31` unpacks it",
        ),
        (
            archive[..archive.len() / 2].to_vec(),
            "zip content is damaged or cut off",
        ),
        (flipped(&archive, 60), "zip content is damaged or cut off"),
        (b"PK\x05\x06".to_vec(), "zip content is damaged or cut off"),
    ] {
        let path = folder.path().join("a.jsonl");
        fs::write(&path, bytes).expect("a file");
        let error = rows(&path).expect_err(part).to_string();
        assert!(error.contains("a.jsonl") && error.contains(part), "{error}");
    }
}

#[test]
#[ignore = "slow"]
fn a_bomb_is_an_error_that_names_the_ratio_and_the_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = [vec![b' '; (1 << 20) - 1], b"\n".to_vec()].concat();
    let blank = line.repeat(102);
    let nested = line.repeat(60);
    for (name, bytes) in [
        ("gzip", gzip(&blank)),
        ("zstd", zstd(&blank)),
        ("zip", zip(&[("a", &blank)])),
        // None of the entries is too large alone.
        ("entries", zip(&[("1.jsonl", &nested), ("2.jsonl", &nested)])),
    ] {
        let path = folder.path().join(name);
        let path = path.with_extension("jsonl");
        let size = bytes.len();
        assert!(size < 130_000, "{name}: {size}");
        fs::write(&path, bytes).expect("a file");
        let error = rows(&path).expect_err(name).to_string();
        let part = format!("it expands to more than 64 MiB and 1000 times its size of {size} bytes");
        assert!(error.contains(&part), "{name}: {error}");
    }
}

#[test]
fn what_is_no_text_is_named_with_the_next_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tar = vec![0; 512];
    tar[..5].copy_from_slice(b"a.csv");
    tar[257..262].copy_from_slice(b"ustar");
    let wide: Vec<u8> = "user_id,text".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide_marked = [&b"\xff\xfe"[..], &wide].concat();
    for (bytes, parts) in [
        (
            b"SQLite format 3\0\x10".to_vec(),
            "an SQLite database: `undertone data import --sqlite",
        ),
        (b"PAR1\x15\x04".to_vec(), "a Parquet file: read it with --parquet"),
        (b"ARROW1\0\0".to_vec(), "an Arrow file"),
        (b"\xff\xff\xff\xff\x10\0\0\0".to_vec(), "an Arrow file"),
        (wide_marked.clone(), "text in UTF-16: convert it with `iconv"),
        (b"\xfe\xff\0u".to_vec(), "text in UTF-16"),
        (wide.clone(), "text in UTF-16: convert it with `iconv -f UTF-16LE"),
        (b"\xff\xfe\0\0u\0\0\0".to_vec(), "text in UTF-32"),
        (b"\xfd7zXZ\0\0".to_vec(), "packed by xz: unpack it with `xz -d`"),
        (b"BZh91AY&SY".to_vec(), "packed by bzip2"),
        (tar.clone(), "a tar archive: unpack it with `tar -xf`"),
        (gzip(&tar), "a tar archive"),
        (gzip(&wide_marked), "text in UTF-16"),
        (b"%PDF-1.7".to_vec(), "a PDF document"),
        (
            zip(&[("[Content_Types].xml", b"<?xml"), ("xl/workbook.xml", b"")]),
            "an Excel workbook: save",
        ),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec(), "an Excel workbook"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid".to_vec(),
            "`git lfs pull`",
        ),
    ] {
        for format in ["jsonl", "csv", "tsv", "txt"] {
            let path = folder.path().join(format!("a.{format}"));
            fs::write(&path, &bytes).expect("a file");
            let error = rows(&path).expect_err(parts).to_string();
            assert!(
                error.contains(&format!("a.{format} is ")) && error.contains(parts),
                "{error}"
            );
        }
    }
    for (text, part) in [
        (
            " <!DOCTYPE html><title>x",
            "an HTML page: download the file itself",
        ),
        ("<html lang=en>", "an HTML page"),
        ("\u{feff}<HTML>", "an HTML page"),
        ("<?xml version=\"1.0\"?><posts>", "an XML document"),
    ] {
        for format in ["jsonl", "csv", "tsv"] {
            let path = folder.path().join(format!("a.{format}"));
            fs::write(&path, text).expect("a file");
            let error = rows(&path).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
    // Words that begin like a mark are words.
    for text in ["BZhou said so\n", "PAR1S est\n", "PK said so\n", "<b>\n"] {
        let path = folder.path().join("a.txt");
        fs::write(&path, text).expect("a file");
        assert_eq!(rows(&path).expect("rows").len(), 1, "{text}");
    }
}

fn names(kind: &str, path: &Path) -> Result<Vec<String>> {
    let source = serde_json::json!({ "kind": kind, "path": path });
    crate::column_names(&serde_json::from_value(source).expect("a source"), Path::new(""))
}

#[test]
fn names_of_columns_are_read_whatever_the_packing_and_no_value_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = "{\"id\": 1, \"a.b\": {\"c\": \"secret\"}}\n{\"body\": \"secret\", \"id\": 2}\n";
    let array = format!("[{}]", lines.trim_end().replace('\n', ","));
    for (kind, content, expected) in [
        ("jsonl", lines, ["id", "a.b", "body"]),
        ("jsonl", &array, ["id", "a.b", "body"]),
        ("csv", "\u{feff}id,\"a,b\",body\nsecret\n", ["id", "a,b", "body"]),
    ] {
        let name = format!("t.{kind}");
        let packed = [
            (name.clone(), content.as_bytes().to_vec()),
            (format!("{name}.gz"), gzip(content.as_bytes())),
            (format!("{name}.zst"), zstd(content.as_bytes())),
            (format!("{name}.zip"), zip(&[(&name, content.as_bytes())])),
        ];
        for (name, bytes) in packed {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("a file");
            assert_eq!(names(kind, &path).expect("names"), expected, "{}", path.display());
        }
    }
}

#[test]
fn names_of_columns_are_bounded_and_faults_name_no_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.jsonl");
    let many: Vec<String> = (0..50_000).map(|field| format!("\"f{field}\": 1")).collect();
    fs::write(&path, format!("{{{}}}\n", many.join(","))).expect("a file");
    assert_eq!(names("jsonl", &path).expect("names").len(), 1000);
    for (kind, content, part) in [
        (
            "jsonl",
            "{\"secret\": \"secret\", }\n",
            "line 1: \"line\": expected a JSON object",
        ),
        ("jsonl", "\"secret\"\n", "expected a JSON object"),
        ("jsonl", "", "JSON objects"),
        ("csv", "", "header line"),
        ("parquet", "secret", "Parquet"),
        ("synthetic", "", "data.source.kind"),
    ] {
        fs::write(&path, content).expect("a file");
        let source = match kind {
            "synthetic" => serde_json::json!({ "kind": kind }),
            _ => serde_json::json!({ "kind": kind, "path": path }),
        };
        let source = serde_json::from_value(source).expect("a source");
        let error = crate::column_names(&source, Path::new(""))
            .expect_err("an error")
            .to_string();
        assert!(error.contains(part) && !error.contains("secret"), "{error}");
    }
}

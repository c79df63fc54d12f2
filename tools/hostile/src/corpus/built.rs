//! Cases made by code.

mod weights;

use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

use super::Case;
use crate::kinds::Kind;
use crate::world::World;
use weights::{GPT2, LLAMA, PEFT, changes, described, index, safetensors};

pub(super) fn cases(world: &World, kind: Kind) -> Result<Vec<Case>> {
    let honest = kind.honest_bytes(world, kind.honest[0])?;
    match kind.name {
        "parquet" => parquet(),
        "tokenizer" | "run-tokenizer" => tokenizers(&honest),
        "config" | "used-config" => {
            let place = if kind.name == "config" {
                "runs/sampled"
            } else {
                "runs/adapters"
            };
            let text = String::from_utf8(kind.honest_bytes(world, &format!("{place}/config.toml"))?)?;
            configurations(&text, &place.replace('/', "~"))
        }
        "safetensors" => {
            let mut found = safetensors(&honest)?;
            let adapted = kind.honest_bytes(world, "adapted/model.safetensors")?;
            found.push(refused(
                "context-of-gigabytes@adapted~model.safetensors",
                described(&adapted)?,
            ));
            Ok(found)
        }
        "gpt2" | "run-model" | "checkpoint" => safetensors(&honest),
        "gpt2-config" => changes(&honest, &GPT2),
        "huggingface-config" => changes(&honest, &LLAMA),
        "huggingface-shard" | "peft-tensors" => safetensors(&honest),
        "peft-config" => changes(&honest, &PEFT),
        "huggingface-index" => index(&honest),
        "privacy" => privacy(&kind.honest_bytes(world, "runs/correlated/privacy.json")?),
        "ledger" => lines(&honest),
        "metrics" => {
            let mut found = lines(&honest)?;
            found.push(any("sums-beyond-64-bits", endless(&honest)?));
            Ok(found)
        }
        "manifest"
        | "mechanism"
        | "run-vocabulary-record"
        | "run-initial-model"
        | "vocabulary-record"
        | "grouped" => documents(&honest),
        "vocabulary" | "run-vocabulary" => Ok(words()),
        "jsonl" => rows(&honest),
        "csv" => Ok(separated()),
        _ => Ok(Vec::new()),
    }
}

fn refused(name: &str, bytes: impl Into<Vec<u8>>) -> Case {
    Case {
        name: name.to_owned(),
        refused: true,
        bytes: bytes.into(),
    }
}

fn any(name: &str, bytes: impl Into<Vec<u8>>) -> Case {
    Case {
        refused: false,
        ..refused(name, bytes)
    }
}

/// A table whose texts are one value of so many bytes, written once: a kilobyte of file, gigabytes when read.
fn parquet() -> Result<Vec<Case>> {
    let bomb = |bytes: usize, rows: usize, large: bool| -> Result<Vec<u8>> {
        let message = "message schema {
            required binary user_id (UTF8);
            required binary text (UTF8);
            required int64 timestamp;
            required binary split (UTF8);
        }";
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_page_size_limit(1 << 30)
            .set_statistics_enabled(parquet::file::properties::EnabledStatistics::None)
            .build();
        if large {
            let text = |name| Field::new(name, DataType::LargeUtf8, false);
            let time = Field::new("timestamp", DataType::Int64, false);
            let schema = Schema::new(vec![text("user_id"), text("text"), time, text("split")]);
            add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        }
        let mut file = Vec::new();
        let schema = Arc::new(parse_message_type(message)?);
        let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let texts = [vec![b'u'; 4], vec![b'a'; bytes], Vec::new(), b"train".to_vec()];
        for text in texts {
            let mut column = group.next_column()?.context("a column")?;
            match text.is_empty() {
                true => {
                    column
                        .typed::<Int64Type>()
                        .write_batch(&vec![0; rows], None, None)?;
                }
                false => {
                    let values = vec![ByteArray::from(text); rows];
                    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        writer.close()?;
        Ok(file)
    };
    Ok(vec![
        refused("dictionary-bomb", bomb(1 << 20, 8192, false)?),
        refused("dictionary-bomb-large-offsets", bomb(1 << 22, 8192, true)?),
        refused("dictionary-bomb-of-many-rows", bomb(1 << 12, 1 << 22, false)?),
        refused("one-value-of-300-megabytes", bomb(300 << 20, 1, false)?),
        any("honest-and-small", bomb(10, 100, false)?),
        refused("magic-only", "PAR1PAR1"),
        refused("footer-of-four-gigabytes", b"PAR1\xff\xff\xff\xffPAR1".to_vec()),
    ])
}

fn tokenizers(honest: &[u8]) -> Result<Vec<Case>> {
    let with = |change: &dyn Fn(&mut Value)| -> Result<Vec<u8>> {
        let mut tokenizer: Value = serde_json::from_slice(honest)?;
        change(&mut tokenizer);
        Ok(serde_json::to_vec(&tokenizer)?)
    };
    let normalizer = |normalizer: Value| with(&|file| file["normalizer"] = normalizer.clone());
    let precompiled = |map: &str| normalizer(json!({ "type": "Precompiled", "precompiled_charsmap": map }));
    let replace =
        |content: &str| json!({ "type": "Replace", "pattern": { "String": "a" }, "content": content });
    let doubling: Vec<Value> = vec![replace("aa"); 40];
    let regex = |pattern: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    Ok(vec![
        refused(
            "merge-longer-than-any-token",
            with(&|file| {
                file["model"]["vocab"] = json!({ "aaaa": 0, "bbbb": 1, "<bos>": 2, "<eos>": 3, "<unk>": 4 });
                file["model"]["merges"] = json!([["aaaa", "bbbb"]]);
            })?,
        ),
        refused(
            "merge-shorter-than-its-prefix",
            with(&|file| {
                file["model"]["vocab"] = json!({ "a": 0, "b": 1, "<bos>": 2, "<eos>": 3, "<unk>": 4 });
                file["model"]["merges"] = json!([["a", "b"]]);
                file["model"]["continuing_subword_prefix"] = json!("######");
            })?,
        ),
        refused(
            "merge-that-cuts-a-character",
            with(&|file| {
                file["model"]["vocab"] = json!({ "a": 0, "é": 1, "<bos>": 2, "<eos>": 3, "<unk>": 4 });
                file["model"]["merges"] = json!([["a", "é"]]);
                file["model"]["continuing_subword_prefix"] = json!("#");
            })?,
        ),
        refused("precompiled-map-too-short", precompiled("AAA=")?),
        refused("precompiled-map-of-eight-gigabytes", precompiled("/////wAAAAA=")?),
        refused(
            "precompiled-map-with-a-bad-trie",
            precompiled("BAAAAP////8AAAAA")?,
        ),
        refused(
            "pieces-of-length-zero",
            with(&|file| file["pre_tokenizer"] = json!({ "type": "FixedLength", "length": 0 }))?,
        ),
        refused(
            "forty-doublings",
            normalizer(json!({ "type": "Sequence", "normalizers": doubling }))?,
        ),
        refused(
            "prepend-of-twenty-megabytes",
            normalizer(json!({ "type": "Prepend", "prepend": "a".repeat(20_000_000) }))?,
        ),
        refused(
            "replacement-of-a-megabyte",
            normalizer(replace(&"b".repeat(1 << 20)))?,
        ),
        any(
            "backtracking",
            with(&|file| file["pre_tokenizer"] = regex("(a*)*(?=b)\\1$"))?,
        ),
        any(
            "padding-of-gigabytes",
            with(&|file| {
                file["padding"] = json!({
                    "strategy": { "Fixed": 1_u64 << 40 }, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>",
                });
            })?,
        ),
        any(
            "ids-at-the-end-of-their-range",
            with(&|file| {
                if let Some(vocab) = file["model"]["vocab"].as_object_mut() {
                    vocab.insert("last".to_owned(), json!(u32::MAX));
                }
            })?,
        ),
        refused("no-model", with(&|file| file["model"] = Value::Null)?),
        refused("deep", "[".repeat(100_000)),
    ])
}

fn configurations(honest: &str, place: &str) -> Result<Vec<Case>> {
    let with = |changes: &[(&str, Value)]| -> Result<Vec<u8>> {
        let mut table: Value = toml::from_str(honest)?;
        for (key, value) in changes {
            let (path, last) = key.rsplit_once('.').unwrap_or(("", key));
            let mut here = &mut table;
            for part in path.split('.').filter(|part| !part.is_empty()) {
                here = here.get_mut(part).with_context(|| format!("no {key}"))?;
            }
            here[last] = value.clone();
        }
        Ok(toml::to_string(&toml::Value::try_from(table)?)?.into_bytes())
    };
    let transformer = |layers: u64, width: u64, context: u64| json!({ "family": "transformer", "layers": layers, "width": width, "heads": 1, "context": context });
    let recurrent = |embed: u64, hidden: u64| json!({ "family": "dplm", "embed": embed, "hidden": hidden });
    let named = |name: &str| format!("{name}@{place}~config.toml");
    let cases = [
        ("half-a-billion-layers", json!(transformer(500_000_000, 64, 16))),
        (
            "layers-at-the-end-of-the-range",
            json!(transformer(i64::MAX as u64, 64, 16)),
        ),
        ("widths-that-overflow", json!(transformer(1, 1 << 62, 16))),
        ("context-of-a-billion", json!(transformer(1, 64, 1 << 40))),
        ("embeddings-of-gigabytes", json!(recurrent(400_000_000, 6))),
        ("products-that-overflow", json!(recurrent(1 << 40, 1 << 40))),
    ];
    let mut found = Vec::new();
    for (name, model) in cases {
        found.push(refused(&named(name), with(&[("model", model)])?));
    }
    for (name, source) in [
        (
            "a-population-of-everybody",
            json!({ "kind": "synthetic", "users": 8_000_000_000_000_u64, "words": 40 }),
        ),
        (
            "every-word",
            json!({ "kind": "synthetic", "users": 100, "words": 1_u64 << 40 }),
        ),
        (
            "many-topics",
            json!({ "kind": "synthetic", "users": 100, "words": 40, "topics": 1_u64 << 40 }),
        ),
        (
            "endless-sentences",
            json!({ "kind": "synthetic", "users": 100, "words": 40, "longest_sentence": 1_u64 << 40 }),
        ),
        (
            "endless-users",
            json!({ "kind": "synthetic", "users": 100, "words": 40, "median_sentences": 1e300, "max_sentences": 1_u64 << 60 }),
        ),
        ("a-device", json!({ "kind": "csv", "path": "/dev/zero" })),
        ("a-git-repository", json!({ "kind": "git", "path": "." })),
        (
            "another-folder",
            json!({ "kind": "csv", "path": "../../../../../../etc/passwd" }),
        ),
    ] {
        found.push(Case {
            // A plain `verify` does not open the corpus.
            refused: place.ends_with("adapters"),
            ..refused(&named(name), with(&[("data.source", source)])?)
        });
    }
    found.push(any(
        &named("name-with-escapes"),
        with(&[("name", json!("\u{1b}[2J\r\u{9b}8m\u{202e}"))])?,
    ));
    found.push(any(
        &named("rounds-without-end"),
        with(&[("rounds", json!(i64::MAX))])?,
    ));
    found.push(refused(&named("deep"), format!("a = {}", "[".repeat(100_000))));
    Ok(found)
}

/// JSON documents that none of our files may be.
fn documents(honest: &[u8]) -> Result<Vec<Case>> {
    let text = String::from_utf8(honest.to_vec())?;
    let half = (0..=text.len() / 2)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    Ok(vec![
        refused("empty", ""),
        refused("null", "null"),
        refused("empty-object", "{}"),
        refused("deep-list", "[".repeat(200_000)),
        refused("deep-objects", "{\"a\":".repeat(100_000)),
        refused("cut-in-half", &text.as_bytes()[..half]),
        refused("twice", format!("{text}{text}")),
        refused("other-bytes", [&[0xff, 0xfe][..], honest].concat()),
        refused(
            "escapes",
            "{\"\\u001b[2J\\r\\u009b8m\\u202e\": 1, \"b\": \"\x1b\"}",
        ),
    ])
}

fn privacy(correlated: &[u8]) -> Result<Vec<Case>> {
    let with = |change: &dyn Fn(&mut Value)| -> Result<Vec<u8>> {
        let mut report: Value = serde_json::from_slice(correlated)?;
        change(&mut report);
        Ok(serde_json::to_vec(&report)?)
    };
    let mut found = documents(correlated)?;
    let at = |name: &str| format!("{name}@runs~correlated~privacy.json");
    found.push(any(
        &at("no-rounds-apart"),
        with(&|report| report["planned"]["schema"]["min_sep"] = json!(0))?,
    ));
    found.push(any(
        &at("warning-with-escapes"),
        with(&|report| report["warnings"] = json!(["\u{1b}[2J\r\u{9b}8m\u{202e}\n\n\n\n"]))?,
    ));
    Ok(found)
}

fn lines(honest: &[u8]) -> Result<Vec<Case>> {
    let text = String::from_utf8(honest.to_vec())?;
    let (first, rest) = text.split_once('\n').context("lines")?;
    let mut record: Value = serde_json::from_str(first)?;
    for value in record.as_object_mut().context("an object")?.values_mut() {
        if value.is_string() && *value != "start" {
            *value = json!("\u{1b}[2J\u{1b}[H\r\u{9b}8m\u{202e}holds\n\n\n\n");
        }
    }
    Ok(vec![
        refused("empty", ""),
        any("escapes", format!("{record}\n{rest}")),
        refused("deep", format!("{}\n{rest}", "[".repeat(200_000))),
        refused(
            "one-line-of-ten-megabytes",
            format!("\"{}\"\n", "x".repeat(10_000_000)),
        ),
        refused("a-million-empty-lists", "[]\n".repeat(1_000_000)),
    ])
}

/// The records with every whole number in the place of the last.
fn endless(honest: &[u8]) -> Result<String> {
    fn change(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_u64() => *value = json!(u64::MAX),
            Value::Array(values) => values.iter_mut().for_each(change),
            Value::Object(map) => map.values_mut().for_each(change),
            _ => {}
        }
    }
    let mut text = String::new();
    for line in honest
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let mut record: Value = serde_json::from_slice(line)?;
        change(&mut record);
        text += &format!("{record}\n");
    }
    Ok(text)
}

fn words() -> Vec<Case> {
    vec![
        refused("empty", ""),
        refused("twice", "one\ntwo\none\n"),
        refused("reserved", "one\n<unk>\n"),
        refused("other-bytes", b"one\n\xff\xfe\n".to_vec()),
        refused("capitals-with-escapes", "one\n\u{1b}[2JONE\u{9b}\n"),
        any("one-word-of-eight-megabytes", "x".repeat(8 << 20)),
        any(
            "a-million-words",
            (0..1_000_000)
                .map(|word| format!("w{word}\n"))
                .collect::<String>(),
        ),
    ]
}

fn rows(honest: &[u8]) -> Result<Vec<Case>> {
    let text = String::from_utf8(honest.to_vec())?;
    let first = text.lines().next().context("a row")?;
    let row = |change: &dyn Fn(&mut Value)| -> Result<String> {
        let mut row: Value = serde_json::from_str(first)?;
        change(&mut row);
        Ok(format!("{row}\n"))
    };
    Ok(vec![
        refused("empty", ""),
        refused("deep", format!("{}\n", "[".repeat(1_000_000))),
        refused(
            "time-with-escapes",
            row(&|row| row["at"] = json!("\u{1b}[2J\r\u{9b}8m\u{202e}"))?,
        ),
        refused(
            "split-with-escapes",
            row(&|row| row["split"] = json!("\u{1b}[2J"))?,
        ),
        refused("time-beyond-time", row(&|row| row["at"] = json!(1e300))?),
        refused("user-without-name", row(&|row| row["user_id"] = json!(""))?),
        any(
            "text-of-sixty-megabytes",
            row(&|row| row["text"] = "word ".repeat(12_000_000).into())?,
        ),
        any("no-line-feed", "x".repeat(100_000_000)),
    ])
}

fn separated() -> Vec<Case> {
    let header = "user_id,text,at,split\n";
    vec![
        refused("empty", ""),
        refused("header-only", header),
        refused(
            "time-with-escapes",
            format!("{header}u,t,\"\u{1b}[2J\r\u{9b}8m\u{202e}\n\n\n\n\",train\n"),
        ),
        refused("other-columns", "\u{1b}[2J,\u{202e}\nu,t\n"),
        refused(
            "quote-without-end",
            format!("{header}u,\"{}", "x\n".repeat(1_000_000)),
        ),
        refused("a-million-columns", format!("{}\n", "c,".repeat(1_000_000))),
        refused(
            "other-bytes",
            [header.as_bytes(), b"u,\xff\xfe,2024-01-01,train\n"].concat(),
        ),
        any(
            "text-of-sixty-megabytes",
            format!("{header}u,{},2024-01-01,train\n", "word ".repeat(12_000_000)),
        ),
    ]
}

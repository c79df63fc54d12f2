//! The files of a folder as leaves, and every change of each.

use serde_json::{Map, Value, json};

#[path = "../../../../run/tests/it/forger/leaves.rs"]
mod leaves;

/// A file with one leaf changed.
pub(crate) struct Forged {
    /// The file.
    pub(crate) file: String,
    /// The leaf, with a line before it where the file has lines.
    pub(crate) leaf: String,
    /// The kind of the change.
    pub(crate) what: String,
    /// The bytes of the changed file; `None` for a file that is gone.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Every change of every leaf of a file, by the format that its name says. Values in bytes have no leaves.
pub(crate) fn forged(file: &str, bytes: &[u8]) -> Vec<Forged> {
    let text = || std::str::from_utf8(bytes).expect("UTF-8");
    let changed: Vec<(String, String, Vec<u8>)> = match file.rsplit_once('.').map_or("", |(_, ending)| ending)
    {
        "json" => of_json(&serde_json::from_slice(bytes).expect("JSON")),
        "jsonl" => of_lines(text()),
        "toml" => of_toml(text()),
        "md" => of_markdown(text()),
        "safetensors" => of_tensors(bytes),
        _ => Vec::new(),
    };
    let of_leaves = changed
        .into_iter()
        .map(|(leaf, what, bytes)| (leaf, what, Some(bytes)));
    let removed = (String::new(), "the file is gone".to_owned(), None);
    of_leaves
        .chain([removed])
        .map(|(leaf, what, bytes)| Forged {
            file: file.to_owned(),
            leaf,
            what,
            bytes,
        })
        .collect()
}

/// Places of a list that are changed: the first ones and the last one. The places between them are of the same kind.
const PLACES: usize = 2;

/// The changes of a value, with the leaf and the kind of each.
fn of_value(value: &Value) -> impl Iterator<Item = (String, String, Value)> {
    let changes = leaves::changes(value).into_iter();
    let changes = changes.filter(|change| is_walked(value, &change.path));
    changes.map(|change| {
        let leaf = match change.what.as_str() {
            "an unknown key" => format!("{}.forged", change.path),
            "a key removed" => format!("{}.{}", change.path, change.key),
            _ => change.path,
        };
        (leaf, change.what, change.value)
    })
}

/// `true` for a leaf that is at the start or the end of each list that it is in.
fn is_walked(value: &Value, path: &str) -> bool {
    path.match_indices('[').all(|(start, _)| {
        let Some(Ok(place)) = path[start + 1..].split(']').next().map(str::parse::<usize>) else {
            return true;
        };
        let pointer = path[..start].replace(['.', '['], "/").replace(']', "");
        let list = value.pointer(&pointer).and_then(Value::as_array);
        list.is_none_or(|list| place < PLACES || place + 1 == list.len())
    })
}

fn of_json(value: &Value) -> Vec<(String, String, Vec<u8>)> {
    of_value(value)
        .map(|(leaf, what, value)| (leaf, what, value.to_string().into_bytes()))
        .collect()
}

fn of_lines(text: &str) -> Vec<(String, String, Vec<u8>)> {
    let lines: Vec<&str> = text.lines().collect();
    let with = |number: usize, line: &str| {
        let mut lines = lines.clone();
        lines[number] = line;
        (lines.join("\n") + "\n").into_bytes()
    };
    let mut changed = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let value: Value = serde_json::from_str(line).expect("JSON");
        let kind = value["kind"]
            .as_str()
            .map_or(String::new(), |kind| format!("{kind} "));
        for (leaf, what, value) in of_value(&value) {
            let place = format!("{kind}{number}{leaf}");
            changed.push((place, what, with(number, &value.to_string())));
        }
        let without = (lines.iter().enumerate())
            .filter(|(other, _)| *other != number)
            .map(|(_, line)| format!("{line}\n"));
        let without: String = without.collect();
        changed.push((
            format!("{kind}{number}"),
            "a line removed".to_owned(),
            without.into_bytes(),
        ));
    }
    changed
}

fn of_toml(text: &str) -> Vec<(String, String, Vec<u8>)> {
    let value: Value = toml::from_str(text).expect("TOML");
    of_value(&value)
        .filter_map(|(leaf, what, value)| {
            // TOML has no null, and the empty table of a value that is one says nothing new.
            Some((leaf, what, toml::to_string(&value).ok()?.into_bytes()))
        })
        .collect()
}

fn of_markdown(text: &str) -> Vec<(String, String, Vec<u8>)> {
    let lines: Vec<&str> = text.split('\n').collect();
    let joined = |lines: Vec<&str>| lines.join("\n").into_bytes();
    let mut changed = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let place = |what: &str, lines: Vec<&str>| (format!("{number}"), what.to_owned(), joined(lines));
        let (before, after) = (&lines[..number], &lines[number + 1..]);
        changed.push(place("a line removed", [before, after].concat()));
        changed.push(place("another line", [before, &["All is well."], after].concat()));
        changed.push(place(
            "a line more",
            [before, &[line, "All is well."], after].concat(),
        ));
        if let Some(shorter) = without_last_sentence(line) {
            changed.push(place("a sentence removed", [before, &[shorter], after].concat()));
        }
        if let Some(heading) = line.strip_prefix("## ") {
            let length = after.iter().position(|line| line.starts_with("## "));
            let rest = &after[length.unwrap_or(after.len())..];
            let without = String::from_utf8(joined([before, rest].concat())).expect("UTF-8");
            let section = format!("section {heading}");
            changed.push((
                section.clone(),
                "a section removed".to_owned(),
                without.clone().into_bytes(),
            ));
            // Pages of earlier versions had neither a checklist nor the sentence about it.
            let what = "a section removed, and the last sentence".to_owned();
            if let Some(shorter) = without_last_sentence(without.trim_end()) {
                changed.push((section, what, format!("{shorter}\n").into_bytes()));
            }
        }
    }
    changed
}

/// A text of several sentences without the last one.
fn without_last_sentence(text: &str) -> Option<&str> {
    let sentences = text.rsplit_once(". ")?;
    Some(&text[..=sentences.0.len()])
}

/// The header of tensors, and the documents that it holds as text.
fn of_tensors(bytes: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    let (header, values) = header_of(bytes);
    let with = |header: &Value| {
        let mut text = header.to_string();
        text += &" ".repeat((8 - text.len() % 8) % 8);
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), values].concat()
    };
    let mut changed: Vec<_> = of_value(&header)
        .map(|(leaf, what, header)| (leaf, what, with(&header)))
        .collect();
    let said: Map<String, Value> = header["__metadata__"].as_object().cloned().unwrap_or_default();
    let mut claims = said.clone();
    claims.insert("guarantee".to_owned(), json!("epsilon 0.01, certified"));
    let mut foreign = header.clone();
    foreign["__metadata__"] = claims.into();
    changed.push((
        ".__metadata__.guarantee".to_owned(),
        "a foreign claim".to_owned(),
        with(&foreign),
    ));
    for (key, text) in &said {
        let Some(Ok(document)) = text.as_str().map(serde_json::from_str::<Value>) else {
            continue;
        };
        for (leaf, what, document) in of_value(&document) {
            let mut header = header.clone();
            header["__metadata__"][key] = document.to_string().into();
            changed.push((format!(".__metadata__.{key}{leaf}"), what, with(&header)));
        }
    }
    changed
}

/// The header of a file of tensors, and the bytes after it.
fn header_of(bytes: &[u8]) -> (Value, &[u8]) {
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
    let (header, values) = rest.split_at(length);
    (serde_json::from_slice(header).expect("JSON"), values)
}

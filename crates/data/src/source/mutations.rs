//! Mutations of honest files. Each ends in an error, or in rows whose texts name their users, unless an independent strict reader gives
//! the same rows.
//!
//! `lab/peers/readers` compares more mutations with pandas, polars and the readers of Python.

use serde_json::{Map, Value};

use super::coded::Coded;
use super::{csv, json};
use crate::columns::{Columns, Keys};
use crate::random::Stream;

type Found = Vec<(String, String)>;

const COLUMNS: Columns<'static> = Columns {
    user: Some("user_id"),
    text: "text",
    time: None,
    split: None,
    time_unit: None,
    keys: Keys::SOURCE,
};

/// The rows of a text, by the reader of its name's format; `None` where it refuses.
fn rows(name: &str, bytes: Vec<u8>) -> Option<Found> {
    let mut found = Vec::new();
    let mut seen = json::Seen::default();
    let content = Coded::of_bytes(name, bytes).ok()?;
    let mut take = |rows: &crate::rows::Rows, _: Option<u64>| {
        let row = |row| (rows.users.get(row).to_owned(), rows.texts.get(row).to_owned());
        found.extend((0..rows.len()).map(row));
        Ok(())
    };
    let read = match name.rsplit_once('.') {
        Some((_, "json" | "jsonl")) => json::read(content, COLUMNS, None, &mut seen, &mut take),
        _ => csv::read(content, COLUMNS, csv::Format::default(), &mut take),
    };
    read.ok()?;
    seen.check(name.as_ref(), COLUMNS, false).ok()?;
    Some(found)
}

/// A strict reader of RFC 4180, byte by byte, that shares nothing with the one that is tested.
fn strict_table(text: &[u8], separator: u8) -> Option<Found> {
    #[derive(PartialEq)]
    enum At {
        Start,
        Letters,
        Quoted,
        Closed,
    }
    let (mut lines, mut line, mut field) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = At::Start;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if at == At::Quoted {
            match byte {
                b'"' => at = At::Closed,
                other => field.push(other),
            }
            continue;
        }
        match byte {
            b'"' if at == At::Start => at = At::Quoted,
            b'"' if at == At::Closed => {
                field.push(b'"');
                at = At::Quoted;
            }
            b'\n' | b'\r' => {
                if byte == b'\r' && bytes.peek() == Some(&b'\n') {
                    bytes.next();
                }
                // A line without a byte is no record.
                if at != At::Start || !line.is_empty() {
                    line.push(std::mem::take(&mut field));
                    lines.push(std::mem::take(&mut line));
                }
                at = At::Start;
            }
            _ if byte == separator => {
                line.push(std::mem::take(&mut field));
                at = At::Start;
            }
            _ if at == At::Closed => return None,
            other => {
                field.push(other);
                at = At::Letters;
            }
        }
    }
    if at == At::Quoted {
        return None;
    }
    if at != At::Start || !line.is_empty() {
        line.push(field);
        lines.push(line);
    }
    let (header, body) = lines.split_first()?;
    let place = |name: &[u8]| header.iter().position(|field| field == name);
    let (user, text) = (place(b"user_id")?, place(b"text")?);
    let value = |line: &[Vec<u8>], place: usize| String::from_utf8(line[place].clone()).ok();
    let row = |line: &Vec<Vec<u8>>| {
        let row = (line.len() == header.len()).then(|| Some((value(line, user)?, value(line, text)?)));
        row.flatten().filter(|(user, _)| !user.is_empty())
    };
    body.iter().map(row).collect()
}

fn strict_object(object: &Map<String, Value>) -> Option<(String, String)> {
    let user = match object.get("user_id")? {
        Value::String(user) if !user.is_empty() => user.clone(),
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        _ => return None,
    };
    match object.get("text") {
        Some(Value::String(text)) => Some((user, text.clone())),
        Some(Value::Null) | None => Some((user, String::new())),
        Some(_) => None,
    }
}

fn strict_lines(text: &[u8]) -> Option<Found> {
    let lines = text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty());
    lines
        .map(|line| strict_object(&serde_json::from_slice(line).ok()?))
        .collect()
}

fn strict_array(text: &[u8]) -> Option<Found> {
    let objects: Vec<Map<String, Value>> = serde_json::from_slice(text).ok()?;
    objects.iter().map(strict_object).collect()
}

/// Users and texts, which begin with the name of their user.
fn honest() -> Found {
    let texts = [
        "says hello to everybody",
        "is 5\" tall, and says \"so\", twice",
        "has two\nlines: of text",
        "likes commas,,, tabs\tand more",
        "has a 🙂 and counts [1, {2: 3}]",
    ];
    (0..15)
        .map(|row| (format!("u{}", row * 5 % 7), row))
        .map(|(user, row)| {
            let text = format!("{user} {} {row}", texts[row % texts.len()]);
            (user, text)
        })
        .collect()
}

fn table(separator: char) -> Vec<u8> {
    let quoted = |text: &str| match text.contains(['"', '\n', separator]) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let row = |(user, text): &(String, String)| format!("{user}{separator}{}{separator}1\n", quoted(text));
    let body: String = honest().iter().map(row).collect();
    format!("user_id{separator}text{separator}n\n{body}").into_bytes()
}

fn objects(between: &str) -> String {
    // ASCII letters alone, so that a mutation may cut an emoji in two.
    let object = |(user, text): &(String, String)| {
        let object = serde_json::json!({ "n": [1, { "user_id": "no" }], "text": text, "user_id": user });
        object.to_string().replace('🙂', "\\ud83d\\ude42")
    };
    honest().iter().map(object).collect::<Vec<_>>().join(between)
}

fn mutant(honest: &[u8], marks: &[u8], moves: bool, random: &mut Stream) -> Vec<u8> {
    let mut bytes = honest.to_vec();
    let places: Vec<usize> = (0..bytes.len())
        .filter(|&place| marks.contains(&bytes[place]))
        .collect();
    let marked = places[random.below(places.len())];
    if moves {
        let mark = bytes.remove(marked);
        let place = random.below(bytes.len() + 1);
        bytes.insert(place, mark);
        return bytes;
    }
    let anywhere = random.below(bytes.len());
    let place = if random.below(2) == 0 { marked } else { anywhere };
    match random.below(6) {
        0 => bytes[place] ^= 1 << random.below(8),
        1 => drop(bytes.remove(place)),
        2 => bytes.insert(place, bytes[place]),
        3 => bytes.swap(marked, anywhere),
        4 => bytes.insert(place, marks[random.below(marks.len())]),
        _ => bytes.truncate(place),
    }
    bytes
}

#[test]
#[ignore = "slow"]
fn no_mutation_of_a_text_gives_a_row_to_another_user() {
    type Strict = fn(&[u8]) -> Option<Found>;
    let cases: [(&str, Vec<u8>, &[u8], Strict); 4] = [
        ("a.csv", table(','), b"\",\n", |text| strict_table(text, b',')),
        ("a.tsv", table('\t'), b"\"\t\n", |text| strict_table(text, b'\t')),
        ("a.jsonl", objects("\n\n").into_bytes(), b"\",:\n", strict_lines),
        (
            "a.json",
            format!("[{}]", objects(" ,\n")).into_bytes(),
            b"\",:\n",
            strict_array,
        ),
    ];
    for (name, file, marks, strict) in cases {
        assert_eq!(rows(name, file.clone()), Some(honest()), "{name}");
        assert_eq!(strict(&file), Some(honest()), "{name}");
        let mut random = Stream::new("mutations", 1, 0);
        let (mut both, mut moved) = (0, 0);
        for number in 0..6000 {
            let moves = number % 2 == 0;
            let bytes = mutant(&file, marks, moves, &mut random);
            let Some(found) = rows(name, bytes.clone()) else {
                continue;
            };
            let judged = strict(&bytes);
            // A row without a text gives nothing to anybody.
            let names_user =
                |(user, text): &(String, String)| text.is_empty() || text.starts_with(&format!("{user} "));
            let own = found.iter().all(names_user);
            assert!(
                own || judged.as_ref() == Some(&found),
                "{name}: {}\n{found:?}\n{judged:?}",
                String::from_utf8_lossy(&bytes)
            );
            if let Some(judged) = judged {
                assert_eq!(found, judged, "{name}: {}", String::from_utf8_lossy(&bytes));
                both += 1;
                moved += usize::from(moves);
            }
        }
        assert!(
            both >= 600 && moved >= 100,
            "{name}: {both} accepted by both, {moved} of them by a moved mark"
        );
    }
}

//! Mutations of documents: one leaf or branch becomes another, and the rest stays readable.

use serde_json::{Map, Value, json};

use super::Syntax;
use crate::random::Random;

/// Stands where text is put that no value of JSON could be; replaced after writing.
const RAW: &str = "\u{1}raw\u{1}";

/// The document with one change; `None` where it cannot be read, or the change cannot be written.
pub(super) fn edit(syntax: Syntax, bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    match syntax {
        Syntax::Bytes => None,
        Syntax::Json => json_edit(bytes, random),
        Syntax::JsonLines => lines_edit(bytes, random),
        Syntax::Toml => toml_edit(bytes, random),
        Syntax::Safetensors => safetensors_edit(bytes, random),
    }
}

fn json_edit(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(bytes).ok()?;
    let raw = change(&mut document, random);
    let text = serde_json::to_string(&document).ok()?;
    // In JSON the marker's controls are escaped.
    let marker = serde_json::to_string(RAW).ok()?;
    Some(
        match raw {
            Some(raw) => text.replacen(&marker, &raw, 1),
            None => text,
        }
        .into_bytes(),
    )
}

fn lines_edit(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let place = random.below(lines.len());
    match random.below(12) {
        0 => {
            lines.remove(place);
        }
        1 => lines.insert(place, lines[place].clone()),
        2 => {
            let other = random.below(lines.len());
            lines.swap(place, other);
        }
        3 => lines.insert(place, Vec::new()),
        _ => lines[place] = json_edit(&lines[place], random)?,
    }
    Some(lines.join(&b'\n'))
}

fn toml_edit(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut document: Value = toml::from_str(std::str::from_utf8(bytes).ok()?).ok()?;
    let raw = change(&mut document, random);
    let text = toml::to_string(&toml::Value::try_from(&document).ok()?).ok()?;
    let Some(raw) = raw else {
        return Some(text.into_bytes());
    };
    let at = text.find("\"\\u0001raw\\u0001\"")?;
    let marker = "\"\\u0001raw\\u0001\"".len();
    Some([&text[..at], &raw, &text[at + marker..]].concat().into_bytes())
}

fn safetensors_edit(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header = rest.get(..length)?;
    let data = &rest[length..];
    let mut changed = json_edit(header, random)?;
    // Readers ask for no alignment, writers keep one.
    while changed.len() % 8 != 0 {
        changed.push(b' ');
    }
    let mut file = (changed.len() as u64).to_le_bytes().to_vec();
    file.extend(changed);
    file.extend(data);
    Some(file)
}

/// One step down a document.
#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Place(usize),
}

fn paths(value: &Value, here: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    found.push(here.clone());
    match value {
        Value::Object(map) => {
            for (key, below) in map {
                here.push(Step::Key(key.clone()));
                paths(below, here, found);
                here.pop();
            }
        }
        Value::Array(values) => {
            for (place, below) in values.iter().enumerate() {
                here.push(Step::Place(place));
                paths(below, here, found);
                here.pop();
            }
        }
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key),
        Step::Place(place) => value.get_mut(place),
    })
}

/// Changes one node, in place; what comes back is to be written where [`RAW`] stands.
fn change(document: &mut Value, random: &mut Random) -> Option<String> {
    let mut found = Vec::new();
    paths(document, &mut Vec::new(), &mut found);
    // The root last of all: replacing it leaves nothing of the document.
    let place = match random.one_in(60) {
        true => 0,
        false => random.below(found.len()),
    };
    let path = found[place].clone();
    let donor = found[random.below(found.len())].clone();
    let donor = at(document, &donor).map(|value| value.clone())?;
    // Keys and items go or come by way of what holds them.
    if let Some((last, above)) = path.split_last()
        && random.one_in(6)
    {
        let above = at(document, above)?;
        match (last, above) {
            (Step::Key(key), Value::Object(map)) => change_key(map, key, &donor, random),
            (Step::Place(place), Value::Array(values)) => change_item(values, *place, random),
            _ => {}
        }
        return None;
    }
    let node = at(document, &path)?;
    // Text that holds a document of its own, as headers of models do.
    if let Value::String(text) = node
        && text.starts_with('{')
        && let Ok(mut inner) = serde_json::from_str::<Value>(text)
        && !random.one_in(4)
    {
        let raw = change(&mut inner, random);
        let written = inner.to_string();
        let marker = serde_json::to_string(RAW).ok()?;
        *text = match raw {
            Some(raw) => written.replacen(&marker, &raw, 1),
            None => written,
        };
        return None;
    }
    if random.one_in(20) {
        *node = RAW.into();
        return Some(raw(random));
    }
    *node = replacement(node, donor, random);
    None
}

fn change_key(map: &mut Map<String, Value>, key: &str, donor: &Value, random: &mut Random) {
    match random.below(4) {
        0 | 1 => {
            map.remove(key);
        }
        2 => {
            let value = map.remove(key).unwrap_or_default();
            map.insert(text(key, random), value);
        }
        _ => {
            map.insert(text("unknown", random), donor.clone());
        }
    }
}

fn change_item(values: &mut Vec<Value>, place: usize, random: &mut Random) {
    match random.below(5) {
        0 => {
            values.remove(place);
        }
        1 => values.truncate(place),
        2 => values.reverse(),
        3 => {
            let item = values[place].clone();
            values.insert(place, item);
        }
        _ => {
            let item = values[place].clone();
            let times = *random.choose(&[2, 100, 10_000]);
            // Many copies of something large would only be a large file.
            if item.to_string().len() < 100 {
                values.extend(std::iter::repeat_n(item, times));
            }
        }
    }
}

/// Text that is no value.
fn raw(random: &mut Random) -> String {
    let deep = |open: &str, times: usize| open.repeat(times);
    match random.below(9) {
        0 => "1e999".to_owned(),
        1 => "-1e999".to_owned(),
        2 => "nan".to_owned(),
        3 => "inf".to_owned(),
        4 => deep("[", 100_000),
        5 => deep("{\"a\":", 20_000),
        6 => format!("{}{}", deep("[", 100), deep("]", 100)),
        7 => "99999999999999999999999999999999999999999".to_owned(),
        _ => "\"\x1b[2J".to_owned(),
    }
}

fn replacement(old: &Value, donor: Value, random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 => json!([]),
        3 => json!({}),
        4 => donor,
        5 => Value::Array(vec![old.clone(); 2]),
        6 => json!({ "kind": old }),
        7 => text(old.as_str().unwrap_or("x"), random).into(),
        8 => number(&json!(1), random),
        _ => match old {
            Value::Number(_) => number(old, random),
            Value::String(old) => text(old, random).into(),
            Value::Bool(old) => json!(!old),
            Value::Array(values) if values.len() < 1000 => {
                let mut values = values.clone();
                values.extend(values.clone());
                values.into()
            }
            _ => number(old, random),
        },
    }
}

fn number(old: &Value, random: &mut Random) -> Value {
    let value = old.as_f64().unwrap_or(1.0);
    match random.below(24) {
        0 => json!(0),
        1 => json!(-1),
        2 => json!(1),
        3 => json!(2),
        4 => json!(u32::MAX),
        5 => json!(i32::MAX),
        6 => json!(i64::MAX),
        7 => json!(i64::MIN),
        8 => json!(u64::MAX),
        9 => json!(1_u64 << 53),
        10 => json!(1e308),
        11 => json!(-1e308),
        12 => json!(1e-308),
        13 => json!(5e-324),
        14 => json!(0.5),
        15 => json!(1.0 + f64::EPSILON),
        16 => json!(-value),
        17 => json!(value * 2.0),
        18 => json!(value * 1e9),
        19 => json!(value / 1e9),
        20 => old.as_u64().map_or(json!(1e18), |old| json!(old.wrapping_add(1))),
        21 => old
            .as_u64()
            .map_or(json!(1e-18), |old| json!(old.wrapping_sub(1))),
        22 => old
            .as_u64()
            .map_or(json!(1_000_000_007), |old| json!(old.saturating_mul(1_000_003))),
        _ => json!(10_u64.pow(random.below(19) as u32)),
    }
}

fn text(old: &str, random: &mut Random) -> String {
    match random.below(18) {
        0 => String::new(),
        1 => "\x1b[2J\x1b[H".to_owned(),
        2 => format!("{old}\r\u{9b}8m"),
        3 => format!("{old}\u{202e}\u{2066}"),
        4 => format!("{old}\nholds: everything\n\n\n\n"),
        5 => "x".repeat(100_000),
        6 => "\u{1b}".repeat(10_000),
        7 => "../../../../../../etc/passwd".to_owned(),
        8 => "/dev/zero".to_owned(),
        9 => ".".to_owned(),
        10 => "/".to_owned(),
        11 => format!("{old}\0"),
        12 => format!("{old}{old}"),
        13 => old.chars().rev().collect(),
        14 => old.to_uppercase(),
        15 => "👩‍👩‍👧‍👦 \u{feff}\u{200b}é".to_owned(),
        16 => "1e308".to_owned(),
        _ => old.chars().skip(1).collect(),
    }
}

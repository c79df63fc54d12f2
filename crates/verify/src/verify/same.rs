//! Comparisons of JSON values leaf by leaf, and of a text with the one that a run writes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value, json};

/// Relative tolerance of figures that were computed again, on a different machine or by a different order of sums: the eighth
/// digit of an epsilon at a delta of 1e-10 was seen to differ. A claim that is better by less than that promises nothing more.
const RECOMPUTED: f64 = 1e-7;

/// The figures that an accountant or a calibration computes.
const FROM_THE_ACCOUNTANT: [&str; 5] = [
    "epsilon",
    "rho",
    "sampler_delta",
    "sensitivity",
    "noise_multiplier",
];

/// Relative tolerance of all other numbers: the last digits of a power or a quotient.
const ROUNDED: f64 = 1e-9;

/// Max number of characters of a value that a problem shows.
const SHOWN: usize = 120;

/// The tolerance of numbers that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// Equal numbers: both were read.
    Exact,
    /// Numbers equal up to their last digits: one was computed again.
    Recomputed,
}

impl Precision {
    /// `true` if two numbers are the same figure, named by the last part of its path.
    pub(super) fn same(self, name: &str, expected: f64, got: f64) -> bool {
        let tolerance = match self {
            Self::Exact => 0.0,
            Self::Recomputed if FROM_THE_ACCOUNTANT.contains(&name) => RECOMPUTED,
            Self::Recomputed => ROUNDED,
        };
        // Written so that a NaN is another figure.
        expected == got || (expected - got).abs() <= tolerance * expected.abs()
    }

    fn same_numbers(self, name: &str, expected: &Number, got: &Number) -> bool {
        match (expected.as_i128(), got.as_i128(), expected.as_f64(), got.as_f64()) {
            (Some(expected), Some(got), ..) => expected == got,
            // What is counted is whole.
            (Some(_), None, Some(expected), Some(got)) => expected == got,
            (None, _, Some(expected), Some(got)) => self.same(name, expected, got),
            _ => false,
        }
    }
}

/// The leaves in which two values differ, with path, expected and actual value.
pub(super) fn differences(place: &str, expected: &Value, got: &Value, precision: Precision) -> Vec<String> {
    let mut found = Vec::new();
    let (expected, got) = (Some(expected), Some(got));
    compare(&mut found, &Path::new(place), expected, got, precision);
    found
}

/// The place of a leaf: the file, and after a comma the keys that lead to it.
struct Path {
    text: String,
    name: String,
    is_file: bool,
}

impl Path {
    fn new(place: &str) -> Self {
        Self {
            text: place.to_owned(),
            name: String::new(),
            is_file: true,
        }
    }

    fn key(&self, key: &str) -> Self {
        let separator = if self.is_file { ", " } else { "." };
        Self {
            text: format!("{}{separator}{key}", self.text),
            name: key.to_owned(),
            is_file: false,
        }
    }

    fn index(&self, index: usize) -> Self {
        Self {
            text: format!("{}[{index}]", self.text),
            name: self.name.clone(),
            is_file: false,
        }
    }
}

fn compare(
    found: &mut Vec<String>,
    path: &Path,
    expected: Option<&Value>,
    got: Option<&Value>,
    precision: Precision,
) {
    match (expected, got) {
        (Some(Value::Object(expected)), Some(Value::Object(got))) => {
            for (key, value) in expected {
                compare(found, &path.key(key), Some(value), got.get(key), precision);
            }
            for (key, value) in got.iter().filter(|(key, _)| !expected.contains_key(*key)) {
                compare(found, &path.key(key), None, Some(value), precision);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(got))) => {
            for index in 0..expected.len().max(got.len()) {
                let (expected, got) = (expected.get(index), got.get(index));
                compare(found, &path.index(index), expected, got, precision);
            }
        }
        (Some(Value::Number(expected)), Some(Value::Number(got)))
            if precision.same_numbers(&path.name, expected, got) => {}
        (Some(expected), Some(got)) if expected == got => {}
        (expected, got) => found.push(format!(
            "{}: expected {}, got {}",
            path.text,
            shown(expected),
            shown(got)
        )),
    }
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The value of a text, if the text holds exactly its keys: no others, none twice, none missing.
///
/// # Errors
/// The places where the text differs, named behind `place`.
pub(super) fn exactly<T: Serialize + DeserializeOwned>(place: &str, text: &[u8]) -> Result<T, Vec<String>> {
    let failed = |error: serde_json::Error| vec![format!("{place}: {error}")];
    let raw: Value = serde_json::from_slice(text).map_err(failed)?;
    // From the text: a value would have forgotten keys that stand there twice.
    let value: T = serde_json::from_slice(text).map_err(|error| match text.len() <= SEARCHED {
        true => vec![format!(
            "{place}, {}: {error}",
            culprits::<T>(&raw, &error.to_string())
        )],
        false => failed(error),
    })?;
    let written = serde_json::to_value(&value).map_err(failed)?;
    match differences(place, &written, &raw, Precision::Exact) {
        problems if problems.is_empty() => Ok(value),
        problems => Err(problems),
    }
}

/// Max bytes of a text that is searched for the leaf that cannot be understood.
const SEARCHED: usize = 1 << 14;

/// The leaves without whose values a text could be understood, by their paths; all of them, where no single one is to blame.
fn culprits<T: DeserializeOwned>(raw: &Value, error: &str) -> String {
    let plain = [
        json!(null),
        json!(1),
        json!(0),
        json!(0.5),
        json!(""),
        json!([]),
        json!(false),
        json!({}),
    ];
    let understood = |pointer: &str, leaf: &Value| {
        let mut changed = raw.clone();
        if let Some(place) = changed.pointer_mut(pointer) {
            *place = leaf.clone();
        }
        serde_json::from_value::<T>(changed)
    };
    let mut pointers = Vec::new();
    leaves(raw, String::new(), &mut pointers);
    let mends = |pointer: &&String| plain.iter().any(|leaf| understood(pointer, leaf).is_ok());
    let mut found: Vec<&String> = pointers.iter().filter(mends).collect();
    // A name that is not among those that there are. Values are understood in order: an unknown name behind the culprit
    // changes nothing.
    if found.is_empty() && (error.contains("variant") || error.contains("expected value")) {
        let unknown = |pointer: &&String| {
            understood(pointer, &"?".into())
                .is_err_and(|error| error.to_string().contains("unknown variant `?`"))
        };
        found.extend(pointers.iter().rfind(unknown));
    }
    if found.is_empty() {
        found.extend(&pointers);
    }
    let of_lists = |part: &&str| !part.is_empty() && part.parse::<usize>().is_err();
    let mut paths: Vec<String> = found
        .into_iter()
        .map(|pointer| pointer.split('/').filter(of_lists).collect::<Vec<_>>().join("."))
        .collect();
    paths.dedup();
    paths.join(" or ")
}

/// JSON pointers of all leaves and lists. No key of a run's files has a `~` or a `/`.
fn leaves(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                leaves(value, format!("{pointer}/{key}"), found);
            }
        }
        Value::Array(items) => {
            found.push(pointer.clone());
            for (place, value) in items.iter().enumerate() {
                leaves(value, format!("{pointer}/{place}"), found);
            }
        }
        _ => found.push(pointer),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Line {
        name: String,
        count: u64,
        epsilon: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extra: Option<f64>,
        none: Option<f64>,
        list: Vec<u64>,
    }

    const LINE: &str = r#"{"name":"a","count":3,"epsilon":1.735481113896157,"none":null,"list":[1,2]}"#;

    fn line() -> Value {
        serde_json::from_str(LINE).unwrap()
    }

    #[test]
    fn recomputed_figures_may_differ_in_their_last_digits_only() {
        let differs = |key: &str, value: Value| {
            let mut changed = line();
            changed[key] = value;
            !differences("f", &line(), &changed, Precision::Recomputed).is_empty()
        };
        let epsilon = 1.735_481_113_896_157;
        assert!(!differs("epsilon", json!(epsilon * (1.0 + 1e-13))));
        assert!(differs("epsilon", json!(epsilon * (1.0 - 1e-6))));
        assert!(differs("epsilon", json!(-epsilon)));
        assert!(differs("epsilon", json!(0)));
        assert!(differs("epsilon", json!(null)));
        assert!(differs("count", json!(4)));
        assert!(differs("count", json!(3.000_000_000_1)));
        assert!(!differs("count", json!(3.0)));
        assert!(differs("list", json!([1])));
        assert!(differs("list", json!([1, 2, 3])));
        let exact = differences("f", &line(), &line(), Precision::Exact);
        assert!(exact.is_empty());
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Kinds {
        One(Line),
    }

    #[test]
    fn an_unknown_kind_is_named() {
        for kind in ["two", "one "] {
            let text = LINE.replacen('{', &format!("{{\"kind\":\"{kind}\","), 1);
            let problems = exactly::<Kinds>("f", text.as_bytes()).unwrap_err();
            assert!(problems[0].contains("f, kind: unknown variant"), "{problems:?}");
        }
        let text = LINE.replacen('{', "{\"kind\":null,", 1);
        let problems = exactly::<Kinds>("f", text.as_bytes()).unwrap_err();
        assert!(problems[0].contains("f, kind: invalid type"), "{problems:?}");
    }

    #[test]
    fn a_text_that_says_more_less_or_something_twice_is_named() {
        let refused = |from: &str, to: &str, words: &str| {
            let text = LINE.replacen(from, to, 1);
            let problems = exactly::<Line>("f, line 1", text.as_bytes()).unwrap_err();
            assert!(problems[0].contains(words), "{problems:?}");
        };
        assert_eq!(exactly::<Line>("f", LINE.as_bytes()).unwrap().count, 3);
        refused(
            "\"name\"",
            "\"other\":1,\"name\"",
            "f, line 1, other: expected nothing, got 1",
        );
        refused(
            "\"name\"",
            "\"extra\":null,\"name\"",
            "f, line 1, extra: expected nothing, got null",
        );
        refused(
            ",\"none\":null",
            "",
            "f, line 1, none: expected null, got nothing",
        );
        refused("\"count\":3", "\"count\":\"3\"", "f, line 1, count: invalid type");
        refused("\"count\":3", "\"count\":null", "f, line 1, count: invalid type");
        refused("\"count\":3", "\"count\":-3", "f, line 1, count: invalid value");
        refused("[1,2]", "[1,\"2\"]", "f, line 1, list: invalid type");
        refused("[1,2]", "\"1\"", "f, line 1, list: invalid type");
        refused("\"count\":3,", "", "missing field `count`");
        refused("\"name\"", "\"count\":4,\"name\"", "duplicate field `count`");
        refused("}", "", "f, line 1: EOF");
    }
}

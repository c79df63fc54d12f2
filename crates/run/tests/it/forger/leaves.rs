//! Every way to change one leaf of a JSON value.

use serde_json::{Map, Number, Value, json};

/// One change of one leaf.
#[derive(Debug)]
pub(crate) struct Change {
    /// The place of the leaf, for messages.
    pub(crate) path: String,
    /// The key that the leaf belongs to, which a problem has to name.
    pub(crate) key: String,
    /// The kind of the change, for messages.
    pub(crate) what: String,
    /// The whole value, changed.
    pub(crate) value: Value,
}

/// Keys that lead to a value, and places in lists.
type Path = Vec<Step>;

#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Place(usize),
}

/// All changes of all leaves: other values, none, no leaf, unknown leaves beside them, shorter and longer lists.
pub(crate) fn changes(value: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    visit(value, &mut Vec::new(), &mut |path, leaf| match leaf {
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("forged".to_owned(), json!(1));
            changes.push(change(
                value,
                path,
                "an unknown key",
                Some(more.into()),
                Some("forged"),
            ));
            for key in fields.keys() {
                let mut less = fields.clone();
                less.remove(key);
                changes.push(change(value, path, "a key removed", Some(less.into()), Some(key)));
            }
        }
        Value::Array(items) => {
            let more: Vec<Value> = items
                .iter()
                .cloned()
                .chain([items.last().cloned().unwrap_or(json!(1))])
                .collect();
            changes.push(change(value, path, "longer", Some(more.into()), None));
            if let Some((_, less)) = items.split_last() {
                changes.push(change(value, path, "shorter", Some(less.to_vec().into()), None));
                changes.push(change(value, path, "empty", Some(json!([])), None));
            }
        }
        leaf => {
            for (what, other) in others(leaf) {
                changes.push(change(value, path, what, Some(other), None));
            }
        }
    });
    changes.retain(|change| !same(&change.value, value));
    changes
}

/// `true` if two values are equal as JSON: `0.0` is `0`.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

/// Other values that a leaf could have.
fn others(leaf: &Value) -> Vec<(&'static str, Value)> {
    let mut others = vec![("null", Value::Null)];
    match leaf {
        Value::Number(number) => {
            others.extend([
                ("zero", json!(0)),
                ("a text", json!(number.to_string())),
                ("huge", json!(1e308)),
            ]);
            if let Some(number) = number.as_u64() {
                others.extend([
                    ("one more", json!(number.saturating_add(1))),
                    ("one less", json!(number.saturating_sub(1))),
                    ("negative", json!(-(number as i64) - 1)),
                    ("2^63", json!(1_u64 << 63)),
                ]);
            } else if let Some(number) = number.as_f64() {
                others.extend([
                    ("1 % less", float(number * 0.99)),
                    ("1 % more", float(number * 1.01)),
                    ("a millionth less", float(number * (1.0 - 1e-6))),
                    ("negative", float(-number)),
                ]);
            }
        }
        Value::String(text) => {
            others.extend([
                ("empty", json!("")),
                ("longer", json!(format!("{text} "))),
                ("another", json!("All is well.")),
            ]);
            // A digest, a key or a pseudonym that is well formed, and that of something else.
            if text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                others.push(("a foreign one", json!("5c".repeat(text.len() / 2))));
            }
        }
        Value::Bool(value) => others.extend([("flipped", json!(!value)), ("a number", json!(1))]),
        _ => others.extend([("a number", json!(0.5)), ("a list", json!([]))]),
    }
    others
}

fn float(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

fn change(whole: &Value, path: &Path, what: &str, put: Option<Value>, key: Option<&str>) -> Change {
    let text: String = path
        .iter()
        .map(|step| match step {
            Step::Key(key) => format!(".{key}"),
            Step::Place(place) => format!("[{place}]"),
        })
        .collect();
    let own = path.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key.clone()),
        Step::Place(_) => None,
    });
    let mut value = whole.clone();
    let mut here = &mut value;
    for step in path {
        here = match step {
            Step::Key(key) => &mut here[key.as_str()],
            Step::Place(place) => &mut here[*place],
        };
    }
    *here = put.unwrap_or_default();
    Change {
        path: text,
        key: key.map(str::to_owned).or(own).unwrap_or_default(),
        what: what.to_owned(),
        value,
    }
}

fn visit(value: &Value, path: &mut Path, found: &mut impl FnMut(&Path, &Value)) {
    found(path, value);
    match value {
        Value::Object(fields) => fields_of(fields, path, found),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                path.push(Step::Place(place));
                visit(item, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

fn fields_of(fields: &Map<String, Value>, path: &mut Path, found: &mut impl FnMut(&Path, &Value)) {
    for (key, item) in fields {
        path.push(Step::Key(key.clone()));
        visit(item, path, found);
        path.pop();
    }
}

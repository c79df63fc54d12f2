//! The keys of a file, one after another, from its schema.

use serde_json::{Map, Value, json};

/// A place in the schema.
struct Place {
    /// The dotted key.
    key: String,
    /// The choices under which the key exists, such as `clip.kind = "flat"`.
    of: Option<String>,
    required: bool,
    default: Option<Value>,
    meaning: Option<String>,
}

/// All keys in the order of the types.
pub(crate) fn of(schema: &Value) -> Vec<Value> {
    let mut keys = Vec::new();
    let top = Place {
        key: String::new(),
        of: None,
        required: true,
        default: None,
        meaning: None,
    };
    walk(schema, schema, &top, &mut keys);
    merged(keys)
}

/// The keys, each with all choices under which it is the same.
fn merged(keys: Vec<Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for mut key in keys {
        let of = key.as_object_mut().and_then(|fields| fields.shift_remove("of"));
        let same = all.iter_mut().find(|held| {
            let held = held
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(name, _)| *name != "of");
            held.eq(key.as_object().into_iter().flatten())
        });
        let held = match same {
            Some(held) => held,
            None => {
                all.push(key);
                let Some(last) = all.last_mut() else { continue };
                last
            }
        };
        if let (Some(of), Some(fields)) = (of, held.as_object_mut()) {
            let choices = fields.entry("of").or_insert_with(|| json!([]));
            if let Some(choices) = choices.as_array_mut().filter(|choices| !choices.contains(&of)) {
                choices.push(of);
            }
        }
    }
    all
}

/// One key per line, so that a change is seen as one.
pub(crate) fn lines(lists: &Value) -> anyhow::Result<String> {
    let mut text = "{\n".to_owned();
    let lists = lists.as_object().into_iter().flatten();
    let lists: Vec<String> = lists
        .map(|(name, keys)| {
            let keys: Result<Vec<String>, _> = keys
                .as_array()
                .into_iter()
                .flatten()
                .map(serde_json::to_string)
                .collect();
            Ok(format!("\"{name}\": [\n{}\n]", keys?.join(",\n")))
        })
        .collect::<Result<_, serde_json::Error>>()?;
    text += &lists.join(",\n");
    Ok(text + "\n}\n")
}

/// The schema that a reference leads to, without the alternative of no value.
pub(crate) fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    loop {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let Some(to) = name
                .strip_prefix("#/$defs/")
                .and_then(|name| root.get("$defs")?.get(name))
            else {
                return schema;
            };
            schema = to;
        } else if let Some(some) = schema.get("anyOf").and_then(Value::as_array)
            && let [some, none] = some.as_slice()
            && none.get("type") == Some(&json!("null"))
        {
            schema = some;
        } else {
            return schema;
        }
    }
}

pub(crate) fn description(schema: &Value) -> Option<String> {
    schema
        .get("description")
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// The property that tells the alternatives of a table apart, with its value.
pub(crate) fn tag(variant: &Value) -> Option<(&str, &str)> {
    let properties = variant.get("properties")?.as_object()?;
    properties
        .iter()
        .find_map(|(name, schema)| Some((name.as_str(), schema.get("const")?.as_str()?)))
}

/// The words of a choice with their meanings; `None` where the schema is none.
pub(crate) fn choices(schema: &Value) -> Option<Vec<(String, String)>> {
    let plain = |values: &Vec<Value>| -> Option<Vec<(String, String)>> {
        values
            .iter()
            .map(|value| Some((value.as_str()?.to_owned(), String::new())))
            .collect()
    };
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return plain(values);
    }
    let variants = schema.get("oneOf")?.as_array()?;
    let mut all = Vec::new();
    for variant in variants {
        if let Some(value) = variant.get("const") {
            all.push((
                value.as_str()?.to_owned(),
                description(variant).unwrap_or_default(),
            ));
        } else {
            all.extend(plain(variant.get("enum")?.as_array()?)?);
        }
    }
    Some(all)
}

/// The type of a schema in JSON's words, without that of no value.
pub(crate) fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null")
            .unwrap_or_default(),
        _ => "",
    }
}

/// The type of a value in words.
pub(crate) fn words(root: &Value, schema: &Value) -> String {
    let schema = resolved(root, schema);
    if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
        let any: Vec<String> = any.iter().map(|schema| words(root, schema)).collect();
        return any.join(" or ");
    }
    let kind = kind(schema);
    match kind {
        _ if choices(schema).is_some() => "a choice".to_owned(),
        "integer" => "a whole number".to_owned(),
        "number" => "a number".to_owned(),
        "string" if schema.get("pattern").is_some() => "a length of time".to_owned(),
        "string" => "a text".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => {
            let items = schema
                .get("items")
                .map_or_else(|| "values".to_owned(), |items| words(root, items));
            let items = items.trim_start_matches("a ");
            format!("a list of {items}s")
        }
        _ => "a table".to_owned(),
    }
}

fn walk(root: &Value, schema: &Value, place: &Place, keys: &mut Vec<Value>) {
    let outer = schema;
    let schema = resolved(root, schema);
    let kind = words(root, outer);
    if !place.key.is_empty() {
        let meaning = place
            .meaning
            .clone()
            .or_else(|| description(outer))
            .or_else(|| description(schema));
        let mut entry = Map::new();
        entry.insert("key".to_owned(), place.key.clone().into());
        if let Some(of) = &place.of {
            entry.insert("of".to_owned(), of.clone().into());
        }
        entry.insert("type".to_owned(), kind.clone().into());
        if place.required {
            entry.insert("required".to_owned(), true.into());
        }
        if let Some(default) = place
            .default
            .as_ref()
            .filter(|default| !default.is_null() && !default.is_object())
        {
            entry.insert("default".to_owned(), default.clone());
        }
        entry.insert("meaning".to_owned(), meaning.unwrap_or_default().into());
        let items = schema.get("items").map(|items| resolved(root, items));
        if let Some(choices) = choices(schema).or_else(|| items.and_then(choices)) {
            entry.insert("choices".to_owned(), json!(choices));
        }
        keys.push(entry.into());
    }
    let items = schema.get("items").map(|items| resolved(root, items));
    let (of_items, path) = match items.filter(|items| items.get("properties").is_some()) {
        Some(items) => (items, format!("{}[]", place.key)),
        None => (schema, place.key.clone()),
    };
    let variants = of_items
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let tagged: Vec<_> = variants
        .filter_map(|variant| Some((tag(variant)?, variant)))
        .collect();
    let Some(((name, _), _)) = tagged.first() else {
        properties(root, of_items, (&path, None), keys);
        return;
    };
    let key = join(&path, name);
    let choices: Vec<_> = tagged
        .iter()
        .map(|((_, value), variant)| (*value, description(variant).unwrap_or_default()))
        .collect();
    keys.push(json!({
        "key": key, "type": "a choice", "required": true, "meaning": "The kind of the table.", "choices": choices,
    }));
    for ((_, value), variant) in &tagged {
        properties(root, variant, (&path, Some((name, value))), keys);
    }
}

fn join(table: &str, name: &str) -> String {
    match table {
        "" => name.to_owned(),
        table => format!("{table}.{name}"),
    }
}

/// The keys of the table at `path`: those of the alternative that the tag tells, where there is one.
fn properties(
    root: &Value,
    schema: &Value,
    (path, tag): (&str, Option<(&str, &str)>),
    keys: &mut Vec<Value>,
) {
    let required = |name: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|other| other == name))
    };
    for (name, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if tag.is_some_and(|(tag, _)| tag == name) {
            continue;
        }
        let place = Place {
            key: join(path, name),
            of: tag.map(|(tag, value)| format!("{} = \"{value}\"", join(path, tag))),
            required: required(name),
            default: inner.get("default").cloned(),
            meaning: description(inner),
        };
        walk(root, inner, &place, keys);
    }
}

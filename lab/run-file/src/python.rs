//! The types of the settings in Python, for editors and type checkers.

use std::fmt::Write as _;

use serde_json::Value;

use crate::keys::{choices, description, kind, resolved, tag};

/// The types of the tables of a run file.
pub(crate) fn types(schema: &Value) -> String {
    let mut text =
        "\"\"\"The settings of a run as types. This file is made from the types that read a run file.\"\"\"

from __future__ import annotations

from typing import Literal, Required, TypedDict
"
        .to_owned();
    // A table beside the settings stands for `data`, so no key at the top is required.
    let mut top = schema.clone();
    if let Some(fields) = top.as_object_mut() {
        fields.shift_remove("required");
        let example = "The keys of a run file, for an editor that completes them and a type checker.\n\n    \
            >>> import undertone_dp as udp\n    >>> settings: udp.RunSettings = {'name': 'posts', 'rounds': 3, 'clip': {'kind': 'flat', 'norm': 0.5}}\n    \
            >>> settings['clip']['kind']\n    'flat'\n    ";
        fields.insert("description".to_owned(), example.into());
    }
    let definitions = schema.get("$defs").and_then(Value::as_object);
    for (name, definition) in definitions.into_iter().flatten() {
        define(&mut text, schema, name, definition);
    }
    class(&mut text, schema, "RunSettings", &top);
    text
}

fn define(text: &mut String, root: &Value, name: &str, definition: &Value) {
    if choices(definition).is_some() {
        return;
    }
    if let Some(variants) = definition.get("oneOf").and_then(Value::as_array) {
        let mut names = Vec::new();
        for variant in variants {
            let Some((_, value)) = tag(variant) else { continue };
            let own = format!("{name}{}", camel(value));
            class(text, root, &own, variant);
            names.push(own);
        }
        let _ = write!(text, "\n\n{name} = (\n    {}\n)\n", names.join("\n    | "));
    } else if definition.get("properties").is_some() {
        class(text, root, name, definition);
    }
}

fn class(text: &mut String, root: &Value, name: &str, schema: &Value) {
    let about = description(schema)
        .unwrap_or_default()
        .replace('\\', "\\\\")
        .replace('"', "'");
    let _ = write!(
        text,
        "\n\nclass {name}(TypedDict, total=False):\n    \"\"\"{about}\"\"\"\n"
    );
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
    for (name, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let kind = annotation(root, inner);
        let kind = if is_required(name) {
            format!("Required[{kind}]")
        } else {
            kind
        };
        let _ = write!(text, "\n    {name}: {kind}");
        if let Some(about) = description(inner) {
            let about = about.replace('\\', "\\\\").replace('"', "'");
            let _ = write!(text, "\n    \"\"\"{about}\"\"\"");
        }
    }
    text.push('\n');
}

fn camel(name: &str) -> String {
    let mut words = String::new();
    for word in name.split(['_', '-']) {
        let mut letters = word.chars();
        words.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        words.extend(letters);
    }
    words
}

fn annotation(root: &Value, schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let target = resolved(root, schema);
        let is_class = target.get("properties").is_some()
            || (target.get("oneOf").is_some() && choices(target).is_none());
        if is_class {
            return format!("\"{}\"", name.rsplit('/').next().unwrap_or_default());
        }
        return annotation(root, target);
    }
    if let Some(choices) = choices(schema) {
        let values: Vec<String> = choices.iter().map(|(value, _)| format!("\"{value}\"")).collect();
        return format!("Literal[{}]", values.join(", "));
    }
    if let Some(value) = schema.get("const").and_then(Value::as_str) {
        return format!("Literal[\"{value}\"]");
    }
    if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
        let some = any
            .iter()
            .filter(|schema| schema.get("type").and_then(Value::as_str) != Some("null"));
        let some: Vec<String> = some.map(|schema| annotation(root, schema)).collect();
        return if some.len() == 1 {
            some[0].clone()
        } else {
            some.join(" | ")
        };
    }
    match kind(schema) {
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "string" => "str".to_owned(),
        "boolean" => "bool".to_owned(),
        "array" => format!(
            "list[{}]",
            schema
                .get("items")
                .map_or("object".to_owned(), |items| annotation(root, items))
        ),
        _ => "dict[str, object]".to_owned(),
    }
}

//! Writes what is made from the types of run files and task files: their JSON Schemas, the list of keys that the program explains, the pages
//! of the reference, and the types of Python. `lab/run-file/run` writes the files; its test compares them.

mod keys;
mod page;
mod python;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use undertone_coordinator::task::TaskFile;
use undertone_run_directory::config::RunConfig;

/// A file of the repository, and the text that belongs into it.
type Made = (PathBuf, String);

/// The schema of what a person writes: keys with a default may be left out.
fn schema<T: JsonSchema>(title: &str, description: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.insert("description".to_owned(), description.into());
    let mut schema = schema.to_value();
    spell_out(&mut schema);
    tidy(&mut schema);
    schema
}

/// Gives each other name of a kind an alternative of its own, since a schema knows no aliases.
fn spell_out(value: &mut Value) {
    match value {
        Value::Array(values) => {
            values.iter_mut().for_each(spell_out);
            let others: Vec<Value> = values.iter_mut().filter_map(under_other_name).collect();
            values.extend(others);
        }
        Value::Object(fields) => fields.values_mut().for_each(spell_out),
        _ => {}
    }
}

/// The alternative of a kind under its other name, which is taken off the first one.
fn under_other_name(variant: &mut Value) -> Option<Value> {
    let Value::String(alias) = variant.as_object_mut()?.shift_remove("x-alias")? else {
        return None;
    };
    let (tag, name) = keys::tag(variant).map(|(tag, name)| (tag.to_owned(), name.to_owned()))?;
    let mut other = variant.clone();
    other["properties"][tag]["const"] = alias.into();
    other["description"] = format!("Another name of `{name}`.").into();
    Some(other)
}

/// Makes descriptions readable outside of Rust, and drops the formats of Rust's numbers.
fn tidy(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(tidy),
        Value::Object(fields) => {
            if fields.get("format").is_some_and(Value::is_string) {
                fields.shift_remove("format");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = prose(text);
            }
            fields.values_mut().for_each(tidy);
        }
        _ => {}
    }
}

/// The text of a documentation comment without links, notes on privacy for developers, and examples.
fn prose(text: &str) -> String {
    let text = text.split("\n# ").next().unwrap_or_default();
    let paragraphs = text.split("\n\n").filter(|text| !text.starts_with("PRIVACY:"));
    let joined: Vec<String> = paragraphs.map(|text| text.replace('\n', " ")).collect();
    let mut text = joined.join(" ").replace("\\[", "[").replace("\\]", "]");
    // [`name`](place) and [`name`] become `name`.
    while let Some(start) = text.find("[`") {
        let Some(end) = text[start..].find("`]").map(|end| start + end) else {
            break;
        };
        let name = text[start + 1..=end].to_owned();
        let mut after = end + 2;
        if text[after..].starts_with('(')
            && let Some(close) = text[after..].find(')')
        {
            after += close + 1;
        }
        text.replace_range(start..after, &name);
    }
    text.trim().to_owned()
}

/// All files that are made.
fn made() -> anyhow::Result<Vec<Made>> {
    let run = schema::<RunConfig>(
        "Run file",
        "A run file of Undertone: data, model, local training, privacy and server.",
    );
    let task = schema::<TaskFile>(
        "Task file",
        "A task file of Undertone: what a service trains or evaluates on devices.",
    );
    let (run_keys, task_keys) = (keys::of(&run), keys::of(&task));
    let lists = json!({ "run": run_keys, "task": task_keys });
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("crates/run-directory/src/config");
    let compact = |value: &Value| serde_json::to_string(value).map(|text| text + "\n");
    Ok(vec![
        (folder.join("run-file.schema.json"), compact(&run)?),
        (folder.join("task-file.schema.json"), compact(&task)?),
        (folder.join("keys.json"), keys::lines(&lists)?),
        (root.join("docs/reference/run-file.md"), page::run(&run_keys)),
        (root.join("docs/reference/task-file.md"), page::task(&task_keys)),
        (
            root.join("python/undertone_dp/_settings_types.py"),
            python::types(&run),
        ),
    ])
}

fn main() -> anyhow::Result<()> {
    for (path, text) in made()? {
        std::fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_in_the_repository_are_those_of_the_types() {
        for (path, text) in made().unwrap() {
            let held = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                held == text,
                "{} is old; write it by `lab/run-file/run`",
                path.display()
            );
        }
    }

    #[test]
    fn prose_is_read_without_rust() {
        let text = "A [`Span`](crate::Span) of \\[DPLM\\].\nIt ends.\n\nPRIVACY: not for users.\n\nMore.\n# Example\nx";
        assert_eq!(prose(text), "A `Span` of [DPLM]. It ends. More.");
    }

    /// A key that nobody explains is one that nobody finds.
    #[test]
    fn every_key_has_a_meaning() {
        for (path, text) in made().unwrap() {
            assert!(
                !text.contains("\"meaning\":\"\""),
                "{} has a key without a meaning",
                path.display()
            );
        }
    }
}

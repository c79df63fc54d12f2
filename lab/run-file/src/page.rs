//! The pages of the reference.

use std::fmt::Write as _;

use serde_json::Value;

pub(crate) fn run(keys: &[Value]) -> String {
    let mut text = "# Keys of a run file

A run file is TOML. `undertone init` writes one, and `undertone init --example` one that needs no data. An unknown key, a value of a wrong type \
and a value outside its range are errors that name the key. `undertone explain KEY` prints an entry of this page.

An editor completes and checks a run file by its JSON Schema, which `undertone explain --schema > run-file.schema.json` writes. The line
`#:schema run-file.schema.json` at the top of the run file names it to Taplo and to the TOML extension of VS Code.

A key can be given on the command line too: `--set privacy.noise_multiplier=0.8`.

"
    .to_owned();
    tables(&mut text, keys);
    text
}

pub(crate) fn task(keys: &[Value]) -> String {
    let mut text = "# Keys of a task file

A task file is TOML and says what a service trains on devices ([run a federated task](../guide/run-a-federated-task.md)).
`undertone explain --file task KEY` prints an entry of this page, and `undertone explain --schema task` the JSON Schema for editors.

"
    .to_owned();
    tables(&mut text, keys);
    text
}

fn of<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A table of keys for each table of the file.
fn tables(text: &mut String, keys: &[Value]) {
    let is_table = |entry: &Value| of(entry, "type") == "a table" || of(entry, "type") == "a list of tables";
    let parent = |entry: &Value| {
        of(entry, "key")
            .rsplit_once('.')
            .map_or("", |parts| parts.0)
            .to_owned()
    };
    let mut groups: Vec<String> = Vec::new();
    for entry in keys {
        if !groups.contains(&parent(entry)) {
            groups.push(parent(entry));
        }
    }
    for group in groups {
        let own = keys
            .iter()
            .find(|entry| of(entry, "key") == group.trim_end_matches("[]"));
        match group.as_str() {
            "" => text.push_str("## At the top of the file\n"),
            group => {
                let _ = writeln!(
                    text,
                    "\n## `{group}`\n\n{}",
                    own.map_or("", |entry| of(entry, "meaning"))
                );
            }
        }
        text.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
        for entry in keys.iter().filter(|entry| parent(entry) == group) {
            let key = of(entry, "key").rsplit('.').next().unwrap_or_default();
            let default = match (entry.get("default"), entry.get("required")) {
                (Some(default), _) => format!("`{default}`"),
                (None, Some(_)) => "required".to_owned(),
                (None, None) => String::new(),
            };
            let mut meaning = of(entry, "meaning").to_owned();
            if let Some(of) = entry.get("of").and_then(Value::as_array) {
                let of: Vec<String> = of
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|of| format!("`{of}`"))
                    .collect();
                meaning = format!("With {}: {meaning}", of.join(" or "));
            }
            for choice in entry
                .get("choices")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let (value, what) = (
                    choice[0].as_str().unwrap_or_default(),
                    choice[1].as_str().unwrap_or_default(),
                );
                let what = if what.is_empty() {
                    String::new()
                } else {
                    format!(": {what}")
                };
                let _ = write!(meaning, "<br>`\"{value}\"`{what}");
            }
            let kind = if is_table(entry) {
                format!("{}, below", of(entry, "type"))
            } else {
                of(entry, "type").to_owned()
            };
            let _ = writeln!(
                text,
                "| `{key}` | {kind} | {default} | {} |",
                meaning.replace('|', "\\|")
            );
        }
    }
}

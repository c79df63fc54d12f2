//! `undertone explain`: the keys of run files and task files.

use anyhow::{bail, ensure};
use undertone_run_directory::config::keys::{Key, SettingsFile};

use crate::help::wrapped;
use crate::output::Output;

/// Columns of an explanation.
const WIDTH: usize = 96;

/// Arguments of `undertone explain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  undertone explain user_update.unroll\n  undertone explain clip\n  \
    undertone explain --schema > run-file.schema.json"
)]
pub(crate) struct ExplainArgs {
    /// A key, such as `privacy.target_epsilon`, or a table, such as `clip`; without one, all keys at the top.
    key: Option<String>,
    /// The kind of file.
    #[arg(long, value_name = "KIND", default_value = "run")]
    file: FileKind,
    /// Print the JSON Schema of the file, by which an editor completes and checks it.
    #[arg(long, conflicts_with = "key")]
    schema: bool,
}

/// The kinds of files that are explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FileKind {
    /// The file of `undertone train`.
    Run,
    /// The file of `undertone task create`.
    Task,
}

/// Explains a key or a table.
pub(crate) fn run(args: &ExplainArgs, output: &Output) -> anyhow::Result<()> {
    let file = match args.file {
        FileKind::Run => SettingsFile::Run,
        FileKind::Task => SettingsFile::Task,
    };
    if args.schema {
        return output.print(file.schema().trim_end());
    }
    let key = args.key.as_deref().unwrap_or_default();
    let mut found = file.entries(key);
    if found.is_empty() && !key.is_empty() {
        let meant: Vec<String> = file.nearest(key).iter().map(|key| format!("`{key}`")).collect();
        ensure!(
            !meant.is_empty(),
            "there is no key `{key}`; `undertone explain` lists the keys at the top, and `undertone explain TABLE` those of a table"
        );
        bail!("there is no key `{key}`; did you mean {}?", meant.join(" or "));
    }
    let is_table = key.is_empty() || found.iter().any(|entry| entry.value.contains("table"));
    if is_table {
        let table = found.first().map_or("", |entry| entry.key.as_str());
        let inside = file.of_table(table);
        let of_items = file.of_table(&format!("{table}[]"));
        found.extend(if inside.is_empty() { of_items } else { inside });
    }
    output.show(&found, || {
        let texts: Vec<String> = found
            .iter()
            .map(|entry| text(entry, is_table && entry.key != key))
            .collect();
        texts.join("\n")
    })
}

/// An entry: its key with the type and the default, its meaning, and its words. Those of a table are `short`.
fn text(entry: &Key, short: bool) -> String {
    let default = match &entry.default {
        Some(default) => format!(", by default {default}"),
        None if entry.required => ", required".to_owned(),
        None => String::new(),
    };
    let mut text = format!("{}: {}{default}\n", entry.key, entry.value);
    let mut paragraph = |indent: usize, words: &str| {
        for line in wrapped(words, WIDTH - indent) {
            text += &format!("{:indent$}{line}\n", "");
        }
    };
    if !entry.of.is_empty() {
        paragraph(2, &format!("Where {}.", entry.of.join(" or ")));
    }
    paragraph(2, &entry.meaning);
    for (word, meaning) in &entry.choices {
        let meaning = if short || meaning.is_empty() {
            String::new()
        } else {
            format!(": {meaning}")
        };
        paragraph(4, &format!("\"{word}\"{meaning}"));
    }
    text
}

//! Blocks of settings: a file that a later command reads, or tables of a run file.

use toml::{Table, Value};

use crate::block::Block;

/// Reads the tables of a block as those of a whole run file, in the place of its own.
///
/// `in=FILE` names the run file. A table of the block replaces the table of that name, and keys above the first table replace theirs.
pub(crate) fn check_tables(block: &Block, base: &str) {
    let place = block.place();
    let parsed = |name: &str, text: &str| -> Table {
        text.parse()
            .unwrap_or_else(|error| panic!("{place}: {name}: {error}"))
    };
    let mut file = parsed(base, &crate::read(base));
    let tables = parsed("the block", &block.text);
    for (key, value) in &tables {
        if !value.is_table() {
            file.insert(key.clone(), value.clone());
        }
    }
    for header in block.text.lines().filter_map(|line| line.strip_prefix('[')) {
        let name = header.split(']').next().unwrap_or_default();
        let path: Vec<&str> = name.split('.').collect();
        let value = path
            .iter()
            .fold(None, |found: Option<&Value>, key| {
                found.map_or_else(|| tables.get(*key), |table| table.get(key))
            })
            .unwrap_or_else(|| panic!("{place}: no table `{name}`"));
        put(&mut file, &path, value.clone());
    }
    let text = toml::to_string(&file).expect("a run file");
    let path = crate::root().join(base);
    if let Err(error) = undertone_run_directory::config::RunConfig::parse(&text, &path, &[]) {
        panic!("{place}: {error}\n{text}");
    }
}

fn put(table: &mut Table, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => {
            table.insert((*last).to_owned(), value);
        }
        [first, rest @ ..] => {
            let inner = table
                .entry((*first).to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// Parses a block whose meaning a later command checks, and a block of JSON that stands alone.
pub(crate) fn check_syntax(block: &Block) {
    let place = block.place();
    let is_json = |text: &str| {
        if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
            panic!("{place}: {error}");
        }
    };
    if block.language == "toml" {
        if let Err(error) = block.text.parse::<Table>() {
            panic!("{place}: {error}");
        }
    } else if block.has("lines") {
        block.text.lines().for_each(is_json);
    } else {
        is_json(&block.text);
    }
}

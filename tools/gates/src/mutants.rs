//! Planted errors: a table of edits that are applied to a copy of the tree.

use std::path::Path;

use toml::{Table, Value};

/// A text that an edit replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Path of the file, from the root of the tree.
    pub file: String,
    /// The text of clean code. It stands exactly once in the file.
    pub find: String,
    /// The text in its place.
    pub put: String,
}

/// The edits of one error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Name of the error.
    pub name: String,
    /// Edits, in the order in which they are applied.
    pub edits: Vec<Edit>,
}

/// All errors, and the function that switches them on.
#[derive(Debug, Clone)]
pub struct Mutants {
    /// The new file of the function, by its path and text, and the edits that declare it.
    hook: (String, String, Vec<Edit>),
    /// The errors.
    pub mutants: Vec<Mutant>,
}

impl Mutants {
    /// Reads `mutants.toml`.
    ///
    /// # Errors
    /// A table that is not of this form, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error| format!("{error}"))?;
        let (mut hook, mut mutants) = (None, Vec::new());
        for (name, entry) in &table {
            let entry = entry
                .as_table()
                .ok_or_else(|| format!("{name}: expected a table"))?;
            let edits = edits(name, entry)?;
            if name == "hook" {
                hook = Some((
                    text_of(name, entry, "file")?,
                    text_of(name, entry, "text")?,
                    edits,
                ));
            } else {
                mutants.push(Mutant {
                    name: name.clone(),
                    edits,
                });
            }
        }
        let hook = hook.ok_or("hook: expected the function that switches errors on")?;
        Ok(Self { hook, mutants })
    }

    /// The reasons why the edits do not fit a tree: a text that is missing or stands twice, and an error without an edit.
    #[must_use]
    pub fn problems(&self, root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let of_hook = self.hook.2.iter().map(|edit| ("hook", edit));
        let of_mutants = self.mutants.iter().flat_map(|mutant| {
            let named = mutant.edits.iter();
            named.map(|edit| (mutant.name.as_str(), edit))
        });
        for (name, edit) in of_hook.chain(of_mutants) {
            let start: String = edit.find.trim().chars().take(60).collect();
            match std::fs::read_to_string(root.join(&edit.file)) {
                Err(error) => found.push(format!("{name}: {}: {error}", edit.file)),
                Ok(text) => match text.matches(&edit.find).count() {
                    1 => {}
                    count => found.push(format!("{name}: {} has {count} times: {start}", edit.file)),
                },
            }
            if edit.find == edit.put {
                found.push(format!("{name}: an edit of {} changes nothing", edit.file));
            }
        }
        let empty = self.mutants.iter().filter(|mutant| mutant.edits.is_empty());
        found.extend(empty.map(|mutant| format!("{}: expected an edit", mutant.name)));
        found
    }

    /// Applies all edits to a copy of the tree.
    ///
    /// # Errors
    /// The first [problem](Self::problems), and a file that cannot be written. The files before it stay changed.
    pub fn apply(&self, root: &Path) -> Result<(), String> {
        let (file, text, edits) = &self.hook;
        let all = edits
            .iter()
            .map(|edit| ("hook", edit))
            .chain(self.mutants.iter().flat_map(|mutant| {
                let named = mutant.edits.iter();
                named.map(|edit| (mutant.name.as_str(), edit))
            }));
        std::fs::write(root.join(file), text).map_err(|error| format!("{file}: {error}"))?;
        for (name, edit) in all {
            let path = root.join(&edit.file);
            let failed = |error: std::io::Error| format!("{name}: {}: {error}", edit.file);
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            let count = text.matches(&edit.find).count();
            if count != 1 {
                let start: String = edit.find.trim().chars().take(60).collect();
                return Err(format!("{name}: {} has {count} times: {start}", edit.file));
            }
            std::fs::write(&path, text.replace(&edit.find, &edit.put)).map_err(failed)?;
        }
        Ok(())
    }
}

fn text_of(name: &str, entry: &Table, key: &str) -> Result<String, String> {
    let text = entry.get(key).and_then(Value::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| format!("{name}.{key}: expected a text"))
}

fn edits(name: &str, entry: &Table) -> Result<Vec<Edit>, String> {
    let list = entry.get("edits").and_then(Value::as_array);
    let list = list.ok_or_else(|| format!("{name}.edits: expected a list"))?;
    let edit = |value: &Value| {
        let edit = value
            .as_table()
            .ok_or_else(|| format!("{name}.edits: expected tables"))?;
        Ok(Edit {
            file: text_of(name, edit, "file")?,
            find: text_of(name, edit, "find")?,
            put: text_of(name, edit, "put")?,
        })
    };
    list.iter().map(edit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "[hook]\nfile = \"hook.rs\"\ntext = \"fn planted() {}\"\nedits = [{ file = \"lib.rs\", find = \"mod a;\", put = \"mod a; \
                         mod hook;\" }]\n[M01]\nplanted = \"a text\"\nedits = [{ file = \"a.rs\", find = \"x < 1\", put = \"x < 2\" }]\n";

    fn tree(a: &str) -> std::path::PathBuf {
        let name = std::thread::current().name().unwrap_or("tree").replace("::", "-");
        let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("lib.rs"), "mod a;").unwrap();
        std::fs::write(root.join("a.rs"), a).unwrap();
        root
    }

    #[test]
    fn all_edits_are_applied_to_a_tree_that_they_fit() {
        let root = tree("if x < 1 {}");
        let mutants = Mutants::parse(TABLE).unwrap();
        assert!(mutants.problems(&root).is_empty());
        mutants.apply(&root).unwrap();
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        assert_eq!(
            [read("a.rs"), read("lib.rs"), read("hook.rs")],
            ["if x < 2 {}", "mod a; mod hook;", "fn planted() {}"]
        );
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_text_that_stands_twice_or_nowhere_is_refused_by_name() {
        for (a, count) in [("x < 1; x < 1", 2), ("x <= 1", 0)] {
            let root = tree(a);
            let mutants = Mutants::parse(TABLE).unwrap();
            let expected = format!("M01: a.rs has {count} times: x < 1");
            assert_eq!(mutants.apply(&root), Err(expected.clone()));
            assert_eq!(mutants.problems(&root), [expected]);
            std::fs::remove_dir_all(root).unwrap();
        }
        let emptied = TABLE.replace("x < 2", "x < 1");
        let root = tree("x < 1");
        assert_eq!(
            Mutants::parse(&emptied).unwrap().problems(&root),
            ["M01: an edit of a.rs changes nothing"]
        );
        std::fs::remove_dir_all(root).unwrap();
    }
}

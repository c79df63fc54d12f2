//! Modules of a crate use each other in circles of at most four.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{code, crates, manifest, name_of, read, sources};

/// Modules of the top level, each with the modules that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The module of the top level that a file belongs to.
fn module(folder: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(folder).expect("a file of the folder");
    let first = relative.iter().next().expect("a name").to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The names that follow `crate::` in a text.
fn used(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split("crate::").skip(1).map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.chars()
            .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
            .collect()
    })
}

fn uses(folder: &Path) -> Uses {
    let mut uses = Uses::new();
    for file in sources(folder) {
        let is_test = file.iter().any(|part| part == "tests" || part == "tests.rs");
        let module = module(folder, &file);
        if is_test || module == "lib" || module == "main" {
            continue;
        }
        let text = read(&file);
        let modules = uses.entry(module.clone()).or_default();
        for line in code(&text) {
            modules.extend(used(line).filter(|name| !name.is_empty() && *name != module));
        }
    }
    let known: BTreeSet<String> = uses.keys().cloned().collect();
    for modules in uses.values_mut() {
        modules.retain(|name| known.contains(name));
    }
    uses
}

/// Every module that can be reached from one.
fn reached<'a>(uses: &'a Uses, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

/// The circles of a crate: modules that reach each other.
fn circles(uses: &Uses) -> BTreeSet<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = uses
        .keys()
        .map(|module| (module.as_str(), reached(uses, module)))
        .collect();
    uses.keys()
        .map(|module| {
            let together = reach[module.as_str()].iter().copied();
            together
                .filter(|other| {
                    reach
                        .get(other)
                        .is_some_and(|back| back.contains(module.as_str()))
                })
                .collect::<Vec<_>>()
        })
        .filter(|circle| circle.len() > 1)
        .collect()
}

#[test]
fn modules_use_each_other_in_circles_of_at_most_four() {
    for folder in crates() {
        let name = name_of(&folder);
        assert!(manifest(&format!("crates/{name}")).contains_key("package"));
        let uses = uses(&folder.join("src"));
        for circle in circles(&uses) {
            assert!(
                circle.len() <= 4,
                "crate {name}: {} modules form a circle: {}",
                circle.len(),
                circle.join(", ")
            );
        }
    }
}

#[test]
fn a_circle_is_found_through_other_modules() {
    let uses = Uses::from([
        ("a".to_owned(), BTreeSet::from(["b".to_owned()])),
        ("b".to_owned(), BTreeSet::from(["c".to_owned(), "d".to_owned()])),
        ("c".to_owned(), BTreeSet::from(["a".to_owned()])),
        ("d".to_owned(), BTreeSet::new()),
    ]);
    assert_eq!(circles(&uses), BTreeSet::from([vec!["a", "b", "c"]]));
    assert_eq!(
        used("use crate::{one::Two}; crate::three::four()").collect::<Vec<_>>(),
        ["one", "three"]
    );
}

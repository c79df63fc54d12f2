//! Modules that use each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::module::Module;

/// Sibling modules of which each reaches each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Circle {
    /// Path of their parent in the crate, empty for the root.
    pub parent: String,
    /// Names of the modules, in the order of the alphabet.
    pub modules: Vec<String>,
}

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The circles of two modules and more among the children of each module of a crate. A child and its parent are no siblings.
#[must_use]
pub fn circles(root: &Module) -> Vec<Circle> {
    let mut uses: BTreeMap<Vec<String>, Uses> = BTreeMap::new();
    for module in root.all() {
        for (path, _) in module.uses.all() {
            let Some(target) = root.resolve(module, path) else {
                continue;
            };
            let both = module.name.iter().zip(&target.name);
            let common = both.take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (module.name.get(common), target.name.get(common)) {
                let siblings = uses.entry(module.name[..common].to_vec()).or_default();
                siblings.entry(user.clone()).or_default().insert(used.clone());
            }
        }
    }
    let mut found = BTreeSet::new();
    for (parent, uses) in &uses {
        found.extend(among(uses).into_iter().map(|modules| Circle {
            parent: parent.join("::"),
            modules,
        }));
    }
    found.into_iter().collect()
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

fn among(uses: &Uses) -> BTreeSet<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = uses
        .keys()
        .map(|module| (module.as_str(), reached(uses, module)))
        .collect();
    let circle = |module: &String| -> Vec<String> {
        let back = |other: &&str| {
            reach
                .get(other)
                .is_some_and(|back| back.contains(module.as_str()))
        };
        let together = reach[module.as_str()].iter().copied().filter(back);
        together.map(str::to_owned).collect()
    };
    uses.keys()
        .map(circle)
        .filter(|modules| modules.len() > 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing::TESTS;

    fn of(files: &[(&str, String)]) -> Vec<String> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| text.clone())
        };
        let root = Module::read(Path::new("src/lib.rs"), Vec::new(), Path::new("src"), &read);
        let name = |circle: Circle| format!("{}: {}", circle.parent, circle.modules.join(" "));
        circles(&root).into_iter().map(name).collect()
    }

    fn root() -> (&'static str, String) {
        (
            "src/lib.rs",
            "mod a; mod b; mod c; pub use c::Exported;".to_owned(),
        )
    }

    #[test]
    fn a_circle_below_the_tests_of_a_file_is_found() {
        let files = [
            root(),
            ("src/a.rs", format!("{TESTS}use crate::{{b::B}};")),
            ("src/b.rs", format!("{TESTS}fn f() {{ super::c::g() }}")),
            ("src/c.rs", format!("{TESTS}fn g() {{ vec![crate::a::A] }}")),
        ];
        assert_eq!(of(&files), [": a b c"]);
    }

    #[test]
    fn names_that_a_parent_passes_on_are_followed() {
        let files = [
            root(),
            ("src/a.rs", "use super::*; use crate::Exported;".to_owned()),
            ("src/b.rs", String::new()),
            ("src/c.rs", "pub struct Exported; use super::a;".to_owned()),
        ];
        assert_eq!(of(&files), [": a c"]);
    }

    #[test]
    fn modules_below_others_have_circles_of_their_own() {
        let files = [
            root(),
            ("src/a.rs", "mod one; mod two; use one::f;".to_owned()),
            ("src/a/one.rs", "use super::two; fn f() {}".to_owned()),
            ("src/a/two.rs", "fn g() { crate::a::one::f() }".to_owned()),
            ("src/b.rs", "use crate::a::f;".to_owned()),
            ("src/c.rs", "pub struct Exported;".to_owned()),
        ];
        assert_eq!(of(&files), ["a: one two"]);
    }

    #[test]
    fn a_word_of_the_language_is_a_name_like_others() {
        let files = [
            ("src/lib.rs", "mod r#gen; mod b;".to_owned()),
            ("src/gen.rs", "use crate::b;".to_owned()),
            ("src/b.rs", "fn f() { vec![crate::r#gen::A] }".to_owned()),
        ];
        assert_eq!(of(&files), [": b gen"]);
    }

    /// Tests may use what they like, other crates have modules of the same name, and a parent may use its child.
    #[test]
    fn uses_that_are_no_circle_are_right() {
        let files = [
            root(),
            (
                "src/a.rs",
                "use crate::b; #[cfg(test)] mod tests { use crate::c; }".to_owned(),
            ),
            ("src/b.rs", "use other::a; #[cfg(test)] use crate::a;".to_owned()),
            (
                "src/c.rs",
                "pub struct Exported; use crate::{a, b}; pub(in crate::a) mod inner {}".to_owned(),
            ),
        ];
        assert!(of(&files).is_empty());
    }
}

//! Promises: the packages whose public items change by the rules of semantic versions, and the lists that hold them to it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::source::Finding;

/// Names of the packages that make a promise. Every other published library is internal.
pub const PROMISED: [&str; 7] = [
    "undertone",
    "undertone-accounting",
    "undertone-aggregation",
    "undertone-device",
    "undertone-mechanisms",
    "undertone-protocol",
    "undertone-secagg",
];

/// The line by which the README of an internal library says that it makes no promise.
pub const INTERNAL: &str =
    "This crate is internal: it makes no promise, so any version may change its public items.";

/// A package of the product with its README.
#[derive(Debug, Clone)]
pub struct Package {
    /// Folder of the package.
    pub folder: PathBuf,
    /// Parsed `Cargo.toml`.
    pub manifest: toml::Table,
    /// Text of `README.md`.
    pub readme: String,
    /// True if the package has a library.
    pub has_library: bool,
}

impl Package {
    fn settings(&self) -> Option<&toml::Table> {
        self.manifest.get("package")?.as_table()
    }

    fn name(&self) -> &str {
        let name = self
            .settings()
            .and_then(|settings| settings.get("name")?.as_str());
        name.unwrap_or_default()
    }

    /// Returns true if the package is handed out as a library: one that is not published has no reader to promise anything to.
    fn is_published_library(&self) -> bool {
        let publish = self.settings().and_then(|settings| settings.get("publish"));
        self.has_library && publish.and_then(toml::Value::as_bool) != Some(false)
    }

    /// Returns true if the manifest says `[package.metadata.undertone] promise = true`.
    fn promises(&self) -> bool {
        let key = self
            .settings()
            .and_then(|settings| settings.get("metadata")?.get("undertone")?.get("promise"));
        key.and_then(toml::Value::as_bool) == Some(true)
    }

    fn finding(&self, file: &str, what: impl Into<String>) -> Finding {
        Finding {
            path: self.folder.join(file),
            line: 1,
            what: what.into(),
        }
    }
}

/// The places where manifests, READMEs and lists disagree about who makes a promise.
///
/// `lists` are the names of the files in `vectors/public-api`.
#[must_use]
pub fn broken_promises(packages: &[Package], lists: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in packages {
        let (name, promises) = (package.name(), package.promises());
        if promises != PROMISED.contains(&name) {
            let (expected, got) = if promises {
                ("no promise", "one")
            } else {
                ("promise = true", "none")
            };
            found.push(package.finding(
                "Cargo.toml",
                format!("{name}: expected {expected} in [package.metadata.undertone], got {got}"),
            ));
        }
        if promises && !package.is_published_library() {
            found.push(package.finding(
                "Cargo.toml",
                format!("{name} makes a promise and is no published library"),
            ));
        }
        let says_so = package.readme.lines().any(|line| line == INTERNAL);
        if says_so != (package.is_published_library() && !promises) {
            let what = if says_so {
                "remove the line"
            } else {
                "add the line"
            };
            found.push(package.finding("README.md", format!("{name}: {what} \"{INTERNAL}\"")));
        }
    }
    let known: BTreeSet<&str> = packages.iter().map(Package::name).collect();
    let expected: BTreeSet<String> = PROMISED.iter().map(|name| format!("{name}.txt")).collect();
    let lists: BTreeSet<String> = lists.iter().cloned().collect();
    let at_list = |what: String| Finding {
        path: PathBuf::from("vectors/public-api"),
        line: 1,
        what,
    };
    found.extend(
        PROMISED
            .iter()
            .filter(|name| !known.contains(*name))
            .map(|name| at_list(format!("no package {name}"))),
    );
    found.extend(
        expected
            .difference(&lists)
            .map(|name| at_list(format!("no list {name}"))),
    );
    found.extend(
        lists
            .difference(&expected)
            .map(|name| at_list(format!("{name} lists a package without a promise"))),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: &str = "[package.metadata.undertone]\npromise = true\n";

    fn package(name: &str, settings: &str, readme: &str) -> Package {
        Package {
            folder: PathBuf::from("crates").join(name),
            manifest: format!("[package]\nname = \"{name}\"\n{settings}")
                .parse()
                .expect("a manifest"),
            readme: format!("# {name}\n\n{readme}\n"),
            has_library: true,
        }
    }

    /// The seven packages with a promise, and one without.
    fn right() -> (Vec<Package>, Vec<String>) {
        let mut packages: Vec<Package> = PROMISED
            .iter()
            .map(|name| package(name, PROMISE, "A door."))
            .collect();
        packages.push(package("undertone-run", "", INTERNAL));
        (
            packages,
            PROMISED.iter().map(|name| format!("{name}.txt")).collect(),
        )
    }

    fn check(packages: &[Package], lists: &[String]) -> Vec<String> {
        broken_promises(packages, lists)
            .iter()
            .map(Finding::to_string)
            .collect()
    }

    #[test]
    fn packages_without_readers_make_no_promise_and_say_nothing() {
        let (mut packages, lists) = right();
        // A program has no public items, and a package that is not published has no reader.
        packages.push(Package {
            has_library: false,
            ..package("undertone-cli", "", "The program.")
        });
        packages.push(package(
            "undertone-device-c",
            "publish = false\n",
            "The device in C.",
        ));
        packages.push(package(
            "undertone-fleet",
            "[package.metadata.undertone]\npromise = false\n",
            &format!("Devices.\n{INTERNAL}"),
        ));
        assert_eq!(check(&packages, &lists), [""; 0]);
    }

    #[test]
    fn a_promise_has_its_key_its_list_and_no_line_that_denies_it() {
        let (mut packages, mut lists) = right();
        packages[1] = package("undertone-accounting", "", "A door.");
        packages[2] = package("undertone-aggregation", PROMISE, INTERNAL);
        packages[3] = package(
            "undertone-device",
            &format!("publish = false\n{PROMISE}"),
            "A door.",
        );
        packages.remove(4);
        lists.remove(6);
        let found = check(&packages, &lists);
        let expected = [
            "crates/undertone-accounting/Cargo.toml:1: undertone-accounting: expected promise = true in [package.metadata.undertone], got none",
            "crates/undertone-accounting/README.md:1: undertone-accounting: add the line",
            "crates/undertone-aggregation/README.md:1: undertone-aggregation: remove the line",
            "crates/undertone-device/Cargo.toml:1: undertone-device makes a promise and is no published library",
            "vectors/public-api:1: no package undertone-mechanisms",
            "vectors/public-api:1: no list undertone-secagg.txt",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn an_internal_crate_has_neither_a_key_nor_a_list_and_says_so_in_one_line() {
        let (mut packages, mut lists) = right();
        packages[7] = package("undertone-run", PROMISE, "A driver.");
        lists.push("undertone-run.txt".to_owned());
        let found = check(&packages, &lists);
        assert_eq!(
            found,
            [
                "crates/undertone-run/Cargo.toml:1: undertone-run: expected no promise in [package.metadata.undertone], got one",
                "vectors/public-api:1: undertone-run.txt lists a package without a promise",
            ]
        );
        // The words within another line are easily overlooked.
        packages[7] = package("undertone-run", "", &format!("A driver. {INTERNAL}"));
        lists.pop();
        assert!(check(&packages, &lists)[0].contains("README.md:1: undertone-run: add the line"));
    }
}

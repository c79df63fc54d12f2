//! A package has one program of integration tests, since each further one is linked against the whole package again.

use std::collections::BTreeSet;
use std::path::Path;

use super::{ARROWS, root};

/// The program of integration tests that a package may have.
const ONE: &str = "tests/it/main.rs";

/// The programs beside it, each with the reason why its tests are no modules of the one.
const OTHERS: [(&str, &str); 5] = [
    (
        "crates/cli/tests/hostile.rs",
        "it bounds the time of hundreds of commands, so no other test may run beside it",
    ),
    (
        "crates/cli/tests/pages.rs",
        "a reader runs it alone, and it prints the time of each page",
    ),
    (
        "crates/fleet/tests/crash/main.rs",
        "it starts itself as a service that is killed at fail points and fills disks",
    ),
    (
        "crates/store/tests/histories/main.rs",
        "it runs for minutes, so nextest starts it first, by its name",
    ),
    (
        "lab/tests/mutants.rs",
        "`lab/mutants/run` starts it alone, in copies of the tree with planted errors",
    ),
];

/// The programs that cargo finds in the folder `tests` of a package: its files, and its folders with a `main.rs`.
fn programs(package: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(package.join("tests")) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let roots = paths.map(|path| if path.is_dir() { path.join("main.rs") } else { path });
    roots
        .filter(|path| path.exists() && path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| {
            let below = path.strip_prefix(package).expect("a file of the package");
            below.to_str().expect("UTF-8").replace('\\', "/")
        })
        .collect()
}

#[test]
fn a_package_has_one_program_of_integration_tests() {
    let mut found = BTreeSet::new();
    for (folder, _) in ARROWS {
        let programs = programs(&root().join(folder));
        let others = programs.iter().filter(|program| *program != ONE);
        found.extend(others.map(|program| format!("{folder}/{program}")));
    }
    let known = OTHERS.map(|(program, _)| program.to_owned());
    assert_eq!(
        found,
        BTreeSet::from(known),
        "expected the programs of the list; make the tests modules of `{ONE}`, or give the list a reason"
    );
}

#[test]
fn files_and_folders_with_a_main_file_are_programs() {
    let mut found = programs(&root().join("crates/cli"));
    found.sort();
    assert_eq!(found, ["tests/hostile.rs", ONE, "tests/pages.rs"]);
}

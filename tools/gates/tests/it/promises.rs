//! Seven packages make a promise; manifests, READMEs and the lists of public items say the same.

use undertone_gates::{Finding, Package, broken_promises};

use super::{crates, read, root, shown};

#[test]
fn seven_packages_make_a_promise_and_the_others_say_that_they_make_none() {
    let packages: Vec<Package> = crates()
        .map(|folder| Package {
            manifest: read(&folder.join("Cargo.toml")).parse().expect("a manifest"),
            readme: read(&folder.join("README.md")),
            has_library: folder.join("src/lib.rs").exists(),
            folder,
        })
        .collect();
    let entries = std::fs::read_dir(root().join("vectors/public-api")).expect("lists");
    let lists: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let found: Vec<Finding> = broken_promises(&packages, &lists);
    assert!(found.is_empty(), "{}", shown(&found));
}

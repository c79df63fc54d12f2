//! Modules of a crate use each other in circles of at most two.

use undertone_gates::{circles, read_crate};

use super::{crates, name_of};

/// The larger circles of today: crate, parent and number of modules. The list may only shrink.
const KNOWN: [(&str, &str, usize); 0] = [];

#[test]
fn modules_use_each_other_in_circles_of_at_most_two() {
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for folder in crates() {
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
        for root in roots.iter().filter(|root| root.exists()) {
            for circle in circles(&read_crate(root)) {
                if circle.modules.len() > 2 {
                    let (name, modules) = (name_of(&folder).to_owned(), circle.modules.join(", "));
                    names.push(format!("{name}, below `{}`: {modules}", circle.parent));
                    found.push((name, circle.parent, circle.modules.len()));
                }
            }
        }
    }
    found.sort();
    let found: Vec<(&str, &str, usize)> = found
        .iter()
        .map(|(name, parent, size)| (name.as_str(), parent.as_str(), *size))
        .collect();
    assert_eq!(found, KNOWN, "the circles of today:\n{}", names.join("\n"));
}

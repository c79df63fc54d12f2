//! A crate has at most twenty modules at its root.

use super::{crates, name_of};

/// Max number of files at the root of a crate.
const MOST: usize = 20;

/// Crates with more, at their number today, which may only fall.
const KNOWN: [(&str, usize); 7] = [
    ("accounting", 24),
    ("coordinator", 25),
    ("data", 34),
    ("device", 29),
    ("fleet", 21),
    ("mechanisms", 23),
    ("secagg", 22),
];

#[test]
fn the_root_of_a_crate_has_at_most_twenty_files() {
    for folder in crates() {
        let name = name_of(&folder);
        let entries = std::fs::read_dir(folder.join("src")).expect("sources");
        let files = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
            .count();
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        let most = known.map_or(MOST, |(_, number)| *number);
        assert!(files <= most, "{name}: {files} files at its root, at most {most}");
        assert!(
            known.is_none() || files == most && most > MOST,
            "{name}: {files} files at its root; lower its number in the list, or take it out"
        );
    }
}

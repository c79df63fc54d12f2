//! The documents at the front are short, invariants have one place each, and links name what they lead to.

use std::path::PathBuf;

use undertone_gates::{
    ARCHITECTURE_WORDS, CHANGELOG_LINES, Finding, Page, README_WORDS, links_to_sources, misplaced_invariants,
    unknown_names,
};

use super::{ARROWS, crates, read, root, shown};

fn page(path: impl Into<PathBuf>) -> Page {
    let path = path.into();
    let text = read(&root().join(&path));
    Page { path, text }
}

#[test]
fn the_front_documents_are_short() {
    let found: Vec<Finding> = [
        page("README.md").too_many_words(README_WORDS),
        page("ARCHITECTURE.md").too_many_words(ARCHITECTURE_WORDS),
        page("CHANGELOG.md").too_long_a_version(CHANGELOG_LINES),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(found.is_empty(), "{}", shown(&found));
}

#[test]
fn every_invariant_stands_in_one_document() {
    let folders = crates().filter_map(|folder| Some(folder.strip_prefix(root()).ok()?.to_owned()));
    let files = folders.chain([PathBuf::from("python")]);
    let files = files
        .map(|folder| folder.join("README.md"))
        .filter(|file| root().join(file).exists());
    let pages: Vec<Page> = files
        .chain([PathBuf::from("ARCHITECTURE.md")])
        .map(page)
        .collect();
    let found = misplaced_invariants(&pages);
    assert!(found.is_empty(), "{}", shown(&found));
}

#[test]
fn links_to_sources_name_a_function_of_the_file() {
    for (path, least) in [("docs/tour.md", 25), ("ARCHITECTURE.md", 15)] {
        let page = page(path);
        let found = unknown_names(&page, &|file| std::fs::read_to_string(root().join(file)).ok());
        assert!(found.is_empty(), "{}", shown(&found));
        let links = links_to_sources(&page);
        assert!(links >= least, "{path}: only {links} links to sources were found");
    }
}

/// The picture of the floors: a crate uses crates of lower floors, and crates to its left.
#[test]
fn the_floors_agree_with_the_arrows() {
    let text = page("ARCHITECTURE.md").text;
    let picture = text.split("```text\n").nth(1).expect("a picture");
    let picture = picture.split("```").next().expect("its end");
    let floors: Vec<Vec<&str>> = picture
        .lines()
        .rev()
        .map(|line| line.get(15..).unwrap_or_default().split_whitespace().collect())
        .collect();
    let place = |name: &str| {
        let found = floors.iter().enumerate().find_map(|(floor, names)| {
            let at = names.iter().position(|other| *other == name)?;
            Some((floor, at))
        });
        found.unwrap_or_else(|| panic!("{name} is not in the picture of the floors"))
    };
    for (folder, allowed) in ARROWS {
        if !folder.starts_with("crates/") && folder != "python" {
            continue;
        }
        let name = folder.rsplit('/').next().unwrap_or(folder);
        for used in allowed.split_whitespace() {
            assert!(
                place(used) < place(name),
                "{name} uses {used}, which stands above it or to its right"
            );
        }
        place(name);
    }
}

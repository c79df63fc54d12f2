//! The documentation of each published library opens like a book: questions of a reader with examples, and a map.

use std::path::PathBuf;

use super::{crates, read};

/// The folders of the published packages that have a library.
fn published_libraries() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = crates()
        .filter(|folder| folder.join("src/lib.rs").exists())
        .filter(|folder| !read(&folder.join("Cargo.toml")).contains("publish = false"))
        .collect();
    assert!(found.len() > 10, "only {} libraries were found", found.len());
    found
}

#[test]
fn every_front_page_answers_three_questions_with_checked_examples() {
    for folder in published_libraries() {
        let place = folder.display();
        let page = read(&folder.join("README.md"));
        let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
        let is_question = |section: &&&str| section.lines().next().is_some_and(|line| line.ends_with('?'));
        let questions: Vec<&&str> = sections.iter().filter(is_question).collect();
        assert_eq!(questions.len(), 3, "{place}: the questions of its README");
        for question in questions {
            let heading = question.lines().next().unwrap_or_default();
            let example = question.split("```").nth(1).unwrap_or_default();
            // One example needs a service on the network, so it is compiled alone.
            let checks = example.contains("assert") || example.starts_with("no_run");
            assert!(checks, "{place}: no checked example for \"{heading}\"");
        }
        assert!(
            page.matches("no_run").count() <= 1,
            "{place}: two examples never run"
        );
    }
}

#[test]
fn every_front_page_maps_the_public_modules() {
    for folder in published_libraries() {
        let text = read(&folder.join("src/lib.rs"));
        assert!(
            text.starts_with("#![doc = include_str!(\"../README.md\")]\n"),
            "{}: its documentation does not begin with its README",
            folder.display()
        );
        let map: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "//! # Map")
            .take_while(|line| line.starts_with("//!"))
            .collect();
        assert!(map.len() > 3, "{}: no map", folder.display());
        let mut hidden = false;
        for line in text.lines() {
            if let Some(module) = line
                .strip_prefix("pub mod ")
                .and_then(|rest| rest.strip_suffix(';'))
            {
                let is_mapped = map.iter().any(|row| row.contains(&format!("[`{module}`]")));
                assert!(
                    hidden || is_mapped,
                    "{}: the map lacks {module}",
                    folder.display()
                );
            }
            hidden = line == "#[doc(hidden)]";
        }
    }
}

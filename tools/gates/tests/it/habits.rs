//! Files that are neither code nor documentation of code agree with the rest of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{read, root};

/// Files with this ending below the root, without hidden folders and those of builds and runs.
pub(super) fn files(ending: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                let is_hidden = name.starts_with('.') && name != ".github";
                if !is_hidden && !["target", "runs", "dist", "node_modules"].contains(&name.as_str()) {
                    walk(&path, ending, found);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), ending, &mut found);
    found.sort();
    assert!(!found.is_empty(), "no file ends in {ending}");
    found
}

/// The lines of a table of a manifest, such as `[package]`, up to the next table.
fn table<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    manifest
        .lines()
        .skip_while(|line| *line != name)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .collect()
}

/// The text between quotes of the line `key = "text"`.
fn quoted<'a>(lines: &[&'a str], key: &str) -> Option<&'a str> {
    let line = lines
        .iter()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
    line.split('"').next()
}

/// Words between single backticks, outside of blocks of code.
fn code_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, block) in text.split("\n```").enumerate() {
        // Every second part is a block of code.
        if place % 2 == 0 {
            words.extend(block.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    words
}

/// The targets of links `[text](target)`.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The name by which a link reaches a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
        .collect::<String>();
    kept.replace(' ', "-")
}

/// The manifests of the workspace's crates, with their paths.
fn manifests() -> Vec<(PathBuf, String)> {
    let found = files("Cargo.toml")
        .into_iter()
        .map(|path| (path.clone(), read(&path)))
        .filter(|(_, text)| text.contains("version.workspace = true"))
        .collect::<Vec<_>>();
    assert!(found.len() > 5, "the workspace has {} crates", found.len());
    found
}

fn is_published(manifest: &str) -> bool {
    !table(manifest, "[package]").contains(&"publish = false")
}

fn workspace_version() -> String {
    let manifest = read(&root().join("Cargo.toml"));
    let package = table(&manifest, "[workspace.package]");
    quoted(&package, "version").expect("a version").to_owned()
}

#[test]
fn the_changelog_begins_with_the_workspace_s_version() {
    let changelog = read(&root().join("CHANGELOG.md"));
    let heading = changelog
        .lines()
        .find(|line| line.starts_with("## ") && *line != "## [Unreleased]")
        .expect("a version");
    let (version, date) = heading
        .strip_prefix("## [")
        .and_then(|rest| rest.split_once("] - "))
        .expect("a heading \"## [VERSION] - DATE\"");
    assert_eq!(version, workspace_version());
    let is_date = date.len() == 10 && date.chars().all(|c| c.is_ascii_digit() || c == '-');
    assert!(date == "Unreleased" || is_date, "{heading}");
    let citation = read(&root().join("CITATION.cff"));
    assert!(
        citation.contains(&format!("\nversion: {version}\n")),
        "CITATION.cff names another version"
    );
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut count = 0;
    for page in files(".md") {
        let text = read(&page);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                _ => page.parent().expect("a folder").join(path),
            };
            assert!(target.exists(), "{}: no {link}", page.display());
            let has_heading = || {
                let text = read(&target);
                text.lines()
                    .filter(|line| line.starts_with('#'))
                    .any(|line| anchor(line.trim_start_matches('#')) == heading)
            };
            assert!(
                heading.is_empty() || has_heading(),
                "{}: no heading {link}",
                page.display()
            );
            count += 1;
        }
    }
    assert!(count > 20, "only {count} links were found");
}

/// A row of a table that links to one source file names parts of it: `Type`, `function`, `CONSTANT`.
#[test]
fn names_beside_a_linked_source_file_occur_in_it() {
    let mut count = 0;
    for page in files(".md") {
        let text = read(&page);
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let links = links(row);
            let [link] = links.as_slice() else { continue };
            if !link.ends_with(".rs") {
                continue;
            }
            let source = read(&page.parent().expect("a folder").join(link));
            let is_name = |word: &&str| {
                let mut characters = word.chars();
                characters.all(|c| c.is_ascii_alphanumeric() || c == '_') && word.len() > 3
            };
            let words: std::collections::HashSet<&str> = source
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .collect();
            for name in row.split('`').skip(1).step_by(2).filter(is_name) {
                assert!(words.contains(name), "{}: {link} has no `{name}`", page.display());
                count += 1;
            }
        }
    }
    assert!(count > 50, "only {count} names were found");
}

#[test]
fn paths_that_documents_name_exist() {
    const FOLDERS: [&str; 9] = [
        ".ci/",
        ".github/",
        "crates/",
        "docs/",
        "examples/",
        "fuzz/",
        "lab/",
        "tools/",
        "vectors/",
    ];
    let mut count = 0;
    for page in files(".md") {
        if page.ends_with("CHANGELOG.md") {
            continue; // A changelog also names files that are gone.
        }
        for word in code_words(&read(&page)) {
            let path = word.split([' ', ':']).next().unwrap_or_default();
            let is_pattern = path.contains(['<', '*', '{', '$']);
            if !is_pattern && FOLDERS.iter().any(|folder| path.starts_with(folder)) {
                assert!(root().join(path).exists(), "{}: no {path}", page.display());
                count += 1;
            }
        }
    }
    assert!(count > 20, "only {count} paths were found");
}

#[test]
fn every_manifest_states_the_same_minimum_compiler() {
    let workspace = read(&root().join("Cargo.toml"));
    let pinned = quoted(&table(&workspace, "[workspace.package]"), "rust-version").expect("a version");
    for path in files("Cargo.toml") {
        let text = read(&path);
        let stated = ["[workspace.package]", "[package]"]
            .iter()
            .find_map(|name| quoted(&table(&text, name), "rust-version"));
        if let Some(stated) = stated {
            assert_eq!(stated, pinned, "{}", path.display());
        }
    }
    let readme = read(&root().join("README.md"));
    assert!(readme.contains(pinned), "README.md does not name Rust {pinned}");
}

#[test]
fn published_crates_say_what_a_registry_shows() {
    for (path, text) in manifests() {
        if !is_published(&text) {
            continue;
        }
        let place = path.display();
        let package = table(&text, "[package]");
        let has = |start: &str| package.iter().any(|line| line.starts_with(start));
        for key in [
            "description = \"",
            "license.workspace = true",
            "repository.workspace = true",
            "rust-version.workspace = true",
            "keywords = [\"",
            "categories = [\"",
        ] {
            assert!(has(key), "{place}: no {key}");
        }
        assert!(
            text.contains("\n[package.metadata.docs.rs]\n"),
            "{place}: no settings for docs.rs"
        );
        let readme = quoted(&package, "readme").unwrap_or_else(|| panic!("{place}: no readme"));
        assert!(
            path.parent().expect("a folder").join(readme).is_file(),
            "{place}: no {readme}"
        );
    }
}

/// `cargo binstall` takes the program from the archive of a release.
#[test]
fn the_place_of_an_archive_is_where_the_release_puts_it() {
    let dist = read(&root().join(".ci/dist"));
    for line in [
        "name=undertone-$version-$target\n",
        "cp \"$program\" README.md",
        "\"dist/$name\"\n",
        "-C dist \"$name\" | gzip -n >\"dist/$name.tar.gz\"\n",
    ] {
        assert!(dist.contains(line), ".ci/dist packs otherwise: {line}");
    }
    let manifest = read(&root().join("crates/cli/Cargo.toml"));
    let place = table(&manifest, "[package.metadata.binstall]");
    let name = "undertone-{ version }-{ target }";
    let file = format!("{{ repo }}/releases/download/v{{ version }}/{name}.tar.gz");
    assert_eq!(quoted(&place, "pkg-url"), Some(file.as_str()));
    assert_eq!(
        quoted(&place, "bin-dir"),
        Some(format!("{name}/{{ bin }}{{ binary-ext }}").as_str())
    );
    assert_eq!(quoted(&place, "pkg-fmt"), Some("tgz"));
}

#[test]
fn published_crates_use_published_crates_by_version() {
    let version = workspace_version();
    let root_manifest = read(&root().join("Cargo.toml"));
    let shared = table(&root_manifest, "[workspace.dependencies]");
    let manifests = manifests();
    let published: BTreeSet<&str> = manifests
        .iter()
        .filter(|(_, text)| is_published(text))
        .filter_map(|(_, text)| quoted(&table(text, "[package]"), "name"))
        .collect();
    assert!(!published.is_empty(), "no crate is published");
    for line in shared.iter().filter(|line| line.contains("path = \"")) {
        let (name, entry) = line.split_once(" = ").expect("a dependency");
        let is_versioned = entry.contains(&format!("version = \"{version}\""));
        assert_eq!(
            is_versioned,
            published.contains(name),
            "Cargo.toml: {name} needs the workspace's version if and only if it is published"
        );
    }
    for (path, text) in manifests.iter().filter(|(_, text)| is_published(text)) {
        for line in table(text, "[dependencies]") {
            let name = line.split(['.', ' ']).next().unwrap_or_default();
            if name == "undertone" || name.starts_with("undertone-") {
                assert!(
                    published.contains(name),
                    "{}: {name} is not published",
                    path.display()
                );
                assert!(
                    !line.contains("path ="),
                    "{}: {name} has a path of its own",
                    path.display()
                );
            }
        }
    }
}

/// The fuzz targets of every manifest that is made for `cargo fuzz`.
fn fuzz_targets() -> BTreeSet<String> {
    let mut targets = BTreeSet::new();
    for path in files("Cargo.toml") {
        let text = read(&path);
        if !text.contains("\ncargo-fuzz = true") {
            continue;
        }
        for block in text.split("[[bin]]").skip(1) {
            let lines = block.lines().collect::<Vec<_>>();
            let name = quoted(&lines, "name").expect("a name");
            let body = quoted(&lines, "path").expect("a path");
            assert!(
                path.parent().expect("a folder").join(body).is_file(),
                "{}: no {body}",
                path.display()
            );
            assert!(targets.insert(name.to_owned()), "two targets are named {name}");
        }
    }
    assert!(!targets.is_empty(), "no fuzz target was found");
    targets
}

#[test]
fn every_reader_of_hostile_input_names_its_fuzz_target() {
    let targets = fuzz_targets();
    let page = read(&root().join("SECURITY.md"));
    let rows: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("| input |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() > 3, "SECURITY.md has no table of inputs");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 4, "{row}");
        let named = code_words(cells[3]);
        assert!(!named.is_empty(), "{row}: no fuzz target");
        for name in named {
            // A reader without a target names the tests that stand in its place.
            let known = match cells[3].trim().starts_with("none; tests in ") {
                true => root().join(&name).is_file(),
                false => targets.contains(&name),
            };
            assert!(known, "SECURITY.md: no {name}");
        }
    }
    for target in &targets {
        assert!(
            page.contains(&format!("`{target}`")),
            "SECURITY.md does not name the target {target}"
        );
    }
}

#[test]
fn every_fuzz_target_runs_in_the_nightly_workflow() {
    let workflow = read(&root().join(".github/workflows/nightly.yml"));
    let named: BTreeSet<String> = workflow
        .split("        target:\n")
        .nth(1)
        .expect("a list of targets")
        .lines()
        .map_while(|line| line.strip_prefix("          - "))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, fuzz_targets());
}

#[test]
fn dependency_updates_cover_every_manifest_with_a_lock_of_its_own() {
    let settings = read(&root().join(".github/dependabot.yml"));
    for path in files("Cargo.toml") {
        if !read(&path).lines().any(|line| line == "[workspace]") {
            continue;
        }
        let folder = path.parent().expect("a folder");
        let folder = folder
            .strip_prefix(root())
            .expect("below the root")
            .to_string_lossy()
            .into_owned();
        assert!(
            settings.lines().any(|line| line.trim() == format!("- /{folder}")),
            "dependabot.yml leaves out /{folder}"
        );
    }
}

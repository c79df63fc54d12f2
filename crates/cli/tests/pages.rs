//! The commands and the code of the pages run as they stand there.
//!
//! Every fenced block of the README, the guides, the recipes, the reference and the design pages names its language. `sh` blocks of a
//! page run in one shell, in their order, in a folder of their own. `toml` and `json` blocks are written to the files that they name, or
//! read as settings of a run. A test of another language runs the other blocks, and this one checks that it names the page. A block
//! that cannot run here says why. `CONTRIBUTING.md` lists the words of a block.

#![cfg(unix)]

#[path = "pages/block.rs"]
mod block;
#[path = "pages/command_lines.rs"]
mod command_lines;
#[path = "pages/settings.rs"]
mod settings;
#[path = "pages/shell.rs"]
mod shell;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use block::{Block, Duty};

/// Reasons why a block is not run, each with its explanation.
const REASONS: [(&str, &str); 4] = [
    (
        "checks",
        "it builds the project or runs its own checks, as CI does",
    ),
    ("download", "it downloads packages or a repository"),
    (
        "service",
        "it needs a service of the reader, such as a verifier, a bucket or a collector",
    ),
    ("terminal", "it needs a terminal or a browser of the reader"),
];

/// Tests outside of this one that run the blocks of a page in a language, each with the word by which it names the page.
const ELSEWHERE: [(&str, &str, &str, &str); 14] = [
    (
        "docs/guide/use-a-model.md",
        "python",
        "python/tests/frameworks/test_onnx.py",
        "use-a-model.md",
    ),
    (
        "README.md",
        "python",
        "python/tests/test_docstrings.py",
        "README.md",
    ),
    (
        "python/README.md",
        "python",
        "python/tests/test_docstrings.py",
        "python/README.md",
    ),
    (
        "docs/guide/python.md",
        "python",
        "python/tests/test_docstrings.py",
        "docs/guide/python.md",
    ),
    (
        "docs/guide/python-runs.md",
        "python",
        "python/tests/test_docstrings.py",
        "docs/guide/python-runs.md",
    ),
    (
        "docs/guide/from-pytorch.md",
        "python",
        "python/tests/frameworks/test_recipes.py",
        "from-pytorch",
    ),
    (
        "docs/recipes/flower.md",
        "python",
        "python/tests/frameworks/test_recipes.py",
        "flower",
    ),
    (
        "docs/recipes/from-opacus.md",
        "python",
        "python/tests/frameworks/test_recipes.py",
        "from-opacus",
    ),
    (
        "docs/recipes/jax-privacy.md",
        "python",
        "python/tests/frameworks/test_recipes.py",
        "jax-privacy",
    ),
    (
        "docs/recipes/pfl.md",
        "python",
        "python/tests/frameworks/test_recipes.py",
        "pfl",
    ),
    (
        "docs/recipes/sql.md",
        "python",
        "python/tests/frameworks/test_recipes.py",
        "sql",
    ),
    (
        "docs/guide/embed-the-device.md",
        "c",
        "crates/cli/tests/it/embed.rs",
        "docs/guide/embed-the-device.md",
    ),
    (
        "docs/guide/embed-the-device.md",
        "python",
        "crates/cli/tests/it/embed.rs",
        "docs/guide/embed-the-device.md",
    ),
    (
        "docs/guide/embed-the-device.md",
        "kotlin",
        "crates/device-ffi/tests/it/kotlin.rs",
        "docs/guide/embed-the-device.md",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the root")
}

fn read(page: &str) -> String {
    let path = root().join(page);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All pages with blocks that a reader may copy.
fn pages() -> Vec<String> {
    let mut found: Vec<String> = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "ARCHITECTURE.md",
        "python/README.md",
    ]
    .map(str::to_owned)
    .to_vec();
    for folder in [
        "docs",
        "docs/design",
        "docs/guide",
        "docs/recipes",
        "docs/reference",
    ] {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder of pages") {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            if name.ends_with(".md") {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    found.sort();
    found
}

/// Runs a page after these commands, which bring what the page takes for granted.
fn check(page: &str, before: &str) {
    let blocks = block::blocks(page, &read(page));
    shell::run(page, before, &blocks);
}

/// One test per page, so that pages run beside each other, and the list of these pages.
macro_rules! pages {
    ($($name:ident: $page:literal, $before:literal;)*) => {
        const RUN_HERE: &[&str] = &[$($page),*];
        $(
            mod $name {
                #[test]
                #[ignore = "slow"]
                fn every_block_of_the_page_runs() {
                    super::check($page, $before);
                }
            }
        )*
    };
}

include!("pages/list.rs");

#[test]
fn every_block_runs_or_says_why_not() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |what: String| *counts.entry(what).or_default() += 1;
    let mut faults = Vec::new();
    for page in pages() {
        for block in block::blocks(&page, &read(&page)) {
            let place = block.place();
            let language = block.language.as_str();
            match block.duty() {
                Err(fault) => faults.push(format!("{place}: {fault}")),
                Ok(Duty::Show) => count(format!("{language}: shown only")),
                Ok(Duty::Leave(reason)) => match REASONS.iter().find(|(name, _)| *name == reason) {
                    Some((_, why)) => {
                        println!("{place}: not run, since {why}");
                        count(format!("{language}: not run ({reason})"));
                    }
                    None => faults.push(format!("{place}: `{reason}` is no reason of this test")),
                },
                Ok(Duty::Run) if RUN_HERE.contains(&page.as_str()) => count(format!("{language}: run here")),
                Ok(Duty::Run) => faults.push(format!(
                    "{place}: no test runs the page; add it to `pages/list.rs`"
                )),
                Ok(Duty::RunElsewhere) => {
                    let runner = ELSEWHERE
                        .iter()
                        .find(|entry| entry.0 == page && entry.1 == language);
                    match runner {
                        Some((_, _, test, word)) if read(test).contains(word) => {
                            count(format!("{language}: run by {test}"));
                        }
                        Some((_, _, test, word)) => {
                            faults.push(format!("{place}: {test} does not say `{word}`"));
                        }
                        None => faults.push(format!(
                            "{place}: no test runs blocks in `{language}` of this page"
                        )),
                    }
                }
            }
        }
    }
    for (what, count) in counts {
        println!("{count:4} {what}");
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_lists_of_reasons_and_of_other_tests_have_no_idle_entry() {
    let blocks: Vec<Block> = pages()
        .iter()
        .flat_map(|page| block::blocks(page, &read(page)))
        .collect();
    for (reason, _) in REASONS {
        let used = blocks.iter().any(|block| block.duty() == Ok(Duty::Leave(reason)));
        assert!(used, "no block gives the reason `{reason}`");
    }
    for (page, language, ..) in ELSEWHERE {
        let found = blocks
            .iter()
            .any(|block| block.page == page && block.language == language);
        assert!(found, "{page} has no block in `{language}`");
    }
    let contributing = read("CONTRIBUTING.md");
    for (reason, why) in REASONS {
        let line = format!("| `no-run={reason}` | {why} |");
        assert!(
            contributing.contains(&line),
            "CONTRIBUTING.md lacks the line: {line}"
        );
    }
}

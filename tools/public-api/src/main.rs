//! Compares the public items of the libraries that make a promise with the lists in `vectors/public-api`, or writes the lists.
//!
//! Such a library has `promise = true` in `[package.metadata.undertone]` of its manifest.
//!
//! `.ci/public-api` makes the JSON that rustdoc describes a library by, and calls this program with its folder.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use public_api::PublicApi;

/// The folder of the lists, from the root of the repository.
const LISTS: &str = "vectors/public-api";

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: undertone-public-api FOLDER [update], from the root of the repository";
    let folder = arguments.next().context(usage)?;
    let writes = match arguments.next().as_deref() {
        None => false,
        Some("update") => true,
        Some(other) => bail!("expected update, got {other:?}; {usage}"),
    };
    let libraries = promised_libraries(Path::new("crates"))?;
    let mut changes = Vec::new();
    for library in &libraries {
        let json = Path::new(&folder).join(format!("{}.json", library.replace('-', "_")));
        let new = public_items(&json)?;
        let path = Path::new(LISTS).join(format!("{library}.txt"));
        if writes {
            fs::write(&path, new).with_context(|| format!("writing {}", path.display()))?;
            continue;
        }
        let old = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let changed = difference(&old, &new);
        if !changed.is_empty() {
            changes.push(format!("{library}:\n{}\n", changed.join("\n")));
        }
    }
    if !changes.is_empty() {
        bail!(
            "public items changed; if that is wanted, `.ci/public-api update` writes the lists anew\n{}",
            changes.concat()
        );
    }
    #[expect(clippy::print_stdout, reason = "the outcome of the program")]
    {
        println!("{} libraries", libraries.len());
    }
    Ok(())
}

/// The names of the packages in a folder that make a promise.
fn promised_libraries(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path().join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let manifest: toml::Table = text
            .parse()
            .with_context(|| format!("reading {}", path.display()))?;
        let package = manifest.get("package").context("a manifest without [package]")?;
        let metadata = package.get("metadata").and_then(|all| all.get("undertone"));
        let promise = metadata.and_then(|own| own.get("promise"));
        if promise.and_then(toml::Value::as_bool) == Some(true) {
            let name = package.get("name").and_then(toml::Value::as_str);
            names.insert(
                name.with_context(|| format!("{}: no name", path.display()))?
                    .to_owned(),
            );
        }
    }
    if names.is_empty() {
        bail!("{}: no package makes a promise", folder.display());
    }
    Ok(names)
}

/// The public items of a library, one per line, without the implementations that every type has or that a derive makes.
fn public_items(json: &Path) -> Result<String> {
    let items: PublicApi = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| format!("reading {}", json.display()))?;
    Ok(items.items().map(|item| format!("{item}\n")).collect())
}

/// The lines that one of two lists lacks: `-` before those that are gone, `+` before new ones.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = before.difference(&after).map(|line| format!("- {line}"));
    let added = after.difference(&before).map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_item_is_one_that_is_gone_and_one_that_is_new() {
        assert_eq!(
            difference("pub fn a::x()\npub fn a::y()\n", "pub fn a::x()\npub fn a::z()\n"),
            ["- pub fn a::y()", "+ pub fn a::z()"]
        );
        assert!(difference("pub mod a\n", "pub mod a\n").is_empty());
    }

    #[test]
    fn the_packages_of_the_product_with_a_promise_are_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let libraries = promised_libraries(&root.join("crates")).expect("packages");
        assert!(libraries.contains("undertone-accounting") && !libraries.contains("undertone-run"));
        assert!(promised_libraries(&root.join("crates/accounting/src")).is_err());
    }
}

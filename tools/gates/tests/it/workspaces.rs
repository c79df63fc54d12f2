//! The laboratory is a workspace of its own, and builds with the versions, lints and compiler of the product.

use toml::{Table, Value};

use super::manifest;

/// A dependency as a table: its version, features and flags. Of a package of ours nothing but the name is left, since its path differs.
fn requirement(name: &str, value: &Value) -> Value {
    if name.starts_with("undertone") {
        return Value::Table(Table::new());
    }
    match value {
        Value::String(version) => Value::Table(Table::from_iter([(
            "version".to_owned(),
            Value::from(version.as_str()),
        )])),
        other => other.clone(),
    }
}

/// The tables of one workspace that differ from those of another, a line per finding.
fn differences(product: &Table, other: &Table) -> Vec<String> {
    let of = |manifest: &Table, key: &str| manifest["workspace"].get(key).cloned();
    let mut found = Vec::new();
    for key in ["lints", "resolver"] {
        if of(product, key) != of(other, key) {
            found.push(format!("workspace.{key} differs"));
        }
    }
    for key in ["version", "edition", "rust-version", "license"] {
        if product["workspace"]["package"][key] != other["workspace"]["package"][key] {
            found.push(format!("workspace.package.{key} differs"));
        }
    }
    let table = |manifest: &Table| manifest["workspace"]["dependencies"].as_table().cloned();
    let (ours, theirs) = (
        table(product).unwrap_or_default(),
        table(other).unwrap_or_default(),
    );
    for (name, value) in &theirs {
        if let Some(expected) = ours.get(name)
            && requirement(name, expected) != requirement(name, value)
        {
            found.push(format!("{name}: expected {expected}, got {value}"));
        }
    }
    found
}

#[test]
fn the_laboratory_asks_for_the_versions_of_the_product() {
    let found = differences(&manifest("."), &manifest("lab"));
    assert!(found.is_empty(), "lab/Cargo.toml:\n{}", found.join("\n"));
}

#[test]
fn another_version_lint_or_compiler_is_found() {
    let product = manifest(".");
    let mut other = manifest("lab");
    other["workspace"]["dependencies"]["clap"] = Value::from("3");
    other["workspace"]["package"]["rust-version"] = Value::from("1.80");
    other["workspace"]["lints"]["clippy"]["todo"] = Value::from("warn");
    let found = differences(&product, &other);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[2].starts_with("clap: expected"), "{found:?}");
}

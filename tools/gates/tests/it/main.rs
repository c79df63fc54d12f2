//! The gates, asked about the whole tree.

use std::path::{Path, PathBuf};

use undertone_gates::{Finding, Source, impurities, noise_outside_of_the_head, planted_errors, printing};

mod binaries;
mod circles;
mod documents;
mod expectations;
mod fail_points;
mod formulas;
mod front_pages;
mod gpu_word;
mod habits;
mod language;
mod links;
mod lists;
mod mutants;
mod promises;
mod rooms;
mod test_names;
mod workspaces;

/// Every package with the packages of ours that it may use, as ARCHITECTURE.md says.
const ARROWS: [(&str, &str); 40] = [
    ("crates/simd", ""),
    ("crates/present", ""),
    ("crates/text", ""),
    ("crates/settings", "present text"),
    ("crates/accounting", "simd"),
    ("crates/mechanisms", "simd accounting"),
    ("crates/vocabulary", "text settings accounting mechanisms"),
    ("crates/planner", "present accounting mechanisms"),
    ("crates/aggregation", "simd accounting mechanisms"),
    ("crates/gpu-sum", "aggregation"),
    ("crates/secagg", "aggregation"),
    ("crates/data", "text settings accounting mechanisms vocabulary"),
    ("crates/models", "aggregation"),
    ("crates/local", "text settings mechanisms aggregation models"),
    ("crates/gpu", "text settings aggregation gpu-sum models local"),
    (
        "crates/coordinator",
        "present text settings accounting mechanisms aggregation secagg models",
    ),
    (
        "crates/run-directory",
        "present text settings accounting mechanisms vocabulary aggregation secagg models coordinator",
    ),
    (
        "crates/audit",
        "present settings accounting mechanisms coordinator run-directory",
    ),
    (
        "crates/verify",
        "present text settings accounting mechanisms vocabulary aggregation secagg models coordinator \
         run-directory audit",
    ),
    (
        "crates/run",
        "present text settings accounting mechanisms vocabulary aggregation gpu-sum secagg data models \
         local gpu coordinator run-directory audit verify",
    ),
    (
        "crates/report",
        "present coordinator run-directory audit verify run",
    ),
    (
        "crates/studies",
        "present settings accounting mechanisms vocabulary aggregation data models local coordinator \
         run-directory audit verify run report",
    ),
    (
        "crates/undertone",
        "text accounting coordinator run-directory verify run report",
    ),
    ("crates/protocol", ""),
    ("crates/store", "accounting coordinator protocol"),
    (
        "crates/device",
        "text settings accounting mechanisms aggregation secagg models local protocol",
    ),
    ("crates/device-c", "protocol device"),
    (
        "crates/service",
        "text accounting mechanisms aggregation secagg models coordinator run-directory protocol store",
    ),
    (
        "crates/operate",
        "present text settings accounting mechanisms aggregation models local coordinator run-directory \
         verify protocol store service",
    ),
    (
        "crates/fleet",
        "settings mechanisms secagg data models coordinator run-directory verify run protocol store \
         device service operate",
    ),
    (
        "crates/cli",
        "present text settings accounting mechanisms vocabulary planner data coordinator run-directory \
         audit verify run report studies undertone protocol store device device-c service operate fleet",
    ),
    (
        "python",
        "present settings accounting mechanisms vocabulary aggregation secagg data models coordinator \
         run-directory verify run report cli",
    ),
    ("crates/device-ffi", "protocol device"),
    ("tools/conformance", "accounting mechanisms aggregation models"),
    (
        "lab",
        "simd present settings accounting mechanisms aggregation secagg data models local coordinator \
         run-directory verify run report studies protocol store device service operate fleet conformance",
    ),
    (
        "tools/service-testing",
        "secagg coordinator run-directory verify protocol store device service fleet",
    ),
    (
        "tools/hostile",
        "settings accounting mechanisms vocabulary data models coordinator run-directory verify run \
         report studies protocol store device service operate service-testing",
    ),
    ("tools/gates", ""),
    (
        "lab/gpu-check",
        "text settings aggregation gpu-sum models local gpu",
    ),
    ("fuzz", "aggregation secagg hostile"),
];

/// Crates that do no I/O, read no clock and own no randomness.
const PURE: [&str; 11] = [
    "simd",
    "present",
    "text",
    "settings",
    "accounting",
    "mechanisms",
    "aggregation",
    "secagg",
    "models",
    "coordinator",
    "protocol",
];

fn root() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the folder of tools");
    tools.parent().expect("the root").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()))
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The folders of the crates.
fn crates() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(root().join("crates")).expect("crates");
    entries.map(|entry| entry.expect("an entry").path())
}

/// The name of a folder.
fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).expect("a name")
}

/// The product files of a folder, parsed: those of tests are left out.
fn parsed(folder: &Path) -> Vec<Source> {
    let is_test = |file: &PathBuf| {
        let below = file.strip_prefix(folder).expect("a file of the folder");
        below
            .iter()
            .any(|part| ["tests", "tests.rs"].iter().any(|tests| part == *tests))
    };
    let files = sources(folder).into_iter().filter(|file| !is_test(file));
    files.map(|file| Source::parse(&file, &read(&file))).collect()
}

/// Findings, one per line.
fn shown(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n{finding}")).collect()
}

/// The names of our own packages in a table of dependencies, without the prefix.
fn own(manifest: &toml::Table, table: &str) -> Vec<String> {
    let Some(table) = manifest.get(table).and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    let names = table.keys().filter_map(|name| name.strip_prefix("undertone"));
    names
        .map(|name| name.strip_prefix('-').unwrap_or("undertone").to_owned())
        .collect()
}

fn manifest(folder: &str) -> toml::Table {
    read(&root().join(folder).join("Cargo.toml"))
        .parse()
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
}

#[test]
fn arrows_point_one_way() {
    for (place, (folder, allowed)) in ARROWS.iter().enumerate() {
        let manifest = manifest(folder);
        let is_allowed = |used: &str| allowed.split(' ').any(|name| name == used);
        for used in own(&manifest, "dependencies") {
            assert!(is_allowed(&used), "{folder} must not use {used}");
            let below = ARROWS[..place].iter().any(|(other, _)| other.ends_with(&used));
            assert!(
                below,
                "{folder} uses {used}, which does not stand above it in the table"
            );
        }
        for used in own(&manifest, "dev-dependencies") {
            // The tests of a crate may use what the crate may use, and the packages for tests.
            assert!(
                ["hostile", "service-testing"].contains(&used.as_str()) || is_allowed(&used),
                "the tests of {folder} must not use {used}"
            );
        }
    }
}

#[test]
fn no_package_of_the_product_depends_on_the_lab() {
    for (folder, _) in ARROWS.iter().filter(|(folder, _)| folder.starts_with("crates/")) {
        let manifest = manifest(folder);
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            assert!(!own(&manifest, table).contains(&"lab".to_owned()), "{folder}");
        }
    }
}

/// Devices and services embed these crates, so what they link must stay small and pure.
#[test]
#[ignore = "slow"]
fn the_inner_crates_link_no_files_threads_of_others_or_terminals() {
    const FORBIDDEN: [&str; 9] = [
        "parquet",
        "arrow",
        "plotters",
        "tokio",
        "clap",
        "tempfile",
        "memmap2",
        "mpi",
        "tokenizers",
    ];
    for name in PURE.into_iter().chain(["local"]) {
        let output = std::process::Command::new(env!("CARGO"))
            .args("tree -e normal --offline --locked --prefix none -p".split(' '))
            .arg(format!("undertone-{name}"))
            .current_dir(root())
            .output()
            .expect("cargo tree");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(
            output.status.success() && text.starts_with(&format!("undertone-{name} ")),
            "cargo tree of {name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for line in text.lines() {
            let used = line.split_whitespace().next().unwrap_or_default();
            let part = used.split('-').next().unwrap_or_default();
            // The library safetensors brings it; models never writes a file.
            let is_known = ["models", "local", "coordinator"].contains(&name) && part == "tempfile";
            assert!(is_known || !FORBIDDEN.contains(&part), "{name} links {used}");
        }
    }
}

/// A release without the checks of a round, or noise on one path of a driver only, cannot be written: outside of `mechanisms` the
/// noise is called in one file, and that file is called by the head of a run alone.
#[test]
fn the_head_is_the_only_caller_of_the_noise() {
    let folders = crates().map(|folder| folder.join("src"));
    let mut calls = Vec::new();
    for folder in folders.chain([root().join("python/src")]) {
        if folder.ends_with("mechanisms/src") {
            continue;
        }
        calls.extend(parsed(&folder).iter().flat_map(noise_outside_of_the_head));
    }
    let (head, others): (Vec<Finding>, Vec<Finding>) = calls
        .into_iter()
        .filter(|call| !call.path.ends_with("coordinator/src/noise.rs"))
        .partition(|call| call.path.ends_with("coordinator/src/head.rs"));
    assert!(others.is_empty(), "{}", shown(&others));
    for name in [
        ".privatize()",
        ".privatize_bits()",
        ".privatize_residues()",
        ".skip()",
    ] {
        let count = head.iter().filter(|call| call.what == name).count();
        assert_eq!(count, 1, "{name} in the head: {}", shown(&head));
    }
}

#[test]
fn every_crate_is_on_the_map() {
    let map = read(&root().join("ARCHITECTURE.md"));
    for folder in crates() {
        let name = name_of(&folder);
        let folder = format!("crates/{name}");
        assert!(
            ARROWS.iter().any(|(known, _)| *known == folder),
            "{name} is not in ARROWS"
        );
        assert!(
            map.contains(&format!("| `{name}` |")),
            "{name} is not in ARCHITECTURE.md"
        );
    }
}

#[test]
fn the_privacy_core_reads_nothing_and_prints_nothing() {
    let folders = PURE
        .iter()
        .map(|name| root().join("crates").join(name).join("src"));
    let found: Vec<Finding> = folders
        .flat_map(|folder| parsed(&folder))
        .flat_map(|source| impurities(&source))
        .collect();
    assert!(found.is_empty(), "{}", shown(&found));
}

/// Errors of privacy are planted in a copy of the tree, by `lab/mutants/mutants.toml`.
#[test]
fn no_error_is_planted_in_the_product() {
    let sources = crates().flat_map(|folder| parsed(&folder.join("src")));
    let found: Vec<Finding> = sources.flat_map(|source| planted_errors(&source)).collect();
    assert!(found.is_empty(), "{}", shown(&found));
}

/// Vector instructions, memory shared by threads, mapped files, signals and the border to C need unsafe code; nothing else does.
#[test]
fn crates_without_unsafe_code_forbid_it() {
    for folder in crates() {
        let library = folder.join("src/lib.rs");
        let unsafe_code = [
            "simd",
            "models",
            "aggregation",
            "gpu-sum",
            "gpu",
            "data",
            "cli",
            "device-c",
            "device-ffi",
            "planner",
        ];
        if unsafe_code.iter().any(|name| folder.ends_with(name)) {
            continue;
        }
        let source = Source::parse(&library, &read(&library));
        let forbids = source.file.attrs.iter().any(|attribute| {
            attribute.path().is_ident("forbid")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|lint| lint.is_ident("unsafe_code"))
        });
        assert!(forbids, "{}", library.display());
    }
}

#[test]
fn one_file_prints() {
    // What was read from a file is escaped in `output.rs`, before a terminal could obey it.
    let sources = parsed(&root().join("crates/cli/src"));
    let others = sources
        .iter()
        .filter(|source| !source.path.ends_with("src/output.rs"));
    let found: Vec<Finding> = others.flat_map(printing).collect();
    assert!(found.is_empty(), "{}", shown(&found));
}

#[test]
fn every_dependency_is_justified() {
    let page = read(&root().join("docs/design/dependencies.md"));
    let tables = [
        ("Cargo.toml", "[workspace.dependencies]"),
        ("lab/Cargo.toml", "[workspace.dependencies]"),
    ];
    for (file, table) in tables {
        let manifest = read(&root().join(file));
        let table = manifest.split(table).nth(1).expect("the table");
        let table = table.split("\n[").next().expect("its end");
        let names = table
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, _)| name);
        for name in names.filter(|name| !name.starts_with("undertone")) {
            assert!(
                page.contains(&format!("`{name}`")),
                "{name} of {file} has no line in docs/design/dependencies.md"
            );
        }
    }
}

/// The names that a tree of `use` brings.
fn names_of(tree: &syn::UseTree) -> usize {
    match tree {
        syn::UseTree::Path(path) => names_of(&path.tree),
        syn::UseTree::Group(group) => group.items.iter().map(names_of).sum(),
        syn::UseTree::Name(_) | syn::UseTree::Rename(_) => 1,
        syn::UseTree::Glob(_) => panic!("the facade names what it shows"),
    }
}

#[test]
fn the_facade_has_at_most_sixteen_names() {
    let path = root().join("crates/undertone/src/lib.rs");
    let names: usize = Source::parse(&path, &read(&path))
        .file
        .items
        .iter()
        .map(|item| match item {
            syn::Item::Use(item) if matches!(item.vis, syn::Visibility::Public(_)) => names_of(&item.tree),
            syn::Item::Mod(item) if matches!(item.vis, syn::Visibility::Public(_)) => 1,
            syn::Item::Fn(item) if matches!(item.vis, syn::Visibility::Public(_)) => 1,
            syn::Item::Struct(item) if matches!(item.vis, syn::Visibility::Public(_)) => 1,
            syn::Item::Enum(item) if matches!(item.vis, syn::Visibility::Public(_)) => 1,
            syn::Item::Type(item) if matches!(item.vis, syn::Visibility::Public(_)) => 1,
            _ => 0,
        })
        .sum();
    assert!((10..=16).contains(&names), "the facade has {names} names");
}

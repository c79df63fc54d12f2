//! The architecture's invariants that the compiler does not check.

use std::path::{Path, PathBuf};

use undertone_coordinator::task::Seeding;

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/fail_points.rs"]
mod fail_points;
#[path = "tidy/front_pages.rs"]
mod front_pages;
#[path = "tidy/habits.rs"]
mod habits;
#[path = "tidy/lists.rs"]
mod lists;
#[path = "tidy/test_names.rs"]
mod test_names;

/// Every package with the packages of ours that it may use, as ARCHITECTURE.md says.
const ARROWS: [(&str, &str); 32] = [
    ("crates/simd", ""),
    ("crates/present", ""),
    ("crates/text", ""),
    ("crates/accounting", "simd"),
    ("crates/mechanisms", "simd accounting"),
    ("crates/planner", "present accounting mechanisms"),
    ("crates/aggregation", "simd accounting mechanisms"),
    ("crates/device-sum", "aggregation"),
    ("crates/secagg", "aggregation"),
    ("crates/data", "text accounting mechanisms"),
    ("crates/models", "simd aggregation"),
    ("crates/local", "text mechanisms aggregation models"),
    ("crates/gpu", "text aggregation device-sum models local"),
    (
        "crates/coordinator",
        "present text accounting mechanisms aggregation secagg models local",
    ),
    (
        "crates/run",
        "present text accounting mechanisms aggregation device-sum secagg models local gpu coordinator \
         data",
    ),
    ("crates/report", "present coordinator run"),
    (
        "crates/studies",
        "present accounting mechanisms aggregation models local coordinator data run report",
    ),
    ("crates/undertone", "accounting coordinator run report"),
    ("crates/protocol", ""),
    ("crates/store", "accounting coordinator protocol"),
    (
        "crates/device",
        "accounting text mechanisms aggregation secagg models local protocol",
    ),
    ("crates/device-c", "protocol device"),
    (
        "crates/service",
        "present text accounting mechanisms aggregation secagg models local coordinator run protocol \
         store",
    ),
    (
        "crates/fleet",
        "data mechanisms secagg models local coordinator run protocol store device service",
    ),
    (
        "crates/cli",
        "undertone protocol store device device-c service fleet present accounting data mechanisms \
         planner coordinator run report studies",
    ),
    ("crates/query", "present data"),
    (
        "python",
        "present accounting mechanisms aggregation secagg models data coordinator run report",
    ),
    ("crates/device-ffi", "protocol device"),
    (
        "lab",
        "simd present accounting mechanisms aggregation secagg data models local coordinator run \
         report protocol store device service fleet studies",
    ),
    (
        "tools/hostile",
        "accounting mechanisms data models coordinator run report studies protocol store device \
         service",
    ),
    ("tools/gpu-check", "text aggregation device-sum models local gpu"),
    ("fuzz", "aggregation secagg hostile"),
];

/// Crates that do no I/O, read no clock and own no randomness.
const PURE: [&str; 10] = [
    "simd",
    "present",
    "text",
    "accounting",
    "mechanisms",
    "aggregation",
    "secagg",
    "models",
    "coordinator",
    "protocol",
];

const IMPURE: [&str; 7] = [
    "std::fs",
    "std::net",
    "std::env::var",
    "std::process",
    "std::time",
    "getrandom",
    "println!",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
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

/// Source lines before the file's tests, without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .filter(|line| !line.trim_start().starts_with("//"))
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
            // The tests of a crate may use what the crate may use, and the hostile inputs.
            assert!(
                used == "hostile" || is_allowed(&used),
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
    let names = [
        ".privatize(",
        ".privatize_bits(",
        ".privatize_residues(",
        ".skip(self.round",
        "client_noise())",
    ];
    for folder in [
        "coordinator",
        "run",
        "report",
        "studies",
        "undertone",
        "cli",
        "local",
    ] {
        for file in sources(&root().join("crates").join(folder).join("src")) {
            let text = read(&file);
            for line in code(&text) {
                // A release without noise promises nothing: pre-training on public text.
                let found = names.iter().any(|name| line.contains(name)) && !line.contains("NonPrivate.");
                let is_known =
                    file.ends_with("coordinator/src/noise.rs") || file.ends_with("coordinator/src/head.rs");
                assert!(!found || is_known, "{}: {line}", file.display());
            }
        }
    }
    let callers = ["noise.privatize(", "noise.privatize_bits("];
    let head = read(&root().join("crates/coordinator/src/head.rs"));
    for caller in callers {
        assert_eq!(
            code(&head).filter(|line| line.contains(caller)).count(),
            1,
            "{caller}"
        );
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
    for name in PURE {
        for file in sources(&root().join("crates").join(name).join("src")) {
            let tests = ["tests", "tests.rs"]
                .iter()
                .any(|part| file.iter().any(|component| component == *part));
            // Planted errors are behind a feature that no program has.
            if tests || file.ends_with("mechanisms/src/fault.rs") {
                continue;
            }
            let text = read(&file);
            for line in code(&text) {
                for word in IMPURE {
                    assert!(!line.contains(word), "{}: {line}", file.display());
                }
            }
        }
    }
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
            "device-sum",
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
        assert!(
            code(&read(&library)).any(|line| line == "#![forbid(unsafe_code)]"),
            "{}",
            library.display()
        );
    }
}

#[test]
fn one_file_prints() {
    // What was read from a file is escaped in `output.rs`, before a terminal could obey it.
    for file in sources(&root().join("crates/cli/src")) {
        if file.ends_with("src/output.rs") {
            continue;
        }
        let text = read(&file);
        for line in code(&text) {
            for word in ["println!", "eprintln!", "print!(", "stdout()", "with_writer(std"] {
                assert!(!line.contains(word), "{}: {line}", file.display());
            }
        }
    }
}

#[test]
fn every_dependency_is_justified() {
    let page = read(&root().join("docs/design/dependencies.md"));
    let tables = [
        ("Cargo.toml", "[workspace.dependencies]"),
        ("crates/query/Cargo.toml", "[dependencies]"),
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

#[test]
fn the_facade_has_at_most_sixteen_names() {
    let text = read(&root().join("crates/undertone/src/lib.rs"));
    let names: usize = code(&text)
        .map(|line| {
            if line.starts_with("pub use") {
                // One name for each comma, and the last one; a path has none.
                line.matches(',').count() + 1
            } else {
                usize::from(line.starts_with("pub "))
            }
        })
        .sum();
    assert!((10..=16).contains(&names), "the facade has {names} names");
}

#[test]
fn example_run_files_are_valid() {
    let entries = std::fs::read_dir(root().join("examples")).expect("examples");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    for path in paths.filter(|path| path.is_file()) {
        // Lists of words are no settings, and the floors of a device are read by the tests of its command.
        let name = path.to_string_lossy();
        if !name.ends_with(".toml") || name.ends_with("-floors.toml") {
            continue;
        }
        let read = if read(&path).contains("\n[service]\n") {
            undertone_run::task::read(&path, &[], Seeding::Refused).map(drop)
        } else if read(&path).contains("\n[training]\n") {
            undertone_run::pretrain::PretrainFile::read(&path, &[]).map(drop)
        } else if read(&path).contains("\n[timers]\n") {
            undertone_studies::simulate::SimulationFile::read(&path, &[]).map(drop)
        } else {
            undertone_run::config::RunFile::read(&path, &[]).map(drop)
        };
        read.unwrap_or_else(|error| panic!("{error}"));
    }
    for entry in std::fs::read_dir(root().join("examples/sweeps")).expect("sweeps") {
        let path = entry.expect("an entry").path();
        undertone_studies::sweep::Sweep::read(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
}

//! Fail points kill a process by name, so no program of a release may have them.

use std::collections::BTreeSet;

use super::{ARROWS, manifest, read, root};

/// The features that a table of dependencies switches on, by package.
fn features(manifest: &toml::Table, table: &str) -> Vec<(String, String)> {
    let Some(table) = manifest.get(table).and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    let each = |(name, value): (&String, &toml::Value)| {
        let listed = value.get("features").and_then(toml::Value::as_array);
        let listed = listed.into_iter().flatten();
        let features = listed.filter_map(|feature| Some((name.clone(), feature.as_str()?.to_owned())));
        features.collect::<Vec<_>>()
    };
    table.iter().flat_map(each).collect()
}

#[test]
fn only_tests_switch_fail_points_on() {
    let mut tests = BTreeSet::new();
    for (folder, _) in ARROWS {
        let manifest = manifest(folder);
        for table in ["dependencies", "build-dependencies"] {
            for (package, feature) in features(&manifest, table) {
                assert_ne!(feature, "failpoints", "{folder} switches them on in {package}");
            }
        }
        let found = features(&manifest, "dev-dependencies");
        if found.iter().any(|(_, feature)| feature == "failpoints") {
            tests.insert(folder);
        }
        // A feature that switches them on is named as they are, and is no default.
        let own = manifest.get("features").and_then(toml::Value::as_table);
        for (name, others) in own.into_iter().flatten() {
            let others = others
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(toml::Value::as_str);
            let switches = |other: &str| other.ends_with("failpoints");
            assert!(
                name == "failpoints" || !others.into_iter().any(switches),
                "{folder}: the feature {name} switches them on"
            );
        }
    }
    assert_eq!(tests, BTreeSet::from(["crates/fleet"]));
}

#[test]
#[ignore = "slow"]
fn no_program_is_built_with_fail_points() {
    let tree = |edges: &str, package: &str| {
        let output = std::process::Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "--locked",
                "--prefix",
                "none",
                "-e",
                edges,
                "-p",
                package,
            ])
            .current_dir(root())
            .output()
            .expect("cargo tree");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let text = tree("normal,build,features", "undertone-cli");
    assert!(
        text.contains("undertone-service feature") && text.contains("undertone-store "),
        "{text}"
    );
    assert!(!text.contains("failpoints"), "the program has fail points");
    // The tests of the fleet have them, so the search above would find them.
    let text = tree("normal,build,dev,features", "undertone-fleet");
    assert!(text.contains("failpoints"));
}

/// The bytes of a program that was built for a release, where `UNDERTONE_RELEASED` names one. A build for tests may have fail points.
#[test]
fn a_released_program_names_no_fail_point() {
    let Some(path) = std::env::var_os("UNDERTONE_RELEASED") else {
        eprintln!("skipped: UNDERTONE_RELEASED names no program");
        return;
    };
    let program = std::fs::read(&path).expect("the program");
    let has = |text: &str| {
        program
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    // A word of the service, so this is the program.
    assert!(has("its ledger composes with this one"));
    let source = read(&root().join("crates/store/src/failpoint.rs"));
    let variable = "UNDERTONE_FAIL_POINT";
    assert!(source.contains(variable));
    for text in [variable, "release.reserved", "commit: after the head"] {
        assert!(!has(text), "{} contains {text:?}", path.display());
    }
}

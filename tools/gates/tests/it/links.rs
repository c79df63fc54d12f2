//! The packages that a program links: few, and none of those that it has no use for.

use super::root;

/// A build, and what it may link.
struct Build {
    /// The package and its features, for cargo.
    arguments: &'static str,
    /// The package that must be in the listing.
    package: &'static str,
    /// Packages that it must not link.
    forbidden: &'static [&'static str],
    /// Max number of packages that it links.
    most: usize,
}

/// A stranger who verifies a run links nothing that trains or reads people's text.
const VERIFIER: Build = Build {
    arguments: "-p undertone-verify",
    package: "undertone-verify",
    forbidden: &[
        "undertone-run",
        "undertone-local",
        "undertone-data",
        "undertone-gpu",
        "undertone-gpu-sum",
        "parquet",
        "tokenizers",
        "mpi",
    ],
    most: 115,
};

/// The first build of a newcomer compiles what a first run needs.
const LIGHT: Build = Build {
    arguments: "-p undertone-cli --no-default-features",
    package: "undertone-cli",
    forbidden: &[
        "parquet",
        "tokenizers",
        "regex",
        "tokio",
        "rustls",
        "rusqlite",
        "zstd",
        "undertone-service",
        "undertone-gpu",
    ],
    most: 185,
};

/// The packages of a listing by `cargo tree --prefix none`, each once.
fn packages(listing: &str) -> Vec<&str> {
    let mut names: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The packages that a build must not link.
fn forbidden<'a>(build: &Build, names: &[&'a str]) -> Vec<&'a str> {
    names
        .iter()
        .copied()
        .filter(|name| build.forbidden.contains(name))
        .collect()
}

#[track_caller]
fn check(build: &Build) {
    let output = std::process::Command::new(env!("CARGO"))
        .args("tree -e normal --offline --locked --prefix none".split(' '))
        .args(build.arguments.split(' '))
        .current_dir(root())
        .output()
        .expect("cargo tree");
    let listing = String::from_utf8(output.stdout).expect("UTF-8");
    let names = packages(&listing);
    assert!(
        output.status.success() && names.contains(&build.package),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (arguments, most) = (build.arguments, build.most);
    assert_eq!(
        forbidden(build, &names),
        Vec::<&str>::new(),
        "{arguments} links them"
    );
    assert!(
        names.len() <= most,
        "{arguments} links {} packages, at most {most}: {names:?}",
        names.len()
    );
}

#[test]
fn the_verifier_links_no_trainer_and_no_reader_of_text() {
    check(&VERIFIER);
}

#[test]
fn the_light_build_links_no_service_no_tables_and_no_tokenizers() {
    check(&LIGHT);
}

#[test]
fn a_forbidden_package_is_found_by_its_whole_name() {
    let listing = "undertone-verify v0.2.0 (/x)\nundertone-run-directory v0.2.0 (/x)\nparquet v60.0.0\nparquet v60.0.0 (*)\n";
    let names = packages(listing);
    assert_eq!(names.len(), 3);
    assert_eq!(forbidden(&VERIFIER, &names), ["parquet"]);
}

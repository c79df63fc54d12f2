//! A stranger who verifies a run links nothing that trains or reads people's text.

use super::root;

/// Packages that read text, train, or need a machine of their own.
const FORBIDDEN: [&str; 8] = [
    "undertone-run",
    "undertone-local",
    "undertone-data",
    "undertone-gpu",
    "undertone-gpu-sum",
    "parquet",
    "tokenizers",
    "mpi",
];

/// Max number of packages that the verifier links.
const MOST: usize = 115;

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

/// The packages that a verifier must not link.
fn forbidden<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names
        .iter()
        .copied()
        .filter(|name| FORBIDDEN.contains(name))
        .collect()
}

#[test]
fn the_verifier_links_no_trainer_and_no_reader_of_text() {
    let output = std::process::Command::new(env!("CARGO"))
        .args("tree -e normal --offline --locked --prefix none -p undertone-verify".split(' '))
        .current_dir(root())
        .output()
        .expect("cargo tree");
    let listing = String::from_utf8(output.stdout).expect("UTF-8");
    let names = packages(&listing);
    assert!(
        output.status.success() && names.contains(&"undertone-verify"),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(forbidden(&names), Vec::<&str>::new(), "the verifier links them");
    assert!(
        names.len() <= MOST,
        "the verifier links {} packages, at most {MOST}: {names:?}",
        names.len()
    );
}

#[test]
fn a_forbidden_package_is_found_by_its_whole_name() {
    let listing = "undertone-verify v0.2.0 (/x)\nundertone-run-directory v0.2.0 (/x)\nparquet v60.0.0\nparquet v60.0.0 (*)\n";
    let names = packages(listing);
    assert_eq!(names.len(), 3);
    assert_eq!(forbidden(&names), ["parquet"]);
}

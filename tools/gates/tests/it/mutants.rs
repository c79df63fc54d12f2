//! Planted errors stand in a table, and fit the code.

use undertone_gates::Mutants;

use super::{read, root};

#[test]
fn every_mutant_still_applies() {
    let mutants = Mutants::parse(&read(&root().join("lab/mutants/mutants.toml"))).expect("a table");
    assert_eq!(
        mutants.mutants.len(),
        32,
        "a mutant that lost its sense is replaced"
    );
    let problems = mutants.problems(&root());
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

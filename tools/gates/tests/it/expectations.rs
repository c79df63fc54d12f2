//! Errors that say what is needed.

use undertone_gates::empty_expectations;

use super::{crates, parsed, shown};

#[test]
fn every_error_says_what_it_expects() {
    let sources: Vec<_> = crates().map(|folder| parsed(&folder.join("src"))).collect();
    let found = empty_expectations(&sources);
    assert!(found.is_empty(), "{}", shown(&found));
}

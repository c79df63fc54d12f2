//! Long functions of the numerical crates say by a formula what each of their loops computes.

use undertone_gates::{Finding, loops_without_formulas};

use super::{parsed, root, shown};

/// Crates whose loops are arithmetic.
const NUMERICAL: [&str; 8] = [
    "simd",
    "accounting",
    "mechanisms",
    "aggregation",
    "secagg",
    "models",
    "local",
    "gpu",
];

#[test]
fn loops_are_argued() {
    let folders = NUMERICAL.map(|name| root().join("crates").join(name).join("src"));
    let sources = folders.iter().flat_map(|folder| parsed(folder));
    // The GPU's part of the transformer leaves the product.
    let found: Vec<Finding> = sources
        .flat_map(|source| loops_without_formulas(&source))
        .collect();
    assert!(found.is_empty(), "{}", shown(&found));
}

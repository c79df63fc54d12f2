//! Gates of the repository: rules of the architecture that the compiler does not check.
//!
//! Each gate is a function from parsed sources or pages to findings. Its tests plant a violation below a line `#[cfg(test)] mod tests;`, which a
//! reader of lines would take for the end of the file, and a near miss that is right. `tests/it` asks each gate about the whole tree.
//!
//! The package uses no package of the product, so it is built in seconds.

#![forbid(unsafe_code)]

mod calls;
mod circles;
mod documents;
mod expectations;
mod formulas;
mod gpu_word;
mod module;
mod mutants;
mod promises;
mod purity;
mod reference;
mod source;

pub use calls::{noise_outside_of_the_head, planted_errors, printing};
pub use circles::{Circle, circles};
pub use documents::{
    ARCHITECTURE_WORDS, CHANGELOG_LINES, Page, README_WORDS, links_to_sources, misplaced_invariants,
    unknown_names,
};
pub use expectations::empty_expectations;
pub use formulas::loops_without_formulas;
pub use gpu_word::devices;
pub use module::{Module, read_crate};
pub use mutants::{Edit, Mutant, Mutants};
pub use promises::{INTERNAL, PROMISED, Package, broken_promises};
pub use purity::impurities;
pub use source::{Finding, Source};

#[cfg(test)]
mod testing;

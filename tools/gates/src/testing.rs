//! Sources of tests.

use std::path::Path;

use crate::Source;

/// A line at which a reader of lines would stop.
pub(crate) const TESTS: &str = "#[cfg(test)]\nmod tests;\n";

pub(crate) fn source(text: &str) -> Source {
    Source::parse(Path::new("src/a.rs"), text)
}

/// The lines of findings.
pub(crate) fn lines(findings: &[crate::Finding]) -> Vec<usize> {
    findings.iter().map(|finding| finding.line).collect()
}

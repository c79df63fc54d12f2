//! Helpers of tests: texts that must hold parts, and tables of cases in text.

/// Asserts that a text contains every part of a list such as `one ... two`.
#[track_caller]
pub(crate) fn contains(text: &str, parts: &str) {
    for part in parts.split(" ... ") {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

/// The lines of a table that start with `$`, each with the line below it.
pub(crate) fn cases(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    std::iter::from_fn(move || {
        let line = lines.next()?.strip_prefix('$').expect("a line of `$`").trim();
        Some((line, lines.next().expect("a line below")))
    })
}

//! Helpers of tests: texts that must hold parts.

/// Asserts that a text contains every part of a list such as `one ... two`.
#[track_caller]
pub(crate) fn contains(text: &str, parts: &str) {
    for part in parts.split(" ... ") {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

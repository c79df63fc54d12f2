//! Places in a text, for errors.

/// Names the place of a byte of a text, such as `line 3, column 5`, or `None` where no character starts there.
///
/// # Example
/// ```
/// assert_eq!(undertone_present::place("one\ntwo", 5).as_deref(), Some("line 2, column 2"));
/// ```
#[must_use]
pub fn place(text: &str, byte: usize) -> Option<String> {
    let before = text.get(..byte)?;
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    Some(format!("line {line}, column {column}"))
}

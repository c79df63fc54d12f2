//! The answers of `undertone account`, as a caller of the crate sees them.

mod sampled;
mod statements;

use serde_json::Value;

/// The document and the text of an answer to a question after `account`.
fn answered(question: &str) -> (Value, String) {
    let words = format!("account {question}");
    let shown = crate::answer(words.split(' ')).unwrap_or_else(|error| panic!("{question}: {error:#}"));
    (serde_json::from_str(&shown.json).expect("JSON"), shown.text)
}

/// The error of a question after `account`.
fn refused(question: &str) -> String {
    let words = format!("account {question}");
    match crate::answer(words.split(' ')) {
        Ok(shown) => panic!("{question}: {}", shown.text),
        Err(error) => format!("{error:#}"),
    }
}

//! Errors of vocabularies and texts. The caller knows the name of the file and adds it.

/// Result of this crate's functions.
pub type Result<T, E = TextError> = std::result::Result<T, E>;

/// The reason why a vocabulary or a text cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A line of a list of words holds something else than a word.
    #[error("line {line}: word: expected {expected}, got {got}")]
    BadWord {
        /// The line, from 1.
        line: u64,
        /// A description of a usable word.
        expected: String,
        /// The text found, shortened.
        got: String,
    },
    /// A list of words holds a word twice.
    #[error(
        "line {line}: the word {} is already listed on line {first_line}",
        quoted(word)
    )]
    DuplicateWord {
        /// The line of the second occurrence.
        line: u64,
        /// The line of the first occurrence.
        first_line: u64,
        /// The word.
        word: String,
    },
    /// A list of words is empty.
    #[error("expected words, got an empty list")]
    NoWords,
    /// A file is not a usable tokenizer.
    #[error("not a usable tokenizer: {}", shortened(detail, 4 * SHOWN))]
    BadTokenizer {
        /// A description of the fault.
        detail: String,
    },
    /// A tokenizer gave up on a text, because it has no id for a part of it and none for unknown text.
    #[error("the tokenizer cannot encode the text: {}", shortened(detail, 4 * SHOWN))]
    Untokenisable {
        /// The message of the tokenizer.
        detail: String,
    },
}

/// Maximum number of characters of a file's own text in a message.
const SHOWN: usize = 80;

/// Text of a file for a message: one line of at most 80 characters, with control characters escaped.
#[must_use]
pub fn short(text: &str) -> String {
    shortened(text, SHOWN)
}

/// The text of [`short`] in quotation marks.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", short(text))
}

/// One line of at most `max` characters of a text, with control characters escaped.
#[must_use]
pub fn shortened(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for (number, letter) in text.chars().enumerate() {
        if number == max {
            shown.push('…');
            break;
        }
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

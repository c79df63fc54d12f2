//! The bytes of vocabulary files: lists of words and tokenizers.

use std::path::Path;

use undertone_text::{TextError, Vocab};

use crate::error::{Result, VocabularyError};

/// Reads the bytes of a list of words by [`Vocab::from_words`]; `path` only names them in errors.
///
/// # Errors
/// [`VocabularyError::DuplicateWord`]; [`VocabularyError::BadValue`] for a line that holds no usable word;
/// [`VocabularyError::Empty`].
pub fn parse_words(path: &Path, bytes: &[u8]) -> Result<Vocab> {
    Vocab::from_words(bytes).map_err(|error| in_file(path, error))
}

/// Reads the bytes of a tokenizer by `Vocab::from_tokenizer`; `path` only names them in errors.
///
/// # Errors
/// [`VocabularyError::BadTokenizer`], and for each file without the feature `subwords`.
pub fn parse_tokenizer(path: &Path, bytes: Vec<u8>, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
    #[cfg(feature = "subwords")]
    return Vocab::from_tokenizer(bytes, bos, eos).map_err(|error| in_file(path, error));
    #[cfg(not(feature = "subwords"))]
    {
        let _ = (bytes, bos, eos);
        let detail = "this build cuts text into words alone; the complete one reads tokenizers: `cargo install --path crates/cli`";
        Err(VocabularyError::BadTokenizer {
            path: path.to_owned(),
            detail: detail.to_owned(),
        })
    }
}

/// Reads the ids of the bytes of a tokenizer by [`Vocab::from_tokens`]; `path` only names them in errors. The vocabulary cuts no text.
///
/// # Errors
/// [`VocabularyError::BadTokenizer`].
pub fn parse_tokens(path: &Path, bytes: Vec<u8>, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
    Vocab::from_tokens(bytes, bos, eos).map_err(|error| in_file(path, error))
}

/// The error of a text with the name of its file.
fn in_file(path: &Path, error: TextError) -> VocabularyError {
    let path = path.to_owned();
    match error {
        TextError::BadWord { line, expected, got } => VocabularyError::BadValue {
            file: path,
            line,
            expected,
            got,
        },
        TextError::DuplicateWord {
            line,
            first_line,
            word,
        } => VocabularyError::DuplicateWord {
            file: path,
            line,
            first_line,
            word,
        },
        TextError::NoWords => VocabularyError::Empty { path },
        TextError::BadTokenizer { detail } => VocabularyError::BadTokenizer { path, detail },
        other => VocabularyError::BadTokenizer {
            path,
            detail: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_and_the_line() {
        let check = |text: &[u8], expected: &str| {
            let error = parse_words(Path::new("v.txt"), text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} lacks {expected}");
        };
        check(
            b"the\nto\nof\nto\n",
            "v.txt, line 4: the word \"to\" is already listed on line 2",
        );
        check(
            b"the\na word\n",
            "v.txt, line 2: word: expected one word per line, got \"a word\"",
        );
        check(b"\n \n", "v.txt holds no words");
        check(
            b"a\nb\x1b[2J\n",
            "v.txt, line 2: word: expected a word without control characters, got \"b\\u{1b}[2J\"",
        );
        let error = parse_tokens(Path::new("t.json"), b"{".to_vec(), None, None).unwrap_err();
        assert!(
            error.to_string().starts_with("t.json is not a usable tokenizer"),
            "{error}"
        );
    }
}

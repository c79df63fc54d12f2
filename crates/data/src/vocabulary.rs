//! Files of vocabularies: lists of words and tokenizers.

use std::path::Path;

use undertone_text::{TextError, Vocab};

use crate::error::{DataError, Place, Result, bad_value, empty};
use crate::file;
use crate::limits::MAX_VOCABULARY_BYTES;
use crate::path::expand;
use undertone_settings::{CorpusSpec, VocabularySpec};

/// Reads a list of words of at most 64 MiB: one word per line, most frequent first.
///
/// # Errors
/// The errors of [`parse_words`]; [`DataError::TooLarge`]; [`DataError::Io`].
pub fn read_words(path: &Path) -> Result<Vocab> {
    parse_words(
        path,
        &file::read_bounded(path, MAX_VOCABULARY_BYTES, "read the vocabulary")?,
    )
}

/// Reads the bytes of a list of words by [`Vocab::from_words`]; `path` only names them in errors.
///
/// # Errors
/// [`DataError::DuplicateWord`]; [`DataError::BadValue`] for a line that holds no usable word; [`DataError::Empty`].
pub fn parse_words(path: &Path, bytes: &[u8]) -> Result<Vocab> {
    Vocab::from_words(bytes).map_err(|error| in_file(path, error))
}

/// Reads a tokenizer of at most 64 MiB by [`Vocab::from_tokenizer`].
///
/// # Errors
/// [`DataError::BadTokenizer`]; [`DataError::TooLarge`]; [`DataError::Io`].
pub fn read_tokenizer(path: &Path, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
    let bytes = file::read_bounded(path, MAX_VOCABULARY_BYTES, "read the tokenizer")?;
    parse_tokenizer(path, bytes, bos, eos)
}

/// Reads the bytes of a tokenizer by [`Vocab::from_tokenizer`]; `path` only names them in errors.
///
/// # Errors
/// [`DataError::BadTokenizer`].
pub fn parse_tokenizer(path: &Path, bytes: Vec<u8>, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
    Vocab::from_tokenizer(bytes, bos, eos).map_err(|error| in_file(path, error))
}

/// The error of a text with the name of its file.
fn in_file(path: &Path, error: TextError) -> DataError {
    match error {
        TextError::BadWord { line, expected, got } => {
            bad_value(path, Place::Line(line), "word", expected, got)
        }
        TextError::DuplicateWord {
            line,
            first_line,
            word,
        } => DataError::DuplicateWord {
            file: path.to_owned(),
            line,
            first_line,
            word,
        },
        TextError::NoWords => empty(path, "words"),
        TextError::BadTokenizer { detail } => DataError::BadTokenizer {
            path: path.to_owned(),
            detail,
        },
        other => DataError::BadTokenizer {
            path: path.to_owned(),
            detail: other.to_string(),
        },
    }
}

/// The words or tokens of the file that the settings of a corpus name, relative to `base`; `None` where a run counts its words. No text
/// of the corpus is opened.
///
/// # Errors
/// Those of [`read_words`] and [`read_tokenizer`]; a variable in the path that is not set.
pub fn vocabulary_in_file(spec: &CorpusSpec, base: &Path) -> Result<Option<Vocab>> {
    let place = |path: &str| expand("data.vocabulary.path", path, base);
    let found = match &spec.vocabulary {
        Some(VocabularySpec::File { path } | VocabularySpec::Private { path }) => {
            Some(read_words(&place(path)?)?)
        }
        Some(VocabularySpec::Tokenizer { path, bos, eos }) => {
            Some(read_tokenizer(&place(path)?, bos.as_deref(), eos.as_deref())?)
        }
        Some(VocabularySpec::PublicCorpus { .. } | VocabularySpec::TrainingData { .. }) | None => None,
    };
    Ok(found.map(|vocab| vocab.with_rule(spec.words)))
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
        let error = parse_tokenizer(Path::new("t.json"), b"{".to_vec(), None, None).unwrap_err();
        assert!(
            error.to_string().starts_with("t.json is not a usable tokenizer"),
            "{error}"
        );
    }
}

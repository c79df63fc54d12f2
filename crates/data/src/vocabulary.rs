//! Files of vocabularies: lists of words and tokenizers.

use std::path::Path;

use undertone_text::Vocab;
use undertone_vocabulary::{parse_tokenizer, parse_words};

use crate::error::Result;
use crate::file;
use crate::limits::MAX_VOCABULARY_BYTES;
use crate::path::expand;
use undertone_settings::{CorpusSpec, VocabularySpec};

/// Reads a list of words of at most 64 MiB: one word per line, most frequent first.
///
/// # Errors
/// The errors of [`parse_words`]; [`DataError::TooLarge`](crate::DataError::TooLarge); [`DataError::Io`](crate::DataError::Io).
pub fn read_words(path: &Path) -> Result<Vocab> {
    let bytes = file::read_bounded(path, MAX_VOCABULARY_BYTES, "read the vocabulary")?;
    Ok(parse_words(path, &bytes)?)
}

/// Reads a tokenizer of at most 64 MiB by [`Vocab::from_tokenizer`].
///
/// # Errors
/// The errors of [`parse_tokenizer`]; [`DataError::TooLarge`](crate::DataError::TooLarge); [`DataError::Io`](crate::DataError::Io).
pub fn read_tokenizer(path: &Path, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
    let bytes = file::read_bounded(path, MAX_VOCABULARY_BYTES, "read the tokenizer")?;
    Ok(parse_tokenizer(path, bytes, bos, eos)?)
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

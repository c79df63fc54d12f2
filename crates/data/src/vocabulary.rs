//! Files of vocabularies: lists of words and tokenizers.

use std::path::Path;

use undertone_text::{Vocab, VocabProvenance};
use undertone_vocabulary::{parse_tokenizer, parse_words};

use crate::error::Result;
use crate::file;
use crate::limits::MAX_VOCABULARY_BYTES;
use crate::path::expand;
use crate::spec::{CorpusSpec, VocabularySpec};

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

impl CorpusSpec {
    /// The words or tokens of the file that the specification names, relative to `base_dir`; `None` where a run counts its words. No text
    /// of the corpus is opened.
    ///
    /// # Errors
    /// Those of [`read_words`] and [`read_tokenizer`]; a variable in the path that is not set.
    pub fn vocabulary_in_file(&self, base_dir: &Path) -> Result<Option<Vocab>> {
        let place = |path: &str| expand("data.vocabulary.path", path, base_dir);
        let found = match &self.vocabulary {
            Some(VocabularySpec::File { path } | VocabularySpec::Private { path }) => {
                Some(read_words(&place(path)?)?)
            }
            Some(VocabularySpec::Tokenizer { path, bos, eos }) => {
                Some(read_tokenizer(&place(path)?, bos.as_deref(), eos.as_deref())?)
            }
            Some(VocabularySpec::PublicCorpus { .. } | VocabularySpec::TrainingData { .. }) | None => None,
        };
        Ok(found.map(|vocab| vocab.with_rule(self.words)))
    }

    /// The origin of the words, as far as the specification says it.
    #[must_use]
    pub fn vocabulary_provenance(&self) -> VocabProvenance {
        match &self.vocabulary {
            Some(VocabularySpec::File { .. } | VocabularySpec::Tokenizer { .. }) => VocabProvenance::File,
            Some(VocabularySpec::Private { .. }) => VocabProvenance::Private,
            Some(VocabularySpec::PublicCorpus { .. }) => VocabProvenance::PublicCorpus,
            Some(VocabularySpec::TrainingData { .. }) => VocabProvenance::TrainingData,
            None => VocabProvenance::Synthetic,
        }
    }
}

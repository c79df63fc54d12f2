//! The record of a file that was made from people's text: `FILE.privacy.json`.
//!
//! Words that were chosen with a guarantee have a [`PrivateVocabulary`] there. All other files that a command makes from people's text
//! have a [`MadeFromPeople`], which says that they are not private. Readers believe the record rather than the settings.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use undertone_text::Vocab;

use crate::error::{Result, VocabularyError};
use crate::private::PrivateVocabulary;

/// The end of the name of a privacy record, after the name of the file that it speaks of.
pub const RECORD_SUFFIX: &str = ".privacy.json";

/// Maximum number of sources that a record names.
const MAX_SOURCES: usize = 1000;

const VERSION: u32 = 1;
const MECHANISM: &str = "none";
const GUARANTEE: &str = "not private";

/// The content of a file with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MadeKind {
    /// A list of words.
    Words,
    /// A tokenizer.
    Tokenizer,
    /// A table or a folder of texts.
    Text,
}

/// The record of a file that was made from people's text without a guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeFromPeople {
    version: u32,
    /// `"none"`, where the record of private words names the mechanism.
    mechanism: String,
    kind: MadeKind,
    /// `"not private"`.
    guarantee: String,
    /// The public names of the texts.
    sources: Vec<String>,
    /// SHA-256 of the words or the tokenizer; a text has none, since it may be large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl MadeFromPeople {
    fn new(kind: MadeKind, mut sources: Vec<String>, sha256: Option<String>) -> Self {
        sources.sort_unstable();
        sources.dedup();
        sources.truncate(MAX_SOURCES);
        Self {
            version: VERSION,
            mechanism: MECHANISM.to_owned(),
            kind,
            guarantee: GUARANTEE.to_owned(),
            sources,
            sha256,
        }
    }

    /// The record of words or of a tokenizer that were made from these sources.
    #[must_use]
    pub fn words(vocab: &Vocab, sources: Vec<String>) -> Self {
        let kind = match vocab.file_name().ends_with(".json") {
            true => MadeKind::Tokenizer,
            false => MadeKind::Words,
        };
        Self::new(kind, sources, Some(vocab.digest()))
    }

    /// The record of a text that was made from these sources.
    #[must_use]
    pub fn text(sources: Vec<String>) -> Self {
        Self::new(MadeKind::Text, sources, None)
    }

    /// The public names of the texts that the file was made from.
    #[must_use]
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// `true` if the record is that of these words, in this order.
    #[must_use]
    pub fn matches(&self, vocab: &Vocab) -> bool {
        self.sha256.as_ref() == Some(&vocab.digest())
    }

    /// The content of the file of the record.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain data with string keys serialises.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    fn check(&self) -> Result<(), String> {
        let wrong =
            |key: &str, expected: &str, got: &str| Err(format!("{key}: expected {expected}, got {got:?}"));
        let is_digest = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if self.version != VERSION {
            return wrong("version", "1", &self.version.to_string());
        }
        if self.guarantee != GUARANTEE {
            return wrong("guarantee", "\"not private\"", &self.guarantee);
        }
        if self.sources.len() > MAX_SOURCES {
            return wrong("sources", "at most 1000 names", &self.sources.len().to_string());
        }
        match self
            .sources
            .iter()
            .chain(&self.sha256)
            .find(|text| !is_digest(text))
        {
            Some(text) => wrong("sources and sha256", "64 hexadecimal digits each", text),
            None => Ok(()),
        }
    }
}

/// The record of a file: the cost of words that were chosen with a guarantee, or that the file is not private.
#[derive(Debug, Clone, PartialEq)]
pub enum FileRecord {
    /// Words that were chosen with a guarantee.
    Chosen(PrivateVocabulary),
    /// A file that was made from people's text without a guarantee.
    NotPrivate(MadeFromPeople),
}

impl FileRecord {
    /// Checks the bytes of a record; `path` only names them in errors.
    ///
    /// # Errors
    /// [`VocabularyError::BadPrivacyRecord`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Mechanism {
            mechanism: String,
        }
        let bad = |detail: String| VocabularyError::BadPrivacyRecord {
            path: path.to_owned(),
            detail,
        };
        let Mechanism { mechanism } =
            serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        if mechanism != MECHANISM {
            return PrivateVocabulary::parse(path, bytes).map(Self::Chosen);
        }
        let record: MadeFromPeople = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        record.check().map_err(bad)?;
        Ok(Self::NotPrivate(record))
    }
}

/// Path of the record of a file or folder: beside it, with `.privacy.json` appended to its name.
#[must_use]
pub fn record_path(path: &Path) -> PathBuf {
    // A path that ends in a slash has the record inside its folder otherwise.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(RECORD_SUFFIX);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(digit: &str) -> String {
        digit.repeat(64)
    }

    #[test]
    fn a_record_that_does_not_fit_is_an_error() {
        let path = Path::new("words.txt.privacy.json");
        let honest = MadeFromPeople::text(vec![name("b")]).to_json();
        assert!(FileRecord::parse(path, honest.as_bytes()).is_ok());
        for (old, new, expected) in [
            ("\"version\": 1", "\"version\": 2", "version: expected 1"),
            ("not private", "public", "guarantee: expected \"not private\""),
            (&name("b"), "short", "64 hexadecimal digits"),
            ("\"kind\"", "\"kinds\"", "unknown field `kinds`"),
            ("\"none\"", "\"other\"", "unknown field"),
            ("\"none\"", "7", "invalid type"),
        ] {
            let text = honest.replace(old, new);
            let error = FileRecord::parse(path, text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} lacks {expected}");
            assert!(error.contains("words.txt.privacy.json"), "{error}");
        }
    }

    #[test]
    fn a_record_stands_beside_its_file_or_folder() {
        for path in ["a/words.txt", "a/words.txt/"] {
            assert_eq!(
                record_path(Path::new(path)),
                Path::new("a/words.txt.privacy.json")
            );
        }
    }
}

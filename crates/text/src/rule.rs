//! The rules by which text is cut into sentences and words.

use serde::{Deserialize, Serialize};

use crate::tokenize;
#[cfg(feature = "unicode-name")]
use crate::unicode;

/// A rule of sentences and words: `words` in the tables `[data]` and `[text]`, in signed plans and in the headers of models.
///
/// A model reads text by the rule that it was trained with. A file that names none has the rule of English, for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WordRule {
    /// The rule of the first versions, for English in ASCII: only a capital letter from A to Z opens a sentence.
    #[default]
    English,
    /// The rule for every language, by the properties of Unicode. Text in ASCII is cut as by the rule of English.
    ///
    /// Without the feature `unicode-name` of this crate the rule is not known, and a plan that names it is refused. Without the feature
    /// `unicode` it is a name, by which no text can be cut.
    #[cfg(feature = "unicode-name")]
    Unicode,
}

impl WordRule {
    /// The rule that finds examples in most languages, of those that this build knows.
    pub const BROADEST: Self = {
        #[cfg(feature = "unicode")]
        let rule = Self::Unicode;
        #[cfg(not(feature = "unicode"))]
        let rule = Self::English;
        rule
    };

    /// `true` for the rule of a file that names none.
    #[must_use]
    pub fn is_english(&self) -> bool {
        *self == Self::English
    }

    /// The name of the rule in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::English => "english",
            #[cfg(feature = "unicode-name")]
            Self::Unicode => "unicode",
        }
    }

    /// Calls `sentence` with every sentence of a text.
    pub fn sentences<'a>(self, text: &'a str, sentence: impl FnMut(&'a str)) {
        match self {
            Self::English => tokenize::sentences(text, sentence),
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::sentences(text, sentence),
        }
    }

    /// The sentence that a text ends in; empty where the text ends between two sentences.
    #[must_use]
    pub fn open_sentence(self, text: &str) -> &str {
        match self {
            Self::English => tokenize::open_sentence(text),
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::open_sentence(text),
        }
    }

    /// Calls `word` with every word of a sentence. `scratch` is reused between calls.
    pub fn words(self, sentence: &str, scratch: &mut String, word: impl FnMut(&str)) {
        match self {
            Self::English => tokenize::words(sentence, scratch, word),
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::words(sentence, scratch, word),
        }
    }

    /// The first letters of a word as the words of a vocabulary spell them.
    #[must_use]
    pub fn spelled(self, begun: &str) -> String {
        match self {
            Self::English => begun.to_lowercase(),
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::spelled(begun).to_string(),
        }
    }

    /// Number of pieces of a text between white space. By the rule of Unicode, a stretch of a script without spaces counts its words.
    #[must_use]
    pub fn pieces(self, text: &str) -> u64 {
        match self {
            Self::English => text.split_whitespace().count() as u64,
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::pieces(text),
        }
    }

    /// `true` for characters of prose: letters, and by the rule of Unicode also the marks that combine with them and punctuation beyond
    /// ASCII, which no code has.
    #[must_use]
    pub fn is_prose(self, c: char) -> bool {
        match self {
            Self::English => c.is_alphabetic(),
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::is_prose(c),
        }
    }

    /// `true` if a space stands between two neighbouring words of a sentence.
    #[must_use]
    pub fn is_spaced(self, before: &str, after: &str) -> bool {
        match self {
            Self::English => {
                let _ = (before, after);
                true
            }
            #[cfg(feature = "unicode-name")]
            Self::Unicode => unicode::is_spaced(before, after),
        }
    }
}

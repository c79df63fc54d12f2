//! Words, or sub-word tokens, and their ids.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Result, TextError, quoted};
use crate::limits::MAX_VOCABULARY_WORDS;
use crate::rule::WordRule;
use crate::special::SpecialIds;
#[cfg(feature = "subwords")]
use crate::subwords::Subwords;
use crate::tokens::{Tokens, bad, file};

/// The origin of a vocabulary, which decides whether it may be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VocabProvenance {
    /// A file the user of the program brought; that it is public is the user's claim.
    File,
    /// Counted on a corpus declared public.
    PublicCorpus,
    /// Counted on the people's text itself.
    TrainingData,
    /// Chosen from the people's text with differential privacy, at the cost that its
    /// `PrivateVocabulary` record states.
    Private,
    /// The word list of the synthetic process.
    Synthetic,
}

impl VocabProvenance {
    /// Returns `true` if releasing the words costs no privacy. It is `false` for words counted on the training text, and for words
    /// chosen privately, whose cost a run has to compose.
    ///
    /// # Guarantee
    /// For [`VocabProvenance::File`] and [`VocabProvenance::PublicCorpus`] this rests on the claim that the words were not
    /// chosen by looking at the training users' text.
    #[must_use]
    pub fn is_private_safe(self) -> bool {
        // PRIVACY: a word list counted on the training users depends on each of them without noise; one chosen privately
        // depends on them as little as its record says, which is not nothing.
        !matches!(self, VocabProvenance::TrainingData | VocabProvenance::Private)
    }
}

impl fmt::Display for VocabProvenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VocabProvenance::File => "file",
            VocabProvenance::PublicCorpus => "public corpus",
            VocabProvenance::TrainingData => "training data (not private)",
            VocabProvenance::Private => "training data (private, at the cost in its record)",
            VocabProvenance::Synthetic => "synthetic process",
        })
    }
}

/// Words with ids (UNK, BOS, EOS, then words from 3, most frequent first), or the tokens of a tokenizer with its own.
///
/// Cloning a tokenizer is cheap, cloning a word list is not.
#[derive(Clone)]
pub struct Vocab {
    units: Units,
    provenance: VocabProvenance,
    rule: WordRule,
}

#[derive(Clone)]
enum Units {
    Words {
        words: Vec<Box<str>>,
        ids: HashMap<Box<str>, u32>,
    },
    Tokens {
        tokens: Arc<Tokens>,
        /// The library that cuts text, unless the ids alone were read.
        #[cfg(feature = "subwords")]
        subwords: Option<Subwords>,
    },
}

impl fmt::Debug for Vocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocab")
            .field("file_name", &self.file_name())
            .field("len", &self.len())
            .field("provenance", &self.provenance)
            .finish()
    }
}

const SPECIAL: [&str; 3] = SpecialIds::NAMES;

const UNK: u32 = 0;

impl Vocab {
    /// Name under which a run directory keeps a word list, with one word per line.
    pub const WORDS_FILE: &'static str = "vocab.txt";
    /// Name under which a run directory keeps a tokenizer.
    pub const TOKENIZER_FILE: &'static str = "tokenizer.json";

    /// A vocabulary of distinct words, most frequent first. A repeated word keeps its first id only. Bytes of a file are read by
    /// [`Vocab::from_words`], which reports repetitions.
    #[must_use]
    pub fn new(words: Vec<Box<str>>, provenance: VocabProvenance) -> Vocab {
        let mut ids = HashMap::with_capacity(words.len());
        for (id, word) in (SpecialIds::FIRST_WORD..).zip(&words) {
            ids.entry(word.clone()).or_insert(id);
        }
        Vocab {
            units: Units::Words { words, ids },
            provenance,
            rule: WordRule::English,
        }
    }

    /// Reads the bytes of a Hugging Face `tokenizer.json`, of the parts that `docs/guide/data-tools.md` lists. Truncation and padding that
    /// it asks for are left out, and text that spells a special token is text.
    ///
    /// `bos` and `eos` are the tokens that stand for the start and the end of a text (one may be both, as in GPT-2). Without them
    /// the usual names are looked for among the added tokens: `<bos>`, `<s>`, `[CLS]`, `<|endoftext|>` and similar ones.
    ///
    /// # Errors
    /// [`TextError::BadTokenizer`] for another kind of file, for other parts and for missing special tokens.
    #[cfg(feature = "subwords")]
    pub fn from_tokenizer(bytes: Vec<u8>, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
        let (tokens, subwords) = Subwords::parse(json(bytes)?, bos, eos)?;
        Ok(Vocab::of(Units::Tokens {
            tokens: Arc::new(tokens),
            subwords: Some(subwords),
        }))
    }

    /// Reads the ids and the names of the tokens of a `tokenizer.json`, those of `Vocab::from_tokenizer`, without the library that cuts
    /// text. [`encode`](Self::encode) and [`decode`](Self::decode) are errors. Parts that only cut or rewrite text are not judged.
    ///
    /// # Errors
    /// [`TextError::BadTokenizer`] for another kind of file, for a model or added tokens that cannot be used, and for missing special
    /// tokens.
    pub fn from_tokens(bytes: Vec<u8>, bos: Option<&str>, eos: Option<&str>) -> Result<Vocab> {
        Ok(Vocab::of(Units::Tokens {
            tokens: Arc::new(Tokens::parse(json(bytes)?, bos, eos)?),
            #[cfg(feature = "subwords")]
            subwords: None,
        }))
    }

    /// The units of a file, cut by the rule of English.
    fn of(units: Units) -> Vocab {
        Vocab {
            units,
            provenance: VocabProvenance::File,
            rule: WordRule::English,
        }
    }

    /// Reads one word per line, most frequent first: at most [`MAX_VOCABULARY_WORDS`] words. Text after a tab (a count) is ignored,
    /// and so are empty lines.
    ///
    /// # Errors
    /// [`TextError::DuplicateWord`]; [`TextError::BadWord`] for white space or a control character inside a word, a word that
    /// tokenising cannot produce because it has capitals, a reserved word, or too many words; [`TextError::NoWords`].
    pub fn from_words(bytes: &[u8]) -> Result<Vocab> {
        let bad = |line: u64, expected: &str, got: String| TextError::BadWord {
            line,
            expected: expected.to_owned(),
            got,
        };
        let mut words: Vec<Box<str>> = Vec::new();
        let mut ids: HashMap<Box<str>, u32> = HashMap::new();
        let mut lines: Vec<u64> = Vec::new();
        for (line, text) in (1_u64..).zip(bytes.split(|&byte| byte == b'\n')) {
            let text = std::str::from_utf8(text).map_err(|_| bad(line, "UTF-8", "other bytes".to_owned()))?;
            let text = text
                .strip_prefix('\u{feff}')
                .filter(|_| line == 1)
                .unwrap_or(text);
            let word = text.split('\t').next().unwrap_or("").trim();
            if word.is_empty() {
                continue;
            }
            if word.contains(char::is_whitespace) {
                return Err(bad(line, "one word per line", quoted(word)));
            }
            if word.contains(char::is_control) {
                return Err(bad(line, "a word without control characters", quoted(word)));
            }
            if words.len() == MAX_VOCABULARY_WORDS {
                let expected = format!("at most {MAX_VOCABULARY_WORDS} words");
                return Err(bad(line, &expected, "more".to_owned()));
            }
            if SPECIAL.contains(&word) {
                return Err(bad(
                    line,
                    "ordinary words (<unk>, <bos>, <eos> are added)",
                    quoted(word),
                ));
            }
            if word.chars().flat_map(char::to_lowercase).ne(word.chars()) {
                return Err(bad(line, "lower case, because text is lower-cased", quoted(word)));
            }
            let id = SpecialIds::FIRST_WORD + words.len() as u32;
            if let Some(first) = ids.insert(word.into(), id) {
                return Err(TextError::DuplicateWord {
                    line,
                    first_line: lines[(first - SpecialIds::FIRST_WORD) as usize],
                    word: word.to_owned(),
                });
            }
            lines.push(line);
            words.push(word.into());
        }
        if words.is_empty() {
            return Err(TextError::NoWords);
        }
        Ok(Vocab::of(Units::Words { words, ids }))
    }

    /// Number of ids, the special ones among them.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // it always holds the special ids
    pub fn len(&self) -> usize {
        match &self.units {
            Units::Words { words, .. } => words.len() + SPECIAL.len(),
            Units::Tokens { tokens, .. } => tokens.len(),
        }
    }

    /// The ids that stand for no text.
    #[must_use]
    pub fn special(&self) -> SpecialIds {
        match &self.units {
            Units::Words { .. } => SpecialIds::WORDS,
            Units::Tokens { tokens, .. } => tokens.special(),
        }
    }

    /// The word or token of an id (in a word list `<unk>`, `<bos>`, `<eos>` for the special ids); for an id outside the
    /// vocabulary `<unk>`, or in a tokenizer nothing.
    #[must_use]
    pub fn word(&self, id: u32) -> &str {
        match &self.units {
            Units::Words { words, .. } => match (id as usize).checked_sub(SPECIAL.len()) {
                None => SPECIAL[id as usize],
                Some(index) => words.get(index).map_or(SPECIAL[0], |word| word),
            },
            Units::Tokens { tokens, .. } => tokens.token(id).unwrap_or(""),
        }
    }

    /// The id of a word or token; that of UNK, where there is one, for any other.
    #[must_use]
    pub fn id(&self, word: &str) -> Option<u32> {
        match &self.units {
            Units::Words { ids, .. } => Some(ids.get(word).copied().unwrap_or(UNK)),
            Units::Tokens { tokens, .. } => tokens.id(word).or(tokens.special().unk),
        }
    }

    /// Words in the order of their ids, from 3; a tokenizer has none.
    #[must_use]
    pub fn words(&self) -> impl ExactSizeIterator<Item = &str> {
        let words: &[Box<str>] = match &self.units {
            Units::Words { words, .. } => words,
            Units::Tokens { .. } => &[],
        };
        words.iter().map(|word| &**word)
    }

    /// Number of ids that stand for text.
    #[must_use]
    pub fn text_ids(&self) -> usize {
        let ids = 0..self.len() as u32;
        let special = self.special();
        ids.filter(|&id| special.is_candidate(id, false)).count()
    }

    /// Appends the ids of a piece of text, without special ones. `scratch` is reused between calls.
    ///
    /// # Errors
    /// [`TextError::Untokenisable`] from a tokenizer, always where only its ids were read; a list of words has an id for every text.
    pub fn encode(&self, text: &str, scratch: &mut String, ids: &mut Vec<u32>) -> Result<()> {
        match &self.units {
            Units::Words { ids: known, .. } => {
                let mut take = |word: &str| ids.push(known.get(word).copied().unwrap_or(UNK));
                self.rule.words(text, scratch, &mut take);
                Ok(())
            }
            #[cfg(feature = "subwords")]
            Units::Tokens {
                subwords: Some(subwords),
                ..
            } => subwords.encode(text, ids),
            Units::Tokens { .. } => Err(ids_alone()),
        }
    }

    /// The text of ids, without special ones. Words are joined by spaces, but for those of a script without spaces by the rule of Unicode;
    /// their case and punctuation are lost. A tokenizer replaces bytes that are no UTF-8, such as half a character.
    ///
    /// # Errors
    /// [`TextError::Untokenisable`] from a tokenizer whose decoder fails, or of which only the ids were read.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        match &self.units {
            Units::Words { .. } => {
                let special = self.special();
                let words = ids.iter().filter(|&&id| special.is_candidate(id, false));
                let (mut text, mut before) = (String::new(), "");
                for word in words.map(|&id| self.word(id)) {
                    if !text.is_empty() && self.rule.is_spaced(before, word) {
                        text.push(' ');
                    }
                    text.push_str(word);
                    before = word;
                }
                Ok(text)
            }
            #[cfg(feature = "subwords")]
            Units::Tokens {
                tokens,
                subwords: Some(subwords),
            } => subwords.decode(tokens, ids),
            Units::Tokens { .. } => Err(ids_alone()),
        }
    }

    /// This vocabulary with another provenance.
    #[must_use]
    pub fn with_provenance(self, provenance: VocabProvenance) -> Vocab {
        Vocab { provenance, ..self }
    }

    /// This vocabulary with another rule of sentences and words.
    #[must_use]
    pub fn with_rule(self, rule: WordRule) -> Vocab {
        Vocab { rule, ..self }
    }

    /// The rule by which text is cut into sentences, and into words where the vocabulary has words. Without
    /// [`with_rule`](Self::with_rule) it is the rule of English.
    #[must_use]
    pub fn rule(&self) -> WordRule {
        self.rule
    }

    /// The origin of the words.
    #[must_use]
    pub fn provenance(&self) -> VocabProvenance {
        self.provenance
    }

    /// The contents of the vocabulary's file: one word per line, or the tokenizer as it was read.
    #[must_use]
    pub fn to_file_contents(&self) -> String {
        match &self.units {
            Units::Words { words, .. } => words.iter().flat_map(|word| [&**word, "\n"]).collect(),
            Units::Tokens { tokens, .. } => tokens.contents().to_owned(),
        }
    }

    /// The name of its file in a run directory: [`Vocab::WORDS_FILE`] or [`Vocab::TOKENIZER_FILE`].
    #[must_use]
    pub fn file_name(&self) -> &'static str {
        match &self.units {
            Units::Words { .. } => Vocab::WORDS_FILE,
            Units::Tokens { .. } => Vocab::TOKENIZER_FILE,
        }
    }

    /// SHA-256 of the file's contents, as 64 hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        let digest = Sha256::digest(self.to_file_contents().as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The text of a file of JSON.
fn json(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| bad(file::expected("bytes that are not UTF-8")))
}

fn ids_alone() -> TextError {
    TextError::Untokenisable {
        detail: "only the ids of the tokenizer were read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: Result<&[&str], &str>) {
        let got = Vocab::from_words(text);
        match (got, expected) {
            (Ok(vocab), Ok(words)) => assert_eq!(vocab.words().collect::<Vec<_>>(), words),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error} lacks {part}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn bad_lines_of_a_vocabulary_are_named() {
        check(b"the\nto\n", Ok(&["the", "to"]));
        check(b"the\r\n\n to \n", Ok(&["the", "to"]));
        check(b"the\t900\nto\t80", Ok(&["the", "to"]));
        check(
            b"the\nto\nof\nto\n",
            Err("line 4: the word \"to\" is already listed on line 2"),
        );
        check(
            b"the\na word\n",
            Err("line 2: word: expected one word per line, got \"a word\""),
        );
        check(b"The\n", Err("line 1: word: expected lower case"));
        check(b"<eos>\n", Err("expected ordinary words"));
        check(b"a\n\xff\xfe\n", Err("line 2: word: expected UTF-8"));
        check(b"\n \n", Err("expected words, got an empty list"));
        check(
            b"a\nb\x1b[2J\n",
            Err("line 2: word: expected a word without control characters, got \"b\\u{1b}[2J\""),
        );
        let long = "x".repeat(1 << 20) + " y";
        check(long.as_bytes(), Err("xxx…\""));
    }

    #[test]
    fn words_have_ids_after_the_special_ones() {
        let vocab = Vocab::from_words(b"the\nto\n").unwrap();
        assert_eq!(vocab.len(), 5);
        assert_eq!(
            (vocab.id("the"), vocab.id("to"), vocab.id("cat")),
            (Some(3), Some(4), SpecialIds::WORDS.unk)
        );
        assert_eq!(
            (vocab.word(0), vocab.word(1), vocab.word(2)),
            ("<unk>", "<bos>", "<eos>")
        );
        assert_eq!((vocab.word(4), vocab.word(5)), ("to", "<unk>"));
        assert_eq!(
            Vocab::from_words(vocab.to_file_contents().as_bytes())
                .unwrap()
                .len(),
            5
        );
        assert_eq!(vocab.decode(&[1, 3, 0, 4, 2]).unwrap(), "the to");
        assert!(vocab.provenance().is_private_safe());
        assert!(!VocabProvenance::TrainingData.is_private_safe());
    }
}

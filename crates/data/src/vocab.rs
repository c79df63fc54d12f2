//! Words and their ids.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{DataError, Place, Result, io};

/// Where a vocabulary comes from, which decides whether it may be released.
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
    /// [`PrivateVocabulary`](crate::PrivateVocabulary) record states.
    Private,
    /// The word list of the synthetic process.
    Synthetic,
}

impl VocabProvenance {
    /// Whether releasing the words costs no privacy: false for words counted on the training text, and for words chosen
    /// privately, whose cost a run has to compose.
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

/// Words with ids: UNK, BOS, EOS, then words from 3, most frequent first.
#[derive(Clone)]
pub struct Vocab {
    words: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
    provenance: VocabProvenance,
}

impl fmt::Debug for Vocab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocab")
            .field("len", &self.len())
            .field("provenance", &self.provenance)
            .finish()
    }
}

const SPECIAL: [&str; 3] = ["<unk>", "<bos>", "<eos>"];

impl Vocab {
    /// Any word outside the vocabulary.
    pub const UNK: u32 = 0;
    /// Start of a sentence; never a target.
    pub const BOS: u32 = 1;
    /// End of a sentence.
    pub const EOS: u32 = 2;
    /// Id of the first word.
    pub const FIRST_WORD: u32 = 3;

    /// A vocabulary of distinct words, most frequent first. A repeated word keeps its first id only; files are checked
    /// by [`Vocab::from_file`], which reports repetitions.
    pub(crate) fn new(words: Vec<Box<str>>, provenance: VocabProvenance) -> Vocab {
        let mut ids = HashMap::with_capacity(words.len());
        for (id, word) in (Vocab::FIRST_WORD..).zip(&words) {
            ids.entry(word.clone()).or_insert(id);
        }
        Vocab {
            words,
            ids,
            provenance,
        }
    }

    /// Reads one word a line, most frequent first. What follows a tab (a count) is ignored, and so are empty lines.
    ///
    /// # Errors
    /// [`DataError::DuplicateWord`], [`DataError::BadValue`] for white space inside a word, a word that tokenising cannot
    /// produce because it has capitals, or a reserved word, [`DataError::Empty`] for no words, [`DataError::Io`].
    pub fn from_file(path: &Path) -> Result<Vocab> {
        let bytes = std::fs::read(path).map_err(io("read the vocabulary", path))?;
        Vocab::parse(path, &bytes)
    }

    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Vocab> {
        let bad = |line: u64, expected: &str, got: String| DataError::BadValue {
            file: path.to_owned(),
            place: Place::Line(line),
            what: "word".to_owned(),
            expected: expected.to_owned(),
            got,
        };
        let mut words: Vec<Box<str>> = Vec::new();
        let mut first_lines: HashMap<Box<str>, u64> = HashMap::new();
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
                return Err(bad(line, "one word a line", format!("{word:?}")));
            }
            if SPECIAL.contains(&word) {
                return Err(bad(
                    line,
                    "ordinary words (<unk>, <bos>, <eos> are added)",
                    format!("{word:?}"),
                ));
            }
            if word.chars().flat_map(char::to_lowercase).ne(word.chars()) {
                return Err(bad(
                    line,
                    "lower case, because text is lower-cased",
                    format!("{word:?}"),
                ));
            }
            if let Some(&first_line) = first_lines.get(word) {
                return Err(DataError::DuplicateWord {
                    file: path.to_owned(),
                    line,
                    first_line,
                    word: word.to_owned(),
                });
            }
            first_lines.insert(word.into(), line);
            words.push(word.into());
        }
        if words.is_empty() {
            return Err(DataError::Empty {
                path: path.to_owned(),
                expected: "words",
            });
        }
        Ok(Vocab::new(words, VocabProvenance::File))
    }

    /// Number of ids: words and the three special ones.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // it always holds the special ids
    pub fn len(&self) -> usize {
        self.words.len() + SPECIAL.len()
    }

    /// The word of an id; `<unk>`, `<bos>`, `<eos>` for the special ids, and `<unk>` for an id outside the vocabulary.
    #[must_use]
    pub fn word(&self, id: u32) -> &str {
        let id = id as usize;
        match id.checked_sub(SPECIAL.len()) {
            None => SPECIAL[id],
            Some(index) => self.words.get(index).map_or(SPECIAL[0], |word| word),
        }
    }

    /// The id of a word; [`Vocab::UNK`] for a word outside the vocabulary.
    #[must_use]
    pub fn id(&self, word: &str) -> u32 {
        self.ids.get(word).copied().unwrap_or(Vocab::UNK)
    }

    /// Words in the order of their ids, from [`Vocab::FIRST_WORD`].
    #[must_use]
    pub fn words(&self) -> impl ExactSizeIterator<Item = &str> {
        self.words.iter().map(|word| &**word)
    }

    /// The same words, known to come from elsewhere.
    pub(crate) fn with_provenance(self, provenance: VocabProvenance) -> Vocab {
        Vocab { provenance, ..self }
    }

    /// Where the words come from.
    #[must_use]
    pub fn provenance(&self) -> VocabProvenance {
        self.provenance
    }

    /// The contents of a vocabulary file: one word a line.
    #[must_use]
    pub fn to_file_contents(&self) -> String {
        self.words.iter().flat_map(|word| [&**word, "\n"]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], expected: Result<&[&str], &str>) {
        let got = Vocab::parse(Path::new("v.txt"), text);
        match (got, expected) {
            (Ok(vocab), Ok(words)) => assert_eq!(vocab.words().collect::<Vec<_>>(), words),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error} lacks {part}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn files() {
        check(b"the\nto\n", Ok(&["the", "to"]));
        check(b"the\r\n\n to \n", Ok(&["the", "to"]));
        check(b"the\t900\nto\t80", Ok(&["the", "to"]));
        check(
            b"the\nto\nof\nto\n",
            Err("v.txt, line 4: the word \"to\" is listed already on line 2"),
        );
        check(
            b"the\na word\n",
            Err("v.txt, line 2: word: expected one word a line, got \"a word\""),
        );
        check(b"The\n", Err("line 1: word: expected lower case"));
        check(b"<eos>\n", Err("expected ordinary words"));
        check(b"a\n\xff\xfe\n", Err("line 2: word: expected UTF-8"));
        check(b"\n \n", Err("v.txt holds no words"));
    }

    #[test]
    fn ids() {
        let vocab = Vocab::parse(Path::new("v"), b"the\nto\n").unwrap();
        assert_eq!(vocab.len(), 5);
        assert_eq!(
            (vocab.id("the"), vocab.id("to"), vocab.id("cat")),
            (3, 4, Vocab::UNK)
        );
        assert_eq!(
            (vocab.word(0), vocab.word(1), vocab.word(2)),
            ("<unk>", "<bos>", "<eos>")
        );
        assert_eq!((vocab.word(4), vocab.word(5)), ("to", "<unk>"));
        assert_eq!(
            Vocab::parse(Path::new("v"), vocab.to_file_contents().as_bytes())
                .unwrap()
                .len(),
            5
        );
        assert!(vocab.provenance().is_private_safe());
        assert!(!VocabProvenance::TrainingData.is_private_safe());
    }
}

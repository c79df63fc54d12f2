//! Texts to examples: sentences, or windows of a whole text.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::vocab::Vocab;

/// The unit of text that becomes an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Examples {
    /// A sentence of two or more words. An example holds its first words up to a maximum, and EOS if that is the whole sentence.
    #[default]
    Sentences,
    /// A stretch of a text. Each text (message, document) is tokenised whole, ends with EOS, and is cut into windows with the
    /// maximum number of targets; its last window is shorter. Every window starts from BOS. An EOS that would be alone in its
    /// window is left out.
    Windows,
}

/// Cuts texts into examples of ids of one vocabulary.
#[derive(Debug, Clone, Copy)]
pub struct ExampleCutter<'a> {
    vocab: &'a Vocab,
    examples: Examples,
    longest: usize,
}

/// Memory of one thread, reused between texts.
#[derive(Debug, Default)]
pub struct Scratch {
    word: String,
    ids: Vec<u32>,
}

impl<'a> ExampleCutter<'a> {
    /// A cutter whose examples have at most `longest` targets; the EOS of a sentence is not counted, that of a window is.
    #[must_use]
    pub fn new(vocab: &'a Vocab, examples: Examples, longest: usize) -> ExampleCutter<'a> {
        ExampleCutter {
            vocab,
            examples,
            longest,
        }
    }

    /// Appends the examples of a text to `spool`, each preceded by its length. Returns the number of the text's ids before any cut.
    ///
    /// # Errors
    /// [`TextError::Untokenisable`](crate::TextError::Untokenisable) from a tokenizer.
    pub fn cut(&self, text: &str, scratch: &mut Scratch, spool: &mut Vec<u32>) -> Result<u64> {
        match self.examples {
            Examples::Sentences => self.sentences(text, scratch, spool),
            Examples::Windows => self.windows(text, scratch, spool),
        }
    }

    fn sentences(&self, text: &str, scratch: &mut Scratch, spool: &mut Vec<u32>) -> Result<u64> {
        let mut result = Ok(());
        let mut seen = 0;
        self.vocab.rule().sentences(text, |sentence| {
            if result.is_err() {
                return;
            }
            let head = spool.len();
            spool.push(0);
            result = self.vocab.encode(sentence, &mut scratch.word, spool);
            let length = spool.len() - head - 1;
            seen += length as u64;
            if length < 2 {
                spool.truncate(head);
                return;
            }
            if length <= self.longest {
                spool.push(self.vocab.special().eos);
            } else {
                spool.truncate(head + 1 + self.longest);
            }
            spool[head] = (spool.len() - head - 1) as u32;
        });
        result.map(|()| seen)
    }

    fn windows(&self, text: &str, scratch: &mut Scratch, spool: &mut Vec<u32>) -> Result<u64> {
        let Scratch { word, ids } = scratch;
        ids.clear();
        self.vocab.encode(text, word, ids)?;
        let seen = ids.len();
        if seen == 0 {
            return Ok(0);
        }
        // An EOS alone in a window would teach that texts may be empty.
        if !seen.is_multiple_of(self.longest) {
            ids.push(self.vocab.special().eos);
        }
        for window in ids.chunks(self.longest) {
            spool.push(window.len() as u32);
            spool.extend_from_slice(window);
        }
        Ok(seen as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::VocabProvenance;

    fn check(examples: Examples, longest: usize, text: &str, expected: &[u32]) {
        let words = ["the", "cat", "sat", "a", "b"].map(Box::from).to_vec();
        let vocab = Vocab::new(words, VocabProvenance::File);
        let cutter = ExampleCutter {
            vocab: &vocab,
            examples,
            longest,
        };
        let mut spool = Vec::new();
        cutter.cut(text, &mut Scratch::default(), &mut spool).unwrap();
        assert_eq!(spool, expected, "{text:?}");
    }

    #[test]
    fn a_text_is_cut_into_sentences() {
        let check = |text, expected: &[u32]| check(Examples::Sentences, 4, text, expected);
        check("The cat sat.", &[4, 3, 4, 5, 2]);
        check("The cat. The dog!", &[3, 3, 4, 2, 3, 3, 0, 2]);
        check("the cat sat a", &[5, 3, 4, 5, 6, 2]);
        check("the cat sat a b", &[4, 3, 4, 5, 6]);
        check("the", &[]);
        check("a-b", &[3, 6, 7, 2]);
        check("", &[]);
        check("--- !!! ...", &[]);
    }

    #[test]
    fn a_text_is_cut_into_windows() {
        let check = |text, expected: &[u32]| check(Examples::Windows, 3, text, expected);
        check("The cat.", &[3, 3, 4, 2]);
        check("the", &[2, 3, 2]);
        // Sentences and lines run on; the end fills the last window or is left out.
        check("The cat. A\nb", &[3, 3, 4, 6, 2, 7, 2]);
        check("the cat sat", &[3, 3, 4, 5]);
        check("the cat sat a b", &[3, 3, 4, 5, 3, 6, 7, 2]);
        check("the cat sat a b a", &[3, 3, 4, 5, 3, 6, 7, 6]);
        check("", &[]);
        check("... !!!", &[]);
    }
}

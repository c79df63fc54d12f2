//! Texts to examples: sentences, or windows of a whole text.

use std::ops::Range;

use rayon::prelude::*;

use crate::error::{DataError, Result};
use crate::rows::Rows;
use crate::spec::{CorpusSpec, Examples};
use crate::tokenize::sentences;
use crate::vocab::Vocab;

/// Cuts texts into examples of ids of one vocabulary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExampleCutter<'a> {
    vocab: &'a Vocab,
    examples: Examples,
    longest: usize,
}

/// Examples of consecutive rows.
pub(crate) struct Chunk {
    pub(crate) rows: Range<usize>,
    /// The examples, each preceded by its length.
    pub(crate) spool: Vec<u32>,
    /// How much of `spool` each row takes.
    pub(crate) lengths: Vec<u32>,
    pub(crate) measure: Measure,
}

/// How finely a vocabulary cuts text, before anything is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Ids, without special ones.
    tokens: u64,
    /// Pieces between white space.
    words: u64,
}

impl Measure {
    pub(crate) fn add(&mut self, other: Measure) {
        self.tokens += other.tokens;
        self.words += other.words;
    }

    pub(crate) fn tokens_per_word(self) -> Option<f64> {
        (self.words > 0).then(|| self.tokens as f64 / self.words as f64)
    }
}

/// Memory of one thread.
#[derive(Default)]
struct Scratch {
    word: String,
    ids: Vec<u32>,
}

impl<'a> ExampleCutter<'a> {
    pub(crate) fn new(vocab: &'a Vocab, spec: &CorpusSpec) -> ExampleCutter<'a> {
        ExampleCutter {
            vocab,
            examples: spec.examples,
            longest: spec.longest_example(),
        }
    }

    /// Cuts a batch in parallel; the result does not depend on the number of threads.
    pub(crate) fn rows(&self, rows: &Rows) -> Result<Vec<Chunk>> {
        const CHUNK: usize = 128;
        (0..rows.len().div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let range = chunk * CHUNK..rows.len().min((chunk + 1) * CHUNK);
                let mut spool = Vec::new();
                let mut lengths = Vec::with_capacity(CHUNK);
                let mut measure = Measure::default();
                let mut scratch = Scratch::default();
                for row in range.clone() {
                    let before = spool.len();
                    let text = rows.texts.get(row);
                    measure.words += text.split_whitespace().count() as u64;
                    let tokens = self.text(text, &mut scratch, &mut spool);
                    measure.tokens += tokens.map_err(|error| match error {
                        DataError::Untokenisable { detail } => {
                            let expected = "a text that the tokenizer can encode".to_owned();
                            rows.bad(row, "text".to_owned(), expected, detail)
                        }
                        other => other,
                    })?;
                    lengths.push((spool.len() - before) as u32);
                }
                Ok(Chunk {
                    rows: range,
                    spool,
                    lengths,
                    measure,
                })
            })
            .collect()
    }

    /// Appends the examples of a text, each preceded by its length; returns the text's ids before any cut.
    fn text(&self, text: &str, scratch: &mut Scratch, spool: &mut Vec<u32>) -> Result<u64> {
        match self.examples {
            Examples::Sentences => self.sentences(text, scratch, spool),
            Examples::Windows => self.windows(text, scratch, spool),
        }
    }

    fn sentences(&self, text: &str, scratch: &mut Scratch, spool: &mut Vec<u32>) -> Result<u64> {
        let mut result = Ok(());
        let mut seen = 0;
        sentences(text, |sentence| {
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
        cutter.text(text, &mut Scratch::default(), &mut spool).unwrap();
        assert_eq!(spool, expected, "{text:?}");
    }

    #[test]
    fn sentences_of_a_text() {
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
    fn windows_of_a_text() {
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

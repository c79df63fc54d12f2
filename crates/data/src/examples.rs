//! Rows of text to examples, in parallel.

use std::ops::Range;

use rayon::prelude::*;
use undertone_text::{ExampleCutter, Scratch, TextError, WordRule};

use crate::error::Result;
use crate::progress::{Progress, proceed};
use crate::rows::Rows;

/// Examples of consecutive rows.
pub(crate) struct Chunk {
    pub(crate) rows: Range<usize>,
    /// The examples, each preceded by its length.
    pub(crate) spool: Vec<u32>,
    /// The number of words of `spool` that each row takes.
    pub(crate) lengths: Vec<u32>,
    pub(crate) measure: Measure,
}

/// The number of tokens and words of a text, before anything is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Ids, without special ones.
    tokens: u64,
    /// Pieces between white space, or words of a script without spaces.
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

/// Cuts a batch in parallel; the result does not depend on the number of threads. `rule` counts the pieces of a text.
pub(crate) fn cut_rows(
    cutter: &ExampleCutter<'_>,
    rule: WordRule,
    rows: &Rows,
    progress: &dyn Progress,
) -> Result<Vec<Chunk>> {
    const CHUNK: usize = 128;
    (0..rows.len().div_ceil(CHUNK))
        .into_par_iter()
        .map(|chunk| {
            proceed(progress)?;
            let range = chunk * CHUNK..rows.len().min((chunk + 1) * CHUNK);
            let mut spool = Vec::new();
            let mut lengths = Vec::with_capacity(CHUNK);
            let mut measure = Measure::default();
            let mut scratch = Scratch::default();
            for row in range.clone() {
                let before = spool.len();
                let text = rows.texts.get(row);
                measure.words += rule.pieces(text);
                let tokens = cutter.cut(text, &mut scratch, &mut spool);
                measure.tokens += tokens.map_err(|error| {
                    let detail = match error {
                        TextError::Untokenisable { detail } => detail,
                        other => other.to_string(),
                    };
                    let expected = "a text that the tokenizer can encode".to_owned();
                    rows.bad(row, "text".to_owned(), expected, detail)
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

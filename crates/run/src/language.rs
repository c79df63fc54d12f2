//! The use of a trained model: next words for a text, and text that continues it.
//!
//! PRIVACY: both are computed from the released model alone, so the guarantee of its run still applies. A checkpoint is a model that the
//! run has not released yet, and its guarantee is that of the rounds so far.

mod adapters;
mod draw;
mod generate;
mod open;
mod pace;
mod predict;
pub(crate) mod special_tokens;

use undertone_data::{Examples, SpecialIds, Vocab};
use undertone_models::{Decoder, DecoderOptions, Extension, SequenceModel};

use crate::error::{Result, RunError};

pub use generate::{Ended, GenerateOptions, Generated, generate};
pub use open::ModelSource;
pub use predict::{Prediction, Predictor};
pub use special_tokens::SpecialTokens;

/// A trained model with its words.
#[expect(missing_debug_implementations, reason = "a model is too large to print")]
pub struct LanguageModel {
    source: ModelSource,
    vocab: Vocab,
    /// Further tokens that end a text, beside the end of the vocabulary.
    ends: Vec<u32>,
    notes: Vec<String>,
    examples: Examples,
    model: Box<dyn SequenceModel>,
    parameters: Vec<f32>,
    /// The means of its computation; `None` for those that suit its size.
    means: Option<Means>,
}

/// The means of a model's computation. They change no text and no probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    /// Number of threads that share a pass of a transformer.
    pub threads: usize,
    /// `true` to draft several tokens of a text by a copy of the matrices in 8 bits per weight, and to check them all in one pass.
    pub drafts: bool,
}

/// Parameters per thread below which a pass is over before another thread has begun: 4 MB.
const PER_THREAD: usize = 1 << 20;
/// Parameters that no cache holds, so that a draft of a quarter of the bytes is faster: 64 MB.
const LARGE: usize = 1 << 24;

impl Means {
    fn of(parameters: usize) -> Self {
        Self {
            threads: (parameters / PER_THREAD).clamp(1, rayon::current_num_threads()),
            drafts: parameters >= LARGE,
        }
    }
}

impl LanguageModel {
    /// The kind of folder or file that the model came from.
    #[must_use]
    pub fn source(&self) -> ModelSource {
        self.source
    }

    /// Sentences about the files of the model: those that disagree about the special tokens.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The sentence about a model that says one word nearly always; `None` for any other.
    #[must_use]
    pub fn one_word(&self) -> Option<String> {
        undertone_run_directory::one_word(self.model.as_ref(), &self.parameters, &self.vocab)
    }

    /// Returns `true` for a token that ends a text.
    fn ends_text(&self, id: u32) -> bool {
        id == self.special().eos || self.ends.contains(&id)
    }

    /// This model with other means than those that suit its size: a thread per 4 MB of parameters, at most as many as `rayon` has, and
    /// drafts from 64 MB on, which no cache holds.
    #[must_use]
    pub fn with_means(mut self, means: Means) -> Self {
        self.means = Some(means);
        self
    }

    /// Number of parameters that the model computes with, frozen ones among them.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.parameters.len() + self.model.frozen().len()
    }

    /// Number of words or tokens, special ones included.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.vocab.len()
    }

    /// `true` for a list of words, `false` for the tokens of a tokenizer.
    #[must_use]
    pub(crate) fn has_words(&self) -> bool {
        self.vocab.words().len() > 0
    }

    /// The ids that the model reads for a text: the start, and the tokens of what the model was trained on as one example. A model of
    /// sentences reads the sentence that the text ends in.
    fn context(&self, text: &str) -> Result<Vec<u32>> {
        let text = match self.examples {
            Examples::Sentences => self.vocab.rule().open_sentence(text),
            Examples::Windows => text,
        };
        let mut ids = vec![self.special().bos];
        self.vocab
            .encode(text, &mut String::new(), &mut ids)
            .map_err(|error| RunError::Option {
                option: "PREFIX",
                expected: "text that the tokenizer encodes",
                got: error.to_string(),
            })?;
        Ok(ids)
    }

    fn special(&self) -> SpecialIds {
        self.vocab.special()
    }

    fn text(&self, ids: &[u32]) -> Result<String> {
        self.vocab.decode(ids).map_err(|error| RunError::Option {
            option: "RUN",
            expected: "a tokenizer that decodes its tokens",
            got: error.to_string(),
        })
    }

    /// A decoder; `drafts` asks for one that can draft, where that pays.
    fn decoder(&self, sequences: usize, drafts: bool) -> Result<Box<dyn Decoder>> {
        let means = self.means.unwrap_or_else(|| Means::of(self.parameters()));
        let options = DecoderOptions {
            sequences,
            threads: means.threads,
            drafts: drafts && means.drafts,
        };
        Ok(self.model.decoder_with(&self.parameters, &options)?)
    }

    /// Room for the logits of `rows` tokens.
    fn logits(&self, rows: usize) -> Vec<f32> {
        vec![0.0; rows * self.model.vocab_size()]
    }
}

/// Extends one sequence by tokens. Where the sequence would outgrow the model's context, it starts again with the last half of it.
///
/// `all` holds the tokens of the sequence, the new ones included.
fn extend(
    decoder: &mut dyn Decoder,
    sequence: usize,
    all: &[u32],
    new: usize,
    logits: &mut [f32],
) -> Result<()> {
    let fits = decoder
        .context()
        .is_none_or(|context| decoder.len(sequence) + new <= context);
    let tokens = match decoder.context() {
        Some(context) if !fits => {
            decoder.reset(sequence);
            &all[all.len() - all.len().min((context / 2).max(1))..]
        }
        _ => &all[all.len() - new..],
    };
    Ok(decoder.extend(&[Extension { sequence, tokens }], logits)?)
}

/// Turns logits into log-probabilities over `known` ids: a family may have an id for padding after the words, which is no text.
fn log_probabilities(logits: &mut [f32], known: usize) -> &[f32] {
    let logits = &mut logits[..known];
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
    let normalizer = f64::from(max) + sum.ln();
    for logit in logits.iter_mut() {
        *logit = (f64::from(*logit) - normalizer) as f32;
    }
    logits
}

#[cfg(test)]
mod tests;

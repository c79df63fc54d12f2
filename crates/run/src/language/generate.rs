//! Text that continues a text.

use rand_core::Rng;
use serde::Serialize;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_models::Extension;

use super::predict::{TAIL, best};
use super::{LanguageModel, extend, log_probabilities};
use crate::error::{Result, RunError};

/// Samples that are made at one time, at most.
const MAX_TOGETHER: usize = 16;

/// The drawing of text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GenerateOptions {
    /// Max number of tokens, or words, that each sample gets.
    pub tokens: usize,
    /// Number of samples per prefix.
    pub samples: usize,
    /// The logits are divided by this number; 0 takes the likeliest token each time.
    pub temperature: f64,
    /// Only this many of the likeliest tokens are drawn from; `None` for all.
    pub top_k: Option<usize>,
    /// Only the likeliest tokens that together have this probability are drawn from: from above 0 to 1.
    pub top_p: f64,
    /// The seed of the draws. One seed gives one text, at any number of samples.
    pub seed: u64,
    /// A sample ends before the first of these strings.
    pub stop: Vec<String>,
    /// The end of an example is never drawn.
    pub ignore_end: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            tokens: 64,
            samples: 1,
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            seed: 0,
            stop: Vec::new(),
            ignore_end: false,
        }
    }
}

impl GenerateOptions {
    fn check(&self) -> Result<()> {
        let refused = |option, expected, got: &dyn std::fmt::Display| {
            let got = got.to_string();
            Err(RunError::Option {
                option,
                expected,
                got,
            })
        };
        if self.tokens == 0 {
            return refused("--tokens", "at least 1", &self.tokens);
        }
        if self.samples == 0 {
            return refused("--samples", "at least 1", &self.samples);
        }
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return refused(
                "--temperature",
                "a finite number that is at least 0",
                &self.temperature,
            );
        }
        if self.top_k == Some(0) {
            return refused("--top-k", "at least 1", &0);
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refused("--top-p", "a number above 0 and at most 1", &self.top_p);
        }
        match self.stop.iter().any(String::is_empty) {
            true => refused("--stop", "at least one character", &"none"),
            false => Ok(()),
        }
    }
}

/// The reason for which a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The model ended the example.
    End,
    /// The sample has as many tokens as it may have.
    Length,
    /// One of the given strings came.
    Stop,
}

/// A text and how it was continued.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generated {
    /// The text that was given.
    pub prefix: String,
    /// The continuation, without the prefix.
    pub text: String,
    /// Number of tokens that were drawn, the end of an example included.
    pub tokens: usize,
    /// The reason for the end.
    pub ended: Ended,
}

/// One sample that grows.
struct Sample {
    /// Its number among all samples.
    number: usize,
    prefix: usize,
    ids: Vec<u32>,
    /// Number of ids of the prefix.
    given: usize,
    draws: Box<dyn Rng>,
    ended: Option<(Ended, String)>,
}

/// Continues each prefix by each of its samples; all samples of the first prefix come first. `watch(number, text)` sees each sample's whole
/// continuation after each token.
///
/// # Guarantee
/// The text is computed from the model alone. Draws with a seed are for tests and repetition, and hide nothing.
///
/// # Errors
/// Options out of range, text that a tokenizer cannot encode, and those of the model.
pub fn generate(
    model: &LanguageModel,
    prefixes: &[String],
    options: &GenerateOptions,
    watch: &mut dyn FnMut(usize, &str),
) -> Result<Vec<Generated>> {
    options.check()?;
    let randomness = Randomness::seeded(options.seed);
    let mut all = Vec::with_capacity(prefixes.len() * options.samples);
    for (prefix, text) in prefixes.iter().enumerate() {
        let ids = model.context(text)?;
        for sample in 0..options.samples {
            all.push(Sample {
                number: all.len(),
                prefix,
                given: ids.len(),
                ids: ids.clone(),
                draws: Box::new(randomness.generator(Purpose::Generation, prefix as u64, sample as u64)),
                ended: None,
            });
        }
    }
    let mut decoder = model.decoder(all.len().min(MAX_TOGETHER))?;
    let mut logits = model.logits(all.len().min(MAX_TOGETHER));
    let width = model.model.vocab_size();
    for samples in all.chunks_mut(MAX_TOGETHER) {
        for (sequence, (sample, line)) in samples.iter().zip(logits.chunks_exact_mut(width)).enumerate() {
            decoder.reset(sequence);
            extend(decoder.as_mut(), sequence, &sample.ids, sample.ids.len(), line)?;
        }
        let mut running: Vec<usize> = (0..samples.len()).collect();
        loop {
            for (&sequence, line) in running.iter().zip(logits.chunks_exact_mut(width)) {
                let sample = &mut samples[sequence];
                let id = draw(model, line, options, sample.draws.as_mut());
                sample.ids.push(id);
                sample.ended = ended(model, options, &prefixes[sample.prefix], sample, watch)?;
            }
            running.retain(|&sequence| samples[sequence].ended.is_none());
            if running.is_empty() {
                break;
            }
            // One pass for all samples, unless one of them has filled its context.
            let full = |&sequence: &usize| {
                decoder
                    .context()
                    .is_some_and(|context| decoder.len(sequence) == context)
            };
            if running.iter().any(full) {
                for (&sequence, line) in running.iter().zip(logits.chunks_exact_mut(width)) {
                    extend(decoder.as_mut(), sequence, &samples[sequence].ids, 1, line)?;
                }
                continue;
            }
            let extensions: Vec<Extension<'_>> = running
                .iter()
                .map(|&sequence| Extension {
                    sequence,
                    tokens: samples[sequence].ids.last_chunk::<1>().map_or(&[], |last| last),
                })
                .collect();
            decoder.extend(&extensions, &mut logits[..running.len() * width])?;
        }
    }
    let done = |sample: Sample| {
        let (ended, text) = sample.ended?;
        Some(Generated {
            prefix: prefixes[sample.prefix].clone(),
            text,
            tokens: sample.ids.len() - sample.given,
            ended,
        })
    };
    Ok(all.into_iter().filter_map(done).collect())
}

/// Draws the next token from logits.
fn draw(model: &LanguageModel, logits: &mut [f32], options: &GenerateOptions, draws: &mut dyn Rng) -> u32 {
    let special = model.special();
    let of = |id: u32| special.is_candidate(id, !options.ignore_end);
    if options.temperature == 0.0 {
        return best(&logits[..model.ids()], 1, of)
            .first()
            .map_or(special.eos, |&(id, _)| id);
    }
    for logit in logits.iter_mut() {
        *logit = (f64::from(*logit) / options.temperature) as f32;
    }
    let scores = log_probabilities(logits, model.ids());
    let count = options.top_k.unwrap_or(scores.len());
    let candidates = best(scores, count, of);
    let total: f64 = candidates.iter().map(|&(_, score)| f64::from(score).exp()).sum();
    // The nucleus: the likeliest candidates up to the first at which their sum reaches the wanted part.
    let (mut sum, mut kept) = (0.0, 0);
    for &(_, score) in &candidates {
        sum += f64::from(score).exp();
        kept += 1;
        if sum >= options.top_p * total {
            break;
        }
    }
    let mut left = (draws.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
    for &(id, score) in &candidates[..kept] {
        left -= f64::from(score).exp();
        if left < 0.0 {
            return id;
        }
    }
    candidates[..kept].last().map_or(special.eos, |&(id, _)| id)
}

/// The end of a sample, if its last token ended it.
fn ended(
    model: &LanguageModel,
    options: &GenerateOptions,
    prefix: &str,
    sample: &Sample,
    watch: &mut dyn FnMut(usize, &str),
) -> Result<Option<(Ended, String)>> {
    let own = &sample.ids[sample.given..];
    let mut text = continuation(model, prefix, &sample.ids, sample.given)?;
    if let Some(place) = options.stop.iter().filter_map(|stop| text.find(stop)).min() {
        text.truncate(place);
        watch(sample.number, &text);
        return Ok(Some((Ended::Stop, text)));
    }
    watch(sample.number, &text);
    Ok(if own.last() == Some(&model.special().eos) {
        Some((Ended::End, text))
    } else if own.len() == options.tokens {
        Some((Ended::Length, text))
    } else {
        None
    })
}

/// The text that ids add to a prefix, from the `given`th on.
fn continuation(model: &LanguageModel, prefix: &str, ids: &[u32], given: usize) -> Result<String> {
    let own = model.text(&ids[given..])?;
    if model.has_words() {
        let joined = own.is_empty() || prefix.is_empty() || prefix.ends_with(char::is_whitespace);
        return Ok(if joined { own } else { format!(" {own}") });
    }
    // The tokens before decide about the space between.
    let from = given.saturating_sub(TAIL);
    let (before, whole) = (model.text(&ids[from..given])?, model.text(&ids[from..])?);
    Ok(whole.strip_prefix(&before).unwrap_or(&own).to_owned())
}

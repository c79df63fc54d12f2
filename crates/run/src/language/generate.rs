//! Text that continues a text.

use rand_core::Rng;
use serde::Serialize;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_models::{Decoder, Extension, ModelError};

use super::draw::draw;
use super::pace::Pace;
use super::predict::TAIL;
use super::{LanguageModel, extend};
use crate::error::{Result, RunError};

/// Samples that are made at one time, at most.
const MAX_TOGETHER: usize = 16;

/// Max number of samples of all prefixes together.
const MAX_SAMPLES: usize = 1_000_000;

/// Max number of tokens of all samples together, which their memory grows with.
const MAX_TOKENS: usize = 100_000_000;

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
    fn check(&self, prefixes: usize) -> Result<()> {
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
        // Before anything is allocated for them.
        let samples = self.samples.saturating_mul(prefixes);
        if samples > MAX_SAMPLES {
            let expected = "so few that all prefixes together have at most 1,000,000";
            return refused("--samples", expected, &self.samples);
        }
        if samples.saturating_mul(self.tokens) > MAX_TOKENS {
            let expected = "so few that all samples together have at most 100,000,000";
            return refused("--tokens", expected, &self.tokens);
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
    /// Number of these tokens that a cheaper pass had drafted before the model itself drew them. Drafts change the speed, not the text.
    pub drafted: usize,
    /// The reason for the end.
    pub ended: Ended,
}

/// One sample that grows.
struct Sample {
    /// Number of the sample among all samples.
    number: usize,
    prefix: usize,
    ids: Vec<u32>,
    /// Number of ids of the prefix.
    given: usize,
    draws: Box<dyn Rng>,
    /// The keys of the draws so far and of the drafts after them.
    keys: Vec<u64>,
    drafted: usize,
    ended: Option<(Ended, String)>,
}

impl Sample {
    /// Number of tokens that were drawn.
    fn own(&self) -> usize {
        self.ids.len() - self.given
    }

    /// Draws the token that stands `ahead` places after the next one. The same logits give the same token, drafted or not.
    fn draw(
        &mut self,
        model: &LanguageModel,
        logits: &[f32],
        options: &GenerateOptions,
        ahead: usize,
    ) -> u32 {
        let place = self.own() + ahead;
        while self.keys.len() <= place {
            self.keys.push(self.draws.next_u64());
        }
        let special = model.special();
        let of = |id: u32| {
            let ends = options.ignore_end && model.ends_text(id);
            !ends && special.is_candidate(id, !options.ignore_end)
        };
        draw(&logits[..model.ids()], options, self.keys[place], of).unwrap_or(special.eos)
    }
}

/// Continues each prefix by each of its samples; all samples of the first prefix come first. `watch(number, text)` sees each sample's whole
/// continuation after each token.
///
/// # Guarantee
/// The text is computed from the model alone. Draws with a seed are for tests and repetition, and hide nothing.
///
/// # Errors
/// Options out of range, more samples or tokens than fit into memory, text that a tokenizer cannot encode, and those of the model.
pub fn generate(
    model: &LanguageModel,
    prefixes: &[String],
    options: &GenerateOptions,
    watch: &mut dyn FnMut(usize, &str),
) -> Result<Vec<Generated>> {
    options.check(prefixes.len())?;
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
                keys: Vec::new(),
                drafted: 0,
                ended: None,
            });
        }
    }
    let mut maker = Maker {
        model,
        options,
        prefixes,
        decoder: model.decoder(all.len().min(MAX_TOGETHER), true)?,
        logits: model.logits(all.len().min(MAX_TOGETHER)),
        pace: Pace::new(),
    };
    for samples in all.chunks_mut(MAX_TOGETHER) {
        maker.make(samples, watch)?;
    }
    let done = |sample: Sample| {
        let tokens = sample.own();
        let (ended, text) = sample.ended?;
        Some(Generated {
            prefix: prefixes[sample.prefix].clone(),
            text,
            tokens,
            drafted: sample.drafted,
            ended,
        })
    };
    Ok(all.into_iter().filter_map(done).collect())
}

/// Makes samples that grow together.
struct Maker<'a> {
    model: &'a LanguageModel,
    options: &'a GenerateOptions,
    prefixes: &'a [String],
    decoder: Box<dyn Decoder>,
    logits: Vec<f32>,
    pace: Pace,
}

impl Maker<'_> {
    fn make(&mut self, samples: &mut [Sample], watch: &mut dyn FnMut(usize, &str)) -> Result<()> {
        let width = self.model.model.vocab_size();
        for (sequence, sample) in samples.iter_mut().enumerate() {
            self.decoder.reset(sequence);
            let logits = &mut self.logits[..width];
            extend(
                self.decoder.as_mut(),
                sequence,
                &sample.ids,
                sample.ids.len(),
                logits,
            )?;
            self.take(sample, 0, &[], watch)?;
        }
        // The decoder has read all tokens of a sample but its last.
        loop {
            let running: Vec<usize> = (0..samples.len())
                .filter(|&sequence| samples[sequence].ended.is_none())
                .collect();
            if running.is_empty() {
                return Ok(());
            }
            let full = |&sequence: &usize| {
                let context = self.decoder.context();
                context.is_some_and(|context| self.decoder.len(sequence) == context)
            };
            if running.iter().any(full) {
                // One after the other: a sample that has filled its context starts again with the last half of it.
                for &sequence in &running {
                    let sample = &mut samples[sequence];
                    let logits = &mut self.logits[..width];
                    extend(self.decoder.as_mut(), sequence, &sample.ids, 1, logits)?;
                    self.take(sample, 0, &[], watch)?;
                }
                continue;
            }
            let drafts = self.draft(samples, &running)?;
            let drafts = self.check(samples, &running, drafts)?;
            let mut row = 0;
            for (&sequence, drafts) in running.iter().zip(&drafts) {
                let right = self.take(&mut samples[sequence], row, drafts, watch)?;
                row += 1 + drafts.len();
                if let Some(drafting) = self.decoder.drafting() {
                    // What follows the right drafts belongs to the text no more.
                    let len = drafting.len(sequence) - (drafts.len() - right);
                    drafting.truncate(sequence, len);
                }
            }
        }
    }

    /// Drafts the next tokens of samples, as many as pay.
    fn draft(&mut self, samples: &mut [Sample], running: &[usize]) -> Result<Vec<Vec<u32>>> {
        let mut drafts = vec![Vec::new(); running.len()];
        let width = self.model.model.vocab_size();
        let Some(drafting) = self.decoder.drafting() else {
            return Ok(drafts);
        };
        let most = self.pace.drafts(running.len());
        // A sample needs no draft of its last token, and its context holds the last token and all drafts.
        let limit = |sample: &Sample, len: usize, context: Option<usize>| {
            let left = (self.options.tokens - sample.own()).saturating_sub(1);
            most.min(left)
                .min(context.map_or(most, |context| context - len - 1))
        };
        let context = drafting.context();
        let limits: Vec<usize> = running
            .iter()
            .map(|&sequence| limit(&samples[sequence], drafting.len(sequence), context))
            .collect();
        let mut open: Vec<usize> = (0..running.len()).filter(|&place| limits[place] > 0).collect();
        while !open.is_empty() {
            let next: Vec<[u32; 1]> = open
                .iter()
                .map(|&place| {
                    let last = samples[running[place]].ids.last();
                    [drafts[place].last().or(last).copied().unwrap_or_default()]
                })
                .collect();
            let extensions: Vec<Extension<'_>> = open
                .iter()
                .zip(&next)
                .map(|(&place, tokens)| Extension {
                    sequence: running[place],
                    tokens,
                })
                .collect();
            let logits = &mut self.logits[..open.len() * width];
            match drafting.draft(&extensions, logits) {
                // The exact pass decides whether that is an error.
                Err(ModelError::NonFiniteLoss { .. }) => break,
                drafted => drafted?,
            }
            let mut lines = logits.chunks_exact(width);
            open.retain(|&place| {
                let (sample, drafts) = (&mut samples[running[place]], &mut drafts[place]);
                let Some(line) = lines.next() else { return false };
                let id = sample.draw(self.model, line, self.options, drafts.len());
                // Nothing follows an end.
                if self.model.ends_text(id) {
                    return false;
                }
                drafts.push(id);
                drafts.len() < limits[place]
            });
        }
        Ok(drafts)
    }

    /// Computes the logits after the last token of each sample and after each of its drafts. Returns the drafts, or none where logits
    /// after them are not finite: they may come from a token that the text does not have.
    fn check(
        &mut self,
        samples: &[Sample],
        running: &[usize],
        drafts: Vec<Vec<u32>>,
    ) -> Result<Vec<Vec<u32>>> {
        let width = self.model.model.vocab_size();
        let last = |sequence: usize| samples[sequence].ids.last().copied();
        if drafts.iter().any(|drafts| !drafts.is_empty())
            && let Some(drafting) = self.decoder.drafting()
        {
            let tokens: Vec<Vec<u32>> = running
                .iter()
                .zip(&drafts)
                .map(|(&sequence, drafts)| last(sequence).into_iter().chain(drafts.iter().copied()).collect())
                .collect();
            let lengths: Vec<usize> = running.iter().map(|&sequence| drafting.len(sequence)).collect();
            let extensions: Vec<Extension<'_>> = running
                .iter()
                .zip(&tokens)
                .map(|(&sequence, tokens)| Extension { sequence, tokens })
                .collect();
            let rows: usize = tokens.iter().map(Vec::len).sum();
            self.logits.resize(self.logits.len().max(rows * width), 0.0);
            match drafting.verify(&extensions, &mut self.logits[..rows * width]) {
                Err(ModelError::NonFiniteLoss { .. }) => {
                    for (&sequence, len) in running.iter().zip(lengths) {
                        drafting.truncate(sequence, len);
                    }
                }
                verified => {
                    verified?;
                    return Ok(drafts);
                }
            }
        }
        let tokens: Vec<Option<u32>> = running.iter().map(|&sequence| last(sequence)).collect();
        let extensions: Vec<Extension<'_>> = running
            .iter()
            .zip(&tokens)
            .map(|(&sequence, token)| Extension {
                sequence,
                tokens: token.as_slice(),
            })
            .collect();
        self.decoder
            .extend(&extensions, &mut self.logits[..running.len() * width])?;
        Ok(vec![Vec::new(); running.len()])
    }

    /// Draws tokens from the rows of logits from `row` on: one, and one more after each draft that is right. Returns the number of right
    /// drafts.
    fn take(
        &mut self,
        sample: &mut Sample,
        row: usize,
        drafts: &[u32],
        watch: &mut dyn FnMut(usize, &str),
    ) -> Result<usize> {
        let width = self.model.model.vocab_size();
        for place in 0..=drafts.len() {
            let logits = &self.logits[(row + place) * width..][..width];
            let id = sample.draw(self.model, logits, self.options, 0);
            sample.ids.push(id);
            sample.ended = ended(
                self.model,
                self.options,
                &self.prefixes[sample.prefix],
                sample,
                watch,
            )?;
            let Some(&draft) = drafts.get(place) else { break };
            self.pace.learn(draft == id);
            if draft != id {
                return Ok(place);
            }
            sample.drafted += 1;
            if sample.ended.is_some() {
                return Ok(place + 1);
            }
        }
        Ok(drafts.len())
    }
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
    // An end that the vocabulary takes for an ordinary token is no text.
    let last = own.last().copied();
    let is_text = last.is_none_or(|id| id == model.special().eos || !model.ends_text(id));
    let shown = sample.ids.len() - usize::from(!is_text);
    let mut text = continuation(model, prefix, &sample.ids[..shown], sample.given)?;
    if let Some(place) = options.stop.iter().filter_map(|stop| text.find(stop)).min() {
        text.truncate(place);
        watch(sample.number, &text);
        return Ok(Some((Ended::Stop, text)));
    }
    watch(sample.number, &text);
    Ok(if last.is_some_and(|id| model.ends_text(id)) {
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

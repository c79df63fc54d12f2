//! The next words of a text.

use std::cmp::Ordering;

use serde::Serialize;
use undertone_models::{Decoder, Extension};

use super::{LanguageModel, extend, log_probabilities};
use crate::error::Result;

/// Max number of tokens of a word.
const MAX_WORD_TOKENS: usize = 9;
/// Tokens before a new one that are decoded with it, because they decide about the space between.
pub(super) const TAIL: usize = 4;

/// A word that may come next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The word: in lower case from a list of words, as the tokens spell it from a tokenizer.
    pub word: String,
    /// The probability of the word, or of the tokens that spell it. All words and the end of an example share 1.
    pub probability: f64,
}

/// Predicts next words, and keeps what it computed of the text so far.
#[expect(missing_debug_implementations, reason = "a model is too large to print")]
pub struct Predictor<'a> {
    model: &'a LanguageModel,
    decoder: Box<dyn Decoder>,
    /// The ids that the decoder has read.
    read: Vec<u32>,
    logits: Vec<f32>,
    /// Decoders of the words that a tokenizer spells, made with the first of them.
    spellers: Option<Box<dyn Decoder>>,
}

impl<'a> Predictor<'a> {
    /// A predictor that has read nothing.
    ///
    /// # Errors
    /// Those of the model.
    pub fn new(model: &'a LanguageModel) -> Result<Self> {
        Ok(Self {
            model,
            decoder: model.decoder(1, false)?,
            read: Vec::new(),
            logits: model.logits(1),
            spellers: None,
        })
    }

    /// The `count` likeliest words after a text that begin with `begun`, likeliest first; words of equal probability in the order of the
    /// vocabulary. An empty `begun` asks for whole next words. The last word of the text counts as complete.
    ///
    /// Probabilities are those of the model, among all words.
    ///
    /// # Errors
    /// Those of the model, such as parameters that give no finite probabilities; text that a tokenizer cannot encode.
    pub fn next_words(&mut self, text: &str, begun: &str, count: usize) -> Result<Vec<Prediction>> {
        let context = self.model.context(text)?;
        self.read(&context)?;
        match self.model.has_words() {
            true => Ok(self.words(&self.model.vocab.rule().spelled(begun), count)),
            false => self.spelled(&context, &begun.to_lowercase(), count),
        }
    }

    /// Brings the decoder to these ids. Ids that only continue what was read cost their own number.
    fn read(&mut self, context: &[u32]) -> Result<()> {
        let new = match context.strip_prefix(&self.read[..]) {
            // The logits of the same ids stand where they stood.
            Some([]) if !self.read.is_empty() => return Ok(()),
            Some(new) if !self.read.is_empty() => new.len(),
            _ => {
                self.decoder.reset(0);
                context.len()
            }
        };
        self.read.clear();
        extend(self.decoder.as_mut(), 0, context, new, &mut self.logits)?;
        log_probabilities(&mut self.logits, self.model.ids());
        self.read.extend_from_slice(context);
        Ok(())
    }

    fn words(&self, begun: &str, count: usize) -> Vec<Prediction> {
        let (vocab, special) = (&self.model.vocab, self.model.special());
        let of = |id: u32| {
            special.is_candidate(id, false) && vocab.word(id).starts_with(begun) && !self.model.ends_text(id)
        };
        let best = best(&self.logits[..self.model.ids()], count, of);
        let prediction = |(id, score): (u32, f32)| Prediction {
            word: vocab.word(id).to_owned(),
            probability: f64::from(score).exp().min(1.0),
        };
        best.into_iter().map(prediction).collect()
    }

    /// Words that a tokenizer's tokens spell: the likeliest first tokens, each followed by its likeliest continuation up to the end of the
    /// word.
    fn spelled(&mut self, context: &[u32], begun: &str, count: usize) -> Result<Vec<Prediction>> {
        let model = self.model;
        let place = Place::new(model, context)?;
        let special = model.special();
        let likely = best(&self.logits[..model.ids()], count.saturating_mul(256), |id| {
            special.is_candidate(id, false) && !model.ends_text(id)
        });
        let mut words = Vec::new();
        for (id, score) in likely {
            if words.len() == 2 * count {
                break;
            }
            if place.begins_word(&place.added(&[id])?, begun) {
                words.push(Spelled {
                    tokens: vec![id],
                    score: f64::from(score),
                });
            }
        }
        self.spell(&place, begun, &mut words)?;
        let mut predictions: Vec<Prediction> = Vec::new();
        for Spelled { tokens, score } in words {
            let word = place.added(&tokens)?.trim().to_owned();
            if !word.to_lowercase().starts_with(begun) {
                continue;
            }
            let probability = score.exp().min(1.0);
            match predictions.iter_mut().find(|known| known.word == word) {
                Some(known) => known.probability += probability,
                None => predictions.push(Prediction { word, probability }),
            }
        }
        predictions.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        predictions.truncate(count);
        Ok(predictions)
    }

    /// Appends likely tokens to words until they end.
    fn spell(&mut self, place: &Place<'_>, begun: &str, words: &mut [Spelled]) -> Result<()> {
        let model = self.model;
        if words.is_empty() {
            return Ok(());
        }
        let spellers = match &mut self.spellers {
            Some(spellers) if spellers.sequences() >= words.len() => spellers,
            spellers => spellers.insert(model.decoder(words.len(), false)?),
        };
        let width = model.model.vocab_size();
        let mut logits = model.logits(words.len());
        for (sequence, (word, line)) in words.iter().zip(logits.chunks_exact_mut(width)).enumerate() {
            spellers.reset(sequence);
            let all = [place.context, &word.tokens[..]].concat();
            extend(spellers.as_mut(), sequence, &all, all.len(), line)?;
        }
        let mut open: Vec<usize> = (0..words.len()).collect();
        for _ in 1..MAX_WORD_TOKENS {
            let mut still = Vec::new();
            for (&sequence, line) in open.iter().zip(logits.chunks_exact_mut(width)) {
                let scores = log_probabilities(line, model.ids());
                if place.grow(&mut words[sequence], scores, begun)? {
                    still.push(sequence);
                }
            }
            let room = |&sequence: &usize| {
                let context = spellers.context();
                context.is_none_or(|context| spellers.len(sequence) < context)
            };
            open = still.into_iter().filter(room).collect();
            if open.is_empty() {
                break;
            }
            let extension = |&sequence: &usize| Extension {
                sequence,
                tokens: words[sequence].tokens.last_chunk::<1>().map_or(&[], |last| last),
            };
            let extensions: Vec<Extension<'_>> = open.iter().map(extension).collect();
            spellers.extend(&extensions, &mut logits[..open.len() * width])?;
        }
        Ok(())
    }
}

/// A word that tokens spell.
struct Spelled {
    tokens: Vec<u32>,
    /// Log-probability of the tokens.
    score: f64,
}

/// The end of a text that tokens are added to.
struct Place<'a> {
    model: &'a LanguageModel,
    context: &'a [u32],
    /// The last ids of the context, and their text.
    tail: &'a [u32],
    before: String,
}

impl<'a> Place<'a> {
    fn new(model: &'a LanguageModel, context: &'a [u32]) -> Result<Self> {
        let tail = &context[context.len().saturating_sub(TAIL)..];
        Ok(Self {
            model,
            context,
            tail,
            before: model.text(tail)?,
        })
    }

    /// The text that tokens add.
    fn added(&self, tokens: &[u32]) -> Result<String> {
        let whole = self.model.text(&[self.tail, tokens].concat())?;
        Ok(whole.strip_prefix(&self.before).unwrap_or(&whole).to_owned())
    }

    /// `true` if the text begins a new word, and agrees with its first letters.
    fn begins_word(&self, text: &str, begun: &str) -> bool {
        let word = text.trim_start();
        let apart =
            self.before.is_empty() || self.before.ends_with(char::is_whitespace) || word.len() < text.len();
        apart && word.starts_with(char::is_alphanumeric) && agrees(word, begun)
    }

    /// Appends the likeliest token, if the word goes on with it. A word that is shorter than the letters which it begins with takes the
    /// likeliest token that agrees with them.
    fn grow(&self, word: &mut Spelled, scores: &[f32], begun: &str) -> Result<bool> {
        let text = self.added(&word.tokens)?;
        let short = text.trim_start().chars().count() < begun.chars().count();
        let special = self.model.special();
        for (id, score) in best(scores, if short { 64 } else { 1 }, |_| true) {
            let with = self.added(&[&word.tokens[..], &[id]].concat())?;
            let Some(next) = with.strip_prefix(&text).filter(|next| !next.is_empty()) else {
                continue;
            };
            let letters = next.chars().all(|c| c.is_alphanumeric() || c == '\'');
            if special.is_candidate(id, false)
                && !self.model.ends_text(id)
                && letters
                && agrees(with.trim_start(), begun)
            {
                word.tokens.push(id);
                word.score += f64::from(score);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// `true` if one of a word and its first letters begins with the other, in any case.
fn agrees(word: &str, begun: &str) -> bool {
    let word = word.to_lowercase();
    word.starts_with(begun) || begun.starts_with(&word)
}

/// The `count` best ids for which `of` holds, best first; equal ones in the order of their ids.
pub(super) fn best(scores: &[f32], count: usize, of: impl Fn(u32) -> bool) -> Vec<(u32, f32)> {
    let order = |a: &(u32, f32), b: &(u32, f32)| match b.1.total_cmp(&a.1) {
        Ordering::Equal => a.0.cmp(&b.0),
        other => other,
    };
    // Among some more than `count` candidates, the worst that can still be among the best is found again and again.
    let room = count.saturating_add(count.max(64));
    let mut all: Vec<(u32, f32)> = Vec::with_capacity(room.min(scores.len()));
    let mut least: Option<(u32, f32)> = None;
    for candidate in (0..).zip(scores.iter().copied()) {
        let fits = least.is_none_or(|least| order(&candidate, &least) == Ordering::Less);
        if fits && count > 0 && of(candidate.0) {
            all.push(candidate);
            if all.len() == room {
                all.select_nth_unstable_by(count - 1, order);
                all.truncate(count);
                least = all.last().copied();
            }
        }
    }
    all.sort_unstable_by(order);
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_the_first_of_all_in_order() {
        let scores: Vec<f32> = (0..1_000_u32).map(|id| (id * 7_919 % 501) as f32).collect();
        for odd in [false, true] {
            let of = |id: u32| !odd || id % 2 == 1;
            let all = best(&scores, usize::MAX, of);
            assert_eq!(all.len(), if odd { 500 } else { 1_000 });
            assert!(all.is_sorted_by(|a, b| a.1 > b.1 || a.1 == b.1 && a.0 < b.0));
            for count in [0, 1, 2, 63, 64, 65, 300, 499, 500, 501, 1_000, 5_000] {
                assert_eq!(best(&scores, count, of), all[..count.min(all.len())], "{count}");
            }
        }
    }
}

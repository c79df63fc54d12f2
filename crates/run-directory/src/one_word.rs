//! Models that say one word whatever was said before.

use std::collections::BTreeMap;

use undertone_models::{Extension, SequenceModel};
use undertone_text::Vocab;

/// Number of texts that are tried: the commonest words, each alone.
const TEXTS: usize = 256;

/// The part of the texts after which one word is the likeliest.
const NEARLY_ALL: f64 = 0.95;

/// The sentence about a model that predicts one word after nearly every word.
///
/// There is none for another model, for a model of sub-words, and for one that gives no finite probabilities. The sentence is computed
/// from the released model and its words alone, so the guarantee of its run still applies.
#[must_use]
pub fn one_word(model: &dyn SequenceModel, parameters: &[f32], vocab: &Vocab) -> Option<String> {
    let special = vocab.special();
    let ids = 0..u32::try_from(vocab.len()).ok()?;
    let words: Vec<u32> = ids.filter(|&id| special.is_candidate(id, false)).collect();
    let tried = TEXTS.min(vocab.words().len());
    let mut decoder = model.decoder(parameters, 1).ok()?;
    let mut logits = vec![0.0; model.vocab_size()];
    let mut counts = BTreeMap::new();
    for &word in &words[..tried.min(words.len())] {
        let (sequence, tokens) = (0, &[special.bos, word]);
        decoder.reset(sequence);
        decoder
            .extend(&[Extension { sequence, tokens }], &mut logits)
            .ok()?;
        let logit = |id: &u32| logits.get(*id as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let likeliest = words
            .iter()
            .max_by(|one, other| logit(one).total_cmp(&logit(other)))?;
        *counts.entry(*likeliest).or_insert(0) += 1;
    }
    let (id, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (f64::from(count) >= NEARLY_ALL * tried as f64).then(|| {
        format!(
            "the model says {:?} nearly always: it learnt the commonest word only. More rounds, more users or less noise would help",
            vocab.word(id)
        )
    })
}

#[cfg(test)]
mod tests {
    use undertone_models::ModelSpec;

    use super::*;

    #[test]
    fn a_model_that_always_says_one_word_is_named_with_it_and_another_is_not() {
        let words: String = (0..40).map(|word| format!("word{word}\n")).collect();
        let vocab = Vocab::from_words(words.as_bytes()).unwrap();
        let spec = ModelSpec::Cifg {
            cells: 8,
            embedding: 4,
            projection: 4,
            tied: false,
        };
        let model = spec.build(vocab.len()).unwrap();
        let mut parameters = model.initial_params(1);
        assert_eq!(one_word(model.as_ref(), &parameters, &vocab), None);
        // The last parameters are a bias for each id. UNK is never offered.
        let bias = parameters.len() - vocab.len();
        parameters[bias + 3 + 7] = 1000.0;
        let sentence = one_word(model.as_ref(), &parameters, &vocab).unwrap();
        assert!(
            sentence.starts_with("the model says \"word7\" nearly always"),
            "{sentence}"
        );
        parameters[bias + 3] = f32::NAN;
        assert_eq!(one_word(model.as_ref(), &parameters, &vocab), None);
    }
}

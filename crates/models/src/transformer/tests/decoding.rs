//! Decoding by several threads, with drafts.

use super::llama::relatives;
use super::*;
use crate::decoder::{Decoder, DecoderOptions, Drafting, Extension};
use crate::error::ModelError;

/// The relatives of Llama, which are narrower than a panel, and models whose matrices several threads share: one of GPT-2's
/// architecture, one with gates, one attention head of keys and a norm per head, and one with adapters.
fn models() -> Vec<(String, Transformer, Vec<f32>)> {
    let wide = |positions, architecture| {
        Transformer::new(TransformerSizes {
            vocab: 131,
            layers: 2,
            width: 120,
            heads: 6,
            context: 40,
            inner: 150,
            positions,
            architecture,
        })
        .unwrap()
    };
    let gated = Architecture {
        key_heads: Some(3),
        ..Architecture::LLAMA
    };
    let one_key = Architecture {
        key_heads: Some(1),
        head_norms: true,
        scaled_embedding: true,
        ..gated
    };
    let mut models: Vec<(String, Transformer)> = relatives()
        .into_iter()
        .map(|(name, model)| (name.to_owned(), model))
        .collect();
    models.push(("GPT-2".to_owned(), wide(Positions::Learned, Architecture::GPT2)));
    models.push(("gates".to_owned(), wide(Positions::Rotary, gated)));
    models.push(("one head of keys".to_owned(), wide(Positions::Rotary, one_key)));
    let mut models: Vec<_> = models
        .into_iter()
        .map(|(name, model)| {
            let params = narrow(&parameters(&model, 5));
            (name, model, params)
        })
        .collect();
    let base = wide(Positions::Learned, Architecture::GPT2);
    let lora = LoraSpec {
        rank: 3,
        alpha: 2.0,
        targets: BlockMatrix::ALL.to_vec(),
    };
    let adapted = base
        .clone()
        .with_lora(narrow(&parameters(&base, 6)), &lora)
        .unwrap();
    let adapters = narrow(&numbers(adapted.layout.len(), 4, 0.5));
    models.push(("adapters".to_owned(), adapted, adapters));
    models
}

fn drafting(model: &Transformer, params: &[f32], sequences: usize, threads: usize) -> Box<dyn Decoder> {
    let options = DecoderOptions {
        sequences,
        threads,
        drafts: true,
    };
    model.decoder_with(params, &options).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn of(sequence: usize, tokens: &[u32]) -> Extension<'_> {
    Extension { sequence, tokens }
}

/// Twenty tokens of a sequence.
fn tokens(vocab: usize, sequence: usize) -> Vec<u32> {
    (0..20)
        .map(|place| ((place * 37 + place / 3 + 5 * sequence) % vocab) as u32)
        .collect()
}

/// The logits after each token, from one thread that reads one token of one sequence at a time.
fn one_by_one(model: &Transformer, params: &[f32], tokens: &[u32]) -> Vec<f32> {
    let mut decoder = model.decoder(params, 1).unwrap();
    let vocab = model.vocab_size();
    let mut all = vec![0.0; tokens.len() * vocab];
    for (token, logits) in tokens.iter().zip(all.chunks_exact_mut(vocab)) {
        decoder.extend(&[of(0, &[*token])], logits).unwrap();
    }
    all
}

#[test]
#[ignore = "slow"]
fn logits_have_the_same_bits_however_they_are_computed() {
    for (name, model, params) in models() {
        let vocab = model.vocab_size();
        let texts = [tokens(vocab, 0), tokens(vocab, 1)];
        let expected = [0, 1].map(|text| bits(&one_by_one(&model, &params, &texts[text])));
        let wrong = [(vocab - 1) as u32; 20];
        for threads in [1, 2, 3] {
            let mut decoder = drafting(&model, &params, 2, threads);
            let decoder = decoder.drafting().unwrap();
            let mut logits = vec![0.0; 40 * vocab];
            let mut read = [0, 0];
            // Wrong and right drafts come before, and some exact tokens are read twice.
            for [first, second] in [[1, 9], [8, 1], [1, 1], [7, 2], [2, 5], [1, 2]] {
                for place in 0..(first + second) % 5 {
                    let token = [texts[0][read[0]], wrong[place]][place % 2];
                    decoder
                        .draft(&[of(0, &[token]), of(1, &[3])], &mut logits[..2 * vocab])
                        .unwrap();
                }
                decoder
                    .verify(&[of(1, &wrong[..3])], &mut logits[..3 * vocab])
                    .unwrap();
                decoder.truncate(1, read[1]);
                let parts = [
                    &texts[0][read[0]..read[0] + first],
                    &texts[1][read[1]..read[1] + second],
                ];
                let rows = &mut logits[..(first + second) * vocab];
                decoder.verify(&[of(0, parts[0]), of(1, parts[1])], rows).unwrap();
                let (of_first, of_second) = rows.split_at(first * vocab);
                for (text, rows) in [of_first, of_second].into_iter().enumerate() {
                    let expected = &expected[text][read[text] * vocab..][..rows.len()];
                    assert_eq!(
                        bits(rows),
                        expected,
                        "{name}, {threads} threads, text {text} at {read:?}"
                    );
                    read[text] += parts[text].len();
                    assert_eq!(decoder.len(text), read[text]);
                }
            }
            assert_eq!(read, [20, 20]);
            // From the start, at once.
            decoder.reset(0);
            decoder.extend(&[of(0, &texts[0])], &mut logits[..vocab]).unwrap();
            assert_eq!(
                bits(&logits[..vocab]),
                expected[0][19 * vocab..],
                "{name}, {threads} threads"
            );
        }
    }
}

/// Errors of 8 bits per weight are small beside the spread of logits, and there is an error.
#[test]
fn drafts_are_near_the_exact_logits_and_leave_them_alone() {
    for (name, model, params) in models() {
        let vocab = model.vocab_size();
        let text = tokens(vocab, 2);
        let exact = one_by_one(&model, &params, &text);
        for threads in [1, 2] {
            let mut decoder = drafting(&model, &params, 1, threads);
            let decoder = decoder.drafting().unwrap();
            let mut logits = vec![0.0; 4 * vocab];
            decoder
                .extend(&[of(0, &text[..4])], &mut logits[..vocab])
                .unwrap();
            let (mut error, mut square) = (0.0, 0.0);
            for place in 4..8 {
                let logits = &mut logits[..vocab];
                decoder.draft(&[of(0, &text[place..=place])], logits).unwrap();
                assert_eq!(decoder.len(0), 4, "drafts are no tokens of the sequence");
                let exact = &exact[place * vocab..][..vocab];
                let mean = exact.iter().sum::<f32>() / vocab as f32;
                for (got, exact) in logits.iter().zip(exact) {
                    error += (got - exact).powi(2);
                    square += (exact - mean).powi(2);
                }
            }
            let relative = (error / square).sqrt();
            assert!(relative > 0.0 && relative < 0.1, "{name}: {relative}");
            decoder.verify(&[of(0, &text[4..8])], &mut logits).unwrap();
            assert_eq!(bits(&logits), bits(&exact[4 * vocab..8 * vocab]), "{name}");
        }
    }
}

#[test]
fn drafts_that_cannot_be_made_are_refused() {
    let (_, model, params) = models().swap_remove(0);
    let (vocab, context) = (model.vocab_size(), model.sizes().context);
    let mut plain = model.decoder(&params, 1).unwrap();
    assert!(plain.drafting().is_none());
    let mut decoder = drafting(&model, &params, 1, 2);
    let decoder: &mut dyn Drafting = decoder.drafting().unwrap();
    let long = vec![1; context];
    let mut logits = vec![0.0; context * vocab];
    decoder
        .extend(&[of(0, &long[2..])], &mut logits[..vocab])
        .unwrap();
    for _ in 0..2 {
        decoder.draft(&[of(0, &[1])], &mut logits[..vocab]).unwrap();
    }
    let refused = decoder.draft(&[of(0, &[1])], &mut logits[..vocab]).unwrap_err();
    assert!(matches!(refused, ModelError::SequenceTooLong { .. }), "{refused}");
    // Drafts take no place from exact tokens.
    decoder
        .verify(&[of(0, &long[..2])], &mut logits[..2 * vocab])
        .unwrap();
    assert_eq!(decoder.len(0), context);
    let refused = decoder.verify(&[of(0, &[1])], &mut logits[..vocab]).unwrap_err();
    assert!(matches!(refused, ModelError::SequenceTooLong { .. }), "{refused}");
    decoder.truncate(0, context + 7);
    assert_eq!(decoder.len(0), context);
    decoder.truncate(0, 3);
    decoder.truncate(9, 3);
    assert_eq!((decoder.len(0), decoder.len(9)), (3, 0));
    let refused = decoder
        .verify(&[of(0, &[1, 2])], &mut logits[..vocab])
        .unwrap_err();
    assert!(
        matches!(refused, ModelError::ParameterCount { .. }),
        "{refused:?}"
    );
    for tokens in [&[][..], &[vocab as u32]] {
        assert!(decoder.draft(&[of(0, tokens)], &mut logits[..vocab]).is_err());
        assert!(
            decoder
                .verify(&[of(0, tokens)], &mut logits[..tokens.len() * vocab])
                .is_err()
        );
    }
    assert_eq!(decoder.len(0), 3, "what is refused changes nothing");
}

#[test]
fn parameters_that_are_not_finite_end_no_thread() {
    let (_, model, params) = models().swap_remove(0);
    let params = vec![f32::NAN; params.len()];
    let mut decoder = drafting(&model, &params, 1, 2);
    let decoder = decoder.drafting().unwrap();
    let mut logits = vec![0.0; model.vocab_size()];
    for draft in [true, false] {
        let refused = match draft {
            true => decoder.draft(&[of(0, &[1])], &mut logits),
            false => decoder.verify(&[of(0, &[1])], &mut logits),
        };
        assert!(
            matches!(refused, Err(ModelError::NonFiniteLoss { .. })),
            "{refused:?}"
        );
    }
}

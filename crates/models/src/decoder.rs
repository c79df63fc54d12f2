//! Decoding: sequences grow token by token, and what was computed of them is kept.

use undertone_aggregation::ParamLayout;

use crate::batch::{IGNORE, PackedBatch};
use crate::error::{ModelError, Result, check_count};
use crate::sequence::{SequenceModel, SequenceWorker, StateMode};

/// New tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Extension<'a> {
    /// The sequence, from 0.
    pub sequence: usize,
    /// The next tokens of the sequence, at least one.
    pub tokens: &'a [u32],
}

/// The size of a decoder, and how it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Number of sequences.
    pub sequences: usize,
    /// Number of threads that share each pass, the caller's own among them. The others wait between passes, and end with the decoder. No
    /// bit of a logit depends on their number.
    pub threads: usize,
    /// `true` for a decoder that can [draft](Drafting), where the model has one. It takes a quarter more memory.
    pub drafts: bool,
}

impl DecoderOptions {
    /// One thread without drafts.
    #[must_use]
    pub(crate) fn plain(sequences: usize) -> Self {
        Self {
            sequences,
            threads: 1,
            drafts: false,
        }
    }
}

/// Predicts the next token of sequences that grow.
///
/// A decoder has its own copy of the parameters and keeps what it computed of each sequence: a recurrent state, or the keys and values
/// of attention. A new token therefore costs the same at any length, but for attention itself. Logits are those of
/// [`evaluate`](SequenceWorker::evaluate) on the whole sequence, up to rounding. A decoder is used by one thread at a time.
///
/// # Example
/// ```
/// use undertone_models::{Extension, ModelSpec};
///
/// let spec = ModelSpec::Dplm { embed: 4, hidden: 8, unit_norm: true };
/// let model = spec.build(20)?;
/// let mut decoder = model.decoder(&model.initial_params(1), 1)?;
/// let mut logits = vec![0.0; model.vocab_size()];
/// decoder.extend(&[Extension { sequence: 0, tokens: &[1, 7] }], &mut logits)?;
/// decoder.extend(&[Extension { sequence: 0, tokens: &[5] }], &mut logits)?;
/// assert_eq!(decoder.len(0), 3);
/// # Ok::<(), undertone_models::ModelError>(())
/// ```
pub trait Decoder: Send {
    /// Number of sequences.
    fn sequences(&self) -> usize;

    /// Max number of tokens per sequence; `None` for a model that reads any number.
    fn context(&self) -> Option<usize>;

    /// Number of tokens of a sequence; 0 for one that does not exist.
    fn len(&self, sequence: usize) -> usize;

    /// Forgets the tokens of a sequence.
    fn reset(&mut self, sequence: usize);

    /// Appends tokens to sequences, and writes the logits of the token after each of them: `[extensions, vocabulary]`, row-major.
    ///
    /// Nothing changes where an error is returned, except for [`NonFiniteLoss`](ModelError::NonFiniteLoss).
    ///
    /// # Errors
    /// No extension, an extension without tokens, an unknown token or sequence, a sequence that is named twice or grows beyond the context, a
    /// slice of logits of another length, and logits that are not finite.
    fn extend(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()>;

    /// The cheaper predictions of this decoder; `None` where it was made without, or the model has none.
    fn drafting(&mut self) -> Option<&mut dyn Drafting> {
        None
    }
}

/// A decoder that guesses several tokens cheaply and then checks them all in one pass, which reads the parameters once.
///
/// Drafts use a copy of the matrices in 8 bits per weight, and the keys and values that are known. They follow the exact tokens of a
/// sequence until anything exact is done with it.
///
/// # Guarantee
/// Logits of [`verify`](Self::verify) and of [`extend`](Decoder::extend) have the same bits, whatever was drafted before, however
/// tokens are divided between calls, and whatever other sequences there are; the one exception is a model whose keys or values of a
/// *later* token of the same call are not finite.
///
/// # Source
/// Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023.
pub trait Drafting: Decoder {
    /// Appends tokens to the drafts of sequences, and writes logits near those that [`extend`](Decoder::extend) would write.
    ///
    /// # Errors
    /// The errors of [`extend`](Decoder::extend).
    fn draft(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()>;

    /// Appends tokens as [`extend`](Decoder::extend) does, and writes the logits after **each** of them: `[tokens, vocabulary]`,
    /// row-major. Drafts of these sequences are forgotten.
    ///
    /// # Errors
    /// The errors of [`extend`](Decoder::extend).
    fn verify(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()>;

    /// Forgets the drafts of a sequence, and its exact tokens from `len` on.
    fn truncate(&mut self, sequence: usize, len: usize);
}

/// Refuses extensions that a decoder cannot make: of sequences of these lengths, with logits for `rows` tokens.
pub(crate) fn check(
    decoder: &dyn Decoder,
    vocab: usize,
    extensions: &[Extension<'_>],
    rows: usize,
    lengths: impl Fn(usize) -> usize,
    logits: &[f32],
) -> Result<()> {
    if extensions.is_empty() {
        return Err(ModelError::EmptyBatch);
    }
    check_count("logit", rows.saturating_mul(vocab), logits.len())?;
    let (limit, mut row) = (decoder.sequences(), 0);
    for (place, &Extension { sequence, tokens }) in extensions.iter().enumerate() {
        if sequence >= limit {
            let (what, got) = ("sequences", sequence.saturating_add(1));
            return Err(ModelError::BatchTooLarge { what, limit, got });
        }
        if extensions[..place].iter().any(|other| other.sequence == sequence) {
            return Err(ModelError::RepeatedSequence { sequence });
        }
        if tokens.is_empty() {
            return Err(ModelError::EmptyBatch);
        }
        let got = lengths(sequence).saturating_add(tokens.len());
        if let Some(context) = decoder.context().filter(|&context| got > context) {
            return Err(ModelError::SequenceTooLong {
                sequence,
                context,
                got,
            });
        }
        if let Some(unknown) = tokens.iter().position(|&token| token as usize >= vocab) {
            let (row, token, vocab_size) = (row + unknown, tokens[unknown], vocab);
            return Err(ModelError::TokenOutOfRange {
                row,
                token,
                vocab_size,
            });
        }
        row += tokens.len();
    }
    Ok(())
}

/// Refuses logits that are not finite.
pub(crate) fn check_finite(logits: &[f32], rows: usize) -> Result<()> {
    match logits.iter().find(|logit| !logit.is_finite()) {
        None => Ok(()),
        Some(&logit) => Err(ModelError::NonFiniteLoss {
            loss: f64::from(logit),
            targets: rows,
        }),
    }
}

/// Rows that a recurrent decoder computes at one time.
const ROWS: usize = 64;

/// The decoder of a recurrent model: a worker per sequence, which carries its state.
pub(crate) struct Recurrent {
    parameters: Vec<f32>,
    vocab: usize,
    workers: Vec<Box<dyn SequenceWorker>>,
    lengths: Vec<usize>,
    packed: PackedBatch,
}

impl Recurrent {
    pub(crate) fn new(model: &dyn SequenceModel, params: &[f32], sequences: usize) -> Result<Self> {
        check_count("parameter", ParamLayout::len(model.layout()), params.len())?;
        Ok(Self {
            parameters: params.to_vec(),
            vocab: model.vocab_size(),
            workers: (0..sequences).map(|_| model.worker(1, ROWS)).collect(),
            lengths: vec![0; sequences],
            packed: PackedBatch::default(),
        })
    }
}

impl Decoder for Recurrent {
    fn sequences(&self) -> usize {
        self.workers.len()
    }

    fn context(&self) -> Option<usize> {
        None
    }

    fn len(&self, sequence: usize) -> usize {
        self.lengths.get(sequence).copied().unwrap_or(0)
    }

    fn reset(&mut self, sequence: usize) {
        if let Some(worker) = self.workers.get_mut(sequence) {
            worker.reset_state();
            self.lengths[sequence] = 0;
        }
    }

    fn extend(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()> {
        let lengths = |sequence: usize| self.lengths[sequence];
        check(self, self.vocab, extensions, extensions.len(), lengths, logits)?;
        let targets = [IGNORE; ROWS];
        for (&Extension { sequence, tokens }, line) in
            extensions.iter().zip(logits.chunks_exact_mut(self.vocab))
        {
            for tokens in tokens.chunks(ROWS) {
                let batch = self.packed.pack(&[(tokens, &targets[..tokens.len()])]);
                let mut keep = |row: usize, logits: &[f32], _: f32| {
                    if row + 1 == tokens.len() {
                        line.copy_from_slice(logits);
                    }
                };
                self.workers[sequence].evaluate(&self.parameters, &batch, StateMode::Carry, &mut keep)?;
                self.lengths[sequence] += tokens.len();
            }
        }
        check_finite(logits, extensions.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ModelSpec;
    use crate::testing::{logits, numbers};

    const IDS: usize = 61;

    fn specs() -> Vec<ModelSpec> {
        [
            r#"{"family":"dplm","embed":6,"hidden":9}"#,
            r#"{"family":"stackoverflow","embed":6,"hidden":9}"#,
            r#"{"family":"cifg","cells":9,"embedding":6,"projection":5}"#,
            r#"{"family":"cifg","cells":9,"embedding":6,"projection":6,"tied":true}"#,
            r#"{"family":"transformer","layers":2,"width":12,"heads":3,"context":150}"#,
            r#"{"family":"transformer","layers":2,"width":12,"heads":2,"context":150,"positions":"rotary","feed_forward":3}"#,
        ]
        .into_iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
    }

    fn singles(len: usize, seed: u64) -> Vec<f32> {
        let values = numbers(len, seed, 0.8);
        values.into_iter().map(|value| value as f32).collect()
    }

    /// The logits of the token after `tokens`, in double precision and without a cache.
    fn expected(model: &dyn SequenceModel, params: &[f32], tokens: &[u32]) -> Vec<f64> {
        let wide: Vec<f64> = params.iter().copied().map(f64::from).collect();
        let targets = vec![IGNORE; tokens.len()];
        let mut packed = PackedBatch::default();
        let batch = packed.pack(&[(tokens, &targets)]);
        let mut worker = model.check_worker(1, tokens.len());
        let rows = logits(worker.as_mut(), &wide, &batch, StateMode::Zero);
        rows[tokens.len() - 1][..model.vocab_size()].to_vec()
    }

    fn assert_near(expected: &[f64], got: &[f32], what: &str) {
        let scale = expected.iter().fold(1e-3f64, |top, value| top.max(value.abs()));
        for (expected, got) in expected.iter().zip(got) {
            assert!(
                (expected - f64::from(*got)).abs() < 1e-4 * scale,
                "{what}: {expected} {got}"
            );
        }
    }

    /// Three sequences grow by parts of all lengths, singly and together, and one starts again.
    fn grows_as_it_is_evaluated(model: &dyn SequenceModel, params: &[f32], what: &str) {
        let vocab = model.vocab_size();
        let mut decoder = model.decoder(params, 3).unwrap();
        let mut all: [Vec<u32>; 3] = Default::default();
        let mut next = 7_u32;
        for lengths in [
            [1, 1, 1],
            [5, 1, 0],
            [0, 0, 2],
            [1, 1, 1],
            [1, 0, 1],
            [0, 130, 0],
            [1, 1, 1],
        ] {
            let mut new: [Vec<u32>; 3] = Default::default();
            for (new, length) in new.iter_mut().zip(lengths) {
                new.extend((0..length).map(|_| {
                    next = (next * 29 + 11) % 4093;
                    next % IDS as u32
                }));
            }
            let extensions: Vec<Extension<'_>> = (0..3)
                .filter(|&sequence| !new[sequence].is_empty())
                .map(|sequence| Extension {
                    sequence,
                    tokens: &new[sequence],
                })
                .collect();
            let mut logits = vec![0.0; extensions.len() * vocab];
            decoder.extend(&extensions, &mut logits).unwrap();
            for (extension, logits) in extensions.iter().zip(logits.chunks_exact(vocab)) {
                let tokens = &mut all[extension.sequence];
                tokens.extend(extension.tokens);
                assert_eq!(decoder.len(extension.sequence), tokens.len());
                assert_near(&expected(model, params, tokens), logits, what);
            }
        }
        decoder.reset(1);
        assert_eq!(decoder.len(1), 0);
        let mut logits = vec![0.0; vocab];
        decoder
            .extend(
                &[Extension {
                    sequence: 1,
                    tokens: &[3, 4],
                }],
                &mut logits,
            )
            .unwrap();
        assert_near(&expected(model, params, &[3, 4]), &logits, what);
    }

    #[test]
    fn every_family_decodes_what_it_evaluates() {
        for spec in specs() {
            let model = spec.build(IDS).unwrap();
            let params = singles(model.layout().len(), 5);
            grows_as_it_is_evaluated(model.as_ref(), &params, &format!("{spec:?}"));
        }
    }

    #[test]
    fn adapters_are_part_of_what_is_decoded() {
        let mut spec = serde_json::to_value(&specs()[5]).unwrap();
        let base = specs()[5].build(IDS).unwrap();
        let params = singles(base.layout().len(), 5);
        let file = base.write_params(&params, "a test").unwrap();
        spec["lora"] = serde_json::json!({ "rank": 2, "alpha": 3.0 });
        let spec: ModelSpec = serde_json::from_value(spec).unwrap();
        let model = spec.load(IDS, &file).unwrap().model;
        let adapters = singles(model.layout().len(), 6);
        grows_as_it_is_evaluated(model.as_ref(), &adapters, "adapters");
        let (with, without) = (
            expected(model.as_ref(), &adapters, &[3]),
            expected(base.as_ref(), &params, &[3]),
        );
        assert!(
            with.iter().zip(&without).any(|(a, b)| (a - b).abs() > 1e-3),
            "the adapters change something"
        );
    }

    #[test]
    fn extensions_that_cannot_be_made_are_refused_and_change_nothing() {
        for spec in specs() {
            let model = spec.build(IDS).unwrap();
            let params = model.initial_params(1);
            assert!(model.decoder(&params[1..], 1).is_err());
            let mut decoder = model.decoder(&params, 2).unwrap();
            // A family may have an id of its own for padding.
            let vocab = model.vocab_size();
            let unknown = [1, vocab as u32];
            let mut logits = vec![0.0; vocab];
            let long = vec![1; 151];
            let of = |sequence, tokens| Extension { sequence, tokens };
            let mut refused: Vec<(Vec<Extension<'_>>, &str)> = vec![
                (vec![], "empty"),
                (vec![of(0, &[])], "empty"),
                (vec![of(2, &[1])], "sequences"),
                (vec![of(0, &unknown)], "vocabulary"),
                (vec![of(0, &[1]), of(1, &[2])], "logit"),
            ];
            if decoder.context().is_some() {
                refused.push((vec![of(0, &long)], "context"));
            }
            for (extensions, words) in refused {
                let error = decoder.extend(&extensions, &mut logits).unwrap_err().to_string();
                assert!(error.contains(words), "{spec:?}: {error}");
            }
            let mut two = vec![0.0; 2 * vocab];
            let twice = decoder.extend(&[of(1, &[1]), of(1, &[2])], &mut two);
            assert_eq!(twice, Err(ModelError::RepeatedSequence { sequence: 1 }));
            assert_eq!((decoder.len(0), decoder.len(1), decoder.len(9)), (0, 0, 0));
        }
    }

    #[test]
    fn parameters_that_give_no_finite_logits_are_an_error() {
        for spec in specs() {
            let model = spec.build(IDS).unwrap();
            let params = vec![f32::NAN; model.layout().len()];
            let mut decoder = model.decoder(&params, 1).unwrap();
            let tokens = &[1];
            let mut logits = vec![0.0; model.vocab_size()];
            let extended = decoder.extend(&[Extension { sequence: 0, tokens }], &mut logits);
            assert!(
                matches!(extended, Err(ModelError::NonFiniteLoss { .. })),
                "{spec:?}"
            );
        }
    }
}

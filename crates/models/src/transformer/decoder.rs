//! Decoding with a cache of keys and values, by threads that share each pass.

mod board;
mod crew;
mod shard;

use super::heads::HeadNorms;
use super::norm::Normaliser;
use super::rotary::Rotaries;
use super::{BlockTensors, Transformer, TransformerSizes};
use crate::decoder::{Decoder, DecoderOptions, Drafting, Extension, check, check_finite};
use crate::error::Result;
use crate::kernels::{
    isa::Isa,
    vector::{add_scaled, scale_rows},
};
use crate::transformer::block::by;
use crew::Crew;
use shard::Shard;
use std::ops::Range;

/// Tokens that pass through the blocks together.
const ROWS: usize = 128;

/// The transformer over sequences that grow.
pub(super) struct TransformerDecoder {
    vocab: usize,
    context: usize,
    drafts: bool,
    crew: Crew,
    lengths: Vec<Length>,
}

/// Numbers of tokens of a sequence.
#[derive(Debug, Clone, Copy, Default)]
struct Length {
    exact: usize,
    /// Number of tokens after the exact ones whose keys and values come from drafts.
    drafted: usize,
}

/// The vectors and settings that all threads read.
struct Shared {
    /// Embedding and positions, and the gains and biases of norms.
    embedding: Vec<f32>,
    positions: Vec<f32>,
    blocks: Vec<Vectors>,
    final_norm: [Vec<f32>; 2],
    norm: Normaliser,
    head_norms: Option<HeadNorms>,
    rotary: Rotaries<f32>,
}

/// Gains and biases of the norms of one block; those that the model lacks are empty.
struct Vectors {
    norm1: [Vec<f32>; 2],
    head_norms: [Vec<f32>; 2],
    norm2: [Vec<f32>; 2],
    /// Gains of the norms of the outputs of attention and of the feed-forward layer.
    output_norms: [Vec<f32>; 2],
}

/// Rows of a pass that belong to one sequence, and the position of the first of them.
struct Part {
    sequence: usize,
    rows: Range<usize>,
    first: usize,
}

/// Rows that pass through all blocks together.
#[derive(Default)]
struct Pass {
    tokens: Vec<u32>,
    parts: Vec<Part>,
    /// `false` for matrices of 8 bits per weight.
    exact: bool,
    /// The rows whose logits are computed.
    wanted: Vec<usize>,
}

impl Shared {
    fn new(model: &Transformer, params: &[f32]) -> Self {
        let (sizes, tensors) = (model.sizes, &model.tensors);
        let of = |range: &Range<usize>| params[range.clone()].to_vec();
        let norm = Normaliser::new(Isa::detect(), &sizes.architecture);
        let block = |tensors: &BlockTensors| Vectors {
            norm1: [of(&tensors.norm1), of(&tensors.norm1_bias)],
            head_norms: [of(&tensors.query_norm), of(&tensors.key_norm)],
            norm2: [of(&tensors.norm2), of(&tensors.norm2_bias)],
            output_norms: [of(&tensors.o_norm), of(&tensors.down_norm)],
        };
        Self {
            embedding: of(&tensors.embedding),
            positions: of(&tensors.positions),
            blocks: tensors.blocks.iter().map(block).collect(),
            final_norm: [of(&tensors.final_norm), of(&tensors.final_norm_bias)],
            norm,
            head_norms: HeadNorms::of(norm, sizes),
            rotary: Rotaries::of(sizes, sizes.context),
        }
    }

    /// Writes the input of the first block.
    fn read(&self, isa: Isa, sizes: TransformerSizes, tokens: &[u32], parts: &[Part], x: &mut [f32]) {
        let width = sizes.width;
        for (&token, line) in tokens.iter().zip(x.chunks_exact_mut(width)) {
            line.copy_from_slice(&self.embedding[token as usize * width..][..width]);
            if sizes.architecture.scaled_embedding {
                scale_rows(isa, line, width, &[sizes.embedding_scale() as f32]);
            }
        }
        for part in parts.iter().filter(|_| !self.positions.is_empty()) {
            let lines = &mut x[by(&part.rows, width)];
            let from = &self.positions[part.first * width..][..lines.len()];
            add_scaled(isa, lines, 1.0, from);
        }
    }
}

/// The logits that an extension gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The logits after the last token of the extension.
    Last,
    /// The logits after each token of the extension.
    Each,
}

impl TransformerDecoder {
    /// A decoder of a model without adapters.
    pub(super) fn new(model: &Transformer, params: &[f32], options: &DecoderOptions) -> Self {
        let DecoderOptions {
            sequences,
            threads,
            drafts,
        } = *options;
        let threads = threads.max(1);
        let shard = |number| Shard::new(model, params, sequences, drafts, number, threads);
        let (first, others) = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|number| scope.spawn(move || shard(number)))
                .collect();
            let first = shard(0);
            let others = others.into_iter().map(|other| match other.join() {
                Ok(shard) => shard,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            (first, others.collect())
        });
        Self {
            vocab: model.sizes.vocab,
            context: model.sizes.context,
            drafts,
            crew: Crew::new(Shared::new(model, params), first, others),
            lengths: vec![Length::default(); sequences],
        }
    }

    /// Appends checked tokens, which change the lengths alone where an error is returned.
    fn append(
        &mut self,
        extensions: &[Extension<'_>],
        logits: &mut [f32],
        exact: bool,
        wanted: Wanted,
    ) -> Result<()> {
        let empty = || Pass {
            exact,
            ..Pass::default()
        };
        let (mut pass, mut rest) = (empty(), &mut logits[..]);
        for extension in extensions {
            let sequence = extension.sequence;
            if exact {
                self.lengths[sequence].drafted = 0;
            }
            let mut left = extension.tokens.len();
            for some in extension.tokens.chunks(ROWS) {
                if pass.tokens.len() + some.len() > ROWS {
                    rest = self.run(std::mem::replace(&mut pass, empty()), rest);
                }
                let length = &mut self.lengths[sequence];
                let first = length.exact + length.drafted;
                let rows = pass.tokens.len()..pass.tokens.len() + some.len();
                pass.tokens.extend_from_slice(some);
                left -= some.len();
                match wanted {
                    Wanted::Each => pass.wanted.extend(rows.clone()),
                    Wanted::Last if left == 0 => pass.wanted.push(rows.end - 1),
                    Wanted::Last => {}
                }
                pass.parts.push(Part {
                    sequence,
                    rows,
                    first,
                });
                *(if exact {
                    &mut length.exact
                } else {
                    &mut length.drafted
                }) += some.len();
            }
        }
        self.run(pass, rest);
        check_finite(logits, logits.len() / self.vocab)
    }

    /// Makes a pass, and writes the logits that it wants. Returns the room behind them.
    fn run<'a>(&mut self, pass: Pass, logits: &'a mut [f32]) -> &'a mut [f32] {
        let (own, rest) = logits.split_at_mut(pass.wanted.len() * self.vocab);
        self.crew.pass(pass, self.vocab, own);
        rest
    }
}

impl Decoder for TransformerDecoder {
    fn sequences(&self) -> usize {
        self.lengths.len()
    }

    fn context(&self) -> Option<usize> {
        Some(self.context)
    }

    fn len(&self, sequence: usize) -> usize {
        self.lengths.get(sequence).map_or(0, |length| length.exact)
    }

    fn reset(&mut self, sequence: usize) {
        if let Some(length) = self.lengths.get_mut(sequence) {
            *length = Length::default();
        }
    }

    fn extend(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()> {
        let lengths = |sequence: usize| self.lengths[sequence].exact;
        check(self, self.vocab, extensions, extensions.len(), lengths, logits)?;
        self.append(extensions, logits, true, Wanted::Last)
    }

    fn drafting(&mut self) -> Option<&mut dyn Drafting> {
        self.drafts.then_some(self)
    }
}

impl Drafting for TransformerDecoder {
    fn draft(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()> {
        let lengths = |sequence: usize| self.lengths[sequence].exact + self.lengths[sequence].drafted;
        check(self, self.vocab, extensions, extensions.len(), lengths, logits)?;
        self.append(extensions, logits, false, Wanted::Last)
    }

    fn verify(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()> {
        let lengths = |sequence: usize| self.lengths[sequence].exact;
        let rows = extensions.iter().map(|extension| extension.tokens.len()).sum();
        check(self, self.vocab, extensions, rows, lengths, logits)?;
        self.append(extensions, logits, true, Wanted::Each)
    }

    fn truncate(&mut self, sequence: usize, len: usize) {
        if let Some(length) = self.lengths.get_mut(sequence) {
            *length = Length {
                exact: length.exact.min(len),
                drafted: 0,
            };
        }
    }
}

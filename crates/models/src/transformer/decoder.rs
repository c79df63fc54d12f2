//! Decoding with a cache of keys and values.

use super::block::{add_vector, by};
use super::feed_forward::Activation;
use super::heads::HeadNorms;
use super::linear::Panels;
use super::norm::Normaliser;
use super::rotary::Rotary;
use super::{BlockTensors, Transformer, TransformerSizes};
use crate::decoder::{Decoder, Extension, check, check_finite};
use crate::error::Result;
use crate::kernels::{
    causal::causal_softmax,
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    vector::{add_scaled, scale_rows},
};
use std::ops::Range;

/// Tokens of one sequence that pass through the blocks together.
const ROWS: usize = 128;

/// The transformer over sequences that grow.
///
/// Matrices stand in panels, so that one row reads each of them once and in order: the speed of memory is the limit of decoding.
pub(super) struct TransformerDecoder {
    isa: Isa,
    sizes: TransformerSizes,
    /// Embedding and positions, and the gains and biases, in the places of the flat vector without the matrices.
    embedding: Vec<f32>,
    positions: Vec<f32>,
    blocks: Vec<Block>,
    final_norm: [Vec<f32>; 2],
    /// The output matrix, which may be the embedding once more.
    output: Panels<f32>,
    norm: Normaliser,
    head_norms: Option<HeadNorms>,
    activation: Activation,
    rotary: Option<Rotary<f32>>,
    sequences: Vec<Sequence>,
    room: Room,
}

/// One block's matrices, gains and biases; those that the model lacks are empty.
struct Block {
    norm1: [Vec<f32>; 2],
    qkv: (Panels<f32>, Vec<f32>),
    head_norms: [Vec<f32>; 2],
    o: (Panels<f32>, Vec<f32>),
    norm2: [Vec<f32>; 2],
    up: (Panels<f32>, Vec<f32>),
    down: (Panels<f32>, Vec<f32>),
}

/// Keys and values of one sequence, for every block.
struct Sequence {
    len: usize,
    /// Per block `[key heads, head width, context]`: a key is a column.
    keys: Vec<Vec<f32>>,
    /// Per block `[key heads, context, head width]`.
    values: Vec<Vec<f32>>,
}

/// Memory of one pass, which grows to the largest pass.
#[derive(Default)]
struct Room {
    stats: Vec<[f32; 2]>,
    /// Queries and keys before their norms, and the statistics of these.
    heads: Vec<f32>,
    head_stats: Vec<[f32; 2]>,
    x: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    middle: Vec<f32>,
    up: Vec<f32>,
    activated: Vec<f32>,
    scores: Vec<f32>,
}

/// Rows of a pass that belong to one sequence, and the position of the first of them.
struct Part {
    sequence: usize,
    rows: Range<usize>,
    first: usize,
}

impl TransformerDecoder {
    /// A decoder of a model without adapters.
    pub(super) fn new(model: &Transformer, params: &[f32], sequences: usize) -> Self {
        let (isa, sizes, tensors) = (Isa::detect(), model.sizes, &model.tensors);
        let of = |range: &Range<usize>| params[range.clone()].to_vec();
        let TransformerSizes {
            vocab,
            layers,
            width,
            context,
            ..
        } = sizes;
        let block = |tensors: &BlockTensors| {
            let [qkv, o, up, down] = tensors.matrices(sizes).map(|(range, input, output)| {
                let mut panels = Panels::new(input, output);
                panels.pack(isa, &params[range.clone()], input, output);
                panels
            });
            Block {
                norm1: [of(&tensors.norm1), of(&tensors.norm1_bias)],
                qkv: (qkv, of(&tensors.qkv_bias)),
                head_norms: [of(&tensors.query_norm), of(&tensors.key_norm)],
                o: (o, of(&tensors.o_bias)),
                norm2: [of(&tensors.norm2), of(&tensors.norm2_bias)],
                up: (up, of(&tensors.up_bias)),
                down: (down, of(&tensors.down_bias)),
            }
        };
        let mut output = Panels::new(vocab, width);
        output.pack_transposed(isa, &params[tensors.output.clone()], vocab, width);
        let norm = Normaliser::new(isa, &sizes.architecture);
        let cache = || {
            (0..layers)
                .map(|_| vec![0.0; sizes.key_width() * context])
                .collect()
        };
        Self {
            isa,
            sizes,
            embedding: of(&tensors.embedding),
            positions: of(&tensors.positions),
            blocks: tensors.blocks.iter().map(block).collect(),
            final_norm: [of(&tensors.final_norm), of(&tensors.final_norm_bias)],
            output,
            norm,
            head_norms: HeadNorms::of(norm, sizes),
            activation: Activation::of(isa, sizes),
            rotary: Rotary::of(sizes, context),
            sequences: (0..sequences)
                .map(|_| Sequence {
                    len: 0,
                    keys: cache(),
                    values: cache(),
                })
                .collect(),
            room: Room::default(),
        }
    }

    /// Passes rows through all blocks. The room's `x` holds their outputs afterwards.
    fn pass(&mut self, tokens: &[u32], parts: &[Part]) {
        let (isa, rows) = (self.isa, tokens.len());
        let sizes = self.sizes;
        let TransformerSizes { width, inner, .. } = sizes;
        let (attended_width, triple_width) = (sizes.query_width(), sizes.qkv_width());
        let Self {
            embedding,
            positions,
            blocks,
            rotary,
            sequences,
            room,
            norm,
            ..
        } = self;
        room.fit(sizes, rows);
        for (&token, line) in tokens.iter().zip(room.x.chunks_exact_mut(width)) {
            line.copy_from_slice(&embedding[token as usize * width..][..width]);
            if sizes.architecture.scaled_embedding {
                scale_rows(isa, line, width, &[sizes.embedding_scale() as f32]);
            }
        }
        for part in parts.iter().filter(|_| !positions.is_empty()) {
            let lines = &mut room.x[by(&part.rows, width)];
            let from = &positions[part.first * width..][..lines.len()];
            add_scaled(isa, lines, 1.0, from);
        }
        for (layer, block) in blocks.iter().enumerate() {
            let narrow = rows * width;
            let [x, normed, middle] =
                [&mut room.x, &mut room.normed, &mut room.middle].map(|all| &mut all[..narrow]);
            let stats = &mut room.stats[..rows];
            norm.forward(x, &block.norm1[0], &block.norm1[1], normed, stats);
            let qkv = &mut room.qkv[..rows * triple_width];
            product(isa, &block.qkv, normed, qkv);
            if let Some(heads) = self.head_norms {
                let gains = [&block.head_norms[0][..], &block.head_norms[1]];
                heads.forward(qkv, gains, &(0..rows), &mut room.heads, &mut room.head_stats);
            }
            for part in parts {
                let qkv = &mut qkv[by(&part.rows, triple_width)];
                if let Some(rotary) = rotary {
                    rotary.turn(qkv, part.first, false);
                }
                let attended = &mut room.attended[by(&part.rows, attended_width)];
                sequences[part.sequence].attend(
                    isa,
                    sizes,
                    layer,
                    part.first,
                    qkv,
                    attended,
                    &mut room.scores,
                );
            }
            add_vector(isa, middle, x, &block.o.1);
            let attended = &room.attended[..rows * attended_width];
            block.o.0.multiply(isa, attended, middle, true);
            norm.forward(middle, &block.norm2[0], &block.norm2[1], normed, stats);
            let up = &mut room.up[..rows * sizes.up_width()];
            let activated = &mut room.activated[..rows * inner];
            product(isa, &block.up, normed, up);
            self.activation.forward(up, activated);
            add_vector(isa, x, middle, &block.down.1);
            block.down.0.multiply(isa, activated, x, true);
        }
        for part in parts {
            sequences[part.sequence].len = part.first + part.rows.len();
        }
    }

    /// The logits after the last rows of the parts of the last pass.
    fn logits(&mut self, parts: &[Part], logits: &mut [f32]) {
        let (isa, width) = (self.isa, self.sizes.width);
        let room = &mut self.room;
        for (place, part) in parts.iter().enumerate() {
            let last = part.rows.end - 1;
            room.middle[place * width..][..width].copy_from_slice(&room.x[last * width..][..width]);
        }
        let (count, [gain, bias]) = (parts.len(), &self.final_norm);
        let states = &mut room.normed[..count * width];
        let (rows, stats) = (&room.middle[..count * width], &mut room.stats[..count]);
        self.norm.forward(rows, gain, bias, states, stats);
        self.output.multiply(isa, states, logits, false);
    }
}

impl Sequence {
    /// Adds the keys and values of rows to the cache, and writes what the rows attend to.
    #[allow(clippy::too_many_arguments)]
    fn attend(
        &mut self,
        isa: Isa,
        sizes: TransformerSizes,
        layer: usize,
        first: usize,
        qkv: &[f32],
        attended: &mut [f32],
        scores: &mut [f32],
    ) {
        let (context, head_width) = (sizes.context, sizes.head_width());
        let (width, key_width, triple) = (sizes.query_width(), sizes.key_width(), sizes.qkv_width());
        let (rows, seen) = (attended.len() / width, first + attended.len() / width);
        let scores = &mut scores[..rows * seen];
        let (keys, values) = (&mut self.keys[layer], &mut self.values[layer]);
        let group = sizes.heads / sizes.key_heads();
        for key_head in 0..sizes.key_heads() {
            let column = key_head * head_width;
            let place = column * context;
            let keys = &mut keys[place..place + head_width * context];
            let values = &mut values[place..place + head_width * context];
            for (row, line) in qkv.chunks_exact(triple).enumerate() {
                let (key, value) = (
                    &line[width + column..][..head_width],
                    &line[width + key_width + column..][..head_width],
                );
                for (number, &part) in key.iter().enumerate() {
                    keys[number * context + first + row] = part;
                }
                values[(first + row) * head_width..][..head_width].copy_from_slice(value);
            }
            for column in (key_head * group..(key_head + 1) * group).map(|head| head * head_width) {
                let left = Left::strided(&qkv[column..], triple, 1);
                let across = Extent {
                    rows,
                    cols: seen,
                    depth: head_width,
                };
                let right = Right::Rows(keys, context);
                matmul(isa, across, 1.0, left, right, scores, seen, false);
                let scale = (1.0 / (head_width as f64).sqrt()) as f32;
                causal_softmax(isa, scores, seen, seen, first, scale);
                let left = Left::strided(scores, seen, 1);
                let along = Extent {
                    rows,
                    cols: head_width,
                    depth: seen,
                };
                let right = Right::Rows(values, head_width);
                let attended = &mut attended[column..];
                matmul(isa, along, 1.0, left, right, attended, width, false);
            }
        }
    }
}

impl Room {
    fn fit(&mut self, sizes: TransformerSizes, rows: usize) {
        let width = sizes.width;
        let normed = sizes.normed_heads();
        for (all, each) in [
            (&mut self.heads, normed * sizes.head_width()),
            (&mut self.x, width),
            (&mut self.normed, width),
            (&mut self.qkv, sizes.qkv_width()),
            (&mut self.attended, sizes.query_width()),
            (&mut self.middle, width),
            (&mut self.up, sizes.up_width()),
            (&mut self.activated, sizes.inner),
            (&mut self.scores, sizes.context),
        ] {
            all.resize(all.len().max(rows * each), 0.0);
        }
        for (all, each) in [(&mut self.stats, 1), (&mut self.head_stats, normed)] {
            all.resize(all.len().max(rows * each), [0.0; 2]);
        }
    }
}

/// `target = source * matrix + bias`, row by row.
fn product(isa: Isa, (panels, bias): &(Panels<f32>, Vec<f32>), source: &[f32], target: &mut [f32]) {
    panels.multiply_and_add(isa, source, bias, target);
}

impl Decoder for TransformerDecoder {
    fn sequences(&self) -> usize {
        self.sequences.len()
    }

    fn context(&self) -> Option<usize> {
        Some(self.sizes.context)
    }

    fn len(&self, sequence: usize) -> usize {
        self.sequences.get(sequence).map_or(0, |sequence| sequence.len)
    }

    fn reset(&mut self, sequence: usize) {
        if let Some(sequence) = self.sequences.get_mut(sequence) {
            sequence.len = 0;
        }
    }

    fn extend(&mut self, extensions: &[Extension<'_>], logits: &mut [f32]) -> Result<()> {
        let vocab = self.sizes.vocab;
        check(self, vocab, extensions, logits.len())?;
        // Single tokens of all sequences pass together; longer extensions pass one after the other, in parts.
        let single = extensions.iter().all(|extension| extension.tokens.len() == 1);
        if single && extensions.len() <= ROWS {
            let tokens: Vec<u32> = extensions.iter().map(|extension| extension.tokens[0]).collect();
            let part = |(row, extension): (usize, &Extension<'_>)| Part {
                sequence: extension.sequence,
                rows: row..row + 1,
                first: self.len(extension.sequence),
            };
            let parts: Vec<Part> = extensions.iter().enumerate().map(part).collect();
            self.pass(&tokens, &parts);
            self.logits(&parts, logits);
            return check_finite(logits, extensions.len());
        }
        for (&Extension { sequence, tokens }, line) in extensions.iter().zip(logits.chunks_exact_mut(vocab)) {
            let mut parts = Vec::new();
            for tokens in tokens.chunks(ROWS) {
                let (rows, first) = (0..tokens.len(), self.len(sequence));
                parts = vec![Part {
                    sequence,
                    rows,
                    first,
                }];
                self.pass(tokens, &parts);
            }
            self.logits(&parts, line);
        }
        check_finite(logits, extensions.len())
    }
}

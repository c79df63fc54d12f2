//! Decoding with a cache of keys and values.

use super::block::by;
use super::linear::Panels;
use super::rotary::Rotary;
use super::{BlockTensors, Positions, Transformer, TransformerSizes};
use crate::decoder::{Decoder, Extension, check, check_finite};
use crate::error::Result;
use crate::kernels::{
    causal::causal_softmax,
    gelu::gelu,
    isa::Isa,
    layer_norm::normalise,
    matmul::{Extent, Left, Right, matmul},
    vector::{add_scaled, add_to_rows},
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
    /// The embedding once more, as the matrix of the output.
    output: Panels<f32>,
    rotary: Option<Rotary<f32>>,
    sequences: Vec<Sequence>,
    room: Room,
}

/// One block's matrices, gains and biases.
struct Block {
    norm1: [Vec<f32>; 2],
    qkv: (Panels<f32>, Vec<f32>),
    o: (Panels<f32>, Vec<f32>),
    norm2: [Vec<f32>; 2],
    up: (Panels<f32>, Vec<f32>),
    down: (Panels<f32>, Vec<f32>),
}

/// Keys and values of one sequence, for every block.
struct Sequence {
    len: usize,
    /// Per block `[heads, head width, context]`: a key is a column.
    keys: Vec<Vec<f32>>,
    /// Per block `[heads, context, head width]`.
    values: Vec<Vec<f32>>,
}

/// Memory of one pass, which grows to the largest pass.
#[derive(Default)]
struct Room {
    stats: Vec<[f32; 2]>,
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
            inner,
            ..
        } = sizes;
        let panels = |range: &Range<usize>, input, output| {
            let mut panels = Panels::new(input, output);
            panels.pack(isa, &params[range.clone()], input, output);
            panels
        };
        let block = |tensors: &BlockTensors| Block {
            norm1: [of(&tensors.norm1), of(&tensors.norm1_bias)],
            qkv: (panels(&tensors.qkv, width, 3 * width), of(&tensors.qkv_bias)),
            o: (panels(&tensors.o, width, width), of(&tensors.o_bias)),
            norm2: [of(&tensors.norm2), of(&tensors.norm2_bias)],
            up: (panels(&tensors.up, width, inner), of(&tensors.up_bias)),
            down: (panels(&tensors.down, inner, width), of(&tensors.down_bias)),
        };
        let mut output = Panels::new(vocab, width);
        output.pack_transposed(isa, &params[tensors.embedding.clone()], vocab, width);
        let cache = || (0..layers).map(|_| vec![0.0; width * context]).collect();
        Self {
            isa,
            sizes,
            embedding: of(&tensors.embedding),
            positions: of(&tensors.positions),
            blocks: tensors.blocks.iter().map(block).collect(),
            final_norm: [of(&tensors.final_norm), of(&tensors.final_norm_bias)],
            output,
            rotary: (sizes.positions == Positions::Rotary)
                .then(|| Rotary::new(context, sizes.heads, sizes.head_width())),
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
        let TransformerSizes { width, inner, .. } = self.sizes;
        let Self {
            embedding,
            positions,
            blocks,
            rotary,
            sequences,
            room,
            ..
        } = self;
        room.fit(self.sizes, rows);
        for (&token, line) in tokens.iter().zip(room.x.chunks_exact_mut(width)) {
            line.copy_from_slice(&embedding[token as usize * width..][..width]);
        }
        for part in parts.iter().filter(|_| !positions.is_empty()) {
            let lines = &mut room.x[by(&part.rows, width)];
            let from = &positions[part.first * width..][..lines.len()];
            add_scaled(isa, lines, 1.0, from);
        }
        for (layer, block) in blocks.iter().enumerate() {
            let (narrow, wide) = (rows * width, rows * inner);
            let [x, normed, middle] =
                [&mut room.x, &mut room.normed, &mut room.middle].map(|all| &mut all[..narrow]);
            let stats = &mut room.stats[..rows];
            normalise(isa, x, &block.norm1[0], &block.norm1[1], normed, stats);
            let qkv = &mut room.qkv[..3 * narrow];
            product(isa, &block.qkv, normed, qkv);
            for part in parts {
                let qkv = &mut qkv[by(&part.rows, 3 * width)];
                if let Some(rotary) = rotary {
                    rotary.turn(qkv, part.first, false);
                }
                let attended = &mut room.attended[by(&part.rows, width)];
                sequences[part.sequence].attend(
                    isa,
                    self.sizes,
                    layer,
                    part.first,
                    qkv,
                    attended,
                    &mut room.scores,
                );
            }
            add_to_rows(isa, middle, x, &block.o.1);
            block.o.0.multiply(isa, &room.attended[..narrow], middle, true);
            normalise(isa, middle, &block.norm2[0], &block.norm2[1], normed, stats);
            let [up, activated] = [&mut room.up, &mut room.activated].map(|all| &mut all[..wide]);
            product(isa, &block.up, normed, up);
            gelu(isa, up, activated);
            add_to_rows(isa, x, middle, &block.down.1);
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
        normalise(
            isa,
            &room.middle[..count * width],
            gain,
            bias,
            states,
            &mut room.stats[..count],
        );
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
        let TransformerSizes {
            width,
            heads,
            context,
            ..
        } = sizes;
        let head_width = sizes.head_width();
        let (rows, seen) = (attended.len() / width, first + attended.len() / width);
        let scores = &mut scores[..rows * seen];
        let (keys, values) = (&mut self.keys[layer], &mut self.values[layer]);
        for head in 0..heads {
            let column = head * head_width;
            let place = column * context;
            let keys = &mut keys[place..place + head_width * context];
            let values = &mut values[place..place + head_width * context];
            for (row, line) in qkv.chunks_exact(3 * width).enumerate() {
                let (key, value) = (
                    &line[width + column..][..head_width],
                    &line[2 * width + column..][..head_width],
                );
                for (number, &part) in key.iter().enumerate() {
                    keys[number * context + first + row] = part;
                }
                values[(first + row) * head_width..][..head_width].copy_from_slice(value);
            }
            let left = Left::strided(&qkv[column..], 3 * width, 1);
            let across = Extent {
                rows,
                cols: seen,
                depth: head_width,
            };
            matmul(
                isa,
                across,
                1.0,
                left,
                Right::Rows(keys, context),
                scores,
                seen,
                false,
            );
            let scale = (1.0 / (head_width as f64).sqrt()) as f32;
            causal_softmax(isa, scores, seen, seen, first, scale);
            let left = Left::strided(scores, seen, 1);
            let along = Extent {
                rows,
                cols: head_width,
                depth: seen,
            };
            matmul(
                isa,
                along,
                1.0,
                left,
                Right::Rows(values, head_width),
                &mut attended[column..],
                width,
                false,
            );
        }
    }
}

impl Room {
    fn fit(&mut self, sizes: TransformerSizes, rows: usize) {
        let TransformerSizes {
            width,
            inner,
            context,
            ..
        } = sizes;
        for (all, each) in [
            (&mut self.x, width),
            (&mut self.normed, width),
            (&mut self.qkv, 3 * width),
            (&mut self.attended, width),
            (&mut self.middle, width),
            (&mut self.up, inner),
            (&mut self.activated, inner),
            (&mut self.scores, context),
        ] {
            all.resize(all.len().max(rows * each), 0.0);
        }
        self.stats.resize(self.stats.len().max(rows), [0.0; 2]);
    }
}

/// `target = source * matrix + bias`, row by row.
fn product(isa: Isa, (panels, bias): &(Panels<f32>, Vec<f32>), source: &[f32], target: &mut [f32]) {
    for line in target.chunks_exact_mut(bias.len()) {
        line.copy_from_slice(bias);
    }
    panels.multiply(isa, source, target, true);
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

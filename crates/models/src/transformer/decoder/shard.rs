//! The columns of all matrices that one thread computes.

use super::board::Seat;
use super::{Part, Pass, Shared};
use crate::kernels::{
    causal::causal_softmax,
    isa::Isa,
    matmul::{Extent, Left, PANEL, Right, matmul},
    soft_cap::soft_cap,
    vector::add_scaled,
};
use crate::transformer::block::by;
use crate::transformer::feed_forward::Activation;
use crate::transformer::linear::{Coarse, Panels};
use crate::transformer::tensors::{BlockTensors, Tensors};
use crate::transformer::{Transformer, TransformerSizes};
use std::ops::Range;

/// One thread's part of the model and of the caches.
///
/// Each thread computes its columns of every product and attends with its heads. What follows needs all columns, so the threads gather
/// them. A column is the same sum in the same order whichever thread computes it.
pub(super) struct Shard {
    isa: Isa,
    sizes: TransformerSizes,
    blocks: Vec<Block>,
    /// The output matrix, which may be the embedding once more.
    output: Matrix,
    /// Columns of `o` and of `down`, which are those of the residual stream.
    columns: Range<usize>,
    key_heads: Range<usize>,
    /// Columns of the activation.
    inner: usize,
    activation: Activation,
    caches: Vec<Cache>,
    room: Room,
    /// Logits of this thread's part of the vocabulary for the rows that the last pass wanted.
    pub(super) logits: Vec<f32>,
    pub(super) vocabulary: usize,
}

struct Block {
    qkv: Matrix,
    o: Matrix,
    up: Matrix,
    down: Matrix,
}

/// Columns of a matrix, in panels: one row reads each of them once and in order, since the speed of memory is the limit of decoding.
struct Matrix {
    panels: Panels<f32>,
    /// The matrix in 8 bits per weight, for drafts.
    coarse: Option<Coarse>,
    /// Empty for a matrix without bias.
    bias: Vec<f32>,
}

/// Keys and values of one sequence, for every block.
struct Cache {
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
    activated: Vec<f32>,
    scores: Vec<f32>,
    /// Columns of this thread: of any product, and of the activation.
    own: Vec<f32>,
    own_activated: Vec<f32>,
}

/// The part of `count` things that thread `number` of `threads` has, in whole units.
fn part_of(count: usize, unit: usize, number: usize, threads: usize) -> Range<usize> {
    let units = count.div_ceil(unit);
    let bound = |number: usize| (units * number / threads * unit).min(count);
    bound(number)..bound(number + 1)
}

/// Columns of a row-major matrix, side by side.
fn columns_of(matrix: &[f32], width: usize, ranges: &[Range<usize>]) -> Vec<f32> {
    let columns: usize = ranges.iter().map(Range::len).sum();
    let mut own = Vec::with_capacity(matrix.len() / width * columns);
    for line in matrix.chunks_exact(width) {
        for range in ranges {
            own.extend_from_slice(&line[range.clone()]);
        }
    }
    own
}

impl Matrix {
    fn new(
        isa: Isa,
        weights: &[f32],
        [input, output]: [usize; 2],
        bias: &[f32],
        ranges: &[Range<usize>],
        drafts: bool,
    ) -> Self {
        let own = columns_of(weights, output, ranges);
        let columns = own.len() / input;
        let mut panels = Panels::new(input, columns);
        panels.pack(isa, &own, input, columns);
        Self {
            coarse: drafts.then(|| Coarse::of(&panels)),
            panels,
            bias: match bias.is_empty() {
                true => Vec::new(),
                false => columns_of(bias, output, ranges),
            },
        }
    }

    /// Adds products with all rows of `source` to `target`.
    fn add(&self, isa: Isa, exact: bool, source: &[f32], target: &mut [f32]) {
        self.multiply(isa, exact, source, target, true);
    }

    fn multiply(&self, isa: Isa, exact: bool, source: &[f32], target: &mut [f32], accumulate: bool) {
        match &self.coarse {
            Some(coarse) if !exact => coarse.multiply(isa, source, target, accumulate),
            _ => self.panels.multiply(isa, source, target, accumulate),
        }
    }

    /// `target = source * matrix + bias`, row by row.
    fn product(&self, isa: Isa, exact: bool, source: &[f32], target: &mut [f32]) {
        if !self.bias.is_empty() {
            for row in target.chunks_exact_mut(self.bias.len()) {
                row.copy_from_slice(&self.bias);
            }
        }
        self.multiply(isa, exact, source, target, !self.bias.is_empty());
    }
}

impl Shard {
    /// Thread `number` of `threads`, for a model without adapters.
    pub(super) fn new(
        model: &Transformer,
        params: &[f32],
        sequences: usize,
        drafts: bool,
        number: usize,
        threads: usize,
    ) -> Self {
        let (isa, sizes, tensors) = (Isa::detect(), model.sizes, &model.tensors);
        let Tensors { output, blocks, .. } = tensors;
        let TransformerSizes {
            vocab,
            layers,
            width,
            inner,
            context,
            ..
        } = sizes;
        let share = |count, unit| part_of(count, unit, number, threads);
        let (columns, key_heads) = (share(width, PANEL), share(sizes.key_heads(), 1));
        let of_inner = share(inner, PANEL);
        // Gate and value of a column belong together.
        let of_up: Vec<Range<usize>> = (0..sizes.up_width() / inner)
            .map(|side| side * inner + of_inner.start..side * inner + of_inner.end)
            .collect();
        let ranges: [&[Range<usize>]; 4] = [
            &[share(sizes.qkv_width(), PANEL)],
            std::slice::from_ref(&columns),
            &of_up,
            std::slice::from_ref(&columns),
        ];
        let block = |tensors: &BlockTensors| {
            let biases = [
                &tensors.qkv_bias,
                &tensors.o_bias,
                &tensors.up_bias,
                &tensors.down_bias,
            ];
            let matrices = tensors.matrices(sizes).into_iter().zip(biases).zip(ranges);
            let mut matrices = matrices.map(|(((place, input, output), bias), ranges)| {
                let (weights, bias) = (&params[place.clone()], &params[bias.clone()]);
                Matrix::new(isa, weights, [input, output], bias, ranges, drafts)
            });
            let [Some(qkv), Some(o), Some(up), Some(down)] = std::array::from_fn(|_| matrices.next()) else {
                unreachable!("a block has four matrices")
            };
            Block { qkv, o, up, down }
        };
        let words = share(vocab, PANEL);
        let mut panels = Panels::new(words.len(), width);
        let rows = &params[output.clone()][by(&words, width)];
        panels.pack_transposed(isa, rows, words.len(), width);
        let of_heads = key_heads.len() * sizes.head_width() * context;
        let cache = || (0..layers).map(|_| vec![0.0; of_heads]).collect();
        Self {
            isa,
            sizes,
            blocks: blocks.iter().map(block).collect(),
            output: Matrix {
                coarse: drafts.then(|| Coarse::of(&panels)),
                panels,
                bias: Vec::new(),
            },
            columns,
            key_heads,
            inner: of_inner.len(),
            activation: Activation::of(
                isa,
                TransformerSizes {
                    inner: of_inner.len(),
                    ..sizes
                },
            ),
            caches: (0..sequences)
                .map(|_| Cache {
                    keys: cache(),
                    values: cache(),
                })
                .collect(),
            room: Room::default(),
            logits: Vec::new(),
            vocabulary: words.len(),
        }
    }

    /// Passes rows through all blocks, together with the other threads, and computes the logits that are wanted.
    ///
    /// The letters of the formulas: `x` is the residual stream before a block and `m` that between its halves, `q` are queries, keys and
    /// values; `W` and `b` are matrices and biases. `A` is attention with rotation and norms of heads, `F` the activation, `L1` and `L2` are
    /// the norms before the halves, and `N1` and `N2` those of the outputs of attention and feed-forward layer, if there are any. Each
    /// thread computes its own columns of each product, and `gather` brings those of all threads together.
    pub(super) fn pass(&mut self, shared: &Shared, seat: &mut Seat, pass: &Pass) {
        let _guard = seat.guard();
        let (tokens, parts, exact) = (&pass.tokens[..], &pass.parts[..], pass.exact);
        let (isa, sizes, rows) = (self.isa, self.sizes, tokens.len());
        let width = sizes.width;
        let qkv_width = sizes.qkv_width();
        let attended_width = sizes.query_width();
        self.room.fit(sizes, rows);
        let own_width = self.columns.len();
        let room = &mut self.room;
        shared.read(isa, sizes, tokens, parts, &mut room.x);
        let narrow = rows * width;
        let [x, normed, middle] =
            [&mut room.x, &mut room.normed, &mut room.middle].map(|all| &mut all[..narrow]);
        let stats = &mut room.stats[..rows];
        let qkv = &mut room.qkv[..rows * qkv_width];
        let attended = &mut room.attended[..rows * attended_width];
        let activated = &mut room.activated[..rows * sizes.inner];
        // q = L1(x) Wqkv + bqkv, and m = x + N1(A(q) Wo + bo)
        // x = m + N2(F(L2(m) Wup + bup) Wdown + bdown)
        for (layer, (block, vectors)) in self.blocks.iter().zip(&shared.blocks).enumerate() {
            let [gain, bias] = &vectors.norm1;
            shared.norm.forward(x, gain, bias, normed, stats);
            let own = &mut room.own[..rows * block.qkv.panels.columns()];
            block.qkv.product(isa, exact, normed, own);
            seat.gather(rows, own, qkv);
            if let Some(heads) = shared.head_norms {
                let gains = [&vectors.head_norms[0][..], &vectors.head_norms[1]];
                heads.forward(qkv, gains, &(0..rows), &mut room.heads, &mut room.head_stats);
            }
            let group = sizes.heads / sizes.key_heads() * sizes.head_width();
            let own_attended = self.key_heads.len() * group;
            let own = &mut room.own[..rows * own_attended];
            for part in parts {
                let qkv = &mut qkv[by(&part.rows, qkv_width)];
                if let Some(rotary) = shared.rotary.at(layer) {
                    rotary.turn(qkv, part.first, false);
                }
                let own = &mut own[by(&part.rows, own_attended)];
                let cache = &mut self.caches[part.sequence];
                cache.attend(
                    isa,
                    sizes,
                    &self.key_heads,
                    layer,
                    part,
                    qkv,
                    own,
                    &mut room.scores,
                );
            }
            seat.gather(rows, own, attended);
            let own = &mut room.own[..rows * own_width];
            let [after_o, after_down] = &vectors.output_norms;
            if after_o.is_empty() {
                take_columns(x, width, &self.columns, own);
                add_bias(own, &block.o.bias);
                block.o.add(isa, exact, attended, own);
                seat.gather(rows, own, middle);
            } else {
                block.o.product(isa, exact, attended, own);
                seat.gather(rows, own, normed);
                let norm = shared.norm.by_root();
                norm.forward(normed, after_o, &[], middle, stats);
                add_scaled(isa, middle, 1.0, x);
            }
            let [gain, bias] = &vectors.norm2;
            shared.norm.forward(middle, gain, bias, normed, stats);
            let up = &mut room.own[..rows * block.up.panels.columns()];
            block.up.product(isa, exact, normed, up);
            let own = &mut room.own_activated[..rows * self.inner];
            if !own.is_empty() {
                self.activation.forward(up, own);
            }
            seat.gather(rows, own, activated);
            let own = &mut room.own[..rows * own_width];
            if after_down.is_empty() {
                take_columns(middle, width, &self.columns, own);
                add_bias(own, &block.down.bias);
                block.down.add(isa, exact, activated, own);
                seat.gather(rows, own, x);
            } else {
                block.down.product(isa, exact, activated, own);
                seat.gather(rows, own, normed);
                let norm = shared.norm.by_root();
                norm.forward(normed, after_down, &[], x, stats);
                add_scaled(isa, x, 1.0, middle);
            }
        }
        self.finish(shared, pass);
    }

    /// The logits of the rows that are wanted, from the room's `x`.
    fn finish(&mut self, shared: &Shared, pass: &Pass) {
        let (isa, width, count) = (self.isa, self.sizes.width, pass.wanted.len());
        let room = &mut self.room;
        for (line, &row) in room.middle.chunks_exact_mut(width).zip(&pass.wanted) {
            line.copy_from_slice(&room.x[row * width..][..width]);
        }
        let [gain, bias] = &shared.final_norm;
        let states = &mut room.normed[..count * width];
        let (rows, stats) = (&room.middle[..count * width], &mut room.stats[..count]);
        shared.norm.forward(rows, gain, bias, states, stats);
        self.logits.resize(count * self.vocabulary, 0.0);
        self.output
            .multiply(isa, pass.exact, states, &mut self.logits, false);
        if let Some(cap) = self.sizes.architecture.soft_caps.logits {
            soft_cap(isa, &mut self.logits, 1.0, cap as f32);
        }
    }
}

/// Copies columns of rows.
fn take_columns(rows: &[f32], width: usize, columns: &Range<usize>, target: &mut [f32]) {
    if !columns.is_empty() {
        for (line, target) in rows
            .chunks_exact(width)
            .zip(target.chunks_exact_mut(columns.len()))
        {
            target.copy_from_slice(&line[columns.clone()]);
        }
    }
}

/// Adds a bias, which may be missing, to rows.
fn add_bias(rows: &mut [f32], bias: &[f32]) {
    if !bias.is_empty() {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    }
}

impl Cache {
    /// Adds the keys and values of rows to the cache, and writes what the rows attend to; both for these heads of keys alone.
    #[allow(clippy::too_many_arguments)]
    fn attend(
        &mut self,
        isa: Isa,
        sizes: TransformerSizes,
        key_heads: &Range<usize>,
        layer: usize,
        part: &Part,
        qkv: &[f32],
        attended: &mut [f32],
        scores: &mut [f32],
    ) {
        let (context, head_width) = (sizes.context, sizes.head_width());
        let (width, key_width, triple) = (sizes.query_width(), sizes.key_width(), sizes.qkv_width());
        let (first, rows) = (part.first, part.rows.len());
        let seen = first + rows;
        let scores = &mut scores[..rows * seen];
        let (keys, values) = (&mut self.keys[layer], &mut self.values[layer]);
        let group = sizes.heads / sizes.key_heads();
        let own_width = key_heads.len() * group * head_width;
        for (place, key_head) in key_heads.clone().enumerate() {
            let column = key_head * head_width;
            let here = place * head_width * context;
            let keys = &mut keys[here..here + head_width * context];
            let values = &mut values[here..here + head_width * context];
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
            for member in 0..group {
                let query = (key_head * group + member) * head_width;
                let left = Left::strided(&qkv[query..], triple, 1);
                let across = Extent {
                    rows,
                    cols: seen,
                    depth: head_width,
                };
                let right = Right::Rows(keys, context);
                matmul(isa, across, 1.0, left, right, scores, seen, false);
                let mut scale = sizes.score_scale() as f32;
                if let Some(cap) = sizes.architecture.soft_caps.scores {
                    soft_cap(isa, scores, std::mem::replace(&mut scale, 1.0), cap as f32);
                }
                causal_softmax(isa, scores, seen, seen, first, scale);
                let left = Left::strided(scores, seen, 1);
                let along = Extent {
                    rows,
                    cols: head_width,
                    depth: seen,
                };
                let right = Right::Rows(values, head_width);
                let attended = &mut attended[(place * group + member) * head_width..];
                matmul(isa, along, 1.0, left, right, attended, own_width, false);
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
            (&mut self.activated, sizes.inner),
            (&mut self.scores, sizes.context),
            (&mut self.own, sizes.widest()),
            (&mut self.own_activated, sizes.inner),
        ] {
            all.resize(all.len().max(rows * each), 0.0);
        }
        for (all, each) in [(&mut self.stats, 1), (&mut self.head_stats, normed)] {
            all.resize(all.len().max(rows * each), [0.0; 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_threads_are_the_whole_in_order() {
        for count in [0, 1, 47, 48, 49, 768, 50_257] {
            for unit in [1, PANEL] {
                for threads in 1..6 {
                    let mut end = 0;
                    for number in 0..threads {
                        let part = part_of(count, unit, number, threads);
                        assert_eq!(part.start, end);
                        assert!(part.start.is_multiple_of(unit) || part.is_empty());
                        end = part.end;
                    }
                    assert_eq!(end, count);
                }
            }
        }
    }
}

//! One block, forward and backward, over runs of whole sequences that stay in cache.

use super::attention::Attention;
use super::feed_forward::Activation;
use super::heads::HeadNorms;
use super::linear::Panels;
use super::matrices::BlockMatrix;
use super::norm::Normaliser;
use super::rotary::Rotaries;
use super::rows::Rows;
use super::{BlockTensors, TransformerSizes};
use crate::kernels::{
    isa::Isa,
    vector::{add_column_sums, add_scaled, add_to_rows},
};
use crate::scalar::Scalar;
use std::ops::Range;

/// Rows handled together, unless one sequence is longer.
const CHUNK: usize = 128;

/// The activations that a block's forward pass leaves for its backward pass, one line per row.
#[derive(Debug)]
pub(super) struct Activations<T> {
    stats1: Vec<[T; 2]>,
    pub(super) norm1: Vec<T>,
    /// Queries and keys before their norms, and the statistics of each head; empty without such norms.
    heads: Vec<T>,
    head_stats: Vec<[T; 2]>,
    qkv: Vec<T>,
    pub(super) attended: Vec<T>,
    middle: Vec<T>,
    stats2: Vec<[T; 2]>,
    pub(super) norm2: Vec<T>,
    /// Input of the activation; where it is not gated, its output after the backward pass.
    up: Vec<T>,
    /// Output of a gated activation after the backward pass; empty without gate.
    activated: Vec<T>,
    /// Outputs of attention and of the feed-forward layer before their norms, and the statistics; empty without such norms.
    after: [After<T>; 2],
}

/// The record that a norm of a block's output leaves for its backward pass.
#[derive(Debug)]
struct After<T> {
    raw: Vec<T>,
    stats: Vec<[T; 2]>,
}

impl<T: Scalar> Activations<T> {
    pub(super) fn new(sizes: TransformerSizes, max_rows: usize) -> Self {
        let zeros = |width: usize| vec![T::ZERO; width * max_rows];
        let stats = |count: usize| vec![[T::ZERO; 2]; count * max_rows];
        let normed = sizes.normed_heads();
        let gated = sizes.up_width() > sizes.inner;
        Self {
            stats1: stats(1),
            norm1: zeros(sizes.width),
            heads: zeros(normed * sizes.head_width()),
            head_stats: stats(normed),
            qkv: zeros(sizes.qkv_width()),
            attended: zeros(sizes.query_width()),
            middle: zeros(sizes.width),
            stats2: stats(1),
            norm2: zeros(sizes.width),
            up: zeros(sizes.up_width()),
            activated: if gated { zeros(sizes.inner) } else { Vec::new() },
            after: std::array::from_fn(|_| match sizes.architecture.output_norms {
                true => After {
                    raw: zeros(sizes.width),
                    stats: stats(1),
                },
                false => After {
                    raw: Vec::new(),
                    stats: Vec::new(),
                },
            }),
        }
    }

    /// Output of the activation, after the backward pass.
    pub(super) fn activated(&self) -> &[T] {
        match self.activated.is_empty() {
            true => &self.up,
            false => &self.activated,
        }
    }
}

/// Gradients of the outputs of a block's four products, one line per row.
#[derive(Debug)]
pub(super) struct Gradients<T> {
    pub(super) qkv: Vec<T>,
    pub(super) o: Vec<T>,
    pub(super) up: Vec<T>,
    pub(super) down: Vec<T>,
}

impl<T: Scalar> Gradients<T> {
    pub(super) fn new(sizes: TransformerSizes, max_rows: usize) -> Self {
        let zeros = |width: usize| vec![T::ZERO; width * max_rows];
        Self {
            qkv: zeros(sizes.qkv_width()),
            o: zeros(sizes.width),
            up: zeros(sizes.up_width()),
            down: zeros(sizes.width),
        }
    }

    /// The gradients in the order of [`BlockMatrix::ALL`].
    pub(super) fn each(&mut self) -> [&mut Vec<T>; 4] {
        [&mut self.qkv, &mut self.o, &mut self.up, &mut self.down]
    }
}

/// One line of gradients of gains and biases, taken apart.
struct Vectors<'a, T> {
    norm1: &'a mut [T],
    norm1_bias: &'a mut [T],
    qkv_bias: &'a mut [T],
    o_bias: &'a mut [T],
    norm2: &'a mut [T],
    norm2_bias: &'a mut [T],
    up_bias: &'a mut [T],
    down_bias: &'a mut [T],
    query_norm: &'a mut [T],
    key_norm: &'a mut [T],
    o_norm: &'a mut [T],
    down_norm: &'a mut [T],
}

impl<'a, T> Vectors<'a, T> {
    fn of(line: &'a mut [T], tensors: &BlockTensors) -> Self {
        let mut rest = line;
        // In the order of `BlockTensors::vectors`.
        let mut next = |range: &Range<usize>| {
            let (first, after) = std::mem::take(&mut rest).split_at_mut(range.len());
            rest = after;
            first
        };
        Self {
            norm1: next(&tensors.norm1),
            norm1_bias: next(&tensors.norm1_bias),
            qkv_bias: next(&tensors.qkv_bias),
            o_bias: next(&tensors.o_bias),
            norm2: next(&tensors.norm2),
            norm2_bias: next(&tensors.norm2_bias),
            up_bias: next(&tensors.up_bias),
            down_bias: next(&tensors.down_bias),
            query_norm: next(&tensors.query_norm),
            key_norm: next(&tensors.key_norm),
            o_norm: next(&tensors.o_norm),
            down_norm: next(&tensors.down_norm),
        }
    }
}

/// Target of the gradients of gains and biases: one line for all sequences, or one for each, `stride` apart.
pub(super) struct VectorTarget<'a, T> {
    pub(super) lines: &'a mut [T],
    pub(super) stride: usize,
    pub(super) apart: bool,
}

impl<T> VectorTarget<'_, T> {
    pub(super) fn line(&mut self, sequence: usize, width: usize) -> &mut [T] {
        let start = if self.apart { sequence * self.stride } else { 0 };
        &mut self.lines[start..start + width]
    }
}

/// Called after each run of sequences of a backward pass.
pub(super) type Finished<'a, T> = dyn FnMut(&Activations<T>, &Gradients<T>, &Range<usize>) + 'a;

/// Computes blocks, one after the other, in the same memory.
#[derive(Debug)]
pub(super) struct Block<T> {
    isa: Isa,
    sizes: TransformerSizes,
    norm: Normaliser,
    head_norms: Option<HeadNorms>,
    activation: Activation,
    attention: Attention<T>,
    rotary: Rotaries<T>,
    qkv: Panels<T>,
    o: Panels<T>,
    up: Panels<T>,
    down: Panels<T>,
    /// One run's output of the activation or its gradient, and gradients of the inputs of the other matrices.
    inner: Vec<T>,
    narrow: Vec<T>,
}

impl<T: Scalar> Block<T> {
    pub(super) fn new(isa: Isa, sizes: TransformerSizes, max_rows: usize) -> Self {
        let longest = sizes.context.min(max_rows);
        let chunk = CHUNK.max(longest).min(max_rows);
        let matrices = BlockMatrix::ALL.map(|matrix| sizes.extents(matrix));
        let [qkv, o, up, down] = matrices.map(|[input, output]| Panels::new(input, output));
        let norm = Normaliser::new(isa, &sizes.architecture);
        Self {
            isa,
            sizes,
            norm,
            head_norms: HeadNorms::of(norm, sizes),
            activation: Activation::of(isa, sizes),
            attention: Attention::new(isa, sizes, longest),
            rotary: Rotaries::of(sizes, longest),
            qkv,
            o,
            up,
            down,
            inner: vec![T::ZERO; chunk * sizes.inner],
            narrow: vec![T::ZERO; chunk * sizes.width.max(sizes.query_width())],
        }
    }

    /// `input` to `output`, both `[rows, width]`.
    pub(super) fn forward(
        &mut self,
        params: &[T],
        tensors: &BlockTensors,
        rows: &Rows,
        input: &[T],
        output: &mut [T],
        kept: &mut Activations<T>,
    ) {
        let TransformerSizes { width, inner, .. } = self.sizes;
        let [attended_width, triple_width, up_width] = self.widths();
        let (isa, norm, of) = (self.isa, self.norm, |range: &Range<usize>| &params[range.clone()]);
        let panels = [&mut self.qkv, &mut self.o, &mut self.up, &mut self.down];
        for (panels, (place, input, output)) in panels.into_iter().zip(tensors.matrices(self.sizes)) {
            panels.pack(isa, of(place), input, output);
        }
        for sequences in rows.chunks(CHUNK) {
            let span = rows.span(&sequences);
            let narrow = by(&span, width);
            let norm1 = &mut kept.norm1[narrow.clone()];
            let (gain, bias) = (of(&tensors.norm1), of(&tensors.norm1_bias));
            let stats = &mut kept.stats1[span.clone()];
            norm.forward(&input[narrow.clone()], gain, bias, norm1, stats);
            let qkv = &mut kept.qkv[by(&span, triple_width)];
            self.qkv.multiply_and_add(isa, norm1, of(&tensors.qkv_bias), qkv);
            if let Some(heads) = self.head_norms {
                let (raw, stats) = (&mut kept.heads, &mut kept.head_stats);
                let gains = [of(&tensors.query_norm), of(&tensors.key_norm)];
                heads.forward(qkv, gains, &span, raw, stats);
            }
            for sequence in sequences {
                let range = rows.range(sequence);
                let qkv = &mut kept.qkv[by(&range, triple_width)];
                if let Some(rotary) = self.rotary.at(tensors.layer) {
                    rotary.turn(qkv, 0, false);
                }
                let attended = &mut kept.attended[by(&range, attended_width)];
                self.attention.forward(qkv, attended);
            }
            let middle = &mut kept.middle[narrow.clone()];
            let attended = &kept.attended[by(&span, attended_width)];
            let [after_o, after_down] = &mut kept.after;
            let (bias, gain) = (of(&tensors.o_bias), of(&tensors.o_norm));
            self.add(
                &self.o,
                [attended, &input[narrow.clone()]],
                [bias, gain],
                &span,
                after_o,
                middle,
            );
            let norm2 = &mut kept.norm2[narrow.clone()];
            let (gain, bias) = (of(&tensors.norm2), of(&tensors.norm2_bias));
            norm.forward(middle, gain, bias, norm2, &mut kept.stats2[span.clone()]);
            let up = &mut kept.up[by(&span, up_width)];
            self.up.multiply_and_add(isa, norm2, of(&tensors.up_bias), up);
            self.activation.forward(up, &mut self.inner[..span.len() * inner]);
            let (bias, gain) = (of(&tensors.down_bias), of(&tensors.down_norm));
            let output = &mut output[narrow];
            self.add(
                &self.down,
                [&self.inner[..span.len() * inner], middle],
                [bias, gain],
                &span,
                after_down,
                output,
            );
        }
    }

    /// `target`, the rows `span` of the residual stream after a product, from them before it and from the factor of the product.
    fn add(
        &self,
        matrix: &Panels<T>,
        [factor, before]: [&[T]; 2],
        [bias, gain]: [&[T]; 2],
        span: &Range<usize>,
        after: &mut After<T>,
        target: &mut [T],
    ) {
        if gain.is_empty() {
            add_vector(self.isa, target, before, bias);
            matrix.multiply(self.isa, factor, target, true);
            return;
        }
        let raw = &mut after.raw[by(span, self.sizes.width)];
        matrix.multiply_and_add(self.isa, factor, bias, raw);
        let stats = &mut after.stats[span.clone()];
        self.norm.by_root().forward(raw, gain, &[], target, stats);
        add_scaled(self.isa, target, T::ONE, before);
    }

    /// The gradient of a product's output from that of the residual stream after it, and that of its norm's gain; both of one sequence.
    fn through_norm(
        &self,
        gradient: &[T],
        gain: &[T],
        rows: &Range<usize>,
        after: &After<T>,
        of_product: &mut [T],
        of_gain: &mut [T],
    ) {
        if gain.is_empty() {
            of_product.copy_from_slice(gradient);
            return;
        }
        of_product.fill(T::ZERO);
        let raw = &after.raw[by(rows, self.sizes.width)];
        let (norm, stats) = (self.norm.by_root(), &after.stats[rows.clone()]);
        norm.backward(gradient, raw, stats, gain, of_product, of_gain, &mut []);
    }

    /// Widths of the output of attention, of queries, keys and values side by side, and of the output of `up`.
    fn widths(&self) -> [usize; 3] {
        let sizes = self.sizes;
        [sizes.query_width(), sizes.qkv_width(), sizes.up_width()]
    }

    /// Turns `gradient`, that of the block's output, into that of its input, and writes those of its products, and of gains
    /// and biases. `finished(kept, gradients, run)` is called after each run of sequences.
    ///
    /// The letters of the formulas: `dy`, `dm` and `dx` are the gradients of the residual stream behind the block, between its halves and
    /// before it. `dQ`, `dO`, `dU` and `dD` are those of the outputs of the products with `Wqkv`, `Wo`, `Wup` and `Wdown`. A function takes
    /// a gradient back: `A` through attention with rotation and norms of heads, `F` through the activation, `L1` and `L2` through the norms
    /// before the halves, `N1` and `N2` through those of the outputs of attention and feed-forward layer, if there are any.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn backward(
        &mut self,
        params: &[T],
        tensors: &BlockTensors,
        rows: &Rows,
        input: &[T],
        kept: &mut Activations<T>,
        gradient: &mut [T],
        products: &mut Gradients<T>,
        vectors: &mut VectorTarget<'_, T>,
        finished: &mut Finished<'_, T>,
    ) {
        let TransformerSizes { width, inner, .. } = self.sizes;
        let [attended_width, triple_width, up_width] = self.widths();
        let (isa, norm, of) = (self.isa, self.norm, |range: &Range<usize>| &params[range.clone()]);
        let panels = [&mut self.qkv, &mut self.o, &mut self.up, &mut self.down];
        // panels = W^T, of each of the four matrices.
        for (panels, (place, input, output)) in panels.into_iter().zip(tensors.matrices(self.sizes)) {
            panels.pack_transposed(isa, of(place), input, output);
        }
        let line = tensors.vectors_len();
        // dD = N2(dy), dU = F(dD Wdown^T), dm = dy + L2(dU Wup^T)
        // dO = N1(dm), dQ = A(dO Wo^T), dx = dm + L1(dQ Wqkv^T)
        // A bias gets the sum of the rows of the gradient of its product.
        for sequences in rows.chunks(CHUNK) {
            let span = rows.span(&sequences);
            let narrow = by(&span, width);
            // The feed-forward half.
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, to) = (
                    by(&range, width),
                    Vectors::of(vectors.line(sequence, line), tensors),
                );
                let of_product = &mut products.down[own.clone()];
                let gain = of(&tensors.down_norm);
                self.through_norm(
                    &gradient[own],
                    gain,
                    &range,
                    &kept.after[1],
                    of_product,
                    to.down_norm,
                );
            }
            let wide = by(&span, up_width);
            let of_down = &products.down[narrow.clone()];
            self.activation.backward(
                |target| self.down.multiply(isa, of_down, target, false),
                &mut kept.up[wide.clone()],
                &mut products.up[wide.clone()],
                &mut self.inner[..span.len() * inner],
                match kept.activated.is_empty() {
                    true => &mut [],
                    false => &mut kept.activated[by(&span, inner)],
                },
            );
            let scratch = &mut self.narrow[..span.len() * width];
            self.up.multiply(isa, &products.up[wide], scratch, false);
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, local) = (by(&range, width), by(&shifted(&range, span.start), width));
                let to = Vectors::of(vectors.line(sequence, line), tensors);
                add_column_sums(isa, to.down_bias, T::ONE, &products.down[own.clone()]);
                add_column_sums(isa, to.up_bias, T::ONE, &products.up[by(&range, up_width)]);
                norm.backward(
                    &scratch[local],
                    &kept.middle[own.clone()],
                    &kept.stats2[range.clone()],
                    of(&tensors.norm2),
                    &mut gradient[own.clone()],
                    to.norm2,
                    to.norm2_bias,
                );
            }
            // The attention half.
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, to) = (
                    by(&range, width),
                    Vectors::of(vectors.line(sequence, line), tensors),
                );
                let of_product = &mut products.o[own.clone()];
                let gain = of(&tensors.o_norm);
                self.through_norm(
                    &gradient[own],
                    gain,
                    &range,
                    &kept.after[0],
                    of_product,
                    to.o_norm,
                );
            }
            let scratch = &mut self.narrow[..span.len() * attended_width];
            self.o.multiply(isa, &products.o[narrow.clone()], scratch, false);
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let own = by(&range, triple_width);
                let local = by(&shifted(&range, span.start), attended_width);
                let of_qkv = &mut products.qkv[own.clone()];
                self.attention.backward(&kept.qkv[own], &scratch[local], of_qkv);
                if let Some(rotary) = self.rotary.at(tensors.layer) {
                    rotary.turn(of_qkv, 0, true);
                }
                if let Some(heads) = self.head_norms {
                    let to = Vectors::of(vectors.line(sequence, line), tensors);
                    let gains = [of(&tensors.query_norm), of(&tensors.key_norm)];
                    let of_gains = [to.query_norm, to.key_norm];
                    heads.backward(of_qkv, gains, &range, &kept.heads, &kept.head_stats, of_gains);
                }
            }
            let scratch = &mut self.narrow[..span.len() * width];
            self.qkv
                .multiply(isa, &products.qkv[by(&span, triple_width)], scratch, false);
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, local) = (by(&range, width), by(&shifted(&range, span.start), width));
                let to = Vectors::of(vectors.line(sequence, line), tensors);
                add_column_sums(isa, to.o_bias, T::ONE, &products.o[own.clone()]);
                add_column_sums(isa, to.qkv_bias, T::ONE, &products.qkv[by(&range, triple_width)]);
                norm.backward(
                    &scratch[local],
                    &input[own.clone()],
                    &kept.stats1[range.clone()],
                    of(&tensors.norm1),
                    &mut gradient[own.clone()],
                    to.norm1,
                    to.norm1_bias,
                );
            }
            finished(kept, products, &sequences);
        }
    }
}

/// The places of rows in a matrix of the given width.
pub(super) fn by(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

fn shifted(rows: &Range<usize>, by: usize) -> Range<usize> {
    rows.start - by..rows.end - by
}

/// `target = source + bias` row by row; a model without this bias has an empty one.
pub(super) fn add_vector<T: Scalar>(isa: Isa, target: &mut [T], source: &[T], bias: &[T]) {
    match bias.is_empty() {
        true => target.copy_from_slice(source),
        false => add_to_rows(isa, target, source, bias),
    }
}

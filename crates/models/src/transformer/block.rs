//! One block, forward and backward, over runs of whole sequences that stay in cache.

use super::attention::Attention;
use super::linear::Panels;
use super::rotary::Rotary;
use super::rows::Rows;
use super::{BlockTensors, Positions, TransformerSizes};
use crate::kernels::{
    gelu::{gelu, gelu_backward},
    isa::Isa,
    layer_norm::{normalise, normalise_backward},
    vector::{add_column_sums, add_to_rows},
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
    qkv: Vec<T>,
    pub(super) attended: Vec<T>,
    middle: Vec<T>,
    stats2: Vec<[T; 2]>,
    pub(super) norm2: Vec<T>,
    /// Input of the GELU; its output after the backward pass.
    pub(super) up: Vec<T>,
}

impl<T: Scalar> Activations<T> {
    pub(super) fn new(sizes: TransformerSizes, max_rows: usize) -> Self {
        let zeros = |width: usize| vec![T::ZERO; width * max_rows];
        let stats = || vec![[T::ZERO; 2]; max_rows];
        Self {
            stats1: stats(),
            norm1: zeros(sizes.width),
            qkv: zeros(3 * sizes.width),
            attended: zeros(sizes.width),
            middle: zeros(sizes.width),
            stats2: stats(),
            norm2: zeros(sizes.width),
            up: zeros(sizes.inner),
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
            qkv: zeros(3 * sizes.width),
            o: zeros(sizes.width),
            up: zeros(sizes.inner),
            down: zeros(sizes.width),
        }
    }
}

/// Gradients of a block's gains and biases, side by side; one such line per sequence where they are told apart.
pub(super) fn vectors_len(sizes: TransformerSizes) -> usize {
    9 * sizes.width + sizes.inner
}

/// The tensors that [`vectors_len`] counts, in order.
pub(super) fn vectors(tensors: &BlockTensors) -> [&Range<usize>; 8] {
    [
        &tensors.norm1,
        &tensors.norm1_bias,
        &tensors.qkv_bias,
        &tensors.o_bias,
        &tensors.norm2,
        &tensors.norm2_bias,
        &tensors.up_bias,
        &tensors.down_bias,
    ]
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
}

impl<'a, T> Vectors<'a, T> {
    fn of(line: &'a mut [T], sizes: TransformerSizes) -> Self {
        let mut rest = line;
        let mut take = |width: usize| {
            let (first, after) = std::mem::take(&mut rest).split_at_mut(width);
            rest = after;
            first
        };
        let (width, inner) = (sizes.width, sizes.inner);
        Self {
            norm1: take(width),
            norm1_bias: take(width),
            qkv_bias: take(3 * width),
            o_bias: take(width),
            norm2: take(width),
            norm2_bias: take(width),
            up_bias: take(inner),
            down_bias: take(width),
        }
    }
}

/// Where the gradients of gains and biases go: one line for all sequences, or one for each, `stride` apart.
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
    attention: Attention<T>,
    rotary: Option<Rotary<T>>,
    qkv: Panels<T>,
    o: Panels<T>,
    up: Panels<T>,
    down: Panels<T>,
    /// One run's output of the GELU, and its gradients at the width of the model.
    inner: Vec<T>,
    narrow: Vec<T>,
}

impl<T: Scalar> Block<T> {
    pub(super) fn new(isa: Isa, sizes: TransformerSizes, max_rows: usize) -> Self {
        let longest = sizes.context.min(max_rows);
        let chunk = CHUNK.max(longest).min(max_rows);
        let (width, inner) = (sizes.width, sizes.inner);
        let rotary = (sizes.positions == Positions::Rotary)
            .then(|| Rotary::new(longest, sizes.heads, sizes.head_width()));
        Self {
            isa,
            sizes,
            attention: Attention::new(isa, sizes, longest),
            rotary,
            qkv: Panels::new(width, 3 * width),
            o: Panels::new(width, width),
            up: Panels::new(width, inner),
            down: Panels::new(inner, width),
            inner: vec![T::ZERO; chunk * inner],
            narrow: vec![T::ZERO; chunk * width],
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
        let (isa, of) = (self.isa, |range: &Range<usize>| &params[range.clone()]);
        self.qkv.pack(isa, of(&tensors.qkv), width, 3 * width);
        self.o.pack(isa, of(&tensors.o), width, width);
        self.up.pack(isa, of(&tensors.up), width, inner);
        self.down.pack(isa, of(&tensors.down), inner, width);
        for sequences in rows.chunks(CHUNK) {
            let span = rows.span(&sequences);
            let (narrow, triple) = (by(&span, width), by(&span, 3 * width));
            let norm1 = &mut kept.norm1[narrow.clone()];
            let stats = &mut kept.stats1[span.clone()];
            normalise(
                isa,
                &input[narrow.clone()],
                of(&tensors.norm1),
                of(&tensors.norm1_bias),
                norm1,
                stats,
            );
            let qkv = &mut kept.qkv[triple];
            fill_rows(qkv, of(&tensors.qkv_bias));
            self.qkv.multiply(isa, norm1, qkv, true);
            for sequence in sequences {
                let range = rows.range(sequence);
                let qkv = &mut kept.qkv[by(&range, 3 * width)];
                if let Some(rotary) = &self.rotary {
                    rotary.turn(qkv, 0, false);
                }
                self.attention.forward(qkv, &mut kept.attended[by(&range, width)]);
            }
            let middle = &mut kept.middle[narrow.clone()];
            add_to_rows(isa, middle, &input[narrow.clone()], of(&tensors.o_bias));
            self.o.multiply(isa, &kept.attended[narrow.clone()], middle, true);
            let norm2 = &mut kept.norm2[narrow.clone()];
            let stats = &mut kept.stats2[span.clone()];
            normalise(
                isa,
                middle,
                of(&tensors.norm2),
                of(&tensors.norm2_bias),
                norm2,
                stats,
            );
            let up = &mut kept.up[by(&span, inner)];
            fill_rows(up, of(&tensors.up_bias));
            self.up.multiply(isa, norm2, up, true);
            let activated = &mut self.inner[..span.len() * inner];
            gelu(isa, up, activated);
            let output = &mut output[narrow];
            add_to_rows(isa, output, middle, of(&tensors.down_bias));
            self.down.multiply(isa, activated, output, true);
        }
    }

    /// Turns `gradient`, that of the block's output, into that of its input, and writes those of its products, and of gains
    /// and biases. `finished(kept, gradients, run)` is called after each run of sequences.
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
        let (isa, sizes, of) = (self.isa, self.sizes, |range: &Range<usize>| {
            &params[range.clone()]
        });
        self.qkv.pack_transposed(isa, of(&tensors.qkv), width, 3 * width);
        self.o.pack_transposed(isa, of(&tensors.o), width, width);
        self.up.pack_transposed(isa, of(&tensors.up), width, inner);
        self.down.pack_transposed(isa, of(&tensors.down), inner, width);
        let line = vectors_len(sizes);
        for sequences in rows.chunks(CHUNK) {
            let span = rows.span(&sequences);
            let narrow = by(&span, width);
            let scratch = &mut self.narrow[..span.len() * width];
            // The feed-forward half.
            products.down[narrow.clone()].copy_from_slice(&gradient[narrow.clone()]);
            let of_up = &mut products.up[by(&span, inner)];
            self.down.multiply(isa, &gradient[narrow.clone()], of_up, false);
            gelu_backward(isa, &mut kept.up[by(&span, inner)], of_up);
            self.up.multiply(isa, of_up, scratch, false);
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, local) = (by(&range, width), by(&shifted(&range, span.start), width));
                let to = Vectors::of(vectors.line(sequence, line), sizes);
                add_column_sums(isa, to.down_bias, T::ONE, &products.down[own.clone()]);
                add_column_sums(isa, to.up_bias, T::ONE, &products.up[by(&range, inner)]);
                normalise_backward(
                    isa,
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
            products.o[narrow.clone()].copy_from_slice(&gradient[narrow.clone()]);
            self.o.multiply(isa, &gradient[narrow.clone()], scratch, false);
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, local) = (by(&range, 3 * width), by(&shifted(&range, span.start), width));
                let of_qkv = &mut products.qkv[own.clone()];
                self.attention.backward(&kept.qkv[own], &scratch[local], of_qkv);
                if let Some(rotary) = &self.rotary {
                    rotary.turn(of_qkv, 0, true);
                }
            }
            self.qkv
                .multiply(isa, &products.qkv[by(&span, 3 * width)], scratch, false);
            for sequence in sequences.clone() {
                let range = rows.range(sequence);
                let (own, local) = (by(&range, width), by(&shifted(&range, span.start), width));
                let to = Vectors::of(vectors.line(sequence, line), sizes);
                add_column_sums(isa, to.o_bias, T::ONE, &products.o[own.clone()]);
                add_column_sums(isa, to.qkv_bias, T::ONE, &products.qkv[by(&range, 3 * width)]);
                normalise_backward(
                    isa,
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

fn fill_rows<T: Copy>(rows: &mut [T], bias: &[T]) {
    for row in rows.chunks_exact_mut(bias.len()) {
        row.copy_from_slice(bias);
    }
}

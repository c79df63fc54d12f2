//! Products with a weight matrix `[input, output]`: forward, back to its input, and its gradient.

use crate::kernels::{
    coarse::{GROUP, multiply_coarse, round_panel},
    isa::Isa,
    matmul::{Extent, Left, PANEL, Right, matmul, matmul_tall},
    pack::{pack_left, pack_panels, pack_panels_transposed, packed_left_len, panels_len},
};
use crate::scalar::Scalar;

/// Terms of an inner product that are added up before the result is touched again: panels of this depth stay in cache.
const DEPTH: usize = 1024;
/// Rows of the batch and columns of the input that one pass over a weight gradient covers.
const PASS_ROWS: usize = 512;
const PASS_COLS: usize = 256;

/// A weight matrix in panels, packed for one direction.
#[derive(Debug)]
pub(super) struct Panels<T> {
    data: Vec<T>,
    depth: usize,
    cols: usize,
}

impl<T: Scalar> Panels<T> {
    /// Room for an `input x output` matrix in either direction.
    pub(super) fn new(input: usize, output: usize) -> Self {
        let len = panels_len(input, output).max(panels_len(output, input));
        Self {
            data: vec![T::ZERO; len],
            depth: 0,
            cols: 0,
        }
    }

    /// Packs the matrix for products `x W`.
    pub(super) fn pack(&mut self, isa: Isa, weights: &[T], input: usize, output: usize) {
        (self.depth, self.cols) = (input, output);
        for first in (0..input).step_by(DEPTH) {
            let count = DEPTH.min(input - first);
            let panels = &mut self.data[panels_len(first, output)..];
            pack_panels(isa, &weights[first * output..], output, count, output, panels);
        }
    }

    /// Packs the matrix for products `y W^T`.
    pub(super) fn pack_transposed(&mut self, isa: Isa, weights: &[T], input: usize, output: usize) {
        (self.depth, self.cols) = (output, input);
        for first in (0..output).step_by(DEPTH) {
            let count = DEPTH.min(output - first);
            let panels = &mut self.data[panels_len(first, input)..];
            pack_panels_transposed(isa, &weights[first..], output, count, input, panels);
        }
    }

    /// Number of outputs.
    pub(super) fn columns(&self) -> usize {
        self.cols
    }

    /// `target = rows * panels + bias`, all rows of `source`; a model without this bias has an empty one.
    pub(super) fn multiply_and_add(&self, isa: Isa, source: &[T], bias: &[T], target: &mut [T]) {
        if !bias.is_empty() {
            for row in target.chunks_exact_mut(bias.len()) {
                row.copy_from_slice(bias);
            }
        }
        self.multiply(isa, source, target, !bias.is_empty());
    }

    /// `target (+)= rows * panels`, all rows of `source`.
    pub(super) fn multiply(&self, isa: Isa, source: &[T], target: &mut [T], accumulate: bool) {
        let (depth, cols) = (self.depth, self.cols);
        let rows = source.len() / depth;
        for first in (0..depth).step_by(DEPTH) {
            let extent = Extent {
                rows,
                cols,
                depth: DEPTH.min(depth - first),
            };
            let left = Left::strided(&source[first..], depth, 1);
            let right = Right::Panels(&self.data[panels_len(first, cols)..]);
            matmul(
                isa,
                extent,
                T::ONE,
                left,
                right,
                target,
                cols,
                accumulate || first > 0,
            );
        }
    }
}

/// A copy of a weight matrix in 8 bits per weight, for products that may be slightly off.
#[derive(Debug)]
pub(super) struct Coarse {
    bytes: Vec<[i8; PANEL]>,
    scales: Vec<[f32; PANEL]>,
    depth: usize,
    cols: usize,
}

impl Coarse {
    /// The copy of a packed matrix, for products in the same direction.
    pub(super) fn of(panels: &Panels<f32>) -> Self {
        let (depth, cols) = (panels.depth, panels.cols);
        let count = cols.div_ceil(PANEL);
        let mut bytes = Vec::with_capacity(depth * count);
        let mut scales = Vec::with_capacity(depth.div_ceil(GROUP) * count);
        let mut whole = Vec::with_capacity(depth);
        for panel in 0..count {
            whole.clear();
            for first in (0..depth).step_by(DEPTH) {
                let lines = DEPTH.min(depth - first);
                let start = panels_len(first, cols) + panel * lines * PANEL;
                whole.extend_from_slice(panels.data[start..][..lines * PANEL].as_chunks().0);
            }
            round_panel(&whole, &mut bytes, &mut scales);
        }
        Self {
            bytes,
            scales,
            depth,
            cols,
        }
    }

    /// `target (+)= rows * matrix`, all rows of `source`.
    pub(super) fn multiply(&self, isa: Isa, source: &[f32], target: &mut [f32], accumulate: bool) {
        if self.cols > 0 {
            let Self {
                bytes,
                scales,
                depth,
                cols,
            } = self;
            multiply_coarse(isa, source, bytes, scales, *depth, *cols, target, accumulate);
        }
    }
}

/// Room to compute weight gradients in.
#[derive(Debug)]
pub(super) struct WeightGradient<T> {
    isa: Isa,
    packed: Vec<T>,
    panel: Vec<T>,
}

impl<T: Scalar> WeightGradient<T> {
    pub(super) fn new(isa: Isa, max_rows: usize, widest: usize) -> Self {
        let rows = max_rows.min(PASS_ROWS);
        Self {
            isa,
            packed: vec![T::ZERO; packed_left_len(widest.min(PASS_COLS), rows)],
            panel: vec![T::ZERO; PANEL * rows],
        }
    }

    /// `target += factor * x^T y` for `x` `[rows, input]` and `y` `[rows, output]`.
    pub(super) fn add(&mut self, target: &mut [T], factor: T, x: &[T], input: usize, y: &[T], output: usize) {
        let rows = x.len() / input;
        for first in (0..rows).step_by(PASS_ROWS) {
            let count = PASS_ROWS.min(rows - first);
            for col in (0..input).step_by(PASS_COLS) {
                let width = PASS_COLS.min(input - col);
                let source = &x[first * input + col..(first + count - 1) * input + col + width];
                pack_left(source, input, width, count, 0, count, &mut self.packed);
                let extent = Extent {
                    rows: width,
                    cols: output,
                    depth: count,
                };
                matmul_tall(
                    self.isa,
                    extent,
                    factor,
                    Left::packed(&self.packed, count),
                    (&y[first * output..], output),
                    &mut target[col * output..],
                    output,
                    true,
                    &mut self.panel,
                );
            }
        }
    }
}

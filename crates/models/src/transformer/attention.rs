//! Causal attention of one sequence at a time, head by head, in blocks of queries whose keys to the right are skipped.
//!
//! Scores are not kept: the backward pass computes them again, which costs less than reading them from memory.

use super::TransformerSizes;
use crate::kernels::{
    causal::{causal_softmax, causal_softmax_backward},
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    transpose::transpose,
};
use crate::scalar::Scalar;

/// Queries handled together.
const QUERIES: usize = 32;
/// Lines of keys are padded to whole vectors.
const LANES: usize = 16;

#[derive(Debug)]
pub(super) struct Attention<T> {
    isa: Isa,
    heads: usize,
    width: usize,
    head_width: usize,
    /// Keys and values of a head, transposed: `[head width, length]`.
    keys: Vec<T>,
    values: Vec<T>,
    /// `[QUERIES, length]`.
    scores: Vec<T>,
    gradients: Vec<T>,
}

impl<T: Scalar> Attention<T> {
    pub(super) fn new(isa: Isa, sizes: TransformerSizes, longest: usize) -> Self {
        let stride = longest.next_multiple_of(LANES);
        let zeros = |lines: usize| vec![T::ZERO; lines * stride];
        Self {
            isa,
            heads: sizes.heads,
            width: sizes.width,
            head_width: sizes.head_width(),
            keys: zeros(sizes.head_width()),
            values: zeros(sizes.head_width()),
            scores: zeros(QUERIES),
            gradients: zeros(QUERIES),
        }
    }

    fn scale(&self) -> T {
        T::of(1.0 / (self.head_width as f64).sqrt())
    }

    /// Probabilities of `count` queries from `first` on, over the keys up to their last.
    fn probabilities(&mut self, queries: &[T], first: usize, count: usize, stride: usize) {
        let scale = self.scale();
        let extent = Extent {
            rows: count,
            cols: first + count,
            depth: self.head_width,
        };
        let scores = &mut self.scores[..count * stride];
        let left = Left::strided(&queries[first * 3 * self.width..], 3 * self.width, 1);
        matmul(
            self.isa,
            extent,
            T::ONE,
            left,
            Right::Rows(&self.keys, stride),
            scores,
            stride,
            false,
        );
        causal_softmax(self.isa, scores, stride, first + count, first, scale);
    }

    /// `qkv` `[length, 3 width]` to `output` `[length, width]`.
    pub(super) fn forward(&mut self, qkv: &[T], output: &mut [T]) {
        let (isa, width, head_width) = (self.isa, self.width, self.head_width);
        let length = output.len() / width;
        let stride = length.next_multiple_of(LANES);
        for head in 0..self.heads {
            let column = head * head_width;
            let values = &qkv[2 * width + column..];
            transpose(
                isa,
                &qkv[width + column..],
                3 * width,
                length,
                head_width,
                &mut self.keys,
                stride,
            );
            for first in (0..length).step_by(QUERIES) {
                let count = QUERIES.min(length - first);
                self.probabilities(&qkv[column..], first, count, stride);
                let extent = Extent {
                    rows: count,
                    cols: head_width,
                    depth: first + count,
                };
                let left = Left::strided(&self.scores, stride, 1);
                let output = &mut output[first * width + column..];
                matmul(
                    isa,
                    extent,
                    T::ONE,
                    left,
                    Right::Rows(values, 3 * width),
                    output,
                    width,
                    false,
                );
            }
        }
    }

    /// From the gradient of the output to that of `qkv`.
    pub(super) fn backward(&mut self, qkv: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (isa, width, head_width) = (self.isa, self.width, self.head_width);
        let (length, scale) = (output_gradient.len() / width, self.scale());
        let stride = length.next_multiple_of(LANES);
        gradient.fill(T::ZERO);
        for head in 0..self.heads {
            let column = head * head_width;
            let (queries, keys, values) =
                (&qkv[column..], &qkv[width + column..], &qkv[2 * width + column..]);
            transpose(isa, keys, 3 * width, length, head_width, &mut self.keys, stride);
            transpose(
                isa,
                values,
                3 * width,
                length,
                head_width,
                &mut self.values,
                stride,
            );
            for first in (0..length).step_by(QUERIES) {
                let count = QUERIES.min(length - first);
                let seen = first + count;
                self.probabilities(queries, first, count, stride);
                let output_gradient = &output_gradient[first * width + column..];
                let across = Extent {
                    rows: count,
                    cols: seen,
                    depth: head_width,
                };
                let left = Left::strided(output_gradient, width, 1);
                let right = Right::Rows(&self.values, stride);
                matmul(
                    isa,
                    across,
                    T::ONE,
                    left,
                    right,
                    &mut self.gradients,
                    stride,
                    false,
                );
                let down = Extent {
                    rows: seen,
                    cols: head_width,
                    depth: count,
                };
                let left = Left::strided(&self.scores, 1, stride);
                let right = Right::Rows(output_gradient, width);
                let of_values = &mut gradient[2 * width + column..];
                matmul(isa, down, T::ONE, left, right, of_values, 3 * width, true);
                let gradients = &mut self.gradients[..count * stride];
                causal_softmax_backward(isa, gradients, &self.scores, stride, seen, scale);
                let along = Extent {
                    rows: count,
                    cols: head_width,
                    depth: seen,
                };
                let left = Left::strided(&self.gradients, stride, 1);
                let of_queries = &mut gradient[first * 3 * width + column..];
                matmul(
                    isa,
                    along,
                    T::ONE,
                    left,
                    Right::Rows(keys, 3 * width),
                    of_queries,
                    3 * width,
                    false,
                );
                let left = Left::strided(&self.gradients, 1, stride);
                let right = Right::Rows(&queries[first * 3 * width..], 3 * width);
                let of_keys = &mut gradient[width + column..];
                matmul(isa, down, T::ONE, left, right, of_keys, 3 * width, true);
            }
        }
    }
}

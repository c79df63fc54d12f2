//! Causal attention of one sequence at a time, head by head, in blocks of queries whose keys to the right are skipped.
//!
//! Scores are not kept: the backward pass computes them again, which costs less than reading them from memory.

use super::TransformerSizes;
use crate::kernels::{
    causal::{causal_softmax, causal_softmax_backward},
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    soft_cap::soft_cap_with_slopes,
    transpose::transpose,
    vector::multiply,
};
use crate::scalar::Scalar;

/// Queries handled together.
const QUERIES: usize = 32;
/// Lines of keys are padded to whole vectors.
const LANES: usize = 16;

#[derive(Debug)]
pub(super) struct Attention<T> {
    isa: Isa,
    /// Heads of keys and values, and how many heads of queries each of them serves.
    key_heads: usize,
    group: usize,
    head_width: usize,
    /// Width of the queries of all heads, of their keys, and of a row of queries, keys and values.
    query_width: usize,
    key_width: usize,
    row: usize,
    /// The factor of scores, and their cap.
    scale: T,
    cap: Option<T>,
    /// Keys and values of a head, transposed: `[head width, length]`.
    keys: Vec<T>,
    values: Vec<T>,
    /// `[QUERIES, length]`.
    scores: Vec<T>,
    gradients: Vec<T>,
    /// Derivatives of capped scores; empty without a cap.
    slopes: Vec<T>,
}

impl<T: Scalar> Attention<T> {
    pub(super) fn new(isa: Isa, sizes: TransformerSizes, longest: usize) -> Self {
        let stride = longest.next_multiple_of(LANES);
        let zeros = |lines: usize| vec![T::ZERO; lines * stride];
        let cap = sizes.architecture.soft_caps.scores;
        Self {
            isa,
            key_heads: sizes.key_heads(),
            group: sizes.heads / sizes.key_heads(),
            head_width: sizes.head_width(),
            query_width: sizes.query_width(),
            key_width: sizes.key_width(),
            row: sizes.qkv_width(),
            scale: T::of(sizes.score_scale()),
            cap: cap.map(T::of),
            keys: zeros(sizes.head_width()),
            values: zeros(sizes.head_width()),
            scores: zeros(QUERIES),
            gradients: zeros(QUERIES),
            slopes: zeros(if cap.is_some() { QUERIES } else { 0 }),
        }
    }

    /// Probabilities of `count` queries from `first` on, over the keys up to their last.
    fn probabilities(&mut self, queries: &[T], first: usize, count: usize, stride: usize) {
        let extent = Extent {
            rows: count,
            cols: first + count,
            depth: self.head_width,
        };
        let scores = &mut self.scores[..count * stride];
        let left = Left::strided(&queries[first * self.row..], self.row, 1);
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
        let seen = first + count;
        if let Some(cap) = self.cap {
            let lines = scores
                .chunks_exact_mut(stride)
                .zip(self.slopes.chunks_exact_mut(stride));
            for (scores, slopes) in lines {
                soft_cap_with_slopes(
                    self.isa,
                    &mut scores[..seen],
                    &mut slopes[..seen],
                    self.scale,
                    cap,
                );
            }
        }
        let (isa, scale) = (self.isa, self.softmax_scale());
        causal_softmax(
            isa,
            &mut self.scores[..count * stride],
            stride,
            seen,
            first,
            scale,
        );
    }

    /// The factor of scores within the softmax: a cap has applied it already.
    fn softmax_scale(&self) -> T {
        match self.cap {
            Some(_) => T::ONE,
            None => self.scale,
        }
    }

    /// Places of the keys and of the values of a head in a row.
    fn places(&self, key_head: usize) -> [usize; 2] {
        let keys = self.query_width + key_head * self.head_width;
        [keys, keys + self.key_width]
    }

    /// Places of the queries that a head of keys serves, which are also those of their outputs.
    fn queries_of(&self, key_head: usize) -> impl Iterator<Item = usize> + use<T> {
        let (group, head_width) = (self.group, self.head_width);
        (key_head * group..(key_head + 1) * group).map(move |head| head * head_width)
    }

    /// `qkv`, rows of queries, keys and values, to `output`, rows of the width of the queries.
    pub(super) fn forward(&mut self, qkv: &[T], output: &mut [T]) {
        let (isa, width, head_width, row) = (self.isa, self.query_width, self.head_width, self.row);
        let length = output.len() / width;
        let stride = length.next_multiple_of(LANES);
        for key_head in 0..self.key_heads {
            let [keys, values] = self.places(key_head).map(|place| &qkv[place..]);
            transpose(isa, keys, row, length, head_width, &mut self.keys, stride);
            for column in self.queries_of(key_head) {
                for first in (0..length).step_by(QUERIES) {
                    let count = QUERIES.min(length - first);
                    self.probabilities(&qkv[column..], first, count, stride);
                    let extent = Extent {
                        rows: count,
                        cols: head_width,
                        depth: first + count,
                    };
                    let left = Left::strided(&self.scores, stride, 1);
                    let right = Right::Rows(values, row);
                    let output = &mut output[first * width + column..];
                    matmul(isa, extent, T::ONE, left, right, output, width, false);
                }
            }
        }
    }

    /// Computes the gradient of `qkv` from that of the output.
    pub(super) fn backward(&mut self, qkv: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (isa, head_width, row) = (self.isa, self.head_width, self.row);
        let length = output_gradient.len() / self.query_width;
        let stride = length.next_multiple_of(LANES);
        gradient.fill(T::ZERO);
        for key_head in 0..self.key_heads {
            let [keys, values] = self.places(key_head).map(|place| &qkv[place..]);
            transpose(isa, keys, row, length, head_width, &mut self.keys, stride);
            transpose(isa, values, row, length, head_width, &mut self.values, stride);
            for column in self.queries_of(key_head) {
                for first in (0..length).step_by(QUERIES) {
                    self.backward_of_queries(qkv, output_gradient, gradient, key_head, column, first);
                }
            }
        }
    }

    /// The part of a block of queries from `first` on, of the head at `column`. Keys and values stand transposed in their places.
    fn backward_of_queries(
        &mut self,
        qkv: &[T],
        output_gradient: &[T],
        gradient: &mut [T],
        key_head: usize,
        column: usize,
        first: usize,
    ) {
        let (isa, width, head_width, row) = (self.isa, self.query_width, self.head_width, self.row);
        let (length, scale) = (output_gradient.len() / width, self.softmax_scale());
        let stride = length.next_multiple_of(LANES);
        let [keys, values] = self.places(key_head);
        let queries = &qkv[column..];
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
        let of_scores = &mut self.gradients;
        matmul(isa, across, T::ONE, left, right, of_scores, stride, false);
        let down = Extent {
            rows: seen,
            cols: head_width,
            depth: count,
        };
        let left = Left::strided(&self.scores, 1, stride);
        let right = Right::Rows(output_gradient, width);
        matmul(isa, down, T::ONE, left, right, &mut gradient[values..], row, true);
        let gradients = &mut self.gradients[..count * stride];
        causal_softmax_backward(isa, gradients, &self.scores, stride, seen, scale);
        if self.cap.is_some() {
            let lines = gradients
                .chunks_exact_mut(stride)
                .zip(self.slopes.chunks_exact(stride));
            for (gradients, slopes) in lines {
                multiply(isa, &mut gradients[..seen], &slopes[..seen]);
            }
        }
        let along = Extent {
            rows: count,
            cols: head_width,
            depth: seen,
        };
        let left = Left::strided(&self.gradients, stride, 1);
        let right = Right::Rows(&qkv[keys..], row);
        let of_queries = &mut gradient[first * row + column..];
        matmul(isa, along, T::ONE, left, right, of_queries, row, false);
        let left = Left::strided(&self.gradients, 1, stride);
        let right = Right::Rows(&queries[first * row..], row);
        matmul(isa, down, T::ONE, left, right, &mut gradient[keys..], row, true);
    }
}

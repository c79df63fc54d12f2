//! Sums of clipped per-sequence gradients from one backward pass: norms first, while everything a weight gradient is made of
//! stays in memory, then one product over the whole batch.

use super::backward::{add_vectors, factors};
use super::block::{Gradients, VectorTarget, by};
use super::gram::Table;
use super::lora::Product;
use super::matrices::BlockMatrix;
use super::worker::Worker;
use crate::batch::SequenceBatch;
use crate::error::Result;
use crate::explicit::clip;
use crate::kernels::vector::{dot, scale_rows};
use crate::scalar::Scalar;
use crate::sequence::StepStats;
use crate::target::UpdateTarget;

/// Rows whose output gradients are weighted and multiplied together.
const WEIGHTED_ROWS: usize = 512;

impl<T: Scalar> Worker<T> {
    /// Norms of the gathered sequences' gradients, by the parameters of the whole model and those that are trained, whose parts stay in the worker; the first sequence whose loss or norm is
    /// not finite otherwise.
    fn norms(&mut self, params: &[T], trained: &[T]) -> std::result::Result<StepStats, usize> {
        let layers = self.sizes.layers;
        let all = by(&(0..self.rows.len()), self.sizes.width);
        let (line, stride) = (self.tensors.block_vectors(), self.vectors_stride());
        let count = self.rows.count();
        self.weigh(|rows, sequence| T::of(1.0 / rows.targets_of(sequence).max(1) as f64));
        self.forward(params, true);
        let stats = self.head(params, true);
        for sequence in 0..count {
            if !self
                .rows
                .range(sequence)
                .all(|row| self.head.loss[row].is_finite())
            {
                return Err(sequence);
            }
        }
        for layer in (0..layers).rev() {
            if self.recompute {
                self.forward_block(params, layer, true);
            }
            let (slot, wait) = if self.recompute { (0, 0) } else { (layer, layer) };
            let mut vectors = VectorTarget {
                lines: &mut self.vectors[layer * line..],
                stride,
                apart: true,
            };
            let (rows, squares, sizes) = (&self.rows, &mut self.squares, self.sizes);
            let (gram, explicit, lora) = (&mut self.gram, &mut self.weight_gradient, &mut self.lora);
            let tensors = &self.tensors.blocks[layer];
            self.block.backward(
                params,
                &self.tensors.blocks[layer],
                rows,
                &self.residual[layer][all.clone()],
                &mut self.kept[slot],
                &mut self.gradient[all.clone()],
                &mut self.products[wait],
                &mut vectors,
                &mut |kept, products, sequences| {
                    for sequence in sequences.clone() {
                        let (range, factors) = (rows.range(sequence), factors(kept, products));
                        for product in Product::each(layer, tensors.matrices(sizes), factors, &range) {
                            let Product {
                                x, input, y, output, ..
                            } = product;
                            squares[sequence] += match lora.as_mut() {
                                None => gram.squared_norm(x, input, y, output, explicit),
                                Some(lora) => lora.squared_norm(trained, product, gram, explicit),
                            };
                        }
                    }
                },
            );
        }
        if self.lora.is_none() {
            self.add_norms_of_ends();
        }
        for sequence in 0..count {
            let square = self.squares[sequence];
            if square.value.is_nan() || !T::of(square.bounded().sqrt()).wide().is_finite() {
                return Err(sequence);
            }
        }
        Ok(stats)
    }

    /// Adds what embedding, positions, gains and biases have in the squared norms.
    fn add_norms_of_ends(&mut self) {
        let (width, stride) = (self.sizes.width, self.vectors_stride());
        let (rows, squares, gram) = (&self.rows, &mut self.squares, &mut self.gram);
        let outputs = &self.outputs;
        let (tied, scale) = (self.tensors.tied(), self.sizes.embedding_scale());
        let (states, gradient) = (&self.states, &self.gradient);
        self.head.each_kept(rows, |sequence, logits, lanes| {
            let range = rows.range(sequence);
            let (states, gathered) = (&states[by(&range, width)], &gradient[by(&range, width)]);
            let table = Table {
                width,
                inputs: &rows.inputs[range],
                gathered,
                scale,
                states,
                logits,
                lanes,
            };
            if tied {
                squares[sequence] += gram.of_tied(outputs[sequence], table);
            } else {
                squares[sequence] += gram.of_output(outputs[sequence], table);
                squares[sequence] += table.of_lookups();
            }
        });
        for sequence in 0..self.rows.count() {
            let line = &self.vectors[sequence * stride..(sequence + 1) * stride];
            self.squares[sequence].value += dot(self.isa, line, line).wide();
            if !self.tensors.positions.is_empty() {
                let rows = &self.gradient[by(&self.rows.range(sequence), width)];
                self.squares[sequence].value += dot(self.isa, rows, rows).wide();
            }
        }
    }

    /// Adds the gathered sequences' gradients, each by the weight that stands in its rows, after [`norms`](Self::norms).
    fn add_weighted(&mut self, target: &mut UpdateTarget<'_, T>) {
        let (isa, rows) = (self.isa, self.rows.len());
        let (line, stride) = (self.tensors.block_vectors(), self.vectors_stride());
        let outputs = BlockMatrix::ALL.map(|matrix| self.sizes.extents(matrix)[1]);
        for layer in 0..self.sizes.layers {
            for first in (0..rows).step_by(WEIGHTED_ROWS) {
                let range = first..rows.min(first + WEIGHTED_ROWS);
                let products = &mut self.products[layer];
                let weights = &self.row_weight[range.clone()];
                for (y, output) in products.each().into_iter().zip(outputs) {
                    scale_rows(isa, &mut y[by(&range, output)], output, weights);
                }
                self.add_matrices(target, T::ONE, layer, layer, layer, range);
            }
            if self.lora.is_some() {
                continue;
            }
            for sequence in 0..self.rows.count() {
                let weight = self.row_weight[self.rows.starts[sequence]];
                let values = &self.vectors[sequence * stride + layer * line..][..line];
                add_vectors(isa, target.slice(), weight, &self.tensors.blocks[layer], values);
            }
        }
        if self.lora.is_some() {
            return;
        }
        let sum = target.slice();
        let output = &mut sum[self.tensors.output.clone()];
        self.head
            .add_weighted(&self.rows, &mut self.states, &self.row_weight, output);
        let starts = &self.rows.starts;
        self.add_ends(sum, |sequence| self.row_weight[starts[sequence]], true);
    }

    /// Takes the memory that clipping needs beside that of a step.
    fn reserve(&mut self) {
        if !self.recompute {
            let (sizes, rows) = (self.sizes, self.max_rows);
            self.products
                .resize_with(sizes.layers, || Gradients::new(sizes, rows));
        }
        let len = self.vectors_stride() * self.max_sequences;
        self.vectors.resize(len.max(self.vectors.len()), T::ZERO);
        let longest = self.sizes.context.min(self.max_rows);
        self.gram.reserve(longest, self.sizes.widest());
    }

    /// The sum of clipped gradients, norms beside it.
    pub(super) fn clipped(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        bound: T,
        sum: &mut [T],
        norms: &mut [T],
    ) -> Result<StepStats> {
        self.reserve();
        self.left_out.fill(false);
        sum.fill(T::ZERO);
        let merged = self.merge(params);
        let mut target = UpdateTarget::Gradient {
            params,
            gradient: sum,
        };
        let stats = self.clipped_into(&mut target, merged.as_deref(), batch, bound, norms);
        self.take_back(merged);
        stats
    }

    fn clipped_into(
        &mut self,
        target: &mut UpdateTarget<'_, T>,
        merged: Option<&[T]>,
        batch: &SequenceBatch<'_>,
        bound: T,
        norms: &mut [T],
    ) -> Result<StepStats> {
        let stats = loop {
            let left_out = &self.left_out;
            self.rows.gather(batch, |sequence| !left_out[sequence]);
            if self.rows.count() == 0 {
                return Ok(StepStats::default());
            }
            if self.lora.is_none() {
                self.head.reserve(&self.rows);
            }
            match self.norms(merged.unwrap_or(target.params()), target.params()) {
                Ok(stats) => break stats,
                // What is not finite would spread to every sum it is part of, so the pass is made again without it.
                Err(sequence) => {
                    let place = self.rows.sequences[sequence];
                    self.left_out[place] = true;
                    norms[place] = T::of(f64::INFINITY);
                }
            }
        };
        for sequence in 0..self.rows.count() {
            let (norm, weight) = clip(self.squares[sequence].bounded().sqrt(), bound);
            norms[self.rows.sequences[sequence]] = norm;
            self.row_weight[self.rows.range(sequence)].fill(weight);
        }
        if self.recompute {
            for sequence in 0..self.rows.count() {
                let fraction = T::of(1.0 / self.rows.targets_of(sequence).max(1) as f64);
                for weight in &mut self.row_weight[self.rows.range(sequence)] {
                    *weight *= fraction;
                }
            }
            return self.step(merged, target, T::ONE);
        }
        self.add_weighted(target);
        Ok(stats)
    }
}

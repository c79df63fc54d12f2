//! Backward pass from the loss to the gradients of all parameters.

use super::BlockTensors;
use super::block::{Activations, Gradients, VectorTarget, by};
use super::gram::Square;
use super::head::Output;
use super::lora::{Factors, Product};
use super::worker::Worker;
use crate::batch::IGNORE;
use crate::kernels::{isa::Isa, vector::add_scaled};
use crate::scalar::Scalar;
use crate::sequence::StepStats;
use crate::target::UpdateTarget;
use std::ops::Range;

impl<T: Scalar> Worker<T> {
    /// Loss over the gathered rows, and the gradient of the residual stream after the last block; gains and biases are
    /// told apart by sequence where gradients wait for weights.
    pub(super) fn head(&mut self, params: &[T], waiting: bool) -> StepStats {
        let (width, rows) = (self.sizes.width, self.rows.len());
        let all = by(&(0..rows), width);
        let (lines, stride) = (if waiting { self.rows.count() } else { 1 }, self.vectors_stride());
        self.vectors[..lines * stride].fill(T::ZERO);
        let output = &params[self.tensors.output.clone()];
        self.squares.fill(Square::default());
        self.outputs.fill(Square::default());
        let then = if self.lora.is_some() {
            Output::Frozen
        } else if waiting {
            Output::Norms {
                gram: &mut self.gram,
                grams: &mut self.grams,
                squares: &mut self.outputs,
            }
        } else {
            self.output_gradient.fill(T::ZERO);
            Output::Add(&mut self.output_gradient)
        };
        let (states, of_states) = (&self.states[all.clone()], &mut self.states_gradient[all.clone()]);
        self.head
            .forward_backward(output, &self.rows, states, &self.row_weight, of_states, then);
        self.gradient[all].fill(T::ZERO);
        let ends = self.tensors.end_vectors();
        let mut target = VectorTarget {
            lines: &mut self.vectors[stride - ends..],
            stride,
            apart: waiting,
        };
        for sequence in 0..self.rows.count() {
            let range = self.rows.range(sequence);
            let (of_gain, of_bias) = target.line(sequence, ends).split_at_mut(width);
            self.norm.backward(
                &self.states_gradient[by(&range, width)],
                &self.residual[self.sizes.layers][by(&range, width)],
                &self.stats[range.clone()],
                &params[self.tensors.final_norm.clone()],
                &mut self.gradient[by(&range, width)],
                of_gain,
                of_bias,
            );
        }
        let mut stats = StepStats::default();
        for row in (0..rows).filter(|&row| self.rows.targets[row] != IGNORE) {
            stats.loss_sum += self.head.loss[row];
            stats.correct += usize::from(self.head.correct[row]);
            stats.targets += 1;
        }
        stats
    }

    /// Adds `factor` times the gradient to the target, after [`head`](Self::head) without waiting. `merged` is the whole model
    /// where the target holds adapters.
    pub(super) fn backward(&mut self, merged: Option<&[T]>, target: &mut UpdateTarget<'_, T>, factor: T) {
        let all = by(&(0..self.rows.len()), self.sizes.width);
        let (line, stride) = (self.tensors.block_vectors(), self.vectors_stride());
        for layer in (0..self.sizes.layers).rev() {
            if self.recompute {
                self.forward_block(merged.unwrap_or(target.params()), layer, true);
            }
            let slot = if self.recompute { 0 } else { layer };
            let mut vectors = VectorTarget {
                lines: &mut self.vectors[layer * line..],
                stride,
                apart: false,
            };
            self.block.backward(
                merged.unwrap_or(target.params()),
                &self.tensors.blocks[layer],
                &self.rows,
                &self.residual[layer][all.clone()],
                &mut self.kept[slot],
                &mut self.gradient[all.clone()],
                &mut self.products[0],
                &mut vectors,
                &mut |_, _, _| {},
            );
            self.add_matrices(target, factor, layer, slot, 0, 0..self.rows.len());
            if merged.is_some() {
                continue;
            }
            let own = layer * line..(layer + 1) * line;
            add_vectors(
                self.isa,
                target.slice(),
                factor,
                &self.tensors.blocks[layer],
                &self.vectors[own],
            );
        }
        if merged.is_some() {
            return;
        }
        let target = target.slice();
        add_scaled(
            self.isa,
            &mut target[self.tensors.output.clone()],
            factor,
            &self.output_gradient,
        );
        self.add_ends(target, |_| factor, false);
    }

    /// Adds the gradients of a block's matrices, or of their adapters, from some of the rows.
    pub(super) fn add_matrices(
        &mut self,
        target: &mut UpdateTarget<'_, T>,
        factor: T,
        layer: usize,
        slot: usize,
        products: usize,
        rows: Range<usize>,
    ) {
        let factors = factors(&self.kept[slot], &self.products[products]);
        let matrices = self.tensors.blocks[layer].matrices(self.sizes);
        for (product, (place, ..)) in Product::each(layer, matrices, factors, &rows).zip(matrices) {
            let explicit = &mut self.weight_gradient;
            if let Some(lora) = &mut self.lora {
                lora.add(target, factor, product, explicit);
            } else {
                let Product {
                    x, input, y, output, ..
                } = product;
                explicit.add(&mut target.slice()[place.clone()], factor, x, input, y, output);
            }
        }
    }

    /// Adds the gradients of the final norm, of the positions and of the embedding as it is read; `factor` by sequence.
    pub(super) fn add_ends(&self, target: &mut [T], factor: impl Fn(usize) -> T, apart: bool) {
        let (isa, width, stride) = (self.isa, self.sizes.width, self.vectors_stride());
        let (ends, scale) = (self.tensors.end_vectors(), T::of(self.sizes.embedding_scale()));
        let norms = [&self.tensors.final_norm, &self.tensors.final_norm_bias];
        for sequence in 0..if apart { self.rows.count() } else { 1 } {
            let line = &self.vectors[(sequence + 1) * stride - ends..(sequence + 1) * stride];
            for (place, values) in norms.into_iter().zip(line.chunks_exact(width)) {
                add_scaled(isa, &mut target[place.clone()], factor(sequence), values);
            }
        }
        for sequence in 0..self.rows.count() {
            for (position, row) in self.rows.range(sequence).enumerate() {
                let line = &self.gradient[row * width..(row + 1) * width];
                let token = self.rows.inputs[row] as usize;
                let factor = factor(sequence);
                let mut places = [Some((&self.tensors.embedding, token, scale * factor)), None];
                if !self.tensors.positions.is_empty() {
                    places[1] = Some((&self.tensors.positions, position, factor));
                }
                for (tensor, number, factor) in places.into_iter().flatten() {
                    let start = tensor.start + number * width;
                    add_scaled(isa, &mut target[start..start + width], factor, line);
                }
            }
        }
    }
}

/// Inputs of a block's matrices and gradients of their outputs, in the order of [`BlockMatrix::ALL`](super::BlockMatrix).
pub(super) fn factors<'a, T: Scalar>(kept: &'a Activations<T>, products: &'a Gradients<T>) -> Factors<'a, T> {
    [
        (&kept.norm1, &products.qkv),
        (&kept.attended, &products.o),
        (&kept.norm2, &products.up),
        (kept.activated(), &products.down),
    ]
}

pub(super) fn add_vectors<T: Scalar>(
    isa: Isa,
    target: &mut [T],
    factor: T,
    tensors: &BlockTensors,
    values: &[T],
) {
    let mut rest = values;
    for place in tensors.vectors() {
        let (own, after) = rest.split_at(place.len());
        rest = after;
        add_scaled(isa, &mut target[place.clone()], factor, own);
    }
}

//! Low-rank adapters: every matrix `W` of a block becomes `W + (alpha / rank) A B`, and `A` and `B` alone are trained.
//!
//! The sum is formed once a step, which costs `rank` rows of work a matrix; forward and backward passes are then those of the
//! whole model. With inputs `x` and output gradients `y` of the product, the gradient of `A` is that of a product with inputs
//! `x` and output gradients `(alpha / rank) y B^T`, and that of `B` one with inputs `(alpha / rank) x A` and output gradients `y`.

use super::gram::Gram;
use super::linear::WeightGradient;
use super::{BlockTensors, Tensors, TransformerSizes};
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    pack::{pack_panels_transposed, panels_len},
};
use crate::scalar::Scalar;
use crate::target::Target;
use std::ops::Range;
use std::sync::Arc;

/// Where the adapter of one matrix stands in the flat vector: `A` is `[input, rank]`, `B` `[rank, output]`.
#[derive(Debug, Clone)]
pub(super) struct Adapter {
    pub(super) a: Range<usize>,
    pub(super) b: Range<usize>,
}

/// What the parameters of an adapted model are added to.
#[derive(Debug)]
pub(crate) struct Adapters {
    pub(super) base: Vec<f32>,
    pub(super) rank: usize,
    /// `alpha / rank`.
    pub(super) scale: f64,
    /// In the order of [`matrices`], for every block.
    pub(super) blocks: Vec<[Adapter; 4]>,
}

/// The matrices of a block, with inputs and outputs: queries, keys and values together, attention's output, up, down.
pub(super) fn matrices(
    tensors: &BlockTensors,
    sizes: TransformerSizes,
) -> [(&Range<usize>, usize, usize); 4] {
    let (width, inner) = (sizes.width, sizes.inner);
    [
        (&tensors.qkv, width, 3 * width),
        (&tensors.o, width, width),
        (&tensors.up, width, inner),
        (&tensors.down, inner, width),
    ]
}

impl Adapters {
    /// Writes the adapted matrices of every block over those in `merged`.
    pub(super) fn merge<T: Scalar>(
        &self,
        isa: Isa,
        params: &[T],
        sizes: TransformerSizes,
        tensors: &Tensors,
        merged: &mut [T],
    ) {
        for (tensors, adapters) in tensors.blocks.iter().zip(&self.blocks) {
            for ((place, input, output), adapter) in matrices(tensors, sizes).into_iter().zip(adapters) {
                let target = &mut merged[place.clone()];
                for (value, &base) in target.iter_mut().zip(&self.base[place.clone()]) {
                    *value = T::of(f64::from(base));
                }
                let extent = Extent {
                    rows: input,
                    cols: output,
                    depth: self.rank,
                };
                let left = Left::strided(&params[adapter.a.clone()], self.rank, 1);
                let right = Right::Rows(&params[adapter.b.clone()], output);
                matmul(isa, extent, T::of(self.scale), left, right, target, output, true);
            }
        }
    }
}

/// A matrix in a step: which one, its inputs and the gradients of its outputs, one line per row.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, T> {
    pub(super) layer: usize,
    /// Its place in [`matrices`].
    pub(super) number: usize,
    pub(super) x: &'a [T],
    pub(super) input: usize,
    pub(super) y: &'a [T],
    pub(super) output: usize,
}

/// Adapters in a worker.
#[derive(Debug)]
pub(super) struct Lora<T> {
    isa: Isa,
    adapters: Arc<Adapters>,
    /// The whole model with the adapters added.
    pub(super) merged: Vec<T>,
    /// `(alpha / rank) x A` and `(alpha / rank) y B^T` of the present rows.
    inputs: Vec<T>,
    gradients: Vec<T>,
    panels: Vec<T>,
}

impl<T: Scalar> Lora<T> {
    pub(super) fn new(isa: Isa, adapters: &Arc<Adapters>, sizes: TransformerSizes, max_rows: usize) -> Self {
        let widest = (3 * sizes.width).max(sizes.inner);
        let zeros = |len: usize| vec![T::ZERO; len];
        Self {
            isa,
            adapters: Arc::clone(adapters),
            merged: adapters
                .base
                .iter()
                .map(|&value| T::of(f64::from(value)))
                .collect(),
            inputs: zeros(max_rows * adapters.rank),
            gradients: zeros(max_rows * adapters.rank),
            panels: zeros(panels_len(widest, adapters.rank)),
        }
    }

    pub(super) fn merge(&mut self, params: &[T], sizes: TransformerSizes, tensors: &Tensors) {
        self.adapters
            .merge(self.isa, params, sizes, tensors, &mut self.merged);
    }

    /// Fills `inputs` and `gradients`; returns how much of them.
    fn project(&mut self, params: &[T], product: Product<'_, T>) -> usize {
        let (isa, rank) = (self.isa, self.adapters.rank);
        let scale = T::of(self.adapters.scale);
        let Product {
            layer,
            number,
            x,
            input,
            y,
            output,
        } = product;
        let adapter = &self.adapters.blocks[layer][number];
        let rows = x.len() / input;
        let extent = |depth: usize| Extent {
            rows,
            cols: rank,
            depth,
        };
        let right = Right::Rows(&params[adapter.a.clone()], rank);
        let left = Left::strided(x, input, 1);
        matmul(
            isa,
            extent(input),
            scale,
            left,
            right,
            &mut self.inputs,
            rank,
            false,
        );
        pack_panels_transposed(
            isa,
            &params[adapter.b.clone()],
            output,
            output,
            rank,
            &mut self.panels,
        );
        let right = Right::Panels(&self.panels);
        let left = Left::strided(y, output, 1);
        matmul(
            isa,
            extent(output),
            scale,
            left,
            right,
            &mut self.gradients,
            rank,
            false,
        );
        rows * rank
    }

    /// Adds `factor` times the gradients of `A` and `B`.
    pub(super) fn add(
        &mut self,
        target: &mut Target<'_, T>,
        factor: T,
        product: Product<'_, T>,
        explicit: &mut WeightGradient<T>,
    ) {
        let len = self.project(target.params(), product);
        let rank = self.adapters.rank;
        let adapter = &self.adapters.blocks[product.layer][product.number];
        let (inputs, gradients) = (&self.inputs[..len], &self.gradients[..len]);
        let target = target.slice();
        let Product {
            x, input, y, output, ..
        } = product;
        explicit.add(&mut target[adapter.a.clone()], factor, x, input, gradients, rank);
        explicit.add(&mut target[adapter.b.clone()], factor, inputs, rank, y, output);
    }

    /// Squared norm of the gradients of `A` and `B` from one sequence's rows.
    pub(super) fn squared_norm(
        &mut self,
        params: &[T],
        product: Product<'_, T>,
        gram: &mut Gram<T>,
        explicit: &mut WeightGradient<T>,
    ) -> f64 {
        let len = self.project(params, product);
        let rank = self.adapters.rank;
        let Product {
            x, input, y, output, ..
        } = product;
        gram.squared_norm(x, input, &self.gradients[..len], rank, explicit)
            + gram.squared_norm(&self.inputs[..len], rank, y, output, explicit)
    }
}

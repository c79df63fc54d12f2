//! Low-rank adapters: the steps of a worker whose parameters are `A` and `B` of every adapted matrix.
//!
//! The sum is formed once per step, which costs `rank` rows of work per matrix; forward and backward passes are then those of the
//! whole model. With inputs `x` and output gradients `y` of the product, the gradient of `A` is that of a product with inputs
//! `x` and output gradients `(alpha / rank) y B^T`, and that of `B` one with inputs `(alpha / rank) x A` and output gradients `y`.

use super::adapters::{Adapter, Adapters};
use super::block::by;
use super::gram::{Gram, Square};
use super::linear::WeightGradient;
use super::{Tensors, TransformerSizes};
use crate::kernels::{
    isa::Isa,
    matmul::{Extent, Left, Right, matmul},
    pack::{pack_panels_transposed, panels_len},
};
use crate::scalar::Scalar;
use crate::target::UpdateTarget;
use std::ops::Range;
use std::sync::Arc;

/// A matrix in a step: which one, its inputs and the gradients of its outputs, one line per row.
#[derive(Clone, Copy)]
pub(super) struct Product<'a, T> {
    pub(super) layer: usize,
    /// Index of the matrix in [`BlockMatrix::ALL`](super::BlockMatrix).
    pub(super) number: usize,
    pub(super) x: &'a [T],
    pub(super) input: usize,
    pub(super) y: &'a [T],
    pub(super) output: usize,
}

/// Inputs of a block's matrices and gradients of their outputs.
pub(super) type Factors<'a, T> = [(&'a [T], &'a [T]); 4];

impl<'a, T> Product<'a, T> {
    /// The matrices of a block over some of the rows.
    pub(super) fn each(
        layer: usize,
        matrices: [(&Range<usize>, usize, usize); 4],
        factors: Factors<'a, T>,
        rows: &Range<usize>,
    ) -> impl Iterator<Item = Self> {
        let pairs = matrices.into_iter().zip(factors).enumerate();
        pairs.map(move |(number, ((_, input, output), (x, y)))| Self {
            layer,
            number,
            x: &x[by(rows, input)],
            input,
            y: &y[by(rows, output)],
            output,
        })
    }
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
        let widest = sizes.widest();
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

    /// The adapter of a product's matrix, if it has one.
    fn adapter(&self, product: &Product<'_, T>) -> Option<Adapter> {
        self.adapters.blocks[product.layer][product.number].clone()
    }

    /// Fills `inputs` and `gradients`; returns how much of them.
    fn project(&mut self, params: &[T], adapter: &Adapter, product: Product<'_, T>) -> usize {
        let (isa, rank) = (self.isa, self.adapters.rank);
        let scale = T::of(self.adapters.scale);
        let Product {
            x, input, y, output, ..
        } = product;
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

    /// Adds `factor` times the gradients of `A` and `B`, where the matrix has them.
    pub(super) fn add(
        &mut self,
        target: &mut UpdateTarget<'_, T>,
        factor: T,
        product: Product<'_, T>,
        explicit: &mut WeightGradient<T>,
    ) {
        let Some(adapter) = self.adapter(&product) else {
            return;
        };
        let len = self.project(target.params(), &adapter, product);
        let rank = self.adapters.rank;
        let (inputs, gradients) = (&self.inputs[..len], &self.gradients[..len]);
        let target = target.slice();
        let Product {
            x, input, y, output, ..
        } = product;
        explicit.add(&mut target[adapter.a], factor, x, input, gradients, rank);
        explicit.add(&mut target[adapter.b], factor, inputs, rank, y, output);
    }

    /// Squared norm of the gradients of `A` and `B` from one sequence's rows; zero where the matrix has none.
    pub(super) fn squared_norm(
        &mut self,
        params: &[T],
        product: Product<'_, T>,
        gram: &mut Gram<T>,
        explicit: &mut WeightGradient<T>,
    ) -> Square {
        let Some(adapter) = self.adapter(&product) else {
            return Square::default();
        };
        let len = self.project(params, &adapter, product);
        let rank = self.adapters.rank;
        let Product {
            x, input, y, output, ..
        } = product;
        let mut both = gram.squared_norm(x, input, &self.gradients[..len], rank, explicit);
        both += gram.squared_norm(&self.inputs[..len], rank, y, output, explicit);
        both
    }
}

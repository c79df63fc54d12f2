use super::block::{Activations, Block, Gradients, by};
use super::gram::{Gram, Square};
use super::head::Head;
use super::linear::WeightGradient;
use super::lora::Lora;
use super::matrices::BlockMatrix;
use super::norm::Normaliser;
use super::rows::Rows;
use super::{Tensors, Transformer, TransformerSizes};
use crate::batch::SequenceBatch;
use crate::error::{ModelError, Result, check_count, check_learning_rate};
use crate::explicit::check_weights;
use crate::kernels::{
    isa::Isa,
    vector::{add_scaled, scale_rows},
};
use crate::scalar::Scalar;
use crate::sequence::{SequenceWeights, SequenceWorker, StateMode, StepStats};
use crate::target::UpdateTarget;
use undertone_aggregation::ParamLayout;

/// The transformer's steps on one thread.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    pub(super) isa: Isa,
    pub(super) sizes: TransformerSizes,
    pub(super) recompute: bool,
    parameters: usize,
    pub(super) tensors: Tensors,
    pub(super) max_sequences: usize,
    pub(super) max_rows: usize,
    pub(super) rows: Rows,
    pub(super) block: Block<T>,
    pub(super) norm: Normaliser,
    pub(super) head: Head<T>,
    /// Input of every block, and the output of the last, `[rows, width]`.
    pub(super) residual: Vec<Vec<T>>,
    /// Activations of every block, or of one at a time where they are computed again.
    pub(super) kept: Vec<Activations<T>>,
    /// Gradients of one block at a time, or of every block once gradients had to wait for weights.
    pub(super) products: Vec<Gradients<T>>,
    pub(super) stats: Vec<[T; 2]>,
    /// Output of the final norm, and its gradient.
    pub(super) states: Vec<T>,
    pub(super) states_gradient: Vec<T>,
    /// Gradient of the residual stream.
    pub(super) gradient: Vec<T>,
    /// Gradients of gains and biases: a line for all blocks and the final norm, one for every sequence where they wait.
    pub(super) vectors: Vec<T>,
    /// Gradient of the output matrix.
    pub(super) output_gradient: Vec<T>,
    pub(super) weight_gradient: WeightGradient<T>,
    pub(super) gram: Gram<T>,
    pub(super) grams: Vec<T>,
    /// Squared norms of the gathered sequences' gradients, and of the output part of the embedding's.
    pub(super) squares: Vec<Square>,
    pub(super) outputs: Vec<Square>,
    /// Each row's part of the loss, then its sequence's weight.
    pub(super) row_weight: Vec<T>,
    pub(super) left_out: Vec<bool>,
    /// The adapters, where these are the parameters.
    pub(super) lora: Option<Lora<T>>,
}

impl<T: Scalar> Worker<T> {
    pub(crate) fn new(model: &Transformer, max_sequences: usize, max_rows: usize) -> Self {
        Self::with_isa(Isa::detect(), model, max_sequences, max_rows)
    }

    pub(crate) fn with_isa(isa: Isa, model: &Transformer, max_sequences: usize, max_rows: usize) -> Self {
        let sizes = model.sizes;
        let max_sequences = max_sequences.min(max_rows);
        let longest = sizes.context.min(max_rows);
        let TransformerSizes {
            vocab, layers, width, ..
        } = sizes;
        let most_inputs = BlockMatrix::ALL.map(|matrix| sizes.extents(matrix)[0]);
        let slots = if model.recompute { 1 } else { layers };
        let matrix = || vec![T::ZERO; max_rows * width];
        Self {
            isa,
            sizes,
            recompute: model.recompute,
            parameters: ParamLayout::len(&model.layout),
            tensors: model.tensors.clone(),
            max_sequences,
            max_rows,
            rows: Rows::new(max_sequences, max_rows),
            block: Block::new(isa, sizes, max_rows),
            norm: Normaliser::new(isa, &sizes.architecture),
            head: Head::new(isa, sizes, longest, max_rows),
            residual: (0..=layers).map(|_| matrix()).collect(),
            kept: (0..slots).map(|_| Activations::new(sizes, max_rows)).collect(),
            products: vec![Gradients::new(sizes, max_rows)],
            stats: vec![[T::ZERO; 2]; max_rows],
            states: matrix(),
            states_gradient: matrix(),
            gradient: matrix(),
            vectors: vec![T::ZERO; model.tensors.all_vectors()],
            output_gradient: match model.adapters {
                None => vec![T::ZERO; vocab * width],
                Some(_) => Vec::new(),
            },
            weight_gradient: WeightGradient::new(isa, max_rows, most_inputs.into_iter().fold(0, usize::max)),
            gram: Gram::new(isa),
            grams: Vec::new(),
            squares: vec![Square::default(); max_sequences],
            outputs: vec![Square::default(); max_sequences],
            row_weight: vec![T::ZERO; max_rows],
            left_out: vec![false; max_sequences],
            lora: model
                .adapters
                .as_ref()
                .map(|adapters| Lora::new(isa, adapters, sizes, max_rows)),
        }
    }

    fn validate(&self, what: &'static str, len: usize, batch: &SequenceBatch<'_>) -> Result<()> {
        check_count(what, self.parameters, len)?;
        batch.validate(self.sizes.vocab, self.max_sequences, self.max_rows)?;
        let (context, got) = (self.sizes.context, batch.active.len());
        if got > context {
            return Err(ModelError::SequenceTooLong {
                sequence: 0,
                context,
                got,
            });
        }
        Ok(())
    }

    /// Length of the gradients of all gains and biases.
    pub(super) fn vectors_stride(&self) -> usize {
        self.tensors.all_vectors()
    }

    /// Embedding, blocks and final norm of the gathered rows. What a backward pass needs of every block is kept or, in
    /// evaluation, written over by the next block: memory that is never touched costs nothing.
    pub(super) fn forward(&mut self, params: &[T], keep: bool) {
        let (isa, width) = (self.isa, self.sizes.width);
        let all = by(&(0..self.rows.len()), width);
        let embedding = &params[self.tensors.embedding.clone()];
        let positions = &params[self.tensors.positions.clone()];
        for sequence in 0..self.rows.count() {
            for (position, row) in self.rows.range(sequence).enumerate() {
                let token = self.rows.inputs[row] as usize;
                let line = &mut self.residual[0][row * width..(row + 1) * width];
                line.copy_from_slice(&embedding[token * width..(token + 1) * width]);
                if self.sizes.architecture.scaled_embedding {
                    scale_rows(isa, line, width, &[T::of(self.sizes.embedding_scale())]);
                }
                if !positions.is_empty() {
                    add_scaled(isa, line, T::ONE, &positions[position * width..][..width]);
                }
            }
        }
        for layer in 0..self.sizes.layers {
            self.forward_block(params, layer, keep);
        }
        let last = if keep { self.sizes.layers } else { 0 };
        self.norm.forward(
            &self.residual[last][all.clone()],
            &params[self.tensors.final_norm.clone()],
            &params[self.tensors.final_norm_bias.clone()],
            &mut self.states[all],
            &mut self.stats,
        );
    }

    /// One block, from its place in the residual stream to the next, or from the first to the first.
    pub(super) fn forward_block(&mut self, params: &[T], layer: usize, keep: bool) {
        let all = by(&(0..self.rows.len()), self.sizes.width);
        let place = if keep { layer } else { 0 };
        let slot = if self.recompute { 0 } else { place };
        let (before, after) = self.residual.split_at_mut(place + 1);
        self.block.forward(
            params,
            &self.tensors.blocks[layer],
            &self.rows,
            &before[place][all.clone()],
            &mut after[0][all],
            &mut self.kept[slot],
        );
        if !keep {
            self.residual.swap(0, 1);
        }
    }

    /// Each row's part of the loss: `weight(sequence)`, counted among those gathered.
    pub(super) fn weigh(&mut self, weight: impl Fn(&Rows, usize) -> T) {
        for sequence in 0..self.rows.count() {
            let weight = weight(&self.rows, sequence);
            self.row_weight[self.rows.range(sequence)].fill(weight);
        }
    }

    /// The whole model with adapters added, lent out until [`take_back`](Self::take_back); nothing for a model without.
    pub(super) fn merge(&mut self, params: &[T]) -> Option<Vec<T>> {
        let lora = self.lora.as_mut()?;
        lora.merge(params, self.sizes, &self.tensors);
        Some(std::mem::take(&mut lora.merged))
    }

    pub(super) fn take_back(&mut self, merged: Option<Vec<T>>) {
        if let (Some(lora), Some(merged)) = (&mut self.lora, merged) {
            lora.merged = merged;
        }
    }

    /// Forward pass and gradients with the present row weights, all of it added to the target at once.
    pub(super) fn step(
        &mut self,
        merged: Option<&[T]>,
        target: &mut UpdateTarget<'_, T>,
        factor: T,
    ) -> Result<StepStats> {
        let params = merged.unwrap_or(target.params());
        self.forward(params, true);
        let stats = self.head(params, false).finite()?;
        if stats.targets > 0 {
            self.backward(merged, target, factor);
        }
        Ok(stats)
    }

    /// [`step`](Self::step) of the gathered rows, adapters merged first.
    fn merged_step(&mut self, target: &mut UpdateTarget<'_, T>, factor: T) -> Result<StepStats> {
        let merged = self.merge(target.params());
        let stats = self.step(merged.as_deref(), target, factor);
        self.take_back(merged);
        stats
    }

    fn plain(
        &mut self,
        target: &mut UpdateTarget<'_, T>,
        factor: T,
        batch: &SequenceBatch<'_>,
    ) -> Result<StepStats> {
        self.rows.gather(batch, |_| true);
        let fraction = T::of(1.0 / batch.targets_count().max(1) as f64);
        self.weigh(|_, _| fraction);
        self.merged_step(target, factor)
    }

    /// Forward pass of the gathered rows and their logits in the order of the batch.
    fn logits(&mut self, params: &[T], sink: &mut dyn FnMut(usize, &[T], T)) -> std::result::Result<(), f64> {
        self.forward(params, false);
        let width = self.sizes.width;
        // The rows in the order of the batch, in memory that only a backward pass needs.
        for (&from, line) in self
            .rows
            .packed()
            .iter()
            .zip(self.gradient.chunks_exact_mut(width))
        {
            line.copy_from_slice(&self.states[from * width..(from + 1) * width]);
        }
        let states = &self.gradient[..self.rows.len() * width];
        self.head
            .evaluate(&params[self.tensors.output.clone()], states, sink)
    }
}

fn no_carry(state: StateMode) -> Result<()> {
    match state {
        StateMode::Zero => Ok(()),
        StateMode::Carry => Err(ModelError::NoCarriedState),
    }
}

impl<T: Scalar> SequenceWorker<T> for Worker<T> {
    fn reset_state(&mut self) {}

    fn sgd_step(
        &mut self,
        params: &mut [T],
        batch: &SequenceBatch<'_>,
        learning_rate: T,
        state: StateMode,
    ) -> Result<StepStats> {
        self.validate("parameter", params.len(), batch)?;
        no_carry(state)?;
        check_learning_rate(learning_rate.wide())?;
        self.plain(&mut UpdateTarget::Step(params), -learning_rate, batch)
    }

    fn gradient(&mut self, params: &[T], batch: &SequenceBatch<'_>, grad: &mut [T]) -> Result<StepStats> {
        self.validate("parameter", params.len(), batch)?;
        self.validate("gradient", grad.len(), batch)?;
        grad.fill(T::ZERO);
        let mut target = UpdateTarget::Gradient {
            params,
            gradient: grad,
        };
        self.plain(&mut target, T::ONE, batch)
    }

    fn weighted_gradient(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        weights: SequenceWeights<'_, T>,
        sum: &mut [T],
        norms: &mut [T],
    ) -> Result<StepStats> {
        self.validate("parameter", params.len(), batch)?;
        self.validate("gradient", sum.len(), batch)?;
        check_weights(batch.sequences(), weights, norms)?;
        match weights {
            SequenceWeights::Clip { bound } => self.clipped(params, batch, bound, sum, norms),
            SequenceWeights::Fixed(weights) => {
                sum.fill(T::ZERO);
                self.rows.gather(batch, |_| true);
                self.weigh(|rows, sequence| {
                    T::of(weights[sequence].wide() / rows.targets_of(sequence).max(1) as f64)
                });
                self.merged_step(
                    &mut UpdateTarget::Gradient {
                        params,
                        gradient: sum,
                    },
                    T::ONE,
                )
            }
        }
    }

    fn evaluate(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        state: StateMode,
        sink: &mut dyn FnMut(usize, &[T], T),
    ) -> Result<()> {
        self.validate("parameter", params.len(), batch)?;
        no_carry(state)?;
        self.rows.gather(batch, |_| true);
        let merged = self.merge(params);
        let result = self.logits(merged.as_deref().unwrap_or(params), sink);
        self.take_back(merged);
        result.map_err(|loss| ModelError::NonFiniteLoss {
            loss,
            targets: batch.targets_count(),
        })
    }
}

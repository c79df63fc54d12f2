use super::head::Head;
use super::recurrence::Recurrence;
use super::{Output, Tensors, WordLstm};
use crate::batch::SequenceBatch;
use crate::error::{ModelError, Result, check_count, check_learning_rate};
use crate::explicit::Explicit;
use crate::kernels::isa::Isa;
use crate::scalar::Scalar;
use crate::sequence::{SequenceWeights, SequenceWorker, StateMode, StepStats};
use crate::target::UpdateTarget;
use undertone_aggregation::ParamLayout;

/// The word LSTM's steps on one thread.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    vocab: usize,
    parameters: usize,
    max_sequences: usize,
    max_rows: usize,
    output: Output,
    tensors: Tensors,
    recurrence: Recurrence<T>,
    head: Head<T>,
    explicit: Explicit<T>,
}

impl<T: Scalar> Worker<T> {
    pub(crate) fn new(model: &WordLstm, max_sequences: usize, max_rows: usize) -> Self {
        Self::with_isa(Isa::detect(), model, max_sequences, max_rows)
    }

    pub(crate) fn with_isa(isa: Isa, model: &WordLstm, max_sequences: usize, max_rows: usize) -> Self {
        let (max_sequences, max_rows) = (max_sequences.min(max_rows), max_rows);
        Self {
            vocab: model.dimensions.vocab,
            parameters: ParamLayout::len(&model.layout),
            max_sequences,
            max_rows,
            output: model.output,
            tensors: model.tensors.clone(),
            recurrence: Recurrence::new(isa, model.dimensions, max_sequences, max_rows),
            head: Head::new(isa, model.dimensions, model.output, max_rows),
            explicit: Explicit::new(isa),
        }
    }

    fn validate(&self, what: &'static str, len: usize, batch: &SequenceBatch<'_>) -> Result<()> {
        check_count(what, self.parameters, len)?;
        batch.validate(self.vocab, self.max_sequences, self.max_rows)
    }

    /// Everything that only reads the weights: forward pass, loss and gradients of all activations.
    fn forward_backward(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        carry: bool,
    ) -> Result<StepStats> {
        let Self {
            recurrence,
            head,
            tensors,
            ..
        } = self;
        recurrence.forward(params, tensors, self.output, batch, carry);
        let stats = head
            .forward_backward(params, tensors, batch, recurrence.projected(batch))
            .finite()?;
        if stats.targets > 0 {
            recurrence.backward(params, tensors, batch, &mut head.gradient);
        }
        Ok(stats)
    }

    /// Adds `factor` times the gradient to the target.
    fn accumulate(&mut self, mut target: UpdateTarget<'_, T>, factor: T, batch: &SequenceBatch<'_>) {
        let Self {
            recurrence,
            head,
            tensors,
            ..
        } = self;
        recurrence.accumulate(target.slice(), factor, tensors, batch, &head.gradient);
        head.accumulate(
            &mut target,
            factor,
            tensors,
            batch,
            recurrence.projected(batch),
            &recurrence.input_gradient,
        );
    }
}

impl<T: Scalar> SequenceWorker<T> for Worker<T> {
    fn reset_state(&mut self) {
        self.recurrence.reset_state();
    }

    fn sgd_step(
        &mut self,
        params: &mut [T],
        batch: &SequenceBatch<'_>,
        learning_rate: T,
        state: StateMode,
    ) -> Result<StepStats> {
        self.validate("parameter", params.len(), batch)?;
        check_learning_rate(learning_rate.wide())?;
        let stats = self.forward_backward(params, batch, state == StateMode::Carry)?;
        self.recurrence.keep_state(batch);
        if stats.targets > 0 {
            self.accumulate(UpdateTarget::Step(params), -learning_rate, batch);
        }
        Ok(stats)
    }

    fn gradient(&mut self, params: &[T], batch: &SequenceBatch<'_>, grad: &mut [T]) -> Result<StepStats> {
        self.validate("parameter", params.len(), batch)?;
        self.validate("gradient", grad.len(), batch)?;
        let stats = self.forward_backward(params, batch, false)?;
        grad.fill(T::ZERO);
        if stats.targets > 0 {
            self.accumulate(
                UpdateTarget::Gradient {
                    params,
                    gradient: grad,
                },
                T::ONE,
                batch,
            );
        }
        Ok(stats)
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
        let mut explicit = std::mem::take(&mut self.explicit);
        let stats = explicit.weighted_gradient(self, params, batch, weights, sum, norms);
        self.explicit = explicit;
        stats
    }

    fn evaluate(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        state: StateMode,
        sink: &mut dyn FnMut(usize, &[T], T),
    ) -> Result<()> {
        self.validate("parameter", params.len(), batch)?;
        let Self {
            recurrence,
            head,
            tensors,
            ..
        } = self;
        recurrence.forward(params, tensors, self.output, batch, state == StateMode::Carry);
        recurrence.keep_state(batch);
        head.evaluate(params, tensors, batch.rows(), recurrence.projected(batch), sink)
            .map_err(|loss| ModelError::NonFiniteLoss {
                loss,
                targets: batch.targets_count(),
            })
    }
}

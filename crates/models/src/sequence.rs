use crate::{
    batch::SequenceBatch,
    decoder::{Decoder, DecoderOptions},
    error::{ModelError, Result},
    scalar::Scalar,
    tensors,
};
use undertone_aggregation::ParamLayout;

/// The initial recurrent state of the sequences of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateMode {
    /// Every sequence starts from the zero state.
    Zero,
    /// Sequence `j` starts from the state that sequence `j` of the last batch ended in (zero after
    /// [`SequenceWorker::reset_state`]); gradients stop at the boundary.
    Carry,
}

/// The weights of the sequences of a batch in a sum of gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SequenceWeights<'a, T> {
    /// Sequence `j`, in the order of the packed batch, has this finite weight.
    Fixed(&'a [T]),
    /// Sequence `j` by `min(1, bound / |g_j|)`: per-example clipping. An infinite bound clips nothing.
    Clip {
        /// Maximum L2 norm of a term of the sum; positive.
        bound: T,
    },
}

/// The loss and the correct predictions of one step over a batch, before any update.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepStats {
    /// Cross-entropy in nats, summed over unmasked targets.
    pub loss_sum: f64,
    /// Number of unmasked targets.
    pub targets: usize,
    /// Unmasked targets whose logit is the largest of its row.
    pub correct: usize,
}

impl StepStats {
    /// Mean loss over unmasked targets, the quantity that is minimised; zero when there is none.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        if self.targets == 0 {
            0.0
        } else {
            self.loss_sum / self.targets as f64
        }
    }

    /// Refuses a loss that is not finite.
    pub(crate) fn finite(self) -> Result<Self> {
        if self.loss_sum.is_finite() {
            return Ok(self);
        }
        Err(ModelError::NonFiniteLoss {
            loss: self.loss_sum,
            targets: self.targets,
        })
    }
}

/// A next-token model over flat parameters.
pub trait SequenceModel: Send + Sync {
    /// Names, shapes and clip groups of the flat parameter vector.
    fn layout(&self) -> &ParamLayout;

    /// Number of token ids that the model reads and predicts.
    fn vocab_size(&self) -> usize;

    /// Initial parameters drawn from `seed`; the same bytes on every machine.
    fn initial_params(&self, seed: u64) -> Vec<f32>;

    /// Brings parameters back into the model's canonical form without changing what it computes, such as embedding
    /// rows back to norm 1. For the server, between rounds; nothing to do by default.
    fn constrain(&self, _params: &mut [f32]) {}

    /// Parameters that the model computes with and that training leaves alone, beside those of the layout: what adapters are
    /// added to. None by default.
    fn frozen(&self) -> &[f32] {
        &[]
    }

    /// Parameters from the bytes of a safetensors file under the layout's names, or under others that the model knows (a
    /// transformer reads GPT-2's).
    ///
    /// # Errors
    /// An unreadable file, a tensor that is missing, unknown, of another shape or type, or not finite.
    fn read_params(&self, bytes: &[u8]) -> Result<Vec<f32>> {
        tensors::from_safetensors(self.layout(), bytes)
    }

    /// A safetensors file of the whole model, frozen parameters first, with a description in its header.
    ///
    /// # Errors
    /// A parameter count that is not the model's.
    fn write_params(&self, params: &[f32], description: &str) -> Result<Vec<u8>> {
        tensors::to_safetensors(self.layout(), params, description)
    }

    /// A safetensors file of the model with its adapters merged into its weights. It equals [`write_params`](Self::write_params) for a
    /// model without adapters.
    ///
    /// # Errors
    /// As [`write_params`](Self::write_params).
    fn write_merged(&self, params: &[f32], description: &str) -> Result<Vec<u8>> {
        self.write_params(params, description)
    }

    /// A worker with room for batches of `max_sequences` sequences and `max_rows` rows.
    ///
    /// All memory is taken here: steps allocate nothing. A worker is used by one thread at a time.
    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker>;

    /// A decoder of `sequences` sequences with these parameters.
    ///
    /// # Errors
    /// A parameter count that is not the model's.
    fn decoder(&self, params: &[f32], sequences: usize) -> Result<Box<dyn Decoder>>;

    /// A decoder that may share its passes between threads, and draft. A model that can do neither gives its plain decoder.
    ///
    /// # Errors
    /// The errors of [`decoder`](Self::decoder).
    fn decoder_with(&self, params: &[f32], options: &DecoderOptions) -> Result<Box<dyn Decoder>> {
        self.decoder(params, options.sequences)
    }

    /// A worker in double precision, for checks. It is not tuned for speed.
    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>>;
}

/// Computes steps of one model for one thread, in its own memory.
///
/// Every method checks the batch against vocabulary and workspace first and returns a typed error without
/// touching parameters when something is wrong.
pub trait SequenceWorker<T: Scalar = f32>: Send {
    /// Sets the carried state of every sequence to zero.
    fn reset_state(&mut self);

    /// One step of plain SGD: `params -= learning_rate * gradient` of the mean loss over unmasked targets.
    ///
    /// All gradients are those of the parameters at the start of the step. A batch without unmasked target
    /// advances the state and changes no parameter.
    ///
    /// # Errors
    /// Malformed or oversized batch, unknown token, wrong parameter count, non-finite learning rate or loss.
    fn sgd_step(
        &mut self,
        params: &mut [T],
        batch: &SequenceBatch<'_>,
        learning_rate: T,
        state: StateMode,
    ) -> Result<StepStats>;

    /// Writes the gradient of the mean loss over unmasked targets to `grad`, from the zero state.
    ///
    /// # Errors
    /// As [`sgd_step`](Self::sgd_step).
    fn gradient(&mut self, params: &[T], batch: &SequenceBatch<'_>, grad: &mut [T]) -> Result<StepStats>;

    /// Writes `sum_j w_j g_j` to `sum`: `g_j` is the gradient, from the zero state, of the mean loss over the unmasked
    /// targets of sequence `j` alone, zero where it has none.
    ///
    /// With [`Clip`](SequenceWeights::Clip), `norms[j] = |g_j|` for every sequence of the batch; further entries, and all
    /// of them with [`Fixed`](SequenceWeights::Fixed), are left alone. The memory that only this method needs is taken at
    /// its first call.
    ///
    /// # Guarantee
    /// With `Clip`, term `j` is a function of sequence `j` and the parameters, and its norm is at most `bound` up to the
    /// rounding of `T`; a caller who needs a hard bound leaves a margin. A `g_j` that is not finite counts as zero with
    /// `norms[j]` infinite, and its loss is left out of the statistics: a step of private training does not fail on one
    /// person's text.
    ///
    /// # Errors
    /// As [`gradient`](Self::gradient); as many weights or norms as sequences are missing, a weight that is not finite, a
    /// bound that is not positive. With `Fixed`, a loss that is not finite.
    fn weighted_gradient(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        weights: SequenceWeights<'_, T>,
        sum: &mut [T],
        norms: &mut [T],
    ) -> Result<StepStats>;

    /// Calls `sink(row, logits, log_normalizer)` for every row in order, masked rows included.
    ///
    /// The log-probability of token `v` in that row is `logits[v] - log_normalizer`.
    ///
    /// # Errors
    /// As [`sgd_step`](Self::sgd_step); [`NonFiniteLoss`](crate::ModelError::NonFiniteLoss) when a normaliser is
    /// not finite.
    fn evaluate(
        &mut self,
        params: &[T],
        batch: &SequenceBatch<'_>,
        state: StateMode,
        sink: &mut dyn FnMut(usize, &[T], T),
    ) -> Result<()>;
}

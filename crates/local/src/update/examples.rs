//! Gradients of single examples: the user update of ULS, and the microbatches of ELS.

use undertone_aggregation::{CLIP_MARGIN, Clipping, MicrobatchOutcome, NonFinite};
use undertone_models::{ModelError, SequenceWeights};

use super::{LocalTask, LocalWorker, Trained};
use crate::batch;
use crate::error::{LocalError, Result};

impl LocalWorker {
    /// ULS: the negative average of the examples' gradients, the gradient of an example being that of its mean token loss.
    ///
    /// # Source
    /// \[UserDP\] Algorithm 2.
    pub(super) fn uls(&mut self, examples: &[&[u32]], task: &LocalTask<'_>) -> Result<Trained> {
        let (tokens, loss_sum) = self.sum_of_gradients(examples, -1.0 / examples.len() as f32, task)?;
        Ok((tokens, loss_sum, None))
    }

    /// ELS: `-sum_j g_j` over the examples of a microbatch; it is [`LocalWorker::update_mut`] afterwards. In microbatches with a
    /// flat bound and of more than one example, each gradient is clipped before it is added up.
    ///
    /// # Guarantee
    /// A microbatch of one example is bounded by the sum in exact arithmetic, as the update of a user is. In larger ones norms and
    /// sums are those of single precision, and each gradient is bounded by `clip_norm (1 - CLIP_MARGIN)`.
    ///
    /// # Errors
    /// As [`LocalWorker::train`].
    ///
    /// # Source
    /// \[UserDP\] Algorithm 1.
    pub fn train_examples(&mut self, examples: &[&[u32]], task: &LocalTask<'_>) -> Result<MicrobatchOutcome> {
        match task.clipping {
            Clipping::Flat { clip_norm } if task.clips_in_kernel() => {
                self.clipped_sum(examples, clip_norm * (1.0 - CLIP_MARGIN), task)
            }
            _ => self.unclipped_sum(examples, task),
        }
    }

    /// The sum of one gradient, or of gradients that are not clipped.
    fn unclipped_sum(&mut self, examples: &[&[u32]], task: &LocalTask<'_>) -> Result<MicrobatchOutcome> {
        let mut outcome = MicrobatchOutcome {
            examples: examples.len(),
            ..MicrobatchOutcome::default()
        };
        match self.sum_of_gradients(examples, -1.0, task) {
            Err(error) if task.non_finite == NonFinite::Zero && error.is_overflow() => {
                // PRIVACY: a map of these examples alone, with norm 0.
                self.parameters.fill(0.0);
                outcome.discarded = examples.len();
            }
            Err(error) => return Err(error),
            Ok((tokens, loss_sum)) => (outcome.tokens, outcome.loss_sum) = (tokens, loss_sum),
        }
        Ok(outcome)
    }

    fn clipped_sum(
        &mut self,
        examples: &[&[u32]],
        bound: f64,
        task: &LocalTask<'_>,
    ) -> Result<MicrobatchOutcome> {
        let mut outcome = MicrobatchOutcome {
            examples: examples.len(),
            ..MicrobatchOutcome::default()
        };
        let batches = batch::sentences(examples, examples.len().max(1), task.special.bos);
        if batches.is_empty() {
            self.nothing();
        }
        for batch in batches {
            let batch = batch.batch();
            let norms = &mut self.norms[..batch.sequences()];
            let weights = SequenceWeights::Clip { bound: bound as f32 };
            let stats =
                self.model
                    .weighted_gradient(task.theta, &batch, weights, &mut self.parameters, norms)?;
            outcome.tokens = stats.targets as u64;
            outcome.loss_sum = stats.loss_sum;
            for &norm in norms.iter() {
                if norm.is_finite() {
                    outcome.norms.push(f64::from(norm));
                    outcome.clipped += usize::from(f64::from(norm) > bound);
                } else if task.non_finite == NonFinite::Refuse {
                    return Err(not_finite(stats.targets));
                } else {
                    outcome.discarded += 1;
                }
            }
        }
        self.parameters.iter_mut().for_each(|value| *value = -*value);
        Ok(outcome)
    }

    /// PRIVACY: the sum over no examples is zero, not the sum that the last user or microbatch left in the worker.
    fn nothing(&mut self) {
        self.parameters.fill(0.0);
    }

    /// `parameters = weight * sum of the examples' gradients`, and tokens and loss.
    fn sum_of_gradients(
        &mut self,
        examples: &[&[u32]],
        weight: f32,
        task: &LocalTask<'_>,
    ) -> Result<(u64, f64)> {
        let (mut tokens, mut loss_sum) = (0, 0.0);
        let batches = batch::sentences(examples, task.settings.batch_size(), task.special.bos);
        if batches.is_empty() {
            self.nothing();
        }
        for (index, batch) in batches.iter().enumerate() {
            let batch = batch.batch();
            let count = batch.sequences();
            self.weights[..count].fill(weight);
            let into = match index {
                0 => &mut self.parameters,
                _ => &mut self.gradient,
            };
            let stats = self.model.weighted_gradient(
                task.theta,
                &batch,
                SequenceWeights::Fixed(&self.weights[..count]),
                into,
                &mut self.norms[..count],
            )?;
            if index > 0 {
                let terms = self.parameters.iter_mut().zip(&self.gradient);
                terms.for_each(|(total, value)| *total += value);
            }
            tokens += stats.targets as u64;
            loss_sum += stats.loss_sum;
        }
        Ok((tokens, loss_sum))
    }
}

fn not_finite(targets: usize) -> LocalError {
    LocalError::Model(ModelError::NonFiniteLoss {
        loss: f64::INFINITY,
        targets,
    })
}

//! The work of one user in one round: `UserUpdateFedAvg`, `UserUpdateFedSGD`, or the gradients of single examples.

mod examples;

use std::time::{Duration, Instant};

use undertone_aggregation::{Added, ClipReport, Clipping, NonFinite, ParamLayout, UserOutcome};
use undertone_models::{SequenceModel, SequenceWorker};
use undertone_text::SpecialIds;

use crate::batch;
use crate::error::Result;
use crate::user_batches::UserBatches;
use undertone_settings::{Algorithm, BatchShape, FEDSGD_CHUNK, SettingsError, UserSettings};

/// The training of one user, before the sum has bounded the update; the update itself is in the worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalOutcome {
    /// `w_k`.
    pub weight: f64,
    /// Number of examples drawn for the round.
    pub examples: usize,
    /// Number of target tokens trained on, over all local epochs.
    pub tokens: u64,
    /// Sum of the training loss over those tokens.
    pub loss_sum: f64,
    /// The last projection, if the algorithm projects after every step.
    pub projected: Option<ClipReport>,
    /// `true` if local training left the range of numbers, so that the update is the zero vector.
    pub discarded: bool,
}

impl LocalOutcome {
    /// The whole outcome, once a sum has bounded and added the update. `estimate` is [`LocalTask::estimate`].
    #[must_use]
    pub fn added(self, added: Added, estimate: Option<f64>) -> UserOutcome {
        let discarded = self.discarded || added == Added::Discarded;
        let ClipReport { norm, clipped } = match self.projected {
            Some(projected) if !discarded => projected,
            _ => added.report(),
        };
        UserOutcome {
            weight: self.weight,
            examples: self.examples,
            tokens: if discarded { 0 } else { self.tokens },
            loss_sum: if discarded { 0.0 } else { self.loss_sum },
            norm,
            clipped,
            discarded,
            // PRIVACY: one bit per user, whatever happened to the update.
            below: estimate.map(|limit| norm <= limit),
        }
    }
}

/// Tokens, the sum of their loss, and the last projection.
type Trained = (u64, f64, Option<ClipReport>);

/// The model, parameters and buffers of one thread; reused for each user of each round.
pub struct LocalWorker {
    model: Box<dyn SequenceWorker>,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    /// One weight per sequence of a batch.
    weights: Vec<f32>,
    norms: Vec<f32>,
    /// Time spent on clipping since the last call of [`take_clipping`](Self::take_clipping).
    clipping: Duration,
}

impl std::fmt::Debug for LocalWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalWorker")
            .field("parameters", &self.parameters.len())
            .finish_non_exhaustive()
    }
}

/// The round that a user takes part in.
#[derive(Debug, Clone, Copy)]
pub struct LocalTask<'a> {
    /// Round index.
    pub round: u64,
    /// Parameters at the start of the round, `theta0`.
    pub theta: &'a [f32],
    /// The layout of the parameters.
    pub layout: &'a ParamLayout,
    /// The bound on the update.
    pub clipping: &'a Clipping,
    /// The norm that the user's bit compares with, where clipping is adaptive.
    pub estimate: Option<f64>,
    /// The ids that stand for no text; examples start from one of them.
    pub special: SpecialIds,
    /// The user's hyper-parameters.
    pub settings: &'a UserSettings,
    /// The treatment of a local training that leaves the range of numbers.
    pub non_finite: NonFinite,
}

impl LocalTask<'_> {
    /// `true` if the gradients of a microbatch are bounded one by one in the kernel, before they are added up. Otherwise the sum
    /// bounds a microbatch as it bounds the update of a user.
    #[must_use]
    pub fn clips_in_kernel(&self) -> bool {
        matches!(self.clipping, Clipping::Flat { .. }) && self.settings.batch_size() > 1
    }
}

impl LocalWorker {
    /// A worker for users of at most `max_examples` sentences of at most `longest` tokens each.
    #[must_use]
    pub fn new(
        model: &dyn SequenceModel,
        settings: &UserSettings,
        longest: usize,
        max_examples: usize,
    ) -> Self {
        let parameters = model.layout().len();
        let BatchShape { sequences, steps } = settings.batch_shape(longest, max_examples);
        let in_parts = match settings.algorithm {
            Algorithm::FedAvg | Algorithm::Els => false,
            Algorithm::FedSgd => true,
            Algorithm::Uls => settings.examples_of(max_examples) > settings.batch_size(),
        };
        Self {
            model: model.worker(sequences, sequences * steps),
            parameters: vec![0.0; parameters],
            gradient: if in_parts {
                vec![0.0; parameters]
            } else {
                Vec::new()
            },
            weights: vec![0.0; sequences],
            norms: vec![0.0; sequences],
            clipping: Duration::ZERO,
        }
    }

    /// Returns the time spent on clipping since the last call.
    pub fn take_clipping(&mut self) -> Duration {
        std::mem::take(&mut self.clipping)
    }

    /// Trains on one user's examples. The update is [`LocalWorker::update_mut`] afterwards. `order` decides which examples are
    /// drawn and in which order they are read.
    ///
    /// The update is not bounded yet: the sum clips what it adds. The only clipping here is the projection after every step, which is
    /// part of the algorithm and not of the guarantee.
    ///
    /// # Errors
    /// From the model (token out of range, non-finite loss) and from the projection (non-finite parameters).
    ///
    /// # Source
    /// \[DPLM\] Algorithm 1; \[UserDP\] Algorithm 2.
    pub fn train(
        &mut self,
        examples: &[&[u32]],
        order: [u8; 32],
        task: &LocalTask<'_>,
    ) -> Result<LocalOutcome> {
        let batches = UserBatches::new(examples, order, task.settings);
        let (drawn, weight) = (batches.examples().len(), batches.weight(task.settings));
        let trained = match task.settings.algorithm {
            Algorithm::FedAvg => self.fedavg(batches, task),
            Algorithm::FedSgd => self.fedsgd(batches.examples(), task),
            Algorithm::Uls => self.uls(batches.examples(), task),
            Algorithm::Els => Err(SettingsError::invalid(
                "user_update.algorithm",
                "an algorithm with an update of one user",
                "els",
            )
            .into()),
        };
        let discarded = match &trained {
            Err(error) => task.non_finite == NonFinite::Zero && error.is_overflow(),
            Ok(_) => false,
        };
        let (tokens, loss_sum, projected) = if discarded {
            // PRIVACY: a map of this user's data alone, with norm 0, so the sensitivity is unchanged.
            self.parameters.fill(0.0);
            (0, 0.0, None)
        } else {
            trained?
        };
        Ok(LocalOutcome {
            weight,
            examples: drawn,
            tokens,
            loss_sum,
            projected,
            discarded,
        })
    }

    /// Makes the zero vector the update, as of a user whose contribution is left out in an audit.
    pub fn keep_silent(&mut self) -> LocalOutcome {
        self.parameters.fill(0.0);
        LocalOutcome {
            weight: 1.0,
            examples: 0,
            tokens: 0,
            loss_sum: 0.0,
            projected: None,
            discarded: false,
        }
    }

    /// The update of the last [`LocalWorker::train`] or [`LocalWorker::train_examples`], for the sum to bound.
    pub fn update_mut(&mut self) -> &mut [f32] {
        &mut self.parameters
    }

    /// The update of the last [`LocalWorker::train`], for a caller that trains no more with this worker. Nothing is copied.
    #[must_use]
    pub fn into_update(self) -> Vec<f32> {
        self.parameters
    }

    fn fedavg(&mut self, batches: UserBatches<'_>, task: &LocalTask<'_>) -> Result<Trained> {
        self.parameters.copy_from_slice(task.theta);
        let learning_rate = task.settings.learning_rate() as f32;
        let (mut tokens, mut loss_sum) = (0, 0.0);
        let mut last = ClipReport {
            norm: 0.0,
            clipped: false,
        };
        for (batch, mode) in batches.into_steps(task.settings, task.special) {
            let stats = self
                .model
                .sgd_step(&mut self.parameters, &batch.batch(), learning_rate, mode)?;
            if task.settings.clip_every_step {
                let started = Instant::now();
                last = task
                    .clipping
                    .project(task.layout, task.theta, &mut self.parameters)?;
                self.clipping += started.elapsed();
            }
            tokens += stats.targets as u64;
            loss_sum += stats.loss_sum;
        }
        for (parameter, start) in self.parameters.iter_mut().zip(task.theta) {
            *parameter -= start;
        }
        Ok((tokens, loss_sum, task.settings.clip_every_step.then_some(last)))
    }

    fn fedsgd(&mut self, examples: &[&[u32]], task: &LocalTask<'_>) -> Result<Trained> {
        // The gradient of the mean over all targets, gathered in pieces that fit the workspace.
        let (mut tokens, mut loss_sum) = (0u64, 0.0);
        self.parameters.fill(0.0);
        let chunk = FEDSGD_CHUNK.min(task.settings.batch_size());
        for batch in batch::sentences(examples, chunk, task.special.bos) {
            let stats = self
                .model
                .gradient(task.theta, &batch.batch(), &mut self.gradient)?;
            let fraction = stats.targets as f32;
            for (total, gradient) in self.parameters.iter_mut().zip(&self.gradient) {
                *total += fraction * gradient;
            }
            tokens += stats.targets as u64;
            loss_sum += stats.loss_sum;
        }
        let step = -(task.settings.learning_rate() / tokens.max(1) as f64) as f32;
        self.parameters.iter_mut().for_each(|total| *total *= step);
        Ok((tokens, loss_sum, None))
    }
}

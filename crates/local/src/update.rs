//! The work of one user in one round: `UserUpdateFedAvg`, `UserUpdateFedSGD`, or the gradients of single examples.

mod examples;

use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use undertone_aggregation::{Added, ClipReport, Clipping, NonFinite, ParamLayout, user_weight};
use undertone_mechanisms::{draws, fault::planted};
use undertone_models::{PackedBatch, SequenceModel, SequenceWorker, StateMode};
use undertone_text::SpecialIds;

use crate::batch;
use crate::error::{LocalError, Result};
use crate::settings::{Algorithm, Batching, UserSettings};

pub use examples::{CLIP_MARGIN, MicrobatchOutcome};

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

/// The contribution of one user to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UserOutcome {
    /// `w_k`.
    #[serde(with = "crate::bits")]
    pub weight: f64,
    /// Number of examples drawn for the round.
    pub examples: usize,
    /// Number of target tokens trained on, over all local epochs.
    pub tokens: u64,
    /// Sum of the training loss over those tokens.
    #[serde(with = "crate::bits")]
    pub loss_sum: f64,
    /// Norm of the update before its last projection.
    #[serde(with = "crate::bits")]
    pub norm: f64,
    /// `true` if that projection changed it.
    pub clipped: bool,
    /// `true` if the update was not finite, so that the zero vector was added.
    pub discarded: bool,
    /// `true` if the norm is at most [`LocalTask::estimate`], where there is one.
    pub below: Option<bool>,
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
        let steps = match settings.batching {
            Batching::Sentences => longest,
            // A text shorter than `unroll` is one stream of one window.
            Batching::Stream => settings.unroll.min(max_examples.saturating_mul(longest + 1)),
        };
        let parameters = model.layout().len();
        // A batch of "all examples" is no larger than what a user has.
        let examples = max_examples
            .min(settings.max_examples_per_round().unwrap_or(max_examples))
            .max(1);
        let batch_size = settings.batch_size();
        let sequences = match (settings.algorithm, settings.batching) {
            (Algorithm::FedSgd, _) => batch_size.min(examples).min(FEDSGD_CHUNK),
            (Algorithm::FedAvg, Batching::Sentences) | (Algorithm::Uls, _) => batch_size.min(examples),
            // A stream has at least one token; the gaps between sentences are inputs too.
            (Algorithm::FedAvg, Batching::Stream) => batch_size.min(examples.saturating_mul(longest + 1)),
            // A microbatch holds examples of several users.
            (Algorithm::Els, _) => batch_size,
        };
        let in_parts = match settings.algorithm {
            Algorithm::FedAvg | Algorithm::Els => false,
            Algorithm::FedSgd => true,
            Algorithm::Uls => examples > batch_size,
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
        let mut generator = ChaCha20Rng::from_seed(order);
        let mut examples = examples.to_vec();
        // Streams keep the order in which the text was written; sentences are drawn in random order.
        let available = examples.len();
        let wanted = task.settings.max_examples_per_round().unwrap_or(available);
        match task.settings.batching {
            Batching::Sentences => {
                draws::shuffle(&mut examples, &mut generator);
                examples.truncate(wanted);
            }
            Batching::Stream if wanted < available => {
                let chosen = draws::fixed_size(available, wanted, &mut generator);
                examples = chosen.into_iter().map(|j| examples[j]).collect();
            }
            Batching::Stream => {}
        }
        let trained = match task.settings.algorithm {
            // The update of the user before is still there.
            _ if planted("M28") && examples.len() < 2 => Ok((0, 0.0, None)),
            Algorithm::FedAvg => self.fedavg(&examples, task, &mut generator),
            Algorithm::FedSgd => self.fedsgd(&examples, task),
            Algorithm::Uls => self.uls(&examples, task),
            Algorithm::Els => Err(LocalError::setting(
                "user_update.algorithm",
                "an algorithm with an update of one user",
                "els",
            )),
        };
        let discarded = match &trained {
            Err(error) => task.non_finite == NonFinite::Zero && error.is_overflow() && !planted("M05"),
            Ok(_) => false,
        };
        let (tokens, loss_sum, projected) = if discarded {
            // PRIVACY: a map of this user's data alone, with norm 0, so the sensitivity is unchanged.
            self.parameters.fill(0.0);
            (0, 0.0, None)
        } else {
            trained?
        };
        // n_k is all that the user has, as in Algorithm 1; the cap w_hat bounds its influence.
        let weight = task
            .settings
            .weight_cap
            .map_or(1.0, |cap| user_weight(available as u64, cap));
        Ok(LocalOutcome {
            weight,
            examples: examples.len(),
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

    fn fedavg(
        &mut self,
        examples: &[&[u32]],
        task: &LocalTask<'_>,
        generator: &mut impl rand_core::Rng,
    ) -> Result<Trained> {
        match planted("M29") {
            // A part of the last user's step is carried on.
            true => carry(&mut self.parameters, task.theta),
            false => self.parameters.copy_from_slice(task.theta),
        }
        let learning_rate = task.settings.learning_rate() as f32;
        let (mut tokens, mut loss_sum) = (0, 0.0);
        let mut last = ClipReport {
            norm: 0.0,
            clipped: false,
        };
        let mut order = examples.to_vec();
        let mut steps = task.settings.max_steps.unwrap_or(usize::MAX);
        'epochs: for epoch in 0..task.settings.epochs {
            if epoch > 0 && task.settings.batching == Batching::Sentences {
                draws::shuffle(&mut order, generator);
            }
            for (batch, mode) in batches(&order, task) {
                if steps == 0 {
                    break 'epochs;
                }
                steps -= 1;
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

/// The planted error M29: the training of a user starts with half of the update of the user before.
fn carry(parameters: &mut [f32], theta: &[f32]) {
    for (parameter, start) in parameters.iter_mut().zip(theta) {
        *parameter = start + 0.5 * *parameter;
    }
}

/// Number of sentences whose gradient is computed at once in FedSGD; it bounds the workspace, not the batch.
const FEDSGD_CHUNK: usize = 64;

fn batches(examples: &[&[u32]], task: &LocalTask<'_>) -> Vec<(PackedBatch, StateMode)> {
    let settings = task.settings;
    match settings.batching {
        Batching::Sentences => batch::sentences(examples, settings.batch_size(), task.special.bos)
            .into_iter()
            .map(|batch| (batch, StateMode::Zero))
            .collect(),
        Batching::Stream => batch::streams(examples, settings.batch_size(), settings.unroll, task.special),
    }
}

//! The seam between a round and the machine that computes its updates.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use undertone_models::SequenceModel;

use crate::error::{LocalError, Result};
use crate::settings::UserSettings;
use crate::update::{LocalOutcome, LocalTask, LocalWorker, MicrobatchOutcome};
use crate::workers::on_threads;

/// The text of the users of a round. Users are known by their place, from 0, and by nothing else.
pub trait CohortText: Sync {
    /// The seed of the choice and the order of a user's examples.
    fn order(&self, place: usize) -> [u8; 32];

    /// The examples of the user at a place, in the order in which they were written.
    fn examples(&self, place: usize) -> Vec<&[u32]>;

    /// One example of the user at a place.
    fn example(&self, place: usize, example: usize) -> &[u32];
}

/// The work of an engine in one round.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the text of people"
)]
pub enum Work<'a> {
    /// The updates of the users at these places, in this order.
    Users {
        /// The text of the users.
        text: &'a dyn CohortText,
        /// The places of the users.
        places: &'a [usize],
    },
    /// The clipped gradients of these microbatches, by their numbers, in this order.
    Microbatches {
        /// The text of the users.
        text: &'a dyn CohortText,
        /// All microbatches of the round.
        all: &'a [Vec<(usize, usize)>],
        /// The numbers of those to compute.
        numbers: &'a [usize],
    },
}

/// Takes the output of an engine. The sink bounds each update and adds it up; an engine never sees a sum.
pub trait UpdateSink: Sync {
    /// Takes the update of the user at a place.
    ///
    /// # Errors
    /// An update that cannot be used, such as one of a wrong length, or a second one for the same place.
    fn accept(&self, place: usize, update: &[f32], outcome: LocalOutcome) -> Result<()>;

    /// Takes the sum of the clipped gradients of a microbatch.
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept).
    fn accept_microbatch(&self, number: usize, update: &[f32], outcome: MicrobatchOutcome) -> Result<()>;
}

/// Times of the parts of an engine's work, as the means over its workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineTimes {
    /// Clipping that belongs to the algorithm, such as projections after each local step.
    pub clip: Duration,
    /// Time spent in the sink: bounding updates and adding them up.
    pub sink: Duration,
}

/// A failed piece of work.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct EngineError {
    /// The place of the user, or the number of the microbatch.
    pub place: usize,
    /// The reason.
    pub source: LocalError,
}

/// A machine that computes updates. It sees parameters, examples and the seeds of their order, and never a sum, a key of the run
/// or the name of a user. Nothing of a guarantee rests on an engine: the sink bounds everything that it delivers.
pub trait Engine: Send {
    /// Computes the work of one round and hands each piece to the sink.
    ///
    /// # Errors
    /// The first piece that fails, in training or in the sink. Other pieces may or may not have been delivered then.
    fn train(
        &mut self,
        task: &LocalTask<'_>,
        work: &Work<'_>,
        sink: &dyn UpdateSink,
    ) -> Result<EngineTimes, EngineError>;
}

/// The engine of the processor: one user per core at a time.
#[derive(Debug)]
pub struct CpuEngine {
    workers: Vec<LocalWorker>,
}

impl CpuEngine {
    /// An engine with one worker per thread, for users of at most `max_examples` examples of at most `longest` tokens each.
    #[must_use]
    pub fn new(
        model: &dyn SequenceModel,
        settings: &UserSettings,
        threads: usize,
        longest: usize,
        max_examples: usize,
    ) -> Self {
        Self {
            workers: (0..threads.max(1))
                .map(|_| LocalWorker::new(model, settings, longest, max_examples))
                .collect(),
        }
    }

    /// The workers, for sources that ask for one update after another, as secure aggregation does.
    pub fn workers_mut(&mut self) -> &mut [LocalWorker] {
        &mut self.workers
    }

    /// The mean time per worker spent on clipping since this was last asked.
    pub fn take_clipping(&mut self) -> Duration {
        let all: Duration = self.workers.iter_mut().map(LocalWorker::take_clipping).sum();
        all / self.workers.len().max(1) as u32
    }

    /// Lets the workers take one piece after another in this order.
    fn in_order(
        &mut self,
        order: &[usize],
        piece: &(dyn Fn(&mut LocalWorker, usize) -> Result<Duration> + Sync),
    ) -> Result<EngineTimes, EngineError> {
        let next = AtomicUsize::new(0);
        let spent = on_threads(&mut self.workers, |worker: &mut LocalWorker| {
            let mut sink = Duration::ZERO;
            while let Some(&place) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                sink += piece(worker, place).map_err(|source| {
                    next.store(order.len(), Ordering::Relaxed);
                    EngineError { place, source }
                })?;
            }
            Ok(sink)
        })?;
        Ok(EngineTimes {
            clip: self.take_clipping(),
            sink: spent.iter().sum::<Duration>() / spent.len().max(1) as u32,
        })
    }
}

impl Engine for CpuEngine {
    fn train(
        &mut self,
        task: &LocalTask<'_>,
        work: &Work<'_>,
        sink: &dyn UpdateSink,
    ) -> Result<EngineTimes, EngineError> {
        match *work {
            Work::Users { text, places } => self.in_order(places, &|worker, place| {
                let outcome = worker.train(&text.examples(place), text.order(place), task)?;
                let started = Instant::now();
                sink.accept(place, worker.update_mut(), outcome)?;
                Ok(started.elapsed())
            }),
            Work::Microbatches { text, all, numbers } => self.in_order(numbers, &|worker, number| {
                let texts: Vec<&[u32]> = all[number]
                    .iter()
                    .map(|&(place, example)| text.example(place, example))
                    .collect();
                let outcome = worker.train_examples(&texts, task)?;
                let started = Instant::now();
                sink.accept_microbatch(number, worker.update_mut(), outcome)?;
                Ok(started.elapsed())
            }),
        }
    }
}

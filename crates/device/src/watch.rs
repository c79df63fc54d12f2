//! The brake of local training: the wish to stop, and the processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use undertone_aggregation::ParamLayout;
use undertone_models::{
    Decoder, ModelError, SequenceBatch, SequenceModel, SequenceWeights, SequenceWorker, StateMode, StepStats,
};

/// The brake of one training. A host sets it from any thread, and the training reads it before each batch.
#[derive(Debug)]
pub struct Watch {
    stop: AtomicBool,
    out_of_time: AtomicBool,
    limit_ns: u64,
    used_ns: AtomicU64,
}

impl Watch {
    /// A brake that also stops a training beyond `cpu_ms` milliseconds of processor time.
    #[must_use]
    pub fn new(cpu_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            stop: AtomicBool::new(false),
            out_of_time: AtomicBool::new(false),
            limit_ns: cpu_ms.saturating_mul(1_000_000),
            used_ns: AtomicU64::new(0),
        })
    }

    /// Stops the training before its next batch.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// `true` once the training was stopped or had used up its time.
    #[must_use]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// `true` once the training had used up its processor time.
    #[must_use]
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.out_of_time.load(Ordering::Relaxed)
    }

    /// Processor time that the training had used before its last batch, in milliseconds.
    #[must_use]
    pub(crate) fn used_ms(&self) -> u64 {
        self.used_ns.load(Ordering::Relaxed) / 1_000_000
    }

    /// `true` if the next batch may start. `clock` belongs to the thread that trains.
    pub(crate) fn proceed(&self, clock: &ThreadClock) -> bool {
        let used = clock.elapsed_ns();
        self.used_ns.store(used, Ordering::Relaxed);
        if used > self.limit_ns {
            self.out_of_time.store(true, Ordering::Relaxed);
            self.stop();
        }
        !self.is_stopped()
    }
}

/// The processor time of one thread since the clock was made.
///
/// Where the system does not report it, the time on the wall stands in, which is never shorter for one thread.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    wall: Instant,
    cpu_ns: Option<u64>,
}

impl ThreadClock {
    pub(crate) fn start() -> Self {
        Self {
            wall: Instant::now(),
            cpu_ns: thread_cpu_ns(),
        }
    }

    fn elapsed_ns(&self) -> u64 {
        match (self.cpu_ns, thread_cpu_ns()) {
            (Some(start), Some(now)) => now.saturating_sub(start),
            _ => u64::try_from(self.wall.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// The processor time of the calling thread, where the system is Linux.
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A model whose workers look at the brake before each batch.
pub(crate) struct Braked<'a> {
    pub(crate) model: &'a dyn SequenceModel,
    pub(crate) watch: Arc<Watch>,
}

impl SequenceModel for Braked<'_> {
    fn layout(&self) -> &ParamLayout {
        self.model.layout()
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn initial_params(&self, seed: u64) -> Vec<f32> {
        self.model.initial_params(seed)
    }

    fn frozen(&self) -> &[f32] {
        self.model.frozen()
    }

    fn worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker> {
        Box::new(BrakedWorker {
            worker: self.model.worker(max_sequences, max_rows),
            watch: Arc::clone(&self.watch),
            clock: ThreadClock::start(),
        })
    }

    fn decoder(&self, params: &[f32], sequences: usize) -> Result<Box<dyn Decoder>, ModelError> {
        self.model.decoder(params, sequences)
    }

    fn check_worker(&self, max_sequences: usize, max_rows: usize) -> Box<dyn SequenceWorker<f64>> {
        self.model.check_worker(max_sequences, max_rows)
    }
}

struct BrakedWorker {
    worker: Box<dyn SequenceWorker>,
    watch: Arc<Watch>,
    clock: ThreadClock,
}

impl BrakedWorker {
    /// The error only ends the training: the caller asks the brake before it looks at the error.
    fn check(&self) -> Result<(), ModelError> {
        match self.watch.proceed(&self.clock) {
            true => Ok(()),
            false => Err(ModelError::NoBase),
        }
    }
}

impl SequenceWorker for BrakedWorker {
    fn reset_state(&mut self) {
        self.worker.reset_state();
    }

    fn sgd_step(
        &mut self,
        params: &mut [f32],
        batch: &SequenceBatch<'_>,
        learning_rate: f32,
        state: StateMode,
    ) -> Result<StepStats, ModelError> {
        self.check()?;
        self.worker.sgd_step(params, batch, learning_rate, state)
    }

    fn gradient(
        &mut self,
        params: &[f32],
        batch: &SequenceBatch<'_>,
        grad: &mut [f32],
    ) -> Result<StepStats, ModelError> {
        self.check()?;
        self.worker.gradient(params, batch, grad)
    }

    fn weighted_gradient(
        &mut self,
        params: &[f32],
        batch: &SequenceBatch<'_>,
        weights: SequenceWeights<'_, f32>,
        sum: &mut [f32],
        norms: &mut [f32],
    ) -> Result<StepStats, ModelError> {
        self.check()?;
        self.worker.weighted_gradient(params, batch, weights, sum, norms)
    }

    fn evaluate(
        &mut self,
        params: &[f32],
        batch: &SequenceBatch<'_>,
        state: StateMode,
        sink: &mut dyn FnMut(usize, &[f32], f32),
    ) -> Result<(), ModelError> {
        self.check()?;
        self.worker.evaluate(params, batch, state, sink)
    }
}

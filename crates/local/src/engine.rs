//! The seam between a round and the machine that computes its updates.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use undertone_aggregation::{AggregationError, GpuPart, MicrobatchOutcome, Wiped};
use undertone_models::SequenceModel;

use crate::error::{LocalError, Result};
use crate::update::{LocalOutcome, LocalTask, LocalWorker};
use crate::workers::on_threads;
use undertone_settings::UserSettings;

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

    /// Takes the updates of the users at these places from the memory of a GPU, one unit of the part for each.
    ///
    /// The provided method copies every update to the host and calls [`accept`](Self::accept). A sink that adds up lets the GPU do
    /// it by [`BoundedSum::keep_on_gpu`](undertone_aggregation::BoundedSum::keep_on_gpu) and takes
    /// the sum at the end.
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept) and of the GPU, and a number of places or outcomes that differs from the units.
    fn accept_on_gpu(
        &self,
        places: &[usize],
        outcomes: &[LocalOutcome],
        part: &mut dyn GpuPart,
    ) -> Result<()> {
        check_units(places, outcomes, part)?;
        let mut update = Wiped::from(vec![0.0; part.parameters()]);
        for (unit, (&place, &outcome)) in places.iter().zip(outcomes).enumerate() {
            part.update(unit, &mut update)?;
            self.accept(place, &update, outcome)?;
        }
        Ok(())
    }

    /// Takes the sum that a GPU keeps of the parts before. An engine on a GPU calls this after the last part of its work.
    ///
    /// # Errors
    /// The GPU failed, or a value of the sum is larger than its units can make it.
    fn end_on_gpu(&self, _: &mut dyn GpuPart) -> Result<()> {
        Ok(())
    }

    /// Takes the sum of the clipped gradients of a microbatch.
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept).
    fn accept_microbatch(&self, number: usize, update: &[f32], outcome: MicrobatchOutcome) -> Result<()>;
}

/// Refuses a part of a GPU whose units are not those of the places.
///
/// # Errors
/// A number of places or of outcomes that differs from the units.
pub fn check_units(places: &[usize], outcomes: &[LocalOutcome], part: &dyn GpuPart) -> Result<()> {
    let expected = part.units();
    for (what, got) in [
        ("places of the GPU's units", places.len()),
        ("outcomes of the GPU's units", outcomes.len()),
    ] {
        if got != expected {
            return Err(AggregationError::Length { what, expected, got }.into());
        }
    }
    Ok(())
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
/// or the name of a user. Nothing of a guarantee rests on an engine: the sink bounds everything that it delivers. Updates that stay in
/// the memory of a GPU are an exception: the sink computes their factors, and the GPU is trusted to apply them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use undertone_aggregation::{Factor, GpuSum, Limbs};

    /// Updates of two values in memory that only copies leave.
    struct Copies(Vec<[f32; 2]>);

    impl GpuPart for Copies {
        fn units(&self) -> usize {
            self.0.len()
        }

        fn parameters(&self) -> usize {
            2
        }

        fn norms(&mut self) -> Result<Vec<Limbs>, AggregationError> {
            panic!("the provided method asks for updates alone");
        }

        fn update(&mut self, unit: usize, into: &mut [f32]) -> Result<(), AggregationError> {
            into.copy_from_slice(&self.0[unit]);
            Ok(())
        }

        fn add(&mut self, _: &[Factor]) -> Result<(), AggregationError> {
            panic!("the provided method asks for updates alone");
        }

        fn take(&mut self) -> Result<GpuSum, AggregationError> {
            panic!("the provided method asks for updates alone");
        }
    }

    #[derive(Default)]
    struct Kept(Mutex<Vec<(usize, Vec<f32>, f64)>>);

    impl UpdateSink for Kept {
        fn accept(&self, place: usize, update: &[f32], outcome: LocalOutcome) -> Result<()> {
            self.0
                .lock()
                .unwrap()
                .push((place, update.to_vec(), outcome.weight));
            Ok(())
        }

        fn accept_microbatch(&self, number: usize, _: &[f32], _: MicrobatchOutcome) -> Result<()> {
            Err(LocalError::Delivery {
                place: number,
                pieces: 0,
            })
        }
    }

    #[test]
    fn a_sink_without_a_sum_takes_the_updates_of_a_gpu_one_by_one() {
        let outcome = |weight| LocalOutcome {
            weight,
            examples: 1,
            tokens: 1,
            loss_sum: 0.0,
            projected: None,
            discarded: false,
        };
        let (sink, mut part) = (Kept::default(), Copies(vec![[0.5, -1.0], [3.0, f32::NAN]]));
        let outcomes = [outcome(1.0), outcome(0.25)];
        sink.accept_on_gpu(&[7, 4], &outcomes, &mut part).unwrap();
        for (places, outcomes, message) in [
            (
                &[7][..],
                &outcomes[..],
                "places of the GPU's units: expected 2 values, got 1",
            ),
            (
                &[7, 4],
                &outcomes[..1],
                "outcomes of the GPU's units: expected 2 values, got 1",
            ),
        ] {
            let error = sink.accept_on_gpu(places, outcomes, &mut part).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let kept = sink.0.into_inner().unwrap();
        assert_eq!(kept[0], (7, vec![0.5, -1.0], 1.0));
        assert!(kept.len() == 2 && kept[1].0 == 4 && kept[1].2 == 0.25 && kept[1].1[1].is_nan());
    }
}

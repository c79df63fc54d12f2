//! Sums of updates and of gradients: computed by an engine of this process, with the help of other processes, in fixed point.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use undertone_aggregation::{Added, Bound, BoundedSum, GpuPart, GpuUnits};
use undertone_aggregation::{MicrobatchOutcome, UserOutcome};
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::head::Opened;
use undertone_coordinator::kept_examples::Microbatch;
use undertone_coordinator::random::Randomness;
use undertone_coordinator::source::{
    Diagnostics, GatherTimes, Gathered, Participants, RoundSum, UpdateSource, Watch,
};
use undertone_data::Partition;
use undertone_local::{
    Engine, EngineError, EngineTimes, LocalError, LocalOutcome, LocalTask, UpdateSink, Work, check_units,
};
use undertone_settings::UserSettings;

use super::{AllText, RoundText, sum_of_bits, task_of};
use crate::driver::orders::{Order, RoundOrder};
use crate::error::{Result, RunError};
use crate::ranks::{Ranks, gather, work_of_rank};
use undertone_run_directory::entropy::fresh_number;

/// Computes the contributions of a cohort with an engine, and divides the work between the processes of a run.
///
/// The sum is taken in fixed point, so it has the same bits at any number of threads and processes, and in any order of arrival.
///
/// # Guarantee
/// The sum bounds each contribution of the engine, and takes it once.
pub struct Local<'a> {
    /// Computes the updates.
    pub engine: Box<dyn Engine + 'a>,
    /// The text of all training users.
    pub users: Partition<'a>,
    /// The settings of the users' local training.
    pub settings: &'a UserSettings,
    /// The randomness from which the seeds of the users come.
    pub randomness: Randomness,
    /// The processes that train; the others train their part of a cohort and see nothing else of the round.
    pub ranks: &'a dyn Ranks,
}

impl std::fmt::Debug for Local<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

impl UpdateSource for Local<'_> {
    type Error = RunError;

    fn gather(
        &mut self,
        opened: &Opened,
        cohort: &Cohort,
        parameters: &[f32],
        watch: &dyn Watch,
    ) -> Result<Gathered> {
        if !cohort.silent.is_empty() {
            let expected = "nobody outside a secure sum, where a user can be left out";
            return Err(RunError::value("silent users", expected, cohort.silent.len()));
        }
        let started = Instant::now();
        let task = task_of(opened, parameters, self.settings, self.users.special());
        let orders: Vec<[u8; 32]> = cohort
            .users
            .iter()
            .map(|&user| self.randomness.user_seeds(task.round, user as u64).order)
            .collect();
        Order::Round(RoundOrder::new(&task, cohort, &orders)).send(parameters, self.ranks)?;
        let part = Part {
            text: RoundText {
                partition: &self.users,
                users: &cohort.users,
                orders: &orders,
            },
            microbatches: cohort.microbatches.as_deref(),
            bound: opened.bound(),
            ranks: self.ranks,
        };
        let (sum, mut diagnostics, times) = part.gather(self.engine.as_mut(), &task, watch)?;
        diagnostics.times = GatherTimes {
            users: started.elapsed(),
            clip: times.clip,
            sum: times.sink,
        };
        Ok(Gathered {
            sum,
            who: Participants {
                names: cohort.pseudonyms.clone(),
                survivors: None,
                examples: self.settings.group_size.map(|_| diagnostics.examples),
                ..Participants::default()
            },
            lane: None,
            diagnostics,
        })
    }
}

/// Takes each requested piece once.
struct Pieces<T> {
    /// `true` for pieces that were not requested, or were taken.
    taken: Vec<AtomicBool>,
    outcomes: Mutex<BTreeMap<usize, T>>,
}

impl<T> Pieces<T> {
    fn new(number: usize, asked: &[usize]) -> Self {
        let taken: Vec<AtomicBool> = (0..number).map(|_| AtomicBool::new(true)).collect();
        for &place in asked {
            taken[place].store(false, Ordering::Relaxed);
        }
        Self {
            taken,
            outcomes: Mutex::default(),
        }
    }

    /// PRIVACY: called before anything is added. A contribution that came twice would move the sum twice.
    fn take(&self, place: usize) -> Result<(), LocalError> {
        match self.taken.get(place) {
            Some(taken) if !taken.swap(true, Ordering::Relaxed) => Ok(()),
            _ => Err(LocalError::Delivery {
                place,
                pieces: self.taken.len(),
            }),
        }
    }

    fn record(&self, place: usize, outcome: T) {
        // A poisoned lock means that another thread panicked; its panic is what the caller will see.
        if let Ok(mut outcomes) = self.outcomes.lock() {
            outcomes.insert(place, outcome);
        }
    }

    /// The outcomes of the requested pieces.
    fn finish(self, asked: &[usize]) -> Result<BTreeMap<usize, T>, EngineError> {
        let outcomes = self.outcomes.into_inner().unwrap_or_default();
        let pieces = self.taken.len();
        match asked.iter().find(|place| !outcomes.contains_key(place)) {
            Some(&place) => Err(EngineError {
                place,
                source: LocalError::Undelivered { place, pieces },
            }),
            None => Ok(outcomes),
        }
    }
}

/// Ends the work of an engine, which stops at the first error of its sink, where the round is to be given up.
fn proceed(watch: &dyn Watch) -> Result<(), LocalError> {
    match watch.stop() {
        true => Err(LocalError::Interrupted),
        false => Ok(()),
    }
}

struct UserSink<'a> {
    updates: &'a BoundedSum,
    bits: Option<&'a BoundedSum>,
    pieces: &'a Pieces<UserOutcome>,
    estimate: Option<f64>,
    /// The place of the unit of a GPU whose norm the host computes again, chosen at random.
    audited: Option<usize>,
    /// The units whose sum a GPU keeps.
    kept: Mutex<GpuUnits>,
    watch: &'a dyn Watch,
}

impl UserSink<'_> {
    /// Refuses an engine that left the sum of its units on a GPU.
    fn check_end(self, places: &[usize]) -> Result<(), EngineError> {
        let kept = self.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        match places.first() {
            Some(&place) if kept.units() > 0 => Err(EngineError {
                place,
                source: LocalError::Undelivered {
                    place,
                    pieces: places.len(),
                },
            }),
            _ => Ok(()),
        }
    }

    /// Records a contribution that the sum has taken, and adds its user's bit.
    fn record(&self, place: usize, outcome: LocalOutcome, added: Added) -> Result<(), LocalError> {
        let outcome = outcome.added(added, self.estimate);
        if let (Some(bits), Some(below)) = (self.bits, outcome.below) {
            bits.add(&[if below { 0.5 } else { -0.5 }], 1.0)?;
        }
        self.pieces.record(place, outcome);
        self.watch.contribution();
        Ok(())
    }
}

impl UpdateSink for UserSink<'_> {
    fn accept(&self, place: usize, update: &[f32], outcome: LocalOutcome) -> Result<(), LocalError> {
        proceed(self.watch)?;
        self.pieces.take(place)?;
        let added = self.updates.add(update, outcome.weight)?;
        self.record(place, outcome, added)
    }

    fn accept_on_gpu(
        &self,
        places: &[usize],
        outcomes: &[LocalOutcome],
        part: &mut dyn GpuPart,
    ) -> Result<(), LocalError> {
        check_units(places, outcomes, part)?;
        proceed(self.watch)?;
        places.iter().try_for_each(|&place| self.pieces.take(place))?;
        let weights: Vec<f64> = outcomes.iter().map(|outcome| outcome.weight).collect();
        // PRIVACY: the host computes the norm of one unit again. The choice is random, so no unit of a faulty GPU is always left out.
        let audited: Vec<usize> = places
            .iter()
            .position(|&place| Some(place) == self.audited)
            .into_iter()
            .collect();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let added = self.updates.keep_on_gpu(part, &weights, &audited, &mut kept)?;
        drop(kept);
        for ((&place, &outcome), added) in places.iter().zip(outcomes).zip(added) {
            self.record(place, outcome, added)?;
        }
        Ok(())
    }

    fn end_on_gpu(&self, part: &mut dyn GpuPart) -> Result<(), LocalError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.updates.merge_kept(part, &mut kept)?)
    }

    fn accept_microbatch(&self, number: usize, _: &[f32], _: MicrobatchOutcome) -> Result<(), LocalError> {
        Err(LocalError::Delivery {
            place: number,
            pieces: 0,
        })
    }
}

struct ExampleSink<'a> {
    sum: &'a BoundedSum,
    pieces: &'a Pieces<MicrobatchOutcome>,
    all: &'a [Microbatch],
    clips_in_kernel: bool,
    watch: &'a dyn Watch,
}

impl UpdateSink for ExampleSink<'_> {
    fn accept(&self, place: usize, _: &[f32], _: LocalOutcome) -> Result<(), LocalError> {
        Err(LocalError::Delivery { place, pieces: 0 })
    }

    fn accept_microbatch(
        &self,
        number: usize,
        update: &[f32],
        mut outcome: MicrobatchOutcome,
    ) -> Result<(), LocalError> {
        proceed(self.watch)?;
        self.pieces.take(number)?;
        match NonZeroU32::new(self.all[number].len() as u32) {
            Some(examples) if self.clips_in_kernel => {
                self.sum.add_examples(update, examples)?;
            }
            _ => outcome.added(self.sum.add(update, 1.0)?),
        }
        self.pieces.record(number, outcome);
        self.watch.contribution();
        Ok(())
    }
}

/// A round, of which each process computes a part.
pub(crate) struct Part<'a> {
    pub(crate) text: RoundText<'a>,
    /// The sampled examples, with example-level sampling.
    pub(crate) microbatches: Option<&'a [Microbatch]>,
    pub(crate) bound: &'a Bound,
    pub(crate) ranks: &'a dyn Ranks,
}

impl Part<'_> {
    /// Computes this rank's part and returns the sum and the statistics over all ranks, with the times of this one.
    pub(crate) fn gather(
        &self,
        engine: &mut dyn Engine,
        task: &LocalTask<'_>,
        watch: &dyn Watch,
    ) -> Result<(RoundSum, Diagnostics, EngineTimes)> {
        match self.microbatches {
            Some(all) => self.examples(all, engine, task, watch),
            None => self.users(engine, task, watch),
        }
    }

    /// The updates of users.
    fn users(
        &self,
        engine: &mut dyn Engine,
        task: &LocalTask<'_>,
        watch: &dyn Watch,
    ) -> Result<(RoundSum, Diagnostics, EngineTimes)> {
        let RoundText { partition, users, .. } = self.text;
        let mut sum = BoundedSum::new(self.bound.clone());
        let mut bits = task.estimate.map(|_| sum_of_bits()).transpose()?;
        // The largest users first, so that no core is left alone with a long one at the end.
        let mut order: Vec<usize> = (0..users.len()).collect();
        order.sort_by_key(|&place| std::cmp::Reverse(partition.user(users[place]).num_tokens()));
        let places = self.work(&order);
        let pieces = Pieces::new(users.len(), &places);
        let sink = UserSink {
            updates: &sum,
            bits: bits.as_ref(),
            pieces: &pieces,
            estimate: task.estimate,
            audited: match places.len() {
                0 => None,
                len => Some(places[(fresh_number()? % len as u64) as usize]),
            },
            kept: Mutex::new(GpuUnits::none(self.bound)),
            watch,
        };
        let work = Work::Users {
            text: &self.text,
            places: &places,
        };
        let of_user = |EngineError { place, source }| match source {
            LocalError::Interrupted => RunError::Interrupted,
            source => RunError::UserUpdate {
                round: task.round,
                user: users.get(place).copied().unwrap_or(place),
                source: Box::new(source.into()),
            },
        };
        let times = engine.train(task, &work, &sink).map_err(of_user)?;
        sink.check_end(&places).map_err(of_user)?;
        let outcomes = pieces.finish(&places).map_err(of_user)?;
        self.combine(&mut sum)?;
        if let Some(bits) = &mut bits {
            self.combine(bits)?;
        }
        let outcomes = gather(outcomes, &order, self.ranks)?;
        Ok((
            RoundSum::Users { sum, bits },
            outcomes.into_iter().collect(),
            times,
        ))
    }

    /// The gradients of the sampled examples.
    fn examples(
        &self,
        all: &[Microbatch],
        engine: &mut dyn Engine,
        task: &LocalTask<'_>,
        watch: &dyn Watch,
    ) -> Result<(RoundSum, Diagnostics, EngineTimes)> {
        let mut sum = BoundedSum::new(self.bound.clone());
        let order: Vec<usize> = (0..all.len()).collect();
        let numbers = self.work(&order);
        let pieces = Pieces::new(all.len(), &numbers);
        let sink = ExampleSink {
            sum: &sum,
            pieces: &pieces,
            all,
            clips_in_kernel: task.clips_in_kernel(),
            watch,
        };
        let work = Work::Microbatches {
            text: &AllText(self.text.partition),
            all,
            numbers: &numbers,
        };
        let of_examples = |EngineError { place, source }| match source {
            LocalError::Interrupted => RunError::Interrupted,
            source => RunError::Examples {
                round: task.round,
                users: all
                    .get(place)
                    .map(|microbatch| microbatch.iter().map(|&(user, _)| user).collect())
                    .unwrap_or_default(),
                source: Box::new(source.into()),
            },
        };
        let times = engine.train(task, &work, &sink).map_err(of_examples)?;
        let outcomes = pieces.finish(&numbers).map_err(of_examples)?;
        self.combine(&mut sum)?;
        let outcomes = gather(outcomes, &order, self.ranks)?;
        Ok((RoundSum::Examples(sum), outcomes.into_iter().collect(), times))
    }

    fn work(&self, order: &[usize]) -> Vec<usize> {
        work_of_rank(order, self.ranks.rank(), self.ranks.size()).collect()
    }

    fn combine(&self, sum: &mut BoundedSum) -> Result<()> {
        sum.combine(self.ranks.size(), |values| self.ranks.all_reduce(values))
    }
}

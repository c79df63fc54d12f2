//! A round of example-level sampling: microbatches of sampled examples instead of users.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use undertone_aggregation::BoundedSum;
use undertone_data::Partition;

use super::{Release, ReleaseTimes, Released, bound_of, clipping, in_pieces};
use crate::error::{Result, RunError};
use crate::ranks::{Ranks, exchange, microbatch_words};
use undertone_coordinator::kept_examples::Microbatch;
use undertone_local::{LocalTask, LocalWorker, MicrobatchOutcome};

/// Computes the clipped gradients of the sampled examples and returns what is released, with what each microbatch was like.
///
/// The gradients of a microbatch are added up in single precision and the microbatches in fixed point: the same bits at any
/// number of workers.
///
/// # Guarantee
/// `release.plan`'s, each example moving the sum by at most the clip norm: in exact arithmetic in microbatches of one, up to
/// the roundings of single precision in larger ones (see [`LocalWorker::train_examples`]).
///
/// # Errors
/// [`RunError::Examples`] naming the round and the users of the examples; from sum and mechanism.
///
/// # Source
/// \[UserDP\] Algorithm 1.
pub fn release_examples(
    microbatches: &[Microbatch],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    release: &mut Release<'_>,
    workers: &mut [LocalWorker],
    on_microbatch: &(dyn Fn() + Sync),
) -> Result<(Released, Vec<MicrobatchOutcome>)> {
    let started = Instant::now();
    let (sum, outcomes, summing) = train(microbatches, users, task, workers, release.ranks, on_microbatch)?;
    let mut times = ReleaseTimes {
        users: started.elapsed(),
        sum: summing,
        clip: clipping(workers),
        ..ReleaseTimes::default()
    };
    let started = Instant::now();
    let average = release.estimator.apply(sum.into_raw()?)?;
    let average = release.noise.privatize(task.round, release.plan, average)?;
    times.noise = started.elapsed();
    let released = Released {
        average: Some(average),
        survivors: None,
        centred_bits: None,
        times,
    };
    Ok((released, outcomes))
}

/// What a process that does not release anything does in such a round: its share of the microbatches, into the sum of all.
pub(crate) fn contribute_examples(
    microbatches: &[Microbatch],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    workers: &mut [LocalWorker],
    ranks: &dyn Ranks,
) -> Result<()> {
    train(microbatches, users, task, workers, ranks, &|| ()).map(drop)
}

/// The sum over all microbatches, of which this process computes its share.
fn train(
    microbatches: &[Microbatch],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    workers: &mut [LocalWorker],
    ranks: &dyn Ranks,
    on_microbatch: &(dyn Fn() + Sync),
) -> Result<(BoundedSum, Vec<MicrobatchOutcome>, Duration)> {
    let mut sum = BoundedSum::new(bound_of(task));
    let size = task.settings.batch_size();
    let order: Vec<usize> = (0..microbatches.len()).collect();
    let work = |worker: &mut LocalWorker, place: usize| {
        let microbatch = &microbatches[place];
        let texts: Vec<&[u32]> = microbatch
            .iter()
            .map(|&(user, example)| users.user(user).example(example))
            .collect();
        let mut work = || {
            let mut outcome = worker.train_examples(&texts, task)?;
            let adding = Instant::now();
            match NonZeroU32::new(texts.len() as u32) {
                Some(examples) if task.clips_in_kernel() => {
                    sum.add_examples(worker.update_mut(), examples)?;
                }
                _ => outcome.added(sum.add(worker.update_mut(), 1.0)?),
            }
            Ok((outcome, adding.elapsed()))
        };
        let done = work().map_err(|source| RunError::Examples {
            round: task.round,
            users: microbatch.iter().map(|&(user, _)| user).collect(),
            source: Box::new(source),
        })?;
        on_microbatch();
        Ok(done)
    };
    let (outcomes, summing) = in_pieces(&order, workers, ranks, &work)?;
    sum.combine(ranks.size(), |values| ranks.all_reduce(values))?;
    let outcomes = exchange(outcomes, microbatch_words(size), ranks)?;
    Ok((sum, outcomes, summing))
}

//! One round up to the release: local training on all cores, exact sum, average, noise.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use undertone_aggregation::{Estimator, FixedPointSum};
use undertone_data::Partition;
use undertone_mechanisms::{IndependentGaussian, NoisedAverage, NonPrivate};

use crate::error::{Result, TrainingError};
use crate::plan::RoundPlan;
use crate::random::Randomness;
use crate::update::{LocalTask, LocalWorker, UserOutcome};

/// Trains the cohort and returns the released average, with what each user's training was like (in cohort order).
///
/// The sum is taken in fixed point, so it has the same bits at any number of workers and in any order of arrival.
///
/// # Guarantee
/// `plan`'s: every summand is bounded by `plan.clipping`, the average has the sensitivity that `plan` states, and the noise
/// is `plan.noise_std` per coordinate. The only value that leaves is the noised one.
///
/// # Errors
/// [`TrainingError::UserUpdate`] naming round and user; from sum and mechanism.
///
/// # Source
/// \[DPLM\] Algorithm 1.
pub fn release(
    cohort: &[usize],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    plan: &RoundPlan,
    estimator: &Estimator,
    workers: &mut [LocalWorker],
    on_user: &(dyn Fn() + Sync),
) -> Result<(NoisedAverage, Vec<UserOutcome>)> {
    let sum = FixedPointSum::new(task.layout.len());
    let outcomes = train(cohort, users, task, workers, &sum, on_user)?;
    let average = estimator.apply(sum.into_raw()?)?;
    let released = privatize(average, plan, task.round, task.randomness)?;
    Ok((released, outcomes))
}

fn privatize(
    average: undertone_mechanisms::RawAverage,
    plan: &RoundPlan,
    round: u64,
    randomness: &Randomness,
) -> Result<NoisedAverage> {
    Ok(match plan.noise_multiplier {
        Some(_) => {
            IndependentGaussian::new(plan.noise_std, randomness.noise_key())?.privatize(round, average)?
        }
        None => NonPrivate.privatize(round, average)?,
    })
}

fn train(
    cohort: &[usize],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    workers: &mut [LocalWorker],
    sum: &FixedPointSum,
    on_user: &(dyn Fn() + Sync),
) -> Result<Vec<UserOutcome>> {
    // The largest users first, so that no core is left alone with a long one at the end.
    let mut order: Vec<usize> = (0..cohort.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(users.user(cohort[place]).num_tokens()));
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![None; cohort.len()]);
    let work = |worker: &mut LocalWorker| -> Result<()> {
        while let Some(&place) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let user = cohort[place];
            let outcome = worker
                .train(&users.user(user), user, task)
                .and_then(|outcome| {
                    sum.add(worker.update(), outcome.weight)?;
                    Ok(outcome)
                })
                .inspect_err(|_| next.store(order.len(), Ordering::Relaxed))
                .map_err(|source| TrainingError::UserUpdate {
                    round: task.round,
                    user,
                    source: Box::new(source),
                })?;
            // A poisoned lock means that another thread panicked; its panic is what the caller will see.
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes[place] = Some(outcome);
            }
            on_user();
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(|| work(worker)))
            .collect();
        handles.into_iter().try_for_each(|handle| {
            handle
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(outcomes
        .into_inner()
        .unwrap_or_default()
        .into_iter()
        .flatten()
        .collect())
}

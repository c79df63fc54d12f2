//! One round up to the release: local training on all cores, exact sum, average, noise.

mod examples;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use undertone_aggregation::{Bound, BoundedSum, Clipping, Decoded, Estimator, NonFinite, ParamLayout};
use undertone_data::Partition;
use undertone_mechanisms::NoisedAverage;

use crate::error::{Result, RunError};
use crate::ranks::{Ranks, USER_WORDS, exchange, share};
use crate::secure_round::SecureRounds;
use undertone_coordinator::noise::Noise;
use undertone_coordinator::plan::RoundPlan;
use undertone_coordinator::random::Randomness;
use undertone_local::on_threads;
use undertone_local::{LocalOutcome, LocalTask, LocalWorker, UserOutcome, UserSeeds};

pub(crate) use examples::contribute_examples;
pub use examples::release_examples;

/// What a round released.
#[derive(Debug)]
pub struct Released {
    /// The noised average update; `None` of a round that was abandoned.
    pub average: Option<NoisedAverage>,
    /// Users in the sum, where they can fail on the way.
    pub survivors: Option<u64>,
    /// Adaptive clipping: the noised mean of the users' bits, each less one half.
    pub centred_bits: Option<f64>,
    /// How long it took.
    pub times: ReleaseTimes,
}

/// Where the time of a release went, by the clock on the wall.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReleaseTimes {
    /// Everything that users do: local training, clipping, adding to the sum.
    pub users: Duration,
    /// Of that, clipping: the mean over the workers.
    pub clip: Duration,
    /// Of that, adding to the sum: the mean over the workers.
    pub sum: Duration,
    /// Averaging and noise.
    pub noise: Duration,
}

/// The users of a round.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: it holds the secrets of the users"
)]
pub struct RoundUsers<'a> {
    /// Their places in the partition.
    pub cohort: &'a [usize],
    /// Their secrets, in the order of the cohort.
    pub seeds: &'a [UserSeeds],
    /// The text of all training users.
    pub partition: &'a Partition<'a>,
}

/// What makes a round, besides the users.
#[derive(Debug)]
pub struct Release<'a> {
    /// Clip, sensitivity and noise.
    pub plan: &'a RoundPlan,
    /// The average.
    pub estimator: &'a Estimator,
    /// The noise of the run.
    pub noise: &'a mut Noise,
    /// How updates become a sum, where a run file says so.
    pub secure: Option<&'a SecureRounds>,
    /// The run's randomness: drop-outs and masks of a secure sum are drawn from it.
    pub randomness: &'a Randomness,
    /// The processes that train; the others train their share and see nothing else of the round.
    pub ranks: &'a dyn Ranks,
}

/// Trains the cohort and returns what is released, with what each user's training was like (in cohort order).
///
/// The sum is taken in fixed point, so it has the same bits at any number of workers and in any order of arrival.
///
/// # Guarantee
/// `plan`'s: every summand is bounded by `plan.clipping`, the average has the sensitivity that `plan` states, and the noise
/// is that of the run's mechanism. The only values that leave are the noised ones.
///
/// # Errors
/// [`RunError::UserUpdate`] naming round and user; from sum and mechanism.
///
/// # Source
/// \[DPLM\] Algorithm 1; \[Gboard\] Algorithm 1.
pub fn release(
    users: &RoundUsers<'_>,
    task: &LocalTask<'_>,
    release: &mut Release<'_>,
    workers: &mut [LocalWorker],
    on_user: &(dyn Fn() + Sync),
) -> Result<(Released, Vec<UserOutcome>)> {
    if let Some(secure) = release.secure {
        return release_secure(secure, users, task, release, workers, on_user);
    }
    let started = Instant::now();
    let order_seeds: Vec<[u8; 32]> = users.seeds.iter().map(|seeds| seeds.order).collect();
    let (sums, outcomes, summing) = train(
        users.cohort,
        &order_seeds,
        users.partition,
        task,
        workers,
        release.ranks,
        on_user,
    )?;
    let mut times = ReleaseTimes {
        users: started.elapsed(),
        sum: summing,
        clip: clipping(workers),
        ..ReleaseTimes::default()
    };
    let started = Instant::now();
    let average = release.estimator.apply(sums.updates.into_raw()?)?;
    let average = release.noise.privatize(task.round, release.plan, average)?;
    let centred_bits = match task.estimate {
        Some(_) => release.noise.privatize_bits(task.round, sums.bits)?,
        None => None,
    };
    times.noise = started.elapsed();
    Ok((
        Released {
            average: Some(average),
            survivors: None,
            centred_bits,
            times,
        },
        outcomes,
    ))
}

/// What a process that does not release anything does in a round: its share of the cohort, into the sum of all.
pub(crate) fn contribute(
    cohort: &[usize],
    order_seeds: &[[u8; 32]],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    workers: &mut [LocalWorker],
    ranks: &dyn Ranks,
) -> Result<()> {
    train(cohort, order_seeds, users, task, workers, ranks, &|| ()).map(drop)
}

/// A round whose updates are integers modulo a number. Below the floor of survivors it is abandoned: nothing is released.
fn release_secure(
    secure: &SecureRounds,
    users: &RoundUsers<'_>,
    task: &LocalTask<'_>,
    release: &mut Release<'_>,
    workers: &mut [LocalWorker],
    on_user: &(dyn Fn() + Sync),
) -> Result<(Released, Vec<UserOutcome>)> {
    let started = Instant::now();
    let gathered = secure.sum(users, task, release.randomness, workers, on_user)?;
    let mut times = ReleaseTimes {
        users: started.elapsed(),
        sum: gathered.summing,
        clip: clipping(workers),
        ..ReleaseTimes::default()
    };
    let started = Instant::now();
    let average = match gathered.sum {
        Some(Decoded::Raw(sum)) => {
            let average = release.estimator.apply(sum)?;
            Some(release.noise.privatize(task.round, release.plan, average)?)
        }
        Some(Decoded::ClientNoised(sum)) => {
            let (Some(noise), Estimator::FixedDenominator { expected_weight }) =
                (secure.encoding().client_noise(), release.estimator)
            else {
                return Err(RunError::value(
                    "aggregation.encoding",
                    "an encoding with noise and `estimator.kind` = \"fixed_denominator\"",
                    format!(
                        "an encoding without noise, or the estimator {:?}",
                        release.estimator
                    ),
                ));
            };
            Some(noise.release(sum, *expected_weight)?)
        }
        None => {
            release
                .noise
                .skip(task.round, release.plan, task.theta.len(), release.estimator)?;
            None
        }
    };
    times.noise = started.elapsed();
    let released = Released {
        average,
        survivors: Some(gathered.survivors),
        centred_bits: None,
        times,
    };
    Ok((released, gathered.outcomes))
}

/// A worker's mean time of clipping.
fn clipping(workers: &mut [LocalWorker]) -> Duration {
    let all: Duration = workers.iter_mut().map(LocalWorker::take_clipping).sum();
    all / workers.len().max(1) as u32
}

/// The examples of a user, in the order in which they were written.
pub(crate) fn examples_of<'a>(users: &'a Partition<'_>, user: usize) -> Vec<&'a [u32]> {
    users.user(user).examples().collect()
}

/// The bound on each contribution to a round.
pub(crate) fn bound_of(task: &LocalTask<'_>) -> Bound {
    Bound::new(
        Arc::new(task.layout.clone()),
        task.clipping.clone(),
        task.non_finite,
    )
}

/// What the users of a round add up to.
struct Sums {
    updates: BoundedSum,
    /// Adaptive clipping: bits less one half.
    bits: BoundedSum,
}

impl Sums {
    fn new(task: &LocalTask<'_>) -> Result<Self> {
        let bit = ParamLayout::with_tensor_groups(vec![("bit".into(), vec![1])])?;
        // PRIVACY: a bit less one half moves the sum of bits by one half.
        let half = Clipping::Flat { clip_norm: 0.5 };
        Ok(Self {
            updates: BoundedSum::new(bound_of(task)),
            bits: BoundedSum::new(Bound::new(Arc::new(bit), half, NonFinite::Refuse)),
        })
    }

    fn add(&self, update: &mut [f32], outcome: LocalOutcome, estimate: Option<f64>) -> Result<UserOutcome> {
        let added = self.updates.add(update, outcome.weight)?;
        let outcome = outcome.added(added, estimate);
        if let Some(below) = outcome.below {
            self.bits.add(&mut [if below { 0.5 } else { -0.5 }], 1.0)?;
        }
        Ok(outcome)
    }
}

/// The sums over the cohort, of which this process trains its share.
fn train(
    cohort: &[usize],
    order_seeds: &[[u8; 32]],
    users: &Partition<'_>,
    task: &LocalTask<'_>,
    workers: &mut [LocalWorker],
    ranks: &dyn Ranks,
    on_user: &(dyn Fn() + Sync),
) -> Result<(Sums, Vec<UserOutcome>, Duration)> {
    let mut sums = Sums::new(task)?;
    // The largest users first, so that no core is left alone with a long one at the end.
    let mut order: Vec<usize> = (0..cohort.len()).collect();
    order.sort_by_key(|&place| std::cmp::Reverse(users.user(cohort[place]).num_tokens()));
    let work = |worker: &mut LocalWorker, place: usize| {
        let user = cohort[place];
        let mut work = || {
            let outcome = worker.train(&examples_of(users, user), order_seeds[place], task)?;
            let started = Instant::now();
            let outcome = sums.add(worker.update_mut(), outcome, task.estimate)?;
            Ok((outcome, started.elapsed()))
        };
        let added = work().map_err(|source| RunError::UserUpdate {
            round: task.round,
            user,
            source: Box::new(source),
        })?;
        on_user();
        Ok(added)
    };
    let (outcomes, summing) = in_pieces(&order, workers, ranks, &work)?;
    let all_reduce = |values: &mut [i64]| ranks.all_reduce(values);
    sums.updates.combine(ranks.size(), all_reduce)?;
    if task.estimate.is_some() {
        sums.bits.combine(ranks.size(), all_reduce)?;
    }
    let outcomes = exchange(outcomes, USER_WORDS, ranks)?;
    Ok((sums, outcomes, summing))
}

/// What becomes of a piece, and how long adding it up took.
type PieceWork<'a, T> = dyn Fn(&mut LocalWorker, usize) -> Result<(T, Duration)> + Sync + 'a;

/// Lets the workers take one piece after another in this order, of which this process has its share. What the pieces became,
/// by their number (`None` for those of other processes), and a worker's mean time of adding up, of which `work` tells each
/// piece's.
fn in_pieces<T: Send + Clone>(
    order: &[usize],
    workers: &mut [LocalWorker],
    ranks: &dyn Ranks,
    work: &PieceWork<'_, T>,
) -> Result<(Vec<Option<T>>, Duration)> {
    let next = AtomicUsize::new(0);
    let made = Mutex::new(vec![None; order.len()]);
    let order: Vec<usize> = share(order, ranks).collect();
    let spent = on_threads(workers, |worker: &mut LocalWorker| -> Result<Duration> {
        let mut summing = Duration::ZERO;
        while let Some(&piece) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (outcome, adding) =
                work(worker, piece).inspect_err(|_| next.store(order.len(), Ordering::Relaxed))?;
            summing += adding;
            // A poisoned lock means that another thread panicked; its panic is what the caller will see.
            if let Ok(mut made) = made.lock() {
                made[piece] = Some(outcome);
            }
        }
        Ok(summing)
    })?;
    let made = made.into_inner().unwrap_or_default();
    let summing = spent.iter().sum::<Duration>() / spent.len().max(1) as u32;
    Ok((made, summing))
}

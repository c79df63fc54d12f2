//! The sum of a round as integers modulo a number: encoded by every user, added up in the clear or by secure aggregation,
//! decoded by the server; and users who fail on the way.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rand_core::Rng;
use sha2::{Digest, Sha256};
use undertone_aggregation::{AggregationError, Bound, Decoded, Encoder, Encoding, ModularVec};
use undertone_mechanisms::NoiseKey;
use undertone_secagg::{
    Context, Digest32, DropOut, GraphChoice, Plain, SecAggError, SecAggPlus, SecureSum, Setting, SumRequest,
    Terms,
};

use crate::config::RunConfig;
use crate::error::{Result, RunError};
use crate::round::{RoundUsers, bound_of, examples_of};
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::task::{DropoutConfig, SumName};
use undertone_local::{LocalTask, LocalWorker, UserOutcome};

/// Of a user's neighbours, the share that opens its masks: more than half.
const THRESHOLD_PERCENT: u32 = 51;

/// How the updates of a run's rounds become sums.
///
/// # Guarantee
/// The sum that comes out holds every survivor's update once, and there are at least as many survivors as the floor; below
/// it there is no sum. With secure aggregation every round runs the protocol's machines on both sides in this process:
/// the numbers are the protocol's, but there is nobody here from whom anything would be hidden.
pub struct SecureRounds {
    encoding: Encoding,
    backend: Box<dyn SecureSum + Send>,
    terms: Terms,
    dropout: DropoutConfig,
    /// Rotations are shared by all; nothing rests on their being secret.
    rotations: NoiseKey,
    names: SessionNames,
    pool: rayon::ThreadPool,
}

impl std::fmt::Debug for SecureRounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecureRounds")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

/// What a round's users add up to.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: a sum without noise must not be printable"
)]
pub struct Gathered {
    /// The sum; `None` if too few users were left.
    pub sum: Option<Decoded>,
    /// Users that were not lost before their update was sent.
    pub survivors: u64,
    /// What the training of those in the sum was like, in cohort order.
    pub outcomes: Vec<UserOutcome>,
    /// Encoding and summing: what is not local training, of a worker's mean.
    pub summing: Duration,
}

impl SecureRounds {
    /// Of a run with an `[aggregation]` table; `None` without one. `run` is the digest of its configuration.
    ///
    /// # Errors
    /// From the protocol's terms; [`RunError::Io`] where threads cannot be started.
    pub fn new(config: &RunConfig, plan: &PrivacyPlan, run: &str, threads: usize) -> Result<Option<Self>> {
        let (Some(aggregation), Some(encoding)) = (&config.task.aggregation, plan.encoding()) else {
            return Ok(None);
        };
        let cohort = encoding.cohort();
        let count = |key: &str, number: u64| {
            u32::try_from(number).map_err(|_| RunError::value(key, "at most 4,294,967,295", number))
        };
        let terms = Terms::new(
            encoding.padded_dim() as u64,
            encoding.modulus().get(),
            Setting::HonestButCurious,
        )?
        .with_clients(
            count("aggregation.min_clients", cohort.min_clients)?,
            count("aggregation.max_clients", cohort.max_clients)?,
        )?;
        let backend: Box<dyn SecureSum + Send> = match (aggregation.sum, &aggregation.graph) {
            (SumName::Plain, _) => Box::new(Plain),
            (SumName::SecAgg, None) => Box::new(SecAggPlus::simulation(GraphChoice::Full {
                threshold_percent: THRESHOLD_PERCENT,
            })),
            (SumName::SecAgg, Some(graph)) => {
                let assumptions = graph.assumptions()?;
                // Found out now, not in the round in which so many happen to come.
                for clients in [terms.min_survivors(), terms.max_clients()] {
                    assumptions.topology(clients).map_err(|error| {
                        let expected = format!("rates that allow a graph of {clients} users");
                        RunError::value("aggregation.graph", expected, error)
                    })?;
                }
                Box::new(SecAggPlus::simulation(GraphChoice::Assumed(assumptions)))
            }
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .build()
            .map_err(|error| {
                let source = std::io::Error::other(error.to_string());
                RunError::io("start threads for", std::path::Path::new("the sum"), source)
            })?;
        Ok(Some(Self {
            encoding: encoding.clone(),
            backend,
            terms,
            dropout: aggregation.dropout,
            rotations: NoiseKey::from_bytes(digest(&[b"undertone rotations\0", run.as_bytes()])),
            names: SessionNames::new(run)?,
            pool,
        }))
    }

    /// The encoding of the updates.
    #[must_use]
    pub fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// Trains those of the cohort whose updates are needed, and adds them up.
    ///
    /// # Errors
    /// [`RunError::UserUpdate`] naming round and user; from encoding and protocol. Too few survivors are no error.
    pub fn sum(
        &self,
        round_users: &RoundUsers<'_>,
        task: &LocalTask<'_>,
        randomness: &Randomness,
        workers: &mut [LocalWorker],
        on_user: &(dyn Fn() + Sync),
    ) -> Result<Gathered> {
        let cohort = round_users.cohort;
        let started = Instant::now();
        let round = self.encoding.for_round(&self.rotations, task.round)?;
        let threads = workers.len().max(1) as u32;
        let shift = Shift {
            users: round_users,
            task,
            bound: bound_of(task),
            idle: Mutex::new(
                workers
                    .iter_mut()
                    .map(|worker| (worker, round.encoder()))
                    .collect(),
            ),
            done: Mutex::new(Done {
                outcomes: vec![None; cohort.len()],
                training: Duration::ZERO,
                failure: None,
            }),
        };
        let lost: Vec<Option<DropOut>> = cohort
            .iter()
            .map(|&user| self.lost(randomness, task.round, user))
            .collect();
        let request = SumRequest {
            context: self.names.next(task.round, task.theta, self.terms),
            clients: cohort.len() as u32,
            input: &|client, vector| {
                shift.work(client as usize, vector)?;
                on_user();
                Ok(())
            },
            drop_out: &|client| lost[client as usize],
            finished: &|_| (),
        };
        let mut generator = randomness.generator(Purpose::SecureSum, task.round, 0);
        let summed = self.pool.install(|| self.backend.sum(&request, &mut generator));
        let Done {
            outcomes,
            training,
            failure,
        } = shift.done.into_inner().unwrap_or_default();
        if let Some(failure) = failure {
            return Err(failure);
        }
        let sent = |place: &usize| lost[*place].is_none_or(|point| point > DropOut::BeforeInput);
        let survivors = (0..cohort.len()).filter(sent).count() as u64;
        let (sum, outcomes, survivors) = match summed {
            Ok(summed) => {
                let included = summed.included.len() as u64;
                let outcomes = summed
                    .included
                    .iter()
                    .filter_map(|&client| outcomes[client as usize])
                    .collect();
                (Some(round.decode(summed.sum, included)?), outcomes, included)
            }
            Err(SecAggError::TooFew { .. }) => (None, Vec::new(), survivors),
            Err(error) => return Err(error.into()),
        };
        Ok(Gathered {
            sum,
            survivors,
            outcomes,
            summing: started.elapsed().saturating_sub(training / threads),
        })
    }

    /// When a user fails in a round.
    fn lost(&self, randomness: &Randomness, round: u64, user: usize) -> Option<DropOut> {
        let points = [
            DropOut::BeforeKeys,
            DropOut::BeforeShares,
            DropOut::BeforeInput,
            DropOut::BeforeUnmask,
        ];
        let draw = randomness
            .generator(Purpose::DropOut, round, user as u64)
            .next_u64();
        let draw = (draw >> 11) as f64 * (-53f64).exp2();
        let mut below = 0.0;
        let shares = self.dropout.shares().into_iter().zip(points);
        shares.into_iter().find_map(|((_, share), point)| {
            below += share;
            (draw < below).then_some(point)
        })
    }
}

/// The names of a run's secure sums.
///
/// # Guarantee
/// No two sums have the same name: neither in two runs of one configuration, nor where a resumed run makes a round again.
/// The run's name holds fresh entropy of this process, and the attempt counts the sums that the process made.
struct SessionNames {
    run: Digest32,
    plan: Digest32,
    sums: AtomicU32,
}

impl SessionNames {
    fn new(config_digest: &str) -> Result<Self> {
        let fresh = crate::driver::fresh_bytes()?;
        Ok(Self {
            run: digest(&[b"undertone run\0", &fresh, config_digest.as_bytes()]),
            plan: digest(&[b"undertone plan\0", config_digest.as_bytes()]),
            sums: AtomicU32::new(0),
        })
    }

    /// The context of the next sum.
    fn next(&self, round: u64, theta: &[f32], terms: Terms) -> Context {
        Context {
            run: self.run,
            round,
            attempt: self.sums.fetch_add(1, Ordering::Relaxed),
            shard: 0,
            plan_digest: self.plan,
            model_digest: digest(&[undertone_coordinator::identity::digest_of(theta).as_bytes()]),
            terms,
        }
    }
}

/// The users of one round at work.
struct Shift<'a, 'w> {
    users: &'a RoundUsers<'a>,
    task: &'a LocalTask<'a>,
    bound: Bound,
    idle: Mutex<Vec<(&'w mut LocalWorker, Encoder<'w>)>>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    outcomes: Vec<Option<UserOutcome>>,
    /// Of all workers together.
    training: Duration,
    failure: Option<RunError>,
}

impl Shift<'_, '_> {
    /// Trains the user at this place of the cohort and writes its residues.
    fn work(&self, place: usize, vector: &mut ModularVec) -> std::result::Result<(), AggregationError> {
        let user = self.users.cohort[place];
        // There is a worker for every thread.
        let (worker, mut encoder) = self
            .idle
            .lock()
            .ok()
            .and_then(|mut idle| idle.pop())
            .ok_or(AggregationError::Poisoned)?;
        let started = Instant::now();
        let seeds = &self.users.seeds[place];
        let trained = worker.train(&examples_of(self.users.partition, user), seeds.order, self.task);
        let training = started.elapsed();
        let encoded = trained.map_err(RunError::from).and_then(|outcome| {
            let update = worker.update_mut();
            let outcome = outcome.added(self.bound.enforce(update)?, self.task.estimate);
            // PRIVACY: the key is the user's own, and encodes one update per round.
            encoder.encode(update, outcome.weight, &seeds.encoding, vector)?;
            Ok(outcome)
        });
        self.idle
            .lock()
            .map_err(|_| AggregationError::Poisoned)?
            .push((worker, encoder));
        let mut done = self.done.lock().map_err(|_| AggregationError::Poisoned)?;
        done.training += training;
        match encoded {
            Ok(outcome) => {
                done.outcomes[place] = Some(outcome);
                Ok(())
            }
            Err(source) => {
                done.failure = Some(RunError::UserUpdate {
                    round: self.task.round,
                    user,
                    source: Box::new(source),
                });
                Err(AggregationError::Poisoned)
            }
        }
    }
}

fn digest(parts: &[&[u8]]) -> Digest32 {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sums_of_any_runs_of_one_configuration_have_the_same_name() {
        let terms = Terms::new(2, 1000, Setting::HonestButCurious).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            // Each start of a process, a resumed one too, makes its own.
            let names = SessionNames::new("a configuration").unwrap();
            for round in [1, 2, 2, 1] {
                let context = names.next(round, &[1.0, 2.0], terms);
                assert!(seen.insert(context.digest()), "round {round} twice");
                assert_ne!(context.run, context.plan_digest);
            }
        }
        assert_eq!(seen.len(), 12);
    }
}

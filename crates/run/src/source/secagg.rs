//! The sum of a round as integers modulo a number: encoded by each user, added up in the clear or by secure aggregation, and
//! read by the server, with users who fail on the way.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand_core::Rng;
use sha2::{Digest, Sha256};
use undertone_aggregation::{AggregationError, Bound, Encoder, Encoding, ModularVec};
use undertone_aggregation::{UserOutcome, UserSeeds};
use undertone_coordinator::cohorts::Cohort;
use undertone_coordinator::head::Opened;
use undertone_coordinator::plan::PrivacyPlan;
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::session_terms::SessionTerms;
use undertone_coordinator::source::{
    Diagnostics, GatherTimes, Gathered, Participants, RoundSum, UpdateSource, Watch,
};
use undertone_coordinator::task::{DropoutConfig, SumName};
use undertone_data::Partition;
use undertone_local::{CohortText, CpuEngine, LocalTask, LocalWorker};
use undertone_mechanisms::NoiseKey;
use undertone_secagg::{
    DropOut, GraphChoice, Plain, SecAggError, SecAggPlus, SecureSum, SumRequest, Terms, ThreatModel,
};
use undertone_settings::UserSettings;

use super::{RoundText, task_of};
use crate::error::{Result, RunError};
use undertone_run_directory::config::RunConfig;
use undertone_run_directory::entropy::fresh_bytes;

/// Percentage of a user's neighbours that open its masks: more than half.
const THRESHOLD_PERCENT: u32 = 51;

/// The secure sums of a run's rounds.
///
/// # Guarantee
/// The sum holds each survivor's update once, and there are at least as many survivors as the floor; below it there is no sum.
/// With secure aggregation each round runs the protocol's machines on both sides in this process: the numbers are the
/// protocol's, but no party of this simulation hides anything from another.
pub(crate) struct SecureRounds {
    encoding: Encoding,
    backend: Box<dyn SecureSum + Send>,
    terms: Terms,
    dropout: DropoutConfig,
    /// The key of the rotations, which all users know; nothing rests on its secrecy.
    rotations: NoiseKey,
    names: SessionTerms,
    pool: rayon::ThreadPool,
}

impl std::fmt::Debug for SecureRounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecureRounds")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

/// The users of a round.
struct RoundUsers<'a> {
    /// Text of the users, by their place in the cohort.
    text: RoundText<'a>,
    /// Secrets of the users, in the order of the cohort.
    seeds: &'a [UserSeeds],
    /// Users whose update is the zero vector.
    silent: &'a [usize],
}

/// The sum of a round, with what is known of its users.
struct Summed {
    sum: RoundSum,
    /// Number of users that were not lost before their update was sent.
    survivors: u64,
    /// The training of the users in the sum, in cohort order.
    outcomes: Vec<UserOutcome>,
    /// Time of encoding and summing: all but the mean local training of the workers.
    summing: Duration,
}

/// A secure sum over simulated users: every round runs the machines of the protocol on both sides in this process.
pub(crate) struct SecAggSimulation<'a> {
    /// The secure sums of the rounds.
    pub secure: SecureRounds,
    /// Computes the updates, one after another as the protocol asks for them.
    pub engine: CpuEngine,
    /// The text of all training users.
    pub users: Partition<'a>,
    /// The settings of the users' local training.
    pub settings: &'a UserSettings,
    /// The randomness of drop-outs, masks and the secrets of users.
    pub randomness: Randomness,
}

impl std::fmt::Debug for SecAggSimulation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecAggSimulation")
            .field("secure", &self.secure)
            .finish_non_exhaustive()
    }
}

impl UpdateSource for SecAggSimulation<'_> {
    type Error = RunError;

    fn gather(
        &mut self,
        opened: &Opened,
        cohort: &Cohort,
        parameters: &[f32],
        watch: &dyn Watch,
    ) -> Result<Gathered> {
        let started = Instant::now();
        let task = task_of(opened, parameters, self.settings, self.users.special());
        let seeds: Vec<UserSeeds> = cohort
            .users
            .iter()
            .map(|&user| self.randomness.user_seeds(task.round, user as u64))
            .collect();
        let orders: Vec<[u8; 32]> = seeds.iter().map(|seeds| seeds.order).collect();
        let round_users = RoundUsers {
            text: RoundText {
                partition: &self.users,
                users: &cohort.users,
                orders: &orders,
            },
            seeds: &seeds,
            silent: &cohort.silent,
        };
        let workers = self.engine.workers_mut();
        let summed = self.secure.sum(
            &round_users,
            &task,
            opened.bound(),
            &self.randomness,
            workers,
            watch,
        )?;
        let mut diagnostics: Diagnostics = summed.outcomes.into_iter().collect();
        diagnostics.times = GatherTimes {
            users: started.elapsed(),
            clip: self.engine.take_clipping(),
            sum: summed.summing,
        };
        Ok(Gathered {
            sum: summed.sum,
            who: Participants {
                names: cohort.pseudonyms.clone(),
                survivors: Some(summed.survivors),
                examples: self.settings.group_size.map(|_| diagnostics.examples),
                ..Participants::default()
            },
            lane: None,
            diagnostics,
        })
    }
}

impl SecureRounds {
    /// The secure sums of a run with an `[aggregation]` table; `None` without one. `run` is the digest of its configuration.
    ///
    /// # Errors
    /// From the protocol's terms; [`DirectoryError::Io`](undertone_run_directory::error::DirectoryError::Io) where threads cannot be started.
    pub(crate) fn new(
        config: &RunConfig,
        plan: &PrivacyPlan,
        run: &str,
        threads: usize,
    ) -> Result<Option<Self>> {
        let (Some(aggregation), Some(encoding)) = (&config.task.aggregation, plan.encoding()) else {
            return Ok(None);
        };
        let cohort = encoding.size();
        let count = |key: &str, number: u64| {
            u32::try_from(number).map_err(|_| RunError::value(key, "at most 4,294,967,295", number))
        };
        let terms = Terms::new(
            encoding.padded_dim() as u64,
            encoding.modulus().get(),
            ThreatModel::HonestButCurious,
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
            rotations: NoiseKey::from_bytes(rotation_seed(run)),
            names: SessionTerms::new(run, &fresh_bytes()?),
            pool,
        }))
    }

    /// Trains the users of the cohort whose updates are needed, and adds them up.
    ///
    /// # Errors
    /// [`RunError::UserUpdate`] naming round and user; from encoding and protocol. Too few survivors are no error.
    fn sum(
        &self,
        round_users: &RoundUsers<'_>,
        task: &LocalTask<'_>,
        bound: &Bound,
        randomness: &Randomness,
        workers: &mut [LocalWorker],
        watch: &dyn Watch,
    ) -> Result<Summed> {
        let cohort = round_users.text.users;
        let started = Instant::now();
        let round = self.encoding.for_round(&self.rotations, task.round)?;
        let threads = workers.len().max(1) as u32;
        let encoding_workers = EncodingWorkers {
            users: round_users,
            task,
            bound: bound.clone(),
            idle: Mutex::new(
                workers
                    .iter_mut()
                    .map(|worker| (worker, round.encoder()))
                    .collect(),
            ),
            done: Mutex::new(Outcomes {
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
                encoding_workers.work(client as usize, vector, watch)?;
                watch.contribution();
                Ok(())
            },
            drop_out: &|client| lost[client as usize],
            finished: &|_| (),
        };
        let mut generator = randomness.generator(Purpose::SecureSum, task.round, 0);
        let summed = self.pool.install(|| self.backend.sum(&request, &mut generator));
        let Outcomes {
            outcomes,
            training,
            failure,
        } = encoding_workers.done.into_inner().unwrap_or_default();
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
                let sum = match self.encoding.client_noise() {
                    Some(_) => RoundSum::WithClientNoise(round.decode(summed.sum, included)?),
                    None => RoundSum::Modular {
                        residues: summed.sum,
                        included,
                        rotations: self.rotations.clone(),
                    },
                };
                (sum, outcomes, included)
            }
            Err(SecAggError::TooFew { .. }) => (RoundSum::Abandoned, Vec::new(), survivors),
            Err(error) => return Err(error.into()),
        };
        Ok(Summed {
            sum,
            survivors,
            outcomes,
            summing: started.elapsed().saturating_sub(training / threads),
        })
    }

    /// The point at which a user fails in a round.
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
        let fractions = self.dropout.fractions().into_iter().zip(points);
        fractions.into_iter().find_map(|((_, fraction), point)| {
            below += fraction;
            (draw < below).then_some(point)
        })
    }
}

/// The workers that train and encode the users of one round.
struct EncodingWorkers<'a, 'w> {
    users: &'a RoundUsers<'a>,
    task: &'a LocalTask<'a>,
    bound: Bound,
    idle: Mutex<Vec<(&'w mut LocalWorker, Encoder<'w>)>>,
    done: Mutex<Outcomes>,
}

#[derive(Default)]
struct Outcomes {
    outcomes: Vec<Option<UserOutcome>>,
    /// Time of all workers together.
    training: Duration,
    failure: Option<RunError>,
}

impl EncodingWorkers<'_, '_> {
    /// Trains the user at this place of the cohort and writes its residues.
    fn work(
        &self,
        place: usize,
        vector: &mut ModularVec,
        watch: &dyn Watch,
    ) -> std::result::Result<(), AggregationError> {
        if watch.stop() {
            let mut done = self.done.lock().map_err(|_| AggregationError::Poisoned)?;
            done.failure.get_or_insert(RunError::Interrupted);
            return Err(AggregationError::Poisoned);
        }
        let user = self.users.text.users[place];
        // There is a worker for every thread.
        let (worker, mut encoder) = self
            .idle
            .lock()
            .ok()
            .and_then(|mut idle| idle.pop())
            .ok_or(AggregationError::Poisoned)?;
        let started = Instant::now();
        let seeds = &self.users.seeds[place];
        let trained = match self.users.silent.contains(&user) {
            true => Ok(worker.keep_silent()),
            false => worker.train(&self.users.text.examples(place), seeds.order, self.task),
        };
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

/// The seed of the rotations of a run with this digest of its configuration. All users of the run know it: nothing rests on its
/// secrecy.
#[must_use]
pub fn rotation_seed(run: &str) -> [u8; 32] {
    let hash = Sha256::new().chain_update(b"undertone rotations\0");
    hash.chain_update(run.as_bytes()).finalize().into()
}

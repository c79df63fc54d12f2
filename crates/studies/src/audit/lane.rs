//! Releases of canaries and noise probes through the coordinator of a run, without users or model.
//!
//! Each canary has a coordinate of its own, so canaries do not interfere, or a random direction in coordinates that all share. Each probe is a
//! coordinate to which nobody contributes. Cohorts, clipping, the sum, the estimator, the noise and the ledger are those of a run: [`RunHead`]
//! opens and closes each round.

use rand_core::Rng;
use undertone_accounting::SamplingProbability;
use undertone_accounting::audit::sampled::SecretCoins;
use undertone_aggregation::{BoundedSum, Estimator, ParamLayout};
use undertone_audit::canaries::{Lane, matched_filters, signal};
use undertone_audit::final_model::{FinalModel, Rounds};
use undertone_audit::record::Control;
use undertone_coordinator::cohorts::Cohorts;
use undertone_coordinator::entropy::RoundEntropy;
use undertone_coordinator::head::{CloseError, RunHead};
use undertone_coordinator::participation::{ParticipantId, ParticipationKey};
use undertone_coordinator::plan::{Population, PrivacyPlan};
use undertone_coordinator::random::{Purpose, Randomness};
use undertone_coordinator::record::{GuaranteeRecord, LedgerEntry};
use undertone_coordinator::sampling::Sampling;
use undertone_coordinator::source::{Diagnostics, Gathered, Participants, RoundSum};
use undertone_coordinator::task::{ClipConfig, TaskConfig};
use undertone_mechanisms::audit::Definition;
use undertone_mechanisms::{IdentityMatrix, Strategy};
use undertone_run::{Result, RunError};
use undertone_run_directory::error::DirectoryError;
use undertone_settings::Algorithm;

/// The run whose mechanism is tested.
#[derive(Debug, Clone, Copy)]
pub struct LaneInputs<'a> {
    /// The task of the run.
    pub task: &'a TaskConfig,
    /// The strategy that the run was made with, or that of the file that the task names; `None` to make the strategy of the task.
    pub strategy: Option<&'a Strategy>,
    /// Number of users of the run, from which its sampling and its guarantee follow.
    pub users: u64,
}

/// Size of an audit at the level of the mechanism.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Size {
    /// Number of canaries.
    pub canaries: u64,
    /// Number of coordinates without contributions.
    pub probes: usize,
    /// Number of coordinates in which each canary has a random direction, with a sign per coordinate. `None` to give each canary a
    /// coordinate of its own.
    pub directions: Option<u64>,
    /// The error that is planted, in a positive control.
    pub control: Option<Control>,
}

/// The largest part that other canaries may be expected to add to the variance of a score.
const MAX_INTERFERENCE: f64 = 0.1;

/// Max number of signs of all directions together: they take a byte each.
const MAX_SIGNS: u64 = 1 << 30;

impl Size {
    /// Added noise over stated noise.
    fn noise_factor(&self) -> f64 {
        match self.control {
            Some(Control::Noise(factor)) => factor,
            Some(Control::PoissonCoins | Control::WithoutPrivacy) | None => 1.0,
        }
    }
}

impl LaneInputs<'_> {
    /// Refuses by name what the level of the mechanism cannot state yet.
    fn check(&self) -> Result<()> {
        let task = self.task;
        let refuse = |key: &str, expected: &str, got: &str| Err(RunError::value(key, expected, got));
        if task.privacy.is_none() {
            return Err(RunError::missing(
                "privacy",
                "a table: an audit tests the claim of a private run",
            ));
        }
        if task.aggregation.is_some() {
            return refuse(
                "aggregation",
                "this table absent in an audit of the mechanism",
                "a table",
            );
        }
        if !matches!(task.clip, ClipConfig::Flat { .. }) {
            return refuse("clip.kind", "`flat` in an audit of the mechanism", "another kind");
        }
        if task.user_update.algorithm == Algorithm::Els {
            let expected = "an algorithm that samples users in an audit of the mechanism";
            return refuse("user_update.algorithm", expected, "els");
        }
        if !task.estimator.is_fixed() || task.user_update.weight_cap.is_some() {
            return refuse(
                "estimator.kind",
                "`fixed_denominator` without weights",
                "another average",
            );
        }
        let tables = [
            ("schedule", !task.schedule.is_empty()),
            ("estimate", task.estimate.is_some()),
        ];
        if let Some((key, _)) = tables.into_iter().find(|(_, is_set)| *is_set) {
            return refuse(key, "this table absent in an audit of the mechanism", "one");
        }
        Ok(())
    }
}

/// The task and the plan of an audit: those of the run, with canaries as its population.
struct Planned {
    task: TaskConfig,
    plan: PrivacyPlan,
    claim: GuaranteeRecord,
    canaries: usize,
}

impl Planned {
    fn new(inputs: &LaneInputs<'_>, size: &Size) -> Result<Self> {
        inputs.check()?;
        let population = |users: u64| Population {
            users,
            total_weight: users as f64,
        };
        let layout = |canaries: u64| {
            let columns = size.directions.unwrap_or(canaries) as usize;
            let groups = vec![
                ("audit.canaries".to_owned(), vec![columns]),
                ("audit.probe".to_owned(), vec![size.probes]),
            ];
            ParamLayout::with_tensor_groups(groups)
        };
        let plan_of = |task: &TaskConfig, strategy: Option<&Strategy>, users: u64, canaries: u64| {
            let (layout, population) = (layout(canaries)?, population(users));
            Ok::<_, RunError>(match strategy {
                Some(_) => PrivacyPlan::with_strategy(task, strategy, &layout, population)?,
                None => PrivacyPlan::new(task, None, &layout, population)?,
            })
        };
        let stated = plan_of(inputs.task, inputs.strategy, inputs.users, size.canaries)?;
        let missing = || RunError::missing("privacy", "noise with a finite guarantee");
        let claim = stated.planned()?.ok_or_else(missing)?;
        let mut task = inputs.task.clone();
        let by_schema = stated.bounded().is_some();
        if by_schema && size.control == Some(Control::PoissonCoins) {
            let expected = "`poisson` where the coins are told: the rounds under a participation schema may be known anyway";
            return Err(RunError::value(
                "cohort.sampling",
                expected,
                inputs.task.cohort.sampling.name(),
            ));
        }
        let mut canaries = size.canaries;
        let (q, per_round) = (stated.sampling_probability(), stated.users_per_round());
        task.cohort.users_per_round = None;
        task.cohort.compute_budget = None;
        match task.cohort.sampling {
            Sampling::Poisson => task.cohort.sampling_probability = Some(q),
            Sampling::FixedSize if by_schema => {
                let scaled = (per_round * canaries as f64 / inputs.users as f64).floor();
                task.cohort.users_per_round = Some(scaled);
            }
            Sampling::ShuffledEpochs => {
                // Epochs of the same length, so that the schema is the same.
                let rounds = (inputs.users as f64 / per_round).floor() as u64;
                let scaled = canaries / rounds.max(1);
                canaries = scaled * rounds;
                task.cohort.users_per_round = Some(scaled as f64);
            }
            other => {
                let expected = "`poisson`, `shuffled_epochs`, or `fixed_size` with a participation schema";
                return Err(RunError::value("cohort.sampling", expected, other.name()));
            }
        }
        if task.cohort.users_per_round.is_some_and(|size| size < 1.0) {
            let expected = "enough for a cohort of one canary at the run's sampling rate";
            return Err(RunError::value("--canaries", expected, size.canaries));
        }
        if let Some(privacy) = &mut task.privacy {
            let z = match stated.bounded() {
                Some(bounded) => Some(bounded.mechanism().noise_multiplier().get()),
                None => stated.round(0).noise_multiplier,
            };
            privacy.noise_multiplier = z.map(|z| z * size.noise_factor());
            privacy.target_epsilon = None;
            privacy.max_epsilon = None;
            privacy.delta = Some(claim.delta);
        }
        let strategy = stated.bounded().map(|bounded| bounded.mechanism().strategy());
        let plan = plan_of(&task, strategy, canaries, canaries)?;
        Ok(Self {
            plan,
            claim,
            canaries: canaries as usize,
            task,
        })
    }
}

/// The part of the variance of a score that other canaries are expected to add, times coordinates and squared noise, for the canary that is
/// disturbed the most. `signals` has the signal of each canary in the whitened rounds.
///
/// A canary that is in adds its signal to each round along its own direction, of which a part `c` with a mean square of `1 / coordinates` lies along
/// that of the score. The part is the same in all rounds. So the score of canary `j` has `c <g_i, g_j>` from canary `i`, beside noise with a
/// variance of `z^2 |g_j|^2`. Half of the canaries are in.
///
/// # Source
/// Andrew et al., "One-shot Empirical Privacy Estimation for Federated Learning" (2023), for one round.
fn disturbance(signals: &[Vec<f64>]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let of_canary = |(place, own): (usize, &Vec<f64>)| {
        let others = signals.iter().enumerate().filter(|(other, _)| *other != place);
        let square = dot(own, own);
        let sum: f64 = others.map(|(_, other)| dot(own, other).powi(2)).sum();
        if square > 0.0 { 0.5 * sum / square } else { 0.0 }
    };
    signals.iter().enumerate().map(of_canary).fold(0.0, f64::max)
}

/// Factor of [`disturbance`] under secret coins, for the sum of a canary's values. Another canary is in `n` of the rounds, with a mean
/// square of `rounds variance + (rounds mean)^2`.
fn disturbance_of_coins(coins: SecretCoins, canaries: usize, rounds: usize) -> f64 {
    let others = canaries.saturating_sub(1) as f64;
    0.5 * others * (coins.variance() + rounds as f64 * coins.mean().powi(2))
}

/// The factor on the variance of a score over all rounds in so many coordinates.
fn interference(disturbance: f64, noise_multiplier: f64, coordinates: u64) -> Result<f64> {
    let part = disturbance / (coordinates as f64 * noise_multiplier * noise_multiplier);
    if part.is_nan() || part > MAX_INTERFERENCE {
        let enough = (part * coordinates as f64 / MAX_INTERFERENCE).ceil();
        let expected = format!("at least {enough} coordinates, so that canaries disturb one another little");
        return Err(RunError::value("--directions", expected, coordinates));
    }
    Ok(1.0 + part)
}

/// The head that a resumed run would go on with.
fn resumed(
    task: &TaskConfig,
    head: &RunHead,
    entries: &[LedgerEntry],
    entropy: &RoundEntropy,
) -> Result<RunHead> {
    let fresh = RunHead::new(task, head.plan().clone(), None, GENESIS, entropy)?;
    let mut secret = Vec::new();
    head.save_secret(&mut secret)?;
    let mut reader = secret.as_slice();
    let reader: Option<&mut dyn std::io::Read> = match head.has_secret() {
        true => Some(&mut reader),
        false => None,
    };
    Ok(fresh.load(entries, head.chain().clone(), head.clip(), reader, entropy)?)
}

/// The draws of directions, apart from coins and noise.
const DIRECTIONS: u64 = 30;

/// The name that the ledger of a rehearsal follows.
const GENESIS: &str = "an audit of the mechanism";

/// Runs the rounds of these inputs with canaries and probes.
///
/// # Errors
/// [`RunError`] naming the setting that an audit of the mechanism refuses; from the coordinator.
pub fn run(inputs: &LaneInputs<'_>, size: &Size, randomness: &Randomness) -> Result<Lane> {
    let Planned {
        task,
        plan,
        claim,
        canaries,
    } = Planned::new(inputs, size)?;
    let rounds = usize::try_from(task.rounds)
        .map_err(|_| RunError::value("rounds", "a number that fits into memory", task.rounds))?;
    let strategy = plan.bounded().map(|bounded| bounded.mechanism().strategy());
    let definition = strategy
        .map(|strategy| Definition::new(strategy, rounds))
        .transpose()?;
    let told = size.control == Some(Control::PoissonCoins);
    let independent = match told {
        true => Some(Definition::new(&Strategy::Independent(IdentityMatrix), rounds)?),
        false => None,
    };
    let known_rounds = definition.as_ref().or(independent.as_ref());
    let secret = match plan.bounded().is_none() && !told {
        true => Some(SecretCoins::poisson(SamplingProbability::new(
            plan.sampling_probability(),
        )?)),
        false => None,
    };
    let (clip_norm, unit) = units_of(&plan)?;
    let stated = plan.round(0).noise_std / unit / size.noise_factor();
    let key = ParticipationKey::new(randomness);
    let cohorts = || Cohorts::new(&task, &plan, &vec![1; canaries], &key);
    let interference = match size.directions {
        Some(coordinates) => {
            check_signs(canaries, coordinates)?;
            let disturbance = match (known_rounds, secret) {
                // The cohorts are drawn once more below, from the same randomness.
                (Some(known), _) => {
                    disturbance_of_rounds(known, &drawn_by(cohorts()?, rounds, canaries, randomness)?)?
                }
                (None, Some(coins)) => disturbance_of_coins(coins, canaries, rounds),
                (None, None) => f64::NAN,
            };
            interference(disturbance, stated, coordinates)?
        }
        None => 1.0,
    };
    let cohorts = cohorts()?;
    let rehearsal = Rehearsal::new(
        size,
        canaries,
        (&task, rounds),
        clip_norm,
        randomness,
        &definition,
    );
    let made = rehearsal.rounds(plan, cohorts)?;
    let (columns, shared) = (rehearsal.columns(), rehearsal.shared);
    let values = whitened(definition.as_ref(), &made.released, columns, unit)?;
    let probes = of_columns(&values, columns, shared..columns, stated);
    let canary_values = match size.directions {
        Some(_) => projected(&values, columns, &rehearsal.signs, shared),
        None => of_columns(&values, columns, 0..canaries, 1.0),
    };
    let (signals, matched) = match known_rounds {
        Some(known) => matched_filters(known, &made.drawn, &canary_values)?,
        None => (Vec::new(), Vec::new()),
    };
    let known = match secret {
        Some(coins) => Rounds::Secret(coins),
        None => Rounds::Known(&made.drawn),
    };
    let factors = task.server.factors(task.rounds, task.rounds);
    let last =
        |factors: Vec<f64>| FinalModel::new(&factors, definition.as_ref(), known, &canary_values, canaries);
    let final_model = factors.map(last).transpose()?;
    Ok(Lane {
        claim,
        rounds,
        noise_multiplier: stated,
        secret,
        coins: rehearsal.coins,
        signals,
        matched,
        canaries: canary_values,
        probes,
        cohort_sizes: made.cohort_sizes,
        final_model,
        interference,
    })
}

/// The clip norm of a canary, and the contribution of such a norm to an average.
fn units_of(plan: &PrivacyPlan) -> Result<(f64, f64)> {
    let missing = || RunError::missing("clip.norm", "a clip norm");
    let clip_norm = plan.round(0).clipping.bound().ok_or_else(missing)?;
    match plan.estimator() {
        Estimator::FixedDenominator { expected_weight } => Ok((clip_norm, clip_norm / expected_weight)),
        _ => Err(RunError::value(
            "estimator.kind",
            "`fixed_denominator`",
            "another average",
        )),
    }
}

/// Refuses directions that take too much memory.
fn check_signs(canaries: usize, coordinates: u64) -> Result<()> {
    match (canaries as u64).saturating_mul(coordinates) <= MAX_SIGNS {
        true => Ok(()),
        false => {
            let expected = format!("at most {MAX_SIGNS} signs of all canaries together");
            Err(RunError::value("--directions", expected, coordinates))
        }
    }
}

/// The rounds of each canary in these cohorts.
fn drawn_by(
    mut cohorts: Cohorts,
    rounds: usize,
    canaries: usize,
    randomness: &Randomness,
) -> Result<Vec<Vec<usize>>> {
    let mut drawn: Vec<Vec<usize>> = vec![Vec::new(); canaries];
    for round in 0..rounds {
        let cohort = cohorts.draw(round as u64, randomness)?;
        cohort.users.iter().for_each(|&canary| drawn[canary].push(round));
    }
    Ok(drawn)
}

/// Factor of [`disturbance`] of canaries whose rounds are known.
fn disturbance_of_rounds(known: &Definition, drawn: &[Vec<usize>]) -> Result<f64> {
    let signals = drawn.iter().map(|rounds| signal(known, rounds));
    Ok(disturbance(&signals.collect::<Result<Vec<_>, DirectoryError>>()?))
}

/// The canaries of a rehearsal, and the randomness of its rounds.
struct Rehearsal<'a> {
    task: &'a TaskConfig,
    rounds: usize,
    randomness: &'a Randomness,
    /// `true` where all noise is drawn from one key.
    one_key: bool,
    clip_norm: f64,
    /// `true` for a canary that is in.
    coins: Vec<bool>,
    /// Number of coordinates of the canaries: one for each, or those that all share.
    shared: usize,
    /// Number of coordinates without contributions.
    probes: usize,
    /// One sign per canary and coordinate, where canaries share their coordinates.
    signs: Vec<i8>,
}

/// The releases of all rounds, and the canaries in them.
struct Made {
    /// One row of columns per round.
    released: Vec<f32>,
    /// The rounds of each canary.
    drawn: Vec<Vec<usize>>,
    cohort_sizes: Vec<f64>,
}

impl<'a> Rehearsal<'a> {
    fn new(
        size: &Size,
        canaries: usize,
        (task, rounds): (&'a TaskConfig, usize),
        clip_norm: f64,
        randomness: &'a Randomness,
        definition: &Option<Definition>,
    ) -> Self {
        let shared = size
            .directions
            .map_or(canaries, |coordinates| coordinates as usize);
        let bits = |number: usize, stream: u64| {
            let mut generator = randomness.generator(Purpose::Audit, 0, stream);
            (0..number).map(move |_| generator.next_u32() & 1 == 1)
        };
        let signs = size.directions.map_or(0, |_| canaries * shared);
        Self {
            task,
            rounds,
            randomness,
            // A seeded run draws all of its noise from one key, and so does its rehearsal where no noise is kept over rounds.
            one_key: randomness.is_seeded() && definition.is_none(),
            clip_norm,
            coins: bits(canaries, 0).collect(),
            shared,
            probes: size.probes,
            signs: bits(signs, DIRECTIONS)
                .map(|sign| if sign { 1 } else { -1 })
                .collect(),
        }
    }

    /// Number of released values per round.
    fn columns(&self) -> usize {
        self.shared + self.probes
    }

    fn entropy_of(&self, round: u64) -> RoundEntropy {
        let round = if self.one_key { 0 } else { round };
        let mut bytes = [0; 32];
        let mut generator = self.randomness.generator(Purpose::Audit, round, 1);
        generator.fill_bytes(&mut bytes);
        RoundEntropy::fresh(bytes)
    }

    /// Opens and closes each round, with the canaries of its cohort that are in.
    fn rounds(&self, plan: PrivacyPlan, mut cohorts: Cohorts) -> Result<Made> {
        let mut head = RunHead::new(self.task, plan, None, GENESIS, &self.entropy_of(0))?;
        let mut made = Made {
            released: Vec::with_capacity(self.rounds * self.columns()),
            drawn: vec![Vec::new(); self.coins.len()],
            cohort_sizes: Vec::with_capacity(self.rounds),
        };
        let (mut update, mut entries) = (vec![0.0f32; self.columns()], Vec::new());
        for round in 0..self.rounds {
            if round > 0 && round == self.rounds / 2 {
                // A rehearsal resumes once, so that reuse across a resume shows.
                head = resumed(
                    self.task,
                    &head,
                    &entries,
                    &self.entropy_of(self.rounds as u64 + 1),
                )?;
            }
            let cohort = cohorts.draw(round as u64, self.randomness)?;
            let opened = head.open(None)?;
            let sum = BoundedSum::new(opened.bound().clone());
            for &canary in &cohort.users {
                made.drawn[canary].push(round);
                if self.coins[canary] {
                    self.contribute(canary, &mut update, &sum)?;
                }
            }
            made.cohort_sizes.push(cohort.users.len() as f64);
            let entropy = self.entropy_of(round as u64 + 1);
            let next = head
                .close(opened, gathered(sum, cohort.pseudonyms), &entropy, &mut |_| ())
                .map_err(CloseError::why)?;
            let missing = || RunError::missing("release", "a release in each round");
            let average = next.average.ok_or_else(missing)?;
            made.released.extend_from_slice(average.values());
            if round < self.rounds / 2 {
                entries.push(next.entry);
            }
            head = next.head;
        }
        Ok(made)
    }

    /// Adds a canary with twice the clip norm, so that the clipping is part of what is tested.
    fn contribute(&self, canary: usize, update: &mut [f32], sum: &BoundedSum) -> Result<()> {
        let entry = 2.0 * self.clip_norm;
        match self.signs.get(canary * self.shared..(canary + 1) * self.shared) {
            Some(signs) => {
                // The direction has length 1: each sign is divided by the root of their number.
                let root = (self.shared as f64).sqrt();
                for (value, sign) in update.iter_mut().zip(signs) {
                    *value = (entry * f64::from(*sign) / root) as f32;
                }
                sum.add(update, 1.0)?;
            }
            None => {
                update[canary] = entry as f32;
                sum.add(update, 1.0)?;
                update[canary] = 0.0;
            }
        }
        Ok(())
    }
}

/// The sum of a round and who is in it.
fn gathered(sum: BoundedSum, names: Vec<ParticipantId>) -> Gathered {
    Gathered {
        sum: RoundSum::Users { sum, bits: None },
        who: Participants {
            names,
            ..Participants::default()
        },
        lane: None,
        diagnostics: Diagnostics::default(),
    }
}

/// The whitened releases in units of a contribution, one row of columns per round.
fn whitened(
    definition: Option<&Definition>,
    released: &[f32],
    columns: usize,
    unit: f64,
) -> Result<Vec<f64>> {
    let mut values = match definition {
        Some(definition) => definition.whiten(released, columns)?,
        None => released.iter().map(|&value| f64::from(value)).collect(),
    };
    for value in &mut values {
        *value /= unit;
    }
    Ok(values)
}

/// The values of some columns, round by round, over `scale`.
fn of_columns(values: &[f64], columns: usize, range: std::ops::Range<usize>, scale: f64) -> Vec<f64> {
    let rows = values.chunks(columns);
    rows.flat_map(|row| row[range.clone()].iter().map(move |value| value / scale))
        .collect()
}

/// The values of each round along the direction of each canary.
fn projected(values: &[f64], columns: usize, signs: &[i8], shared: usize) -> Vec<f64> {
    let root = (shared as f64).sqrt();
    let along = |row: &[f64], direction: &[i8]| -> f64 {
        let terms = row
            .iter()
            .zip(direction)
            .map(|(value, sign)| value * f64::from(*sign));
        terms.sum::<f64>() / root
    };
    let rows = values.chunks(columns);
    rows.flat_map(|row| signs.chunks(shared).map(move |direction| along(row, direction)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three canaries by hand: the second shares one round with the first and two with the third.
    #[test]
    fn canaries_of_the_same_rounds_disturb_one_another_by_the_square_of_their_number() {
        let signals = [vec![1.0, 0.0, 0.0], vec![1.0, 1.0, 1.0], vec![0.0, 1.0, 1.0]];
        // <g_1, g_2>^2 + <g_3, g_2>^2 = 1 + 4 over |g_2|^2 = 3, and 4 over 2 for the third.
        assert!((disturbance(&signals) - 0.5 * 2.0).abs() < 1e-12);
        assert_eq!(disturbance(&[vec![0.0; 3], vec![0.0; 3]]), 0.0);
        // Coins that are always heads put all canaries into all rounds.
        let always = SecretCoins::poisson(SamplingProbability::new(1.0).unwrap());
        let of_coins = disturbance_of_coins(always, 5, 7);
        assert!((of_coins - disturbance(&vec![vec![1.0; 7]; 5])).abs() < 1e-12);
        assert!((of_coins - 0.5 * 4.0 * 7.0).abs() < 1e-12);
        assert!((interference(of_coins, 2.0, 350).unwrap() - 1.01).abs() < 1e-12);
        let refused = interference(of_coins, 2.0, 34).unwrap_err().to_string();
        assert!(refused.contains("at least 35 coordinates"), "{refused}");
    }
}

//! Bounds on epsilon from canaries: their values, the scores that an attacker gives them, and the guesses that follow.
//!
//! The guesses are a function of the released values and of the plan. Nothing here chooses after it has seen a coin.

use undertone_accounting::audit::gaussian::{Shift, std_upper};
use undertone_accounting::audit::one_run_fdp::epsilon_of_mu;
use undertone_accounting::audit::planning::PowerAnalysis;
use undertone_accounting::audit::sampled::SecretCoins;
use undertone_accounting::audit::{Guesses, Significance};
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier};
use undertone_coordinator::record::GuaranteeRecord;
use undertone_mechanisms::audit::Definition;

use super::final_model::FinalModel;
use super::record::{ANY, Bound, CanaryPlan, FDP, FINAL, ITERATES};
use undertone_run_directory::error::Result;

/// Max number of values that the likelihood of sampled canaries is computed from. More cost time and show little.
const MAX_VALUES: usize = 1 << 20;

/// The part of the significance of a shift that is spent on the spread of the noise.
const SPREAD_PART: f64 = 0.1;

/// Significance of the confirmation that follows a headline bound above the claim.
pub const CONFIRMATION: f64 = 0.001;

/// The whitened values of canaries and probes, in units of one contribution.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The guarantee of the run over all its rounds.
    pub claim: GuaranteeRecord,
    /// Number of rounds.
    pub rounds: usize,
    /// Stated standard deviation of a whitened value without a contribution.
    pub noise_multiplier: f64,
    /// The coins of Poisson cohorts. `None` where the rounds of a canary may be known.
    pub secret: Option<SecretCoins>,
    /// The coins: `true` for a canary that was in.
    pub coins: Vec<bool>,
    /// Signals `|C 1_P|` of the canaries, from the rounds that each was drawn in; empty with Poisson sampling.
    pub signals: Vec<f64>,
    /// Sums `<C Y, C 1_P>` over the rounds of each canary; empty with Poisson sampling.
    pub matched: Vec<f64>,
    /// Values of the canaries, one row per round.
    pub canaries: Vec<f64>,
    /// Values of the probes over the stated standard deviation, one row per round.
    pub probes: Vec<f64>,
    /// Sizes of the cohorts.
    pub cohort_sizes: Vec<f64>,
    /// The canaries in the final model; `None` where the server does more than add.
    pub final_model: Option<FinalModel>,
    /// Factor on the variance of a score over all rounds that other canaries are expected to add; 1 where each has a coordinate of its own.
    pub interference: f64,
}

/// The signal `C 1_P` of a canary in the whitened rounds, from the rounds that it was drawn in.
///
/// # Errors
/// A round outside the matrix.
pub fn signal(definition: &Definition, rounds: &[usize]) -> Result<Vec<f64>> {
    let mut signal = vec![0.0; definition.rounds()];
    for &round in rounds {
        for (sum, entry) in signal.iter_mut().zip(definition.release_column(round)?) {
            *sum += entry;
        }
    }
    Ok(signal)
}

/// The signal `|C 1_P|` of each canary, and the sum `<C Y, C 1_P>` over its whitened values, for canaries in these rounds.
///
/// # Errors
/// A round outside the matrix.
pub fn matched_filters(
    definition: &Definition,
    rounds: &[Vec<usize>],
    whitened: &[f64],
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut signals, mut matched) = (Vec::new(), Vec::new());
    for (canary, rounds_of_canary) in rounds.iter().enumerate() {
        let signal = signal(definition, rounds_of_canary)?;
        let values = whitened.iter().skip(canary).step_by(rounds.len());
        matched.push(signal.iter().zip(values).map(|(a, b)| a * b).sum());
        signals.push(signal.iter().map(|value| value * value).sum::<f64>().sqrt());
    }
    Ok((signals, matched))
}

/// The plan of an audit with canaries under a claim. It follows from the configuration, so it is fixed before the first round.
///
/// # Errors
/// From the estimators: a claim without a finite epsilon, too few canaries.
pub fn plan(
    config_sha256: &str,
    canaries: u64,
    probes: usize,
    claim: &GuaranteeRecord,
) -> Result<CanaryPlan> {
    let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
    let plan = PowerAnalysis::new(canaries, epsilon, delta, Significance::REPORTED)?;
    Ok(CanaryPlan {
        config_sha256: config_sha256.to_owned(),
        canaries,
        probes,
        directions: None,
        seed: None,
        significance: Significance::REPORTED.get(),
        headline: ANY.to_owned(),
        guesses: plan.any.guesses,
        guesses_fdp: plan.fdp.guesses,
    })
}

/// The bounds of all estimators; the first is the headline. Those from the final model stand at the end. Where the plan gives canaries
/// directions in shared coordinates, all bounds are from guesses.
///
/// # Errors
/// From the estimators.
pub fn bounds(
    level: &str,
    lane: &Lane,
    fixed: &CanaryPlan,
    significance: Significance,
) -> Result<Vec<Bound>> {
    let delta = Delta::new(lane.claim.delta)?;
    let bound = |adversary: &str, estimator: &str, assumption: &str| Bound {
        level: level.to_owned(),
        adversary: adversary.to_owned(),
        unknown_to_attacker: unknown(lane, adversary),
        canaries: lane.coins.len() as u64,
        members: lane.coins.iter().filter(|coin| **coin).count() as u64,
        guesses: None,
        correct: None,
        confidence: 1.0 - significance.get(),
        headline: estimator == ANY && adversary == ITERATES,
        estimator: estimator.to_owned(),
        assumption: assumption.to_owned(),
        epsilon_lower: 0.0,
        most_that_could_show: None,
        p_at_claim: None,
    };
    let guessed = |adversary: &str, scores: &[f64]| {
        let of = |estimator: &str, assumption: &str| bound(adversary, estimator, assumption);
        guessed(scores, &lane.coins, (&lane.claim, fixed), &of)
    };
    let mut all = guessed(ITERATES, &scores(lane)?)?.to_vec();
    // Canaries with directions in shared coordinates disturb one another by the same amount in each round, so their scores together have
    // not the law that a Gaussian limit takes them to have. Guesses need none.
    let gaussian = fixed.directions.is_none();
    if gaussian {
        let (estimator, epsilon) = match lane.secret {
            Some(coins) => {
                let step = sampled_step(lane, coins, significance)?;
                (
                    "gaussian.sampled",
                    coins.epsilon(step, lane.rounds as u64, delta)?,
                )
            }
            None => {
                let mu = shift(lane, &lane.signals, &lane.matched, significance)?;
                (SHIFT, epsilon_of_mu(mu, delta)?)
            }
        };
        all.push(Bound {
            epsilon_lower: epsilon.get(),
            ..bound(ITERATES, estimator, GAUSSIAN)
        });
    }
    if let Some(last) = &lane.final_model {
        all.extend(guessed(
            FINAL,
            &last.scores(NoiseMultiplier::new(lane.noise_multiplier)?),
        )?);
        if let Some((signals, matched)) = last.matched().filter(|_| gaussian) {
            let mu = shift(lane, signals, &matched, significance)?;
            let strongest = signals.iter().copied().fold(0.0, f64::max) / lane.noise_multiplier;
            all.push(Bound {
                epsilon_lower: epsilon_of_mu(mu, delta)?.get(),
                most_that_could_show: Some(epsilon_of_mu(strongest, delta)?.get()),
                ..bound(FINAL, SHIFT, GAUSSIAN)
            });
        }
    }
    Ok(all)
}

/// The bounds from scores of the final model alone, for canaries that have text; the first is the headline.
///
/// # Errors
/// From the estimators.
pub fn bounds_of_model(
    level: &str,
    scores: &[f64],
    coins: &[bool],
    of: (&GuaranteeRecord, &CanaryPlan),
    significance: Significance,
) -> Result<[Bound; 2]> {
    let bound = |estimator: &str, assumption: &str| Bound {
        level: level.to_owned(),
        adversary: FINAL.to_owned(),
        unknown_to_attacker: ["coins", "Poisson coins", "noise key", "all models but the last"]
            .map(str::to_owned)
            .to_vec(),
        canaries: coins.len() as u64,
        members: coins.iter().filter(|coin| **coin).count() as u64,
        guesses: None,
        correct: None,
        confidence: 1.0 - significance.get(),
        headline: estimator == ANY,
        estimator: estimator.to_owned(),
        assumption: assumption.to_owned(),
        epsilon_lower: 0.0,
        most_that_could_show: None,
        p_at_claim: None,
    };
    guessed(scores, coins, of, &bound)
}

/// The two bounds from guesses by scores, made from `bound` with an estimator and its assumption.
fn guessed(
    scores: &[f64],
    coins: &[bool],
    (claim, fixed): (&GuaranteeRecord, &CanaryPlan),
    bound: &dyn Fn(&str, &str) -> Bound,
) -> Result<[Bound; 2]> {
    let of = |estimator: &str, assumption: &str, guesses: u64| {
        let outcome = guess(scores, coins, guesses)?;
        let bound = Bound {
            guesses: Some(outcome.guesses()),
            correct: Some(outcome.correct()),
            ..bound(estimator, assumption)
        };
        bound.of_counts(claim)
    };
    Ok([
        of(ANY, "none", fixed.guesses)?,
        of(FDP, "Gaussian trade-off", fixed.guesses_fdp)?,
    ])
}

/// The estimator of a shift by one contribution in known rounds, and its assumption.
const SHIFT: &str = "gaussian.shift";
const GAUSSIAN: &str = "Gaussian noise of any scale";

/// The secrets that an attacker does not use.
fn unknown(lane: &Lane, adversary: &str) -> Vec<String> {
    let mut secrets = vec!["coins"];
    if lane.secret.is_some() {
        secrets.push("Poisson coins");
    }
    secrets.push("noise key");
    if adversary == FINAL {
        secrets.push("all models but the last");
    }
    secrets.into_iter().map(str::to_owned).collect()
}

/// The log likelihood ratios of the canaries, in against out.
fn scores(lane: &Lane) -> Result<Vec<f64>> {
    let canaries = lane.coins.len();
    let z = NoiseMultiplier::new(lane.noise_multiplier)?;
    match lane.secret {
        Some(coins) => {
            let of = |canary: usize| {
                let values = lane.canaries.iter().skip(canary).step_by(canaries).copied();
                coins.log_likelihood_ratio(z, values)
            };
            Ok((0..canaries).map(of).collect())
        }
        None => {
            let variance = z.get() * z.get();
            let of = |(matched, signal): (&f64, &f64)| (matched - 0.5 * signal * signal) / variance;
            Ok(lane.matched.iter().zip(&lane.signals).map(of).collect())
        }
    }
}

/// Guesses the canaries whose scores are farthest from zero, by sign; ties go by the number of the canary.
fn guess(scores: &[f64], coins: &[bool], guesses: u64) -> Result<Guesses> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].abs().total_cmp(&scores[a].abs()));
    let chosen = order.iter().take(guesses as usize);
    let correct = chosen
        .filter(|&&canary| (scores[canary] > 0.0) == coins[canary])
        .count();
    Ok(Guesses::new(scores.len() as u64, guesses, correct as u64)?)
}

/// The lower limit of the step of sampled canaries, over the noise of the values themselves; 0 where no canary that is looked at is in.
fn sampled_step(lane: &Lane, coins: SecretCoins, significance: Significance) -> Result<f64> {
    let canaries = lane.coins.len();
    let values = MAX_VALUES / coins.terms().max(1);
    let number = (values / lane.rounds.max(1)).clamp(2, canaries.max(2));
    let looked_at = evenly(canaries, number);
    let (mut members, mut others) = (Vec::new(), Vec::new());
    for row in lane.canaries.chunks(canaries.max(1)) {
        for &canary in &looked_at {
            match lane.coins[canary] {
                true => members.push(row[canary]),
                false => others.push(row[canary]),
            }
        }
    }
    if members.is_empty() {
        return Ok(0.0);
    }
    Ok(coins.step(&members, &others, significance)?.lower)
}

/// So many of `all` indices, spread evenly: the choice follows from no coin.
fn evenly(all: usize, number: usize) -> Vec<usize> {
    let number = number.min(all);
    (0..number).map(|place| place * all / number).collect()
}

/// The lower limit of `mu` of the canary with the strongest signal, over the upper limit of the noise of the probes.
fn shift(lane: &Lane, signals: &[f64], matched: &[f64], significance: Significance) -> Result<f64> {
    // PRIVACY: the spread is that of pure noise, one for all canaries. A spread fitted to each side would move epsilon far. Few probes do
    // not tell it exactly, so its upper limit stands for it, at a part of the significance.
    let of_spread = Significance::new(SPREAD_PART * significance.get())?;
    let of_step = Significance::new((1.0 - SPREAD_PART) * significance.get())?;
    let spread = lane.noise_multiplier * std_upper(&lane.probes, of_spread)?;
    // The score of a canary that is in has the mean `a mu` and variance 1, with one step `a` for all canaries, stated as 1.
    let (mut product, mut square, mut strongest) = (0.0, 0.0, 0.0f64);
    for ((matched, signal), coin) in matched.iter().zip(signals).zip(&lane.coins) {
        if *coin && *signal > 0.0 {
            product += matched / (spread * spread);
            square += (signal / spread).powi(2);
            strongest = strongest.max(signal / spread);
        }
    }
    if square == 0.0 {
        return Ok(0.0);
    }
    let step = Shift {
        estimate: product / square,
        standard_error: square.sqrt().recip(),
    };
    Ok(step.lower(of_step) * strongest)
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;
    use undertone_accounting::SamplingProbability;
    use undertone_coordinator::random::{Purpose, Randomness};

    use super::*;
    use crate::record::tests::claim;

    #[test]
    fn canaries_that_are_looked_at_are_spread_evenly() {
        assert_eq!(evenly(10, 4), [0, 2, 5, 7]);
        assert_eq!(evenly(3, 3), [0, 1, 2]);
        assert_eq!(evenly(1, 2), [0]);
        assert!(evenly(0, 2).is_empty());
    }

    #[test]
    fn sampled_canaries_of_which_none_is_in_show_nothing() {
        let sampled = SecretCoins::poisson(SamplingProbability::new(0.5).unwrap());
        let lane = |coins: [bool; 10]| Lane {
            claim: GuaranteeRecord {
                epsilon: 1.0,
                ..claim()
            },
            rounds: 2,
            noise_multiplier: 1.0,
            secret: Some(sampled),
            coins: coins.to_vec(),
            signals: Vec::new(),
            matched: Vec::new(),
            canaries: (0..20).map(|value| f64::from(value % 3) - 0.9).collect(),
            probes: Vec::new(),
            cohort_sizes: Vec::new(),
            final_model: None,
            interference: 1.0,
        };
        let limit = |coins| sampled_step(&lane(coins), sampled, Significance::REPORTED).unwrap();
        assert_eq!(limit([false; 10]), 0.0);
        assert!(limit([true; 10]).is_finite());
    }
    /// A lane of 200 canaries whose scores are one standard deviation apart, of which half are in, and of so many probes.
    fn shifted(probes: usize, seed: u64) -> Lane {
        let mut generator = Randomness::seeded(seed).generator(Purpose::Audit, 0, 0);
        let mut uniform = || ((generator.next_u64() >> 11) as f64 + 0.5) * f64::exp2(-53.0);
        let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        let coins: Vec<bool> = (0..200).map(|canary| canary % 2 == 0).collect();
        let matched = coins.iter().map(|coin| f64::from(u8::from(*coin)) + normal());
        let matched = matched.collect();
        Lane {
            claim: GuaranteeRecord {
                epsilon: 1.0,
                ..claim()
            },
            rounds: 1,
            noise_multiplier: 1.0,
            secret: None,
            signals: vec![1.0; 200],
            matched,
            coins,
            canaries: Vec::new(),
            probes: (0..probes).map(|_| normal()).collect(),
            cohort_sizes: Vec::new(),
            final_model: None,
            interference: 1.0,
        }
    }

    /// The limit may exceed the true distance of 1 in 5 % of audits, however few probes tell the spread. More than 40 of 400 have a probability
    /// below 2e-5; the seeds are fixed.
    #[test]
    fn a_shift_over_few_probes_exceeds_the_truth_as_seldom_as_over_many() {
        for probes in [6, 100, 2000] {
            let exceeds = |seed: &u64| {
                let lane = shifted(probes, *seed);
                let found = shift(&lane, &lane.signals, &lane.matched, Significance::REPORTED);
                found.unwrap() > 1.0
            };
            let above = (0..400).filter(exceeds).count();
            assert!(above <= 40, "{probes} probes: {above} of 400");
        }
        let none = shifted(0, 1);
        assert!(shift(&none, &none.signals, &none.matched, Significance::REPORTED).is_err());
    }

    /// Canaries with directions in shared coordinates have bounds from guesses alone, which hold whatever other canaries add.
    #[test]
    fn directions_have_no_gaussian_limits() {
        let lane = shifted(100, 1);
        let mut fixed = plan("00", 200, 100, &lane.claim).unwrap();
        let all = bounds("mechanism", &lane, &fixed, Significance::REPORTED).unwrap();
        assert!(all.iter().any(|bound| bound.estimator == SHIFT));
        fixed.directions = Some(4000);
        let guessed = bounds("mechanism", &lane, &fixed, Significance::REPORTED).unwrap();
        assert_eq!(guessed, all[..2]);
        assert!(guessed.iter().all(|bound| bound.guesses.is_some()));
    }
}

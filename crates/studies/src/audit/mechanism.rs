//! An audit at the level of the mechanism: canaries and noise probes through the coordinator of a run, without users or model.

use undertone_accounting::audit::gaussian::Shift;
use undertone_accounting::audit::one_run_fdp::epsilon_of_mu;
use undertone_accounting::audit::planning::Plan;
use undertone_accounting::audit::{Guesses, Significance, sampled};
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, SamplingProbability};
use undertone_coordinator::random::Randomness;
use undertone_run::error::Result;

use super::lane::{self, Lane, Setting, Size};
use super::noise::NoiseTests;
use super::record::{ANY, Audit, Bound, CanaryPlan, FDP};

/// The most values that the likelihood of sampled canaries is computed from; more cost time and show little.
const MOST_VALUES: usize = 1 << 20;

/// Significance of the confirmation that follows a headline bound above the claim.
const CONFIRMATION: f64 = 0.001;

/// An audit of the mechanism of a run.
#[derive(Debug, Clone, Copy)]
pub struct MechanismAudit<'a> {
    /// The run.
    pub setting: Setting<'a>,
    /// The numbers of canaries and probes.
    pub size: Size,
    /// SHA-256 of the configuration.
    pub config_sha256: &'a str,
    /// `false` to test the noise alone.
    pub canaries: bool,
}

impl MechanismAudit<'_> {
    /// Runs the audit. `fresh` gives the randomness of one pass; a confirmation takes a second one.
    ///
    /// # Errors
    /// [`RunError`](undertone_run::RunError) naming the setting that an audit refuses; from the coordinator and the estimators.
    pub fn run(&self, fresh: &mut dyn FnMut() -> Result<Randomness>) -> Result<Audit> {
        let lane = lane::run(&self.setting, &self.size, &fresh()?)?;
        let (claim, canaries) = (lane.claim.clone(), lane.coins.len() as u64);
        let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
        let mut audit = Audit::new(&self.setting.task.name, self.config_sha256);
        audit.noise = Some(NoiseTests::of(
            &lane.probes,
            self.size.probes,
            &lane.cohort_sizes,
        )?);
        audit.control = (self.size.noise_factor != 1.0).then_some(self.size.noise_factor);
        if self.canaries {
            let plan = Plan::new(canaries, epsilon, delta, Significance::REPORTED)?;
            let fixed = CanaryPlan {
                config_sha256: self.config_sha256.to_owned(),
                canaries,
                probes: self.size.probes,
                significance: Significance::REPORTED.get(),
                headline: ANY.to_owned(),
                guesses: plan.any.guesses,
                guesses_fdp: plan.fdp.guesses,
            };
            audit.plan_sha256 = Some(fixed.sha256()?);
            audit.canaries = bounds(&lane, &fixed, Significance::REPORTED)?;
            let exceeds = |bound: &Bound| bound.headline && bound.epsilon_lower > claim.epsilon;
            if audit.canaries.iter().any(exceeds) {
                let again = lane::run(&self.setting, &self.size, &fresh()?)?;
                let mut confirmation = bounds(&again, &fixed, Significance::new(CONFIRMATION)?)?;
                confirmation.retain(|bound| bound.headline);
                audit.canaries.extend(confirmation);
            }
            audit.plan = Some(fixed);
        }
        audit.claim = Some(claim);
        Ok(audit.finish())
    }
}

/// The bounds of all estimators; the first is the headline.
fn bounds(lane: &Lane, fixed: &CanaryPlan, significance: Significance) -> Result<Vec<Bound>> {
    let (scores, unknown) = scores(lane)?;
    let delta = Delta::new(lane.claim.delta)?;
    let bound = |estimator: &str, assumption: &str| Bound {
        level: "mechanism".to_owned(),
        adversary: "all_iterates".to_owned(),
        unknown_to_attacker: unknown.iter().map(|&secret| secret.to_owned()).collect(),
        canaries: lane.coins.len() as u64,
        members: lane.coins.iter().filter(|coin| **coin).count() as u64,
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
    let guessed = |estimator: &str, assumption: &str, guesses: u64| -> Result<Bound> {
        let outcome = guess(&scores, &lane.coins, guesses)?;
        let bound = Bound {
            guesses: Some(outcome.guesses()),
            correct: Some(outcome.correct()),
            ..bound(estimator, assumption)
        };
        bound.of_counts(&lane.claim)
    };
    let any = guessed(ANY, "none", fixed.guesses)?;
    let fdp = guessed(FDP, "Gaussian trade-off", fixed.guesses_fdp)?;
    let (estimator, epsilon) = match lane.sampling_probability {
        Some(q) => {
            let step = sampled_step(lane, q, significance)?;
            let epsilon = sampled::epsilon(step, SamplingProbability::new(q)?, lane.rounds as u64, delta)?;
            ("gaussian.sampled", epsilon)
        }
        None => (
            "gaussian.shift",
            epsilon_of_mu(shift(lane, significance)?, delta)?,
        ),
    };
    let model = Bound {
        epsilon_lower: epsilon.get(),
        ..bound(estimator, "Gaussian noise of any scale")
    };
    Ok(vec![any, fdp, model])
}

/// The log likelihood ratios of the canaries, in against out, and the secrets that they do not use.
fn scores(lane: &Lane) -> Result<(Vec<f64>, Vec<&'static str>)> {
    let canaries = lane.coins.len();
    let z = NoiseMultiplier::new(lane.noise_multiplier)?;
    match lane.sampling_probability {
        Some(q) => {
            let q = SamplingProbability::new(q)?;
            let of = |canary: usize| {
                let values = lane.canaries.iter().skip(canary).step_by(canaries).copied();
                sampled::log_likelihood_ratio(q, z, values)
            };
            let scores = (0..canaries).map(of).collect();
            Ok((scores, vec!["coins", "Poisson coins", "noise key"]))
        }
        None => {
            let variance = z.get() * z.get();
            let of = |(matched, signal): (&f64, &f64)| (matched - 0.5 * signal * signal) / variance;
            let scores = lane.matched.iter().zip(&lane.signals).map(of).collect();
            Ok((scores, vec!["coins", "noise key"]))
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

/// The lower limit of the step of sampled canaries, over the noise of the values themselves.
fn sampled_step(lane: &Lane, q: f64, significance: Significance) -> Result<f64> {
    let rows = (MOST_VALUES / lane.rounds.max(1)).clamp(2, lane.coins.len().max(2));
    let (mut members, mut others) = (Vec::new(), Vec::new());
    for row in lane.canaries.chunks(lane.coins.len()) {
        for (&value, &coin) in row.iter().zip(&lane.coins).take(rows) {
            match coin {
                true => members.push(value),
                false => others.push(value),
            }
        }
    }
    Ok(sampled::step(SamplingProbability::new(q)?, &members, &others, significance)?.lower)
}

/// The lower limit of `mu` of the canary with the strongest signal, over the noise of the probes.
fn shift(lane: &Lane, significance: Significance) -> Result<f64> {
    // PRIVACY: the spread is that of pure noise, one for all canaries. A spread fitted to each side would move epsilon far.
    let squares: f64 = lane.probes.iter().map(|value| value * value).sum();
    let spread = lane.noise_multiplier * (squares / lane.probes.len().max(1) as f64).sqrt();
    // The score of a canary that is in has the mean `a mu` and variance 1, with one step `a` for all canaries, stated as 1.
    let (mut product, mut square, mut strongest) = (0.0, 0.0, 0.0f64);
    for ((matched, signal), coin) in lane.matched.iter().zip(&lane.signals).zip(&lane.coins) {
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
    Ok(step.lower(significance) * strongest)
}

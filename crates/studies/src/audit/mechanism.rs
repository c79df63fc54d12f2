//! An audit at the level of the mechanism: canaries and noise probes through the coordinator of a run, without users or model.

use serde::Serialize;
use sha2::{Digest, Sha256};
use undertone_accounting::audit::gaussian::Shift;
use undertone_accounting::audit::one_run_fdp::epsilon_of_mu;
use undertone_accounting::audit::planning::Plan;
use undertone_accounting::audit::{Guesses, Significance, one_run, one_run_fdp, sampled};
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, SamplingProbability};
use undertone_coordinator::random::Randomness;
use undertone_present::numbers::{hex, number};
use undertone_run::error::{Result, RunError};

use super::lane::{self, Lane, Setting, Size};
use super::noise::NoiseTests;
use super::record::{Audit, Bound, LIMITS, Tested, Verdict};

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

/// The plan of an audit, which is fixed before the first round.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fixed<'a> {
    config_sha256: &'a str,
    canaries: u64,
    probes: usize,
    significance: f64,
    headline: &'static str,
    guesses: u64,
    guesses_fdp: u64,
}

impl MechanismAudit<'_> {
    /// Runs the audit. `fresh` gives the randomness of one pass; a confirmation takes a second one.
    ///
    /// # Errors
    /// [`RunError`] naming the setting that an audit refuses; from the coordinator and the estimators.
    pub fn run(&self, fresh: &mut dyn FnMut() -> Result<Randomness>) -> Result<Audit> {
        let lane = lane::run(&self.setting, &self.size, &fresh()?)?;
        let (claim, canaries) = (lane.claim.clone(), lane.coins.len() as u64);
        let (epsilon, delta) = (Epsilon::new(claim.epsilon)?, Delta::new(claim.delta)?);
        let noise = NoiseTests::of(&lane.probes, self.size.probes, &lane.cohort_sizes)?;
        let mut verdict = match noise.contradicts() {
            true => Verdict::Contradicted,
            false => Verdict::Nothing,
        };
        let (mut bounds, mut plan_sha256) = (Vec::new(), None);
        if self.canaries {
            let plan = Plan::new(canaries, epsilon, delta, Significance::REPORTED)?;
            let fixed = Fixed {
                config_sha256: self.config_sha256,
                canaries,
                probes: self.size.probes,
                significance: Significance::REPORTED.get(),
                headline: ANY,
                guesses: plan.any.guesses,
                guesses_fdp: plan.fdp.guesses,
            };
            let text = serde_json::to_vec(&fixed)
                .map_err(|error| RunError::value("audit plan", "values that JSON can hold", error))?;
            plan_sha256 = Some(hex(&Sha256::digest(text)));
            bounds = self.bounds(&lane, &fixed, Significance::REPORTED)?;
            if bounds
                .iter()
                .any(|bound| bound.headline && bound.epsilon_lower > claim.epsilon)
            {
                let again = lane::run(&self.setting, &self.size, &fresh()?)?;
                let mut confirmation = self.bounds(&again, &fixed, Significance::new(CONFIRMATION)?)?;
                confirmation.retain(|bound| bound.headline);
                let confirmed = confirmation
                    .iter()
                    .any(|bound| bound.epsilon_lower > claim.epsilon);
                verdict = match confirmed || verdict == Verdict::Contradicted {
                    true => Verdict::Contradicted,
                    false => Verdict::OneInTwenty,
                };
                bounds.extend(confirmation);
            }
        }
        let statements = self.statements(&bounds, &noise, claim.epsilon);
        Ok(Audit {
            schema: "undertone.audit/1",
            run: Tested {
                name: self.setting.task.name.clone(),
                config_sha256: self.config_sha256.to_owned(),
                tested: "mechanism",
            },
            plan_sha256,
            claim: Some(claim),
            replay: None,
            canaries: bounds,
            noise: Some(noise),
            verdict: verdict.sentence(),
            statements,
        })
    }

    fn statements(&self, bounds: &[Bound], noise: &NoiseTests, claim: f64) -> Vec<String> {
        let mut statements = Vec::new();
        for bound in bounds.iter().filter(|bound| bound.headline) {
            statements.push(format!(
                "An attack of this kind and size shows an epsilon of at least {} with {} % confidence, of a claim of {}. {LIMITS}",
                number(bound.epsilon_lower),
                number(100.0 * bound.confidence),
                number(claim),
            ));
        }
        statements.push(format!(
            "{} values of pure noise were tested; the smallest p-value after Holm's correction is {}. Such a test finds noise that is a few \
             percent too small, and proves nothing.",
            noise.values,
            number(noise.smallest_p_holm),
        ));
        statements.push(
            "The mechanism was tested in a rehearsal with invented contributions. This run itself, its model and its users were not."
                .to_owned(),
        );
        if self.size.noise_factor != 1.0 {
            statements.push(format!(
                "This is a positive control: {} of the stated noise was added, so that the instrument can be seen to work.",
                number(self.size.noise_factor)
            ));
        }
        statements
    }

    /// The bounds of all estimators; the first is the headline.
    fn bounds(&self, lane: &Lane, fixed: &Fixed<'_>, significance: Significance) -> Result<Vec<Bound>> {
        let (scores, unknown) = scores(lane)?;
        let delta = Delta::new(lane.claim.delta)?;
        let bound = |estimator, assumption, epsilon_lower| Bound {
            level: "mechanism",
            adversary: "all_iterates",
            unknown_to_attacker: unknown.clone(),
            canaries: lane.coins.len() as u64,
            members: lane.coins.iter().filter(|coin| **coin).count() as u64,
            guesses: None,
            correct: None,
            confidence: 1.0 - significance.get(),
            headline: false,
            estimator,
            assumption,
            epsilon_lower,
            most_that_could_show: None,
            p_at_claim: None,
        };
        let guessed = guess(&scores, &lane.coins, fixed.guesses)?;
        let all = Guesses::new(guessed.canaries(), guessed.guesses(), guessed.guesses())?;
        let of = |outcome: &Guesses| one_run::epsilon(outcome, significance, delta.get());
        let any = Bound {
            guesses: Some(guessed.guesses()),
            correct: Some(guessed.correct()),
            headline: true,
            most_that_could_show: Some(of(&all)?.get()),
            p_at_claim: Some(one_run::p_value(&guessed, lane.claim.epsilon, delta.get())?),
            ..bound(ANY, "none", of(&guessed)?.get())
        };
        let guessed = guess(&scores, &lane.coins, fixed.guesses_fdp)?;
        let all = Guesses::new(guessed.canaries(), guessed.guesses(), guessed.guesses())?;
        let of = |outcome: &Guesses| one_run_fdp::epsilon_if_gaussian(outcome, significance, delta);
        let fdp = Bound {
            guesses: Some(guessed.guesses()),
            correct: Some(guessed.correct()),
            most_that_could_show: Some(of(&all)?.get()),
            ..bound("one_run_fdp.gaussian", "Gaussian trade-off", of(&guessed)?.get())
        };
        let model = match lane.sampling_probability {
            Some(q) => {
                let step = sampled_step(lane, q, significance)?;
                let epsilon =
                    sampled::epsilon(step, SamplingProbability::new(q)?, lane.rounds as u64, delta)?;
                bound("gaussian.sampled", "Gaussian noise of any scale", epsilon.get())
            }
            None => {
                let epsilon = epsilon_of_mu(shift(lane, significance)?, delta)?;
                bound("gaussian.shift", "Gaussian noise of any scale", epsilon.get())
            }
        };
        Ok(vec![any, fdp, model])
    }
}

/// The estimator of the headline.
const ANY: &str = "one_run.any";

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

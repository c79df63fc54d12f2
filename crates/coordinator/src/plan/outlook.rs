//! The outlook of a private run: the distance that training can move the parameters, beside that of the noise.

use undertone_aggregation::{Estimator, ParamLayout};
use undertone_mechanisms::Workload;

use super::PrivacyPlan;
use crate::error::Result;
use crate::sampling::Sampling;
use crate::task::TaskConfig;
use undertone_present::numbers::{grouped, number, upper_bound};
use undertone_settings::Algorithm;

/// A run of a smaller reach gets a warning.
///
/// Reach compares the noise with updates that are all as long as the clip norm and all point one way, in every round. Real
/// updates do neither, so that a reach above 1 is not enough. Measured: the synthetic population with 1,000 words (59,008 parameters, 400
/// rounds, 16,001 users, always the commonest word 4.4 %) with 20 users per round ends at a top-1 accuracy of 0.1 % at epsilon
/// 0.5 (reach 2.3) and of 5.9 % at epsilon 4 (reach 3.5); 40 users at epsilon 0.5 give 6.9 % (3.9), 50 users at epsilon 2
/// give 7.8 % (6.1). On commit messages (`lab/notebooks/dplm-commits.md`, 80 rounds, commonest word 5.1 %) the
/// accuracy is 0.0 % at reach 0.8, 6.7 % at 1.6, 8.5 % at 3.2 and 8.9 % at 6.4, beside 8.7 % without noise.
const HOPELESS: f64 = 2.5;

/// The reach that remedies aim at: from about here on the trainings above learn.
const HOPEFUL: f64 = 5.0;

/// Above this an epsilon says close to nothing, so it is no remedy.
const MEANINGLESS_EPSILON: f64 = 20.0;

/// Bisection steps of a remedy: its factor is then right to a few per cent.
const STEPS: u32 = 5;

impl PrivacyPlan {
    /// The max distance that training can move the parameters over the run, over the norm of the noise in them; `None` for a
    /// run without noise.
    ///
    /// After `n` rounds of a server that adds the averages up, the parameters have moved by the sum of the true averages plus
    /// the sum of the noises. A true average is no longer than `S` times the users (or examples) it is expected of, over the
    /// denominator; their sum no longer than `n` times that. The noises of `d` coordinates with standard deviation `sigma`
    /// each add up to a vector of norm `sigma sqrt(d n)`, or, of correlated noise, `sigma sqrt(d)` times the error of the
    /// strategy's prefix sums. What the server makes of the averages (its learning rate, momentum, a division by the clip
    /// norm) multiplies both alike and cancels, and so does the denominator.
    ///
    /// With independent noise of multiplier `z` and `m` users per round this is `m sqrt(n) / (z sqrt(d))`.
    ///
    /// # Errors
    /// From the strategy.
    pub fn reach(&self) -> Result<Option<f64>> {
        if self.private.is_none() {
            return Ok(None);
        }
        let expected = match self.kept_per_user {
            Some(_) => self.q * self.population.total_weight,
            None => self.users_per_round,
        };
        let fraction = match self.estimator {
            // Nobody knows what weights add up to before training: the run file says what it expects.
            Estimator::FixedDenominator { expected_weight } if self.weighted => {
                (expected / expected_weight).min(1.0)
            }
            Estimator::FixedDenominator { expected_weight } => expected / expected_weight,
            Estimator::ClippedDenominator { .. } | Estimator::Exact => 1.0,
        };
        let (mut signal, mut variance) = (0.0, 0.0);
        for (index, phase) in self.phases.iter().enumerate() {
            let next = self.phases.get(index + 1);
            let end = next.map_or(self.rounds, |next| next.from_round.min(self.rounds));
            let rounds = end.saturating_sub(phase.from_round) as f64;
            let round = self.round(phase.from_round);
            signal += rounds * fraction * round.clipping.bound().unwrap_or(0.0);
            variance += rounds * round.noise_std.powi(2);
        }
        if let Some(bounded) = self.bounded() {
            let errors = bounded.mechanism().errors(&Workload::prefix_sum())?;
            variance = (self.round(0).noise_std * errors.max_error).powi(2);
        }
        let noise = (variance * self.layout.len() as f64).sqrt();
        Ok((noise > 0.0).then(|| signal / noise))
    }

    /// The warning of a run whose noise leaves nothing of what is learnt, with the changes that would help; `None` for other
    /// runs.
    ///
    /// # Errors
    /// From the strategy.
    pub fn warning(
        &self,
        config: &TaskConfig,
        layout: &ParamLayout,
        has_initial_model: bool,
    ) -> Result<Option<String>> {
        let Some(reach) = self.reach()?.filter(|reach| *reach < HOPELESS) else {
            return Ok(None);
        };
        let remedy = Remedies {
            plan: self,
            config,
            layout,
            factor: HOPEFUL / reach,
        };
        let mut remedies = vec![remedy.more_per_round()?];
        remedies.push(remedy.fewer_parameters());
        remedies.extend(remedy.larger_epsilon());
        let start = match has_initial_model {
            false => " A public start (`undertone pretrain`, then `initial_model`) leaves less to learn.",
            true => " With a public start as here, less noise also spoils less of it.",
        };
        Ok(Some(format!(
            "The noise will drown what this run learns. Over {} rounds, updates that all pointed one way could move the \
             parameters only {} times as far as the noise does; models of such runs predict hardly better than the commonest word, or worse. \
             Each of these alone would raise that to {HOPEFUL}, where runs learn: {}.{start}",
            grouped(self.rounds),
            number(reach),
            remedies.join("; or "),
        )))
    }
}

/// Changes that would bring a hopeless run to [`HOPEFUL`].
struct Remedies<'a> {
    plan: &'a PrivacyPlan,
    config: &'a TaskConfig,
    layout: &'a ParamLayout,
    /// The factor by which the reach is too small.
    factor: f64,
}

impl Remedies<'_> {
    /// The plan of a changed run with the mechanism of this one.
    fn changed(&self, config: &TaskConfig) -> Option<PrivacyPlan> {
        let bounded = self.plan.bounded();
        let strategy = bounded.map(|bounded| bounded.mechanism().strategy());
        PrivacyPlan::with_strategy(config, strategy, self.layout, self.plan.population).ok()
    }

    fn more_per_round(&self) -> Result<String> {
        let (key, what) = match (self.config.user_update.algorithm, self.plan.is_estimate()) {
            (_, true) => ("estimate.users_per_round", "users"),
            (Algorithm::Els, _) => ("[cohort]", "examples"),
            _ => ("[cohort]", "users"),
        };
        let (expected, all) = match self.plan.kept_per_user {
            Some(_) => {
                let all = self.plan.population.total_weight;
                (self.plan.q * all, all)
            }
            None => (self.plan.users_per_round, self.plan.population.users as f64),
        };
        let amplified = self.plan.participation().is_none() && !self.plan.is_estimate();
        if !amplified {
            // The noise is what it was.
            return Ok(format!(
                "{} times as many {what} per round ({key})",
                number(self.factor)
            ));
        }
        let max = all / expected;
        let enough = |more: f64| -> Result<bool> {
            let Some(changed) = self.changed(&with_more(self.config, more)) else {
                return Ok(false);
            };
            Ok(changed.reach()?.is_none_or(|reach| reach >= HOPEFUL))
        };
        // More of the population in a round is less amplification and more noise.
        let (mut less, mut more) = (1.0, self.factor.min(max));
        while more < max && !enough(more)? {
            (less, more) = (more, (1.5 * more).min(max));
        }
        if more >= max && !enough(max)? {
            return Ok(format!(
                "more {what} per round of a larger population (with all {} in every round there is still too much noise)",
                grouped(all as u64)
            ));
        }
        for _ in 0..STEPS {
            let middle = (less * more).sqrt();
            match enough(middle)? {
                true => more = middle,
                false => less = middle,
            }
        }
        Ok(format!(
            "{} times as many {what} per round ({}, {key})",
            number(more),
            grouped((expected * more).ceil() as u64)
        ))
    }

    fn fewer_parameters(&self) -> String {
        // Noise has the norm sigma sqrt(d).
        let enough = (self.plan.layout.len() as f64 / (self.factor * self.factor)).max(1.0);
        format!(
            "at most {} trained parameters instead of {} (a smaller model, or adapters of a public one: `model.lora`)",
            grouped(enough as u64),
            grouped(self.plan.layout.len() as u64)
        )
    }

    /// The epsilon of as much less noise.
    fn larger_epsilon(&self) -> Option<String> {
        if self.plan.is_estimate() || self.plan.client_noise().is_some() {
            return None;
        }
        let mut config = self.config.clone();
        let privacy = config.privacy.as_mut()?;
        privacy.noise_multiplier = Some(self.plan.stated_noise_multiplier() / self.factor);
        (privacy.target_epsilon, privacy.max_epsilon) = (None, None);
        config.schedule.clear();
        let planned = self.changed(&config)?.whole_epsilon().ok()?;
        planned.map(|epsilon| {
            let note = match epsilon > MEANINGLESS_EPSILON {
                true => ", which says close to nothing about any one person",
                false => "",
            };
            format!("epsilon = {}{note}", upper_bound(epsilon))
        })
    }
}

/// The run with `more` times as many users or examples per round.
fn with_more(config: &TaskConfig, more: f64) -> TaskConfig {
    let mut config = config.clone();
    let whole = config.cohort.sampling != Sampling::Poisson;
    let group_size = match config.user_update.algorithm {
        Algorithm::Uls => u64::from(config.user_update.group_size.unwrap_or(1)),
        _ => 1,
    };
    let cohort = &mut config.cohort;
    for count in [&mut cohort.users_per_round, &mut cohort.examples_per_round]
        .into_iter()
        .flatten()
    {
        *count *= more;
        if whole {
            *count = count.floor();
        }
    }
    if let Some(probability) = &mut cohort.sampling_probability {
        *probability = (*probability * more).min(1.0);
    }
    if let Some(budget) = &mut cohort.compute_budget {
        *budget = (*budget as f64 * more) as u64 / group_size * group_size;
    }
    config
}

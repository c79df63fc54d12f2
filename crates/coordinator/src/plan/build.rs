//! Builds a plan from a run file and a population.

use std::sync::{Arc, OnceLock};

use undertone_accounting::participation::Participation;
use undertone_accounting::{Delta, Epsilon, NoiseMultiplier, Recipe, SamplingProbability, calibrate};
use undertone_aggregation::{Estimator, ParamLayout};
use undertone_mechanisms::{IndependentGaussian, Mechanism, NoiseKey, Strategy};

use super::bounded::{self, Bounded};
use super::client_noise::{self, ClientNoisePlan};
use super::estimate::Estimate;
use super::strategy;
use super::{Basis, Phase, Population, PrivacyPlan, Private, StartCost};
use crate::error::{CoordinatorError, Result};
use crate::participation::policy::{Enforcement, Policy};
use crate::sampling::Sampling;
use crate::task::{
    AccountantName, ClipConfig, CohortSize, EstimatorConfig, MechanismConfig, PrivacyConfig, TaskConfig,
};
use undertone_settings::Algorithm;

/// The part of delta that calibration leaves to the sampler's distance from ideal noise, which needs far less.
const SAMPLER_FRACTION: f64 = 1e-9;

/// The largest part by which the noise of a run that was begun may exceed what calibration finds today.
const BEGUN: f64 = 1e-3;

/// The part by which the noise of a run that was begun may be smaller: the last digits of a search.
const LAST_DIGITS: f64 = 1e-7;

/// The noise of a run that was begun, as its files state it.
#[derive(Debug, Clone, Default)]
pub struct Begun {
    /// Strategy of its `mechanism.json`.
    pub strategy: Option<Strategy>,
    /// Noise multiplier of its `mechanism.json`, or without one that of its first round.
    pub noise_multiplier: Option<f64>,
}

impl Begun {
    /// The noise of a `mechanism.json`.
    #[must_use]
    pub fn with(mechanism: &Mechanism) -> Self {
        Self {
            strategy: Some(mechanism.strategy().clone()),
            noise_multiplier: Some(mechanism.noise_multiplier().get()),
        }
    }
}

/// The noise multiplier of a run with a target: the one that was found when it was begun, else the one that is found today.
///
/// A later version may find that less noise reaches the target, or find the same by another way to the last digits. A run goes on as it
/// was begun, and its guarantee follows from that noise. Noise that falls short of the target, or exceeds what calibration finds by more
/// than [`BEGUN`], is not what any version found.
fn as_begun(found: f64, begun: Option<f64>) -> f64 {
    let is_near = |begun: &f64| (1.0 - LAST_DIGITS..=1.0 + BEGUN).contains(&(begun / found));
    begun.filter(is_near).unwrap_or(found)
}

/// The recipe for sampled cohorts: the one that the run file names, or the tightest that is valid for them.
#[must_use]
fn recipe(config: &TaskConfig) -> Recipe {
    let named = config.privacy.as_ref().and_then(|privacy| privacy.accountant);
    match (named, config.cohort.sampling) {
        (Some(AccountantName::Rdp), _) => Recipe::Rdp,
        (Some(AccountantName::Pld), _) => Recipe::Pld,
        (Some(AccountantName::Moments2016), _) => Recipe::Moments2016,
        // No loss distribution is known of a cohort of exact size.
        (None, Sampling::FixedSize) => Recipe::Rdp,
        (None, _) => Recipe::Pld,
    }
}

impl PrivacyPlan {
    /// The plan of a checked task over a population; `read` is the strategy of the file that `privacy.mechanism.file` names,
    /// where it names one.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] when a cohort is larger than the population or the per-layer norms do not match the
    /// model; from the accountant when a target is out of reach.
    pub fn new(
        config: &TaskConfig,
        read: Option<&Strategy>,
        layout: &ParamLayout,
        population: Population,
    ) -> Result<Self> {
        Self::build(
            config,
            layout,
            population,
            (false, None),
            &|mechanism, participation| strategy::strategy(config, mechanism, participation, read),
        )
    }

    /// The plan of a task with this strategy in place of one that is searched for.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for a run that needs a strategy where there is none.
    pub fn with_strategy(
        config: &TaskConfig,
        strategy: Option<&Strategy>,
        layout: &ParamLayout,
        population: Population,
    ) -> Result<Self> {
        let begun = Begun {
            strategy: strategy.cloned(),
            noise_multiplier: None,
        };
        Self::of_begun(config, &begun, layout, population)
    }

    /// The plan of a run that was begun, whatever version began it: its strategy, and its noise where the target allows it.
    ///
    /// # Errors
    /// The errors of [`with_strategy`](Self::with_strategy).
    pub fn of_begun(
        config: &TaskConfig,
        begun: &Begun,
        layout: &ParamLayout,
        population: Population,
    ) -> Result<Self> {
        Self::started(config, begun, layout, population, false)
    }

    /// The plan of a run of an earlier version, which lifted the sums of encoded updates before it added the noise. Its guarantee holds
    /// if every participant followed the encoding.
    ///
    /// # Errors
    /// The errors of [`with_strategy`](Self::with_strategy).
    pub fn of_lifted_sums(
        config: &TaskConfig,
        begun: &Begun,
        layout: &ParamLayout,
        population: Population,
    ) -> Result<Self> {
        Self::started(config, begun, layout, population, true)
    }

    fn started(
        config: &TaskConfig,
        begun: &Begun,
        layout: &ParamLayout,
        population: Population,
        lifted: bool,
    ) -> Result<Self> {
        let noise = begun.noise_multiplier;
        Self::build(config, layout, population, (lifted, noise), &|_, _| {
            begun.strategy.clone().ok_or_else(|| {
                let expected = "the mechanism.json that the run was started with";
                CoordinatorError::missing("privacy.mechanism", expected)
            })
        })
    }

    /// The schema that a run file declares, private or not, with its treatment of violations; `None` where it declares none.
    ///
    /// # Errors
    /// From the accountant's types.
    pub fn policy(&self, config: &TaskConfig) -> Result<Option<Policy>> {
        let (schema, given) = (self.participation(), config.participation);
        let declared = match (schema, given) {
            (None, Some(_)) => Some(bounded::participation(config, 1)?),
            (schema, _) => schema,
        };
        let enforcement = given.map_or(Enforcement::Refuse, |given| given.on_violation);
        Ok(declared.map(|declared| Policy::new(declared, enforcement)))
    }

    fn build(
        config: &TaskConfig,
        layout: &ParamLayout,
        population: Population,
        (lifted, begun): (bool, Option<f64>),
        strategy: &dyn Fn(&MechanismConfig, Participation) -> Result<Strategy>,
    ) -> Result<Self> {
        let users = population.users as f64;
        // Only example-level sampling samples something else than users.
        let kept_per_user = match config.user_update.algorithm {
            Algorithm::Els => config.user_update.group_size,
            _ => None,
        };
        let (sampled_from, what) = match kept_per_user {
            None => (users, "users"),
            Some(_) => (population.total_weight, "kept examples"),
        };
        let (q, sampled) = match config.cohort_size()? {
            CohortSize::Probability(q) => (q, q * sampled_from),
            CohortSize::Count { count, key } if count > sampled_from => {
                let expected =
                    format!("at most the {sampled_from} {what} of the training partition (q <= 1)");
                return Err(CoordinatorError::value(key, expected, count));
            }
            CohortSize::Count { count, .. } => (count / sampled_from, count),
        };
        // PRIVACY: what the run file gives stands for the weight of the population wherever that is asked for.
        let population = match (config.estimator.expected_weight(), kept_per_user) {
            (Some(expected_weight), None) => Population {
                total_weight: expected_weight / q,
                ..population
            },
            _ => population,
        };
        let mean_weight = population.total_weight / users;
        let estimator = match config.estimator {
            EstimatorConfig::FixedDenominator { expected_weight } => Estimator::FixedDenominator {
                expected_weight: expected_weight.unwrap_or(match config.cohort.sampling {
                    // The report goal itself: the declared population has no part in it, nor has its rounding.
                    Sampling::CheckIn => sampled,
                    _ => q * population.total_weight,
                }),
            },
            EstimatorConfig::ClippedDenominator { min_weight } => {
                // PRIVACY: no comparison with the weight of a private population, which follows from what people wrote.
                if min_weight > population.total_weight {
                    let expected = match config.privacy {
                        Some(_) => format!("at most the number of users, {users}"),
                        None => format!("at most the population's weight, {:.1}", population.total_weight),
                    };
                    return Err(CoordinatorError::value(
                        "estimator.min_weight",
                        expected,
                        min_weight,
                    ));
                }
                Estimator::ClippedDenominator {
                    min_weight: q * min_weight,
                }
            }
            EstimatorConfig::Exact => Estimator::Exact,
        };
        let groups = layout.groups().len();
        if let ClipConfig::PerLayer {
            norms: Some(norms), ..
        } = &config.clip
            && norms.len() != groups
        {
            return Err(CoordinatorError::value(
                "clip.norms",
                format!("{groups} norms, one per parameter vector"),
                norms.len(),
            ));
        }
        let mut plan = Self {
            sampling: config.cohort.sampling,
            by_schema: config
                .privacy
                .as_ref()
                .is_some_and(|privacy| privacy.mechanism.is_some())
                || config.encoding_is_noisy(),
            population,
            q,
            users_per_round: sampled.min(users),
            kept_per_user,
            rounds: config.rounds,
            weighted: config.user_update.weight_cap.is_some(),
            estimator,
            clip: config.clip.clone(),
            layout: Arc::new(layout.clone()),
            lane: None,
            encoding: None,
            lifted,
            phases: Vec::new(),
            private: None,
            whole: OnceLock::new(),
        };
        let clip_norm = match &config.clip {
            ClipConfig::None => None,
            ClipConfig::Flat { norm, .. } | ClipConfig::PerLayer { norm: Some(norm), .. } => Some(*norm),
            ClipConfig::Adaptive { initial_norm, .. } => Some(*initial_norm),
            ClipConfig::PerLayer { norms, .. } => {
                Some(norms.iter().flatten().map(|norm| norm * norm).sum::<f64>().sqrt())
            }
        };
        plan.phases.push(Phase {
            from_round: 0,
            clip_norm,
            noise_multiplier: None,
        });
        plan.encoding = client_noise::encoding(config, &plan.encoding_inputs(config, clip_norm)?)?;
        if let Some(privacy) = &config.privacy {
            plan.make_private(config, privacy, mean_weight, strategy, begun)?;
        }
        for point in &config.schedule {
            let before = plan.phases[plan.phases.len() - 1];
            plan.phases.push(Phase {
                from_round: point.from_round,
                clip_norm: point.clip_norm.or(before.clip_norm),
                noise_multiplier: point.noise_multiplier.or(before.noise_multiplier),
            });
        }
        plan.check_noise()?;
        Ok(plan)
    }

    fn make_private(
        &mut self,
        config: &TaskConfig,
        privacy: &PrivacyConfig,
        mean_weight: f64,
        strategy: &dyn Fn(&MechanismConfig, Participation) -> Result<Strategy>,
        begun: Option<f64>,
    ) -> Result<()> {
        let delta = self.delta_of(config)?;
        let estimate = match config.estimate {
            None => None,
            Some(estimate) => Some(Estimate {
                population: estimate.population,
                weight_per_round: estimate.users_per_round * mean_weight,
                rounds: estimate.rounds.unwrap_or(config.rounds),
                delta: estimate.delta.map_or(Ok(delta), Delta::new)?,
            }),
        };
        let (basis, noise_multiplier) = match &privacy.mechanism {
            None if config.encoding_is_noisy() => {
                let participation = bounded::participation(config, self.cohorts_per_epoch())?;
                let client_noise = self
                    .encoding
                    .as_ref()
                    .and_then(|encoding| ClientNoisePlan::new(encoding, participation));
                let client_noise = client_noise.ok_or_else(|| {
                    CoordinatorError::missing("aggregation.encoding", "an encoding with noise")
                })?;
                (
                    Basis::ClientNoise(Box::new(client_noise)),
                    privacy.noise_multiplier.unwrap_or(f64::NAN),
                )
            }
            None => {
                let recipe = recipe(config);
                let noise_multiplier = self.sampled_noise(privacy, delta, recipe, estimate)?;
                let noise_multiplier = match privacy.target_epsilon {
                    Some(_) => as_begun(noise_multiplier, begun),
                    None => noise_multiplier,
                };
                (Basis::Sampling(recipe), noise_multiplier)
            }
            Some(mechanism) => {
                let participation = bounded::participation(config, self.cohorts_per_epoch())?;
                let schema = (strategy(mechanism, participation)?, participation);
                let mut made = self.bounded_noise(config, privacy, &schema, delta, estimate, begun)?;
                // Room changes the grid of the noise, and with it the roundings that the calibration counts.
                while self.make_room_for(&made.0)? {
                    made = self.bounded_noise(config, privacy, &schema, delta, estimate, begun)?;
                }
                let (bounded, noise_multiplier) = made;
                (Basis::Participation(Box::new(bounded)), noise_multiplier)
            }
        };
        self.phases[0].noise_multiplier = Some(noise_multiplier);
        self.private = Some(Private {
            delta,
            target: privacy.target_epsilon,
            max_epsilon: privacy.max_epsilon,
            estimate,
            basis,
            vocabulary: None,
            start: StartCost::default(),
            selection: None,
        });
        if self.bounded().is_none() {
            self.make_room(self.round(0).noise_std)?;
        }
        Ok(())
    }

    /// The delta of the run's guarantees.
    fn delta_of(&self, config: &TaskConfig) -> Result<Delta> {
        let delta = match config.privacy.as_ref().and_then(|privacy| privacy.delta) {
            Some(delta) => delta,
            // K^-1.1, as in Table 1 of [DPLM].
            None => config
                .estimate
                .map_or(self.population.users as f64, |estimate| {
                    estimate.population as f64
                })
                .powf(-1.1),
        };
        if delta >= 1.0 {
            let expected = "a number in (0, 1): the default users^-1.1 needs more than one user";
            return Err(CoordinatorError::value("privacy.delta", expected, delta));
        }
        Ok(Delta::new(delta)?)
    }

    fn encoding_inputs(
        &self,
        config: &TaskConfig,
        clip_norm: Option<f64>,
    ) -> Result<client_noise::EncodingInputs> {
        let schema = match config.encoding_is_noisy() {
            true => Some(bounded::participation(config, self.cohorts_per_epoch())?),
            false => None,
        };
        let users = self.population.users;
        Ok(client_noise::EncodingInputs {
            dim: self.layout.len(),
            clip_norm,
            max_users: match self.sampling {
                Sampling::FixedSize => self.users_per_round as u64,
                Sampling::ShuffledEpochs => users.div_ceil(self.cohorts_per_epoch().max(1)),
                Sampling::DeviceTimers | Sampling::Poisson => users,
                // How many devices join is the service's choice, and the declared population is no figure of any cost.
                Sampling::CheckIn => config
                    .aggregation
                    .as_ref()
                    .and_then(|aggregation| aggregation.max_clients)
                    .unwrap_or(self.users_per_round as u64),
            },
            delta: match config.encoding_is_noisy() {
                true => self.delta_of(config)?,
                // Only noise that users add asks for it.
                false => Delta::new(0.5)?,
            },
            participation: schema,
        })
    }

    /// Refuses noise that the fixed-point grid cannot hold, before any user is trained.
    fn check_noise(&self) -> Result<()> {
        // The key does not matter: nothing is drawn.
        let key = || NoiseKey::from_bytes([0; 32]);
        if self.client_noise().is_some() {
            return Ok(());
        }
        if let Some(bounded) = self.bounded() {
            bounded.sum(0, bounded.first_clip_norm(), key())?;
            return Ok(());
        }
        for phase in &self.phases {
            let round = self.round(phase.from_round);
            if round.noise_multiplier.is_some() {
                let grid = self.noise_grid()?;
                let mechanism = IndependentGaussian::new(grid.noise_std(round.noise_std), key())?;
                mechanism.check(grid.denominator())?;
            }
        }
        Ok(())
    }

    /// The noise multiplier of sampled cohorts: the given one, or the min that reaches the target.
    fn sampled_noise(
        &self,
        privacy: &PrivacyConfig,
        delta: Delta,
        recipe: Recipe,
        estimate: Option<Estimate>,
    ) -> Result<f64> {
        let Some(target) = privacy.target_epsilon else {
            return Ok(privacy.noise_multiplier.unwrap_or(f64::NAN));
        };
        let target_epsilon = Epsilon::new(target)?;
        if let Some(estimate) = estimate {
            let q = SamplingProbability::new(estimate.q(self.mean_weight()))?;
            let target = (target_epsilon, estimate.delta);
            return Ok(calibrate::noise_multiplier(target, q, estimate.rounds, recipe)?.get());
        }
        // Checked here, since the calibration's closure cannot fail.
        let q = SamplingProbability::new(self.q)?;
        // What the sampler's distance from ideal noise takes of delta, a part in 10^9, is left free.
        let target = (
            target_epsilon,
            Delta::new(delta.get() * (1.0 - SAMPLER_FRACTION))?,
        );
        let event = |noise_multiplier| self.event_with(q, noise_multiplier);
        Ok(calibrate::noise_multiplier_of(target, self.rounds, recipe, event)?.get())
    }

    /// The mechanism of a run whose guarantee rests on participation, and the noise multiplier that its run file means:
    /// this run's own, or with `[estimate]` that of the larger run.
    fn bounded_noise(
        &self,
        config: &TaskConfig,
        privacy: &PrivacyConfig,
        (strategy, participation): &(Strategy, Participation),
        delta: Delta,
        estimate: Option<Estimate>,
        begun: Option<f64>,
    ) -> Result<(Bounded, f64)> {
        let first = self.round(0);
        let (Some(sensitivity), Some(clip_norm)) = (first.sensitivity, self.phases[0].clip_norm) else {
            return Err(CoordinatorError::missing("clip", "a clip norm in a private run"));
        };
        let grid = self.noise_grid()?;
        let release = bounded::Release {
            dim: grid.dim(),
            clip_norm,
            sensitivity: grid.sensitivity(sensitivity),
            denominator: grid.denominator(),
            users_per_round: self.users_per_round,
            larger: 1.0,
        };
        // The noise of the larger run, in units of this run's sensitivity.
        let fraction = estimate.map_or(1.0, |larger| clip_norm / larger.weight_per_round / sensitivity);
        let make_for = |larger: f64, noise_multiplier: NoiseMultiplier| {
            let release = bounded::Release { larger, ..release };
            Bounded::new(
                config,
                strategy.clone(),
                *participation,
                release,
                noise_multiplier,
            )
        };
        let make = |noise_multiplier: NoiseMultiplier| make_for(1.0, noise_multiplier);
        let Some(target) = privacy.target_epsilon else {
            let stated = privacy.noise_multiplier.unwrap_or(f64::NAN);
            return Ok((make(NoiseMultiplier::new(stated * fraction)?)?, stated));
        };
        let target = Epsilon::new(target)?;
        let Some(larger) = estimate else {
            let bounded = bounded::calibrate((target, delta), make)?;
            let found = bounded.mechanism().noise_multiplier().get();
            let kept = as_begun(found, begun);
            let bounded = match kept == found {
                true => bounded,
                false => make(NoiseMultiplier::new(kept)?)?,
            };
            return Ok((bounded, kept));
        };
        // The larger run's own noise, in exact arithmetic: an estimate needs no more.
        let larger_run = bounded::calibrate((target, larger.delta), |noise_multiplier| {
            make_for(1.0 / fraction, noise_multiplier)
        })?;
        let found = larger_run.mechanism().noise_multiplier().get();
        let kept = as_begun(found * fraction, begun);
        let stated = match kept == found * fraction {
            true => found,
            false => kept / fraction,
        };
        Ok((make(NoiseMultiplier::new(stated * fraction)?)?, stated))
    }

    /// Number of cohorts per epoch.
    pub(super) fn cohorts_per_epoch(&self) -> u64 {
        (self.population.users as f64 / self.users_per_round).floor() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::as_begun;

    #[test]
    fn a_run_keeps_the_noise_it_was_begun_with_where_its_target_allows_it() {
        assert_eq!(as_begun(2.0, None), 2.0);
        // Less noise is needed today.
        assert_eq!(as_begun(2.0, Some(2.001)), 2.001);
        // The last digits of a search.
        assert_eq!(as_begun(2.0, Some(2.0 - 1e-8)), 2.0 - 1e-8);
        // No version found these.
        for other in [1.999_99, 2.01, 0.0, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(as_begun(2.0, Some(other)), 2.0, "{other}");
        }
    }
}

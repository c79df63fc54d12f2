//! What every round will do to privacy, known before the first one: clip norm, sensitivity, noise, event, and what they
//! add up to.

mod bounded;
mod estimate;
mod spending;

use std::path::Path;

use undertone_accounting::participation::Participation;
use undertone_accounting::{
    Delta, Epsilon, Event, Guarantee, NoiseMultiplier, Recipe, SamplingProbability, calibrate,
};
use undertone_aggregation::{Clipping, Estimator, ParamLayout};
use undertone_mechanisms::{FRACTION_BITS, IndependentGaussian, NoiseKey, Strategy};

use crate::cohort::Sampling;
use crate::config::{AccountantName, ClipConfig, EstimatorConfig, MechanismConfig, PrivacyConfig, RunConfig};
use crate::error::{Result, TrainingError};
use crate::figures::upper_bound;
use crate::record::GuaranteeRecord;

pub use bounded::{Bounded, WholeCost};
use estimate::Estimate;
pub use spending::{Cost, Spending};

/// The population that is sampled from, in numbers that the run treats as public.
///
/// `total_weight` is `W` of \[DPLM\]; the paper, and we, take it as known. See `docs/SHARP_EDGES.md`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Population {
    /// Users, `K`.
    pub users: u64,
    /// `W = sum_k w_k`.
    pub total_weight: f64,
}

/// One round's clip, noise and event.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundPlan {
    /// The bound on every user's update.
    pub clipping: Clipping,
    /// L2 sensitivity of the released average under the sampling scheme's adjacency; `None` without a bound.
    pub sensitivity: Option<f64>,
    /// Noise standard deviation per coordinate of the released average.
    pub noise_std: f64,
    /// `noise_std / sensitivity`; `None` when not private.
    pub noise_multiplier: Option<f64>,
}

/// A run's privacy, before it starts.
#[derive(Debug, Clone)]
pub struct PrivacyPlan {
    sampling: Sampling,
    /// Whether the guarantee rests on a participation schema instead of the sampling.
    by_schema: bool,
    population: Population,
    q: f64,
    users_per_round: f64,
    rounds: u64,
    estimator: Estimator,
    clip: ClipConfig,
    groups: usize,
    parameters: usize,
    /// `(from_round, S, z)` in force from that round on; never empty.
    phases: Vec<Phase>,
    private: Option<Private>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Phase {
    from_round: u64,
    clip_norm: Option<f64>,
    noise_multiplier: Option<f64>,
}

#[derive(Debug, Clone)]
struct Private {
    delta: Delta,
    budget: Option<f64>,
    estimate: Option<Estimate>,
    basis: Basis,
}

/// The part of delta that calibration leaves to the sampler's distance from ideal noise, which needs far less.
const SAMPLER_SHARE: f64 = 1e-9;

/// What the guarantee rests on.
#[derive(Debug, Clone)]
enum Basis {
    /// The sampling of the cohorts; rounds are composed by this recipe.
    Sampling(Recipe),
    /// How often and how far apart one user takes part.
    Participation(Box<Bounded>),
}

impl PrivacyPlan {
    /// The plan of a checked configuration over a population; the run file's relative paths start at `base`.
    ///
    /// # Errors
    /// [`TrainingError::ConfigValue`] when a cohort is larger than the population or the per-layer norms do not match the
    /// model; from the accountant when a target is out of reach.
    pub fn new(
        config: &RunConfig,
        base: &Path,
        layout: &ParamLayout,
        population: Population,
    ) -> Result<Self> {
        Self::build(config, layout, population, &|mechanism, participation| {
            bounded::strategy(config, mechanism, participation, base)
        })
    }

    /// The plan of a run that was started with this strategy.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for a run that needs a strategy where there is none.
    pub fn with_strategy(
        config: &RunConfig,
        strategy: Option<&Strategy>,
        layout: &ParamLayout,
        population: Population,
    ) -> Result<Self> {
        Self::build(config, layout, population, &|_, _| {
            strategy.cloned().ok_or_else(|| {
                let expected = "the mechanism.json that the run was started with";
                TrainingError::value("privacy.mechanism", expected, "none")
            })
        })
    }

    /// The schema that a run file declares, private or not.
    ///
    /// # Errors
    /// From the accountant's types.
    pub fn declared(config: &RunConfig) -> Result<Option<Participation>> {
        match config.participation {
            Some(_) => Ok(Some(bounded::participation(config, 1)?)),
            None => Ok(None),
        }
    }

    fn build(
        config: &RunConfig,
        layout: &ParamLayout,
        population: Population,
        strategy: &dyn Fn(&MechanismConfig, Participation) -> Result<Strategy>,
    ) -> Result<Self> {
        let users = population.users as f64;
        let (q, users_per_round) = match (config.cohort.users_per_round, config.cohort.sampling_probability) {
            (Some(count), _) => (count / users, count),
            (None, q) => (q.unwrap_or(1.0), q.unwrap_or(1.0) * users),
        };
        if q > 1.0 {
            return Err(TrainingError::value(
                "cohort.users_per_round",
                format!(
                    "at most the {} users of the training partition (q <= 1)",
                    population.users
                ),
                users_per_round,
            ));
        }
        let mean_weight = population.total_weight / users;
        let estimator = match config.estimator {
            EstimatorConfig::FixedDenominator => Estimator::FixedDenominator {
                expected_weight: q * population.total_weight,
            },
            EstimatorConfig::ClippedDenominator { min_weight } => {
                if min_weight > population.total_weight {
                    return Err(TrainingError::value(
                        "estimator.min_weight",
                        format!("at most the population's weight, {:.1}", population.total_weight),
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
            return Err(TrainingError::value(
                "clip.norms",
                format!("{groups} norms, one a parameter vector"),
                norms.len(),
            ));
        }
        let mut plan = Self {
            sampling: config.cohort.sampling,
            by_schema: config
                .privacy
                .as_ref()
                .is_some_and(|privacy| privacy.mechanism.is_some()),
            population,
            q,
            users_per_round,
            rounds: config.rounds,
            estimator,
            clip: config.clip.clone(),
            groups,
            parameters: layout.len(),
            phases: Vec::new(),
            private: None,
        };
        let clip_norm = match &config.clip {
            ClipConfig::None => None,
            ClipConfig::Flat { norm } | ClipConfig::PerLayer { norm: Some(norm), .. } => Some(*norm),
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
        if let Some(privacy) = &config.privacy {
            plan.make_private(config, privacy, mean_weight, strategy)?;
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
        config: &RunConfig,
        privacy: &PrivacyConfig,
        mean_weight: f64,
        strategy: &dyn Fn(&MechanismConfig, Participation) -> Result<Strategy>,
    ) -> Result<()> {
        let delta = match privacy.delta {
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
            return Err(TrainingError::value("privacy.delta", expected, delta));
        }
        let estimate = match config.estimate {
            None => None,
            Some(estimate) => Some(Estimate {
                population: estimate.population,
                weight_per_round: estimate.users_per_round * mean_weight,
                rounds: estimate.rounds.unwrap_or(config.rounds),
                delta: Delta::new(estimate.delta.unwrap_or(delta))?,
            }),
        };
        let delta = Delta::new(delta)?;
        let (basis, noise_multiplier) = match &privacy.mechanism {
            None => {
                let recipe = match privacy.accountant {
                    AccountantName::Rdp => Recipe::Rdp,
                    AccountantName::Pld => Recipe::Pld,
                    AccountantName::Moments2016 => Recipe::Moments2016,
                };
                let noise_multiplier = self.sampled_noise(privacy, delta, recipe, estimate)?;
                (Basis::Sampling(recipe), noise_multiplier)
            }
            Some(mechanism) => {
                let participation = bounded::participation(config, self.cohorts_an_epoch())?;
                let strategy = strategy(mechanism, participation)?;
                let (bounded, noise_multiplier) =
                    self.bounded_noise(config, privacy, (strategy, participation), delta, estimate)?;
                (Basis::Participation(Box::new(bounded)), noise_multiplier)
            }
        };
        self.phases[0].noise_multiplier = Some(noise_multiplier);
        self.private = Some(Private {
            delta,
            budget: match (privacy.max_epsilon, privacy.target_epsilon) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            // The budget of a run with [estimate] speaks of the run it stands for, not of this one.
            estimate,
            basis,
        });
        Ok(())
    }

    /// Refuses noise that the fixed-point grid cannot hold, before any user is trained.
    fn check_noise(&self) -> Result<()> {
        // The key does not matter: nothing is drawn.
        let key = || NoiseKey::from_bytes([0; 32]);
        if let Some(bounded) = self.bounded() {
            bounded.sum(0, bounded.first_clip_norm(), key())?;
            return Ok(());
        }
        for phase in &self.phases {
            let round = self.round(phase.from_round);
            if round.noise_multiplier.is_some() {
                let mechanism = IndependentGaussian::new(round.noise_std, key())?;
                mechanism.check(self.estimator.denominator()?)?;
            }
        }
        Ok(())
    }

    /// The noise multiplier of sampled cohorts: the one given, or the least that reaches the target.
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
        let target = (target_epsilon, Delta::new(delta.get() * (1.0 - SAMPLER_SHARE))?);
        let event = |noise_multiplier| self.event_with(q, noise_multiplier);
        Ok(calibrate::noise_multiplier_of(target, self.rounds, recipe, event)?.get())
    }

    /// The mechanism of a run whose guarantee rests on participation, and the noise multiplier that its run file means:
    /// this run's own, or with `[estimate]` that of the larger run.
    fn bounded_noise(
        &self,
        config: &RunConfig,
        privacy: &PrivacyConfig,
        (strategy, participation): (Strategy, Participation),
        delta: Delta,
        estimate: Option<Estimate>,
    ) -> Result<(Bounded, f64)> {
        let first = self.round(0);
        let (Some(sensitivity), Some(clip_norm)) = (first.sensitivity, self.phases[0].clip_norm) else {
            return Err(TrainingError::value(
                "clip.kind",
                "a clip norm in a private run",
                "none",
            ));
        };
        let release = bounded::Release {
            parameters: self.parameters,
            clip_norm,
            sensitivity,
            denominator: self.estimator.denominator()?,
            users_per_round: self.users_per_round,
        };
        // The noise of the larger run, in units of this run's sensitivity.
        let share = estimate.map_or(1.0, |larger| clip_norm / larger.weight_per_round / sensitivity);
        let make = |noise_multiplier: NoiseMultiplier| {
            Bounded::new(config, strategy.clone(), participation, release, noise_multiplier)
        };
        let Some(target) = privacy.target_epsilon else {
            let stated = privacy.noise_multiplier.unwrap_or(f64::NAN);
            return Ok((make(NoiseMultiplier::new(stated * share)?)?, stated));
        };
        let target = Epsilon::new(target)?;
        let Some(larger) = estimate else {
            let bounded = bounded::calibrate((target, delta), make)?;
            let found = bounded.mechanism().noise_multiplier().get();
            return Ok((bounded, found));
        };
        // The larger run's own noise, in exact arithmetic: an estimate needs no more.
        let larger_run = bounded::calibrate((target, larger.delta), make)?;
        let stated = larger_run.mechanism().noise_multiplier().get();
        Ok((make(NoiseMultiplier::new(stated * share)?)?, stated))
    }

    /// Cohorts that the population is cut into for an epoch.
    fn cohorts_an_epoch(&self) -> u64 {
        (self.population.users as f64 / self.users_per_round).floor() as u64
    }

    fn mean_weight(&self) -> f64 {
        self.population.total_weight / self.population.users as f64
    }

    /// Whether the run adds noise at all.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Whether the noise is scaled for a larger run (`[estimate]`).
    #[must_use]
    pub fn is_estimate(&self) -> bool {
        self.private
            .as_ref()
            .is_some_and(|private| private.estimate.is_some())
    }

    /// The estimator of the average.
    #[must_use]
    pub fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// Poisson probability, or cohort size over population.
    #[must_use]
    pub fn sampling_probability(&self) -> f64 {
        self.q
    }

    /// Expected users a round.
    #[must_use]
    pub fn users_per_round(&self) -> f64 {
        self.users_per_round
    }

    /// The population.
    #[must_use]
    pub fn population(&self) -> Population {
        self.population
    }

    /// The delta of all guarantees of the run.
    #[must_use]
    pub fn delta(&self) -> Option<f64> {
        self.private.as_ref().map(|private| private.delta.get())
    }

    /// The mechanism of the run, where its guarantee rests on how often and how far apart one user takes part.
    #[must_use]
    pub fn bounded(&self) -> Option<&Bounded> {
        match &self.private.as_ref()?.basis {
            Basis::Participation(bounded) => Some(bounded),
            Basis::Sampling(_) => None,
        }
    }

    /// What round `round` does.
    #[must_use]
    pub fn round(&self, round: u64) -> RoundPlan {
        let phase = self.phase(round);
        self.round_of(phase, phase.clip_norm)
    }

    /// What round `round` does at another clip norm than the plan's: where adaptive clipping has moved it.
    #[must_use]
    pub fn round_clipped(&self, round: u64, clip_norm: f64) -> RoundPlan {
        self.round_of(self.phase(round), Some(clip_norm))
    }

    fn phase(&self, round: u64) -> &Phase {
        self.phases
            .iter()
            .rev()
            .find(|phase| phase.from_round <= round)
            .unwrap_or(&self.phases[0])
    }

    fn round_of(&self, phase: &Phase, clip_norm: Option<f64>) -> RoundPlan {
        let clipping = match (&self.clip, clip_norm) {
            (ClipConfig::None, _) | (_, None) => Clipping::None,
            (ClipConfig::Flat { .. } | ClipConfig::Adaptive { .. }, Some(clip_norm)) => {
                Clipping::Flat { clip_norm }
            }
            (
                ClipConfig::PerLayer {
                    norms: Some(norms), ..
                },
                Some(clip_norm),
            ) => {
                // A schedule scales the given norms together.
                let total = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
                Clipping::PerLayer {
                    clip_norms: norms.iter().map(|norm| norm * clip_norm / total).collect(),
                }
            }
            (ClipConfig::PerLayer { .. }, Some(clip_norm)) => {
                Clipping::per_layer_equal(clip_norm, self.groups)
            }
        };
        let sensitivity = clipping
            .bound()
            .and_then(|bound| self.sensitivity(bound))
            .map(|sensitivity| self.changes() * sensitivity);
        let (noise_std, noise_multiplier) = match (&self.private, sensitivity) {
            (Some(private), Some(sensitivity)) => self.noise(private, phase, clip_norm, sensitivity),
            _ => (0.0, None),
        };
        RoundPlan {
            clipping,
            sensitivity,
            noise_std,
            noise_multiplier,
        }
    }

    /// Noise per coordinate, and the noise over the sensitivity of this run.
    fn noise(
        &self,
        private: &Private,
        phase: &Phase,
        clip_norm: Option<f64>,
        sensitivity: f64,
    ) -> (f64, Option<f64>) {
        if let Basis::Participation(bounded) = &private.basis {
            let z = bounded.mechanism().noise_multiplier().get();
            let of_sums = bounded
                .sum_noise_multiplier()
                .map_or(f64::NAN, NoiseMultiplier::get);
            return (of_sums * sensitivity, Some(z));
        }
        let (Some(z), Some(clip_norm)) = (phase.noise_multiplier, clip_norm) else {
            return (0.0, None);
        };
        // With [estimate] the noise is that of the larger cohort; this run's own multiplier is what comes out.
        let larger = private.estimate.map(|larger| clip_norm / larger.weight_per_round);
        let std = z * larger.unwrap_or(sensitivity);
        (std, Some(std / sensitivity))
    }

    /// PRIVACY: replacing one user removes one update and adds another, so the sensitivity under replace-one adjacency,
    /// the relation of fixed-size sampling, is twice that of Lemma 1. A participation schema speaks of zeroing one out.
    fn changes(&self) -> f64 {
        if self.sampling == Sampling::FixedSize && !self.by_schema {
            2.0
        } else {
            1.0
        }
    }

    /// The estimator's sensitivity, with room for bringing a data-dependent quotient back onto the fixed-point grid.
    fn sensitivity(&self, bound: f64) -> Option<f64> {
        let lemma = self.estimator.sensitivity(bound)?;
        let Estimator::ClippedDenominator { min_weight } = self.estimator else {
            return Some(lemma);
        };
        // PRIVACY: the denominator grows by the weight that joins, so the quotient moves by 2S/(F+1) at most; truncation
        // adds sqrt(d) steps of the grid. Lemma 1's 2S/F covers both unless F is enormous.
        let grid = f64::exp2(-f64::from(FRACTION_BITS)) * (self.parameters as f64).sqrt();
        Some(lemma.max(2.0 * bound / (min_weight + 1.0) + grid))
    }

    /// The event of a round with this noise multiplier.
    ///
    /// # Errors
    /// From the accountant's types.
    pub fn event(&self, noise_multiplier: Option<f64>) -> Result<Event> {
        let Some(z) = noise_multiplier else {
            return Ok(Event::NonPrivate);
        };
        Ok(self.event_with(SamplingProbability::new(self.q)?, NoiseMultiplier::new(z)?))
    }

    fn event_with(
        &self,
        sampling_probability: SamplingProbability,
        noise_multiplier: NoiseMultiplier,
    ) -> Event {
        match self.sampling {
            Sampling::Poisson => Event::PoissonGaussian {
                sampling_probability,
                noise_multiplier,
            },
            Sampling::FixedSize => Event::FixedSizeGaussian {
                population: self.population.users,
                cohort_size: self.users_per_round as u64,
                noise_multiplier,
            },
            // PRIVACY: these amplify nothing; without privacy.mechanism a private run refuses them before it comes here.
            Sampling::ShuffledEpochs | Sampling::DeviceTimers => Event::NonPrivate,
        }
    }

    /// Refuses a run whose budget does not allow a round, or, where all rounds are one mechanism, all of them.
    ///
    /// # Errors
    /// [`TrainingError::BudgetExceeded`], [`TrainingError::ConfigValue`]; from the accountant.
    pub fn check_budget(&self) -> Result<()> {
        if self.bounded().is_none() {
            return Spending::new(self).check_budget(self, 0, Cost::from(&self.round(0)));
        }
        let budget = self.private.as_ref().filter(|private| private.estimate.is_none());
        let Some((budget, planned)) = budget.and_then(|private| private.budget).zip(self.planned()?) else {
            return Ok(());
        };
        // PRIVACY: written so that a NaN refuses.
        if planned.epsilon <= budget {
            return Ok(());
        }
        Err(TrainingError::value(
            "privacy.max_epsilon",
            format!("at least the {} of all rounds", upper_bound(planned.epsilon)),
            budget,
        ))
    }

    /// The guarantee of all rounds, before they are run; `None` when not private.
    ///
    /// # Errors
    /// From the accountant.
    pub fn planned(&self) -> Result<Option<GuaranteeRecord>> {
        let mut spending = Spending::new(self);
        for (index, phase) in self.phases.iter().enumerate() {
            let end = self
                .phases
                .get(index + 1)
                .map_or(self.rounds, |next| next.from_round.min(self.rounds));
            if phase.from_round < end {
                let cost = Cost::from(&self.round(phase.from_round));
                spending.compose(self, cost, end - phase.from_round)?;
            }
        }
        spending.record(self)
    }
}

impl From<&Guarantee> for GuaranteeRecord {
    fn from(guarantee: &Guarantee) -> Self {
        Self {
            epsilon: guarantee.epsilon.get(),
            delta: guarantee.delta.get(),
            adjacency: guarantee.adjacency.to_string(),
            sampling: guarantee.sampling.to_string(),
            recipe: guarantee.recipe.to_string(),
            rounds: 0,
            population: 0,
            users_per_round: 0.0,
            noise_multiplier: 0.0,
            schema: None,
            sampler_delta: None,
            points: Vec::new(),
        }
    }
}

//! What every round will do to privacy, known before the first one: clip norm, sensitivity, noise, event, and what they
//! add up to.

mod spending;

use undertone_accounting::{
    Accountant, Delta, Epsilon, Event, Guarantee, NoiseMultiplier, Recipe, SamplingProbability, calibrate,
};
use undertone_aggregation::{Clipping, Estimator, ParamLayout};
use undertone_mechanisms::{FRACTION_BITS, IndependentGaussian, NoiseKey};

use crate::cohort::Sampling;
use crate::config::{AccountantName, ClipConfig, EstimatorConfig, PrivacyConfig, RunConfig};
use crate::error::{Result, TrainingError};
use crate::record::GuaranteeRecord;

pub use spending::Spending;

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

#[derive(Debug, Clone, Copy)]
struct Private {
    delta: Delta,
    recipe: Recipe,
    budget: Option<f64>,
    estimate: Option<Estimate>,
}

/// The larger run that noise is scaled for.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    population: u64,
    users_per_round: f64,
    rounds: u64,
    delta: Delta,
}

impl PrivacyPlan {
    /// The plan of a checked configuration over a population.
    ///
    /// # Errors
    /// [`TrainingError::ConfigValue`] when a cohort is larger than the population or the per-layer norms do not match the
    /// model; from the accountant when a target is out of reach.
    pub fn new(config: &RunConfig, layout: &ParamLayout, population: Population) -> Result<Self> {
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
        let mut noise_multiplier = None;
        if let Some(privacy) = &config.privacy {
            let delta = match privacy.delta {
                Some(delta) => delta,
                // K^-1.1, as in Table 1 of [DPLM].
                None => config
                    .estimate
                    .map_or(users, |estimate| estimate.population as f64)
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
                    users_per_round: estimate.users_per_round * mean_weight,
                    rounds: estimate.rounds.unwrap_or(config.rounds),
                    delta: Delta::new(estimate.delta.unwrap_or(delta))?,
                }),
            };
            let private = Private {
                delta: Delta::new(delta)?,
                recipe: match privacy.accountant {
                    AccountantName::Rdp => Recipe::Rdp,
                    AccountantName::Moments2016 => Recipe::Moments2016,
                },
                budget: match (privacy.max_epsilon, privacy.target_epsilon) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                },
                // The budget of a run with [estimate] speaks of the run it stands for, not of this one.
                estimate,
            };
            noise_multiplier = Some(plan.noise_multiplier(privacy, &private)?);
            plan.private = Some(private);
        }
        let clip_norm = match &config.clip {
            ClipConfig::None => None,
            ClipConfig::Flat { norm } | ClipConfig::PerLayer { norm: Some(norm), .. } => Some(*norm),
            ClipConfig::PerLayer { norms, .. } => {
                Some(norms.iter().flatten().map(|norm| norm * norm).sum::<f64>().sqrt())
            }
        };
        plan.phases.push(Phase {
            from_round: 0,
            clip_norm,
            noise_multiplier,
        });
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

    /// Refuses noise that the fixed-point grid cannot hold, before any user is trained.
    fn check_noise(&self) -> Result<()> {
        for phase in &self.phases {
            let round = self.round(phase.from_round);
            if round.noise_multiplier.is_some() {
                // The key does not matter: nothing is drawn.
                let mechanism = IndependentGaussian::new(round.noise_std, NoiseKey::from_bytes([0; 32]))?;
                mechanism.check(self.estimator.denominator()?)?;
            }
        }
        Ok(())
    }

    fn noise_multiplier(&self, privacy: &PrivacyConfig, private: &Private) -> Result<f64> {
        let Some(target) = privacy.target_epsilon else {
            return Ok(privacy.noise_multiplier.unwrap_or(f64::NAN));
        };
        let target_epsilon = Epsilon::new(target)?;
        if let Some(estimate) = private.estimate {
            let q = SamplingProbability::new(estimate.q(self.mean_weight()))?;
            let target = (target_epsilon, estimate.delta);
            return Ok(calibrate::noise_multiplier(target, q, estimate.rounds, private.recipe)?.get());
        }
        // Checked here, since the calibration's closure cannot fail.
        let q = SamplingProbability::new(self.q)?;
        let target = (target_epsilon, private.delta);
        let event = |noise_multiplier| self.event_with(q, noise_multiplier);
        Ok(calibrate::noise_multiplier_of(target, self.rounds, private.recipe, event)?.get())
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
        self.private.is_some_and(|private| private.estimate.is_some())
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
        self.private.map(|private| private.delta.get())
    }

    /// What round `round` does.
    #[must_use]
    pub fn round(&self, round: u64) -> RoundPlan {
        let phase = self
            .phases
            .iter()
            .rev()
            .find(|phase| phase.from_round <= round)
            .unwrap_or(&self.phases[0]);
        let clipping = match (&self.clip, phase.clip_norm) {
            (ClipConfig::None, _) | (_, None) => Clipping::None,
            (ClipConfig::Flat { .. }, Some(clip_norm)) => Clipping::Flat { clip_norm },
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
        // PRIVACY: replacing one user removes one update and adds another, so the sensitivity under replace-one adjacency
        // is twice that of Lemma 1.
        let changes = if self.sampling == Sampling::FixedSize {
            2.0
        } else {
            1.0
        };
        let sensitivity = clipping
            .bound()
            .and_then(|bound| self.sensitivity(bound))
            .map(|s| changes * s);
        let (noise_std, noise_multiplier) =
            match (self.private, phase.noise_multiplier, sensitivity, phase.clip_norm) {
                (Some(private), Some(z), Some(sensitivity), Some(clip_norm)) => {
                    // With [estimate] the noise is that of the larger cohort; this run's own multiplier is what comes out.
                    let std = z * private
                        .estimate
                        .map_or(sensitivity, |larger| clip_norm / larger.users_per_round);
                    (std, Some(std / sensitivity))
                }
                _ => (0.0, None),
            };
        RoundPlan {
            clipping,
            sensitivity,
            noise_std,
            noise_multiplier,
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
        }
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
                spending.compose(
                    self,
                    self.round(phase.from_round).noise_multiplier,
                    end - phase.from_round,
                )?;
            }
        }
        spending.record(self)
    }

    /// The guarantee of the larger run that this one stands for; `None` without `[estimate]`.
    ///
    /// # Errors
    /// From the accountant.
    pub fn estimated(&self) -> Result<Option<GuaranteeRecord>> {
        let Some((private, estimate)) = self
            .private
            .and_then(|private| Some((private, private.estimate?)))
        else {
            return Ok(None);
        };
        let q = estimate.q(self.mean_weight());
        let mut accountant = Accountant::new(private.recipe);
        for (index, phase) in self.phases.iter().enumerate() {
            let last = index + 1 == self.phases.len();
            let end = if last {
                estimate.rounds
            } else {
                self.phases[index + 1].from_round.min(estimate.rounds)
            };
            if let (Some(z), true) = (phase.noise_multiplier, phase.from_round < end) {
                let event = Event::PoissonGaussian {
                    sampling_probability: SamplingProbability::new(q)?,
                    noise_multiplier: NoiseMultiplier::new(z)?,
                };
                accountant.compose(&event, end - phase.from_round)?;
            }
        }
        let guarantee = accountant.guarantee(estimate.delta)?;
        Ok(Some(GuaranteeRecord {
            rounds: estimate.rounds,
            population: estimate.population,
            users_per_round: q * estimate.population as f64,
            noise_multiplier: self.phases[0].noise_multiplier.unwrap_or(f64::NAN),
            ..GuaranteeRecord::from(&guarantee)
        }))
    }
}

impl Estimate {
    /// The larger run's sampling probability; `users_per_round` is a weight here, a count in the run file.
    fn q(&self, mean_weight: f64) -> f64 {
        (self.users_per_round / mean_weight / self.population as f64).min(1.0)
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
        }
    }
}

//! The privacy plan: clip norm, sensitivity, noise and event of each round, and the guarantee that they add up to, known
//! before the first round.

mod bounded;
mod budget;
mod build;
mod client_noise;
mod estimate;
mod lane;
mod noise_grid;
mod outlook;
mod population;
mod selection;
mod spending;
mod start;
mod strategy;
mod sum;
mod vocabulary;

use std::sync::{Arc, OnceLock};

use undertone_accounting::participation::Participation;
use undertone_accounting::{
    Adjacency, Delta, Event, Guarantee, NoiseMultiplier, Recipe, SamplingProbability,
};
use undertone_aggregation::{Clipping, Encoding, Estimator, ParamLayout};
use undertone_mechanisms::FRACTION_BITS;

use crate::error::{CoordinatorError, Result};
use crate::record::GuaranteeRecord;
use crate::sampling::Sampling;
use crate::task::ClipConfig;
use crate::trainings::Training;
use undertone_present::numbers::upper_bound;

pub use bounded::{Bounded, WholeCost};
pub use build::Begun;
pub use client_noise::ClientNoisePlan;
use estimate::Estimate;
pub use lane::{LaneBounds, LaneSize, LaneSum};
pub use population::{PopulationBudget, PopulationCost};
pub use selection::{SecretNumber, SelectionCost};
pub use spending::{Cost, Spending};
pub use start::StartCost;
pub use vocabulary::VocabularyCost;

/// The population that is sampled from, in numbers that the run treats as public.
///
/// See "The population is part of the promise" in `docs/guide/sharp-edges.md`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Population {
    /// Number of users, `K`.
    pub users: u64,
    /// Total weight `W`. It is the number of users without weights. With example-level sampling it is the number of examples that the
    /// run file gives ([`declared_examples`](crate::outlet::declared_examples)), or the kept examples of all users, `|D_sub|`. With
    /// weights it is `sum_k w_k` in a run that is not private, and otherwise the expected weight of the run file over `q`.
    pub total_weight: f64,
}

/// The clip norm, noise and event of one round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundPlan {
    /// The bound on every user's update.
    pub clipping: Clipping,
    /// L2 sensitivity of the released average under the sampling scheme's adjacency, with example-level sampling that to
    /// one example; `None` without a bound.
    pub sensitivity: Option<f64>,
    /// Noise standard deviation per coordinate of the released average.
    pub noise_std: f64,
    /// `noise_std / sensitivity`; `None` when not private.
    pub noise_multiplier: Option<f64>,
}

/// The privacy of a run, before it starts.
#[derive(Debug, Clone)]
pub struct PrivacyPlan {
    sampling: Sampling,
    /// `true` if the guarantee rests on a participation schema instead of the sampling.
    by_schema: bool,
    population: Population,
    q: f64,
    users_per_round: f64,
    /// Example-level sampling: `G`, the max number of kept examples per user. `q` is then an example's.
    kept_per_user: Option<u32>,
    rounds: u64,
    /// `true` if users have different weights.
    weighted: bool,
    estimator: Estimator,
    clip: ClipConfig,
    layout: Arc<ParamLayout>,
    /// The coordinates of an audit, behind those of the model.
    lane: Option<lane::Lane>,
    /// The encoding of updates as integers, if not in fixed point.
    encoding: Option<Encoding>,
    /// `true` for the ledgers of earlier versions, which lifted the sum of encoded updates before they added the noise.
    lifted: bool,
    /// `(from_round, S, z)` in force from that round on; never empty.
    phases: Vec<Phase>,
    private: Option<Private>,
    /// Epsilon of all rounds, once it was asked for.
    whole: OnceLock<Option<f64>>,
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
    /// `target_epsilon`: the target of the training alone.
    target: Option<f64>,
    /// `max_epsilon`: the budget for every use of the users' text, including the choice of the words.
    max_epsilon: Option<f64>,
    estimate: Option<Estimate>,
    basis: Basis,
    vocabulary: Option<VocabularyCost>,
    start: StartCost,
    /// The private sweep that the run is a candidate of.
    selection: Option<SelectionCost>,
}

/// The basis of the guarantee.
#[derive(Debug, Clone)]
enum Basis {
    /// The sampling of the cohorts; rounds are composed by this recipe.
    Sampling(Recipe),
    /// The number of participations of one user, and the rounds between them.
    Participation(Box<Bounded>),
    /// The noise that clients add, and the number of participations of one user.
    ClientNoise(Box<ClientNoisePlan>),
}

impl PrivacyPlan {
    fn mean_weight(&self) -> f64 {
        self.population.total_weight / self.population.users as f64
    }

    /// `true` if the run adds noise.
    #[must_use]
    pub(crate) fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// `true` if the noise is scaled for a larger run (`[estimate]`).
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

    /// The Poisson probability of a user, or of an example with example-level sampling, or the cohort size over the population.
    #[must_use]
    pub fn sampling_probability(&self) -> f64 {
        self.q
    }

    /// Expected users per round; an upper bound with example-level sampling.
    #[must_use]
    pub fn users_per_round(&self) -> f64 {
        self.users_per_round
    }

    /// Example-level sampling: `G`, the max number of kept examples per user.
    #[must_use]
    pub fn kept_per_user(&self) -> Option<u32> {
        self.kept_per_user
    }

    /// The layout of the updates.
    #[must_use]
    pub fn layout(&self) -> Arc<ParamLayout> {
        self.layout.clone()
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

    /// The neighbouring relation of every guarantee of the run.
    #[must_use]
    pub fn adjacency(&self) -> Adjacency {
        match self.sampling {
            _ if self.by_schema => Adjacency::ZeroOut,
            Sampling::Poisson => Adjacency::AddOrRemoveOne,
            _ => Adjacency::ReplaceOne,
        }
    }

    /// Adds the cost of words that were chosen privately; it counts towards `privacy.max_epsilon`.
    ///
    /// The cost must be stated under the relation of the plan, [`adjacency`](Self::adjacency).
    #[must_use]
    pub fn with_vocabulary(mut self, cost: Option<VocabularyCost>) -> Self {
        if let (Some(private), Some(cost)) = (&mut self.private, cost) {
            private.vocabulary = Some(cost);
        }
        self
    }

    /// The cost of the private choice of the words, where they were chosen privately.
    #[must_use]
    pub fn vocabulary(&self) -> Option<&VocabularyCost> {
        self.private.as_ref()?.vocabulary.as_ref()
    }

    /// The reason for which the private words have no guarantee, where they have none.
    #[must_use]
    pub fn vocabulary_warning(&self) -> Option<&'static str> {
        let words = self.vocabulary().filter(|words| !words.is_known());
        words.map(|_| budget::SEEDED_WORDS)
    }

    /// Adds the trainings of the initial model, for a run over the text with this name. Their cost to the same users counts
    /// towards `privacy.max_epsilon`.
    #[must_use]
    pub fn with_start(mut self, trainings: &[Training], source_sha256: &str) -> Self {
        let adjacency = self.adjacency();
        if let Some(private) = &mut self.private {
            private.start = StartCost::new(trainings, source_sha256, adjacency);
        }
        self
    }

    /// The cost of the initial model; `None` when not private.
    #[must_use]
    pub fn start(&self) -> Option<&StartCost> {
        Some(&self.private.as_ref()?.start)
    }

    /// The observed guarantee with that of the private words; `None` without private words and where they have no guarantee.
    #[must_use]
    pub(crate) fn with_words(&self, observed: &GuaranteeRecord) -> Option<GuaranteeRecord> {
        self.vocabulary()?.with(observed)
    }

    /// The observed guarantee with those of the private words and of the initial model's trainings on the same source; `None`
    /// without such trainings, and where no guarantee of everything together can be stated.
    #[must_use]
    pub fn with_initial_model(&self, observed: &GuaranteeRecord) -> Option<GuaranteeRecord> {
        let private = self.private.as_ref()?;
        let start = &private.start;
        if !start.is_counted() || private.uncountable().is_some() {
            return None;
        }
        let together = self.with_words(observed).unwrap_or_else(|| observed.clone());
        let recipe = format!("{}; initial model: as its file states", together.recipe);
        Some(together.composed_with(start.epsilon(), start.delta(), &recipe))
    }

    /// The mechanism of the run, where its guarantee rests on a participation schema.
    #[must_use]
    pub fn bounded(&self) -> Option<&Bounded> {
        match &self.private.as_ref()?.basis {
            Basis::Participation(bounded) => Some(bounded),
            Basis::Sampling(_) | Basis::ClientNoise(_) => None,
        }
    }

    /// The noise that users add, where its guarantee rests on that.
    #[must_use]
    pub fn client_noise(&self) -> Option<&ClientNoisePlan> {
        match &self.private.as_ref()?.basis {
            Basis::ClientNoise(client_noise) => Some(client_noise),
            Basis::Sampling(_) | Basis::Participation(_) => None,
        }
    }

    /// The schema that the guarantee rests on, where it rests on one.
    #[must_use]
    pub fn participation(&self) -> Option<Participation> {
        match &self.private.as_ref()?.basis {
            Basis::Participation(bounded) => Some(bounded.mechanism().participation()),
            Basis::ClientNoise(client_noise) => Some(client_noise.participation()),
            Basis::Sampling(_) => None,
        }
    }

    /// The encoding of updates as integers, where the run file asks for one.
    #[must_use]
    pub fn encoding(&self) -> Option<&Encoding> {
        self.encoding.as_ref()
    }

    /// The plan of round `round`.
    #[must_use]
    pub fn round(&self, round: u64) -> RoundPlan {
        let phase = self.phase(round);
        self.round_of(phase, phase.clip_norm)
    }

    /// The plan of round `round` at a different clip norm than the planned one, which adaptive clipping has moved.
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
                Clipping::per_layer_equal(clip_norm, self.layout.groups().len())
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
        if let (Basis::ClientNoise(client_noise), Estimator::FixedDenominator { expected_weight }) =
            (&private.basis, self.estimator)
        {
            let std = client_noise.noise_std() / expected_weight;
            return (std, Some(std / sensitivity));
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
        // PRIVACY: rounding makes updates longer than the clip norm; 1 for fixed point.
        let inflation = noise_grid::inflation(self.encoding.as_ref(), self.lifted);
        let lemma = self.estimator.sensitivity(bound)? * inflation;
        let Estimator::ClippedDenominator { min_weight } = self.estimator else {
            return Some(lemma);
        };
        // PRIVACY: the denominator grows by the weight that joins, so the quotient moves by 2S/(F+1) at most; truncation
        // adds sqrt(d) steps of the grid. Lemma 1's 2S/F covers both unless F is enormous.
        let grid = f64::exp2(-f64::from(FRACTION_BITS)) * (self.layout.len() as f64).sqrt();
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
        match (self.sampling, self.kept_per_user) {
            (Sampling::Poisson, Some(group_size)) => Event::ExampleLevelSampling {
                group_size,
                sampling_probability,
                noise_multiplier,
            },
            (Sampling::Poisson, None) => Event::PoissonGaussian {
                sampling_probability,
                noise_multiplier,
            },
            (Sampling::FixedSize, _) => Event::FixedSizeGaussian {
                population: self.population.users,
                cohort_size: self.users_per_round as u64,
                noise_multiplier,
            },
            // PRIVACY: these amplify nothing; without privacy.mechanism a private run refuses them before it comes here.
            (Sampling::ShuffledEpochs | Sampling::DeviceTimers | Sampling::CheckIn, _) => Event::NonPrivate,
        }
    }

    /// Refuses a run whose budget does not allow a round, or, where all rounds are one mechanism, all of them.
    ///
    /// # Errors
    /// [`CoordinatorError::BudgetExceeded`], [`CoordinatorError::ConfigValue`]; from the accountant.
    pub fn check_budget(&self) -> Result<()> {
        if self.bounded().is_some() {
            return self.check_whole_budget();
        }
        if let Some(private) = &self.private {
            private.check_countable()?;
        }
        Spending::new(self).check_budget(self, 0, Cost::from(&self.round(0)))
    }

    /// Refuses a plan whose budget does not allow all of its rounds, whatever its guarantee rests on. A task of the service is
    /// activated for all of its rounds.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`]; from the accountant.
    pub(crate) fn check_whole_budget(&self) -> Result<()> {
        if let Some(private) = &self.private {
            private.check_countable()?;
        }
        let planned = self.planned()?;
        // PRIVACY: noise so small that no epsilon can be stated exceeds every budget.
        let epsilon = planned.map_or(f64::INFINITY, |planned| planned.epsilon);
        let private = self.private.as_ref().filter(|private| private.has_budget());
        let Some(excess) = private.and_then(|private| private.excess(epsilon)) else {
            return Ok(());
        };
        let all = match (excess.vocabulary > 0.0, excess.initial_model > 0.0) {
            (true, true) => "all rounds, the private choice of the words and the initial model",
            (true, false) => "all rounds and the private choice of the words",
            (false, true) => "all rounds and the initial model",
            (false, false) => "all rounds",
        };
        Err(CoordinatorError::value(
            "privacy.max_epsilon",
            format!("at least the {} of {all}", upper_bound(excess.epsilon)),
            excess.budget,
        ))
    }

    /// Epsilon of all rounds, computed once; `None` when not private, or where none can be stated.
    fn whole_epsilon(&self) -> Result<Option<f64>> {
        if let Some(known) = self.whole.get() {
            return Ok(*known);
        }
        let found = self.spent_by_all()?.epsilon(self)?;
        Ok(*self.whole.get_or_init(|| found))
    }

    /// The guarantee of all rounds, before they are run; `None` when not private.
    ///
    /// # Errors
    /// From the accountant.
    pub fn planned(&self) -> Result<Option<GuaranteeRecord>> {
        self.spent_by_all()?.record(self)
    }

    fn spent_by_all(&self) -> Result<Spending> {
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
        Ok(spending)
    }
}

impl GuaranteeRecord {
    /// This guarantee composed with a second one for the same users under the same relation, by basic composition.
    fn composed_with(&self, epsilon: f64, delta: f64, recipe: &str) -> Self {
        let suffix = "; basic composition";
        let recipe = recipe.replace(suffix, "") + suffix;
        Self {
            epsilon: self.epsilon + epsilon,
            delta: self.delta + delta,
            recipe,
            points: Vec::new(),
            ..self.clone()
        }
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
            group_size: None,
            noise_multiplier: 0.0,
            schema: None,
            sampler_delta: None,
            points: Vec::new(),
        }
    }
}

//! The spending of a run: the accountant, fed with the rounds that were really made.

use undertone_accounting::participation::Participation;
use undertone_accounting::{Accountant, AccountingError, Delta, Epsilon, Guarantee};
use undertone_mechanisms::{IndependentGaussian, MechanismError, NoiseKey, SamplerDistance};

use super::{Basis, PrivacyPlan, RoundPlan, WholeCost};
use crate::error::{CoordinatorError, Result};
use crate::record::{GuaranteePoint, GuaranteeRecord, LedgerEntry};

/// Deltas that reports state besides the run's own.
const OTHER_DELTAS: [f64; 4] = [1e-5, 1e-6, 1e-8, 1e-10];

/// The cost that a round adds to the spending.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Noise over sensitivity; `None` when not private.
    pub noise_multiplier: Option<f64>,
    /// Noise per coordinate of the average.
    pub noise_std: f64,
    /// The bound on every user's update.
    pub clip_norm: Option<f64>,
}

impl From<&RoundPlan> for Cost {
    fn from(plan: &RoundPlan) -> Self {
        Self {
            noise_multiplier: plan.noise_multiplier,
            noise_std: plan.noise_std,
            clip_norm: plan.clipping.bound(),
        }
    }
}

impl From<&LedgerEntry> for Cost {
    fn from(entry: &LedgerEntry) -> Self {
        Self {
            noise_multiplier: entry.noise_multiplier,
            noise_std: entry.noise_std,
            clip_norm: entry.clip_norm,
        }
    }
}

/// The spending of the rounds so far.
#[derive(Debug, Clone)]
pub struct Spending {
    rounds: u64,
    /// Number of rounds in which users may have taken part: the rounds, and one more after attempts without a release.
    attempted: u64,
    first_noise_multiplier: Option<f64>,
    /// `true` if each round cost what the plan says of it, one after the other from the first on.
    as_planned: bool,
    spent: Spent,
}

#[derive(Debug, Clone)]
enum Spent {
    Nothing,
    /// The spending of sampled cohorts.
    Sampled {
        accountant: Accountant,
        sampler: SamplerDistance,
    },
    /// The spending of users who keep to this schema; the clip norms are those of the segments so far.
    Bounded {
        participation: Participation,
        clip_norms: Vec<f64>,
    },
}

impl Spending {
    /// The spending before the first round.
    #[must_use]
    pub fn new(plan: &PrivacyPlan) -> Self {
        let spent = match plan.private.as_ref().map(|private| &private.basis) {
            None => Spent::Nothing,
            Some(Basis::Sampling(recipe)) => Spent::Sampled {
                accountant: Accountant::new(*recipe),
                sampler: SamplerDistance::NONE,
            },
            Some(Basis::Participation(bounded)) => Spent::Bounded {
                participation: bounded.mechanism().participation(),
                clip_norms: Vec::new(),
            },
            Some(Basis::ClientNoise(client_noise)) => Spent::Bounded {
                participation: client_noise.participation(),
                clip_norms: Vec::new(),
            },
        };
        Self {
            rounds: 0,
            attempted: 0,
            first_noise_multiplier: None,
            as_planned: true,
            spent,
        }
    }

    /// This spending under a schema other than the declared one: the observed one, or the one that a violation has widened.
    #[must_use]
    pub fn under(mut self, schema: Participation) -> Self {
        if let Spent::Bounded { participation, .. } = &mut self.spent {
            *participation = schema;
            self.as_planned = false;
        }
        self
    }

    /// The schema to account for, where there is one.
    #[must_use]
    pub fn participation(&self) -> Option<Participation> {
        match &self.spent {
            Spent::Bounded { participation, .. } => Some(*participation),
            _ => None,
        }
    }

    /// Adds rounds of this cost.
    ///
    /// # Errors
    /// From the accountant.
    pub fn compose(&mut self, plan: &PrivacyPlan, cost: Cost, rounds: u64) -> Result<()> {
        match &mut self.spent {
            Spent::Nothing => {}
            Spent::Sampled { accountant, sampler } => {
                accountant.compose(&plan.event(cost.noise_multiplier)?, rounds)?;
                if cost.noise_multiplier.is_some() {
                    // The key does not matter: nothing is drawn.
                    let (grid, key) = (plan.noise_grid()?, NoiseKey::from_bytes([0; 32]));
                    let mechanism = IndependentGaussian::new(grid.noise_std(cost.noise_std), key)?;
                    let round = mechanism.sampler_distance(grid.denominator(), grid.dim())?;
                    *sampler += round.times(rounds);
                }
            }
            Spent::Bounded { clip_norms, .. } => {
                let begun = |bounded: &super::Bounded| bounded.segment_of(self.rounds) + 1;
                if let (Some(bounded), Some(clip_norm)) = (plan.bounded(), cost.clip_norm)
                    && clip_norms.len() < begun(bounded)
                {
                    clip_norms.resize(begun(bounded), clip_norm);
                }
            }
        }
        self.first_noise_multiplier = self.first_noise_multiplier.or(cost.noise_multiplier);
        self.as_planned &= rounds == 1 && self.is_next(plan, cost);
        self.rounds += rounds;
        self.attempted = self.rounds;
        Ok(())
    }

    /// Number of rounds so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Adds attempts after the last round that made no release. Only noise that clients add makes them cost anything: the server
    /// sees their sums.
    pub fn attempt(&mut self) {
        self.attempted = self.rounds + 1;
        self.as_planned = false;
    }

    /// This spending with all further rounds that plan and budget allow.
    ///
    /// # Errors
    /// From the accountant.
    pub(crate) fn completed(&self, plan: &PrivacyPlan) -> Result<Self> {
        let left = plan.rounds.saturating_sub(self.rounds);
        let all = self.with_rounds(plan, left)?;
        // All rounds of one mechanism were checked before the first.
        let budget = plan.private.as_ref().filter(|private| private.has_budget());
        let Some(private) = budget.filter(|_| plan.bounded().is_none()) else {
            return Ok(all);
        };
        let within = |spending: &Self| -> Result<bool> {
            let epsilon = spending.epsilon(plan)?.unwrap_or(f64::INFINITY);
            Ok(private.excess(epsilon).is_none())
        };
        if within(&all)? {
            return Ok(all);
        }
        let (mut admitted, mut refused) = (0, left);
        while refused - admitted > 1 {
            let middle = admitted + (refused - admitted) / 2;
            match within(&self.with_rounds(plan, middle)?)? {
                true => admitted = middle,
                false => refused = middle,
            }
        }
        self.with_rounds(plan, admitted)
    }

    /// This spending with more rounds of the plan.
    fn with_rounds(&self, plan: &PrivacyPlan, rounds: u64) -> Result<Self> {
        let (mut spending, end) = (self.clone(), self.rounds + rounds);
        while spending.rounds < end {
            let from = spending.rounds;
            let next = plan.phases.iter().map(|phase| phase.from_round);
            let next = next.filter(|&start| start > from).min().unwrap_or(end);
            spending.compose(plan, Cost::from(&plan.round(from)), next.min(end) - from)?;
        }
        Ok(spending)
    }

    /// `true` if each round so far cost what the plan says of it, and plan and budget allow all others.
    ///
    /// # Errors
    /// From the accountant.
    pub(crate) fn is_part_of_plan(&self, plan: &PrivacyPlan) -> Result<bool> {
        let Some(private) = &plan.private else {
            return Ok(self.as_planned);
        };
        if !self.as_planned || !private.has_budget() {
            return Ok(self.as_planned);
        }
        Ok(plan
            .whole_epsilon()?
            .is_some_and(|whole| private.excess(whole).is_none()))
    }

    /// `true` if no release and no sum of an attempt was seen.
    pub(crate) fn is_nothing(&self, plan: &PrivacyPlan) -> bool {
        match plan.client_noise() {
            Some(_) => self.attempted == 0,
            None => self.rounds == 0,
        }
    }

    /// `true` if this is the cost that the plan gives the next round.
    fn is_next(&self, plan: &PrivacyPlan, cost: Cost) -> bool {
        self.rounds < plan.rounds && cost == Cost::from(&plan.round(self.rounds))
    }

    /// Epsilon so far at the run's delta; `None` when not private, or where none can be stated.
    ///
    /// # Errors
    /// From the accountant.
    pub fn epsilon(&self, plan: &PrivacyPlan) -> Result<Option<f64>> {
        let Some(private) = &plan.private else {
            return Ok(None);
        };
        if self.is_nothing(plan) {
            return Ok(Some(0.0));
        }
        let guarantee = self.curve(plan)?.at(private.delta)?;
        Ok(guarantee.map(|guarantee| guarantee.epsilon.get()))
    }

    /// The guarantee of the spending at any delta.
    fn curve(&self, plan: &PrivacyPlan) -> Result<Curve<'_>> {
        Ok(match (&self.spent, plan.bounded()) {
            (Spent::Sampled { accountant, sampler }, _) => Curve::Sampled(accountant, *sampler),
            (
                Spent::Bounded {
                    participation,
                    clip_norms,
                },
                Some(bounded),
            ) => Curve::Whole(bounded.cost(self.rounds, *participation, clip_norms)?),
            (Spent::Bounded { participation, .. }, None) => match plan.client_noise() {
                Some(client_noise) => {
                    Curve::ClientNoise(Box::new(client_noise.accountant(self.attempted, *participation)?))
                }
                None => Curve::Nothing,
            },
            _ => Curve::Nothing,
        })
    }

    /// The Renyi divergences of the spending of sampled cohorts, and the distance of its samples from ideal ones.
    ///
    /// # Errors
    /// A spending that rests on no sampling; from the accountant.
    pub(super) fn divergences(&self, orders: &[f64]) -> Result<(Vec<f64>, SamplerDistance)> {
        match &self.spent {
            Spent::Sampled { accountant, sampler } => Ok((accountant.curve(orders)?, *sampler)),
            Spent::Nothing | Spent::Bounded { .. } => {
                let expected = "a guarantee that rests on sampling";
                Err(CoordinatorError::value("privacy", expected, "another"))
            }
        }
    }

    /// Refuses a round that would bring epsilon over the budget.
    ///
    /// # Errors
    /// [`CoordinatorError::BudgetExceeded`]; from the accountant: a check that cannot be evaluated refuses the round too.
    pub fn check_budget(&self, plan: &PrivacyPlan, round: u64, cost: Cost) -> Result<()> {
        let Some(private) = plan.private.as_ref().filter(|private| private.has_budget()) else {
            return Ok(());
        };
        // PRIVACY: what holds for all rounds together holds for the first of them, as long as they are the plan's. One question
        // to the accountant for the whole run instead of one in every round.
        if self.as_planned
            && self.is_next(plan, cost)
            && plan
                .whole_epsilon()?
                .is_some_and(|whole| private.excess(whole).is_none())
        {
            return Ok(());
        }
        let mut next = self.clone();
        next.compose(plan, cost, 1)?;
        let epsilon = next.epsilon(plan)?.unwrap_or(f64::INFINITY);
        let Some(excess) = private.excess(epsilon) else {
            return Ok(());
        };
        let with_words = private.vocabulary.as_ref().filter(|_| excess.vocabulary > 0.0);
        let with_start = Some(&private.start).filter(|_| excess.initial_model > 0.0);
        Err(CoordinatorError::BudgetExceeded {
            round,
            next: excess.epsilon,
            budget: excess.budget,
            spent: self.epsilon(plan)?.unwrap_or(0.0) + excess.vocabulary + excess.initial_model,
            delta: private.delta.get()
                + with_words.map_or(0.0, super::VocabularyCost::delta)
                + with_start.map_or(0.0, super::StartCost::delta),
            vocabulary: excess.vocabulary,
            initial_model: excess.initial_model,
        })
    }

    /// Refuses spending beyond the budget, which no run reaches.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`]; from the accountant.
    pub fn check_spent(&self, plan: &PrivacyPlan) -> Result<()> {
        let Some(private) = plan.private.as_ref() else {
            return Ok(());
        };
        private.check_countable()?;
        if !private.has_budget() || self.is_nothing(plan) {
            return Ok(());
        }
        let spent = self.epsilon(plan)?.unwrap_or(f64::INFINITY);
        // Computed again on another machine, the last digits may differ.
        match private.excess(spent * (1.0 - 1e-7)) {
            None => Ok(()),
            Some(excess) => Err(CoordinatorError::value(
                "privacy.max_epsilon, privacy.target_epsilon",
                format!("at least the {} that was spent", excess.epsilon),
                excess.budget,
            )),
        }
    }

    /// The guarantee of what was composed, as it is written to `privacy.json`; `None` when not private, nothing was spent, or
    /// no epsilon can be stated.
    ///
    /// # Errors
    /// From the accountant.
    pub fn record(&self, plan: &PrivacyPlan) -> Result<Option<GuaranteeRecord>> {
        if self.is_nothing(plan) {
            return Ok(None);
        }
        let Some(private) = &plan.private else {
            return Ok(None);
        };
        let curve = self.curve(plan)?;
        let Some(guarantee) = curve.at(private.delta)? else {
            return Ok(None);
        };
        let points = other_points(private.delta, |delta| curve.at(delta))?;
        let mut record = GuaranteeRecord {
            rounds: self.rounds,
            population: plan.population.users,
            users_per_round: plan.users_per_round,
            group_size: plan.kept_per_user,
            noise_multiplier: self
                .first_noise_multiplier
                .or(plan.round(0).noise_multiplier)
                .unwrap_or(f64::NAN),
            sampler_delta: curve.sampler_delta(guarantee.epsilon),
            points,
            ..GuaranteeRecord::from(&guarantee)
        };
        if let (Some(bounded), Some(participation)) = (plan.bounded(), self.participation()) {
            record.schema = Some(bounded.record(self.rounds, participation)?);
        }
        if let (Some(client_noise), Some(participation)) = (plan.client_noise(), self.participation()) {
            let times = client_noise.times(self.attempted, participation);
            record.recipe = format!("{}; {times} of the rounds per user at most", record.recipe);
        }
        Ok(Some(record))
    }
}

/// The points of a guarantee's curve beside the one at its own delta.
pub(super) fn other_points(
    own: Delta,
    at: impl Fn(Delta) -> Result<Option<Guarantee>>,
) -> Result<Vec<GuaranteePoint>> {
    let mut points = Vec::new();
    for delta in OTHER_DELTAS.into_iter().filter(|delta| *delta != own.get()) {
        points.extend(at(Delta::new(delta)?)?.map(|guarantee| GuaranteePoint {
            delta,
            epsilon: guarantee.epsilon.get(),
        }));
    }
    Ok(points)
}

/// The guarantee of the spending at any delta.
enum Curve<'a> {
    Nothing,
    Sampled(&'a Accountant, SamplerDistance),
    Whole(WholeCost),
    /// The accountant of client noise, whose integers are drawn exactly.
    ClientNoise(Box<Accountant>),
}

impl Curve<'_> {
    /// The delta that the distance of the samples from ideal ones adds.
    fn sampler_delta(&self, epsilon: Epsilon) -> Option<f64> {
        match self {
            Self::Nothing | Self::ClientNoise(_) => None,
            Self::Sampled(_, sampler) => Some(sampler.delta(epsilon)),
            Self::Whole(cost) => Some(cost.sampler_delta(epsilon)),
        }
    }

    /// The guarantee at this delta. It is `None` without noise, and where the noise is so small that no epsilon can be stated:
    /// the real sampler's distance from ideal noise, times `e^epsilon`, is then more than delta.
    fn at(&self, delta: Delta) -> Result<Option<Guarantee>> {
        let guarantee = match self {
            Self::Nothing => return Ok(None),
            Self::Sampled(accountant, sampler) => sampler.guarantee(delta, |delta| {
                Ok::<_, CoordinatorError>(accountant.guarantee(delta)?)
            }),
            Self::Whole(cost) => cost.guarantee(delta),
            Self::ClientNoise(accountant) => accountant.guarantee(delta).map_err(CoordinatorError::from),
        };
        match &guarantee {
            Err(CoordinatorError::Mechanism(MechanismError::SamplerExceedsDelta { .. })) => Ok(None),
            // A statement that is itself for some delta says nothing at a smaller one.
            Err(CoordinatorError::Accounting(
                AccountingError::NoFiniteGuarantee { .. } | AccountingError::DeltaBelowStated { .. },
            )) => match self {
                Self::ClientNoise(_) => Ok(None),
                _ => guarantee.map(Some),
            },
            _ => guarantee.map(Some),
        }
    }
}

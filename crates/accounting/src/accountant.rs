//! The accountant: a value that composes events.

mod best_recipe;
mod curves;
mod excess;
pub(crate) mod guarantee;
mod limits;
mod lower;

use std::sync::Arc;

use crate::error::{ensure, without_noise};
use crate::pld::{Bound, Composition, GaussianMixtures, Pair};
use crate::rdp::{self, conversion};
use crate::{
    AccountingError, Adjacency, Delta, Epsilon, Event, Guarantee, NoiseMultiplier, OptimalOrder, Recipe, Rho,
    Sampling, event, gaussian, moments, zcdp,
};

/// Maximum number of rounds: products with rounds are computed in `f64`, exactly up to here.
const MAX_ROUNDS: u64 = 1 << 53;
/// Logarithm of the probability below which outcomes may be left out when a delta is computed: the smallest delta is
/// about e^-708.
const LOG_TAIL_OF_DELTAS: f64 = -760.0;
/// The events that [`Recipe::Pld`] covers, in words.
const LOSS_EVENTS: &str = "events with a known loss distribution (no fixed-size cohorts, noise in shares, zero-concentrated or \
                           repeated events)";

/// An accountant composes events by one recipe and states the guarantee at any point.
///
/// Events may differ from round to round. Equal events share one cached divergence vector, so a round of a
/// constant schedule costs an integer addition, and [`Accountant::guarantee`] one pass over the orders.
///
/// # Guarantee
/// Adaptive composition of everything given to [`Accountant::compose`], in any order (the result does not
/// depend on it, to the last bit). The bound holds at any stopping round fixed in advance; a run that
/// compares the running epsilon with a budget and stops before exceeding it keeps the budget.
///
/// # Example
/// ```
/// use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let round = |q, z| -> Result<Event, undertone_accounting::AccountingError> {
///     Ok(Event::PoissonGaussian {
///         sampling_probability: SamplingProbability::new(q)?,
///         noise_multiplier: NoiseMultiplier::new(z)?,
///     })
/// };
/// let mut accountant = Accountant::new(Recipe::Rdp);
/// accountant.compose(&round(0.01, 1.0)?, 500)?;
/// accountant.compose(&round(0.02, 1.5)?, 500)?; // the schedule changes
/// let guarantee = accountant.guarantee(Delta::new(1e-6)?)?;
/// assert_eq!(
///     guarantee.to_string(),
///     "(eps = 2.474, delta = 1e-6), add-or-remove one user, Poisson sampling, RDP upper bound"
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Accountant {
    recipe: Recipe,
    /// The requested relation, or that of the first event.
    adjacency: Option<Adjacency>,
    /// Renyi orders of the curves (Rdp), moments plus one (Moments2016), empty otherwise.
    orders: Arc<[f64]>,
    /// The composed events, sorted, each once.
    entries: Vec<Entry>,
    rounds: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    event: Event,
    rounds: u64,
    cost: Cost,
}

/// The cost of one round of an event.
#[derive(Debug, Clone)]
enum Cost {
    /// Per-round divergence (Rdp), log moment (Moments2016), rho (ExactGaussian), or rho and xi (Zcdp).
    Curve(Arc<[f64]>),
    /// A loss distribution, built at the resolution of each question (Pld).
    Loss,
    /// An unlimited cost: a release without noise.
    Unbounded,
}

impl Accountant {
    /// An accountant with nothing composed, for the relation of the first event.
    #[must_use]
    pub fn new(recipe: Recipe) -> Self {
        let orders = match recipe {
            Recipe::Moments2016 => (2..=moments::MAX_MOMENT + 1).map(f64::from).collect(),
            Recipe::Rdp => rdp::default_orders().into(),
            Recipe::Pld | Recipe::Zcdp | Recipe::ExactGaussian => Arc::from([]),
        };
        Self {
            recipe,
            adjacency: None,
            orders,
            entries: Vec::new(),
            rounds: 0,
        }
    }

    /// An accountant with nothing composed, for one relation: every event is accounted for under it or refused.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Adjacency, Delta, Event, NoiseMultiplier, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let event = Event::Gaussian { noise_multiplier: NoiseMultiplier::new(4.0)? };
    /// let epsilon = |adjacency| {
    ///     let mut accountant = Accountant::under(Recipe::ExactGaussian, adjacency);
    ///     accountant.compose(&event, 1)?;
    ///     Ok::<_, undertone_accounting::AccountingError>(accountant.guarantee(Delta::new(1e-5)?)?.epsilon)
    /// };
    /// // Replacing a user moves the sum twice as far as removing one.
    /// assert!(epsilon(Adjacency::ReplaceOne)? > epsilon(Adjacency::AddOrRemoveOne)?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn under(recipe: Recipe, adjacency: Adjacency) -> Self {
        Self {
            adjacency: Some(adjacency),
            ..Self::new(recipe)
        }
    }

    /// An [`Recipe::Rdp`] accountant over other orders than the default grid.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for an empty grid or an order that is not a finite number > 1.
    pub fn with_orders(mut orders: Vec<f64>) -> Result<Self, AccountingError> {
        let bad = orders.iter().find(|order| !(order.is_finite() && **order > 1.0));
        let expected = "at least one order, each a finite number > 1";
        let got = bad.copied().unwrap_or(f64::NAN);
        ensure(bad.is_none() && !orders.is_empty(), "orders", expected, got)?;
        orders.sort_by(f64::total_cmp);
        Ok(Self {
            orders: orders.into(),
            ..Self::new(Recipe::Rdp)
        })
    }

    /// The accountant for one relation, as [`Accountant::under`]. Nothing may be composed yet.
    ///
    /// # Errors
    /// [`AccountingError::UnsupportedAdjacency`] for the first event that was composed before.
    pub fn for_adjacency(self, adjacency: Adjacency) -> Result<Self, AccountingError> {
        if let Some(entry) = self.entries.first() {
            let event = entry.event.kind();
            return Err(AccountingError::UnsupportedAdjacency { adjacency, event });
        }
        Ok(Self {
            adjacency: Some(adjacency),
            ..self
        })
    }

    /// The recipe in use.
    #[must_use]
    pub fn recipe(&self) -> Recipe {
        self.recipe
    }

    /// Releases composed so far.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The distinct events composed so far with their numbers of rounds.
    pub fn events(&self) -> impl Iterator<Item = (&Event, u64)> {
        self.entries.iter().map(|entry| (&entry.event, entry.rounds))
    }

    /// Adds `rounds` releases of `event`; zero rounds change nothing. On an error nothing has changed.
    ///
    /// # Errors
    /// [`AccountingError::AdjacencyMismatch`] or [`AccountingError::UnsupportedAdjacency`] if the event cannot be
    /// accounted for under the accountant's relation; [`AccountingError::UnsupportedEvent`] or
    /// [`AccountingError::UnsupportedCurve`] if the recipe has no bound for it; [`AccountingError::TooManyRounds`];
    /// [`AccountingError::CohortSize`] and the like for impossible fields.
    pub fn compose(&mut self, event: &Event, rounds: u64) -> Result<(), AccountingError> {
        event.validate()?;
        let total = self
            .rounds
            .checked_add(rounds)
            .filter(|total| *total <= MAX_ROUNDS);
        let total = total.ok_or(AccountingError::TooManyRounds {
            composed: self.rounds,
            added: rounds,
        })?;
        // PRIVACY: bounds under different relations do not add up to a bound under either.
        let adjacency = self.adjacency.or(event.adjacency());
        if let Some(adjacency) = adjacency.filter(|adjacency| !event.supports(*adjacency)) {
            return Err(match event.adjacency() {
                Some(stated) if self.rounds > 0 => AccountingError::AdjacencyMismatch {
                    accountant: adjacency,
                    event: stated,
                },
                _ => AccountingError::UnsupportedAdjacency {
                    adjacency,
                    event: event.kind(),
                },
            });
        }
        match self.entries.binary_search_by(|entry| entry.event.order(event)) {
            Ok(index) => self.entries[index].rounds += rounds,
            Err(index) => {
                let cost = self.cost(event, adjacency.unwrap_or(Adjacency::AddOrRemoveOne))?;
                if rounds > 0 {
                    let event = event.clone();
                    self.entries.insert(index, Entry { event, rounds, cost });
                }
            }
        }
        if rounds > 0 {
            self.adjacency = adjacency;
        }
        self.rounds = total;
        Ok(())
    }

    /// The smallest epsilon that the recipe can state at `delta` for everything composed.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] after an un-noised release, or if epsilon exceeds `f64`;
    /// [`AccountingError::DeltaBelowStated`] for a delta below that of the approximate-DP events;
    /// [`AccountingError::TooLarge`] for a composition by loss distributions that would take too long.
    pub fn guarantee(&self, delta: Delta) -> Result<Guarantee, AccountingError> {
        let (epsilon, optimal_order) = self.epsilon(delta)?;
        // PRIVACY: covers NaN, too.
        if !epsilon.is_finite() {
            return Err(self.no_epsilon(delta));
        }
        Ok(self.statement(Epsilon::new(epsilon)?, delta, optimal_order))
    }

    /// The smallest delta that the recipe can state at `epsilon` for everything composed.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] after an un-noised release, or if no delta below 1 can be
    /// stated.
    pub fn delta_for(&self, epsilon: Epsilon) -> Result<Guarantee, AccountingError> {
        let (log_delta, optimal_order) = self.log_delta(epsilon)?;
        // What the events state is not taken through a logarithm, which would lose its last digits.
        let all_stated = epsilon.get() >= self.max_loss();
        let delta = if all_stated {
            self.stated_delta()
        } else {
            log_delta.exp()
        };
        // A delta below f64 is stated as the smallest normal number, which is above it.
        let delta = delta.max(f64::MIN_POSITIVE);
        let delta = Delta::new(delta).map_err(|_| self.no_delta(epsilon))?;
        Ok(self.statement(epsilon, delta, optimal_order))
    }

    /// Epsilon (`+inf` where it overflows) and the order at which it was found; `None` where another bound than that of an order is
    /// smaller.
    pub(crate) fn epsilon(&self, delta: Delta) -> Result<(f64, Option<OptimalOrder>), AccountingError> {
        self.bounded()?;
        if self.rounds == 0 {
            return Ok((0.0, None));
        }
        self.above_stated(delta)?;
        let (epsilon, order) = self.epsilon_by_recipe(delta)?;
        let most = self.most_epsilon(delta);
        Ok(if most < epsilon || epsilon.is_nan() {
            (most, None)
        } else {
            (epsilon, order)
        })
    }

    fn epsilon_by_recipe(&self, delta: Delta) -> Result<(f64, Option<OptimalOrder>), AccountingError> {
        let log_delta = delta.get().ln();
        Ok(match self.recipe {
            Recipe::Moments2016 => {
                let (epsilon, moment) = moments::epsilon(&self.total(), log_delta);
                (epsilon, Some(self.optimal_order(moment as usize - 1)))
            }
            Recipe::Rdp => {
                let Some(log_delta) = self.without_aside(delta) else {
                    return Ok((f64::INFINITY, None));
                };
                let (epsilon, index) = conversion::epsilon(&self.orders, &self.total(), log_delta);
                (epsilon, Some(self.optimal_order(index)))
            }
            Recipe::Pld => {
                let composition = self.composition(self.log_tail(log_delta))?;
                self.fits()?;
                (
                    self.rounded_up(composition.epsilon(Bound::Upper, log_delta)),
                    None,
                )
            }
            Recipe::Zcdp => {
                let total = self.total();
                let epsilon = Rho::new(total[0]).and_then(|rho| zcdp::epsilon_above(rho, total[1], delta));
                (epsilon.map_or(f64::INFINITY, Epsilon::get), None)
            }
            Recipe::ExactGaussian => match self.gaussian().and_then(|z| gaussian::epsilon(z, delta)) {
                Ok(epsilon) => (epsilon.get(), None),
                Err(_) => (f64::INFINITY, None),
            },
        })
    }

    /// `ln` of the smallest delta at `epsilon`, and the order at which it was found.
    pub(crate) fn log_delta(&self, epsilon: Epsilon) -> Result<(f64, Option<OptimalOrder>), AccountingError> {
        self.bounded()?;
        if self.rounds == 0 {
            return Ok((f64::NEG_INFINITY, None));
        }
        let (log_delta, order) = self.log_delta_by_recipe(epsilon)?;
        let most = self.most_log_delta(epsilon);
        Ok(if most < log_delta || log_delta.is_nan() {
            (most, None)
        } else {
            (log_delta, order)
        })
    }

    fn log_delta_by_recipe(&self, epsilon: Epsilon) -> Result<(f64, Option<OptimalOrder>), AccountingError> {
        Ok(match self.recipe {
            Recipe::Moments2016 => {
                let (log_delta, moment) = moments::log_delta(&self.total(), epsilon.get());
                (log_delta, Some(self.optimal_order(moment as usize - 1)))
            }
            Recipe::Rdp => {
                let (log_delta, index) = conversion::log_delta(&self.orders, &self.total(), epsilon.get());
                (self.with_aside(log_delta), Some(self.optimal_order(index)))
            }
            Recipe::Pld => {
                let composition = self.composition(LOG_TAIL_OF_DELTAS)?;
                self.fits()?;
                (
                    composition.log_delta(Bound::Upper, (epsilon.get() - self.rounding()).max(0.0)),
                    None,
                )
            }
            Recipe::Zcdp => {
                let total = self.total();
                let log_delta = zcdp::log_delta_above(Rho::new(total[0])?, total[1], epsilon);
                (log_delta, None)
            }
            Recipe::ExactGaussian => (gaussian::log_delta(self.gaussian()?, epsilon), None),
        })
    }

    /// The noise multiplier of all composed Gaussians as one.
    fn gaussian(&self) -> Result<NoiseMultiplier, AccountingError> {
        gaussian_of(self.total()[0], self.entries.len())
    }

    /// An upper bound on epsilon by loss distributions, too large by at most about the fraction `accuracy`. A coarser
    /// one takes less time.
    pub(crate) fn rough_epsilon(&self, delta: Delta, accuracy: f64) -> Result<f64, AccountingError> {
        self.bounded()?;
        let log_delta = delta.get().ln();
        let composition = self.composition(self.log_tail(log_delta))?;
        self.fits()?;
        let rough = self.rounded_up(composition.rough_epsilon(accuracy, log_delta));
        Ok(rough.min(self.most_epsilon(delta)))
    }

    fn bounded(&self) -> Result<(), AccountingError> {
        if self
            .entries
            .iter()
            .any(|entry| matches!(entry.cost, Cost::Unbounded))
        {
            return Err(without_noise());
        }
        Ok(())
    }

    /// Sums of the curves over all rounds.
    fn total(&self) -> Vec<f64> {
        let mut total = vec![0.0; self.orders.len().max(2)];
        for entry in &self.entries {
            if let Cost::Curve(curve) = &entry.cost {
                for (sum, value) in total.iter_mut().zip(curve.iter()) {
                    *sum += entry.rounds as f64 * value;
                }
            }
        }
        total
    }

    /// `ln` of the probability that no event with a delta of its own does what its epsilon does not cover.
    ///
    /// PRIVACY: an (epsilon, delta) event is a post-processing of a pair that reveals all with probability delta, and
    /// is randomised response otherwise (Kairouz, Oh, Viswanath 2015). Given that none reveals, everything composed
    /// has a Renyi curve.
    fn log_kept(&self) -> f64 {
        let kept = |entry: &Entry| match entry.event {
            Event::ApproximateDp {
                delta: Some(delta), ..
            } => entry.rounds as f64 * (-delta.get()).ln_1p(),
            _ => 0.0,
        };
        self.entries.iter().map(kept).sum()
    }

    /// `ln` of the delta that is left for the Renyi curve; `None` where none is.
    fn without_aside(&self, delta: Delta) -> Option<f64> {
        let log_kept = self.log_kept();
        let left = (delta.get() + log_kept.exp_m1()) / log_kept.exp();
        (left > 0.0).then(|| left.ln())
    }

    /// `ln` of the delta of everything, from that of the Renyi curve.
    fn with_aside(&self, log_delta: f64) -> f64 {
        let log_kept = self.log_kept();
        if log_kept == 0.0 {
            return log_delta;
        }
        ((log_kept + log_delta).exp() - log_kept.exp_m1()).ln()
    }

    /// The loss distributions of everything composed.
    fn composition(&self, log_tail: f64) -> Result<Composition, AccountingError> {
        self.composition_of(|event, adjacency| event::pair(event, adjacency, log_tail))
    }

    /// The loss distributions that `pair_of` gives to the events. All plain Gaussians are one, exactly.
    fn composition_of(
        &self,
        pair_of: impl Fn(&Event, Adjacency) -> Result<Option<Pair>, AccountingError>,
    ) -> Result<Composition, AccountingError> {
        let adjacency = self.adjacency.unwrap_or(Adjacency::AddOrRemoveOne);
        let mut composition = Composition::default();
        let mut rho = 0.0;
        for entry in &self.entries {
            if let Some(once) = entry.event.gaussian_rho(adjacency) {
                rho += entry.rounds as f64 * once;
                continue;
            }
            let pair = pair_of(&entry.event, adjacency)?;
            let pair = pair.ok_or(AccountingError::UnsupportedEvent {
                recipe: Recipe::Pld,
                covers: LOSS_EVENTS,
                event: entry.event.kind(),
            })?;
            composition.push(pair, entry.rounds);
        }
        if rho > 0.0 {
            let z = gaussian_of(rho, self.entries.len()).map_or(0.0, NoiseMultiplier::get);
            composition.push(
                Pair::Mixtures(GaussianMixtures::new(z, &[(1.0, 1.0)], &[(0.0, 1.0)])),
                1,
            );
        }
        Ok(composition)
    }

    /// Logarithm of the probability below which outcomes of a release may be left out when delta is `e^log_delta`.
    fn log_tail(&self, log_delta: f64) -> f64 {
        log_delta - 30.0 - (self.rounds as f64).ln()
    }

    fn cost(&self, event: &Event, adjacency: Adjacency) -> Result<Cost, AccountingError> {
        let unsupported = |covers| AccountingError::UnsupportedEvent {
            recipe: self.recipe,
            covers,
            event: event.kind(),
        };
        if *event == Event::NonPrivate {
            return Ok(Cost::Unbounded);
        }
        match self.recipe {
            Recipe::Rdp => {
                let pure = event.without_delta();
                let curve = rdp::curve_under(pure.as_ref().unwrap_or(event), adjacency, &self.orders)?;
                Ok(Cost::Curve(curve.into()))
            }
            Recipe::Pld => match event::pair(event, adjacency, event::FIRST_LOOK)? {
                Some(_) => Ok(Cost::Loss),
                None => Err(unsupported(LOSS_EVENTS)),
            },
            Recipe::Zcdp => match event.concentrated(adjacency) {
                Some((rho, xi)) => Ok(Cost::Curve(Arc::from([rho, xi]))),
                None => Err(unsupported(
                    "Gaussians that every user takes part in, discrete Gaussians and zero-concentrated events",
                )),
            },
            Recipe::ExactGaussian => match event.gaussian_rho(adjacency) {
                Some(rho) => Ok(Cost::Curve(Arc::from([rho]))),
                None => Err(unsupported("Gaussians that every user takes part in")),
            },
            Recipe::Moments2016 => {
                if !matches!(event, Event::PoissonGaussian { .. } | Event::Gaussian { .. })
                    || adjacency == Adjacency::ReplaceOne
                {
                    return Err(unsupported(
                        "Poisson-sampled and plain Gaussians under add-or-remove",
                    ));
                }
                // At integer orders ln A = (a - 1) D_a.
                let divergences = rdp::curve_under(event, adjacency, &self.orders)?;
                let moments = divergences.iter().zip(self.orders.iter());
                Ok(Cost::Curve(moments.map(|(d, order)| d * (order - 1.0)).collect()))
            }
        }
    }

    fn optimal_order(&self, index: usize) -> OptimalOrder {
        OptimalOrder {
            order: self.orders[index],
            at_edge: index == 0 || index + 1 == self.orders.len(),
        }
    }

    fn statement(&self, epsilon: Epsilon, delta: Delta, optimal_order: Option<OptimalOrder>) -> Guarantee {
        let sampled = self.entries.iter().map(|entry| entry.event.sampling());
        Guarantee {
            epsilon,
            delta,
            adjacency: self.adjacency.unwrap_or(Adjacency::AddOrRemoveOne),
            sampling: sampled
                .into_iter()
                .find(|sampling| *sampling != Sampling::FullParticipation)
                .unwrap_or(Sampling::FullParticipation),
            recipe: self.recipe,
            optimal_order,
        }
    }
}

/// The noise multiplier of composed Gaussians whose rhos add up to `rho`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] where none is a number.
fn gaussian_of(rho: f64, entries: usize) -> Result<NoiseMultiplier, AccountingError> {
    // PRIVACY: the sum and the roots were rounded, by a few units in the last place.
    let rounding = (4 + 2 * entries) as f64 * f64::EPSILON;
    NoiseMultiplier::new((2.0 * rho).sqrt().recip() * (1.0 - rounding))
}

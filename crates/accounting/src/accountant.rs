//! The accountant: a value that composes events.

use std::sync::Arc;

use crate::rdp::{self, conversion};
use crate::{
    AccountingError, Adjacency, Delta, Epsilon, Event, Guarantee, NoiseMultiplier, OptimalOrder, Recipe,
    Sampling, gaussian, moments,
};

/// Rounds are multiplied as `f64`; up to here that is exact.
const MAX_ROUNDS: u64 = 1 << 53;

/// Composes events by one recipe and states the guarantee at any point.
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
    /// Renyi orders of the curves (Rdp), moments plus one (Moments2016), empty otherwise.
    orders: Arc<[f64]>,
    /// Sorted by event, each event once.
    entries: Vec<Entry>,
    rounds: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    event: Event,
    rounds: u64,
    /// Per-round divergence (Rdp), log moment (Moments2016) or rho (ExactGaussian); `None` for un-noised
    /// releases.
    curve: Option<Arc<[f64]>>,
}

impl Accountant {
    /// An accountant with nothing composed.
    #[must_use]
    pub fn new(recipe: Recipe) -> Self {
        let orders = match recipe {
            Recipe::Moments2016 => (2..=moments::MAX_MOMENT + 1).map(f64::from).collect(),
            Recipe::Rdp => rdp::default_orders().into(),
            Recipe::ExactGaussian => Arc::from([]),
        };
        Self {
            recipe,
            orders,
            entries: Vec::new(),
            rounds: 0,
        }
    }

    /// An [`Recipe::Rdp`] accountant over other orders than the default grid.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for an empty grid or an order that is not a finite number > 1.
    pub fn with_orders(mut orders: Vec<f64>) -> Result<Self, AccountingError> {
        let bad = orders
            .iter()
            .copied()
            .find(|order| !(order.is_finite() && *order > 1.0));
        if bad.is_some() || orders.is_empty() {
            return Err(AccountingError::OutOfRange {
                quantity: "orders",
                expected: "at least one order, each a finite number > 1",
                got: bad.unwrap_or(f64::NAN),
            });
        }
        orders.sort_by(f64::total_cmp);
        Ok(Self {
            recipe: Recipe::Rdp,
            orders: orders.into(),
            entries: Vec::new(),
            rounds: 0,
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
    /// [`AccountingError::CohortSize`] for an impossible cohort; [`AccountingError::AdjacencyMismatch`] if
    /// the event is stated for another relation than those before; [`AccountingError::UnsupportedEvent`] if
    /// the recipe has no bound for it; [`AccountingError::TooManyRounds`].
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
        if let (Some(held), Some(new)) = (self.held_adjacency(), event.adjacency())
            && held != new
        {
            return Err(AccountingError::AdjacencyMismatch {
                accountant: held,
                event: new,
            });
        }
        match self.entries.binary_search_by(|entry| entry.event.order(event)) {
            Ok(index) => self.entries[index].rounds += rounds,
            Err(index) => {
                let curve = self.curve(event)?;
                if rounds > 0 {
                    self.entries.insert(
                        index,
                        Entry {
                            event: *event,
                            rounds,
                            curve,
                        },
                    );
                }
            }
        }
        self.rounds = total;
        Ok(())
    }

    /// The smallest epsilon that the recipe can state at `delta` for everything composed.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] after an un-noised release, or if epsilon exceeds `f64`.
    pub fn guarantee(&self, delta: Delta) -> Result<Guarantee, AccountingError> {
        let (epsilon, optimal_order) = self.epsilon(delta)?;
        if !epsilon.is_finite() {
            return Err(AccountingError::NoFiniteGuarantee {
                reason: "epsilon exceeds the largest number",
            });
        }
        Ok(self.statement(Epsilon::new(epsilon)?, delta, optimal_order))
    }

    /// The smallest delta that the recipe can state at `epsilon` for everything composed.
    ///
    /// # Errors
    /// [`AccountingError::NoFiniteGuarantee`] after an un-noised release, or if no delta below 1 can be
    /// stated.
    pub fn delta_for(&self, epsilon: Epsilon) -> Result<Guarantee, AccountingError> {
        let total = self.total()?;
        let (log_delta, optimal_order) = if self.rounds == 0 {
            (f64::NEG_INFINITY, None)
        } else {
            match self.recipe {
                Recipe::Moments2016 => {
                    let (log_delta, moment) = moments::log_delta(&total, epsilon.get());
                    (log_delta, Some(self.optimal_order(moment as usize - 1)))
                }
                Recipe::Rdp => {
                    let (log_delta, index) = conversion::log_delta(&self.orders, &total, epsilon.get());
                    (log_delta, Some(self.optimal_order(index)))
                }
                Recipe::ExactGaussian => {
                    let z = NoiseMultiplier::new((2.0 * total[0]).sqrt().recip())?;
                    (gaussian::log_delta(z, epsilon), None)
                }
            }
        };
        // A delta below f64 is stated as the smallest normal number, which is above it.
        let delta = log_delta.exp().max(f64::MIN_POSITIVE);
        let delta = Delta::new(delta).map_err(|_| AccountingError::NoFiniteGuarantee {
            reason: "no delta below 1 holds at this epsilon",
        })?;
        Ok(self.statement(epsilon, delta, optimal_order))
    }

    /// Epsilon (`+inf` where it overflows) and where it was found.
    pub(crate) fn epsilon(&self, delta: Delta) -> Result<(f64, Option<OptimalOrder>), AccountingError> {
        let total = self.total()?;
        if self.rounds == 0 {
            return Ok((0.0, None));
        }
        let log_delta = delta.get().ln();
        Ok(match self.recipe {
            Recipe::Moments2016 => {
                let (epsilon, moment) = moments::epsilon(&total, log_delta);
                (epsilon, Some(self.optimal_order(moment as usize - 1)))
            }
            Recipe::Rdp => {
                let (epsilon, index) = conversion::epsilon(&self.orders, &total, log_delta);
                (epsilon, Some(self.optimal_order(index)))
            }
            Recipe::ExactGaussian => {
                let z = (2.0 * total[0]).sqrt().recip();
                match NoiseMultiplier::new(z).and_then(|z| gaussian::epsilon(z, delta)) {
                    Ok(epsilon) => (epsilon.get(), None),
                    Err(_) => (f64::INFINITY, None),
                }
            }
        })
    }

    fn total(&self) -> Result<Vec<f64>, AccountingError> {
        let width = if self.recipe == Recipe::ExactGaussian {
            1
        } else {
            self.orders.len()
        };
        let mut total = vec![0.0; width];
        for entry in &self.entries {
            let curve = entry.curve.as_ref().ok_or(AccountingError::NoFiniteGuarantee {
                reason: "a release without noise was composed",
            })?;
            for (sum, value) in total.iter_mut().zip(curve.iter()) {
                *sum += entry.rounds as f64 * value;
            }
        }
        Ok(total)
    }

    fn curve(&self, event: &Event) -> Result<Option<Arc<[f64]>>, AccountingError> {
        let unsupported = |covers| AccountingError::UnsupportedEvent {
            recipe: self.recipe,
            covers,
            event: event.kind(),
        };
        if *event == Event::NonPrivate {
            return Ok(None);
        }
        Ok(Some(match self.recipe {
            Recipe::Rdp => rdp::curve(event, &self.orders)?.into(),
            Recipe::Moments2016 => {
                if event.adjacency() != Some(Adjacency::AddOrRemoveOne) {
                    return Err(unsupported("Poisson-sampled and plain Gaussians"));
                }
                // At integer orders ln A = (a - 1) D_a.
                let divergences = rdp::curve(event, &self.orders)?;
                divergences
                    .iter()
                    .zip(self.orders.iter())
                    .map(|(d, order)| d * (order - 1.0))
                    .collect()
            }
            Recipe::ExactGaussian => match *event {
                _ if event.sampling() != Sampling::FullParticipation => {
                    return Err(unsupported("Gaussians that every user takes part in"));
                }
                Event::Gaussian { noise_multiplier }
                | Event::PoissonGaussian { noise_multiplier, .. }
                | Event::FixedSizeGaussian { noise_multiplier, .. } => {
                    Arc::from([0.5 / noise_multiplier.get() / noise_multiplier.get()])
                }
                Event::NonPrivate => return Ok(None),
            },
        }))
    }

    fn optimal_order(&self, index: usize) -> OptimalOrder {
        OptimalOrder {
            order: self.orders[index],
            at_edge: index == 0 || index + 1 == self.orders.len(),
        }
    }

    fn held_adjacency(&self) -> Option<Adjacency> {
        self.entries.iter().find_map(|entry| entry.event.adjacency())
    }

    fn statement(&self, epsilon: Epsilon, delta: Delta, optimal_order: Option<OptimalOrder>) -> Guarantee {
        let sampled = self.entries.iter().map(|entry| entry.event.sampling());
        Guarantee {
            epsilon,
            delta,
            adjacency: self.held_adjacency().unwrap_or(Adjacency::AddOrRemoveOne),
            sampling: sampled
                .into_iter()
                .find(|sampling| *sampling != Sampling::FullParticipation)
                .unwrap_or(Sampling::FullParticipation),
            recipe: self.recipe,
            optimal_order,
        }
    }
}

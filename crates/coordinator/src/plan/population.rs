//! The budget of a population: the planned guarantees of its tasks together.

use undertone_accounting::{Accountant, AccountingError, Adjacency, Delta, Event, Guarantee, Recipe};
use undertone_mechanisms::SamplerDistance;
use undertone_present::numbers::upper_bound;

use super::{Basis, PrivacyPlan};
use crate::error::check::positive;
use crate::error::{CoordinatorError, Result};

/// The budget of a population for all of its tasks: trainings, evaluations and counts.
///
/// # Guarantee
/// Each subject who keeps to the schema of each admitted task has the guarantee of [`PopulationCost`] over all of them. The noise of
/// every task is fixed before its first round, so the tasks may run one after another or interleaved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PopulationBudget {
    max_epsilon: f64,
    delta: Delta,
}

/// The planned guarantee of several tasks together, under the zero-out relation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PopulationCost {
    /// Upper bound on epsilon.
    pub epsilon: f64,
    /// Delta of the guarantee, those of the initial models included.
    pub delta: f64,
    /// The sum of the tasks' zero-concentrated costs, where each task is a Gaussian.
    pub rho: Option<f64>,
}

/// The releases of a task as the accountant composes them.
struct Releases {
    event: Event,
    times: u64,
    /// The zero-concentrated cost of all of them, where they are a Gaussian.
    rho: Option<f64>,
    distance: SamplerDistance,
}

impl PopulationBudget {
    /// The budget of this epsilon at this delta.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for an epsilon that is not a finite number above 0.
    pub fn new(max_epsilon: f64, delta: Delta) -> Result<Self> {
        positive("population.max_epsilon", max_epsilon)?;
        Ok(Self { max_epsilon, delta })
    }

    /// The cost of all rounds of these tasks together, by name. A task that has ended counts with its plan.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] naming a task without a guarantee under the zero-out relation, or with a part whose cost is
    /// not known; from the accountant where no recipe covers all tasks.
    pub fn cost(&self, tasks: &[(&str, &PrivacyPlan)]) -> Result<PopulationCost> {
        let (mut distance, mut released) = (SamplerDistance::NONE, Vec::new());
        let (mut epsilon, mut delta) = (0.0, 0.0);
        for (name, plan) in tasks {
            let releases = plan.releases(name)?;
            distance += releases.distance;
            released.push(releases);
            // What an initial model cost the same people comes on top, by basic composition.
            let start = plan
                .start()
                .map_or((0.0, 0.0), |start| (start.epsilon(), start.delta()));
            epsilon += start.0;
            delta += start.1;
        }
        if released.is_empty() {
            return Ok(PopulationCost {
                epsilon: 0.0,
                delta: self.delta.get(),
                rho: Some(0.0),
            });
        }
        let guarantee = distance.guarantee(self.delta, |delta| together(&released, delta))?;
        Ok(PopulationCost {
            epsilon: guarantee.epsilon.get() + epsilon,
            delta: self.delta.get() + delta,
            rho: released.iter().map(|releases| releases.rho).sum(),
        })
    }

    /// The cost of these tasks together, if the budget admits all rounds of all of them.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] with the cost and the budget; as [`cost`](Self::cost): a budget that cannot be checked
    /// admits nothing.
    pub fn admit(&self, tasks: &[(&str, &PrivacyPlan)]) -> Result<PopulationCost> {
        let cost = self.cost(tasks)?;
        // PRIVACY: written so that a NaN is an excess.
        let within = cost.epsilon <= self.max_epsilon;
        if within {
            return Ok(cost);
        }
        let names: Vec<&str> = tasks.iter().map(|(name, _)| *name).collect();
        Err(CoordinatorError::value(
            "population.max_epsilon",
            format!(
                "at least the {} of all rounds of {} at delta {:e}",
                upper_bound(cost.epsilon),
                names.join(", "),
                cost.delta
            ),
            self.max_epsilon,
        ))
    }
}

impl PrivacyPlan {
    /// All releases of the plan, for each user who keeps to its schema.
    fn releases(&self, name: &str) -> Result<Releases> {
        let refuse = |expected: &str, got: &str| Err(CoordinatorError::value(name, expected, got));
        let Some(private) = &self.private else {
            return refuse(
                "a private task in a population with a budget",
                "a task without noise",
            );
        };
        if let Some(why) = private.uncountable() {
            return refuse("a task whose whole cost is known", why);
        }
        if private.vocabulary.is_some() {
            return refuse("public words", "words whose choice has a cost of its own");
        }
        match &private.basis {
            Basis::Sampling(_) => refuse(
                "a guarantee that rests on a participation schema: figures of sampled cohorts do not add up with it",
                self.sampling.name(),
            ),
            Basis::Participation(bounded) => {
                let schema = bounded.mechanism().participation();
                let whole = bounded.cost(self.rounds, schema, &[])?;
                let (event, distance) = whole.into_parts();
                let rho = match event {
                    Event::CorrelatedGaussian {
                        sensitivity_squared,
                        noise_multiplier,
                    } => Some(0.5 * sensitivity_squared / noise_multiplier.get().powi(2)),
                    _ => None,
                };
                Ok(Releases {
                    event,
                    times: 1,
                    rho,
                    distance,
                })
            }
            Basis::ClientNoise(client_noise) => Ok(Releases {
                event: client_noise.event().clone(),
                times: client_noise.times(self.rounds, client_noise.participation()),
                rho: None,
                distance: SamplerDistance::NONE,
            }),
        }
    }
}

/// The guarantee of all releases by the tightest recipe that covers each of them.
fn together(released: &[Releases], delta: Delta) -> Result<Guarantee> {
    let by = |recipe: Recipe| -> Result<Guarantee, AccountingError> {
        let mut accountant = Accountant::under(recipe, Adjacency::ZeroOut);
        for Releases { event, times, .. } in released {
            accountant.compose(event, *times)?;
        }
        accountant.guarantee(delta)
    };
    let mut best: Result<Guarantee, AccountingError> = by(Recipe::ExactGaussian);
    if best.is_ok() {
        return Ok(best?);
    }
    for recipe in [Recipe::Rdp, Recipe::Pld] {
        let found = by(recipe);
        let epsilon = |guarantee: &Result<Guarantee, AccountingError>| {
            guarantee
                .as_ref()
                .map_or(f64::INFINITY, |guarantee| guarantee.epsilon.get())
        };
        if found.is_ok() && epsilon(&found) < epsilon(&best) {
            best = found;
        }
    }
    Ok(best?)
}

#[cfg(test)]
mod tests;

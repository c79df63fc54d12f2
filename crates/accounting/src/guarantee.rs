use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Delta, Epsilon, Event};

/// The relation between the two populations that a guarantee compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// All data of one user is added or removed.
    AddOrRemoveOne,
    /// All data of one user is replaced by another's; the number of users is public. Costs more than
    /// add-or-remove: one replacement is a removal and an addition.
    ReplaceOne,
    /// All that one user contributes is set to zero; the rounds take place as before. The relation of mechanisms whose
    /// schedule may depend on which users are present (\[Gboard\] Appendix A).
    ZeroOut,
}

impl Adjacency {
    /// Maximum distance by which a sum of updates of norm at most 1 moves.
    pub(crate) fn sensitivity_factor(self) -> f64 {
        match self {
            Adjacency::AddOrRemoveOne | Adjacency::ZeroOut => 1.0,
            Adjacency::ReplaceOne => 2.0,
        }
    }
}

impl fmt::Display for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Adjacency::AddOrRemoveOne => "add-or-remove one user",
            Adjacency::ReplaceOne => "replace one user",
            Adjacency::ZeroOut => "zero out one user",
        })
    }
}

/// The way in which the users of a round are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Each user joins independently with a fixed probability.
    Poisson,
    /// A uniform cohort of fixed size without replacement, fresh each round.
    FixedSize,
    /// Poisson sampling whose cohort is cut to a maximum size.
    TruncatedPoisson,
    /// Every user takes part in every round.
    FullParticipation,
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sampling::Poisson => "Poisson sampling",
            Sampling::FixedSize => "fixed-size cohorts without replacement",
            Sampling::TruncatedPoisson => "truncated Poisson sampling",
            Sampling::FullParticipation => "full participation",
        })
    }
}

/// The method that turns events into a guarantee. Every recipe gives an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Recipe {
    /// The moments accountant of 2016 as \[DPLM\] used it: moments 1 to 32 and the classic conversion. For
    /// reproducing printed numbers; [`Recipe::Rdp`] is tighter.
    #[serde(rename = "moments-2016")]
    Moments2016,
    /// Renyi divergences on [`crate::rdp::default_orders`] and the improved conversion.
    Rdp,
    /// Privacy loss distributions, composed numerically: the tightest for most events, with a lower
    /// bound beside it.
    Pld,
    /// Zero-concentrated differential privacy and the improved conversion over continuous orders; refuses sampled
    /// events.
    Zcdp,
    /// The exact trade-off of composed Gaussians; refuses everything else.
    ExactGaussian,
}

impl Recipe {
    /// The tightest recipe that covers all of `events`, each under the relation it is stated for.
    ///
    /// The exact recipe for Gaussians that everyone takes part in; loss distributions where every event has a tight one;
    /// zero-concentrated privacy where every event has a rho; else Renyi divergences, which may refuse some.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Event, NoiseMultiplier, Recipe, Rho};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let gaussian = Event::Gaussian { noise_multiplier: NoiseMultiplier::new(2.0)? };
    /// assert_eq!(Recipe::best_for([&gaussian]), Recipe::ExactGaussian);
    /// assert_eq!(Recipe::best_for([&gaussian, &Event::Laplace { scale: 1.0 }]), Recipe::Pld);
    /// let concentrated = Event::ZeroConcentrated { rho: Rho::new(0.1)?, xi: 0.0 };
    /// assert_eq!(Recipe::best_for([&gaussian, &concentrated]), Recipe::Zcdp);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn best_for<'a>(events: impl IntoIterator<Item = &'a Event>) -> Recipe {
        let (mut gaussian, mut loss, mut concentrated) = (true, true, true);
        // Nothing is guaranteed after an un-noised release, by any recipe.
        for event in events.into_iter().filter(|event| **event != Event::NonPrivate) {
            let adjacency = event.adjacency().unwrap_or(Adjacency::AddOrRemoveOne);
            gaussian &= event.gaussian_rho(adjacency).is_some();
            // One pair for all of them is loose over many releases, where their Renyi curve is not.
            loss &= event.has_loss_distribution() && !matches!(event, Event::BoundedRange { .. });
            concentrated &= event.concentrated(adjacency).is_some();
        }
        match (gaussian, loss, concentrated) {
            (true, ..) => Recipe::ExactGaussian,
            (_, true, _) => Recipe::Pld,
            (.., true) => Recipe::Zcdp,
            _ => Recipe::Rdp,
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recipe::Moments2016 => "moments accountant of 2016",
            Recipe::Rdp => "RDP upper bound",
            Recipe::Pld => "PLD upper bound",
            Recipe::Zcdp => "zCDP upper bound",
            Recipe::ExactGaussian => "exact Gaussian",
        })
    }
}

/// The order at which the minimum over moments or Renyi orders was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OptimalOrder {
    /// The Renyi order (the 2016 recipe's moment plus one).
    pub order: f64,
    /// True if the order is the first or the last of the grid: a wider grid may give a smaller epsilon (the bound holds
    /// anyway).
    pub at_edge: bool,
}

/// An (epsilon, delta) statement with everything needed to read it.
///
/// # Guarantee
/// For every two populations related by `adjacency` and every set `O` of outcomes of everything composed,
/// `Pr[O] <= e^epsilon Pr'[O] + delta`, provided that users were chosen by `sampling` and the noise was as
/// stated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Guarantee {
    /// Bound on the privacy loss.
    pub epsilon: Epsilon,
    /// Mass on which the bound may fail.
    pub delta: Delta,
    /// The relation under which the statement holds.
    pub adjacency: Adjacency,
    /// The sampling scheme that the statement relies on.
    pub sampling: Sampling,
    /// The recipe that computed it.
    pub recipe: Recipe,
    /// The order at which the bound was taken; `None` where the recipe has no orders or nothing was composed.
    pub optimal_order: Option<OptimalOrder>,
}

/// Three decimals, rounded up: the printed statement is implied by the computed one.
impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epsilon = self.epsilon.get();
        let rounded = (epsilon * 1e3).ceil() / 1e3;
        let epsilon = if rounded.is_finite() { rounded } else { epsilon };
        let delta = self.delta.get();
        write!(
            f,
            "(eps = {epsilon:.3}, delta = {delta:e}), {}, {}, {}",
            self.adjacency, self.sampling, self.recipe
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_is_printed_rounded_up_and_survives_json() {
        let guarantee = Guarantee {
            epsilon: Epsilon::new(1.2331).unwrap(),
            delta: Delta::new(1e-6).unwrap(),
            adjacency: Adjacency::AddOrRemoveOne,
            sampling: Sampling::Poisson,
            recipe: Recipe::Rdp,
            optimal_order: None,
        };
        assert_eq!(
            guarantee.to_string(),
            "(eps = 1.234, delta = 1e-6), add-or-remove one user, Poisson sampling, RDP upper bound"
        );
        let json = serde_json::to_string(&guarantee).unwrap();
        assert_eq!(serde_json::from_str::<Guarantee>(&json).unwrap(), guarantee);
        assert!(json.contains(r#""adjacency":"add-or-remove-one""#), "{json}");
    }
}

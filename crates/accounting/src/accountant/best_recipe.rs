//! The choice of a recipe for events.

use crate::{Adjacency, Event, Recipe};

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

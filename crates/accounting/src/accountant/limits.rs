//! Limits of the cost that hold by any recipe, and refusals that say what to change.

use super::{Accountant, Entry, gaussian_of};
use crate::error::{no_guarantee, without_noise};
use crate::event::{product_up, sum_up};
use crate::{AccountingError, Adjacency, Delta, Epsilon, Event, NoiseMultiplier, Recipe, gaussian};

/// Deltas that differ by no more, relatively, are one: the sum of the stated ones is rounded.
const SAME_DELTA: f64 = 8.0 * f64::EPSILON;
/// The largest number of releases that are composed on lattices: the rounding errors of more would be larger than delta itself.
const MAX_RELEASES: u64 = 1 << 40;

impl Accountant {
    /// The sum of the largest losses of everything composed: the epsilon of basic composition, which no upper bound exceeds. `None`
    /// where some event has none.
    ///
    /// The sum holds at the delta that the events themselves state (see [`Event::ApproximateDp`]): at delta zero if none states one.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Delta, Event, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mut accountant = Accountant::new(Recipe::Rdp);
    /// accountant.compose(&Event::Laplace { scale: 0.02 }, 3)?;
    /// let pure = accountant.pure_epsilon();
    /// assert_eq!(pure.map(|epsilon| epsilon.get()), Some(150.0));
    /// assert!(Some(accountant.guarantee(Delta::new(1e-9)?)?.epsilon) <= pure);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn pure_epsilon(&self) -> Option<Epsilon> {
        Epsilon::new(self.max_loss()).ok()
    }

    /// The sum of the largest losses, `+inf` where one has no limit.
    pub(super) fn max_loss(&self) -> f64 {
        let adjacency = self.relation();
        let losses = self.entries.iter().map(|entry| {
            let once = entry.event.max_loss(adjacency);
            product_up(entry.rounds as f64, once)
        });
        losses.fold(0.0, sum_up)
    }

    pub(super) fn relation(&self) -> Adjacency {
        self.adjacency.unwrap_or(Adjacency::AddOrRemoveOne)
    }

    /// The delta that the events state themselves, all together.
    pub(super) fn stated_delta(&self) -> f64 {
        // One statement alone is what it is, to the last digit.
        if let [
            Entry {
                event: Event::ApproximateDp { delta, .. },
                rounds: 1,
                ..
            },
        ] = self.entries.as_slice()
        {
            return delta.map_or(0.0, Delta::get);
        }
        // Above the sum by more than its rounding errors.
        -self.log_kept().exp_m1() * (1.0 + 0.5 * SAME_DELTA)
    }

    /// Refuses a delta below what the events state.
    pub(super) fn above_stated(&self, delta: Delta) -> Result<(), AccountingError> {
        let (stated, asked) = (self.stated_delta(), delta.get());
        if asked < stated * (1.0 - SAME_DELTA) {
            return Err(AccountingError::DeltaBelowStated { stated, asked });
        }
        Ok(())
    }

    /// Rounding errors of the losses of listed outcomes, which are differences of logarithms.
    pub(super) fn rounding(&self) -> f64 {
        let adjacency = self.relation();
        let listed = self
            .entries
            .iter()
            .filter(|entry| entry.event.max_loss(adjacency).is_finite());
        listed
            .map(|entry| 16.0 * f64::EPSILON * entry.rounds as f64)
            .sum()
    }

    /// An upper bound by loss distributions with what rounding may have taken from it. One of 0 stays: a shift of the losses by less than
    /// their rounding changes a delta by no more than that share of it.
    pub(super) fn rounded_up(&self, epsilon: f64) -> f64 {
        if epsilon > 0.0 {
            epsilon + self.rounding()
        } else {
            epsilon
        }
    }

    /// The smallest epsilon that holds at `delta` (not below the stated one) whatever the recipe says: the pure one, or that of the
    /// composition without sampling.
    pub(super) fn most_epsilon(&self, delta: Delta) -> f64 {
        let unsampled = self.unsampled().and_then(|z| gaussian::epsilon(z, delta).ok());
        let unsampled = unsampled.map_or(f64::INFINITY, Epsilon::get);
        self.max_loss().min(unsampled)
    }

    /// `ln` of a delta that holds at `epsilon` whatever the recipe says (at most 0).
    pub(super) fn most_log_delta(&self, epsilon: Epsilon) -> f64 {
        let pure = if epsilon.get() >= self.max_loss() {
            self.stated_delta().ln()
        } else {
            0.0
        };
        let unsampled = self.unsampled().map_or(0.0, |z| gaussian::log_delta(z, epsilon));
        pure.min(unsampled)
    }

    /// The noise multiplier of everything composed if nobody is ever left out, where that is one Gaussian and some event is sampled.
    ///
    /// PRIVACY: a whole answer for a whole composition, so that its minimum with another whole answer holds. The minimum of the profiles
    /// of single events could not be composed.
    fn unsampled(&self) -> Option<NoiseMultiplier> {
        let adjacency = self.relation();
        let is_sampled = |entry: &Entry| entry.event.gaussian_rho(adjacency).is_none();
        // The moments of 2016 are for printed numbers, which knew no such minimum.
        if self.recipe == Recipe::Moments2016 || !self.entries.iter().any(is_sampled) {
            return None;
        }
        let mut rho = 0.0;
        for entry in &self.entries {
            rho += entry.rounds as f64 * entry.event.unsampled_rho(adjacency)?;
        }
        gaussian_of(rho, self.entries.len()).ok()
    }

    /// The refusal of a question without a finite epsilon: names the event that has none, and what to change.
    pub(super) fn no_epsilon(&self, delta: Delta) -> AccountingError {
        self.none(&format!("a finite epsilon at delta = {:e}", delta.get()))
    }

    /// The refusal of a question without a delta below 1.
    pub(super) fn no_delta(&self, epsilon: Epsilon) -> AccountingError {
        let refusal = self.none(&format!("a delta below 1 at epsilon = {epsilon}"));
        if let AccountingError::NoFiniteGuarantee { reason } = &refusal {
            return no_guarantee(format!("{reason}, or ask for a larger epsilon"));
        }
        refusal
    }

    fn none(&self, wanted: &str) -> AccountingError {
        let adjacency = self.relation();
        let size = |entry: &Entry| {
            let rho = entry.event.unsampled_rho(adjacency).unwrap_or(f64::INFINITY);
            entry.rounds as f64 * rho.min(entry.event.max_loss(adjacency))
        };
        let largest = self.entries.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
        let Some(Entry { event, rounds, .. }) = largest else {
            return without_noise();
        };
        no_guarantee(format!(
            "the {} event ({rounds} times) has not {wanted} by the recipe '{}'; {}",
            event.kind(),
            self.recipe,
            event.remedy()
        ))
    }

    /// Refuses a composition by loss distributions that would take too much memory or time, or whose rounding errors would outgrow it.
    pub(super) fn fits(&self) -> Result<(), AccountingError> {
        let adjacency = self.relation();
        // All plain Gaussians are one.
        let composed = self
            .entries
            .iter()
            .filter(|entry| entry.event.gaussian_rho(adjacency).is_none());
        let releases: u64 = composed.clone().map(|entry| entry.rounds).sum();
        let Some(largest) = composed
            .max_by_key(|entry| entry.rounds)
            .filter(|_| releases > MAX_RELEASES)
        else {
            return Ok(());
        };
        let others = releases - largest.rounds;
        let nearest = if others < MAX_RELEASES {
            format!(
                "ask for at most {} of them, or use the recipe 'rdp'",
                MAX_RELEASES - others
            )
        } else {
            format!("ask for at most {MAX_RELEASES} releases in all, or use the recipe 'rdp'")
        };
        Err(AccountingError::TooLarge {
            releases: largest.rounds,
            event: largest.event.kind(),
            nearest,
        })
    }
}

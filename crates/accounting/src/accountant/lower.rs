//! Lower bounds: the epsilon that is certainly spent.

use super::{Accountant, Entry};
use crate::pld::{Bound, Composition};
use crate::{AccountingError, Delta, Epsilon, Event, Guarantee, Recipe, event};

/// Relative excess of a lower bound over an upper one that is rounding.
const SAME: f64 = 1e-12;

impl Accountant {
    /// The largest epsilon that is certainly spent at `delta`: no statement below it is true of everything composed.
    ///
    /// The bound is that of distributions which some population, or some mechanism with the stated property, attains. It tells how
    /// much of [`Accountant::guarantee`] is slack of the method. One pair bounds all releases of a bounded range, but several releases
    /// attain it together only where they are one. Their lower bound is the best of a few pairs of two outcomes.
    ///
    /// # Errors
    /// [`AccountingError::UnsupportedEvent`] for an event of which only a Renyi curve is known;
    /// [`AccountingError::NoLowerBound`] for cohorts that are cut, whose pair is an upper bound only;
    /// [`AccountingError::NoFiniteGuarantee`] after an un-noised release; [`AccountingError::DeltaBelowStated`] for a delta below that
    /// of the approximate-DP events; [`AccountingError::BoundsDisagree`] for a bound above the pure epsilon.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Delta, Event, NoiseMultiplier, Recipe, SamplingProbability};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mut accountant = Accountant::new(Recipe::Pld);
    /// accountant.compose(
    ///     &Event::PoissonGaussian {
    ///         sampling_probability: SamplingProbability::new(0.2)?,
    ///         noise_multiplier: NoiseMultiplier::new(2.0)?,
    ///     },
    ///     50,
    /// )?;
    /// let delta = Delta::new(1e-10)?;
    /// let (lower, upper) = (accountant.lower_bound(delta)?, accountant.guarantee(delta)?.epsilon);
    /// assert!(lower.get() <= upper.get() && upper.get() - lower.get() < 1e-4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lower_bound(&self, delta: Delta) -> Result<Epsilon, AccountingError> {
        self.bounded()?;
        if self.rounds == 0 {
            return Epsilon::new(0.0);
        }
        self.above_stated(delta)?;
        let log_delta = delta.get().ln();
        let attained = self.attained(self.log_tail(log_delta))?;
        let mut lower = 0.0f64;
        for composition in &attained {
            self.fits()?;
            let lattice = composition.epsilon(Bound::Lower, log_delta);
            lower = lower.max(lattice).max(composition.epsilon_of_events(log_delta));
        }
        let lower = self.finite(lower, delta)?;
        Ok(agreed(lower, self.max_loss())?.0)
    }

    /// The lower bound on epsilon at the delta of a guarantee of this accountant, checked against the guarantee's epsilon.
    ///
    /// # Errors
    /// The errors of [`Accountant::lower_bound`]; [`AccountingError::BoundsDisagree`] if it lies above that epsilon.
    pub fn lower_bound_of(&self, guarantee: &Guarantee) -> Result<Epsilon, AccountingError> {
        let lower = self.lower_bound(guarantee.delta)?.get();
        Ok(agreed(lower, guarantee.epsilon.get())?.0)
    }

    /// The epsilon that is certainly spent at `delta` and one that is certainly enough: [`Accountant::lower_bound`] and
    /// the epsilon of [`Accountant::guarantee`], to the last digit, for little more than the first alone.
    ///
    /// # Errors
    /// The errors of [`Accountant::lower_bound`] and of [`Accountant::guarantee`];
    /// [`AccountingError::BoundsDisagree`] if the first is the larger one.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Delta, Event, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mut accountant = Accountant::new(Recipe::Pld);
    /// accountant.compose(&Event::Laplace { scale: 20.0 }, 50)?;
    /// let (spent, enough) = accountant.bounds(Delta::new(1e-6)?)?;
    /// assert!(spent <= enough && enough.get() - spent.get() < 1e-3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bounds(&self, delta: Delta) -> Result<(Epsilon, Epsilon), AccountingError> {
        if self.recipe != Recipe::Pld || self.rounds == 0 || !self.attains_its_pairs() {
            let upper = self.guarantee(delta)?.epsilon.get();
            return agreed(self.lower_bound(delta)?.get(), upper);
        }
        self.bounded()?;
        self.above_stated(delta)?;
        let log_delta = delta.get().ln();
        let composition = self.composition(self.log_tail(log_delta))?;
        self.fits()?;
        let (mut lower, upper) = composition.bounds(log_delta);
        let upper = self.rounded_up(upper).min(self.most_epsilon(delta));
        if lower < (1.0 - 1e-6) * upper {
            lower = lower.max(composition.epsilon_of_events(log_delta));
        }
        if !upper.is_finite() {
            return Err(self.no_epsilon(delta));
        }
        agreed(self.finite(lower, delta)?, upper)
    }

    /// A lower bound without what rounding may have added to it. One that is infinite is so by the delta that the events state, which is
    /// set aside.
    fn finite(&self, lower: f64, delta: Delta) -> Result<f64, AccountingError> {
        if lower.is_finite() {
            return Ok((lower - self.rounding()).max(0.0));
        }
        let pure = self.max_loss();
        if pure.is_finite() {
            Ok(pure)
        } else {
            Err(self.no_epsilon(delta))
        }
    }

    /// `true` if some population attains the pairs of all events together.
    fn attains_its_pairs(&self) -> bool {
        let alone = self.rounds == 1;
        self.entries.iter().all(|entry| match entry.event {
            Event::BoundedRange { .. } => alone,
            Event::TruncatedPoissonGaussian { .. } => false,
            _ => true,
        })
    }

    /// Compositions of distributions that some population attains.
    fn attained(&self, log_tail: f64) -> Result<Vec<Composition>, AccountingError> {
        /// Largest losses of two outcomes, as shares of the range: the half is worst over many releases, the whole over one.
        const SHARES: [f64; 6] = [0.5, 0.625, 0.75, 0.875, 0.9375, 0.984_375];
        if self.attains_its_pairs() {
            return Ok(vec![self.composition(log_tail)?]);
        }
        let is_cut = |entry: &&Entry| matches!(entry.event, Event::TruncatedPoissonGaussian { .. });
        if let Some(cut) = self.entries.iter().find(is_cut) {
            return Err(AccountingError::NoLowerBound {
                event: cut.event.kind(),
            });
        }
        // Beside other events, every other one: each costs a composition of all of them.
        let step = if self.entries.len() > 1 { 2 } else { 1 };
        let compositions = SHARES.iter().step_by(step).map(|share| {
            self.composition_of(|event, adjacency| match event {
                Event::BoundedRange { epsilon } if epsilon.get() > 0.0 => {
                    Ok(Some(event::two_outcomes(epsilon.get(), share * epsilon.get())))
                }
                event => event::pair(event, adjacency, log_tail),
            })
        });
        compositions.collect()
    }
}

/// Two bounds that do not contradict each other.
fn agreed(lower: f64, upper: f64) -> Result<(Epsilon, Epsilon), AccountingError> {
    // PRIVACY: one of the two is wrong, and nobody knows which, so neither is shown.
    if lower > upper * (1.0 + SAME) {
        return Err(AccountingError::BoundsDisagree { lower, upper });
    }
    let lower = Epsilon::new(lower.min(upper))?;
    Ok((lower, Epsilon::new(upper).unwrap_or(lower)))
}

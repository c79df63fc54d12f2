//! The distance of a composition from a target, and delta at any epsilon.

use super::Accountant;
use crate::search::excess;
use crate::{AccountingError, Delta, Epsilon};

impl Accountant {
    /// The distance of everything composed from a target: at most 0 if and only if the target holds. For a
    /// [`Bisection`](crate::calibrate::Bisection).
    ///
    /// The distance at a target epsilon of 0 is that of the logarithms of delta: no epsilon has a ratio to 0, but a delta exists there.
    ///
    /// # Errors
    /// The errors of [`Accountant::guarantee`], but for an epsilon that is not finite: the distance is infinite then.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Delta, Epsilon, Event, NoiseMultiplier, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let noise = |z| Ok::<_, undertone_accounting::AccountingError>(Event::Gaussian { noise_multiplier: NoiseMultiplier::new(z)? });
    /// let target = (Epsilon::new(0.0)?, Delta::new(1e-3)?);
    /// let excess = |rounds| {
    ///     let mut accountant = Accountant::new(Recipe::ExactGaussian);
    ///     accountant.compose(&noise(1000.0)?, rounds)?;
    ///     accountant.excess(target)
    /// };
    /// assert!(excess(6)? <= 0.0 && excess(7)? > 0.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn excess(&self, target: (Epsilon, Delta)) -> Result<f64, AccountingError> {
        if target.0.get() == 0.0 {
            return self.excess_of_delta(target.1);
        }
        let spent = match self.epsilon(target.1) {
            Ok((spent, _)) => spent,
            Err(AccountingError::NoFiniteGuarantee { .. }) => f64::INFINITY,
            Err(error) => return Err(error),
        };
        Ok(excess(spent, target.0.get()))
    }

    /// The distance of the logarithms of the delta at epsilon 0 and of `delta`.
    ///
    /// # Errors
    /// The errors of [`Accountant::delta_for`], but for a delta of 1.
    pub(crate) fn excess_of_delta(&self, delta: Delta) -> Result<f64, AccountingError> {
        self.above_stated(delta)?;
        let distance = self.log_delta(Epsilon::new(0.0)?)?.0 - delta.get().ln();
        // PRIVACY: NaN fails.
        Ok(if distance.is_nan() {
            f64::INFINITY
        } else {
            distance
        })
    }

    /// The smallest delta that the recipe can state at any epsilon, also at one below 0, where trade-off curves need it. No more than 1.
    ///
    /// # Guarantee
    /// For `epsilon < 0`, `1 - e^epsilon (1 - delta)` with the delta at `-epsilon`, of the two directions together: where delta is an upper
    /// bound, so is this.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for an epsilon that is not a finite number, and the errors of [`Accountant::delta_for`] but that no
    /// delta is below 1.
    ///
    /// # Example
    /// ```
    /// use undertone_accounting::{Accountant, Event, NoiseMultiplier, Recipe};
    /// # fn main() -> Result<(), undertone_accounting::AccountingError> {
    /// let mut accountant = Accountant::new(Recipe::ExactGaussian);
    /// accountant.compose(&Event::Gaussian { noise_multiplier: NoiseMultiplier::new(1.0)? }, 1)?;
    /// assert!((accountant.delta_at(-1.0)? - 0.678_817_974_887).abs() < 1e-12);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delta_at(&self, epsilon: f64) -> Result<f64, AccountingError> {
        crate::error::ensure(epsilon.is_finite(), "epsilon", "a finite number", epsilon)?;
        let (log_delta, _) = self.log_delta(Epsilon::new(epsilon.abs())?)?;
        let delta = log_delta.exp().clamp(f64::MIN_POSITIVE, 1.0);
        if epsilon >= 0.0 {
            return Ok(delta);
        }
        // Without a difference of numbers near 1; rounded up.
        Ok((-epsilon.exp_m1() + epsilon.exp() * delta).min(1.0 - f64::EPSILON) * (1.0 + f64::EPSILON))
    }
}

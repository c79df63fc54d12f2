//! Sensitivity of a strategy matrix under a participation schema.
//!
//! A correlated-noise mechanism releases `C X + Z`: rows of `X` are the rounds' clipped sums, `Z` is Gaussian.
//! One user changes the rows of a participation set, each by a vector of norm at most one (in units of the
//! clip norm); the mechanism's cost is the largest squared Frobenius norm of what this does to `C X`.
//!
//! | strategy | function | exact |
//! |---|---|---|
//! | binary tree | [`tree::squared_sensitivity`] | always |
//! | binary trees with restarts | [`restart::squared_sensitivity`] | always, also across the borders of trees |
//! | Toeplitz, BLT | [`toeplitz::Toeplitz::squared_sensitivity`] | for non-negative, non-increasing coefficients, and where columns do not meet; refuses others |
//! | column-normalised Toeplitz | [`normalised::NormalisedToeplitz::squared_sensitivity`] | for positive, non-increasing, log-convex coefficients, or narrow ones; refuses others |
//! | banded | [`banded::Banded::squared_sensitivity`] | for bands no wider than the gap; refuses others |
//! | any lower-triangular matrix | [`general::LowerTriangular::squared_sensitivity`] | where a polynomial method is; refuses others |
//!
//! Each function that refuses has a sibling ending in `_bound`, which answers with a proved upper bound.
//!
//! # Source
//! McMahan, Xu, Zhang, "A Hassle-free Algorithm for Strong Differential Privacy in Federated Learning Systems"
//! (\[BLT\]), section 3.2; Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling"
//! (2021), appendix D; Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), section 4.

use crate::participation::Participation;
pub use crate::quantity::SquaredSensitivity;
use crate::{AccountingError, NoiseMultiplier, Rho};

pub mod banded;
#[cfg(test)]
mod exhaustive;
pub mod general;
pub mod normalised;
pub mod production;
pub mod restart;
pub mod separated;
pub mod toeplitz;
pub mod tree;

/// The gap of a schema, at most `rounds`, and its max number of participations, as sizes.
fn sizes(schema: &Participation, rounds: usize) -> (usize, usize) {
    let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
    (
        size(schema.gap().get()).min(rounds),
        size(schema.max_participation()),
    )
}

impl SquaredSensitivity {
    /// The sensitivity: the square root.
    #[must_use]
    pub fn sensitivity(self) -> f64 {
        self.get().sqrt()
    }

    /// `rho = squared sensitivity / (2 z^2)` of Gaussian noise whose standard deviation is `noise_multiplier`
    /// clip norms in every entry of the noise.
    ///
    /// # Guarantee
    /// zCDP under the zero-out relation for every user who keeps to the participation schema; no assumption on
    /// how users are sampled. The release is one Gaussian of noise multiplier `z / sensitivity`, so
    /// [`crate::zcdp::epsilon_of_gaussians`] is exact for it.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] if rho overflows.
    ///
    /// # Source
    /// Bun and Steinke (2016), Proposition 1.6.
    pub fn rho(self, noise_multiplier: NoiseMultiplier) -> Result<Rho, AccountingError> {
        Rho::new(0.5 * self.get() / noise_multiplier.get() / noise_multiplier.get())
    }

    /// The noise multiplier at which a release of this sensitivity costs `rho`.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for a rho or a sensitivity of 0, or if the result overflows.
    pub fn noise_multiplier(self, rho: Rho) -> Result<NoiseMultiplier, AccountingError> {
        NoiseMultiplier::new((0.5 * self.get() / rho.get()).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rho_and_noise_multiplier_are_inverse() {
        let squared = SquaredSensitivity::new(47.0).unwrap();
        let noise = NoiseMultiplier::new(7.0).unwrap();
        let rho = squared.rho(noise).unwrap();
        assert!((rho.get() - 0.479_591_836_734_693_85).abs() < 1e-15);
        assert!((squared.noise_multiplier(rho).unwrap().get() - 7.0).abs() < 1e-14);
        assert!(squared.noise_multiplier(Rho::new(0.0).unwrap()).is_err());
        assert!(squared.rho(NoiseMultiplier::new(1e-200).unwrap()).is_err());
        assert!(SquaredSensitivity::new(f64::NAN).is_err() && SquaredSensitivity::new(-1.0).is_err());
        assert!(serde_json::from_str::<SquaredSensitivity>("-1.0").is_err());
    }
}

//! Adaptive clipping: the split of the noise between the clipped sum and the clipped-fraction estimate.
//!
//! With adaptive clipping every user returns a clipped update and one bit (whether the update was below the clip
//! norm). Both sums are noised; together they must cost what one release at noise multiplier `z` costs. The bits
//! are centred (`b - 1/2`), so one user moves their sum by 1/2 at most.
//!
//! # Source
//! Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (2021), Theorem
//! 1; \[Gboard\] Algorithm 1.

use crate::discrete::positive;
use crate::participation;
use crate::{AccountingError, NoiseMultiplier};

/// Standard deviation of the noise on the sum of bits.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct BitNoise(f64);

impl BitNoise {
    /// Validates a finite standard deviation above 0.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for anything else.
    pub fn new(standard_deviation: f64) -> Result<Self, AccountingError> {
        Ok(Self(positive("bit_noise_std", standard_deviation)?))
    }

    /// The customary choice, a twentieth of the cohort: the estimated fraction is then off by about 0.05.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no clients.
    pub fn for_clients(clients_per_round: u64) -> Result<Self, AccountingError> {
        Self::new(participation::positive(clients_per_round, "clients_per_round")? as f64 / 20.0)
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The noise multiplier `z_D` of the clipped sum when the whole release, bits included, is to cost
/// `noise_multiplier`: `z_D = (z^-2 - (2 sigma_b)^-2)^(-1/2)`. It is above `z`: the sum pays for the bits.
///
/// # Guarantee
/// The sum at `z_D` and the bits at `bit_noise`, in every round or in every tree node, together are one Gaussian
/// release at `noise_multiplier`.
///
/// # Errors
/// [`AccountingError::BitNoise`] if `2 sigma_b <= z`: the bits alone cost too much.
/// [`AccountingError::OutOfRange`] if the result overflows.
///
/// # Example
/// ```
/// use undertone_accounting::NoiseMultiplier;
/// use undertone_accounting::adaptive_clipping::{self, BitNoise};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let whole = NoiseMultiplier::new(7.0)?;
/// let sum = adaptive_clipping::sum_noise_multiplier(whole, BitNoise::for_clients(6500)?)?;
/// assert_eq!(format!("{sum:.5}"), "7.00041");
/// # Ok(())
/// # }
/// ```
pub fn sum_noise_multiplier(
    noise_multiplier: NoiseMultiplier,
    bit_noise: BitNoise,
) -> Result<NoiseMultiplier, AccountingError> {
    let (whole, bits) = (noise_multiplier.get(), 2.0 * bit_noise.get());
    if bits <= whole {
        return Err(AccountingError::BitNoise {
            noise_multiplier: whole,
            bit_noise_std: bit_noise.get(),
        });
    }
    // Factored, so that nothing cancels where the two are close, nor overflows where they are small.
    let share = whole / bits;
    NoiseMultiplier::new(whole / ((1.0 - share) * (1.0 + share)).sqrt())
}

/// The noise multiplier of the whole release, from `sum_noise_multiplier` on the sum and `bit_noise` on the bits:
/// `z = (z_D^-2 + (2 sigma_b)^-2)^(-1/2)`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if the result underflows.
pub fn noise_multiplier(
    sum_noise_multiplier: NoiseMultiplier,
    bit_noise: BitNoise,
) -> Result<NoiseMultiplier, AccountingError> {
    let (sum, bits) = (sum_noise_multiplier.get(), 2.0 * bit_noise.get());
    NoiseMultiplier::new(sum / 1f64.hypot(sum / bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noise(value: f64) -> NoiseMultiplier {
        NoiseMultiplier::new(value).unwrap()
    }

    /// Andrew et al. (2021), Theorem 1, evaluated with mpmath.
    #[test]
    fn sum_noise_multipliers_equal_values_of_mpmath() {
        let check = |whole: f64, clients: u64, want: f64| {
            let got = sum_noise_multiplier(noise(whole), BitNoise::for_clients(clients).unwrap());
            let got = got.unwrap().get();
            assert!((got - want).abs() <= 1e-14 * want, "{whole} {clients}: {got}");
        };
        check(7.0, 6500, 7.000_405_952_470_763);
        check(1.0, 100, 1.005_037_815_259_212);
        check(0.5, 1000, 0.500_006_250_117_189_9);
        check(2.0, 50, 2.182_178_902_359_924);
    }

    #[test]
    fn bits_that_cost_the_whole_budget_are_refused() {
        let message = |whole, clients| {
            let bits = BitNoise::for_clients(clients).unwrap();
            sum_noise_multiplier(noise(whole), bits).unwrap_err().to_string()
        };
        assert!(message(10.0, 100).contains("half the noise multiplier (10), got 5"));
        assert!(message(11.0, 100).starts_with("bit_noise_std: "));
        assert!(BitNoise::for_clients(0).is_err());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(BitNoise::new(bad).is_err());
        }
    }

    proptest! {
        #[test]
        fn sum_noise_multiplier_is_inverted_and_monotone(
            whole in 0.01..50.0f64, excess in 1.001..100.0f64, more in 1.0..3.0f64,
        ) {
            let bits = |factor: f64| BitNoise::new(0.5 * whole * excess * factor).unwrap();
            let sum = sum_noise_multiplier(noise(whole), bits(1.0)).unwrap();
            let back = noise_multiplier(sum, bits(1.0)).unwrap().get();
            prop_assert!((back - whole).abs() <= 1e-11 * whole, "{} {}", back, whole);
            // Up to rounding.
            let with_slack = |value: f64| value * (1.0 + 1e-12);
            let sum_for = |whole, factor| sum_noise_multiplier(noise(whole), bits(factor)).unwrap().get();
            prop_assert!(sum.get() >= whole);
            prop_assert!(sum_for(whole, more) <= with_slack(sum.get()));
            prop_assert!(back <= with_slack(noise_multiplier(sum, bits(more)).unwrap().get()));
            prop_assert!(sum_for(whole / more, 1.0) <= with_slack(sum.get()));
        }
    }
}

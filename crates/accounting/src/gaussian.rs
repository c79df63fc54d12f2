//! The Gaussian mechanism, exactly.
//!
//! # Source
//! Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (ICML 2018), equation 6.

use std::f64::consts::FRAC_1_SQRT_2;

use crate::error::{ensure, no_guarantee};
use crate::search::first_true;
use crate::special::ln_normal_cdf;
use crate::{AccountingError, Delta, Epsilon, NoiseMultiplier, mills};

/// `ln(sqrt(2 pi))`.
const LN_SQRT_TAU: f64 = 0.918_938_533_204_672_8;
/// Bound on the rounding of `ln delta`, relative to its size plus one.
const ROUNDING: f64 = 32.0 * f64::EPSILON;
/// Bound on what a few products and the composition of one release take from a noise multiplier, relative to it.
const SCALING: f64 = 16.0 * f64::EPSILON;

/// The logarithm of the standard normal distribution function at `x`.
///
/// # Example
/// ```
/// use undertone_accounting::gaussian;
/// assert!((gaussian::ln_cdf(-38.0) + 726.557_216_018_820_1).abs() < 1e-10);
/// ```
#[must_use]
pub fn ln_cdf(x: f64) -> f64 {
    ln_normal_cdf(x)
}

/// The logarithm of delta of one Gaussian release at `epsilon`; stays finite far below the smallest `f64` delta.
///
/// # Example
/// ```
/// use undertone_accounting::{Epsilon, NoiseMultiplier, gaussian};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let log_delta = gaussian::log_delta(NoiseMultiplier::new(1.0)?, Epsilon::new(40.0)?);
/// assert!(log_delta < -700.0 && log_delta.is_finite());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn log_delta(noise_multiplier: NoiseMultiplier, epsilon: Epsilon) -> f64 {
    log_delta_at(noise_multiplier.get(), epsilon.get())
}

/// The smallest delta at which one Gaussian release holds `epsilon` (0 where it lies below `f64`).
#[must_use]
pub fn delta(noise_multiplier: NoiseMultiplier, epsilon: Epsilon) -> f64 {
    log_delta(noise_multiplier, epsilon).exp()
}

/// The smallest epsilon at which one Gaussian release holds `delta`.
///
/// # Errors
/// [`AccountingError::NoFiniteGuarantee`] if the noise is too small for a finite `f64` epsilon.
pub fn epsilon(noise_multiplier: NoiseMultiplier, delta: Delta) -> Result<Epsilon, AccountingError> {
    epsilon_at_log_delta(noise_multiplier, delta.get().ln())
}

/// The smallest epsilon at a delta that is given by its logarithm (`log_delta < 0`, finite).
///
/// # Errors
/// [`AccountingError::OutOfRange`] for any other `log_delta`; [`AccountingError::NoFiniteGuarantee`] as
/// [`epsilon`].
pub(crate) fn epsilon_at_log_delta(
    noise_multiplier: NoiseMultiplier,
    log_delta: f64,
) -> Result<Epsilon, AccountingError> {
    let holds = log_delta.is_finite() && log_delta < 0.0;
    ensure(holds, "log_delta", "a finite number < 0", log_delta)?;
    let sigma = noise_multiplier.get();
    if log_delta_at(sigma, 0.0) <= log_delta {
        return Epsilon::new(0.0);
    }
    // The zCDP conversion is an upper bound, so the root lies below it; the margin absorbs its rounding.
    let rho = 0.5 / sigma / sigma;
    let bound = (rho + 2.0 * (-rho * log_delta).sqrt()) * (1.0 + 1e-9) + f64::MIN_POSITIVE;
    if !bound.is_finite() {
        return Err(no_guarantee(format!(
            "the noise multiplier {sigma:e} asks for an epsilon beyond the largest number; raise the noise multiplier"
        )));
    }
    Epsilon::new(first_true(0.0, bound, 0.0, |epsilon| {
        log_delta_at(sigma, epsilon) <= log_delta
    }))
}

/// The smallest noise multiplier at which one Gaussian release holds `(epsilon, delta)`.
///
/// # Errors
/// [`AccountingError::Unreachable`] if it lies above the largest finite search value (only for targets next
/// to zero).
pub fn noise_multiplier(epsilon: Epsilon, delta: Delta) -> Result<NoiseMultiplier, AccountingError> {
    // PRIVACY: the epsilon of what callers scale and compose must not exceed the target, so it holds with room for another evaluation.
    let log_target = delta.get().ln();
    let log_target = log_target - ROUNDING * (1.0 + log_target.abs());
    let holds = |sigma: f64| log_delta_at(sigma, epsilon.get()) <= log_target;
    let mut high = 1.0;
    while !holds(high) {
        high *= 2.0;
        if high > 1e15 {
            return Err(AccountingError::Unreachable {
                quantity: "noise_multiplier",
                target_epsilon: epsilon.get(),
                delta: delta.get(),
                best_epsilon: self::epsilon(NoiseMultiplier::new(high)?, delta)?.get(),
                at: high,
            });
        }
    }
    let mut low = 0.5 * high;
    while holds(low) && low > 1e-100 {
        (low, high) = (0.5 * low, low);
    }
    NoiseMultiplier::new(first_true(low, high, 0.0, holds) * (1.0 + SCALING))
}

/// `ln delta`, rounded up: never below the exact value, and above it by at most 1e-14 of its size plus one.
///
/// With `a = 1 / (2 sigma)`, `b = epsilon sigma` and the Mills ratio `R`, delta is `phi(b - a) (R(b - a) - R(b + a))`. The two ratios are
/// nearly equal where the noise is large, so their difference is taken as an integral there.
fn log_delta_at(sigma: f64, epsilon: f64) -> f64 {
    let (half, drift) = (0.5 / sigma, epsilon * sigma);
    if !drift.is_finite() {
        return f64::NEG_INFINITY;
    }
    // With what rounding took from both.
    let rest_of_half = (-half).mul_add(sigma, 0.5) / sigma;
    let near = (drift - half) + (epsilon.mul_add(sigma, -drift) - rest_of_half);
    let far = drift + half;
    let log_density = -0.5 * near * near - LN_SQRT_TAU;
    let log_delta = if half < 0.25 || 4.0 * half < drift {
        log_density + mills::difference(drift, half).ln()
    } else if near > 0.0 {
        log_density + (mills::ratio(near) - mills::ratio(far)).ln()
    } else {
        // Near is where all is told: one minus what is not.
        let kept = half_tail(-near) + log_density.exp() * mills::ratio(far);
        (-kept).ln_1p()
    };
    // PRIVACY: above the truth by more than the rounding of all of this.
    (log_delta + ROUNDING * (1.0 + log_delta.abs())).min(0.0)
}

/// `1 - Phi(x)` for `x >= 0`.
fn half_tail(x: f64) -> f64 {
    0.5 * libm::erfc(x * FRAC_1_SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_inputs_give_a_finite_epsilon_or_an_error() {
        let z = |value| NoiseMultiplier::new(value).unwrap();
        let d = |value| Delta::new(value).unwrap();
        assert_eq!(epsilon(z(1e4), d(0.1)).unwrap().get(), 0.0);
        assert!(epsilon(z(0.01), d(1e-300)).unwrap().get() > 5000.0);
        assert!(epsilon(z(1e-200), d(1e-5)).is_err());
        assert!(epsilon(z(1e4), d(1e-300)).unwrap().get() < 0.01);
        assert!(epsilon_at_log_delta(z(1.0), f64::NAN).is_err());
        assert!(epsilon_at_log_delta(z(1.0), -1e6).unwrap().get() > 1000.0);
        assert!(noise_multiplier(Epsilon::new(0.0).unwrap(), d(1e-9)).is_ok());
    }

    #[test]
    fn noise_for_a_target_never_exceeds_it() {
        for target in [0.0, 1e-3, 0.1, 1.0, 4.0, 8.0, 30.0, 1e4] {
            for delta in [1e-300, 1e-12, 1e-6, 5e-5, 1e-3] {
                let delta = Delta::new(delta).unwrap();
                let Ok(noise) = noise_multiplier(Epsilon::new(target).unwrap(), delta) else {
                    assert_eq!((target, delta.get()), (0.0, 1e-300));
                    continue;
                };
                // As it is, and after roundings of what is composed.
                for factor in [1.0, 1.0 - 12.0 * f64::EPSILON, 1.0 + 12.0 * f64::EPSILON] {
                    let noise = NoiseMultiplier::new(noise.get() * factor).unwrap();
                    let got = epsilon(noise, delta).unwrap().get();
                    assert!(got <= target, "{got} for {target}");
                }
            }
        }
    }

    #[test]
    fn the_root_is_on_the_safe_side() {
        for (sigma, delta) in [(0.3, 1e-9), (1.0, 1e-6), (7.0, 1e-12), (50.0, 1e-3)] {
            let (sigma, delta) = (NoiseMultiplier::new(sigma).unwrap(), Delta::new(delta).unwrap());
            assert!(log_delta(sigma, epsilon(sigma, delta).unwrap()) <= delta.get().ln());
        }
    }
}

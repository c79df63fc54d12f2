//! Zero-concentrated differential privacy and its conversions.
//!
//! Three conversions, from loosest to tightest; the last one holds only for compositions of Gaussians.

use crate::search::minimum;
use crate::{AccountingError, Delta, Epsilon, NoiseMultiplier, Rho, gaussian};

/// The rho of one Gaussian release, `1 / (2 z^2)`; composition adds the rhos.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `z` is so small that rho overflows.
///
/// # Source
/// Bun and Steinke, "Concentrated Differential Privacy" (2016), Proposition 1.6.
pub fn rho_of_gaussian(noise_multiplier: NoiseMultiplier) -> Result<Rho, AccountingError> {
    Rho::new(0.5 / noise_multiplier.get() / noise_multiplier.get())
}

/// The conversion of Bun and Steinke: `epsilon = rho + 2 sqrt(rho ln(1/delta))`.
///
/// # Source
/// Bun and Steinke (2016), Proposition 1.3.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if the result overflows.
pub fn epsilon_bun_steinke(rho: Rho, delta: Delta) -> Result<Epsilon, AccountingError> {
    let rho = rho.get();
    Epsilon::new(rho + 2.0 * (-rho * delta.get().ln()).sqrt())
}

/// The improved conversion, minimised over continuous orders: `min_a rho a + ln(1 - 1/a) - (ln delta + ln
/// a)/(a - 1)`.
///
/// # Source
/// Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if the result overflows.
///
/// # Example
/// ```
/// use undertone_accounting::{Delta, Rho, zcdp};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let (rho, delta) = (Rho::new(1.86)?, Delta::new(1e-10)?);
/// let loose = zcdp::epsilon_bun_steinke(rho, delta)?;
/// let tight = zcdp::epsilon(rho, delta)?;
/// let exact = zcdp::epsilon_of_gaussians(rho, delta)?;
/// assert!(exact < tight && tight < loose);
/// # Ok(())
/// # }
/// ```
pub fn epsilon(rho: Rho, delta: Delta) -> Result<Epsilon, AccountingError> {
    epsilon_above(rho, 0.0, delta)
}

/// [`epsilon`] for divergences of at most `xi + rho a`.
pub(crate) fn epsilon_above(rho: Rho, xi: f64, delta: Delta) -> Result<Epsilon, AccountingError> {
    let (rho, log_delta) = (rho.get(), delta.get().ln());
    if rho == 0.0 && xi == 0.0 {
        return Epsilon::new(0.0);
    }
    // Searched over u = ln(a - 1). The optimum has (a - 1)^2 rho of the order of ln(1/delta), so the ends are
    // far out.
    let best = minimum(-46.0, 80.0, |u| {
        let excess = u.exp();
        let order = 1.0 + excess;
        rho * order + u - order.ln() - (log_delta + order.ln()) / excess
    });
    Epsilon::new((best + xi).max(0.0))
}

/// `ln delta` at `epsilon` by the improved conversion, minimised over continuous orders (at most 0).
///
/// # Source
/// As [`epsilon`], Proposition 12 solved for delta.
#[must_use]
pub fn log_delta(rho: Rho, epsilon: Epsilon) -> f64 {
    log_delta_above(rho, 0.0, epsilon)
}

/// [`log_delta`] for divergences of at most `xi + rho a`.
pub(crate) fn log_delta_above(rho: Rho, xi: f64, epsilon: Epsilon) -> f64 {
    let (rho, epsilon) = (rho.get(), epsilon.get() - xi);
    if rho == 0.0 && epsilon >= 0.0 {
        return f64::NEG_INFINITY;
    }
    minimum(-46.0, 80.0, |u| {
        let excess = u.exp();
        let order = 1.0 + excess;
        excess * (rho * order - epsilon) + excess * (u - order.ln()) - order.ln()
    })
    .min(0.0)
}

/// The exact epsilon of a composition of Gaussian releases whose rhos add up to `rho`.
///
/// # Guarantee
/// Valid **only** for an (adaptive) composition of Gaussians of fixed sensitivity: other mechanisms of the
/// same rho may be less private than this.
///
/// # Errors
/// [`AccountingError::NoFiniteGuarantee`] if the result overflows.
pub fn epsilon_of_gaussians(rho: Rho, delta: Delta) -> Result<Epsilon, AccountingError> {
    if rho.get() == 0.0 {
        return Epsilon::new(0.0);
    }
    gaussian::epsilon(NoiseMultiplier::new((2.0 * rho.get()).sqrt().recip())?, delta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_ordered_and_finite() {
        for rho in [0.0, 1e-12, 1e-3, 1.0, 1e3, 1e9] {
            for delta in [1e-300, 1e-9, 0.5] {
                let (rho, delta) = (Rho::new(rho).unwrap(), Delta::new(delta).unwrap());
                let loose = epsilon_bun_steinke(rho, delta).unwrap().get();
                let tight = epsilon(rho, delta).unwrap().get();
                let exact = epsilon_of_gaussians(rho, delta).unwrap().get();
                assert!(
                    exact <= tight * (1.0 + 1e-9) && tight <= loose * (1.0 + 1e-9),
                    "{rho} {delta}: {exact} {tight} {loose}"
                );
            }
        }
    }
}

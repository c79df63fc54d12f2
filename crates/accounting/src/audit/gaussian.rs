//! The Gaussian model: scores whose law is normal by construction.
//!
//! # Source
//! Andrew et al. (2023). A fitted spread is dangerous: at `mu = 1` and `delta = 1e-5` a spread of 1.2 instead of 1 moves epsilon from
//! 4.38 to 8.82. So a limit uses the known spread, and the fitted one is for information alone.

use super::distributions::{chi_squared_quantile, normal_cdf, normal_quantile};
use super::one_run_fdp::epsilon_of_mu;
use super::{Significance, last_rejected};
use crate::error::{ensure, ensure_any};
use crate::{AccountingError, Delta, Epsilon};

/// The mean and the spread of normal scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normal {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, > 0.
    pub std: f64,
}

/// The estimate of `mu` from scores of canaries that were in and out, each with a standard deviation of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// `mean(in) - mean(out)`.
    pub estimate: f64,
    /// Its standard error, from the numbers of scores alone.
    pub standard_error: f64,
}

impl Shift {
    /// The shift between two sets of scores.
    ///
    /// # Errors
    /// [`AccountingError::Size`] if one of them is empty.
    pub fn between(members: &[f64], non_members: &[f64]) -> Result<Self, AccountingError> {
        ensure_any("scores of canaries that were in", members)?;
        ensure_any("scores of canaries that were out", non_members)?;
        let (a, b) = (members.len() as f64, non_members.len() as f64);
        Ok(Self {
            estimate: mean(members) - mean(non_members),
            standard_error: (1.0 / a + 1.0 / b).sqrt(),
        })
    }

    /// The lower limit of `mu`, which the truth is below with the probability of the significance.
    #[must_use]
    pub fn lower(&self, significance: Significance) -> f64 {
        let sigmas = -normal_quantile(significance.get());
        (self.estimate - sigmas * self.standard_error).max(0.0)
    }

    /// The lower limit of epsilon at a delta, given normal scores with a standard deviation of 1.
    ///
    /// # Errors
    /// From the accountant.
    pub fn epsilon_lower(
        &self,
        significance: Significance,
        delta: Delta,
    ) -> Result<Epsilon, AccountingError> {
        epsilon_of_mu(self.lower(significance), delta)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The upper limit of the standard deviation of normal values with mean 0, which the truth exceeds with the probability of the significance.
///
/// # Errors
/// [`AccountingError::Size`] without values; [`AccountingError::OutOfRange`] for a sum of squares that is not a finite number above 0.
///
/// # Example
/// ```
/// use undertone_accounting::audit::{Significance, gaussian::std_upper};
/// // 100 values with a mean square of 1: chi-squared with 100 degrees of freedom is below 67.33 with a probability of 0.005.
/// let upper = std_upper(&[1.0; 100], Significance::new(0.005)?)?;
/// assert!((upper - (100.0f64 / 67.3276).sqrt()).abs() < 1e-5);
/// # Ok::<(), undertone_accounting::AccountingError>(())
/// ```
pub fn std_upper(values: &[f64], significance: Significance) -> Result<f64, AccountingError> {
    ensure_any("values of pure noise", values)?;
    let square: f64 = values.iter().map(|value| value * value).sum();
    let holds = square > 0.0 && square.is_finite();
    ensure(holds, "sum of squares", "a finite number > 0", square)?;
    Ok((square / chi_squared_quantile(values.len() as f64, significance.get())).sqrt())
}

/// The smallest epsilon at which two normal laws are `(epsilon, delta)` close, in both directions.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a mean that is not finite or a spread that is not a positive number;
/// [`AccountingError::NoFiniteGuarantee`] where none exists below 10^6.
pub fn epsilon_between(null: Normal, other: Normal, delta: Delta) -> Result<Epsilon, AccountingError> {
    for law in [null, other] {
        ensure(law.mean.is_finite(), "mean", "a finite number", law.mean)?;
        ensure(
            law.std > 0.0 && law.std.is_finite(),
            "std",
            "a number > 0",
            law.std,
        )?;
    }
    let delta = delta.get();
    let exceeds = |epsilon| excess(null, other, epsilon).max(excess(other, null, epsilon)) > delta;
    let found = last_rejected(exceeds);
    // The last value that exceeds delta; the next number up does not.
    Epsilon::new(found)
}

/// `sup_A P[A] - e^epsilon Q[A]`: the hockey-stick divergence of `P` from `Q`.
fn excess(p: Normal, q: Normal, epsilon: f64) -> f64 {
    // In units of Q: P is N(m, s^2) against N(0, 1). The set is where -ln s - (x - m)^2 / (2 s^2) + x^2 / 2 > epsilon.
    let (m, s) = ((p.mean - q.mean) / q.std, p.std / q.std);
    let (a, b, c) = (
        0.5 - 0.5 / (s * s),
        m / (s * s),
        -s.ln() - 0.5 * m * m / (s * s) - epsilon,
    );
    let lower = |x: f64| (normal_cdf((x - m) / s), normal_cdf(x));
    let upper = |x: f64| (normal_cdf(-(x - m) / s), normal_cdf(-x));
    let value = |(p, q): (f64, f64)| p - epsilon.exp() * q;
    if a.abs() < 1e-14 {
        return match b.partial_cmp(&0.0) {
            Some(std::cmp::Ordering::Greater) => value(upper(-c / b)),
            Some(std::cmp::Ordering::Less) => value(lower(-c / b)),
            _ => 0.0,
        };
    }
    let discriminant = b * b - 4.0 * a * c;
    if discriminant <= 0.0 {
        // The quadratic has no sign change: the set is everything or nothing.
        return match a > 0.0 {
            true => (1.0 - epsilon.exp()).max(0.0),
            false => 0.0,
        };
    }
    let far = -0.5 * (b + b.signum() * discriminant.sqrt());
    let (x, y) = match b == 0.0 {
        true => (-discriminant.sqrt() / (2.0 * a), discriminant.sqrt() / (2.0 * a)),
        false => (far / a, c / far),
    };
    let (low, high) = (x.min(y), x.max(y));
    if a > 0.0 {
        return value(lower(low)) + value(upper(high));
    }
    // Between the roots: tails on the side of the mean that they lie on, so that nothing cancels.
    let inside = |mean: f64, std: f64| {
        let (low, high) = ((low - mean) / std, (high - mean) / std);
        match low > 0.0 {
            true => normal_cdf(-low) - normal_cdf(-high),
            false => normal_cdf(high) - normal_cdf(low),
        }
    };
    inside(m, s) - epsilon.exp() * inside(0.0, 1.0)
}

/// The epsilons that cosines between random directions and a release suggest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cosines {
    /// The fitted mean and spread; the spread has the divisor `n`.
    pub fitted: Normal,
    /// Epsilon with the fitted spread. It is no bound.
    pub epsilon_fitted: f64,
    /// Epsilon with the known spread `1 / sqrt(dimension)`.
    pub epsilon_known_std: f64,
    /// Its lower limit.
    pub epsilon_known_std_lower: f64,
}

/// The estimate of Andrew et al. from cosines in `dimension` coordinates.
///
/// # Errors
/// [`AccountingError::Size`] without cosines; as [`epsilon_between`].
pub fn from_cosines(
    cosines: &[f64],
    dimension: u64,
    significance: Significance,
    delta: Delta,
) -> Result<Cosines, AccountingError> {
    ensure_any("cosines", cosines)?;
    let mean = mean(cosines);
    let square = cosines.iter().map(|cosine| (cosine - mean).powi(2)).sum::<f64>();
    let fitted = Normal {
        mean,
        std: (square / cosines.len() as f64).sqrt(),
    };
    let std = 1.0 / (dimension as f64).sqrt();
    let null = Normal { mean: 0.0, std };
    let known = |mean| Ok(epsilon_between(null, Normal { mean, std }, delta)?.get());
    let error = std / (cosines.len() as f64).sqrt();
    let lower = (mean + normal_quantile(significance.get()) * error).max(0.0);
    Ok(Cosines {
        fitted,
        epsilon_fitted: epsilon_between(null, fitted, delta)?.get(),
        epsilon_known_std: known(mean)?,
        epsilon_known_std_lower: known(lower)?,
    })
}

/// The probability of a cosine of `threshold` or more between a fixed and a uniform direction in `dimension >= 2` coordinates.
///
/// The angle `t = sin x` has the density `cos(x)^(dimension - 2)`, which Simpson's rule integrates.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for fewer than 2 dimensions or a threshold outside `[-1, 1]`.
pub fn cosine_tail(dimension: u64, threshold: f64) -> Result<f64, AccountingError> {
    ensure(dimension >= 2, "dimension", "at least 2", dimension as f64)?;
    let holds = (-1.0..=1.0).contains(&threshold);
    ensure(holds, "threshold", "a number in [-1, 1]", threshold)?;
    let power = (dimension - 2) as f64;
    let integral = |from: f64| {
        const STEPS: u32 = 20_000;
        let to = std::f64::consts::FRAC_PI_2;
        let width = (to - from) / f64::from(STEPS);
        let density = |k: u32| (from + f64::from(k) * width).cos().max(0.0).powf(power);
        let inner: f64 = (1..STEPS)
            .map(|k| density(k) * if k % 2 == 1 { 4.0 } else { 2.0 })
            .sum();
        (density(0) + inner + density(STEPS)) * width / 3.0
    };
    let above = integral(threshold.abs().asin()) / (2.0 * integral(0.0));
    Ok(if threshold >= 0.0 { above } else { 1.0 - above })
}

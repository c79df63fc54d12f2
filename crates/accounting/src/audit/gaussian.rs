//! The Gaussian model: scores whose law is normal by construction.
//!
//! # Source
//! Andrew et al. (2023). A fitted spread is dangerous: at `mu = 1` and `delta = 1e-5` a spread of 1.2 instead of 1 moves epsilon from
//! 4.38 to 8.82. So a limit uses the known spread.

use super::Significance;
use super::distributions::{chi_squared_quantile, normal_quantile};
use crate::AccountingError;
use crate::error::{ensure, ensure_any};

/// The estimate of `mu` from scores of canaries that were in and out, each with a standard deviation of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// `mean(in) - mean(out)`.
    pub estimate: f64,
    /// Standard error of the estimate, from the numbers of scores alone.
    pub standard_error: f64,
}

impl Shift {
    /// The lower limit of `mu`, which the truth is below with the probability of the significance.
    #[must_use]
    pub fn lower(&self, significance: Significance) -> f64 {
        let sigmas = -normal_quantile(significance.get());
        (self.estimate - sigmas * self.standard_error).max(0.0)
    }
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

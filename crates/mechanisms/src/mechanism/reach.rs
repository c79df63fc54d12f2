//! The reach of samples: the largest integers that the arithmetic has to hold, and the cost of holding no larger ones.

use crate::error::Result;
use crate::sampler::snapped::SnappedGaussian;

/// Standard deviations that a sample leaves with probability below [`BEYOND_REACH`].
const REACH: f64 = 15.0;

/// `P(|G| > 15) < 8e-51`.
const BEYOND_REACH: f64 = 1e-50;

/// Reach of a sample in standard deviations, rounding included.
pub(super) const LARGEST: f64 = REACH + 1.0;

/// Total variation between a sample of standard deviation `steps` and the ideal one within reach.
pub(super) fn total_variation(steps: f64) -> Result<f64> {
    Ok(SnappedGaussian::new(steps)?.total_variation_per_sample() + BEYOND_REACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_leave_the_reach() {
        // P(|G| > x) < 2 phi(x) / x.
        let bound = 2.0 * (-0.5 * REACH * REACH).exp() / (2.0 * std::f64::consts::PI).sqrt() / REACH;
        assert!(bound < BEYOND_REACH, "{bound}");
        assert!(total_variation(1e12).unwrap() > BEYOND_REACH && total_variation(0.5).is_err());
    }
}

//! The weight of one user in the average.

use crate::error::{Result, ensure};

/// Weights are multiples of `2^-28`, so that weight times `f32` is exact in `f64`.
const WEIGHT_STEPS: f64 = (1u64 << 28) as f64;

/// The weight `w_k = min(n_k / w_hat, 1)` of a user with `examples` examples under the cap `weight_cap`.
///
/// # Guarantee
/// The result lies in `[0, 1]` whatever the arguments, as the sensitivities of [`Estimator`](crate::Estimator) need.
///
/// # Source
/// \[DPLM\] section 2.2. DEVIATION: truncated to a multiple of `2^-28`, so that no weighted update is ever rounded up.
///
/// # Example
/// ```
/// use undertone_aggregation::user_weight;
/// assert_eq!(user_weight(50, 200.0), 0.25);
/// assert_eq!(user_weight(900, 200.0), 1.0);
/// ```
#[must_use]
pub fn user_weight(examples: u64, weight_cap: f64) -> f64 {
    truncate_weight((examples as f64 / weight_cap).clamp(0.0, 1.0))
}

/// Refuses weights outside `[0, 1]`, NaN among them.
pub(crate) fn check_weight(weight: f64) -> Result<()> {
    // PRIVACY: the sensitivities hold for weights up to 1 only.
    let holds = (0.0..=1.0).contains(&weight);
    ensure(holds, "weight", "between 0 and 1", weight).map(drop)
}

/// A weight in `[0, 1]` in steps of its grid, rounded down; NaN becomes 0.
pub(crate) fn weight_steps(weight: f64) -> u64 {
    (weight * WEIGHT_STEPS) as u64
}

/// Truncates a weight in `[0, 1]` onto its grid; NaN becomes 0.
pub(crate) fn truncate_weight(weight: f64) -> f64 {
    weight_steps(weight) as f64 / WEIGHT_STEPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_the_capped_share_of_examples() {
        let check =
            |examples, cap, expected: f64| assert!((user_weight(examples, cap) - expected).abs() < 4e-9);
        check(0, 10.0, 0.0);
        check(3, 7.0, 3.0 / 7.0);
        check(7, 7.0, 1.0);
        check(u64::MAX, 7.0, 1.0);
        check(5, f64::INFINITY, 0.0);
        check(5, -1.0, 0.0);
        check(5, f64::NAN, 0.0);
        check(5, 0.0, 1.0);
        assert!(user_weight(3, 7.0) <= 3.0 / 7.0);
    }
}

//! The discrete Laplace (two-sided geometric) mechanism: `P(x)` proportional to `e^{-a |x|}`.
//!
//! # Source
//! Ghosh, Roughgarden, Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms" (2009), the
//! geometric mechanism.

use super::{Outcomes, at_least_one, log_tail_mass, mass_rounded_up, outcome_count, positive};
use crate::AccountingError;

/// Outcomes of discrete Laplace noise of parameter `a` on an integer query that a neighbour moves by
/// `sensitivity`.
///
/// All outcomes at or beyond either centre have one loss and are merged, so nothing is left out unless the
/// centres lie so far apart that a middle of mass below `e^log_tail` can be skipped.
///
/// # Guarantee
/// Exact (up to the reported missing mass), under the relation `sensitivity` is stated for; pure epsilon is
/// `a * sensitivity`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `a` is not a finite number > 0, `sensitivity` is 0, `log_tail` is not a
/// finite number < 0, or more than 2^22 outcomes would be kept.
pub fn outcomes(a: f64, sensitivity: u64, log_tail: f64) -> Result<Outcomes, AccountingError> {
    positive("parameter", a)?;
    at_least_one("sensitivity", sensitivity)?;
    log_tail_mass(log_tail)?;
    let shift = sensitivity as f64;
    // P(0) = (1 - r) / (1 + r) and P(X <= 0) = 1 / (1 + r) with r = e^-a.
    let log_lump = -(-a).exp().ln_1p();
    let log_peak = (-(-a).exp_m1()).ln() + log_lump;
    // P(X > k) = e^{-a (k + 1)} / (1 + r): the first k at which it is below the tail.
    let reach = ((log_lump - log_tail) / a).floor().max(0.0);
    let apart = shift > 2.0 * reach + 1.0;
    // Outcomes strictly between the centres, as distances from the centre of P.
    let inside = if apart { 2 * reach as u64 } else { sensitivity - 1 };
    let count = outcome_count(inside.saturating_add(2))?;
    let (mut log_p, mut log_q) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut push = |p: f64, q: f64| {
        log_p.push(p);
        log_q.push(q);
    };
    push(log_lump, log_lump - a * shift);
    for index in 1..=inside {
        let (from_p, from_q) = if apart && index as f64 > reach {
            let from_q = index as f64 - reach;
            (shift - from_q, from_q)
        } else {
            (index as f64, shift - index as f64)
        };
        push(log_peak - a * from_p, log_peak - a * from_q);
    }
    push(log_lump - a * shift, log_lump);
    let missing = if apart {
        mass_rounded_up(log_lump - a * (reach + 1.0))
    } else {
        0.0
    };
    Ok(Outcomes {
        log_p,
        log_q,
        missing_p: missing,
        missing_q: missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delta, Epsilon};
    use proptest::prelude::*;

    /// The hockey-stick divergence from the definition, summed over a wide range.
    fn naive(a: f64, sensitivity: u64, epsilon: f64) -> f64 {
        let peak = (-(-a).exp_m1()) / (1.0 + (-a).exp());
        let far = (800.0 / a) as i64;
        let terms = (-far..=far + sensitivity as i64).map(|x| {
            let (p, q) = (x.abs() as f64, (x - sensitivity as i64).abs() as f64);
            peak * ((-a * p).exp() - (epsilon - a * q).exp())
        });
        terms.map(|term| term.max(0.0)).sum()
    }

    #[test]
    fn epsilon_is_pure_and_probabilities_sum_to_one() {
        for (a, sensitivity) in [(0.5, 2), (0.1, 1), (3.0, 7), (1e-6, 3)] {
            let outcomes = outcomes(a, sensitivity, -60.0).unwrap();
            let total: f64 = outcomes.log_p.iter().map(|log| log.exp()).sum();
            assert!((total - 1.0).abs() < 1e-14, "{a}: {total}");
            assert_eq!(outcomes.missing_p, 0.0);
            let pure = a * sensitivity as f64;
            assert!(outcomes.hockey_stick(pure + 1e-14) == 0.0);
            let epsilon = outcomes.epsilon(Delta::new(1e-300).unwrap()).unwrap().get();
            // Two logarithms next to -1 differ by the loss: one ulp of them is the error.
            assert!((epsilon - pure).abs() < 1e-12 * pure + 1e-15, "{epsilon} {pure}");
        }
    }

    #[test]
    fn distant_centres_need_few_outcomes() {
        let far = outcomes(1.0, 1 << 40, -50.0).unwrap();
        assert!(far.log_p.len() < 110 && far.missing_p < (-50f64).exp() * 1.001);
        let total: f64 = far.log_p.iter().map(|log| log.exp()).sum();
        assert!((total + far.missing_p - 1.0).abs() < 1e-14);
        assert!(outcomes(1e-9, 1 << 40, -50.0).is_err()); // too many outcomes
    }

    #[test]
    fn parameters_sensitivities_and_tails_out_of_range_are_refused() {
        for a in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(outcomes(a, 1, -40.0).is_err(), "{a}");
        }
        assert!(outcomes(1.0, 0, -40.0).is_err());
        assert!(outcomes(1.0, 1, f64::NAN).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn delta_matches_the_definition_both_ways(
            a in 0.05f64..3.0, sensitivity in 1u64..20, epsilon in 0.0f64..6.0,
        ) {
            let outcomes = outcomes(a, sensitivity, -50.0).unwrap();
            let delta = outcomes.delta(Epsilon::new(epsilon).unwrap());
            prop_assert!((delta - naive(a, sensitivity, epsilon)).abs() < 1e-12);
            let reversed = outcomes.reversed().hockey_stick(epsilon);
            prop_assert!((outcomes.hockey_stick(epsilon) - reversed).abs() < 1e-14);
        }
    }
}

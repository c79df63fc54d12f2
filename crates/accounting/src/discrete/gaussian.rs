//! The discrete Gaussian on the integers: `P(x)` proportional to `e^{-x^2 / (2 sigma^2)}`.
//!
//! # Source
//! Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (NeurIPS 2020), Definition 1.

use std::f64::consts::PI;

use super::{Outcomes, at_least_one, log_tail_mass, mass_rounded_up, outcome_count, positive};
use crate::AccountingError;

/// Outcomes of discrete Gaussian noise of parameter `sigma` on an integer query that a neighbour moves by
/// `sensitivity`.
///
/// Outcomes further than a tail of mass `e^log_tail` (each side) from both centres are left out.
///
/// # Guarantee
/// Exact up to the reported missing mass, under the relation `sensitivity` is stated for. A smaller move is
/// never less private.
///
/// # Errors
/// [`AccountingError::OutOfRange`] if `sigma` is not a finite number > 0, `sensitivity` is 0, `log_tail` is
/// not a finite number < 0, or more than 2^22 outcomes would be kept (sigma beyond about 250,000).
pub fn outcomes(sigma: f64, sensitivity: u64, log_tail: f64) -> Result<Outcomes, AccountingError> {
    positive("sigma", sigma)?;
    at_least_one("sensitivity", sensitivity)?;
    log_tail_mass(log_tail)?;
    // Falling factor from x to x + 1 is e^{-(2x + 1) / (2 sigma^2)}, and falls itself.
    let (spread, log_total) = (0.5 / sigma / sigma, log_total(sigma));
    let log_mass = |x: f64| -x * x * spread - log_total;
    let log_tail_beyond = |k: f64| log_mass(k + 1.0) - (-(-(2.0 * k + 3.0) * spread).exp_m1()).ln();
    let mut reach = (sigma * (-2.0 * log_tail).sqrt()).floor().max(0.0);
    outcome_count((2.0 * reach) as u64)?;
    while log_tail_beyond(reach) > log_tail {
        reach += 1.0;
    }

    let (reach, shift) = (reach as u64, sensitivity as f64);
    // Two runs of integers, or one where they meet.
    let apart = sensitivity / 2 > reach;
    let count = if apart {
        2 * (2 * reach + 1)
    } else {
        2 * reach + 1 + sensitivity
    };
    let (run, gap_start) = (outcome_count(count)?, 2 * reach + 1);
    let (mut log_p, mut log_q) = (Vec::with_capacity(run), Vec::with_capacity(run));
    for index in 0..count {
        // Distances to the two centres: exact integers, however far apart the centres lie.
        let (from_p, from_q) = if apart && index >= gap_start {
            let from_q = (index - gap_start) as f64 - reach as f64;
            (from_q + shift, from_q)
        } else {
            let from_p = index as f64 - reach as f64;
            (from_p, from_p - shift)
        };
        log_p.push(log_mass(from_p));
        log_q.push(log_mass(from_q));
    }
    let missing = mass_rounded_up(log_tail_beyond(reach as f64) + std::f64::consts::LN_2);
    Ok(Outcomes {
        log_p,
        log_q,
        missing_p: missing,
        missing_q: missing,
    })
}

/// `ln sum_x e^{-x^2 / (2 sigma^2)}`: the sum itself for narrow noise, its Poisson dual for wide noise.
fn log_total(sigma: f64) -> f64 {
    let theta = |decay: f64| {
        let terms = (1..8).map(|k| (-decay * f64::from(k * k)).exp());
        (2.0 * terms.sum::<f64>()).ln_1p()
    };
    if sigma < 0.4 {
        theta(0.5 / sigma / sigma)
    } else {
        theta(2.0 * PI * PI * sigma * sigma) + sigma.ln() + 0.5 * (2.0 * PI).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Delta, Epsilon, NoiseMultiplier};
    use proptest::prelude::*;

    /// Hockey-stick divergences by mpmath at 40 digits; the last one by dp-accounting 0.6.0.
    #[test]
    fn deltas_match_high_precision_values() {
        let check = |sigma, sensitivity, epsilon, want: f64| {
            let got = outcomes(sigma, sensitivity, -80.0).unwrap();
            let delta = got.delta(Epsilon::new(epsilon).unwrap());
            assert!((delta - want).abs() <= 1e-9 * want, "{sigma}: {delta} != {want}");
        };
        check(1.0, 1, 1.0, 0.141_351_339_405_621_92);
        check(20.0, 1, 0.2, 3.954_919_035_426_982_7e-7);
        check(1.0, 1, 0.5, 0.203_982_813_763_439);
    }

    #[test]
    fn probabilities_of_the_outcomes_sum_to_one() {
        for sigma in [0.05, 0.3, 0.399_999, 0.4, 0.7, 1.0, 30.0] {
            let outcomes = outcomes(sigma, 3, -700.0).unwrap();
            for logs in [&outcomes.log_p, &outcomes.log_q] {
                let total: f64 = logs.iter().map(|log| log.exp()).sum();
                assert!((total - 1.0).abs() < 1e-13, "{sigma}: {total}");
            }
            assert!(outcomes.missing_p < 1e-300 && outcomes.missing_p > 0.0);
        }
    }

    #[test]
    fn distant_centres_cost_no_memory() {
        let far = outcomes(2.0, u64::MAX, -60.0).unwrap();
        assert!(far.log_p.len() < 200);
        assert!((far.hockey_stick(50.0) - 1.0).abs() < 1e-12);
        // No outcome is lost or counted twice where the two runs of integers begin to part.
        for sensitivity in 35..50 {
            let outcomes = outcomes(2.0, sensitivity, -60.0).unwrap();
            let total: f64 = outcomes.log_q.iter().map(|log| log.exp()).sum();
            assert!((total - 1.0).abs() < 1e-14, "{sensitivity}: {total}");
        }
    }

    #[test]
    fn wide_noise_is_gaussian() {
        let wide = outcomes(5000.0, 2500, -80.0).unwrap();
        for delta in [1e-3, 1e-9, 1e-15] {
            let delta = Delta::new(delta).unwrap();
            let got = wide.epsilon(delta).unwrap().get();
            let want = crate::gaussian::epsilon(NoiseMultiplier::new(2.0).unwrap(), delta).unwrap();
            assert!((got - want.get()).abs() < 1e-6 * want.get(), "{got} {want}");
        }
    }

    #[test]
    fn scales_sensitivities_and_tails_out_of_range_are_refused() {
        for sigma in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(outcomes(sigma, 1, -40.0).is_err(), "{sigma}");
        }
        assert!(outcomes(1.0, 0, -40.0).is_err());
        for log_tail in [0.0, 1.0, f64::NAN, f64::NEG_INFINITY] {
            assert!(outcomes(1.0, 1, log_tail).is_err(), "{log_tail}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn delta_rises_with_sensitivity_and_keeps_the_zcdp_bound(
            sigma in 0.2f64..20.0, sensitivity in 1u64..8, epsilon in 0.0f64..5.0,
        ) {
            let delta = |sigma, sensitivity, epsilon| {
                let epsilon = Epsilon::new(epsilon).unwrap();
                outcomes(sigma, sensitivity, -60.0).unwrap().delta(epsilon)
            };
            let base = delta(sigma, sensitivity, epsilon);
            prop_assert!(delta(sigma, sensitivity + 1, epsilon) >= base);
            prop_assert!(delta(sigma, sensitivity, epsilon + 0.1) <= base);
            // Wider noise is not always more private pointwise (the grid stays), but the zCDP bound falls.
            let rho = 0.5 * (sensitivity as f64 / sigma).powi(2);
            let bound = if epsilon > rho { (-(epsilon - rho).powi(2) / (4.0 * rho)).exp() } else { 1.0 };
            prop_assert!(base <= bound + 1e-20);
        }
    }
}

//! Optimal banded Toeplitz matrices: BandToep.

use super::descent::Descent;
use super::problem::Problem;
use super::toeplitz_loss::ToeplitzLoss;
use crate::error::Result;
use crate::loss::Losses;
use crate::strategy::Strategy;
use crate::strategy::banded_toeplitz::BandedToeplitz;
use crate::toeplitz;

/// The banded Toeplitz matrix of least loss, scaled to a first column of norm 1, and its losses.
///
/// Takes any schema: beyond the gap, bands are paid for by the exact sensitivity of falling coefficients. The gradient
/// goes through the inverse series by correlations. More bands than rounds count as the rounds.
///
/// # Errors
/// No bands, no rounds, or fewer learning rates than rounds.
///
/// # Source
/// McKenna, "Scaling up the Banded Matrix Factorization Mechanism for Differentially Private ML" (2024), section 4, for
/// one participation.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::optimize::{self, Problem};
///
/// let problem = Problem::new(64, Participation::at_least(Gap::new(8)?, 8)?);
/// let (strategy, losses) = optimize::banded_toeplitz(&problem, 8)?;
/// assert_eq!(strategy.coefficients().len(), 8);
/// assert!(losses.rms_loss < 7.54);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn banded_toeplitz(problem: &Problem, bands: usize) -> Result<(BandedToeplitz, Losses)> {
    let bands = bands.min(problem.rounds.max(1));
    let start = BandedToeplitz::fhu(bands)?;
    let loss = ToeplitzLoss::new(problem)?;
    let mut errors = vec![0.0; problem.rounds];
    let mut sensitivities = vec![0.0; bands];
    // The first coefficient stays 1: the loss does not see a common factor.
    let mut coefficients = start.coefficients().to_vec();
    let point = Descent::default().minimise(coefficients[1..].to_vec(), |x, gradient| {
        coefficients[1..].copy_from_slice(x);
        let Ok(inverse) = toeplitz::inverse(&coefficients, problem.rounds) else {
            return f64::INFINITY;
        };
        let error = loss.log_error(&inverse, &mut errors);
        // The inverse changes by minus its square times the change.
        let square = toeplitz::product(&inverse, &inverse, problem.rounds);
        let back = toeplitz::correlation(&errors, &square, bands);
        let sensitivity = loss.log_sensitivity(&coefficients, &mut sensitivities);
        for ((entry, direct), through) in gradient.iter_mut().zip(&sensitivities[1..]).zip(&back[1..]) {
            *entry = direct - through;
        }
        sensitivity + error
    });
    coefficients[1..].copy_from_slice(&point.x);
    let norm = coefficients.iter().map(|entry| entry * entry).sum::<f64>().sqrt();
    coefficients.iter_mut().for_each(|entry| *entry /= norm);
    let strategy = BandedToeplitz::new(coefficients)?;
    let losses = problem.losses(&Strategy::BandedToeplitz(strategy.clone()))?;
    Ok((strategy, losses))
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;

    use super::*;
    use crate::loss::Objective;
    use crate::testing::at_least;
    use crate::workload::Workload;

    fn check(rounds: usize, bands: usize, objective: Objective, best: f64) {
        let problem = Problem::new(rounds, Participation::single()).with_objective(objective);
        let (strategy, losses) = banded_toeplitz(&problem, bands).unwrap();
        let got = losses.get(objective);
        assert!(got <= best * (1.0 + 1e-7), "{rounds} {bands}: {got} {best}");
        assert!(got >= best * (1.0 - 1e-4), "{rounds} {bands}: {got} {best}");
        assert!((losses.sensitivity - 1.0).abs() < 1e-12 && strategy.coefficients().len() == bands);
    }

    /// The expected losses are those of jax-privacy 2.0.0, 250 steps of L-BFGS.
    #[test]
    fn losses_match_those_of_jax_privacy() {
        check(64, 8, Objective::RmsLoss, 2.663_974_834_130_861_3);
        check(64, 8, Objective::MaxLoss, 3.424_288_785_861_899_8);
        check(256, 32, Objective::RmsLoss, 3.086_810_400_296_228_4);
        check(512, 4, Objective::RmsLoss, 8.283_115_443_317_422);
        check(512, 16, Objective::RmsLoss, 4.746_777_536_153_302);
        check(512, 16, Objective::MaxLoss, 6.341_348_253_800_38);
    }

    #[test]
    fn more_bands_than_the_gap_may_pay() {
        let schema = at_least(8, 2);
        for objective in [Objective::RmsLoss, Objective::MaxLoss] {
            let problem = Problem::new(64, schema).with_objective(objective);
            let loss = |bands| banded_toeplitz(&problem, bands).unwrap().1.get(objective);
            let (narrow, wide) = (loss(8), loss(64));
            assert!(wide < 0.97 * narrow, "{wide} {narrow}");
        }
    }

    #[test]
    fn the_strategy_suits_the_workload() {
        let rates = (0..48).map(|t| if t < 36 { 1.0 } else { 0.1 }).collect();
        let workload = Workload::momentum(0.9)
            .unwrap()
            .with_learning_rates(rates)
            .unwrap();
        let plain = Problem::new(48, Participation::single());
        for objective in [Objective::RmsLoss, Objective::MaxLoss] {
            let problem = plain
                .clone()
                .with_workload(workload.clone())
                .with_objective(objective);
            let (_, suited) = banded_toeplitz(&problem, 12).unwrap();
            let (other, _) = banded_toeplitz(&plain, 12).unwrap();
            let unsuited = problem.losses(&Strategy::BandedToeplitz(other)).unwrap();
            assert!(
                suited.get(objective) < 0.99 * unsuited.get(objective),
                "{suited:?} {unsuited:?}"
            );
        }
    }

    #[test]
    fn one_round_is_trivial_and_zero_rounds_are_refused() {
        let problem = Problem::new(1, Participation::single());
        let (strategy, losses) = banded_toeplitz(&problem, 5).unwrap();
        assert_eq!((strategy.coefficients(), losses.max_loss), (&[1.0][..], 1.0));
        assert!(banded_toeplitz(&problem, 0).is_err());
        assert!(banded_toeplitz(&Problem::new(0, Participation::single()), 1).is_err());
    }
}

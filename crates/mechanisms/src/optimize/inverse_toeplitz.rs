//! Optimal Toeplitz matrices with a banded inverse: BandInvMF and DP-lambda-CGD.

use super::descent::Descent;
use super::problem::Problem;
use super::toeplitz_loss::ToeplitzLoss;
use crate::error::Result;
use crate::loss::Losses;
use crate::strategy::Strategy;
use crate::strategy::inverse_toeplitz::InverseToeplitz;
use crate::strategy::normalised_inverse_toeplitz::NormalisedInverseToeplitz;
use crate::toeplitz;

/// The Toeplitz matrix of least loss among those whose inverse has so many bands, and its losses.
///
/// Goes down from the best of the square roots with fewer bands, each with one band more at a time: its loss never grows
/// with the bands.
///
/// # Errors
/// No bands, no rounds, or fewer learning rates than rounds.
///
/// # Source
/// Kalinin et al., "Back to Square Roots" (2025), section 5 (BandInvMF).
pub fn inverse_toeplitz(problem: &Problem, bands: usize) -> Result<(InverseToeplitz, Losses)> {
    let bands = bands.min(problem.rounds.max(1));
    let loss = ToeplitzLoss::new(problem)?;
    let mut best = descend(problem, &loss, &InverseToeplitz::square_root(bands)?)?;
    let mut narrow: Option<InverseToeplitz> = None;
    for count in (1..)
        .map(|power| 1usize << power)
        .take_while(|count| *count < bands)
        .chain([bands])
    {
        let mut coefficients = match narrow {
            Some(strategy) => strategy.coefficients().to_vec(),
            None => vec![1.0, -0.5],
        };
        coefficients.resize(count, 0.0);
        let start = InverseToeplitz::new(coefficients)?;
        let (strategy, losses) = descend(problem, &loss, &start)?;
        if count == bands && losses.get(problem.objective) < best.1.get(problem.objective) {
            best = (strategy.clone(), losses);
        }
        narrow = Some(strategy);
    }
    Ok(best)
}

fn descend(
    problem: &Problem,
    loss: &ToeplitzLoss<'_>,
    start: &InverseToeplitz,
) -> Result<(InverseToeplitz, Losses)> {
    let bands = start.coefficients().len();
    let rounds = problem.rounds;
    let mut coefficients = start.coefficients().to_vec();
    let mut errors = vec![0.0; bands];
    let mut sensitivities = vec![0.0; rounds];
    let point = Descent::default().minimise(coefficients[1..].to_vec(), |x, gradient| {
        coefficients[1..].copy_from_slice(x);
        let Ok(matrix) = toeplitz::inverse(&coefficients, rounds) else {
            return f64::INFINITY;
        };
        let error = loss.log_error(&coefficients, &mut errors);
        let sensitivity = loss.log_sensitivity(&matrix, &mut sensitivities);
        // The matrix changes by minus its square times the change of its inverse.
        let square = toeplitz::product(&matrix, &matrix, rounds);
        let back = toeplitz::correlation(&sensitivities, &square, bands);
        for ((entry, direct), through) in gradient.iter_mut().zip(&errors[1..]).zip(&back[1..]) {
            *entry = direct - through;
        }
        sensitivity + error
    });
    coefficients[1..].copy_from_slice(&point.x);
    let strategy = InverseToeplitz::new(coefficients)?;
    let losses = problem.losses(&Strategy::InverseToeplitz(strategy.clone()))?;
    Ok((strategy, losses))
}

/// The lambda of DP-lambda-CGD with the least loss, as a strategy, and its losses.
///
/// # Errors
/// No rounds, or fewer learning rates than rounds.
pub(crate) fn lambda(problem: &Problem) -> Result<(InverseToeplitz, Losses)> {
    best_lambda(|lambda| {
        let strategy = InverseToeplitz::lambda(lambda)?;
        let losses = problem.losses(&Strategy::InverseToeplitz(strategy.clone()))?;
        Ok((losses.get(problem.objective), (strategy, losses)))
    })
}

/// The lambda of column-normalised DP-lambda-CGD with the least loss, as a strategy, and its losses.
///
/// # Errors
/// No rounds, or fewer learning rates than rounds.
pub(crate) fn normalised_lambda(problem: &Problem) -> Result<(NormalisedInverseToeplitz, Losses)> {
    best_lambda(|lambda| {
        let inverse = InverseToeplitz::lambda(lambda)?;
        let strategy = NormalisedInverseToeplitz::new(problem.rounds, inverse)?;
        let losses = problem.losses(&Strategy::NormalisedInverseToeplitz(strategy.clone()))?;
        Ok((losses.get(problem.objective), (strategy, losses)))
    })
}

/// Searches `1 - lambda = 10^-x`: a grid for the right valley, then golden sections.
fn best_lambda<T>(mut evaluate: impl FnMut(f64) -> Result<(f64, T)>) -> Result<T> {
    const STEP: f64 = 0.25;
    const LAST: u32 = 24;
    let mut at = |x: f64| evaluate(1.0 - 10f64.powf(-x));
    let mut best = (0.0, at(0.0)?);
    for i in 1..=LAST {
        let x = f64::from(i) * STEP;
        let value = at(x)?;
        if value.0 < best.1.0 {
            best = (x, value);
        }
    }
    let share = 0.5 * (3.0 - 5f64.sqrt());
    let (mut low, mut high) = ((best.0 - STEP).max(0.0), best.0 + STEP);
    let (mut left, mut right) = (low + share * (high - low), high - share * (high - low));
    let (mut at_left, mut at_right) = (at(left)?, at(right)?);
    while high - low > 1e-6 {
        let falls = at_left.0 > at_right.0;
        let inner = if falls { &at_right } else { &at_left };
        if inner.0 < best.1.0 {
            let x = if falls { right } else { left };
            best = (x, at(x)?);
        }
        if falls {
            (low, left) = (left, right);
            at_left = at_right;
            right = high - share * (high - low);
            at_right = at(right)?;
        } else {
            (high, right) = (right, left);
            at_right = at_left;
            left = low + share * (high - low);
            at_left = at(left)?;
        }
    }
    Ok(best.1.1)
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;

    use super::*;
    use crate::loss::Objective;
    use crate::testing::at_least;

    fn problem(rounds: usize, gap: u64, max_par: u64) -> Problem {
        Problem::new(rounds, at_least(gap, max_par))
    }

    /// The upper bounds are the losses of jax-privacy's development version, 150 steps.
    #[test]
    fn losses_never_exceed_those_of_jax_privacy() {
        let check = |rounds, bands, gap, max_par, best: f64| {
            let problem = problem(rounds, gap, max_par);
            let (strategy, losses) = inverse_toeplitz(&problem, bands).unwrap();
            assert!(
                losses.rms_loss <= best * (1.0 + 1e-5),
                "{} {best}",
                losses.rms_loss
            );
            assert_eq!(strategy.coefficients().len(), bands);
        };
        check(64, 4, 16, 4, 4.917_002_877_421_913);
        check(256, 4, 32, 8, 9.362_938_110_782_25);
        check(256, 8, 32, 8, 9.213_783_083_707_458);
    }

    #[test]
    fn more_bands_are_never_worse() {
        for objective in [Objective::MaxLoss, Objective::RmsLoss] {
            let problem = problem(60, 12, 5).with_objective(objective);
            let mut last = f64::INFINITY;
            for bands in [1, 2, 4, 8, 16] {
                let loss = inverse_toeplitz(&problem, bands).unwrap().1.get(objective);
                assert!(loss <= last * (1.0 + 1e-9), "{bands}: {loss} {last}");
                last = loss;
            }
        }
    }

    #[test]
    fn the_best_lambda_matches_two_bands() {
        let problem = problem(64, 16, 4);
        let (best, losses) = lambda(&problem).unwrap();
        let (_, two) = inverse_toeplitz(&problem, 2).unwrap();
        assert!((losses.rms_loss / two.rms_loss - 1.0).abs() < 1e-6, "{best:?}");
        let (_, normalised) = normalised_lambda(&problem).unwrap();
        assert!(normalised.rms_loss < losses.rms_loss);
        assert!(lambda(&Problem::new(0, Participation::single())).is_err());
    }
}

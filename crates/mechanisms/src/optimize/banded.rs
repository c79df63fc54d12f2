//! Optimal banded matrices: BandMF. And without bands: the optimum of one participation.

use super::descent::{Descent, Progress};
use super::problem::Problem;
use super::toeplitz::banded_toeplitz;
use super::triangular_loss::TriangularLoss;
use crate::error::Result;
use crate::loss::Losses;
use crate::strategy::Strategy;
use crate::strategy::banded::Banded;
use crate::toeplitz;
use crate::triangular::Triangular;

/// The banded matrix of unit column norms with the least error, and its losses.
///
/// Up to as many bands as the gap, the columns of one user never meet: the squared sensitivity is the number of
/// participations, for every such matrix, so least error is least loss. The problem is convex in
/// `X = C^T C`; the descent goes over the entries of `C` divided by their column norms, which has the same minimum and
/// takes a third of the steps, from the column-normalised optimal Toeplitz matrix. Time grows as `rounds^2 bands`.
/// [`Objective::MaxLoss`](crate::Objective::MaxLoss) is approached by a power mean of the variances.
///
/// With more bands than the gap the losses count what overlapping columns cost, which the descent does not see. More
/// bands than rounds count as the rounds.
///
/// # Errors
/// No bands, no rounds, or fewer learning rates than rounds.
///
/// # Source
/// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), section 4.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::optimize::{self, Problem};
///
/// let problem = Problem::new(64, Participation::at_least(Gap::new(8)?, 8)?);
/// let (_, losses) = optimize::banded(&problem, 8)?;
/// assert!((losses.rms_loss / 7.411_941_277_339 - 1.0).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn banded(problem: &Problem, bands: usize) -> Result<(Banded, Losses)> {
    banded_watched(problem, bands, &mut |_| ())
}

/// Optimises as [`banded`] does, and calls `watch` after every step: thousands of rounds take a minute.
///
/// # Errors
/// As [`banded`].
pub(crate) fn banded_watched(
    problem: &Problem,
    bands: usize,
    watch: &mut dyn FnMut(Progress),
) -> Result<(Banded, Losses)> {
    let strategy = Banded::from_triangular(min_error(problem, bands, watch)?);
    let losses = problem.losses(&Strategy::Banded(strategy.clone()))?;
    Ok((strategy, losses))
}

/// The matrix of unit column norms and so many bands with the least error.
pub(super) fn min_error(
    problem: &Problem,
    bands: usize,
    watch: &mut dyn FnMut(Progress),
) -> Result<Triangular> {
    let bands = bands.min(problem.rounds.max(1));
    let single = Problem {
        participation: undertone_accounting::participation::Participation::single(),
        ..problem.clone()
    };
    let (start, _) = banded_toeplitz(&single, bands)?;
    let loss = TriangularLoss::new(problem)?;
    let norms = toeplitz::column_norms(start.coefficients(), problem.rounds);
    let mut entries = Vec::new();
    for t in 0..problem.rounds {
        let first = (t + 1).saturating_sub(bands);
        let lags = start.coefficients()[..=t - first].iter().rev();
        entries.extend(
            lags.zip(&norms[first..])
                .map(|(coefficient, norm)| coefficient / norm),
        );
    }
    let mut matrix = Triangular::new(problem.rounds, bands, entries)?;
    let start_entries = matrix.entries().to_vec();
    let descent = Descent {
        memory: 10,
        tolerance: 2e-7,
        ..Descent::default()
    };
    let value_and_gradient = |x: &[f64], gradient: &mut [f64]| {
        matrix.entries_mut().copy_from_slice(x);
        let Some(norms) = normalise(&mut matrix) else {
            return f64::INFINITY;
        };
        let value = loss.by_entries(&matrix, gradient);
        project(&matrix, &norms, gradient);
        value
    };
    let point = descent.minimise_watched(start_entries, value_and_gradient, watch);
    matrix.entries_mut().copy_from_slice(&point.x);
    normalise(&mut matrix);
    Ok(matrix)
}

/// Divides the columns by their norms, which it returns; none if the diagonal is not positive.
fn normalise(matrix: &mut Triangular) -> Option<Vec<f64>> {
    let mut norms = vec![0.0; matrix.rounds()];
    for t in 0..matrix.rounds() {
        for (norm, entry) in norms[matrix.first(t)..].iter_mut().zip(matrix.row(t)) {
            *norm += entry * entry;
        }
    }
    norms.iter_mut().for_each(|norm| *norm = norm.sqrt());
    let mut positive = true;
    for t in 0..matrix.rounds() {
        let first = matrix.first(t);
        let row = matrix.row_mut(t);
        for (entry, norm) in row.iter_mut().zip(&norms[first..]) {
            *entry /= norm;
        }
        positive &= row.last().is_some_and(|diagonal| *diagonal > 0.0);
    }
    positive.then_some(norms)
}

/// Turns the gradient in the entries of the normalised matrix into the gradient in the entries before normalisation.
fn project(matrix: &Triangular, norms: &[f64], gradient: &mut [f64]) {
    let mut along = vec![0.0; matrix.rounds()];
    let mut place = 0;
    for t in 0..matrix.rounds() {
        let row = matrix.row(t);
        for ((sum, entry), slope) in along[matrix.first(t)..]
            .iter_mut()
            .zip(row)
            .zip(&gradient[place..])
        {
            *sum += entry * slope;
        }
        place += row.len();
    }
    place = 0;
    for t in 0..matrix.rounds() {
        let row = matrix.row(t);
        let first = matrix.first(t);
        let slopes = &mut gradient[place..place + row.len()];
        for (((slope, entry), sum), norm) in slopes
            .iter_mut()
            .zip(row)
            .zip(&along[first..])
            .zip(&norms[first..])
        {
            *slope = (*slope - entry * sum) / norm;
        }
        place += row.len();
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Participation;

    use super::*;
    use crate::loss::Objective;
    use crate::testing::{at_least, with_threads};
    use crate::workload::Workload;

    fn problem(rounds: usize, gap: u64, max_par: u64) -> Problem {
        Problem::new(rounds, at_least(gap, max_par))
    }

    /// An independent convex solver; the problem has no lower value.
    #[test]
    fn losses_match_those_of_a_convex_solver() {
        let check = |problem: &Problem, bands: usize, best: f64| {
            let (strategy, losses) = banded(problem, bands).unwrap();
            let certified =
                Strategy::Banded(strategy).squared_sensitivity(problem.rounds, &problem.participation);
            assert!(certified.unwrap().exact);
            let ratio = losses.rms_loss / best;
            assert!(ratio < 1.0 + 5e-6 && ratio > 1.0 - 1e-6, "{ratio}");
        };
        check(&problem(64, 8, 8), 8, 7.411_941_277_339_001);
        let momentum = Workload::momentum(0.9).unwrap();
        check(
            &Problem::new(32, Participation::single()).with_workload(momentum),
            32,
            8.951_674_965_824_187,
        );
    }

    #[test]
    fn the_largest_error_falls_when_it_is_the_objective() {
        let plain = problem(64, 8, 8);
        let (_, by_mean) = banded(&plain, 8).unwrap();
        let (_, by_largest) = banded(&plain.with_objective(Objective::MaxLoss), 8).unwrap();
        assert!(
            by_largest.max_loss < 0.94 * by_mean.max_loss,
            "{by_largest:?} {by_mean:?}"
        );
        assert!(by_mean.rms_loss < by_largest.rms_loss);
    }

    #[test]
    fn a_watched_search_finds_the_same() {
        let plain = problem(64, 8, 8);
        let mut last = None;
        let watched = banded_watched(&plain, 8, &mut |progress| last = Some(progress)).unwrap();
        assert_eq!(watched, banded(&plain, 8).unwrap());
        assert!(
            last.is_some_and(|progress| progress.steps > 3 && progress.fraction > 0.5),
            "{last:?}"
        );
    }

    #[test]
    fn wider_than_the_gap_is_still_bounded() {
        let narrow = problem(40, 5, 4);
        let (strategy, losses) = banded(&narrow, 8).unwrap();
        let strategy = Strategy::Banded(strategy);
        let certified = strategy.squared_sensitivity(40, &narrow.participation).unwrap();
        assert!(certified.squared.get() > 4.0 && losses.sensitivity > 2.0);
    }

    #[test]
    fn the_same_at_any_number_of_threads() {
        let run = |threads: usize| with_threads(threads, || banded(&problem(150, 10, 3), 10).unwrap().0);
        assert_eq!(run(1), run(3));
    }
}

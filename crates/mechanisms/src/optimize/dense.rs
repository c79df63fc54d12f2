//! Dense optimal matrices of short runs.

use undertone_accounting::participation::Spacing;

use super::banded::min_error;
use super::descent::Descent;
use super::problem::Problem;
use super::triangular_loss::TriangularLoss;
use crate::error::Result;
use crate::loss::Losses;
use crate::strategy::Strategy;
use crate::strategy::dense::Dense;
use crate::triangular::Triangular;

/// The matrix of least error among those whose columns are orthogonal where one user can take part in both rounds, and
/// its losses.
///
/// | schema | orthogonal columns | norms |
/// |---|---|---|
/// | one participation | none: the optimum of all matrices | 1 |
/// | fixed epochs to the end of the run | those a multiple of the gap apart | squares of such columns add up to 1 |
/// | fixed epochs, fewer than fit | those a multiple of the gap apart | 1 |
/// | at least a gap | those the gap or more apart: the matrix of [`banded`](super::banded) | 1 |
///
/// Convex; time grows as the cube of the rounds, a few hundred times over. For up to about a thousand rounds.
///
/// # Errors
/// No rounds, or fewer learning rates than rounds.
///
/// # Source
/// Denisov et al. (2022); Choquette-Choo et al., "Multi-Epoch Matrix Factorization Mechanisms" (2022), section 4.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_mechanisms::optimize::{self, Problem};
///
/// let epochs = Participation::fixed_epochs(Gap::new(16)?, 4)?;
/// let (_, losses) = optimize::dense(&Problem::new(64, epochs))?;
/// assert!((losses.rms_loss / 4.407_85 - 1.0).abs() < 1e-4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dense(problem: &Problem) -> Result<(Dense, Losses)> {
    let rounds = problem.rounds;
    let schema = problem.participation.effective(rounds as u64)?.participation;
    let max_par = usize::try_from(schema.max_participation()).unwrap_or(usize::MAX);
    let gap = usize::try_from(schema.gap().get()).map_or(rounds, |gap| gap.min(rounds));
    let matrix = if max_par == 1 {
        min_error(problem, rounds, &mut |_| ())?
    } else {
        let banded = min_error(problem, gap, &mut |_| ())?;
        match schema.spacing() {
            Spacing::AtLeast => widen(&banded)?,
            Spacing::Exactly => epochs(problem, &widen(&banded)?, gap, max_par)?,
        }
    };
    let strategy = Dense::from_triangular(matrix);
    let losses = problem.losses(&Strategy::Dense(strategy.clone()))?;
    Ok((strategy, losses))
}

/// A copy of the matrix with all its zeros stored.
fn widen(matrix: &Triangular) -> Result<Triangular> {
    let rounds = matrix.rounds();
    let mut entries = Vec::with_capacity(rounds * (rounds + 1) / 2);
    for t in 0..rounds {
        entries.extend(std::iter::repeat_n(0.0, matrix.first(t)));
        entries.extend(matrix.row(t));
    }
    Triangular::new(rounds, rounds, entries)
}

/// Goes down in `X = C^T C` with the entries fixed that orthogonality fixes, from a matrix that has them.
///
/// Where one user takes part in every round of an epoch's place, it is the sum of their squared column norms that costs:
/// the descent goes over `X` divided by the roots of these sums. With fewer participations every norm is 1.
fn epochs(problem: &Problem, start: &Triangular, gap: usize, max_par: usize) -> Result<Triangular> {
    let rounds = problem.rounds;
    let apart = |i: usize, j: usize| i != j && (i - j).is_multiple_of(gap) && (i - j) / gap < max_par;
    let all = rounds.div_ceil(gap) <= max_par;
    let group = |i: usize| if all { i % gap } else { i };
    let loss = TriangularLoss::new(problem)?;
    let columns = start.columns(rounds);
    let gram = |i: usize, j: usize| -> f64 {
        if apart(i, j) {
            return 0.0;
        }
        columns[j][i - j..]
            .iter()
            .zip(&columns[i])
            .map(|(x, y)| x * y)
            .sum()
    };
    let lower = |i: usize| (0..=i).map(move |j| (i, j));
    let pairs: Vec<(usize, usize)> = (0..rounds).flat_map(lower).collect();
    let x: Vec<f64> = pairs.iter().map(|&(i, j)| gram(i, j)).collect();
    let mut matrix = start.clone();
    let mut scaled = x.clone();
    // Scales of the groups, and the scaled matrix; none where a sum is not positive.
    let scale = |x: &[f64], scaled: &mut [f64]| -> Option<Vec<f64>> {
        let mut sums = vec![0.0; rounds];
        for (&(i, j), entry) in pairs.iter().zip(x) {
            if i == j {
                sums[group(i)] += entry;
            }
        }
        let scales: Vec<f64> = (0..rounds).map(|i| sums[group(i)].sqrt().recip()).collect();
        for ((&(i, j), entry), out) in pairs.iter().zip(x).zip(scaled) {
            *out = entry * scales[i] * scales[j];
        }
        scales.iter().all(|scale| scale.is_finite()).then_some(scales)
    };
    let descent = Descent {
        memory: 20,
        steps: 2000,
        tolerance: 1e-9,
        ..Descent::default()
    };
    let point = descent.minimise(x, |x, gradient| {
        let Some(scales) = scale(x, &mut scaled) else {
            return f64::INFINITY;
        };
        if !factor(&scaled, &mut matrix) {
            return f64::INFINITY;
        }
        let value = loss.by_gram(&matrix, gradient);
        // What the logarithm of a group's scale gains, through rows and columns.
        let mut gains = vec![0.0; rounds];
        for ((&(i, j), slope), entry) in pairs.iter().zip(&mut *gradient).zip(&scaled) {
            if apart(i, j) {
                *slope = 0.0;
            }
            gains[group(i)] += *slope * entry;
            gains[group(j)] += *slope * entry;
        }
        for (&(i, j), slope) in pairs.iter().zip(gradient) {
            if i == j {
                *slope -= 0.5 * gains[group(i)];
            }
            *slope *= scales[i] * scales[j];
        }
        value
    });
    let _ = scale(&point.x, &mut scaled);
    factor(&scaled, &mut matrix);
    Ok(matrix)
}

/// Reverse Cholesky, `C^T C = X` from the lower triangle of `X`; false where `X` is not positive definite.
fn factor(x: &[f64], matrix: &mut Triangular) -> bool {
    let rounds = matrix.rounds();
    matrix.entries_mut().copy_from_slice(x);
    for t in (0..rounds).rev() {
        let (above, current) = matrix.entries_mut().split_at_mut(t * (t + 1) / 2);
        let row = &mut current[..=t];
        let square = row[t];
        // Not a number is not positive either.
        if square.partial_cmp(&1e-12) != Some(std::cmp::Ordering::Greater) {
            return false;
        }
        let inverse = 1.0 / square.sqrt();
        row.iter_mut().for_each(|entry| *entry *= inverse);
        for i in 0..t {
            let own = row[i];
            let other = &mut above[i * (i + 1) / 2..][..=i];
            for (entry, value) in other.iter_mut().zip(&row[..]) {
                *entry -= own * value;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::{Gap, Participation};

    use super::*;
    use crate::loss::Objective;
    use crate::workload::Workload;

    fn check(problem: &Problem, best: f64) {
        let (strategy, losses) = dense(problem).unwrap();
        assert!(
            losses.rms_loss < best * (1.0 + 1e-5),
            "{} {best}",
            losses.rms_loss
        );
        assert!(
            losses.rms_loss > best * (1.0 - 1e-3),
            "{} {best}",
            losses.rms_loss
        );
        let certified = Strategy::Dense(strategy)
            .squared_sensitivity(problem.rounds, &problem.participation)
            .unwrap();
        assert!(certified.exact);
    }

    /// The expected losses are those of jax-privacy 2.0.0, whose tolerance is 1e-3.
    #[test]
    #[ignore = "slow"]
    fn losses_match_those_of_jax_privacy() {
        let epochs = |gap, max_par| Participation::fixed_epochs(Gap::new(gap).unwrap(), max_par).unwrap();
        check(
            &Problem::new(64, Participation::single()),
            2.099_868_673_240_907_8,
        );
        check(&Problem::new(64, epochs(16, 4)), 4.407_854_957_213_477);
        check(&Problem::new(128, epochs(32, 4)), 4.804_509_398_754_963);
        let momentum = Workload::momentum(0.95).unwrap();
        let problem = Problem::new(32, Participation::single()).with_workload(momentum);
        check(&problem, 12.386_141_086_745_102);
    }

    #[test]
    fn no_schema_beats_a_looser_one() {
        let gap = Gap::new(5).unwrap();
        for objective in [Objective::RmsLoss, Objective::MaxLoss] {
            let loss = |participation| {
                let problem = Problem::new(20, participation).with_objective(objective);
                dense(&problem).unwrap().1.get(objective)
            };
            let single = loss(Participation::single());
            let fixed = loss(Participation::fixed_epochs(gap, 4).unwrap());
            let apart = loss(Participation::at_least(gap, 4).unwrap());
            assert!(single < fixed && fixed < apart, "{single} {fixed} {apart}");
        }
    }

    #[test]
    fn only_positive_definite_matrices_are_factored() {
        let mut matrix = Triangular::new(2, 2, vec![1.0, 0.0, 1.0]).unwrap();
        assert!(factor(&[5.0, 6.0, 9.0], &mut matrix));
        assert_eq!(matrix.entries(), [1.0, 2.0, 3.0]);
        assert!(!factor(&[1.0, 2.0, 1.0], &mut matrix) && !factor(&[f64::NAN, 0.0, 1.0], &mut matrix));
    }
}

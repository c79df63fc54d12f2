//! The largest sum of weights over a participation set: a linear problem, solved exactly.

use crate::AccountingError;
use crate::error::{ensure_any, out_of_range};
use crate::participation::{Gap, Participation, Spacing};

/// The largest sum of `weights`, one per round, over the participation sets of a schema (VecSens). The empty set
/// counts, so it is never negative.
///
/// # Errors
/// [`AccountingError::Size`] for no weights, [`AccountingError::OutOfRange`] for one that is not finite.
///
/// # Source
/// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), Algorithm 3.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::separated;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let schema = Participation::at_least(Gap::new(2)?, 2)?;
/// assert_eq!(separated::vec_sens(&[2.0, 3.0, 2.0, -1.0], &schema)?, 4.0);
/// # Ok(())
/// # }
/// ```
pub fn vec_sens(weights: &[f64], participation: &Participation) -> Result<f64, AccountingError> {
    ensure_any("weights", weights)?;
    if let Some(&got) = weights.iter().find(|weight| !weight.is_finite()) {
        return Err(out_of_range("weight", "a finite number", got));
    }
    let (spacing, gap) = (participation.spacing(), participation.gap());
    Ok(largest_sum(
        weights,
        spacing,
        gap,
        participation.max_participation(),
    ))
}

/// The largest sum of `weights` over sets of at most `max_par` indices spaced as told. O(indices x max_par) for
/// [`Spacing::AtLeast`].
///
/// # Source
/// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), Algorithm 4 (VecSens).
pub(super) fn largest_sum(weights: &[f64], spacing: Spacing, gap: Gap, max_par: u64) -> f64 {
    let length = weights.len();
    let gap = usize::try_from(gap.get()).unwrap_or(usize::MAX);
    let max_par = usize::try_from(max_par).unwrap_or(usize::MAX);
    match spacing {
        Spacing::AtLeast => {
            let tails = suffix_sums(weights, gap, max_par.min(length.div_ceil(gap)));
            tails.last().map_or(0.0, |tail| tail[0])
        }
        Spacing::Exactly => (0..length)
            .flat_map(|start| {
                let run = weights[start..].iter().step_by(gap).take(max_par);
                run.scan(0.0, |sum, weight| {
                    *sum += weight;
                    Some(*sum)
                })
            })
            .fold(0.0, f64::max),
    }
}

/// `[k][i]`: the largest sum of at most `k` weights at least `gap` apart among `weights[i..]`.
pub(super) fn suffix_sums(weights: &[f64], gap: usize, max_par: usize) -> Vec<Vec<f64>> {
    let length = weights.len();
    let mut tails = vec![vec![0.0; length + 1]];
    for count in 1..=max_par {
        let fewer = &tails[count - 1];
        let mut tail = vec![0.0; length + 1];
        for i in (0..length).rev() {
            tail[i] = f64::max(tail[i + 1], weights[i] + fewer[i.saturating_add(gap).min(length)]);
        }
        tails.push(tail);
    }
    tails
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sensitivity::exhaustive;

    #[test]
    fn no_weights_and_infinite_weights_are_refused() {
        for bad in [&[][..], &[f64::NAN], &[1.0, f64::INFINITY]] {
            assert!(vec_sens(bad, &Participation::single()).is_err());
        }
        assert_eq!(vec_sens(&[-1.0], &Participation::single()).unwrap(), 0.0);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_maximum_over_all_sets(
            weights in prop::collection::vec(-20i32..50, 1..=12),
            schema in exhaustive::schema(7, 5),
        ) {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let got = vec_sens(&weights, &schema).unwrap();
            let want = exhaustive::maximum(weights.len(), &schema, |set| set.iter().map(|&i| weights[i]).sum());
            prop_assert_eq!(got, want);
        }
    }
}

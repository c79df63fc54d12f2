//! The largest sum of non-negative weights over a participation set: a linear problem, solved exactly.

use crate::participation::{Gap, Spacing};

/// The largest sum of `weights` over sets of at most `most` indices spaced as told. O(indices x most) for
/// [`Spacing::AtLeast`].
///
/// # Source
/// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization" (2023), Algorithm 4 (VecSens).
pub(super) fn largest_sum(weights: &[f64], spacing: Spacing, gap: Gap, most: u64) -> f64 {
    let length = weights.len();
    let gap = usize::try_from(gap.get()).unwrap_or(usize::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match spacing {
        Spacing::AtLeast => {
            let tails = suffix_sums(weights, gap, most.min(length.div_ceil(gap)));
            tails.last().map_or(0.0, |tail| tail[0])
        }
        Spacing::Exactly => (0..length)
            .map(|start| weights[start..].iter().step_by(gap).take(most).sum())
            .fold(0.0, f64::max),
    }
}

/// `[k][i]`: the largest sum of at most `k` weights at least `gap` apart among `weights[i..]`.
pub(super) fn suffix_sums(weights: &[f64], gap: usize, most: usize) -> Vec<Vec<f64>> {
    let length = weights.len();
    let mut tails = vec![vec![0.0; length + 1]];
    for count in 1..=most {
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

    proptest! {
        #[test]
        fn as_over_all_sets(
            weights in prop::collection::vec(0u32..50, 1..=12),
            schema in exhaustive::schema(7, 5),
        ) {
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let got = largest_sum(&weights, schema.spacing(), schema.gap(), schema.max_participation());
            let want = exhaustive::maximum(weights.len(), &schema, |set| set.iter().map(|&i| weights[i]).sum());
            prop_assert_eq!(got, want);
        }
    }
}

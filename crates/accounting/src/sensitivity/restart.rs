//! Trees that are restarted: several binary trees, one after another, each with its own noise.
//!
//! Restarting bounds how much noise a prefix sum carries and lets what depends on past releases (the clip norm
//! of adaptive clipping) change between trees. A user's participations spread over the trees, and the gap holds
//! across their borders.

use super::tree::{self, TreeSensitivity};
use crate::error::{ensure, finite_order};
use crate::participation::{Participation, positive};
use crate::sensitivity::SquaredSensitivity;
use crate::{AccountingError, NoiseMultiplier};

/// Lengths of the trees of a run of `rounds` rounds that restarts after `first` rounds and then every `period`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for a zero, and for more than 2^20 trees.
///
/// # Source
/// \[Gboard\] section 2.4 restarts at rounds `128 + 1024 i`.
///
/// # Example
/// ```
/// use undertone_accounting::sensitivity::restart;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// assert_eq!(restart::tree_rounds(2000, 128, 1024)?, [128, 1024, 848]);
/// # Ok(())
/// # }
/// ```
pub fn tree_rounds(rounds: u64, first: u64, period: u64) -> Result<Vec<u64>, AccountingError> {
    let rounds = positive(rounds, "rounds")?;
    let first = positive(first, "first restart")?.min(rounds);
    let period = positive(period, "restart period")?;
    let trees = 1 + (rounds - first).div_ceil(period);
    ensure(trees <= 1 << 20, "trees", "at most 2^20 restarts", trees as f64)?;
    let starts = (0..trees - 1).map(|tree| first + tree * period);
    Ok([first]
        .into_iter()
        .chain(starts.map(|start| period.min(rounds - start)))
        .collect())
}

/// The exact squared sensitivity of trees over `tree_rounds` rounds, one after another: the maximum over the
/// participation sets of the whole run, with the gap held across the borders of trees, of the sum of all trees'
/// sums of squares.
///
/// # Guarantee
/// As [`tree::squared_sensitivity`]; all trees' noise has the same standard deviation in units of the clip norm
/// that is active in the tree.
///
/// # Errors
/// As [`tree::squared_sensitivity`], and [`AccountingError::OutOfRange`] for no tree.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_accounting::sensitivity::{restart, tree};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let schema = Participation::at_least(Gap::new(213)?, 4)?;
/// let restarted = restart::squared_sensitivity(&[512, 512], &schema)?;
/// let whole = tree::squared_sensitivity(1024, &schema)?;
/// // Nobody's four participations meet under one root any more.
/// assert!(restarted.squared_sensitivity < whole.squared_sensitivity);
/// # Ok(())
/// # }
/// ```
pub fn squared_sensitivity(
    tree_rounds: &[u64],
    participation: &Participation,
) -> Result<TreeSensitivity, AccountingError> {
    tree::forest(tree_rounds, &participation.effective(total(tree_rounds)?)?)
}

/// The sum over all trees' complete nodes of the squared number of given participations below: what one user who takes
/// part in exactly these rounds (each counted as often as it is given) moves, squared.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for no tree, or a round beyond the last tree.
///
/// # Example
/// ```
/// use undertone_accounting::sensitivity::restart;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// // Two leaves, their parent above both.
/// assert_eq!(restart::squared_norm(&[2], &[0, 1])?.get(), 6.0);
/// # Ok(())
/// # }
/// ```
pub fn squared_norm(
    tree_rounds: &[u64],
    participations: &[u64],
) -> Result<SquaredSensitivity, AccountingError> {
    let rounds = total(tree_rounds)?;
    let mut sorted = participations.to_vec();
    sorted.sort_unstable();
    let last = sorted.last().copied().unwrap_or(0);
    let expected = "less than the number of rounds";
    ensure(last < rounds, "round of a participation", expected, last as f64)?;
    let mut sum = 0.0;
    let mut start = 0;
    for &length in tree_rounds {
        let inside = sorted
            .iter()
            .filter(|&&round| round >= start && round - start < length);
        let leaves: Vec<u64> = inside.map(|round| round - start).collect();
        for height in 0..=length.checked_ilog2().unwrap_or(0) {
            let below = leaves.chunk_by(|x, y| x >> height == y >> height);
            let complete = below.filter(|node| node[0] >> height < length >> height);
            sum += complete.map(|node| (node.len() * node.len()) as f64).sum::<f64>();
        }
        start += length;
    }
    SquaredSensitivity::new(sum)
}

/// An upper bound on [`squared_sensitivity`] in closed form; see [`tree::squared_sensitivity_bound`].
///
/// # Errors
/// [`AccountingError::OutOfRange`] as [`squared_sensitivity`].
pub fn squared_sensitivity_bound(
    tree_rounds: &[u64],
    participation: &Participation,
) -> Result<SquaredSensitivity, AccountingError> {
    let schema = participation.effective(total(tree_rounds)?)?.participation;
    let (gap, max_par) = (schema.gap(), schema.max_participation());
    let longest = tree_rounds.iter().copied().fold(1, u64::max);
    let max_below = (0..=longest.ilog2()).map(|height| max_par.min(gap.fitting(1 << height)) as f64);
    SquaredSensitivity::new(max_par as f64 * max_below.sum::<f64>())
}

/// The squared sensitivity when one user takes part once in every tree, at the worst place of each.
///
/// # Guarantee
/// Exact for a schema of one participation per tree without any gap; an upper bound with one.
///
/// # Errors
/// [`AccountingError::OutOfRange`] as [`squared_sensitivity`].
///
/// # Source
/// Kairouz et al. (2021), Theorem D.2: a leaf lies under `floor(log2 rounds) + 1` nodes.
pub fn once_per_tree(tree_rounds: &[u64]) -> Result<SquaredSensitivity, AccountingError> {
    total(tree_rounds)?;
    let nodes = tree_rounds.iter().map(|rounds| {
        let rounds = positive(*rounds, "rounds of a tree")?;
        Ok(f64::from(rounds.ilog2() + 1))
    });
    SquaredSensitivity::new(nodes.sum::<Result<f64, AccountingError>>()?)
}

/// Renyi divergence of order `order` of [`once_per_tree`]: `order * sum / (2 z^2)`.
///
/// # Errors
/// [`AccountingError::OutOfRange`] as [`once_per_tree`], and for an order not above 1.
pub fn rdp_once_per_tree(
    tree_rounds: &[u64],
    noise_multiplier: NoiseMultiplier,
    order: f64,
) -> Result<f64, AccountingError> {
    Ok(finite_order(order)? * once_per_tree(tree_rounds)?.rho(noise_multiplier)?.get())
}

/// Rounds of all trees together, within what an `f64` counts exactly.
fn total(tree_rounds: &[u64]) -> Result<u64, AccountingError> {
    let sum = tree_rounds
        .iter()
        .try_fold(0u64, |sum, &rounds| sum.checked_add(rounds));
    let sum = positive(sum.unwrap_or(u64::MAX), "rounds")?;
    ensure(sum <= 1 << 53, "rounds", "at most 2^53", sum as f64)?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sensitivity::exhaustive::{self, at_least};

    /// `rdp_tfp_sum` of TF-Privacy's compute_rdp_tree_restart.
    #[test]
    fn rdp_equals_that_of_tf_privacy() {
        let check = |trees: &[u64], noise: f64, order: f64, want: f64| {
            let got = rdp_once_per_tree(trees, NoiseMultiplier::new(noise).unwrap(), order).unwrap();
            assert!((got - want).abs() <= 1e-12 * want, "{trees:?}: {got}");
        };
        check(&[1024], 7.0, 1.5, 0.168_367_346_938_775_5);
        check(&[128, 1024, 1024], 7.0, 1.5, 0.459_183_673_469_387_77);
        check(&[128, 1024, 1024], 7.0, 32.0, 9.795_918_367_346_939);
        check(&[1], 1.0, 2.0, 1.0);
    }

    #[test]
    fn rounds_are_cut_into_trees_of_their_lengths() {
        assert_eq!(tree_rounds(100, 128, 1024).unwrap(), [100]);
        assert_eq!(tree_rounds(128, 128, 1024).unwrap(), [128]);
        assert_eq!(tree_rounds(1152, 128, 1024).unwrap(), [128, 1024]);
        assert_eq!(tree_rounds(1153, 128, 1024).unwrap(), [128, 1024, 1]);
        assert!(tree_rounds(1 << 40, 1, 1).is_err());
    }

    #[test]
    fn runs_without_rounds_or_with_empty_trees_are_refused() {
        let schema = Participation::single();
        for bad in [&[][..], &[0], &[3, 0, 2], &[u64::MAX, 2]] {
            assert!(squared_sensitivity(bad, &schema).is_err(), "{bad:?}");
            assert!(once_per_tree(bad).is_err(), "{bad:?}");
        }
        assert!(rdp_once_per_tree(&[4], NoiseMultiplier::new(1.0).unwrap(), 1.0).is_err());
    }

    #[test]
    fn squared_norms_of_sets_have_known_values() {
        let check = |trees: &[u64], set: &[u64], want: f64| {
            assert_eq!(squared_norm(trees, set).unwrap().get(), want, "{trees:?} {set:?}");
        };
        check(&[8], &[0, 4], 10.0);
        check(&[16], &[12, 8, 4, 0], 36.0);
        // The early set of [BLT] Remark 3.2, which is not the worst one.
        check(&[2350], &[0, 438, 876, 1314, 1752], 90.0);
        check(&[3, 2], &[2, 3, 4], 1.0 + 6.0);
        check(&[4], &[], 0.0);
        check(&[1], &[0, 0], 4.0);
        assert!(squared_norm(&[3, 2], &[5]).is_err() && squared_norm(&[], &[]).is_err());
    }

    #[test]
    fn once_per_tree_is_an_upper_bound_of_as_many_participations() {
        let trees = [128, 1024, 848];
        let thrice = |gap| squared_sensitivity(&trees, &at_least(gap, 3)).unwrap();
        let bound = once_per_tree(&trees).unwrap();
        // So far apart that two cannot share a tree of 1024.
        assert!(thrice(1000).squared_sensitivity <= bound);
        // Closer, they share nodes and cost more: the schema matters, not the number alone.
        assert!(thrice(200).squared_sensitivity > bound);
    }

    proptest! {

        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn the_largest_squared_norm_is_the_sensitivity(
            lengths in prop::collection::vec(1u64..5, 1..4),
            schema in exhaustive::schema(9, 5),
        ) {
            let rounds: u64 = lengths.iter().sum();
            let want = squared_sensitivity(&lengths, &schema).unwrap().squared_sensitivity.get();
            let got = exhaustive::maximum(rounds as usize, &schema, |set| {
                let set: Vec<u64> = set.iter().map(|&round| round as u64).collect();
                squared_norm(&lengths, &set).unwrap().get()
            });
            prop_assert_eq!(got, want);
        }

        #[test]
        #[ignore = "slow"]
        fn the_sensitivity_is_the_maximum_over_all_sets(
            trees in prop::collection::vec(1u64..=7, 1..=4),
            schema in exhaustive::schema(9, 6),
        ) {
            let rounds = trees.iter().sum::<u64>() as usize;
            prop_assume!(rounds <= 16);
            // Straight from the definition: nodes of every tree, counted from its begin.
            let value = |set: &[usize]| {
                let (mut sum, mut begin) = (0, 0);
                for &length in &trees {
                    let mut size = 1;
                    while size <= length as usize {
                        for node in 0..length as usize / size {
                            let low = begin + node * size;
                            let below = set.iter().filter(|&&round| (low..low + size).contains(&round)).count();
                            sum += below * below;
                        }
                        size *= 2;
                    }
                    begin += length as usize;
                }
                sum as f64
            };
            let got = squared_sensitivity(&trees, &schema).unwrap();
            prop_assert_eq!(got.squared_sensitivity.get(), exhaustive::maximum(rounds, &schema, value));
            prop_assert!(squared_sensitivity_bound(&trees, &schema).unwrap() >= got.squared_sensitivity);
        }

        #[test]
        fn restarting_never_costs(
            first in 1u64..500, second in 1u64..500, gap in 1u64..200, max_par in 1u64..8,
        ) {
            // Splitting only removes nodes where the first tree ends on a border of the whole one's nodes.
            let first = 1 << first.ilog2();
            let second = second.min(first);
            let schema = at_least(gap, max_par);
            let split = squared_sensitivity(&[first, second], &schema).unwrap().squared_sensitivity;
            let whole = tree::squared_sensitivity(first + second, &schema).unwrap().squared_sensitivity;
            prop_assert!(split <= whole);
        }
    }
}

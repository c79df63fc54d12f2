//! Binary tree aggregation: the exact sensitivity of one tree under repeated participation.
//!
//! The tree's nodes are the dyadic intervals `[i 2^h, (i + 1) 2^h)` that lie wholly inside `[0, rounds)`; each
//! holds the sum of its rounds and gets its own Gaussian noise. A user who takes part in a set of rounds moves
//! every node by at most the number of those rounds below it, and reaches that in all nodes at once.

mod block;

use serde::{Deserialize, Serialize};

use crate::AccountingError;
use crate::participation::Participation;
use crate::sensitivity::{SquaredSensitivity, restart};

/// The sensitivity of a tree, and the cheapest way to reach it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TreeSensitivity {
    /// The largest sum over nodes of the squared number of participations below.
    pub squared_sensitivity: SquaredSensitivity,
    /// The fewest participations that reach it. May be less than the schema allows: fewer participations can
    /// lie together under more nodes.
    pub best_participation: u64,
}

/// The exact squared sensitivity of one tree over `rounds` leaves: the maximum, over the participation sets of
/// the schema, of the sum over complete nodes of the squared number of participations below.
///
/// # Guarantee
/// Exact, hence an upper bound for every user who keeps to the schema, under the zero-out relation. A tree
/// whose incomplete nodes are released as well (a tree padded to a power of two and finished) is a tree over
/// the padded number of rounds.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for no rounds or more than 2^53;
/// [`AccountingError::SensitivityTooLarge`] where the exact maximum would take long (tens of thousands of
/// participations); [`squared_sensitivity_bound`] always answers.
///
/// # Source
/// Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling" (2021), appendix D;
/// \[Gboard\] Tables 1-2. The early-participation value of \[BLT\] Remark 3.2 is a *lower* bound and not used.
///
/// # Example
/// ```
/// use undertone_accounting::NoiseMultiplier;
/// use undertone_accounting::participation::{Participation, RoundsBetween};
/// use undertone_accounting::sensitivity::tree;
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// // [Gboard] Table 1, de-DE: 930 rounds, MinS 212, MaxP 4, noise multiplier 7.
/// let schema = Participation::at_least(RoundsBetween::new(212).gap(), 4)?;
/// let tree = tree::squared_sensitivity(930, &schema)?;
/// let rho = tree.squared_sensitivity.rho(NoiseMultiplier::new(7.0)?)?;
/// assert_eq!(format!("{:.2}", rho.get()), "0.48");
/// # Ok(())
/// # }
/// ```
pub fn squared_sensitivity(
    rounds: u64,
    participation: &Participation,
) -> Result<TreeSensitivity, AccountingError> {
    restart::squared_sensitivity(&[rounds], participation)
}

/// An upper bound on [`squared_sensitivity`] in closed form, for any number of participations.
///
/// # Guarantee
/// Never below the exact value: in every level of the tree the counts `c` add up to at most the number of
/// participations K, and none exceeds `min(K, ceil(size / gap))`, so the sum of `c^2` is at most the product.
///
/// # Errors
/// [`AccountingError::OutOfRange`] for no rounds.
pub fn squared_sensitivity_bound(
    rounds: u64,
    participation: &Participation,
) -> Result<SquaredSensitivity, AccountingError> {
    restart::squared_sensitivity_bound(&[rounds], participation)
}

/// Heights of the complete nodes that a tree over `rounds` leaves splits into, from left to right.
pub(super) fn complete_heights(rounds: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS)
        .rev()
        .filter(move |height| rounds >> height & 1 == 1)
}

pub(super) use block::forest;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::participation::{Gap, RoundsBetween, Spacing};
    use crate::sensitivity::exhaustive::{self, at_least};
    use crate::{Delta, NoiseMultiplier, zcdp};

    /// Straight from the definition.
    fn value(rounds: usize, set: &[usize]) -> f64 {
        let mut sum = 0;
        for height in 0..usize::BITS {
            let Some(size) = 1usize.checked_shl(height).filter(|&size| size <= rounds) else {
                break;
            };
            for node in 0..rounds / size {
                let below = set.iter().filter(|&&round| round / size == node).count();
                sum += below * below;
            }
        }
        sum as f64
    }

    fn check(rounds: u64, min_sep: u64, max_par: u64, squared: f64, best: u64) {
        let schema = Participation::at_least(RoundsBetween::new(min_sep).gap(), max_par).unwrap();
        let got = squared_sensitivity(rounds, &schema).unwrap();
        assert_eq!(
            (got.squared_sensitivity.get(), got.best_participation),
            (squared, best),
            "{rounds} {min_sep} {max_par}"
        );
        let bound = squared_sensitivity_bound(rounds, &schema).unwrap();
        assert!(bound >= got.squared_sensitivity, "{bound} for {squared}");
    }

    /// Rounds, MinS, MaxP of [Gboard] Tables 1-2 and some corners; sums of squares by TF-Privacy's recursion
    /// and an independent dynamic programme.
    #[test]
    fn sensitivities_equal_those_of_two_references() {
        check(930, 212, 4, 47.0, 4);
        check(980, 226, 4, 47.0, 4);
        check(1280, 180, 5, 87.0, 5);
        check(1620, 303, 5, 70.0, 5);
        check(1900, 526, 3, 34.0, 3);
        check(1750, 349, 4, 51.0, 4);
        check(2800, 371, 7, 128.0, 7);
        check(1360, 622, 2, 24.0, 2);
        check(3600, 909, 3, 44.0, 3);
        check(1290, 170, 6, 112.0, 6);
        check(1980, 343, 5, 63.0, 5);
        check(2000, 313, 6, 79.0, 6);
        check(2350, 437, 5, 92.0, 5);
        check(1, 0, 1, 1.0, 1);
        check(2, 0, 2, 6.0, 2);
        check(16, 3, 4, 36.0, 4);
        check(33, 5, 6, 82.0, 6);
        check(64, 0, 64, 8128.0, 64);
        check(100, 9, 10, 141.0, 10);
        check(1024, 255, 4, 60.0, 4);
        check(1000, 99, 10, 143.0, 10);
        // One participation: the tallest complete node.
        check(1 << 40, 5, 1, 41.0, 1);
        check((1 << 40) - 1, 1 << 60, 3, 40.0, 1);
        // Only {0, 1200, 2400} fits: two below the tall node, one in a block of its own.
        check(2401, 1199, 3, 26.0 + 1.0, 3);
    }

    #[test]
    fn a_table_row_has_its_epsilon() {
        let schema = at_least(213, 4);
        let tree = squared_sensitivity(930, &schema).unwrap().squared_sensitivity;
        let rho = tree.rho(NoiseMultiplier::new(7.0).unwrap()).unwrap();
        let epsilon = zcdp::epsilon_of_gaussians(rho, Delta::new(1e-10).unwrap()).unwrap();
        assert!((epsilon.get() - 6.400_009_602_276_592).abs() < 1e-9);
    }

    #[test]
    fn early_participation_is_only_a_lower_bound() {
        // The paper's Remark 3.2 conjectures it tight; at n = 2350, k = 5, gap 438 it is 90 against 92.
        let early: Vec<usize> = (0..5).map(|j| 438 * j).collect();
        assert_eq!(value(2350, &early), 90.0);
        check(2350, 437, 5, 92.0, 5);
    }

    #[test]
    fn too_many_rounds_or_participations_are_refused() {
        assert!(matches!(
            squared_sensitivity(0, &at_least(1, 1)),
            Err(AccountingError::OutOfRange {
                quantity: "rounds",
                ..
            })
        ));
        assert!(squared_sensitivity(1 << 54, &at_least(1, 1)).is_err());
        let many = at_least(1, 1 << 30);
        let error = squared_sensitivity(1 << 30, &many).unwrap_err();
        assert!(
            matches!(error, AccountingError::SensitivityTooLarge { .. }),
            "{error}"
        );
        assert!(squared_sensitivity_bound(1 << 30, &many).is_ok());
        let epochs = Participation::fixed_epochs(Gap::new(1 << 20).unwrap(), 1 << 20).unwrap();
        assert!(squared_sensitivity(1 << 40, &epochs).is_err());
    }

    #[test]
    fn all_rounds_of_a_complete_tree() {
        // A tree of 2^h leaves, all taken: sum over levels of 2^(h-l) nodes with 2^l participations each.
        let got = squared_sensitivity(4096, &at_least(1, 4096)).unwrap();
        assert_eq!(got.squared_sensitivity.get(), 4096.0 * 8191.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        #[ignore = "slow"]
        fn the_sensitivity_is_the_maximum_over_all_sets(
            rounds in 1usize..=16, schema in exhaustive::schema(9, 6),
        ) {
            let got = squared_sensitivity(rounds as u64, &schema).unwrap();
            let want = exhaustive::maximum(rounds, &schema, |set| value(rounds, set));
            prop_assert_eq!(got.squared_sensitivity.get(), want);
            let fewest = exhaustive::sets(rounds, &schema)
                .iter()
                .filter(|set| value(rounds, set) == want)
                .map(Vec::len)
                .min();
            prop_assert_eq!(Some(got.best_participation as usize), fewest);
            prop_assert!(squared_sensitivity_bound(rounds as u64, &schema).unwrap().get() >= want);
        }

        #[test]
        fn sensitivity_rises_with_rounds_and_falls_with_gap(
            rounds in 1u64..3000, gap in 1u64..400, max_par in 1u64..12, more in 1u64..50,
        ) {
            let squared = |rounds, gap, max_par| {
                squared_sensitivity(rounds, &at_least(gap, max_par)).unwrap().squared_sensitivity
            };
            let base = squared(rounds, gap, max_par);
            prop_assert!(squared(rounds + more, gap, max_par) >= base);
            prop_assert!(squared(rounds, gap + more, max_par) <= base);
            prop_assert!(squared(rounds, gap, max_par + more) >= base);
            let epochs = Participation::fixed_epochs(Gap::new(gap).unwrap(), max_par).unwrap();
            prop_assert!(squared_sensitivity(rounds, &epochs).unwrap().squared_sensitivity <= base);
            prop_assert_eq!(epochs.spacing(), Spacing::Exactly);
        }
    }
}

//! Every participation set of a schema, for small runs: what the fast methods are tested against.

use proptest::prelude::*;

use crate::participation::{Gap, Participation, Spacing};

/// All sets of rounds that the schema admits, the empty one included.
pub(super) fn sets(rounds: usize, participation: &Participation) -> Vec<Vec<usize>> {
    assert!(rounds <= 20, "two to the {rounds} subsets");
    let gap = usize::try_from(participation.gap().get()).unwrap_or(usize::MAX);
    let max_par = participation.max_participation();
    let subset = |mask: u32| {
        (0..rounds)
            .filter(|round| mask >> round & 1 == 1)
            .collect::<Vec<_>>()
    };
    let admitted = |set: &Vec<usize>| {
        set.len() as u64 <= max_par
            && set.windows(2).all(|pair| match participation.spacing() {
                Spacing::AtLeast => pair[1] - pair[0] >= gap,
                Spacing::Exactly => pair[1] - pair[0] == gap,
            })
    };
    (0..1u32 << rounds).map(subset).filter(admitted).collect()
}

/// Users who take part at most `max_par` times, at least `gap` rounds apart.
pub(super) fn at_least(gap: u64, max_par: u64) -> Participation {
    Participation::at_least(Gap::new(gap).unwrap(), max_par).unwrap()
}

/// The largest value over all sets.
pub(super) fn maximum(rounds: usize, participation: &Participation, value: impl Fn(&[usize]) -> f64) -> f64 {
    let values = sets(rounds, participation).into_iter().map(|set| value(&set));
    values.fold(0.0, f64::max)
}

/// Both kinds of schema.
pub(super) fn schema(max_gap: u64, max_par: u64) -> impl Strategy<Value = Participation> {
    (1..=max_gap, 1..=max_par, prop::bool::weighted(0.7)).prop_map(|(gap, max_par, at_least)| {
        if at_least {
            self::at_least(gap, max_par)
        } else {
            Participation::fixed_epochs(Gap::new(gap).unwrap(), max_par).unwrap()
        }
    })
}

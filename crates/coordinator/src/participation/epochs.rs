//! Shuffled epochs with an exact gap: every epoch walks through all users in one fixed random order.

use undertone_accounting::participation::{Gap, Participation};

use super::ParticipationKey;
use crate::error::check::require;
use crate::error::{CoordinatorError, Result};
use undertone_mechanisms::draws;

/// One random order of all users, cut into as many cohorts as an epoch has rounds. Round `t` has cohort `t mod b`, so a
/// user's participations are exactly `b` rounds apart.
///
/// Cohorts differ by at most one user. Leaving the remainder out would make them equal, but some users would never be
/// heard for no gain in privacy: the bound on one user's influence is the clip norm, and the sum is divided by a fixed
/// number, so that nothing that is released depends on whether a cohort is one larger.
///
/// # Guarantee
/// Every user keeps to [`ShuffledEpochs::participation`]. The order is random for the sake of learning; the guarantee
/// does not rest on it.
///
/// # Source
/// \[BLT\] section 4.1 and Table 3: n = 2052 rounds, b = 342, k = 6, a fixed shuffle of 342,477 users.
///
/// # Example
/// ```
/// use undertone_coordinator::participation::{ParticipationKey, epochs::ShuffledEpochs};
///
/// let key = ParticipationKey::from_bytes([1; 32]);
/// let epochs = ShuffledEpochs::new(342_477, 342, &key)?;
/// assert_eq!((epochs.cohort(0).len(), epochs.cohort(341).len()), (1002, 1001));
/// assert_eq!(epochs.cohort(5), epochs.cohort(5 + 342));
/// assert_eq!(epochs.participation(2052)?.max_participation(), 6);
/// # Ok::<(), undertone_coordinator::CoordinatorError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ShuffledEpochs {
    order: Vec<u32>,
    rounds_per_epoch: u32,
}

impl ShuffledEpochs {
    /// The order that `key` gives to `users` users, in epochs of `rounds_per_epoch` rounds.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for no rounds, or more than users: a cohort would be empty.
    pub fn new(users: u32, rounds_per_epoch: u64, key: &ParticipationKey) -> Result<Self> {
        let rounds = u32::try_from(rounds_per_epoch)
            .ok()
            .filter(|rounds| (1..=users).contains(rounds));
        let Some(rounds_per_epoch) = rounds else {
            return Err(CoordinatorError::value(
                "cohort.rounds_per_epoch",
                format!("from 1 to the {users} users"),
                rounds_per_epoch,
            ));
        };
        let mut order: Vec<u32> = (0..users).collect();
        draws::shuffle(&mut order, &mut key.generator(b"epochs"));
        Ok(Self {
            order,
            rounds_per_epoch,
        })
    }

    /// The longest epochs whose cohorts all have at least `report_goal` users.
    ///
    /// # Errors
    /// [`CoordinatorError::ConfigValue`] for a goal of 0 or above the number of users.
    ///
    /// # Source
    /// \[Gboard\] section 2.2: MinS is at most the population over the report goal.
    pub fn with_report_goal(users: u32, report_goal: u32, key: &ParticipationKey) -> Result<Self> {
        let holds = (1..=users).contains(&report_goal);
        let expected = format!("from 1 to the {users} users");
        require(holds, "cohort.report_goal", expected, report_goal)?;
        Self::new(users, u64::from(users / report_goal), key)
    }

    /// Number of rounds per epoch: the gap `b`.
    #[must_use]
    pub(crate) fn rounds_per_epoch(&self) -> u64 {
        u64::from(self.rounds_per_epoch)
    }

    /// The users of a round, in the order of the shuffle.
    #[must_use]
    pub fn cohort(&self, round: u64) -> &[u32] {
        let cohorts = self.rounds_per_epoch as usize;
        let index = (round % self.rounds_per_epoch()) as usize;
        let (size, larger) = (self.order.len() / cohorts, self.order.len() % cohorts);
        let start = |cohort: usize| cohort * size + cohort.min(larger);
        &self.order[start(index)..start(index + 1)]
    }

    /// The schema of each user in a run of `rounds` rounds: exactly `b` apart, at most `ceil(rounds / b)` times.
    ///
    /// # Errors
    /// From the accountant, for no rounds.
    pub fn participation(&self, rounds: u64) -> Result<Participation> {
        let gap = Gap::new(self.rounds_per_epoch())?;
        Ok(Participation::fixed_epochs(gap, gap.fitting(rounds))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> ParticipationKey {
        ParticipationKey::from_bytes([byte; 32])
    }

    /// Each user joins once per epoch, sizes differ by at most one, and the next epoch has the same cohorts.
    fn check(users: u32, rounds: u64) {
        let epochs = ShuffledEpochs::new(users, rounds, &key(1)).unwrap();
        let mut seen = Vec::new();
        let sizes: Vec<usize> = (0..rounds).map(|round| epochs.cohort(round).len()).collect();
        for round in 0..rounds {
            seen.extend_from_slice(epochs.cohort(round));
            assert_eq!(epochs.cohort(round), epochs.cohort(round + 7 * rounds));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..users).collect::<Vec<_>>());
        let (min, max) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(max - min <= 1, "{sizes:?}");
    }

    #[test]
    fn epochs_are_partitions() {
        check(1, 1);
        check(10, 1);
        check(10, 10);
        check(1003, 34);
        check(1020, 34);
    }

    #[test]
    fn the_schema_holds_and_is_reached() {
        let epochs = ShuffledEpochs::new(50, 7, &key(2)).unwrap();
        let rounds = 24;
        let schema = epochs.participation(rounds).unwrap();
        let mut max = 0;
        for user in 0..50 {
            let took: Vec<u64> = (0..rounds)
                .filter(|&round| epochs.cohort(round).contains(&user))
                .collect();
            assert!(
                took.windows(2)
                    .all(|pair| pair[1] - pair[0] == schema.gap().get())
            );
            max = max.max(took.len() as u64);
        }
        assert_eq!((max, schema.max_participation()), (4, 4));
    }

    #[test]
    fn the_order_depends_on_the_key_alone() {
        let order = |byte| ShuffledEpochs::new(100, 5, &key(byte)).unwrap().order;
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn epochs_reach_the_report_goal_or_are_refused() {
        let epochs = ShuffledEpochs::with_report_goal(1000, 300, &key(1)).unwrap();
        assert_eq!(epochs.rounds_per_epoch(), 3);
        assert!((0..3).all(|round| epochs.cohort(round).len() >= 300));
        for (result, words) in [
            (ShuffledEpochs::with_report_goal(10, 11, &key(1)), "report_goal"),
            (ShuffledEpochs::with_report_goal(10, 0, &key(1)), "report_goal"),
            (ShuffledEpochs::new(10, 11, &key(1)), "rounds_per_epoch"),
            (
                ShuffledEpochs::new(10, 0, &key(1)),
                "from 1 to the 10 users, got 0",
            ),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}

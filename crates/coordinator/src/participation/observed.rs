//! The participation that a ledger shows: the real gaps and numbers of participations.

use std::collections::{BTreeMap, HashMap};

use undertone_accounting::participation::{Gap, Participation, RoundsBetween};
use undertone_mechanisms::Mechanism;

use super::policy::Last;
use super::{ParticipantId, Violation};
use crate::error::Result;

/// MinS, MaxP and their histograms, from the participants of one round after another. Memory is proportional to the users
/// that took part, whatever the number of rounds.
///
/// # Source
/// \[Gboard\] section 2.5, point 7: "precise MaxP and MinS are computed by post-processing for privacy accounting".
///
/// # Example
/// ```
/// use undertone_coordinator::participation::{ParticipantId, observed::Observed};
///
/// let [a, b] = [ParticipantId::new(1), ParticipantId::new(2)];
/// let mut observed = Observed::new();
/// observed.record(0, &[a, b])?;
/// observed.record(3, &[a])?;
/// assert_eq!(observed.min_sep().map(|rounds| rounds.get()), Some(2));
/// assert_eq!((observed.max_participation(), observed.rounds()), (2, 4));
/// # Ok::<(), undertone_coordinator::participation::Violation>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Observed {
    rounds: u32,
    users: HashMap<ParticipantId, User>,
    /// The smallest and the largest gap of consecutive participations, over all users.
    gaps: Option<(u32, u32)>,
    max_count: u32,
}

/// The state of one user.
#[derive(Debug, Clone, Copy)]
struct User {
    last: u32,
    participations: u32,
    smallest_gap: u32,
}

/// Rounds are counted in 32 bits: a user costs a third less memory, and no run has four billion rounds.
const LIMIT: u64 = u32::MAX as u64;

impl Observed {
    /// The observation of no rounds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the participants of a round. Rounds may be skipped (no user took part), but not go back.
    ///
    /// # Errors
    /// [`Violation`] for a round that is not later than the last one, or that names a user twice; nothing of it is
    /// recorded then.
    pub fn record(&mut self, round: u64, cohort: &[ParticipantId]) -> Result<(), Violation> {
        let round = self.next_round(round)?;
        check_distinct(u64::from(round), cohort)?;
        for &pseudonym in cohort {
            let user = self.users.entry(pseudonym).or_insert(User {
                last: round,
                participations: 0,
                smallest_gap: u32::MAX,
            });
            if user.participations > 0 {
                let gap = round - user.last;
                user.smallest_gap = user.smallest_gap.min(gap);
                let (min, max) = self.gaps.unwrap_or((gap, gap));
                self.gaps = Some((min.min(gap), max.max(gap)));
            }
            user.last = round;
            user.participations += 1;
            self.max_count = self.max_count.max(user.participations);
        }
        self.rounds = round + 1;
        Ok(())
    }

    fn next_round(&self, round: u64) -> Result<u32, Violation> {
        let limit = LIMIT;
        if round < u64::from(self.rounds) {
            let last = self.rounds() - 1;
            return Err(Violation::OutOfOrder { round, last });
        }
        u32::try_from(round)
            .ok()
            .filter(|round| u64::from(*round) < limit)
            .ok_or(Violation::TooManyRounds { round, limit })
    }

    /// Number of rounds so far: one more than the last that was recorded.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        u64::from(self.rounds)
    }

    /// Number of users that took part at least once.
    #[must_use]
    pub fn users(&self) -> u64 {
        self.users.len() as u64
    }

    /// MinS: the min number of rounds between two participations of one user; `None` while no user took part twice.
    #[must_use]
    pub fn min_sep(&self) -> Option<RoundsBetween> {
        self.gaps.map(|(min, _)| RoundsBetween::new(u64::from(min) - 1))
    }

    /// MaxP: the max number of participations of one user.
    #[must_use]
    pub fn max_participation(&self) -> u64 {
        u64::from(self.max_count)
    }

    /// The numbers of users that took part once, twice, ...: the first entry stands for one participation.
    #[must_use]
    pub fn participations(&self) -> Vec<u64> {
        let mut counts = vec![0; self.max_count as usize];
        for user in self.users.values() {
            counts[user.participations as usize - 1] += 1;
        }
        counts
    }

    /// The number of users by the min number of rounds between two of their participations.
    #[must_use]
    pub fn separations(&self) -> BTreeMap<RoundsBetween, u64> {
        let mut counts = BTreeMap::new();
        for user in self.users.values().filter(|user| user.participations > 1) {
            let between = RoundsBetween::new(u64::from(user.smallest_gap) - 1);
            *counts.entry(between).or_insert(0) += 1;
        }
        counts
    }

    /// The tightest schema that all users kept to; `None` while no user took part.
    ///
    /// Where all gaps were the same, it is the schema of fixed epochs: fewer sets of rounds keep to it.
    ///
    /// # Errors
    /// From the accountant; none for what was recorded.
    pub fn participation(&self) -> Result<Option<Participation>> {
        Ok(match self.gaps {
            _ if self.max_count == 0 => None,
            None => Some(Participation::single()),
            Some((min, max)) => {
                let gap = Gap::new(u64::from(min))?;
                Some(if min == max {
                    Participation::fixed_epochs(gap, self.max_participation())?
                } else {
                    Participation::at_least(gap, self.max_participation())?
                })
            }
        })
    }

    /// The mechanism of the rounds that were made, for the observed schema: its guarantee is the run's. `None` while no user took
    /// part.
    ///
    /// # Guarantee
    /// Each user has the guarantee of the [`Mechanism`], since all kept to the observed schema.
    ///
    /// # Errors
    /// More rounds than the mechanism has, or a schema for which it has no bound.
    pub fn mechanism(&self, run: &Mechanism) -> Result<Option<Mechanism>> {
        let Some(participation) = self.participation()? else {
            return Ok(None);
        };
        let strategy = run.strategy().clone();
        let rounds = self.rounds as usize;
        // PRIVACY: rounds beyond those that the mechanism was made for had noise of no strategy that we know of.
        if rounds > run.rounds() {
            return Err(crate::error::CoordinatorError::value(
                "rounds",
                format!("at most the {} rounds of the mechanism", run.rounds()),
                rounds,
            ));
        }
        Ok(Some(Mechanism::new(
            strategy,
            rounds,
            participation,
            run.noise_multiplier(),
        )?))
    }

    pub(super) fn last(&self, user: ParticipantId) -> Option<Last> {
        self.users.get(&user).map(|user| Last {
            round: u64::from(user.last),
            participations: u64::from(user.participations),
        })
    }

    /// Checks that [`Observed::record`] would accept the round.
    pub(super) fn check(&self, round: u64, cohort: &[ParticipantId]) -> Result<(), Violation> {
        self.next_round(round)?;
        check_distinct(round, cohort)
    }
}

/// PRIVACY: a user who counts twice in one sum moves it by two clip norms, which no schema accounts for.
pub(crate) fn check_distinct(round: u64, cohort: &[ParticipantId]) -> Result<(), Violation> {
    let mut sorted = cohort.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Violation::Twice { round, user: pair[0] }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use undertone_accounting::participation::Spacing;

    use super::*;

    fn names(users: &[u64]) -> Vec<ParticipantId> {
        users.iter().map(|&user| ParticipantId::new(user)).collect()
    }

    fn observe(rounds: &[&[u64]]) -> Observed {
        let mut observed = Observed::new();
        for (round, users) in rounds.iter().enumerate() {
            observed.record(round as u64, &names(users)).unwrap();
        }
        observed
    }

    #[test]
    fn separations_and_counts_are_those_of_the_recorded_rounds() {
        let observed = observe(&[&[1, 2], &[3], &[1], &[], &[2, 1], &[4]]);
        assert_eq!(observed.min_sep(), Some(RoundsBetween::new(1)));
        assert_eq!(observed.max_participation(), 3);
        assert_eq!(observed.participations(), [2, 1, 1]);
        assert_eq!((observed.users(), observed.rounds()), (4, 6));
        let separations: Vec<(u64, u64)> = observed
            .separations()
            .iter()
            .map(|(between, users)| (between.get(), *users))
            .collect();
        assert_eq!(separations, [(1, 1), (3, 1)]);
        let schema = observed.participation().unwrap().unwrap();
        assert_eq!(schema, Participation::at_least(Gap::new(2).unwrap(), 3).unwrap());
    }

    #[test]
    fn the_observed_schema_is_the_tightest_that_all_users_keep_to() {
        assert_eq!(observe(&[&[], &[]]).participation().unwrap(), None);
        let once = observe(&[&[1], &[2]]);
        assert_eq!(once.participation().unwrap(), Some(Participation::single()));
        assert_eq!((once.min_sep(), once.max_participation()), (None, 1));
        let in_step = observe(&[&[1], &[2], &[1], &[2], &[1]]);
        let schema = in_step.participation().unwrap().unwrap();
        assert_eq!((schema.spacing(), schema.gap().get()), (Spacing::Exactly, 2));
    }

    #[test]
    fn a_refused_round_changes_nothing() {
        let mut observed = observe(&[&[1], &[2]]);
        let twice = observed.record(2, &names(&[3, 4, 3])).unwrap_err();
        assert!(twice.to_string().contains("user 0000000000000003"), "{twice}");
        let back = observed.record(1, &names(&[3])).unwrap_err();
        assert_eq!(
            back.to_string(),
            "round 1: expected a number above 1, the last recorded round"
        );
        assert!(matches!(
            observed.record(1 << 40, &[]),
            Err(Violation::TooManyRounds { .. })
        ));
        assert_eq!((observed.users(), observed.rounds()), (2, 2));
        // Rounds of which the ledger says nothing had no participants.
        observed.record(9, &names(&[1])).unwrap();
        assert_eq!(observed.min_sep(), Some(RoundsBetween::new(8)));
    }
}

//! A declared schema, enforced round by round.

use serde::{Deserialize, Serialize};
use undertone_accounting::participation::{Gap, Participation, Spacing};

use super::observed::Observed;
use super::{ParticipantId, Violation};
use crate::error::Result;

/// The last participation of a user, and the number of its participations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// Round of the last participation.
    pub round: u64,
    /// Number of participations so far.
    pub participations: u64,
}

/// The treatment of a round that would break the declared schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The round is refused: the run keeps the planned guarantee, or stops.
    #[default]
    Refuse,
    /// The round is made, and the schema to account for widens: the run ends with a weaker guarantee.
    Account,
}

/// A participation schema that every round is checked against before it is made.
///
/// Its state is what a ledger shows, so a resumed run builds it again by admitting the ledger's rounds. Memory is
/// proportional to the users that took part.
///
/// # Guarantee
/// Under [`Enforcement::Refuse`] every user of the admitted rounds keeps to the declared schema; under
/// [`Enforcement::Account`], to the schema to account for. A user that a round names twice is refused under both, because no
/// schema describes that.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_coordinator::participation::{ParticipantId, policy::{Enforcement, Policy}};
///
/// let declared = Participation::at_least(Gap::new(3)?, 2)?;
/// let mut policy = Policy::new(declared, Enforcement::Refuse);
/// let cohort = [ParticipantId::new(0xc0ffee)];
/// policy.admit(0, &cohort)?;
/// assert_eq!(
///     policy.admit(2, &cohort).unwrap_err().to_string(),
///     "round 2, user 0000000000c0ffee: expected a gap of at least 3 rounds to the user's last participation, got 2 (round 0)"
/// );
/// policy.admit(3, &cohort)?;
/// assert!(policy.admit(9, &cohort).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Policy {
    declared: Participation,
    enforcement: Enforcement,
    observed: Observed,
    violations: u64,
}

impl Policy {
    /// A policy before the first round.
    #[must_use]
    pub fn new(declared: Participation, enforcement: Enforcement) -> Self {
        Self {
            declared,
            enforcement,
            observed: Observed::new(),
            violations: 0,
        }
    }

    /// Admits a round with these participants, or names the violation. A refused round changes nothing: a different cohort can be
    /// admitted in its place.
    ///
    /// # Errors
    /// The first [`Violation`] in the order of the cohort.
    pub fn admit(&mut self, round: u64, cohort: &[ParticipantId]) -> Result<(), Violation> {
        // PRIVACY: all checks before the first change, so that no round is half admitted.
        self.observed.check(round, cohort)?;
        let mut broken = cohort.iter().filter_map(|&user| self.violation(round, user));
        if let Some(first) = broken.next() {
            if self.enforcement == Enforcement::Refuse {
                return Err(first);
            }
            self.violations += 1 + broken.count() as u64;
        }
        self.observed.record(round, cohort)
    }

    /// The violation of the declared schema by this user's participation in this round.
    #[must_use]
    pub(crate) fn violation(&self, round: u64, user: ParticipantId) -> Option<Violation> {
        violation(self.declared, self.observed.last(user), round, user)
    }

    /// The schema that was declared.
    #[must_use]
    pub fn declared(&self) -> Participation {
        self.declared
    }

    /// The observation of the admitted rounds.
    #[must_use]
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Number of participations that broke the declared schema and were admitted.
    #[must_use]
    pub(crate) fn violations(&self) -> u64 {
        self.violations
    }

    /// The schema to account for, for rounds admitted so far and rounds to come: the declared one while no user broke it, widened
    /// to hold the observed one after that.
    ///
    /// # Errors
    /// From the accountant; none for what was admitted.
    pub(crate) fn accounted(&self) -> Result<Participation> {
        let observed = match self.observed.participation()? {
            Some(observed) if self.violations > 0 => observed,
            _ => return Ok(self.declared),
        };
        let max = u64::max(
            self.declared.max_participation(),
            self.observed.max_participation(),
        );
        // Users may still keep to the declared gap after others did not: only "at least" holds for both.
        let gap = u64::min(self.declared.gap().get(), observed.gap().get());
        let same = self.declared.spacing() == Spacing::Exactly
            && observed.spacing() == Spacing::Exactly
            && observed.gap() == self.declared.gap();
        Ok(if same {
            Participation::fixed_epochs(Gap::new(gap)?, max)?
        } else {
            Participation::at_least(Gap::new(gap)?, max)?
        })
    }
}

/// The violation of a declared schema by a user's participation in a round, from the user's last participation. A user who never
/// took part breaks no schema.
///
/// # Guarantee
/// Rounds that this function lets pass one after another, with each `last` brought up to date in between, keep to the schema.
/// A round before the last one counts as a gap of 0.
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Gap, Participation};
/// use undertone_coordinator::participation::{ParticipantId, Violation, policy::{Last, violation}};
///
/// let declared = Participation::at_least(Gap::new(3)?, 2)?;
/// let user = ParticipantId::new(1);
/// let last = Last { round: 4, participations: 1 };
/// assert_eq!(violation(declared, None, 4, user), None);
/// assert!(matches!(violation(declared, Some(last), 6, user), Some(Violation::TooSoon { came: 2, .. })));
/// assert_eq!(violation(declared, Some(last), 7, user), None);
/// # Ok::<(), undertone_accounting::AccountingError>(())
/// ```
#[must_use]
pub fn violation(
    declared: Participation,
    last: Option<Last>,
    round: u64,
    user: ParticipantId,
) -> Option<Violation> {
    let last = last?;
    let (expected, came) = (declared.gap().get(), round.saturating_sub(last.round));
    let last_round = last.round;
    match declared.spacing() {
        Spacing::AtLeast if came < expected => {
            return Some(Violation::TooSoon {
                round,
                user,
                expected,
                came,
                last: last_round,
            });
        }
        Spacing::Exactly if came != expected => {
            return Some(Violation::OutOfStep {
                round,
                user,
                expected,
                came,
                last: last_round,
            });
        }
        Spacing::AtLeast | Spacing::Exactly => {}
    }
    let (expected, came) = (
        declared.max_participation(),
        last.participations.saturating_add(1),
    );
    (came > expected).then_some(Violation::TooOften {
        round,
        user,
        expected,
        came,
    })
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;

    use super::super::ParticipationKey;
    use super::*;

    fn at_least(gap: u64, max: u64) -> Participation {
        Participation::at_least(Gap::new(gap).unwrap(), max).unwrap()
    }

    fn exactly(gap: u64, max: u64) -> Participation {
        Participation::fixed_epochs(Gap::new(gap).unwrap(), max).unwrap()
    }

    fn name(user: u64) -> ParticipantId {
        ParticipantId::new(user)
    }

    fn check(declared: Participation, rounds: &[(u64, &[u64])], refused: &str) {
        let mut policy = Policy::new(declared, Enforcement::Refuse);
        let (last, before) = rounds.split_last().unwrap();
        let cohort = |users: &[u64]| users.iter().map(|&user| name(user)).collect::<Vec<_>>();
        for (round, users) in before {
            policy.admit(*round, &cohort(users)).unwrap();
        }
        let recorded = policy.observed().rounds();
        let error = policy.admit(last.0, &cohort(last.1)).unwrap_err();
        assert!(error.to_string().contains(refused), "{error}");
        assert_eq!(policy.observed().rounds(), recorded);
        // What was refused left nothing behind: another cohort takes its place.
        if !matches!(error, Violation::OutOfOrder { .. }) {
            policy.admit(last.0, &[name(77)]).unwrap();
        }
    }

    #[test]
    fn refusals_name_round_user_and_both_numbers() {
        let two = "round 4, user 0000000000000002";
        check(at_least(5, 9), &[(0, &[1, 2]), (4, &[3, 2])], two);
        check(at_least(5, 9), &[(0, &[2]), (4, &[2])], "at least 5 rounds");
        check(at_least(5, 9), &[(0, &[2]), (4, &[2])], "got 4 (round 0)");
        check(
            at_least(1, 2),
            &[(0, &[2]), (1, &[2]), (2, &[2])],
            "at most 2 participations, got 3",
        );
        check(exactly(5, 9), &[(0, &[2]), (6, &[2])], "exactly 5 rounds");
        check(
            at_least(5, 9),
            &[(0, &[2]), (6, &[8, 8])],
            "at most once per round",
        );
        check(
            at_least(5, 9),
            &[(4, &[2]), (4, &[3])],
            "expected a number above 4",
        );
    }

    #[test]
    fn accounting_widens_what_is_accounted() {
        let mut policy = Policy::new(at_least(5, 2), Enforcement::Account);
        policy.admit(0, &[name(1), name(2)]).unwrap();
        policy.admit(6, &[name(1)]).unwrap();
        assert_eq!(policy.accounted().unwrap(), at_least(5, 2));
        policy.admit(8, &[name(1), name(2)]).unwrap();
        assert_eq!((policy.violations(), policy.observed().rounds()), (1, 9));
        assert_eq!(policy.accounted().unwrap(), at_least(2, 3));
        // The same user twice in one round has no schema.
        assert!(policy.admit(9, &[name(3), name(3)]).is_err());
    }

    #[test]
    fn accounting_widens_fixed_epochs_to_what_happened() {
        let mut policy = Policy::new(exactly(3, 2), Enforcement::Account);
        for round in 0..3 {
            policy.admit(3 * round, &[name(1)]).unwrap();
        }
        assert_eq!(policy.accounted().unwrap(), exactly(3, 3));
        policy.admit(10, &[name(1)]).unwrap();
        assert_eq!(policy.accounted().unwrap(), at_least(3, 4));
    }

    #[test]
    fn a_number_of_participations_at_the_end_of_its_range_is_refused() {
        let last = Last {
            round: 0,
            participations: u64::MAX,
        };
        let found = violation(at_least(1, u64::MAX - 1), Some(last), 5, name(1));
        assert!(matches!(found, Some(Violation::TooOften { .. })), "{found:?}");
        let back = violation(
            at_least(1, 2),
            Some(Last {
                round: 7,
                participations: 1,
            }),
            5,
            name(1),
        );
        assert!(
            matches!(back, Some(Violation::TooSoon { came: 0, .. })),
            "{back:?}"
        );
    }

    /// After any random rounds, admitted rounds keep to the schema, by a quadratic scan, and refused ones would have broken it.
    #[test]
    fn admitted_is_what_keeps_to_the_schema() {
        let mut generator = ParticipationKey::from_bytes([9; 32]).generator(b"test");
        for declared in [at_least(3, 4), exactly(4, 3), at_least(1, 2)] {
            let mut policy = Policy::new(declared, Enforcement::Refuse);
            let mut kept: Vec<(u64, u64)> = Vec::new();
            for round in 0..200 {
                let user = generator.next_u64() % 8;
                let mut candidate = kept.clone();
                candidate.push((user, round));
                let admissible = (0..8).all(|user| {
                    let took: Vec<u64> = candidate.iter().filter(|t| t.0 == user).map(|t| t.1).collect();
                    let gaps = took.windows(2).all(|pair| {
                        let gap = pair[1] - pair[0];
                        match declared.spacing() {
                            Spacing::AtLeast => gap >= declared.gap().get(),
                            Spacing::Exactly => gap == declared.gap().get(),
                        }
                    });
                    gaps && took.len() as u64 <= declared.max_participation()
                });
                assert_eq!(policy.admit(round, &[name(user)]).is_ok(), admissible);
                if admissible {
                    kept = candidate;
                }
            }
            // Built again from the ledger, it knows the same.
            let mut again = Policy::new(declared, Enforcement::Refuse);
            for (user, round) in kept {
                again.admit(round, &[name(user)]).unwrap();
            }
            for user in 0..8 {
                let next = policy.observed().rounds() + 1;
                assert_eq!(
                    again.violation(next, name(user)),
                    policy.violation(next, name(user))
                );
            }
        }
    }
}

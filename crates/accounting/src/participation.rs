//! Participation schemas as types: how often, and how far apart, one user may take part.
//!
//! Two conventions for the same separation are in use, and they differ by one round. Production tables
//! (\[Gboard\] Tables 1 and 2, \[BLT\] Table 4) print MinS, the rounds strictly **between** two participations:
//! [`RoundsBetween`]. Theorems and figures (\[BLT\] Theorem 3.1, Table 3) use b, the **distance** of the two
//! rounds: [`Gap`]. One becomes the other only through a method that says so.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::AccountingError;
use crate::error::ensure;

/// Rounds strictly between two participations of one user (MinS); 0 allows every round.
///
/// # Source
/// \[Gboard\] section 2.2 and Tables 1-2.
///
/// # Example
/// ```
/// use undertone_accounting::participation::RoundsBetween;
/// assert_eq!(RoundsBetween::new(300).gap().get(), 301);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoundsBetween(u64);

impl RoundsBetween {
    /// Any number of rounds.
    #[must_use]
    pub fn new(rounds: u64) -> Self {
        Self(rounds)
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The separation as a distance, which is one more.
    #[must_use]
    pub fn gap(self) -> Gap {
        // PRIVACY: at the end of the range this rounds the gap down, which admits more participations.
        Gap(self.0.saturating_add(1))
    }
}

impl fmt::Display for RoundsBetween {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds between", self.0)
    }
}

/// Distance in rounds of two participations of one user (b), at least 1.
///
/// # Source
/// \[BLT\] section 3.2: any two participations `i`, `j` have `|i - j| >= b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Gap(u64);

impl Gap {
    /// Validates a distance of at least one round.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for 0: two participations cannot share a round.
    pub fn new(rounds: u64) -> Result<Self, AccountingError> {
        positive(rounds, "gap").map(Self)
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The separation as rounds strictly between, which is one less.
    #[must_use]
    pub fn rounds_between(self) -> RoundsBetween {
        RoundsBetween(self.0 - 1)
    }

    /// Participations that fit into `rounds` rounds: the largest k with `(k - 1) gap < rounds`.
    #[must_use]
    pub fn fitting(self, rounds: u64) -> u64 {
        rounds.div_ceil(self.0)
    }
}

impl TryFrom<u64> for Gap {
    type Error = AccountingError;

    fn try_from(rounds: u64) -> Result<Self, AccountingError> {
        Self::new(rounds)
    }
}

impl From<Gap> for u64 {
    fn from(gap: Gap) -> u64 {
        gap.0
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a gap of {} rounds", self.0)
    }
}

/// The constraint on the distances between one user's participations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Any two participations are at least the gap apart (a timer on the device).
    AtLeast,
    /// Consecutive participations are exactly the gap apart (every epoch walks through the users in one fixed
    /// order).
    Exactly,
}

/// A participation schema: at most so many participations of one user, so far apart.
///
/// # Guarantee
/// Every sensitivity in [`crate::sensitivity`] is a maximum over all sets of rounds that the schema admits. It
/// promises nothing about a user who takes part more often or sooner than the schema says.
///
/// # Source
/// \[BLT\] section 3.2 (b-min-sep participation); Choquette-Choo et al., "Multi-Epoch Matrix Factorization
/// Mechanisms" (2022), section 2 (fixed epochs).
///
/// # Example
/// ```
/// use undertone_accounting::participation::{Participation, RoundsBetween};
/// # fn main() -> Result<(), undertone_accounting::AccountingError> {
/// let schema = Participation::at_least(RoundsBetween::new(212).gap(), 8)?;
/// let fits = schema.effective(930)?;
/// assert_eq!(fits.participation.max_participation(), 5);
/// assert_eq!(
///     fits.to_string(),
///     "max participation lowered from 8 to 5: no more fit into 930 rounds with a gap of 213 rounds"
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Participation {
    spacing: Spacing,
    gap: Gap,
    max_participation: u64,
}

#[derive(Deserialize)]
struct Unchecked {
    spacing: Spacing,
    gap: Gap,
    max_participation: u64,
}

impl TryFrom<Unchecked> for Participation {
    type Error = AccountingError;

    fn try_from(value: Unchecked) -> Result<Self, AccountingError> {
        Self::new(value.spacing, value.gap, value.max_participation)
    }
}

impl Participation {
    fn new(spacing: Spacing, gap: Gap, max_participation: u64) -> Result<Self, AccountingError> {
        Ok(Self {
            spacing,
            gap,
            max_participation: positive(max_participation, "max_participation")?,
        })
    }

    /// One participation in the whole run.
    #[must_use]
    pub fn single() -> Self {
        Self {
            spacing: Spacing::AtLeast,
            gap: Gap(u64::MAX),
            max_participation: 1,
        }
    }

    /// At most `max_participation` participations, any two at least `gap` apart.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no participation at all.
    pub fn at_least(gap: Gap, max_participation: u64) -> Result<Self, AccountingError> {
        Self::new(Spacing::AtLeast, gap, max_participation)
    }

    /// At most `max_participation` participations, consecutive ones exactly `gap` apart.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no participation at all.
    pub fn fixed_epochs(gap: Gap, max_participation: u64) -> Result<Self, AccountingError> {
        Self::new(Spacing::Exactly, gap, max_participation)
    }

    /// The constraint on distances.
    #[must_use]
    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    /// The distance b between participations.
    #[must_use]
    pub fn gap(&self) -> Gap {
        self.gap
    }

    /// The largest number of participations k.
    #[must_use]
    pub fn max_participation(&self) -> u64 {
        self.max_participation
    }

    /// The schema with no more participations than fit into `rounds`, beside the requested maximum.
    ///
    /// # Errors
    /// [`AccountingError::OutOfRange`] for no rounds.
    pub fn effective(&self, rounds: u64) -> Result<EffectiveParticipation, AccountingError> {
        let fits = self.gap.fitting(positive(rounds, "rounds")?);
        Ok(EffectiveParticipation {
            rounds,
            requested: self.max_participation,
            participation: Self {
                max_participation: self.max_participation.min(fits),
                ..*self
            },
        })
    }
}

/// A schema after its maximum was lowered to what fits into a run.
///
/// `Display` says what was lowered, or that nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveParticipation {
    /// Rounds of the run.
    pub rounds: u64,
    /// The requested maximum.
    pub requested: u64,
    /// The schema with the maximum that fits.
    pub participation: Participation,
}

impl EffectiveParticipation {
    /// Returns true if fewer participations fit than were requested.
    #[must_use]
    pub fn is_lowered(&self) -> bool {
        self.participation.max_participation < self.requested
    }
}

impl fmt::Display for EffectiveParticipation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Participation {
            gap,
            max_participation,
            ..
        } = self.participation;
        if self.is_lowered() {
            write!(
                f,
                "max participation lowered from {} to {max_participation}: no more fit into {} rounds with {gap}",
                self.requested, self.rounds
            )
        } else {
            write!(f, "max participation {max_participation} with {gap}")
        }
    }
}

/// The largest gap that a population sustains. Once every user has taken part, the first ones take part again.
///
/// # Errors
/// [`AccountingError::CohortSize`] for a report goal of 0 or above the population.
pub fn largest_gap(population: u64, report_goal: u64) -> Result<Gap, AccountingError> {
    if report_goal == 0 || report_goal > population {
        return Err(AccountingError::CohortSize {
            population,
            cohort_size: report_goal,
        });
    }
    Gap::new(population / report_goal)
}

pub(crate) fn positive(value: u64, quantity: &'static str) -> Result<u64, AccountingError> {
    ensure(value > 0, quantity, "a whole number >= 1", 0.0)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gap_equals_that_of_the_paper() {
        assert_eq!(largest_gap(1_000_000, 6500).unwrap().get(), 153);
        assert_eq!(largest_gap(4_210_000, 6500).unwrap().get(), 647);
        assert_eq!(largest_gap(10, 10).unwrap().get(), 1);
        assert!(largest_gap(10, 11).is_err() && largest_gap(10, 0).is_err());
    }

    fn check(gap: u64, max_participation: u64, rounds: u64, want: u64) {
        let schema = Participation::at_least(Gap::new(gap).unwrap(), max_participation).unwrap();
        let effective = schema.effective(rounds).unwrap();
        assert_eq!(effective.participation.max_participation(), want);
        assert_eq!(effective.is_lowered(), want < max_participation);
        // As the reference words it: (MinS + 1) MaxP <= rounds + MinS.
        let min_sep = effective.participation.gap().rounds_between().get();
        assert!((min_sep + 1) * want <= rounds + min_sep);
    }

    #[test]
    fn participation_is_lowered_to_what_fits() {
        check(1, 5, 5, 5);
        check(1, 6, 5, 5);
        check(2, 9, 5, 3);
        check(5, 2, 5, 1);
        check(4, 2, 5, 2);
        check(213, 4, 930, 4);
        check(301, 9, 1280, 5);
        check(2002, 3, 2000, 1);
    }

    #[test]
    fn conventions_round_trip() {
        for rounds in [0, 1, 299, 2001] {
            assert_eq!(RoundsBetween::new(rounds).gap().rounds_between().get(), rounds);
        }
        assert_eq!(RoundsBetween::new(u64::MAX).gap().get(), u64::MAX);
    }

    #[test]
    fn zeros_are_named() {
        let message = |result: Result<Participation, AccountingError>| result.unwrap_err().to_string();
        assert_eq!(
            Gap::new(0).unwrap_err().to_string(),
            "gap: expected a whole number >= 1, got 0"
        );
        let gap = Gap::new(3).unwrap();
        assert_eq!(
            message(Participation::at_least(gap, 0)),
            "max_participation: expected a whole number >= 1, got 0"
        );
        assert!(Participation::fixed_epochs(gap, 0).is_err());
        assert_eq!(
            Participation::single().effective(0).unwrap_err().to_string(),
            "rounds: expected a whole number >= 1, got 0"
        );
    }

    #[test]
    fn json_with_a_zero_is_refused() {
        let schema = Participation::at_least(Gap::new(3).unwrap(), 2).unwrap();
        let json = serde_json::to_string(&schema).unwrap();
        assert_eq!(json, r#"{"spacing":"at-least","gap":3,"max_participation":2}"#);
        assert_eq!(serde_json::from_str::<Participation>(&json).unwrap(), schema);
        for bad in [json.replace(":3", ":0"), json.replace(":2", ":0")] {
            assert!(serde_json::from_str::<Participation>(&bad).is_err());
        }
    }
}

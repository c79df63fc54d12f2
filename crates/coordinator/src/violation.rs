//! Violations of a participation schema.

use crate::participant::ParticipantId;

/// A violation of a participation schema, with the round, the user, the expected and the actual value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The user took part too short a time ago.
    #[error(
        "round {round}, user {user}: expected a gap of at least {expected} rounds to the user's last participation, got \
         {came} (round {last})"
    )]
    TooSoon {
        /// The round.
        round: u64,
        /// The user.
        user: ParticipantId,
        /// The declared gap.
        expected: u64,
        /// The actual gap.
        came: u64,
        /// Round of the last participation.
        last: u64,
    },
    /// The schema fixes the gap, and the user keeps to another.
    #[error(
        "round {round}, user {user}: expected a gap of exactly {expected} rounds to the user's last participation, got \
         {came} (round {last})"
    )]
    OutOfStep {
        /// The round.
        round: u64,
        /// The user.
        user: ParticipantId,
        /// The declared gap.
        expected: u64,
        /// The actual gap.
        came: u64,
        /// Round of the last participation.
        last: u64,
    },
    /// The user has reached the declared max number of participations.
    #[error("round {round}, user {user}: expected at most {expected} participations, got {came}")]
    TooOften {
        /// The round.
        round: u64,
        /// The user.
        user: ParticipantId,
        /// The declared max number of participations.
        expected: u64,
        /// Number of participations, this one included.
        came: u64,
    },
    /// One round names a user twice; no schema admits that.
    #[error("round {round}, user {user}: expected the user at most once per round, found the user twice")]
    Twice {
        /// The round.
        round: u64,
        /// The user.
        user: ParticipantId,
    },
    /// Rounds do not come one after another.
    #[error("round {round}: expected a number above {last}, the last recorded round")]
    OutOfOrder {
        /// The round.
        round: u64,
        /// The last round.
        last: u64,
    },
    /// The round is beyond the largest number that is counted.
    #[error("round {round}: expected a number below {limit}")]
    TooManyRounds {
        /// The round.
        round: u64,
        /// The first number that is not counted.
        limit: u64,
    },
}

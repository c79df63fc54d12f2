//! The attempts of a round that made no release, and the end of a task.

use super::RunHead;
use crate::account::check_rows;
use crate::chain::Chain;
use crate::error::{CoordinatorError, Result};
use crate::participation::observed::check_distinct;
use crate::record::{AbandonedAttempt, EndReason, Issuer, LedgerEnd, everyone_in};
use crate::source::Participants;

impl RunHead {
    /// Ends the task: the last line of its ledger, and the chain with it. `attempts` are those since the last release, and `issuer`
    /// vouched for their users.
    ///
    /// # Errors
    /// [`EndReason::Completed`] before the last round or with attempts after it; a user who stands twice in the attempts.
    pub fn end(
        self,
        reason: EndReason,
        mut attempts: Vec<AbandonedAttempt>,
        issuer: Option<Issuer>,
    ) -> Result<(Vec<u8>, LedgerEnd, Chain)> {
        if (reason == EndReason::Completed) != self.is_over() || (self.is_over() && !attempts.is_empty()) {
            return Err(CoordinatorError::Ledger {
                message: format!(
                    "the end: expected `completed` exactly after all {} rounds and then no attempts, got {reason:?} after {} \
                     rounds and {} attempts",
                    self.task.rounds,
                    self.round,
                    attempts.len()
                ),
            });
        }
        check_distinct(self.round, &everyone_in(&attempts))?;
        check_rows(&attempts)?;
        in_order_of_names(&mut attempts);
        let mut end = LedgerEnd {
            end: reason,
            rounds: self.round,
            attempts,
            issuer,
            previous_sha256: String::new(),
        };
        let (line, chain) = self.chain.end(&mut end)?;
        Ok((line, end, chain))
    }

    /// PRIVACY: a user who stands twice in the attempts at a round breaks every schema, so that no cost of it is known.
    pub(super) fn named_once(&self, who: &Participants) -> Result<()> {
        let mut everyone = everyone_in(&who.attempts);
        everyone.extend(who.names.iter().chain(&who.lost));
        check_distinct(self.round, &everyone)?;
        check_rows(&who.attempts)
    }
}

pub(super) fn in_order_of_names(attempts: &mut [AbandonedAttempt]) {
    for attempt in attempts {
        attempt.participants.sort_unstable();
    }
}

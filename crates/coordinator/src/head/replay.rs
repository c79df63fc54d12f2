//! Rows of noise that a journal brings back.

use super::RunHead;
use crate::account::Account;
use crate::entropy::RoundEntropy;
use crate::error::{CoordinatorError, Result};
use crate::record::LedgerEntry;

impl RunHead {
    /// Goes over the rounds of a ledger that are newer than the state of the head: draws their rows of noise again, each from the
    /// entropy of its own round, and gives nothing out. `ledger` has all lines, and `rows` the entropy of those from
    /// [`round`](Self::round) on.
    ///
    /// # Guarantee
    /// A row is drawn again for the sake of later rows alone, which depend on it: each later row takes off a part of the earlier ones.
    /// It meets no second sum. The ledger names the key of each row, and a row of another key is refused.
    ///
    /// # Errors
    /// A head that trains a model or whose clip norm moves, since a row alone does not bring back their state; another number of rows;
    /// a ledger that is not that of the head; entropy of another key; from the mechanism. The head is then gone.
    pub fn replay(mut self, ledger: &[LedgerEntry], rows: &[RoundEntropy]) -> Result<Self> {
        let damaged = |message: String| CoordinatorError::Ledger { message };
        if self.trained.is_some() || self.clip.is_some() {
            let expected =
                "a head without a model and with a fixed clip norm: a row of noise brings back nothing else";
            return Err(damaged(format!("replay: expected {expected}")));
        }
        let known = ledger.len() as u64;
        if self.round + rows.len() as u64 != known {
            return Err(damaged(format!(
                "expected {} rounds, of which the state has {} and the journal {}, got {known} lines",
                self.round + rows.len() as u64,
                self.round,
                rows.len()
            )));
        }
        let made = self.round as usize;
        for (entry, fresh) in ledger.iter().skip(made).zip(rows) {
            let place = |what: &str| format!("line {}, {what}", self.round + 1);
            if (entry.round, entry.previous_sha256.as_str()) != (self.round, self.chain.head()) {
                return Err(damaged(place(
                    "previous_sha256: it does not follow the line before",
                )));
            }
            self.noise.rekey(fresh)?;
            let made = self.noise.key_id()?;
            if made != entry.noise_key {
                let shown = |key: Option<&str>| key.unwrap_or("none").to_owned();
                return Err(damaged(format!(
                    "{}: expected the name of the key in the journal, {}, got {}",
                    place("noise_key"),
                    shown(made.as_deref()),
                    shown(entry.noise_key.as_deref())
                )));
            }
            self.skip_row(&self.plan.round(self.round))?;
            self.chain = self.chain.line(&mut entry.clone())?.1;
            self.round += 1;
        }
        let mut account = Account::new(&self.task, &self.plan)?;
        for entry in ledger {
            account.add(entry)?;
        }
        self.spending = account.running()?;
        Ok(self)
    }
}

//! Rows of noise that a journal brings back.

use super::RunHead;
use crate::account::Account;
use crate::adaptive_clip::AdaptiveClip;
use crate::entropy::RoundEntropy;
use crate::error::{CoordinatorError, Result};
use crate::record::LedgerEntry;

/// A closed round as a journal keeps it: all that brings back its noise and, with adaptive clipping, the clip norms after it.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: the noise of a release follows from it"
)]
pub struct Row {
    /// The entropy of the round's rows of noise.
    pub entropy: RoundEntropy,
    /// The clip norms after the round, where clipping is adaptive: they follow from a release that is not kept.
    pub clip: Option<AdaptiveClip>,
}

impl RunHead {
    /// Goes over the rounds of a ledger that are newer than the state of the head: draws their rows of noise again, each from the
    /// entropy of its own round, and gives nothing out. `ledger` has all lines, and `rows` has a row for each of those from
    /// [`round`](Self::round) on.
    ///
    /// # Guarantee
    /// A row is drawn again for the sake of later rows alone, which depend on it: each later row takes off a part of the earlier ones.
    /// It meets no second sum. The ledger names the key of each row, and a row of another key is refused. So is a
    /// clip norm that the ledger does not name.
    ///
    /// # Errors
    /// A head that trains a model, since a row does not bring back its state; another number of rows; a ledger that is not that of the
    /// head; entropy of another key; clip norms that do not fit the ledger, or are missing; from the mechanism. The head is then gone.
    pub fn replay(mut self, ledger: &[LedgerEntry], rows: &[Row]) -> Result<Self> {
        let damaged = |message: String| CoordinatorError::Ledger { message };
        if self.trained.is_some() {
            let expected = "a head without a model: a row of noise does not bring back its parameters";
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
        for (entry, row) in ledger.iter().skip(made).zip(rows) {
            let place = |what: &str| format!("line {}, {what}", self.round + 1);
            if (entry.round, entry.previous_sha256.as_str()) != (self.round, self.chain.head()) {
                return Err(damaged(place(
                    "previous_sha256: it does not follow the line before",
                )));
            }
            let plan = self.round_plan();
            if plan.clipping.bound() != entry.clip_norm {
                let shown = |norm: Option<f64>| norm.map_or("no value".to_owned(), |norm| norm.to_string());
                let (expected, got) = (shown(plan.clipping.bound()), shown(entry.clip_norm));
                return Err(damaged(format!(
                    "{}: expected {expected}, got {got}",
                    place("clip_norm")
                )));
            }
            self.noise.rekey(&row.entropy)?;
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
            self.skip_row(&plan)?;
            self.chain = self.chain.line(&mut entry.clone())?.1;
            self.round += 1;
            self.set_clip(row)?;
        }
        let mut account = Account::new(&self.task, &self.plan)?;
        for entry in ledger {
            account.add(entry)?;
        }
        self.spending = account.running()?;
        Ok(self)
    }

    /// Puts the clip norms after a replayed round in force, and begins the next segment where they do.
    fn set_clip(&mut self, row: &Row) -> Result<()> {
        let begins = self.noise.next_segment() == Some(self.round);
        let place = format!(
            "replay: the clip norms after round {}",
            self.round.saturating_sub(1)
        );
        let damaged = |message: &str| CoordinatorError::Ledger {
            message: format!("{place}: {message}"),
        };
        match (self.clip, row.clip) {
            (None, None) => return Ok(()),
            (Some(_), None) => return Err(damaged("missing, and clipping is adaptive")),
            (None, Some(_)) => return Err(damaged("the clip norm of this task is fixed")),
            (Some(before), Some(after)) if !begins && before.active() != after.active() => {
                return Err(damaged("the norm in force changes where no segment begins"));
            }
            (Some(_), Some(after)) if begins => self.noise.begin_segment(after.active(), &row.entropy)?,
            (Some(_), Some(_)) => {}
        }
        self.clip = row.clip;
        Ok(())
    }
}

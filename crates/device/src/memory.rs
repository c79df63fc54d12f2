//! The part of the device's store that a session decides by: participations, heads, costs and certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use undertone_protocol::{Digest32, RetryWindow, Signed, Verdict};

use crate::keystore::SecretKey;

/// The time for which a device leaves a plan alone that costs too much processor time, in milliseconds.
pub(crate) const PLAN_BACKOFF: u64 = 7 * 24 * 3_600_000;

/// The progress of a participation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The row was written. From here on the participation counts, whatever happens.
    Begun,
    /// The service accepted the whole update.
    Committed,
    /// The service named the end of the session. Nothing rests on its word.
    Ended(Verdict),
}

/// One participation of this device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participation {
    /// The task.
    pub task: Digest32,
    /// The round.
    pub round: u64,
    /// The attempt at this round.
    pub attempt: u32,
    /// The clock of the device, in milliseconds since 1970.
    pub at_ms: u64,
    /// The progress of the participation.
    pub progress: Progress,
}

/// A key for one secure sum, with the certificate of an issuer.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds a secret key")]
pub struct StockedKey {
    /// The secret seed of the key.
    pub seed: SecretKey,
    /// The public key.
    pub public: Digest32,
    /// The certificate, a signed `SessionCertificate`.
    pub certificate: Signed,
    /// The end of the certificate, in milliseconds since 1970.
    pub not_after_ms: u64,
}

/// A row that a machine wants to be written before it goes on.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "PRIVACY: a row may hold secret keys")]
pub enum Row {
    /// The head of a task in an assignment. It must be durable before the machine goes on.
    Head {
        /// The task.
        task: Digest32,
        /// The round.
        round: u64,
        /// The digest of the last line of the ledger.
        chain: Digest32,
    },
    /// Session keys with their certificates.
    Stock(Vec<StockedKey>),
    /// A blob for the cache. It need not be durable.
    Blob {
        /// The digest, which the machine has checked.
        digest: Digest32,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// A plan whose training used up its processor time on this device.
    PlanBackoff {
        /// The digest of the plan.
        plan: Digest32,
        /// The time until which the device leaves it alone, in milliseconds since 1970.
        until_ms: u64,
    },
    /// A participation. It must be durable before the machine goes on: the next action may send the first byte.
    Participation {
        /// The participation.
        row: Participation,
        /// The planned cost of the task.
        rho: f64,
        /// The session key that the participation uses up.
        key: Option<Digest32>,
    },
    /// The progress of a participation. It need not be durable.
    Progress {
        /// The task.
        task: Digest32,
        /// The round.
        round: u64,
        /// The attempt.
        attempt: u32,
        /// The progress.
        progress: Progress,
    },
}

/// Everything that a machine knows of the past. A host that writes each [`Row`] can build it again.
#[derive(Clone, Default)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds secret keys")]
pub struct Memory {
    /// The time since which this store has seen every participation, in milliseconds since 1970.
    pub trusted_from_ms: u64,
    /// The latest time of the device's clock that a signed board has confirmed.
    pub latest_ms: u64,
    /// Participations that a restored store does not hold. They count for every task.
    pub lost: u64,
    /// The planned cost of tasks that a restored store does not hold.
    pub lost_rho: f64,
    /// The participations, in the order in which they began.
    pub participations: Vec<Participation>,
    /// The highest round of each task, and the head of its ledger.
    pub heads: BTreeMap<Digest32, (u64, Digest32)>,
    /// The planned cost of each task that the device took part in.
    pub spent: BTreeMap<Digest32, f64>,
    /// Plans that cost too much processor time, and the time until which the device leaves them alone.
    pub plan_backoff: BTreeMap<Digest32, u64>,
    /// The certificate of the device.
    pub certificate: Option<Signed>,
    /// Session keys that were not used.
    pub stock: Vec<StockedKey>,
    /// Number of examples for training.
    pub training_examples: u64,
    /// Number of examples that are withheld from training.
    pub withheld_examples: u64,
    /// The two numbers by the rule of English, where the device counts its texts by the broadest rule.
    pub english_examples: Option<(u64, u64)>,
    /// The window after the last session that reached the service. A device that reaches no service draws from it again, so an
    /// outage leaves devices as spread out as they were.
    pub window: Option<RetryWindow>,
}

impl Memory {
    /// Takes in a row that was written.
    pub fn apply(&mut self, row: &Row) {
        match row {
            Row::Head { task, round, chain } => {
                self.heads.insert(*task, (*round, *chain));
            }
            Row::Stock(keys) => self.stock.extend(keys.iter().cloned()),
            Row::Blob { .. } => {}
            Row::PlanBackoff { plan, until_ms } => {
                self.plan_backoff.insert(*plan, *until_ms);
            }
            Row::Participation { row, rho, key } => {
                let spent = self.spent.entry(row.task).or_default();
                *spent = spent.max(*rho);
                self.stock.retain(|stocked| Some(stocked.public) != *key);
                self.participations.push(row.clone());
            }
            Row::Progress {
                task,
                round,
                attempt,
                progress,
            } => {
                let found = self
                    .participations
                    .iter_mut()
                    .rev()
                    .find(|row| (row.task, row.round, row.attempt) == (*task, *round, *attempt));
                if let Some(found) = found {
                    found.progress = *progress;
                }
            }
        }
    }

    /// Takes in a time that a signed board has confirmed. A later time in this memory came from a clock that was wrong.
    ///
    /// PRIVACY: a timer that such a clock began starts anew now, so none ends too early.
    pub(crate) fn confirm(&mut self, now_ms: u64) {
        self.latest_ms = now_ms;
        self.trusted_from_ms = self.trusted_from_ms.min(now_ms);
        for row in &mut self.participations {
            row.at_ms = row.at_ms.min(now_ms);
        }
        for until_ms in self.plan_backoff.values_mut() {
            *until_ms = (*until_ms).min(now_ms.saturating_add(PLAN_BACKOFF));
        }
    }

    /// Number of participations in a task, those that a restored store lost included.
    #[must_use]
    pub fn count(&self, task: &Digest32) -> u64 {
        self.of(task).count() as u64 + self.lost
    }

    /// The highest round of a task that the device took part in, and the latest time.
    #[must_use]
    pub fn last(&self, task: &Digest32) -> Option<(u64, u64)> {
        let round = self.of(task).map(|row| row.round).max()?;
        let at = self.of(task).map(|row| row.at_ms).max()?;
        Some((round, at))
    }

    /// The planned cost of all tasks of the population if this one is among them.
    #[must_use]
    pub(crate) fn cost_with(&self, task: &Digest32, rho: f64) -> f64 {
        let others = self.spent.iter().filter(|(other, _)| *other != task);
        let known = self.spent.get(task).copied().unwrap_or(0.0);
        self.lost_rho + others.map(|(_, rho)| rho).sum::<f64>() + known.max(rho)
    }

    fn of(&self, task: &Digest32) -> impl Iterator<Item = &Participation> {
        self.participations.iter().filter(move |row| row.task == *task)
    }
}

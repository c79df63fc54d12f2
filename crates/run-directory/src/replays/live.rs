//! `replays.json`: the rounds that a run replayed beside a neighbour while it ran, by `audit.replay_every`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use undertone_accounting::Adjacency;
use undertone_coordinator::task::TaskConfig;
use undertone_settings::Algorithm;

use crate::error::{DirectoryError, Result};
use crate::files;
use crate::files::names::REPLAYS_FILE;

/// The version of `replays.json`.
pub const SCHEMA: &str = "undertone.replays/1";

/// The replays of a run. PRIVACY: they say that the checks passed, and nothing about the user, the size of a difference, or whether anybody
/// was in the round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRecord {
    /// `undertone.replays/1`.
    pub schema: String,
    /// One round in so many is replayed.
    pub every: u64,
    /// The relation between neighbours.
    pub adjacency: Adjacency,
    /// The bound on one round, in clip norms.
    pub clip_norms_per_round: f64,
    /// The replayed rounds, in their order.
    pub replays: Vec<LiveRound>,
}

/// One replayed round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveRound {
    /// The round.
    pub round: u64,
    /// The checks that this kind of run asks, the same ones for every round: [`asked`]. All of them passed. A round without users has no
    /// neighbour, and one without a release has nothing to compare: such a round passes them trivially.
    pub passed: Vec<String>,
}

/// The checks that a run of this task asks of each replayed round, in their order. They follow from the configuration alone.
#[must_use]
pub fn asked(task: &TaskConfig) -> Vec<String> {
    // Nobody sees the sum without the noise of the clients.
    let sums = !task.encoding_is_noisy();
    let alone = task.aggregation.is_none();
    let update = &task.user_update;
    let in_microbatches = alone && update.algorithm == Algorithm::Els && update.batch_size() > 1;
    let all = [
        ("R0", true),
        ("R1", sums),
        ("R2", true),
        ("R3", sums && alone && task.estimator.is_fixed()),
        ("R4", sums && !in_microbatches),
    ];
    let names = all.iter().filter(|(_, applies)| *applies);
    names.map(|(name, _)| (*name).to_owned()).collect()
}

/// `true` for a round that is replayed. The first round is not: its neighbour would start with other keys.
#[must_use]
pub fn is_due(every: u64, round: u64) -> bool {
    every > 0 && round > 0 && (round + 1).is_multiple_of(every)
}

impl LiveRecord {
    /// The record in a run directory.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`] for a record of another schema or frequency.
    pub fn read(folder: &Path, every: u64) -> Result<Self> {
        let path = folder.join(REPLAYS_FILE);
        let record: Self = files::read_json(&path)?;
        if record.schema != SCHEMA || record.every != every {
            let message = format!("expected the schema `{SCHEMA}`, and `every` = {every} as in `[audit]`");
            return Err(DirectoryError::damaged(&path, message));
        }
        Ok(record)
    }

    /// Checks that the record names each round that was due among these, and no other, each with the checks that this task asks.
    ///
    /// # Errors
    /// [`DirectoryError::Damaged`] naming the round: its replay has failed, or somebody has changed the record.
    pub fn check(&self, folder: &Path, task: &TaskConfig, rounds: u64) -> Result<()> {
        let asked = asked(task);
        if let Some(replay) = self.replays.iter().find(|replay| replay.passed != asked) {
            let message = format!(
                "round {}: expected the checks {} to have passed, got {}",
                replay.round,
                asked.join(", "),
                match replay.passed.is_empty() {
                    true => "none".to_owned(),
                    false => replay.passed.join(", "),
                }
            );
            return Err(DirectoryError::damaged(&folder.join(REPLAYS_FILE), message));
        }
        let mut due = (0..rounds).filter(|&round| is_due(self.every, round));
        let mut kept = self.replays.iter().map(|replay| replay.round);
        let message = loop {
            match (due.next(), kept.next()) {
                (None, None) => return Ok(()),
                (Some(round), found) if found != Some(round) => {
                    break format!(
                        "expected the replay of round {round}, and all checks passed: a run whose replay fails cannot go on"
                    );
                }
                (None, Some(round)) => {
                    break format!("expected no replay of round {round}: the ledger has {rounds} rounds");
                }
                (Some(_), _) => {}
            }
        };
        Err(DirectoryError::damaged(&folder.join(REPLAYS_FILE), message))
    }
}

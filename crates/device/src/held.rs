//! The released models that a device holds: the blobs of the last session of each task.

use serde::{Deserialize, Serialize};
use undertone_protocol::{Blob, Digest32, TaskCard, digest_of};

use crate::database::Database;
use crate::error::{DeviceError, Result};
use crate::job::Job;
use crate::wire::hex;

/// The names of rows in the table `meta` that describe a model.
const PREFIX: &str = "model/";

/// Max number of models that a device keeps account of. The cache on disk has a cap of its own.
const MAX_MODELS: usize = 16;

/// A released model that the device loaded for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldModel {
    /// The task.
    pub task: Digest32,
    /// The round that starts from this model: the number of releases before it.
    pub round: u64,
    /// The time of the session, in milliseconds since 1970.
    pub at_ms: u64,
}

/// The row of a model: the digests under which the cache has its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldRow {
    pub(crate) task: Digest32,
    pub(crate) round: u64,
    pub(crate) at_ms: u64,
    pub(crate) plan: Digest32,
    pub(crate) model: Digest32,
}

/// The release of a task that a board names for predictions.
#[derive(Debug, Clone)]
pub(crate) struct NamedRelease {
    pub(crate) task: Digest32,
    /// The pinned model, and the number of releases that made it; `None` for that of the last session.
    pub(crate) pinned: Option<(Blob, u64)>,
}

impl NamedRelease {
    /// The release that a card names; `None` for a card whose task has no usable identifier.
    pub(crate) fn of(card: &TaskCard) -> Option<Self> {
        Some(Self {
            task: Digest32::try_from(&card.task[..]).ok()?,
            pinned: card.pinned.clone().map(|model| (model, card.pinned_round)),
        })
    }
}

impl HeldRow {
    pub(crate) fn shown(&self) -> HeldModel {
        HeldModel {
            task: self.task,
            round: self.round,
            at_ms: self.at_ms,
        }
    }
}

impl Database {
    /// Notes the model of a job, so that the device can predict with it after the session.
    pub(crate) fn hold(&self, job: &Job, now_ms: u64) -> Result<()> {
        let row = HeldRow {
            task: job.plan.task,
            round: job.terms.round,
            at_ms: now_ms,
            plan: job.plan.digest,
            model: digest_of(&job.model),
        };
        self.put_held(&row)?;
        for old in self.held()?.iter().skip(MAX_MODELS) {
            self.connection
                .execute("DELETE FROM meta WHERE name = ?1", [name(&old.task)])?;
        }
        Ok(())
    }

    pub(crate) fn put_held(&self, row: &HeldRow) -> Result<()> {
        let text = serde_json::to_vec(row).map_err(|error| unreadable(&error))?;
        self.set_meta(&name(&row.task), &text)
    }

    /// The models of all tasks, the newest first.
    pub(crate) fn held(&self) -> Result<Vec<HeldRow>> {
        let mut statement = self
            .connection
            .prepare("SELECT value FROM meta WHERE substr(name, 1, ?1) = ?2")?;
        let rows = statement.query_map(rusqlite::params![PREFIX.len() as i64, PREFIX], |row| {
            row.get::<_, Vec<u8>>(0)
        })?;
        let mut held = Vec::new();
        for row in rows {
            let row: HeldRow = serde_json::from_slice(&row?).map_err(|error| unreadable(&error))?;
            held.push(row);
        }
        held.sort_by_key(|row| (std::cmp::Reverse(row.at_ms), row.task));
        Ok(held)
    }
}

fn name(task: &Digest32) -> String {
    format!("{PREFIX}{}", hex(task))
}

fn unreadable(error: &serde_json::Error) -> DeviceError {
    DeviceError::value("the row of a model", "the digests of its parts", error)
}

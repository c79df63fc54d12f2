//! Blobs of a store of objects on their way into a backup, and out of one.

use std::path::Path;

use undertone_service::Result;
use undertone_service::room::{MODEL, STATE};
use undertone_store::{Blobs, Created, FolderBlobs, Store, TaskRow};

use super::refused;

/// Copies every blob, and the heads up to the snapshot, to a folder of a backup. A release that the snapshot holds is published on the way,
/// as the process that leads its task would do.
pub(super) fn save(from: &dyn Blobs, to: &Path, store: &dyn Store, rows: &[TaskRow]) -> Result<()> {
    let to = FolderBlobs::open(to)?;
    for row in rows {
        for release in store.unpublished(row.task.id)? {
            for (name, digest) in [(MODEL, Some(release.model)), (STATE, release.state)] {
                if let Some(digest) = digest {
                    from.publish(release.attempt, name, &digest)?;
                }
            }
        }
        // PRIVACY: a head beyond the snapshot would say that the database was put back.
        for round in 0..=row.head_round {
            if let Some(head) = from.head(row.task.id, round)? {
                to.create_head(row.task.id, round, &head)?;
            }
        }
    }
    for digest in from.list()? {
        let stored = to.put(&mut from.get(&digest, 0)?.bytes)?;
        if stored.digest != digest {
            return Err(refused(
                "a blob of the store of objects",
                &format!(
                    "the bytes of its digest {}",
                    undertone_service::identity::hex(&digest)
                ),
                "other bytes",
            ));
        }
    }
    Ok(())
}

/// Copies every blob and head of a restored folder to a store of objects.
pub(super) fn bring(from: &Path, to: &dyn Blobs, rows: &[TaskRow]) -> Result<()> {
    let from = FolderBlobs::open(from)?;
    for row in rows {
        // PRIVACY: a bucket that holds a later round is that of a service that went on.
        if to
            .last_head(row.task.id)?
            .is_some_and(|round| round > row.head_round)
        {
            return Err(refused(
                "the store of objects",
                &format!("heads of task {} up to round {}", row.task.name, row.head_round),
                "a later one: a service went on there after this backup",
            ));
        }
        for round in 0..=row.head_round {
            if let Some(head) = from.head(row.task.id, round)?
                && matches!(to.create_head(row.task.id, round, &head)?, Created::Other(_))
            {
                return Err(refused(
                    "the store of objects",
                    &format!(
                        "the head of round {round} of task {} as in the backup",
                        row.task.name
                    ),
                    "another one",
                ));
            }
        }
    }
    for digest in from.list()? {
        to.put(&mut from.get(&digest, 0)?.bytes)?;
    }
    Ok(())
}

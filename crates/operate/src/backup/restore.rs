//! The way back from a backup, and its rehearsal.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_protocol::TaskState;
use undertone_run_directory::files;
use undertone_service::data_folder::{self, BLOBS, DATABASE};
use undertone_service::keys;
use undertone_service::keys::seal;
use undertone_service::room::Room;
use undertone_service::storage::spool::Spool;
use undertone_service::task::Task;
use undertone_service::{Result, ServiceError};
use zeroize::Zeroizing;

use super::{
    BackupKey, FORM, MANIFEST, Manifest, SEALED, copy, digests, folders, objects, refused, sync, write,
};

/// The name of the operator of a restore in the audit log.
const ACTOR: &str = "restore";

/// Max bytes of a manifest and of sealed keys.
const MAX_SMALL: u64 = 256 << 20;

/// A task after a rehearsed restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedTask {
    /// Name of the task.
    pub name: String,
    /// Number of released rounds.
    pub released: u64,
    /// `true` if a process could lead it: its plan, its model and the state of its noise were read and opened.
    pub leads: bool,
    /// The reason where it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The result of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// Number of files, all with their digests.
    pub files: usize,
    /// The tasks that are neither drafts nor completed.
    pub tasks: Vec<RehearsedTask>,
}

/// Checks every file of a backup, and opens its keys.
fn open(folder: &Path, key: &BackupKey) -> Result<(Manifest, Zeroizing<Vec<u8>>)> {
    let name = |part: &str| folder.join(part).display().to_string();
    let text = files::read_at_most(&folder.join(MANIFEST), MAX_SMALL)?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| refused(&name(MANIFEST), "the manifest of a backup", error.to_string()))?;
    if manifest.form != FORM {
        return Err(refused(
            &name(MANIFEST),
            "a backup of form 1; use the version of this program that wrote it",
            format!("form {}", manifest.form),
        ));
    }
    let sealed = files::read_at_most(&folder.join(SEALED), MAX_SMALL)?;
    let salt = sealed.first_chunk::<32>().ok_or(ServiceError::Sealed)?;
    let opening = key.sealing(salt, manifest.passphrase)?;
    let secret = seal::open(&sealed, &|_| opening.clone()).map_err(|_| {
        refused(
            &name(SEALED),
            "sealed under this key",
            "another key or passphrase, or changed bytes",
        )
    })?;
    let Some((of_manifest, key_file)) = secret.split_first_chunk::<32>() else {
        return Err(ServiceError::Sealed);
    };
    if Sha256::digest(&text).as_slice() != of_manifest {
        return Err(refused(
            &name(MANIFEST),
            "the one that was sealed with the keys",
            "another one",
        ));
    }
    let mut found = digests(folder)?;
    for own in [MANIFEST, SEALED] {
        found.remove(own);
    }
    differs(&manifest.files, &found)?;
    Ok((manifest, Zeroizing::new(key_file.to_vec())))
}

/// Names the first file that is not the one of the manifest.
fn differs(wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Result<()> {
    for (path, digest) in wanted {
        let got = match found.get(path) {
            None => "no file",
            Some(other) if other != digest => "other bytes",
            Some(_) => continue,
        };
        return Err(refused(path, "the file of the manifest", got));
    }
    match found.keys().find(|path| !wanted.contains_key(*path)) {
        Some(path) => Err(refused(path, "a file that the manifest names", "another one")),
        None => Ok(()),
    }
}

/// The places of a restored service outside of its data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places<'a> {
    /// The connection string of an empty database on a server; a file of the data folder without it.
    pub store: Option<&'a str>,
    /// The address of a store of objects; a folder of the data folder without it.
    pub blobs: Option<&'a str>,
}

/// Writes a data folder from a backup. Every active or paused task is halted: it goes on by a person who knows that no later round was
/// released. `data` must not exist; it is made whole or not at all. The database on a server is filled in one transaction, and last.
///
/// # Errors
/// [`ServiceError::Value`] naming the file that is not as it was, a key that does not open the backup, or a store of objects in which a
/// service went on; [`ServiceError::Io`]; a database with rows.
pub fn restore(folder: &Path, key: &BackupKey, data: &Path, places: Places<'_>) -> Result<Manifest> {
    if data.exists() {
        return Err(refused(
            &data.display().to_string(),
            "a folder that does not exist",
            "one that does",
        ));
    }
    let beside = data
        .parent()
        .filter(|above| !above.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    let partial = tempfile::Builder::new()
        .prefix(".undertone-restore-")
        .tempdir_in(beside)
        .map_err(|error| ServiceError::io("make a folder in", beside, error))?;
    let manifest = fill(folder, key, partial.path())?;
    {
        // A backup of an earlier version has an earlier schema. The backup itself stays as it is.
        data_folder::migrate(partial.path())?;
        let shared = data_folder::open(partial.path(), None)?;
        for row in shared.store.tasks()? {
            if matches!(row.state, TaskState::Active | TaskState::Paused) {
                let note = format!(
                    "restored from a backup of {} ms since 1970, at round {}. A round that was released later must not be made again: \
                     start a new task, or resume this one with a note if you know that round {} was the last one",
                    manifest.made_ms, row.head_round, row.head_round
                );
                shared
                    .store
                    .set_state(row.task.id, row.state, TaskState::Halted, ACTOR, &note)?;
            }
        }
    }
    settle(partial.path(), places)?;
    let kept = partial.keep();
    fs::rename(&kept, data).map_err(|error| ServiceError::io("make", data, error))?;
    sync(beside)?;
    Ok(manifest)
}

/// Moves blobs and database of a restored folder, whose tasks are halted, to their places outside of it.
fn settle(root: &Path, places: Places<'_>) -> Result<()> {
    let database = root.join(DATABASE);
    if let Some(address) = places.blobs {
        let rows = undertone_store::Store::tasks(&undertone_store::Sqlite::open(&database)?)?;
        let aside = root.join("restored-blobs");
        fs::rename(root.join(BLOBS), &aside).map_err(|error| ServiceError::io("move", &aside, error))?;
        data_folder::keep_blobs_in(root, address)?;
        let blobs = data_folder::open_blobs(root)?;
        objects::bring(&aside, blobs.as_ref(), &rows)?;
        fs::remove_dir_all(&aside).map_err(|error| ServiceError::io("delete", &aside, error))?;
    }
    if let Some(url) = places.store {
        data_folder::fill_database(url, &database)?;
        for end in ["", ".lock", "-wal", "-shm"] {
            let path = root.join(format!("{DATABASE}{end}"));
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ServiceError::io("delete", &path, error));
                }
                _ => {}
            }
        }
        data_folder::keep_on_server(root, url)?;
    }
    Ok(())
}

fn fill(folder: &Path, key: &BackupKey, root: &Path) -> Result<Manifest> {
    let (manifest, key_file) = open(folder, key)?;
    for path in manifest.files.keys() {
        let target = root.join(path);
        if let Some(above) = target.parent() {
            folders(above)?;
        }
        copy(&folder.join(path), &target)?;
    }
    if !root.join(DATABASE).is_file() {
        return Err(refused(
            &folder.display().to_string(),
            "a backup with a database",
            "none",
        ));
    }
    write(&keys::key_file(root), &key_file)?;
    Ok(manifest)
}

/// Restores a backup into a temporary folder and leads each of its tasks there, without devices. Nothing of the service that runs is
/// touched.
///
/// # Errors
/// The errors of [`restore`]. A task that cannot be led is part of the result.
pub fn rehearse(folder: &Path, key: &BackupKey) -> Result<Rehearsal> {
    let place = tempfile::tempdir()
        .map_err(|error| ServiceError::io("make a folder in", &std::env::temp_dir(), error))?;
    let data = place.path().join("service");
    let manifest = restore(folder, key, &data, Places::default())?;
    let shared = std::sync::Arc::new(data_folder::open(&data, None)?);
    let mut tasks = Vec::new();
    for row in shared.store.tasks()? {
        if matches!(row.state, TaskState::Draft | TaskState::Completed) {
            continue;
        }
        let spool = Spool::new(0, place.path())?;
        let led = Task::load(&row, shared.blobs.as_ref(), &shared.keys)
            .and_then(|task| Room::lead(shared.clone(), std::sync::Arc::new(spool), task));
        tasks.push(RehearsedTask {
            name: row.task.name.clone(),
            released: row.head_round,
            leads: matches!(led, Ok(Some(_))),
            reason: led.err().map(|error| error.to_string()),
        });
    }
    Ok(Rehearsal {
        files: manifest.files.len(),
        tasks,
    })
}

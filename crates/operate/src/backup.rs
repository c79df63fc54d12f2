//! Backups: one consistent set of database, blobs, heads, budgets and keys, and the way back.
//!
//! | file | content |
//! |---|---|
//! | `manifest.json` | the tasks with their rounds, and the digest of each file |
//! | `service.sqlite` | a snapshot of the database, row by row where that is on a server |
//! | `blobs/` | every blob and head that the snapshot names, and none that is newer |
//! | `budgets.json` | the budgets of the populations |
//! | `keys.sealed` | the key file and the digest of the manifest, sealed under the backup's key or passphrase |
//!
//! PRIVACY: a restored service stands at an earlier state, and a second release of a round would show updates without the noise that
//! hides them. So every live task of a restored service is halted, and a person lets it go on.

mod key;
mod objects;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use undertone_protocol::TaskState;
use undertone_run_directory::files;
use undertone_service::data_folder::{self, BLOBS, DATABASE};
use undertone_service::identity::hex;
use undertone_service::keys::seal;
use undertone_service::keys::{self, random};
use undertone_service::{Result, ServiceError};
use undertone_store::{Sqlite, Store, TaskRow};
use zeroize::Zeroizing;

pub use key::{BackupKey, Stretching};
pub use restore::{Places, Rehearsal, RehearsedTask, rehearse, restore};

/// The name of the manifest in a backup.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The name of the sealed keys in a backup.
pub(crate) const SEALED: &str = "keys.sealed";

/// The name of the file of budgets, here and in a data folder.
const BUDGETS: &str = "budgets.json";

/// The version of the form of a backup.
const FORM: u32 = 1;

/// Tries to copy a set that no release changes meanwhile.
const TRIES: u32 = 5;

/// A task in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedTask {
    /// Name of the task.
    pub name: String,
    /// Identifier of the task, in hexadecimal digits.
    pub id: String,
    /// State of the task.
    pub state: String,
    /// Number of released rounds.
    pub released: u64,
}

/// The manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the form.
    pub form: u32,
    /// The time, in milliseconds since 1970.
    pub made_ms: u64,
    /// The tasks.
    pub tasks: Vec<SavedTask>,
    /// The cost of trying a passphrase; none for a backup under a key file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<Stretching>,
    /// SHA-256 of each file by its path, in hexadecimal digits.
    pub files: BTreeMap<String, String>,
}

fn refused(key: &str, expected: &str, got: impl Into<String>) -> ServiceError {
    ServiceError::Value {
        key: key.to_owned(),
        expected: expected.to_owned(),
        got: got.into(),
    }
}

/// Writes a new file with a random key for backups. Only its owner can read it. Keep it apart from the backups.
///
/// # Errors
/// [`ServiceError::Value`] for a file that exists; no entropy; [`ServiceError::Io`].
pub fn write_key(path: &Path) -> Result<()> {
    if files::exists(path) {
        return Err(refused(
            &path.display().to_string(),
            "a file that does not exist",
            "one that does",
        ));
    }
    let key = Zeroizing::new(random::<64>()?);
    files::write_secret_with(path, |file| {
        std::io::Write::write_all(file, &*key)
            .map_err(|error| undertone_run_directory::error::DirectoryError::io("write", path, error))
    })?;
    Ok(())
}

/// Makes a backup of a data folder, also while its processes run, with its database in a file or on a server, and its blobs in a folder
/// or in a store of objects. `folder` must not exist; it is made whole or not at all.
///
/// # Errors
/// [`ServiceError::Value`] for a folder without a service; a key file of another kind; [`ServiceError::Io`]; from the server and the store
/// of objects.
pub fn create(data: &Path, now_ms: u64, folder: &Path, key: &BackupKey) -> Result<Manifest> {
    if !data_folder::exists(data) {
        return Err(refused(
            &data.display().to_string(),
            "the data folder of a service",
            "another one",
        ));
    }
    if folder.exists() {
        return Err(refused(
            &folder.display().to_string(),
            "a folder that does not exist",
            "one that does",
        ));
    }
    let salt = random()?;
    let passphrase = key.stretching();
    let sealing = key.sealing(&salt, passphrase)?;
    let beside = folder
        .parent()
        .filter(|above| !above.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    let partial = tempfile::Builder::new()
        .prefix(".undertone-backup-")
        .tempdir_in(beside)
        .map_err(|error| ServiceError::io("make a folder in", beside, error))?;
    let root = partial.path();
    let mut tries = 0;
    let rows = loop {
        tries += 1;
        match copy_set(data, root) {
            Ok(rows) => break rows,
            // A release between the snapshot and the copy has deleted an old state.
            Err(error) if tries < TRIES => {
                tracing::warn!(%error, "the backup begins anew");
                clear(root)?;
            }
            Err(error) => return Err(error),
        }
    };
    let budgets = data.join(BUDGETS);
    if files::exists(&budgets) {
        copy(&budgets, &root.join(BUDGETS))?;
    }
    let manifest = Manifest {
        form: FORM,
        made_ms: now_ms,
        tasks: rows.iter().map(saved).collect(),
        passphrase,
        files: digests(root)?,
    };
    let text = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| ServiceError::io("write", &root.join(MANIFEST), error.into()))?;
    write(&root.join(MANIFEST), &text)?;
    let mut secret = Zeroizing::new(Sha256::digest(&text).to_vec());
    secret.extend_from_slice(&Zeroizing::new(files::read(&keys::key_file(data))?));
    let sealed = seal::seal(salt, &|_| sealing.clone(), &secret)?;
    write(&root.join(SEALED), &sealed)?;
    sync(root)?;
    let kept = partial.keep();
    fs::rename(&kept, folder).map_err(|error| ServiceError::io("make", folder, error))?;
    sync(beside)?;
    Ok(manifest)
}

fn saved(row: &TaskRow) -> SavedTask {
    SavedTask {
        name: row.task.name.clone(),
        id: row.task.id.to_string(),
        state: match row.state {
            TaskState::Unspecified => "unspecified",
            TaskState::Draft => "draft",
            TaskState::Active => "active",
            TaskState::Paused => "paused",
            TaskState::Completed => "completed",
            TaskState::Halted => "halted",
        }
        .to_owned(),
        released: row.head_round,
    }
}

/// Copies a snapshot of the database, and then everything that it names. The order matters: a release in between only adds blobs, but
/// for the states of old rounds, whose absence begins the copy anew.
fn copy_set(data: &Path, root: &Path) -> Result<Vec<TaskRow>> {
    let database = root.join(DATABASE);
    data_folder::copy_database(data, &database)?;
    private(&database)?;
    let (from, to) = (data.join(BLOBS), root.join(BLOBS));
    let in_folder = data_folder::keeps_blobs_in_folder(data)?;
    let rows = {
        let store = Sqlite::open(&database)?;
        let rows = store.tasks()?;
        if !in_folder {
            let blobs = data_folder::open_blobs(data)?;
            objects::save(blobs.as_ref(), &to, &store, &rows)?;
        }
        rows
    };
    // Opening the copy has left files of its own.
    for name in [".lock", "-wal", "-shm"] {
        let _ = fs::remove_file(root.join(format!("{DATABASE}{name}")));
    }
    if in_folder {
        for name in ["blobs", "staged"] {
            copy_tree(&from.join(name), &to.join(name), &|_| true)?;
        }
    }
    for row in &rows {
        let task = row.task.id.to_string();
        // PRIVACY: a head beyond the snapshot would say that the database was put back.
        let of_snapshot = |name: &str| name.parse::<u64>().is_ok_and(|round| round <= row.head_round);
        if in_folder {
            copy_tree(
                &from.join("heads").join(&task),
                &to.join("heads").join(&task),
                &of_snapshot,
            )?;
        }
        for digest in [Some(row.task.plan), row.head_state].into_iter().flatten() {
            let published = to.join("blobs").join(hex(&digest));
            if !published.is_file() && !is_staged(&to.join("staged"), &digest)? {
                return Err(ServiceError::io(
                    "read",
                    &published,
                    std::io::ErrorKind::NotFound.into(),
                ));
            }
        }
    }
    Ok(rows)
}

/// `true` if a staged file has this digest: it was committed and is not published yet.
fn is_staged(staged: &Path, digest: &[u8; 32]) -> Result<bool> {
    for path in walk(staged)? {
        if Sha256::digest(&*Zeroizing::new(files::read(&path)?)).as_slice() == digest {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies the files of a folder whose names a condition takes. A file that goes away meanwhile is left out.
fn copy_tree(from: &Path, to: &Path, takes: &dyn Fn(&str) -> bool) -> Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    for path in walk(from)? {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let Ok(place) = path.strip_prefix(from) else {
            continue;
        };
        if !takes(name) {
            continue;
        }
        let target = to.join(place);
        if let Some(above) = target.parent() {
            folders(above)?;
        }
        match copy(&path, &target) {
            Err(ServiceError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(|error| ServiceError::io("copy", from, error))?;
    private(to)?;
    let file = fs::File::open(to).map_err(|error| ServiceError::io("read", to, error))?;
    file.sync_all()
        .map_err(|error| ServiceError::io("write", to, error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(files::write_secret_with(path, |file| {
        std::io::Write::write_all(file, bytes)
            .map_err(|error| undertone_run_directory::error::DirectoryError::io("write", path, error))
    })?)
}

/// Lets only the owner read a file.
fn private(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|error| ServiceError::io("write", path, error))?;
    }
    Ok(())
}

/// Makes a folder and those above it for their owner alone.
fn folders(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(path)
        .map_err(|error| ServiceError::io("make", path, error))
}

fn sync(folder: &Path) -> Result<()> {
    let opened = fs::File::open(folder).map_err(|error| ServiceError::io("read", folder, error))?;
    opened
        .sync_all()
        .map_err(|error| ServiceError::io("write", folder, error))
}

fn clear(root: &Path) -> Result<()> {
    for path in entries(root)? {
        let gone = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        gone.map_err(|error| ServiceError::io("delete", &path, error))?;
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |error| ServiceError::io("read", folder, error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        found.push(entry.map_err(io)?.path());
    }
    found.sort();
    Ok(found)
}

/// The regular files below a folder. A link is an error: nothing of this program makes one.
fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for path in entries(&folder)? {
            let metadata = match path.symlink_metadata() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.map_err(|error| ServiceError::io("read", &path, error))?,
            };
            match (metadata.is_dir(), metadata.is_file()) {
                (true, _) => open.push(path),
                (_, true) => found.push(path),
                _ => {
                    return Err(refused(
                        &path.display().to_string(),
                        "a file or a folder",
                        "a link",
                    ));
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The digest of each file below a folder, by its path with `/`.
fn digests(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for path in walk(root)? {
        let place = path.strip_prefix(root).unwrap_or(&path);
        let name: Vec<&str> = place.iter().filter_map(|part| part.to_str()).collect();
        found.insert(name.join("/"), digest(&path)?);
    }
    Ok(found)
}

/// SHA-256 of a file.
fn digest(path: &Path) -> Result<String> {
    let io = |error| ServiceError::io("read", path, error);
    let mut file = fs::File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 16];
    loop {
        match file.read(&mut chunk).map_err(io)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(&chunk[..count]),
        }
    }
}

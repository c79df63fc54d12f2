//! The data folder of a service on one machine: its database, its blobs and its key file.

mod blobs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_run_directory::files;
use undertone_store::{Sqlite, Store};

use crate::error::{Result, ServiceError};
use crate::keys::Keys;
use crate::room::Shared;

pub use blobs::keep_blobs_in;
pub use blobs::{keeps_in_folder as keeps_blobs_in_folder, open as open_blobs};

/// The name of the database in the data folder.
pub const DATABASE: &str = "service.sqlite";

/// The name of the file in the data folder that holds the connection string of a database on a server.
///
/// PRIVACY: the string may hold a password, so the file has mode 0600.
pub const SERVER: &str = "store.url";

/// The name of the folder of blobs in the data folder.
pub const BLOBS: &str = "blobs";

/// The name under which the one process of a database leads its tasks. The lock of the database admits no second process, so a
/// restarted one takes the leases of the one before at once, each with a higher fence.
const PROCESS: &str = "local";

/// Opens a data folder, and makes it where there is none. Only its owner can read it. `witness` is a folder outside the backups of
/// this one, which remembers the newest head of each task.
///
/// # Errors
/// [`StoreError::Locked`](undertone_store::StoreError::Locked) while another process has it open; a key file of another kind; a
/// file system that cannot hold the blobs.
pub fn open(folder: &Path, witness: Option<&Path>) -> Result<Shared> {
    private_folder(folder)?;
    // The lock comes first: a second process touches neither keys nor blobs.
    let store: Arc<dyn Store> = match server(folder)? {
        Some(url) => on_server(&url)?,
        None => Arc::new(Sqlite::open(&folder.join(DATABASE))?),
    };
    opened(folder, witness, store, PROCESS)
}

/// Opens a data folder for the process `name` of a service of several. All of them open this folder, or folders with the same key file
/// and the same blobs. Its database must be on a server.
///
/// # Errors
/// [`StoreError::Locked`](undertone_store::StoreError::Locked) while a process has it alone; [`ServiceError::Value`] for a folder whose
/// database is a file, and for a name that cannot stand in a path; the other errors of [`open`].
pub fn open_beside(folder: &Path, witness: Option<&Path>, name: &str) -> Result<Shared> {
    crate::cluster::check_name(name)?;
    private_folder(folder)?;
    let Some(url) = server(folder)? else {
        return Err(ServiceError::Value {
            key: "the store of a service of several processes".to_owned(),
            expected: "a Postgres server (`--store postgres://USER@HOST/DATABASE`)".to_owned(),
            got: "a file".to_owned(),
        });
    };
    let store = on_server_beside(&url)?;
    opened(folder, witness, store, name)
}

fn opened(folder: &Path, witness: Option<&Path>, store: Arc<dyn Store>, process: &str) -> Result<Shared> {
    let blobs = open_blobs(folder)?;
    if let Some(witness) = witness {
        files::folder(witness)?;
    }
    Ok(Shared {
        store,
        blobs,
        keys: Keys::open(folder)?,
        process: process.to_owned(),
        witness: witness.map(PathBuf::from),
    })
}

/// Makes a folder that this process alone can enter, or takes the one that is there. One of this user is closed to all others. One of another
/// user is taken if that user lends it to a group of this process and to nobody else, as Kubernetes does with a volume.
///
/// # Errors
/// [`ServiceError::Value`] for a folder of another user that others can enter, or this process cannot; the errors of the file system.
pub fn private_folder(folder: &Path) -> Result<()> {
    let found = folder.symlink_metadata();
    if found.as_ref().is_ok_and(undertone_store::is_lent) {
        return Ok(());
    }
    let closed = files::secret_folder(folder);
    #[cfg(unix)]
    if let (Ok(found), Err(_)) = (&found, &closed)
        && found.is_dir()
    {
        use std::os::unix::fs::MetadataExt;
        return Err(ServiceError::Value {
            key: folder.display().to_string(),
            expected: "a folder of this user, or one that its owner lends to a group of this process and to nobody else (`chgrp GROUP`, \
                       `chmod 2770`)"
                .to_owned(),
            got: format!("mode {:o} of user {} and group {}", found.mode() & 0o7777, found.uid(), found.gid()),
        });
    }
    Ok(closed?)
}

/// Keeps the database of a data folder on a server from now on: `url` is `postgres://USER@HOST/DATABASE`. The folder remembers it.
///
/// # Errors
/// [`ServiceError::Value`] for a folder that has its database elsewhere, and for a string of another kind.
pub fn keep_on_server(folder: &Path, url: &str) -> Result<()> {
    let refused = |expected: &str, got: &str| ServiceError::Value {
        key: "the store".to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        // PRIVACY: the string itself may hold a password.
        return Err(refused("postgres://USER@HOST/DATABASE", "another form"));
    }
    if folder.join(DATABASE).is_file() {
        return Err(refused(
            "the file of the data folder, where the service was begun",
            "a server",
        ));
    }
    remember(folder, SERVER, url)?
        .then_some(())
        .ok_or_else(|| refused("the server that the data folder names", "another one"))
}

/// Keeps the database on a server as [`keep_on_server`] does. A user and a password that differ from the remembered ones replace them.
///
/// # Errors
/// The errors of [`keep_on_server`].
pub fn go_on_with_server(folder: &Path, url: &str) -> Result<()> {
    let renewed =
        server(folder)?.is_some_and(|known| known != url && without_user(&known) == without_user(url));
    if renewed {
        write_remembered(folder, SERVER, url)?;
    }
    keep_on_server(folder, url)
}

/// An address without its user and password.
fn without_user(url: &str) -> (&str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?']).next().unwrap_or_default().len();
    match rest[..authority].rfind('@') {
        Some(at) => (scheme, &rest[at + 1..]),
        None => (scheme, rest),
    }
}

/// The connection string that a data folder holds.
fn server(folder: &Path) -> Result<Option<String>> {
    remembered(folder, SERVER)
}

/// The text of a file of a data folder.
fn remembered(folder: &Path, name: &str) -> Result<Option<String>> {
    let bytes = files::read_if_there(&folder.join(name))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
}

/// Writes a text to a file of a data folder that its owner alone can read, unless it is there; `false` where another text is there.
fn remember(folder: &Path, name: &str, text: &str) -> Result<bool> {
    private_folder(folder)?;
    if let Some(known) = remembered(folder, name)? {
        return Ok(known == text);
    }
    write_remembered(folder, name, text)?;
    Ok(true)
}

fn write_remembered(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    Ok(files::write_secret_with(&path, |file| {
        std::io::Write::write_all(file, text.as_bytes())
            .map_err(|error| undertone_run_directory::error::DirectoryError::io("write", &path, error))
    })?)
}

#[cfg(feature = "postgres")]
fn on_server(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(undertone_store::Postgres::open_alone(url)?))
}

#[cfg(feature = "postgres")]
fn on_server_beside(url: &str) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(undertone_store::Postgres::open_beside(url)?))
}

#[cfg(feature = "postgres")]
fn migrate_server(url: &str) -> Result<()> {
    Ok(undertone_store::Postgres::migrate(url)?)
}

#[cfg(feature = "postgres")]
fn copy_server(url: &str, to: &Path) -> Result<()> {
    Ok(undertone_store::Postgres::copy(url, to)?)
}

/// Fills an empty database on a server with the rows of a file.
///
/// # Errors
/// From the server and from the file; a database that has rows.
#[cfg(feature = "postgres")]
pub fn fill_database(url: &str, from: &Path) -> Result<()> {
    Ok(undertone_store::Postgres::fill(url, from)?)
}

#[cfg(not(feature = "postgres"))]
fn no_server() -> ServiceError {
    ServiceError::Value {
        key: "the store".to_owned(),
        expected: "a file, since this program was built without the feature `postgres`".to_owned(),
        got: "a Postgres server".to_owned(),
    }
}

#[cfg(not(feature = "postgres"))]
fn on_server(_url: &str) -> Result<Arc<dyn Store>> {
    Err(no_server())
}

#[cfg(not(feature = "postgres"))]
fn on_server_beside(_url: &str) -> Result<Arc<dyn Store>> {
    Err(no_server())
}

#[cfg(not(feature = "postgres"))]
fn migrate_server(_url: &str) -> Result<()> {
    Err(no_server())
}

#[cfg(not(feature = "postgres"))]
fn copy_server(_url: &str, _to: &Path) -> Result<()> {
    Err(no_server())
}

/// Fills an empty database on a server with the rows of a file.
///
/// # Errors
/// [`ServiceError::Value`]: this program has no client of a server.
#[cfg(not(feature = "postgres"))]
pub fn fill_database(_url: &str, _from: &Path) -> Result<()> {
    Err(no_server())
}

/// Writes a snapshot of the database of a data folder to a new file of SQLite, also while processes have it open.
///
/// # Errors
/// From the store.
pub fn copy_database(folder: &Path, to: &Path) -> Result<()> {
    match server(folder)? {
        Some(url) => copy_server(&url, to),
        None => Ok(Sqlite::copy(&folder.join(DATABASE), to)?),
    }
}

/// Brings the database of a data folder to the schema of this program. Nothing is done where it has that schema. Keep a copy of the
/// database before.
///
/// # Errors
/// [`StoreError::Schema`](undertone_store::StoreError::Schema) for a database of a newer program;
/// [`StoreError::Locked`](undertone_store::StoreError::Locked) while a process has it open; a folder without a database.
pub fn migrate(folder: &Path) -> Result<()> {
    match server(folder)? {
        Some(url) => migrate_server(&url),
        None => Ok(Sqlite::migrate(&folder.join(DATABASE))?),
    }
}

/// `true` if a folder holds the database of a service, or names its server.
#[must_use]
pub fn exists(folder: &Path) -> bool {
    folder.join(DATABASE).is_file() || folder.join(SERVER).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ServiceError;
    use undertone_store::StoreError;

    #[test]
    fn a_folder_opens_once_at_a_time_with_the_keys_that_it_was_made_with() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("data");
        assert!(!exists(&folder));
        let first = open(&folder, Some(&above.path().join("witness"))).unwrap();
        assert!(exists(&folder) && above.path().join("witness").is_dir());
        let refused = open(&folder, None).err().unwrap();
        assert!(
            matches!(refused, ServiceError::Store(StoreError::Locked { .. })),
            "{refused}"
        );
        let key = first.keys.board().public();
        drop(first);
        assert_eq!(open(&folder, None).unwrap().keys.board().public(), key);
    }

    #[test]
    fn a_folder_keeps_to_the_database_that_it_was_begun_with() {
        let above = tempfile::tempdir().unwrap();
        let (file, server) = (above.path().join("file"), above.path().join("server"));
        drop(open(&file, None).unwrap());
        let says = |result: Result<()>| result.unwrap_err().to_string();
        let url = "postgres://me:hunter2@/x?host=/nowhere";
        assert!(says(keep_on_server(&file, url)).contains("where the service was begun"));
        keep_on_server(&server, url).unwrap();
        keep_on_server(&server, url).unwrap();
        assert!(exists(&server));
        assert!(says(keep_on_server(&server, "postgres://other@/x")).contains("got another one"));
        assert!(says(keep_on_server(&server, "mysql://me:hunter2@/x")).contains("got another form"));
        let error = open(&server, None).err().unwrap().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn several_processes_need_a_server_and_names_that_can_stand_in_a_path() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("data");
        drop(open(&folder, None).unwrap());
        let says = |name: &str| open_beside(&folder, None, name).err().unwrap().to_string();
        assert!(
            says("one").contains("must be a Postgres server"),
            "{}",
            says("one")
        );
        assert!(says("one").contains("got a file"), "{}", says("one"));
        assert!(says("a/b").contains("the name of a process"), "{}", says("a/b"));
    }

    #[test]
    fn a_new_password_of_the_server_replaces_the_remembered_one_and_a_new_server_does_not() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("data");
        let remembered = || std::fs::read_to_string(folder.join(SERVER)).unwrap();
        go_on_with_server(&folder, "postgres://me:one@host/x").unwrap();
        go_on_with_server(&folder, "postgres://me:t@wo@host/x").unwrap();
        assert_eq!(remembered(), "postgres://me:t@wo@host/x");
        for other in [
            "postgres://me:one@host/y",
            "postgres://me:one@other/x",
            "postgres://me:one@host:1/x",
            "postgres://me:one@host/x?sslmode=disable",
        ] {
            let error = go_on_with_server(&folder, other).unwrap_err().to_string();
            assert!(
                error.contains("got another one") && !error.contains("one@"),
                "{error}"
            );
        }
        assert_eq!(remembered(), "postgres://me:t@wo@host/x");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_a_data_folder() {
        use std::os::unix::fs::PermissionsExt;
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("data");
        let _shared = open(&folder, None).unwrap();
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}

//! The data folder of a service on one machine: its database, its blobs and its key file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use undertone_run::files;
use undertone_store::{FolderBlobs, Sqlite};

use crate::error::Result;
use crate::keys::Keys;
use crate::room::Shared;

/// The name of the database in the data folder.
pub const DATABASE: &str = "service.sqlite";

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
    files::secret_folder(folder)?;
    // The lock comes first: a second process touches neither keys nor blobs.
    let store = Sqlite::open(&folder.join(DATABASE))?;
    let blobs = FolderBlobs::open(&folder.join(BLOBS))?;
    if let Some(witness) = witness {
        files::folder(witness)?;
    }
    Ok(Shared {
        store: Arc::new(store),
        blobs: Arc::new(blobs),
        keys: Keys::open(folder)?,
        process: PROCESS.to_owned(),
        witness: witness.map(PathBuf::from),
    })
}

/// `true` if a folder holds the database of a service.
#[must_use]
pub fn exists(folder: &Path) -> bool {
    folder.join(DATABASE).is_file()
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

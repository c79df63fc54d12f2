//! The files around a database: its lock, its modes and its folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::{Result, StoreError};

/// The lock of a database. The operating system ends it with the process.
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being started has a copy of the file until it runs its own program.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock of the database at this path, in a file beside it.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let beside = PathBuf::from(name);
        let fail = |error: io::Error| unavailable(&beside, "opening the lock", &error);
        let file = private(OpenOptions::new().read(true).write(true).create(true))
            .open(&beside)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
                place: path.display().to_string(),
            }),
            Err(TryLockError::Error(error)) => Err(unavailable(&beside, "taking the lock", &error)),
        }
    }
}

/// Creates an empty file that only its owner reads, where there is none. SQLite gives its other files the same mode.
pub(super) fn create_private(path: &Path) -> Result<()> {
    private(OpenOptions::new().read(true).write(true).create(true))
        .open(path)
        .map(drop)
        .map_err(|error| unavailable(path, "creating the database", &error))
}

/// Makes the names of new files in the folder of the database durable.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| unavailable(folder, "making the folder durable", &error))
}

/// PRIVACY: pseudonyms with the rounds of their users are for the owner alone.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.truncate(false)
}

fn unavailable(place: &Path, action: &str, error: &io::Error) -> StoreError {
    StoreError::Unavailable {
        place: place.display().to_string(),
        reason: format!("{action}: {error}"),
    }
}

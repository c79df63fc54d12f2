//! Output files that appear whole or not at all.

use std::io::{ErrorKind, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::{DataError, Result, io};

/// An early answer for people; [`persist`] decides.
pub(crate) fn refuse_existing(path: &Path, overwrite: bool) -> Result<()> {
    if !overwrite && path.exists() {
        return Err(DataError::OutputExists {
            path: path.to_owned(),
        });
    }
    Ok(())
}

/// Moves a finished temporary file to its name and tells its size.
pub(crate) fn persist(file: NamedTempFile, path: &Path, overwrite: bool) -> Result<u64> {
    file.as_file().sync_all().map_err(io("write", path))?;
    let bytes = file.as_file().metadata().map_err(io("write", path))?.len();
    let result = if overwrite {
        file.persist(path)
    } else {
        file.persist_noclobber(path)
    };
    match result {
        Ok(_) => Ok(bytes),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Err(DataError::OutputExists {
            path: path.to_owned(),
        }),
        Err(error) => Err(io("write", path)(error.error)),
    }
}

pub(crate) fn write(path: &Path, contents: &[u8], overwrite: bool) -> Result<u64> {
    refuse_existing(path, overwrite)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // Temporary files are for their owner alone by default; a word list is an ordinary file, up to the umask.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder
        .tempfile_in(directory)
        .map_err(io("write a file in", directory))?;
    file.write_all(contents).map_err(io("write", path))?;
    persist(file, path, overwrite)
}

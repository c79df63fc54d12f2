//! Output files that appear whole or not at all.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use memmap2::Mmap;
use tempfile::{NamedTempFile, TempDir};
use undertone_vocabulary::RECORD_SUFFIX;

use crate::error::{DataError, Result, io};

/// `true` for the name of a record, which is no file of texts.
pub(crate) fn is_record(name: &OsStr) -> bool {
    name.as_encoded_bytes().ends_with(RECORD_SUFFIX.as_bytes())
}

/// Reads a regular file of at most `limit` bytes. A pipe or a device has no end to read to.
pub(crate) fn read_bounded(path: &Path, limit: u64, action: &'static str) -> Result<Vec<u8>> {
    let too_large = |got: String| DataError::TooLarge {
        path: path.to_owned(),
        limit,
        got,
    };
    // Looked at before it is opened: opening a pipe waits for its other end.
    let entry = std::fs::metadata(path).map_err(io(action, path))?;
    if !entry.is_file() {
        let kind = if entry.is_dir() {
            "a folder"
        } else {
            "a pipe or a device"
        };
        return Err(too_large(kind.to_owned()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io(action, path))?;
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(io(action, path))?;
    match bytes.len() as u64 <= limit {
        true => Ok(bytes),
        false => Err(too_large(format!("{} bytes", entry.len()))),
    }
}

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
    let mut file = temporary_beside(path)?;
    file.write_all(contents).map_err(io("write", path))?;
    persist(file, path, overwrite)
}

/// A file that becomes an ordinary one, to be moved to `path`.
pub(crate) fn temporary_beside(path: &Path) -> Result<NamedTempFile> {
    let directory = parent(path);
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // Temporary files are for their owner alone by default; a word list is an ordinary file, up to the umask.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
        .tempfile_in(directory)
        .map_err(io("write a file in", directory))
}

/// An unnamed temporary file that is written once and then mapped.
pub(crate) struct Spool<'a> {
    file: BufWriter<File>,
    directory: &'a Path,
}

impl<'a> Spool<'a> {
    pub(crate) fn new(directory: &'a Path) -> Result<Self> {
        let file = tempfile::tempfile_in(directory).map_err(io("write a temporary file in", directory))?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 20, file),
            directory,
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(io("write a temporary file in", self.directory))
    }

    pub(crate) fn map(self) -> Result<Mmap> {
        let file = self
            .file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        let file = file.map_err(io("write a temporary file in", self.directory))?;
        // SAFETY: the file is unnamed and this process holds its only handle, so nothing changes it while it is mapped.
        unsafe { Mmap::map(&file) }.map_err(io("map a temporary file in", self.directory))
    }
}

/// The folder that a file stands in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// A folder that is built under another name and moved to its own when it is whole. Dropped before, it is removed.
#[derive(Debug)]
pub struct FolderBuilder(TempDir);

impl FolderBuilder {
    /// A new folder beside where it will stand.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn beside(path: &Path) -> Result<FolderBuilder> {
        let parent = parent(path);
        let folder = tempfile::Builder::new()
            .prefix(".partial-")
            .tempdir_in(parent)
            .map_err(io("create a folder in", parent))?;
        Ok(FolderBuilder(folder))
    }

    /// The path of the folder while it is built.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Moves the folder to its name. One that is replaced is moved aside first and removed afterwards.
    ///
    /// # Errors
    /// [`DataError::OutputExists`] without `overwrite`, [`DataError::Io`].
    pub fn persist(self, path: &Path, overwrite: bool) -> Result<()> {
        refuse_existing(path, overwrite)?;
        let sync = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
        sync(self.path()).map_err(io("write", path))?;
        let aside = path.exists().then(|| FolderBuilder::beside(path)).transpose()?;
        if let Some(aside) = &aside {
            std::fs::rename(path, aside.path().join("replaced")).map_err(io("replace", path))?;
        }
        std::fs::rename(self.path(), path).map_err(io("write", path))?;
        // It is no longer there under that name, so nothing is left to remove.
        let _ = self.0.keep();
        sync(parent(path)).map_err(io("write", path))
    }
}

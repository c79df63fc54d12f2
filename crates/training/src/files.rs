//! Writing files so that a crash or a full disk leaves either the old file or the new one, never half of one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{Result, TrainingError};

/// Writes `bytes` to `path` through a temporary file in the same folder, synced before it takes the name.
///
/// # Errors
/// [`TrainingError::Io`] naming the path; the temporary file is removed then.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_with(path, |file| {
        file.write_all(bytes)
            .map_err(|source| TrainingError::io("writing", path, source))
    })
}

/// The same with contents that `write` makes: nothing of a large file has to be in memory twice.
///
/// # Errors
/// [`TrainingError::Io`] naming the path, and those of `write`; the temporary file is removed then.
pub fn write_atomic_with(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let fail = |source| TrainingError::io("writing", path, source);
    write_atomic_at(path, |temporary| {
        let file = File::options().write(true).open(temporary).map_err(fail)?;
        let mut writer = BufWriter::with_capacity(1 << 16, file);
        write(&mut writer)?;
        writer.flush().map_err(fail)
    })
}

/// The same for writers that take a path: `write` fills the temporary file that it is given.
///
/// # Errors
/// As [`write_atomic_with`].
pub fn write_atomic_at(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let fail = |source| TrainingError::io("writing", path, source);
    let temporary = tempfile::Builder::new()
        .prefix(PARTIAL)
        .tempfile_in(folder)
        .map_err(fail)?;
    write(temporary.path())?;
    // Opened again: a writer may have put a file of its own in its place.
    let written = File::open(temporary.path()).map_err(fail)?;
    written.sync_all().map_err(fail)?;
    // Temporary files are created for their owner alone; a run's files are ordinary files.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = written.set_permissions(fs::Permissions::from_mode(0o644));
    }
    temporary.persist(path).map_err(|error| fail(error.error))?;
    sync_folder(folder);
    Ok(())
}

/// Removes what writers that were killed have left in a folder. What cannot be removed does no harm but take room.
pub fn remove_partial(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_partial(&entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is that of a file which a writer has not finished.
#[must_use]
pub fn is_partial(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(PARTIAL)
}

/// How the names of unfinished files begin.
const PARTIAL: &str = ".partial-";

/// Makes a rename durable. Some file systems refuse to sync a folder; the rename is still atomic there.
fn sync_folder(folder: &Path) {
    if let Ok(handle) = File::open(folder) {
        let _ = handle.sync_all();
    }
}

/// Reads a whole file.
///
/// # Errors
/// [`TrainingError::Io`] naming the path.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| TrainingError::io("reading", path, source))
}

/// A file of JSON lines that only grows, and can be cut back to a known length when a run resumes.
#[derive(Debug)]
pub struct JsonLines {
    file: File,
    path: std::path::PathBuf,
    length: u64,
}

impl JsonLines {
    /// Opens or creates `path` and cuts it to `length` bytes: lines after the checkpoint were never released.
    ///
    /// # Errors
    /// [`TrainingError::Io`], or [`TrainingError::Damaged`] when the file is shorter than `length`.
    pub fn open(path: &Path, length: u64) -> Result<Self> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|source| TrainingError::io("opening", path, source))?;
        let present = file
            .metadata()
            .map_err(|source| TrainingError::io("reading", path, source))?
            .len();
        if present < length {
            return Err(TrainingError::Damaged {
                path: path.to_owned(),
                message: format!("the checkpoint expects {length} bytes, the file has {present}"),
            });
        }
        file.set_len(length)
            .map_err(|source| TrainingError::io("writing", path, source))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            length,
        })
    }

    /// Appends one line, and returns its bytes without the line feed.
    ///
    /// # Errors
    /// [`TrainingError::Io`]; the file is cut back to its last whole line then.
    pub fn append<T: serde::Serialize>(&mut self, line: &T) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(line)
            .map_err(|source| TrainingError::io("writing", &self.path, source.into()))?;
        bytes.push(b'\n');
        if let Err(source) = self.file.write_all(&bytes) {
            let _ = self.file.set_len(self.length);
            return Err(TrainingError::io("writing", &self.path, source));
        }
        self.length += bytes.len() as u64;
        bytes.pop();
        Ok(bytes)
    }

    /// Makes all lines durable.
    ///
    /// # Errors
    /// [`TrainingError::Io`].
    pub fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|source| TrainingError::io("writing", &self.path, source))
    }

    /// Bytes of whole lines.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_whole_files_and_replaces_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = write_atomic(Path::new("no/such/folder/file"), b"x").unwrap_err();
        assert!(
            error.to_string().starts_with("writing no/such/folder/file: "),
            "{error}"
        );
    }

    #[test]
    fn lines_are_cut_back_to_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let mut lines = JsonLines::open(&path, 0).unwrap();
        lines.append(&1).unwrap();
        let at_checkpoint = lines.length();
        lines.append(&2).unwrap();
        drop(lines);
        let mut lines = JsonLines::open(&path, at_checkpoint).unwrap();
        lines.append(&3).unwrap();
        assert_eq!(read(&path).unwrap(), b"1\n3\n");
        assert!(matches!(
            JsonLines::open(&path, 99),
            Err(TrainingError::Damaged { .. })
        ));
    }
}

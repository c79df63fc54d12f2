//! The files of a run directory: opened without following links, bounded in size, written whole or not at all.
//!
//! A run directory may come from a third party. Each of its files is therefore opened here: it must be a regular file under
//! its own name, and no larger than an honest file of that name could be, which is checked before memory is allocated. Files
//! that the user names on the command line or in a run file are read by [`read_given`], which follows links.

mod lines;
pub mod names;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::names::MAX_LANE_VALUES;
use self::names::{
    AUDIT_FILE, COINS_FILE, CONFIG_FILE, JOURNAL_FILE, LANE_FILE, LANE_VALUES_FILE, LEDGER_FILE,
    MANIFEST_FILE, MECHANISM_FILE, METRICS_FILE, MODEL_FILE, PRIVACY_FILE, PRIVACY_PAGE, PUBLIC_LEDGER_FILE,
    REPLAYS_FILE, SWEEP_FILE, TOKENIZER_FILE, TOKENIZER_PRIVACY_FILE, VOCAB_FILE, VOCAB_PRIVACY_FILE,
};
use crate::error::{DirectoryError, Result};

pub use lines::JsonLines;
pub use lines::whole_lines;
pub use lines::{Line, Lines};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Maximum size in bytes of a file that a user names: a run file, a list of changes, a description of a mechanism.
pub const MAX_GIVEN: u64 = 256 * MIB;

/// Maximum size in bytes of a file of trained parameters.
pub const MAX_MODEL: u64 = 9 * GIB;

/// Maximum size in bytes of a file of a run directory, by its name.
#[must_use]
pub fn limit_of(path: &Path) -> u64 {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    match name {
        CONFIG_FILE => MIB,
        PRIVACY_FILE
        | PRIVACY_PAGE
        | MANIFEST_FILE
        | VOCAB_PRIVACY_FILE
        | TOKENIZER_PRIVACY_FILE
        | SWEEP_FILE => 16 * MIB,
        VOCAB_FILE | TOKENIZER_FILE | JOURNAL_FILE => 64 * MIB,
        // The coins and the names of 2^20 canaries take 1 and 26 MB, and 2^16 replayed rounds less than 14 MB.
        LANE_FILE | COINS_FILE | REPLAYS_FILE => 64 * MIB,
        // 10^5 secrets with those of a control take 6 MB. All else has a fixed size.
        AUDIT_FILE => 16 * MIB,
        LANE_VALUES_FILE => 4 * MAX_LANE_VALUES,
        // A dense matrix of 4096 rounds takes 200 MB.
        MECHANISM_FILE => 256 * MIB,
        LEDGER_FILE | METRICS_FILE | PUBLIC_LEDGER_FILE => 64 * GIB,
        MODEL_FILE => MAX_MODEL,
        _ => MIB,
    }
}

/// `true` if a name is taken in a folder, also by a link to nothing.
#[must_use]
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Opens a file of a run directory for reading, of at most [`limit_of`] its name bytes.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a larger one.
pub fn open(path: &Path) -> Result<File> {
    open_at_most(path, limit_of(path))
}

/// Opens a file of a run directory for reading that is at most `limit` bytes large.
///
/// # Errors
/// As [`open`].
pub fn open_at_most(path: &Path, limit: u64) -> Result<File> {
    let (file, length) = regular(path, OpenOptions::new().read(true), "read")?;
    if length > limit {
        return Err(too_large(path, limit, length));
    }
    Ok(file)
}

/// Opens or creates a file of a run directory for reading and writing, and keeps its content. A file that has a second name (a
/// hard link) is refused, since writing would change the file of the other name.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a file with a second name.
pub fn open_to_write(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let (file, _) = regular(path, &mut options, "open")?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = file
            .metadata()
            .map_err(|source| DirectoryError::io("open", path, source))?;
        if metadata.nlink() > 1 {
            let got = format!("a file with {} names (hard links)", metadata.nlink());
            return Err(unusable(path, "a file with one name", got));
        }
    }
    Ok(file)
}

/// Opens or creates, as [`open_to_write`], a file that its owner alone can read.
///
/// # Errors
/// The errors of [`open_to_write`].
pub fn open_secret_to_write(path: &Path) -> Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(SECRET);
        regular(path, &mut options, "open")?;
        let file = open_to_write(path)?;
        // One that is there may have been made with a wider mode.
        file.set_permissions(fs::Permissions::from_mode(SECRET))
            .map_err(|source| DirectoryError::io("protect", path, source))?;
        Ok(file)
    }
    #[cfg(not(unix))]
    open_to_write(path)
}

/// Opens a regular file that is no link, and returns its size. Opening never waits for the other end of a pipe.
fn regular(path: &Path, options: &mut OpenOptions, action: &'static str) -> Result<(File, u64)> {
    const EXPECTED: &str = "a regular file (links in a run directory are not followed)";
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    // Without the flag, the check before opening is all there is; with it, the check only words the error.
    if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        return Err(unusable(path, EXPECTED, "a symbolic link"));
    }
    let fail = |source| DirectoryError::io(action, path, source);
    let file = options.open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    match metadata.is_file() {
        true => Ok((file, metadata.len())),
        false => Err(unusable(path, EXPECTED, kind_of(&metadata))),
    }
}

fn kind_of(metadata: &fs::Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if metadata.file_type().is_fifo() {
            return "a pipe";
        }
    }
    match metadata.is_dir() {
        true => "a folder",
        false => "a device",
    }
}

fn unusable(path: &Path, expected: impl Into<String>, got: impl Into<String>) -> DirectoryError {
    DirectoryError::UnusableFile {
        path: path.to_owned(),
        expected: expected.into(),
        got: got.into(),
    }
}

fn too_large(path: &Path, limit: u64, got: u64) -> DirectoryError {
    unusable(path, format!("at most {limit} bytes"), got.to_string())
}

/// Reads a whole file of a run directory.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a larger one.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_at_most(path, limit_of(path))
}

/// Reads a whole file of a run directory that is at most `limit` bytes large.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a larger one.
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>> {
    contents(open_at_most(path, limit)?, path, limit)
}

/// Reads a whole file of a run directory; `None` where the directory has none of this name.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a larger one.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match read(path) {
        Err(DirectoryError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Reads a whole file of a run directory as UTF-8.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, for a larger one, and for bytes that are
/// not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    text(read(path)?, path)
}

/// Reads a whole file of a run directory as JSON.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a link, for anything but a regular file, and for a larger one;
/// [`DirectoryError::Damaged`] with the place of the error.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_slice(&read(path)?).map_err(|error| DirectoryError::damaged(path, error))
}

/// Reads a file that the user named: links are followed, and pipes are read to their end. At most `limit` bytes.
///
/// # Errors
/// [`DirectoryError::Io`]; [`DirectoryError::UnusableFile`] for a larger file.
pub fn read_given(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|source| DirectoryError::io("read", path, source))?;
    contents(file, path, limit)
}

/// Reads a file of text that the user named, at most [`MAX_GIVEN`] bytes.
///
/// # Errors
/// The errors of [`read_given`], and [`DirectoryError::UnusableFile`] for bytes that are not UTF-8.
pub fn read_given_text(path: &Path) -> Result<String> {
    text(read_given(path, MAX_GIVEN)?, path)
}

fn contents(file: File, path: &Path, limit: u64) -> Result<Vec<u8>> {
    let fail = |source| DirectoryError::io("read", path, source);
    let stated = file.metadata().map_err(fail)?.len();
    if stated > limit {
        return Err(too_large(path, limit, stated));
    }
    let mut bytes = Vec::new();
    // Exact, so that a large model is not copied while it is read; never an abort where memory is short.
    if bytes.try_reserve_exact(stated as usize).is_err() {
        return Err(fail(io::ErrorKind::OutOfMemory.into()));
    }
    file.take(limit + 1).read_to_end(&mut bytes).map_err(fail)?;
    match bytes.len() as u64 > limit {
        true => Err(unusable(path, format!("at most {limit} bytes"), "more")),
        false => Ok(bytes),
    }
}

fn text(bytes: Vec<u8>, path: &Path) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        unusable(path, "text in UTF-8", format!("other bytes after byte {place}"))
    })
}

/// Makes a folder of a run directory, or takes the one that is there; a link to a folder is refused.
///
/// # Errors
/// [`DirectoryError::Io`], [`DirectoryError::UnusableFile`].
pub fn folder(path: &Path) -> Result<()> {
    make_folder(path, fs::DirBuilder::new())
}

/// Makes a folder that its owner alone can read and enter. One that is there is made so.
///
/// # Errors
/// As [`folder`].
pub fn secret_folder(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700);
        make_folder(path, builder)?;
        let fail = |source| DirectoryError::io("protect", path, source);
        let mode = path.symlink_metadata().map_err(fail)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(fail)?;
        }
        Ok(())
    }
    #[cfg(not(unix))]
    folder(path)
}

#[allow(clippy::needless_pass_by_value)] // a builder made for this call
fn make_folder(path: &Path, builder: fs::DirBuilder) -> Result<()> {
    let created = builder.create(path);
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(found) if found.is_symlink() => Err(unusable(
            path,
            "a folder (links in a run directory are not followed)",
            "a symbolic link",
        )),
        Ok(_) => Err(unusable(path, "a folder", "a file")),
        Err(missing) => {
            let source = created.err().unwrap_or(missing);
            Err(DirectoryError::io("create", path, source))
        }
    }
}

/// Makes a folder that must not be there. It appears under its name when all that `fill` writes into it is durable.
///
/// # Errors
/// [`DirectoryError::RunExists`] where the name is taken, [`DirectoryError::Io`], and those of `fill`; nothing is left behind then.
pub fn new_folder<T>(path: &Path, fill: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let is_free = || match exists(path) {
        true => Err(DirectoryError::RunExists {
            path: path.to_owned(),
        }),
        false => Ok(()),
    };
    is_free()?;
    let above = folder_of(path);
    fs::create_dir_all(above).map_err(|source| DirectoryError::io("create", above, source))?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(PARTIAL);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o777));
    }
    let staged = builder
        .tempdir_in(above)
        .map_err(|source| DirectoryError::io("create", path, source))?;
    let made = fill(staged.path())?;
    sync_folder(staged.path());
    // Looked at again: a rename would take the place of an empty folder.
    is_free()?;
    fs::rename(staged.path(), path).map_err(|source| DirectoryError::io("write", path, source))?;
    // The folder has its name; there is nothing left to remove.
    let _ = staged.keep();
    sync_folder(above);
    Ok(made)
}

/// Writes `bytes` to `path` through a temporary file in the same folder, synced before it takes the name. A link of that name
/// is replaced, not followed. The umask decides who can read the file.
///
/// # Errors
/// [`DirectoryError::Io`] naming the path; the temporary file is removed then.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_with(path, |file| {
        file.write_all(bytes)
            .map_err(|source| DirectoryError::io("write", path, source))
    })
}

/// Writes a value as indented JSON with a final line feed, as [`write_atomic`] does.
///
/// # Errors
/// [`DirectoryError::Io`] naming the path.
pub fn write_json<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<()> {
    write_atomic(path, &json_text(path, value)?)
}

fn json_text<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<Vec<u8>> {
    let fail = |error: serde_json::Error| DirectoryError::io("write", path, error.into());
    let mut text = serde_json::to_vec_pretty(value).map_err(fail)?;
    text.push(b'\n');
    Ok(text)
}

/// Writes the output of `write` as [`write_atomic`] does: a large file is never in memory as a whole.
///
/// # Errors
/// [`DirectoryError::Io`] naming the path, and those of `write`; the temporary file is removed then.
pub fn write_atomic_with(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    write_atomic_at(path, ORDINARY, |temporary| written(temporary, path, write))
}

/// Writes a file that its owner alone can read, by a temporary file beside it.
///
/// # Errors
/// [`DirectoryError::Io`], and those of `write`.
pub fn write_secret_with(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    write_atomic_at(path, SECRET, |temporary| written(temporary, path, write))
}

/// Writes a value as [`write_json`] does, to a file that its owner alone can read.
///
/// # Errors
/// [`DirectoryError::Io`] naming the path.
pub fn write_secret_json<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<()> {
    let text = json_text(path, value)?;
    write_secret_with(path, |file| {
        file.write_all(&text)
            .map_err(|source| DirectoryError::io("write", path, source))
    })
}

/// Writes a file that its owner alone can read, by a writer that takes a path: `write` fills or replaces the temporary file
/// that it is given.
///
/// # Errors
/// As [`write_atomic_with`].
pub fn write_secret_at(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    write_atomic_at(path, SECRET, write)
}

/// Mode of files that the umask alone restricts.
const ORDINARY: u32 = 0o666;
/// Mode of files that only their owner reads.
const SECRET: u32 = 0o600;

fn written(
    temporary: &Path,
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
) -> Result<()> {
    let fail = |source| DirectoryError::io("write", path, source);
    let file = File::options().write(true).open(temporary).map_err(fail)?;
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    write(&mut writer)?;
    writer.flush().map_err(fail)
}

fn write_atomic_at(path: &Path, mode: u32, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let fail = |source| DirectoryError::io("write", path, source);
    let temporary = temporary_for(path, mode)?;
    write(temporary.path())?;
    // Opened again: a writer may have put a file of its own in its place.
    let written = File::open(temporary.path()).map_err(fail)?;
    written.sync_all().map_err(fail)?;
    #[cfg(unix)]
    if mode == SECRET {
        use std::os::unix::fs::PermissionsExt;
        written
            .set_permissions(fs::Permissions::from_mode(SECRET))
            .map_err(fail)?;
    }
    temporary.persist(path).map_err(|error| fail(error.error))?;
    sync_folder(folder_of(path));
    Ok(())
}

/// A temporary file beside `path` that becomes an ordinary one when it takes that name: the umask alone restricts it.
pub fn temporary_beside(path: &Path) -> Result<tempfile::NamedTempFile> {
    temporary_for(path, ORDINARY)
}

#[cfg_attr(not(unix), allow(unused_variables))]
fn temporary_for(path: &Path, mode: u32) -> Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PARTIAL);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    builder
        .tempfile_in(folder_of(path))
        .map_err(|source| DirectoryError::io("write", path, source))
}

/// The folder of a file, `.` for a name alone.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Removes unfinished files of killed writers from a folder of a run. Files that cannot be removed only take room.
pub fn remove_partial(folder: &Path) {
    if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_partial(&entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// `true` if a name is that of a file which a writer has not finished.
#[must_use]
pub fn is_partial(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(PARTIAL)
}

/// Prefix of the names of unfinished files.
const PARTIAL: &str = ".partial-";

/// Makes a rename durable. Some file systems refuse to sync a folder; the rename is still atomic there.
pub fn sync_folder(folder: &Path) {
    if let Ok(handle) = File::open(folder) {
        let _ = handle.sync_all();
    }
}

/// The file with the meaning of a run's ids: its tokenizer or its words.
#[must_use]
pub fn vocabulary_file(folder: &Path) -> PathBuf {
    let tokenizer = folder.join(TOKENIZER_FILE);
    if exists(&tokenizer) {
        tokenizer
    } else {
        folder.join(VOCAB_FILE)
    }
}

/// Reads a JSON document; `None` where there is no such file. The error names the line that is not as expected.
pub fn document<T: DeserializeOwned>(file: &Path, expected: &'static str) -> Result<Option<T>> {
    let Some(bytes) = read_if_there(file)? else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let (line, message) = (error.line(), error.to_string());
        DirectoryError::Line {
            file: file.to_owned(),
            line,
            expected,
            message,
        }
    })
}

#[cfg(test)]
mod tests;

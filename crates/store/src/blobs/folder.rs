//! Blobs in a folder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use undertone_protocol::Digest32;

use super::{
    BlobError, BlobReader, Blobs, Created, MAX_HEAD, Result, Stored, check_head, check_name, digest, number,
};
use crate::audit::hex;
use crate::failpoint::failpoint;
use crate::{AttemptId, TaskId};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 16;

/// Age at which a file in `tmp` was left over by a process that ended.
const LEFT_OVER: Duration = Duration::from_secs(24 * 3600);

/// Blobs in a folder of a local disk: `staged/ATTEMPT/NAME`, `blobs/DIGEST`, `heads/TASK/ROUND`, and `tmp` for what is being
/// written.
///
/// # Guarantee
/// A file is written in `tmp`, made durable, read back, and only then linked or renamed to its name; the folder is made durable
/// after that. Files are for their owner alone.
#[derive(Debug)]
pub struct FolderBlobs {
    root: PathBuf,
    next: AtomicU64,
}

/// A file that is open while it is read alone. A slow client of a service, which reads a piece now and then, holds no descriptor by it.
struct Pieces {
    path: PathBuf,
    offset: u64,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let length = file.read(into)?;
        self.offset += length as u64;
        Ok(length)
    }
}

impl FolderBlobs {
    /// Opens a folder, and creates it where there is none. Checks that the file system creates a name only where it is absent.
    ///
    /// # Errors
    /// [`BlobError::Unfit`] for a file system that replaces a name or knows no links; [`BlobError::Io`].
    pub fn open(root: &Path) -> Result<Self> {
        let blobs = Self {
            root: root.to_owned(),
            next: AtomicU64::new(0),
        };
        create_folder(root)?;
        for name in ["tmp", "staged", "blobs", "heads"] {
            create_folder(&root.join(name))?;
        }
        sync_folder(root)?;
        blobs.delete_left_over()?;
        blobs.check_create_if_absent()?;
        Ok(blobs)
    }

    /// Deletes files that a process left in `tmp` when it ended.
    fn delete_left_over(&self) -> Result<()> {
        let folder = self.root.join("tmp");
        let now = SystemTime::now();
        for path in entries(&folder)? {
            let metadata = path.symlink_metadata().map_err(io("reading", &path))?;
            let written = metadata.modified().map_err(io("reading", &path))?;
            if now.duration_since(written).is_ok_and(|age| age > LEFT_OVER) {
                fs::remove_file(&path).map_err(io("deleting", &path))?;
            }
        }
        Ok(())
    }

    /// PRIVACY: a head that could be replaced would hide that a database went back in time.
    fn check_create_if_absent(&self) -> Result<()> {
        let unfit = |reason: &str| BlobError::Unfit {
            path: self.root.display().to_string(),
            reason: reason.to_owned(),
        };
        let target = self.temporary();
        let result = (|| {
            let first = self.write_temporary(&mut &b"first"[..])?;
            let second = self.write_temporary(&mut &b"second"[..])?;
            fs::hard_link(&first.path, &target)
                .map_err(|error| unfit(&format!("it made no hard link: {error}")))?;
            match fs::hard_link(&second.path, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(unfit(&format!(
                        "a second link failed without its reason: {error}"
                    )));
                }
                Ok(()) => return Err(unfit("a second link replaced the first")),
            }
            let kept = fs::read(&target).map_err(io("reading", &target))?;
            match kept == b"first" {
                true => Ok(()),
                false => Err(unfit("the second of two links changed the first")),
            }
        })();
        // The first error is the one to report.
        let _ = fs::remove_file(&target);
        result
    }

    /// A path in `tmp` that no other writer has.
    fn temporary(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}-{number}", std::process::id());
        self.root.join("tmp").join(name)
    }

    /// Writes a durable file in `tmp` and reads it back.
    fn write_temporary(&self, bytes: &mut dyn Read) -> Result<Temporary> {
        let (mut file, path) = loop {
            let path = self.temporary();
            match private(OpenOptions::new().read(true).write(true).create_new(true)).open(&path) {
                Ok(file) => break (file, path),
                // A process of the same number left it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(io("creating", &path)(source)),
            }
        };
        let mut temporary = Temporary {
            path,
            stored: Stored {
                digest: [0; 32],
                length: 0,
            },
        };
        let path = &temporary.path;
        failpoint!("blobs: an empty file");
        let mut hash = Sha256::new();
        let mut length = 0u64;
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match bytes.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => &chunk[..read],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(io("reading the bytes for", path)(source)),
            };
            hash.update(read);
            length += read.len() as u64;
            file.write_all(read).map_err(io("writing", path))?;
            failpoint!("blobs: a chunk");
        }
        file.sync_all().map_err(io("making durable", path))?;
        failpoint!("blobs: a durable file");
        let written: Digest32 = hash.finalize().into();
        file.seek(SeekFrom::Start(0)).map_err(io("reading", path))?;
        let back = digest_of_file(&mut file, path)?;
        if back.digest != written || back.length != length {
            return Err(damaged(path, &written, &back.digest));
        }
        temporary.stored = back;
        Ok(temporary)
    }

    /// Stores bytes under a path that names their digest, or replaces a file there whose bytes are others.
    fn store(&self, bytes: &mut dyn Read, expected: Option<(&Digest32, &Path)>) -> Result<Stored> {
        let temporary = self.write_temporary(bytes)?;
        let stored = temporary.stored;
        if let Some((digest, from)) = expected
            && stored.digest != *digest
        {
            return Err(damaged(from, digest, &stored.digest));
        }
        let path = self.blob(&stored.digest);
        if self.holds(&path, &stored.digest)? {
            return Ok(stored);
        }
        failpoint!("blobs: before the name of a blob");
        fs::rename(&temporary.path, &path).map_err(io("renaming to", &path))?;
        failpoint!("blobs: after the name of a blob");
        sync_folder(&self.root.join("blobs"))?;
        Ok(stored)
    }

    /// `true` if a path holds the bytes of a digest, as a durable name.
    fn holds(&self, path: &Path, digest: &Digest32) -> Result<bool> {
        match open(path)? {
            None => Ok(false),
            Some(mut file) => {
                let holds = digest_of_file(&mut file, path)?.digest == *digest;
                if holds {
                    // The process that gave it this name may have ended before it made the name durable.
                    sync_folder(&self.root.join("blobs"))?;
                }
                Ok(holds)
            }
        }
    }

    fn blob(&self, digest: &Digest32) -> PathBuf {
        self.root.join("blobs").join(hex(digest))
    }

    fn staged_folder(&self, attempt: AttemptId) -> PathBuf {
        self.root.join("staged").join(attempt.to_string())
    }

    fn heads(&self, task: TaskId) -> PathBuf {
        self.root.join("heads").join(task.to_string())
    }
}

impl Blobs for FolderBlobs {
    fn stage(&self, attempt: AttemptId, name: &str, bytes: &mut dyn Read) -> Result<Stored> {
        check_name(name)?;
        let folder = self.staged_folder(attempt);
        create_folder(&folder)?;
        sync_folder(&self.root.join("staged"))?;
        failpoint!("blobs: a staging folder");
        let temporary = self.write_temporary(bytes)?;
        let path = folder.join(name);
        failpoint!("blobs: before the name of a staged file");
        let linked = fs::hard_link(&temporary.path, &path);
        failpoint!("blobs: after the name of a staged file");
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut file = File::open(&path).map_err(io("opening", &path))?;
                let there = digest_of_file(&mut file, &path)?.digest;
                if there != temporary.stored.digest {
                    return Err(BlobError::Exists {
                        path: path.display().to_string(),
                        expected: hex(&temporary.stored.digest),
                        got: hex(&there),
                    });
                }
            }
            Err(source) => return Err(io("linking to", &path)(source)),
        }
        sync_folder(&folder)?;
        Ok(temporary.stored)
    }

    fn publish(&self, attempt: AttemptId, name: &str, digest: &Digest32) -> Result<()> {
        check_name(name)?;
        if self.holds(&self.blob(digest), digest)? {
            return Ok(());
        }
        let path = self.staged_folder(attempt).join(name);
        let Some(mut file) = open(&path)? else {
            return Err(missing(&path));
        };
        self.store(&mut file, Some((digest, &path))).map(drop)
    }

    fn put(&self, bytes: &mut dyn Read) -> Result<Stored> {
        self.store(bytes, None)
    }

    fn get(&self, digest: &Digest32, offset: u64) -> Result<BlobReader> {
        let path = self.blob(digest);
        let Some(file) = open(&path)? else {
            return Err(missing(&path));
        };
        let length = file.metadata().map_err(io("reading", &path))?.len();
        if offset > length {
            let path = path.display().to_string();
            return Err(BlobError::Range { path, length, offset });
        }
        drop(file);
        Ok(BlobReader {
            length,
            bytes: Box::new(Pieces { path, offset }),
        })
    }

    fn list(&self) -> Result<Vec<Digest32>> {
        let found = entries(&self.root.join("blobs"))?;
        let named = |path: PathBuf| digest(path.file_name()?.to_str()?);
        Ok(found.into_iter().filter_map(named).collect())
    }

    fn remove(&self, digest: &Digest32) -> Result<bool> {
        let path = self.blob(digest);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(&self.root.join("blobs")).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(io("deleting", &path)(source)),
        }
    }

    fn create_head(&self, task: TaskId, round: u64, bytes: &[u8]) -> Result<Created> {
        let folder = self.heads(task);
        let path = folder.join(round.to_string());
        check_head(&path.display().to_string(), bytes.len() as u64)?;
        create_folder(&folder)?;
        sync_folder(&self.root.join("heads"))?;
        let temporary = self.write_temporary(&mut &*bytes)?;
        failpoint!("blobs: before the name of a head");
        let linked = fs::hard_link(&temporary.path, &path);
        failpoint!("blobs: after the name of a head");
        let created = match linked {
            Ok(()) => Created::Created,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match self.head(task, round)? {
                Some(there) if there == bytes => Created::Same,
                Some(there) => Created::Other(there),
                None => return Err(missing(&path)),
            },
            Err(source) => return Err(io("linking to", &path)(source)),
        };
        sync_folder(&folder)?;
        Ok(created)
    }

    fn head(&self, task: TaskId, round: u64) -> Result<Option<Vec<u8>>> {
        let path = self.heads(task).join(round.to_string());
        let Some(file) = open(&path)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.take(MAX_HEAD as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(io("reading", &path))?;
        check_head(&path.display().to_string(), bytes.len() as u64)?;
        Ok(Some(bytes))
    }

    fn last_head(&self, task: TaskId) -> Result<Option<u64>> {
        let folder = self.heads(task);
        if !folder.exists() {
            return Ok(None);
        }
        Ok(numbers(&folder)?.into_iter().max())
    }

    fn staged(&self) -> Result<Vec<AttemptId>> {
        let mut attempts: Vec<AttemptId> = numbers(&self.root.join("staged"))?
            .into_iter()
            .map(AttemptId)
            .collect();
        attempts.sort_unstable();
        Ok(attempts)
    }

    fn sweep(&self, attempt: AttemptId) -> Result<()> {
        let folder = self.staged_folder(attempt);
        match fs::remove_dir_all(&folder) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io("deleting", &folder)(source)),
        }
    }
}

/// A file in `tmp`, which is deleted with the value unless it was renamed.
struct Temporary {
    path: PathBuf,
    stored: Stored,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It was renamed, or a later opening deletes it.
        let _ = fs::remove_file(&self.path);
    }
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BlobError {
    let path = path.display().to_string();
    move |source| BlobError::Io { action, path, source }
}

fn missing(path: &Path) -> BlobError {
    super::missing(path.display().to_string())
}

fn damaged(path: &Path, expected: &Digest32, got: &Digest32) -> BlobError {
    super::damaged(path.display().to_string(), expected, got)
}

/// A regular file that is no link; `None` where there is nothing.
fn open(path: &Path) -> Result<Option<File>> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => {
            let error = io::Error::other("expected a regular file that is no link");
            return Err(io("opening", path)(error));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io("opening", path)(source)),
    }
    File::open(path).map(Some).map_err(io("opening", path))
}

fn digest_of_file(file: &mut File, path: &Path) -> Result<Stored> {
    let mut hash = Sha256::new();
    let mut length = 0u64;
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                hash.update(&chunk[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(io("reading", path)(source)),
        }
    }
    let digest = hash.finalize().into();
    Ok(Stored { digest, length })
}

fn create_folder(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path).map_err(io("creating", path))
}

/// Makes the names in a folder durable.
fn sync_folder(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(io("making durable", path))
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = fs::read_dir(folder).map_err(io("listing", folder))?;
    found
        .map(|entry| entry.map(|entry| entry.path()).map_err(io("listing", folder)))
        .collect()
}

/// The names in a folder that are numbers as this program writes them.
fn numbers(folder: &Path) -> Result<Vec<u64>> {
    let numbered = |path: PathBuf| number(path.file_name()?.to_str()?);
    Ok(entries(folder)?.into_iter().filter_map(numbered).collect())
}

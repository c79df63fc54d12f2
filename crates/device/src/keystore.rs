//! The keys of a device, and counters that only grow.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::error::{DeviceError, Result};

/// A key of 32 bytes, wiped when it is dropped.
pub type SecretKey = Zeroizing<[u8; 32]>;

/// A number that a key store keeps and that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Number of participations.
    Participations,
    /// The planned zCDP cost of all tasks that the device took part in, in millionths, each rounded up.
    Cost,
}

impl Counter {
    /// A name for keys of a store.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Participations => "participations",
            Self::Cost => "cost",
        }
    }
}

/// The keys that a host keeps for the device: in Android's Keystore, in a Keychain, or in files.
///
/// The counters make a restored backup visible. They must therefore lie outside all backups, and must never fall.
pub trait KeyStore: Send {
    /// The key of this name. The first call makes it from random bytes of the operating system.
    ///
    /// # Errors
    /// A store that cannot be read or written.
    fn key(&mut self, name: &'static str) -> Result<SecretKey>;

    /// A counter; 0 before the first call of [`raise`](Self::raise).
    ///
    /// # Errors
    /// A store that cannot be read.
    fn counter(&mut self, counter: Counter) -> Result<u64>;

    /// Raises a counter to `to`, durably. A counter that is higher stays.
    ///
    /// # Errors
    /// A store that cannot be written.
    fn raise(&mut self, counter: Counter, to: u64) -> Result<()>;

    /// Deletes all keys and the counters.
    ///
    /// # Errors
    /// A store that cannot be written.
    fn forget(&mut self) -> Result<()>;
}

/// Random bytes of the operating system.
pub(crate) fn fresh() -> Result<SecretKey> {
    let mut bytes = SecretKey::default();
    getrandom::fill(bytes.as_mut()).map_err(|error| DeviceError::Entropy(error.to_string()))?;
    Ok(bytes)
}

/// Keys in memory, for simulations. They are gone when the process ends.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "PRIVACY: it holds secret keys")]
pub struct MemoryKeyStore {
    keys: BTreeMap<&'static str, SecretKey>,
    counters: BTreeMap<Counter, u64>,
}

impl KeyStore for MemoryKeyStore {
    fn key(&mut self, name: &'static str) -> Result<SecretKey> {
        if !self.keys.contains_key(name) {
            self.keys.insert(name, fresh()?);
        }
        Ok(self.keys[name].clone())
    }

    fn counter(&mut self, counter: Counter) -> Result<u64> {
        Ok(self.counters.get(&counter).copied().unwrap_or(0))
    }

    fn raise(&mut self, counter: Counter, to: u64) -> Result<()> {
        let value = self.counters.entry(counter).or_default();
        *value = to.max(*value);
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        *self = Self::default();
        Ok(())
    }
}

/// Keys in files that only their owner can read (mode 0600 in a folder of mode 0700).
///
/// The folder must not be part of a backup.
#[derive(Debug)]
pub struct FileKeyStore {
    folder: PathBuf,
}

/// The ending of a counter's file.
const COUNTER: &str = "counter";

impl FileKeyStore {
    /// Keys in this folder, which is made if it is missing.
    ///
    /// # Errors
    /// [`DeviceError::Io`] where the folder cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        make_private_folder(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The bytes of a file, which must have exactly `N`; `None` where there is none.
    fn read<const N: usize>(&self, name: &str) -> Result<Option<Zeroizing<[u8; N]>>> {
        let path = self.path(name);
        let failed = |source| DeviceError::io("read", &path, source);
        let found = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(failed)?,
        };
        // PRIVACY: a link or an open file could hand the key to others.
        if !found.is_file() || !is_private(&found) {
            let expected = "a regular file that only its owner can read";
            return Err(DeviceError::value(
                "a file of the key store",
                expected,
                path.display(),
            ));
        }
        let mut bytes = Zeroizing::new([0; N]);
        let mut file = File::open(&path).map_err(failed)?;
        let exact = found.len() == N as u64 && file.read_exact(bytes.as_mut()).is_ok();
        if !exact {
            let expected = format!("{N} bytes in {}", path.display());
            return Err(DeviceError::value(
                "a file of the key store",
                expected,
                found.len(),
            ));
        }
        Ok(Some(bytes))
    }

    /// Replaces a file, durably: either the old or the new bytes are there after a crash.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        write_private(&self.folder, &path, bytes)
    }
}

impl KeyStore for FileKeyStore {
    fn key(&mut self, name: &'static str) -> Result<SecretKey> {
        let file = format!("{name}.key");
        if let Some(key) = self.read(&file)? {
            return Ok(key);
        }
        let key = fresh()?;
        self.write(&file, key.as_ref())?;
        Ok(key)
    }

    fn counter(&mut self, counter: Counter) -> Result<u64> {
        let bytes = self.read::<8>(&format!("{}.{COUNTER}", counter.name()))?;
        Ok(bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    fn raise(&mut self, counter: Counter, to: u64) -> Result<()> {
        if to > self.counter(counter)? {
            self.write(&format!("{}.{COUNTER}", counter.name()), &to.to_le_bytes())?;
        }
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        let failed = |source| DeviceError::io("delete the keys of", &self.folder, source);
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let ours = path
                .extension()
                .is_some_and(|extension| extension == "key" || extension == COUNTER);
            if ours {
                overwrite(&path);
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        sync_folder(&self.folder)
    }
}

/// Zeros over the bytes of a file before it is deleted. A disk may keep old blocks all the same, so a failure changes nothing.
pub(crate) fn overwrite(path: &Path) {
    let zeros = |path: &Path| -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        let mut left = file.metadata()?.len();
        while left > 0 {
            let part = left.min(4096);
            file.write_all(&[0; 4096][..part as usize])?;
            left -= part;
        }
        file.sync_all()
    };
    if let Err(error) = zeros(path) {
        tracing::debug!(%error, "a file was deleted without being overwritten");
    }
}

/// Makes a folder that only its owner can enter.
pub(crate) fn make_private_folder(folder: &Path) -> Result<()> {
    let failed = |source| DeviceError::io("make the folder", folder, source);
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(folder).map_err(failed)
}

/// Writes a file that only its owner can read: to a temporary name, then under its own.
pub(crate) fn write_private(folder: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |source| DeviceError::io("write", path, source);
    // The mode of such a file is 0600.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    sync_folder(folder)
}

#[cfg(unix)]
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| DeviceError::io("synchronise", folder, source))
}

#[cfg(not(unix))]
pub(crate) fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(unix)]
fn is_private(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    found.permissions().mode() & 0o077 == 0
}

#[cfg(not(unix))]
fn is_private(_: &fs::Metadata) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_and_two_names_have_two_keys() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileKeyStore::open(folder.path().join("keys")).unwrap();
        let one = store.key("one").unwrap();
        assert_ne!(*one, *store.key("two").unwrap());
        let mut again = FileKeyStore::open(folder.path().join("keys")).unwrap();
        assert_eq!(*one, *again.key("one").unwrap());
        again.forget().unwrap();
        assert_ne!(*one, *again.key("one").unwrap());
    }

    #[test]
    fn a_counter_never_falls() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = FileKeyStore::open(folder.path()).unwrap();
        let mut memory = MemoryKeyStore::default();
        for store in [&mut file as &mut dyn KeyStore, &mut memory] {
            let counter = Counter::Participations;
            assert_eq!(store.counter(counter).unwrap(), 0);
            for (to, expected) in [(3, 3), (2, 3), (7, 7), (0, 7)] {
                store.raise(counter, to).unwrap();
                assert_eq!(store.counter(counter).unwrap(), expected);
            }
            assert_eq!(
                store.counter(Counter::Cost).unwrap(),
                0,
                "each has a value of its own"
            );
        }
        let mut again = FileKeyStore::open(folder.path()).unwrap();
        assert_eq!(again.counter(Counter::Participations).unwrap(), 7);
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_files_of_mode_0600_and_others_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileKeyStore::open(folder.path()).unwrap();
        store.key("one").unwrap();
        let path = folder.path().join("one.key");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(store.key("one").is_err(), "readable by others");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, [1; 31]).unwrap();
        assert!(store.key("one").is_err(), "too short");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), &path).unwrap();
        assert!(store.key("one").is_err(), "a link");
    }
}

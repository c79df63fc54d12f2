//! The keys of a service: one secret in one file, from which all others follow.

use std::io::Write;
use std::path::{Path, PathBuf};

use hkdf::Hkdf;
use sha2::Sha256;
use undertone_coordinator::participation::ParticipantId;
use undertone_protocol::{Digest32, Signer};
use undertone_store::TaskId;
use zeroize::Zeroizing;

use crate::error::{Result, ServiceError};

/// The name of the key file in the data folder.
pub const KEY_FILE: &str = "service.key";

const MAGIC: &[u8; 16] = b"undertone-key-1\n";

/// The keys of a service.
///
/// PRIVACY: a reader of the file can link pseudonyms with subjects and open the state of the noise. It stands outside the
/// database, so a backup of the database alone holds neither.
#[expect(
    missing_debug_implementations,
    reason = "PRIVACY: secret keys must not be printable"
)]
pub struct Keys {
    root: Zeroizing<[u8; 32]>,
}

impl Keys {
    /// Reads the key file of a data folder, or makes it where there is none. Only its owner can read it.
    ///
    /// # Errors
    /// [`ServiceError::Io`]; [`ServiceError::KeyFile`] for a file of another kind, or one that others can read.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(KEY_FILE);
        match std::fs::File::open(&path) {
            Ok(file) => Self::read(&path, file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::create(folder, &path),
            Err(error) => Err(ServiceError::io("read", &path, error)),
        }
    }

    /// The keys that follow from a secret, for tests and simulations.
    #[must_use]
    pub fn from_root(root: [u8; 32]) -> Self {
        Self {
            root: Zeroizing::new(root),
        }
    }

    fn read(path: &Path, file: std::fs::File) -> Result<Self> {
        let refused = |reason: &str| ServiceError::KeyFile {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let metadata = file
                .metadata()
                .map_err(|error| ServiceError::io("read", path, error))?;
            if metadata.permissions().mode() & 0o077 != 0 {
                return Err(refused("others than its owner can read it; set its mode to 0600"));
            }
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(64));
        std::io::Read::read_to_end(&mut std::io::Read::take(file, 49), &mut bytes)
            .map_err(|error| ServiceError::io("read", path, error))?;
        let root = bytes
            .strip_prefix(MAGIC.as_slice())
            .and_then(|root| root.try_into().ok());
        let Some(root) = root else {
            return Err(refused("it must hold 48 bytes that `undertone serve` wrote"));
        };
        Ok(Self::from_root(root))
    }

    fn create(folder: &Path, path: &Path) -> Result<Self> {
        let keys = Self::from_root(random()?);
        // The temporary file has mode 0600 from the start.
        let io = |error| ServiceError::io("write", path, error);
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        file.write_all(MAGIC).map_err(io)?;
        file.write_all(&*keys.root).map_err(io)?;
        file.as_file().sync_all().map_err(io)?;
        // Another process may have made one meanwhile: its keys count then, not these.
        file.persist_noclobber(path).map_err(|error| io(error.error))?;
        let opened = std::fs::File::open(folder).map_err(io)?;
        opened.sync_all().map_err(io)?;
        Ok(keys)
    }

    /// A key for one purpose.
    fn key(&self, purpose: &str, parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
        let mut info = purpose.as_bytes().to_vec();
        for part in parts {
            info.extend_from_slice(&(part.len() as u64).to_le_bytes());
            info.extend_from_slice(part);
        }
        let mut key = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(b"undertone/1/service"), &*self.root)
            .expand(&info, &mut *key)
            .unwrap_or_else(|_| unreachable!("32 bytes are within the length of HKDF"));
        key
    }

    /// The key that signs boards.
    #[must_use]
    pub fn board(&self) -> Signer {
        Signer::from_seed(&self.key("board", &[]))
    }

    /// The key that signs plans: an app trusts its public half.
    #[must_use]
    pub fn plans(&self) -> Signer {
        Signer::from_seed(&self.key("plans", &[]))
    }

    /// The key that signs the heads of a task.
    #[must_use]
    pub fn head(&self, task: TaskId) -> Signer {
        Signer::from_seed(&self.key("head", &[&task.0]))
    }

    /// The key of the built-in issuer of certificates.
    #[must_use]
    pub fn issuer(&self) -> Signer {
        Signer::from_seed(&self.key("issuer", &[]))
    }

    /// The key under which the state of the noise after a round is sealed; `salt` is fresh for each.
    #[must_use]
    pub fn state(&self, salt: &[u8; 32], task: TaskId, round: u64, attempt: u64) -> Zeroizing<[u8; 32]> {
        let (round, attempt) = (round.to_le_bytes(), attempt.to_le_bytes());
        self.key("state", &[salt, &task.0, &round, &attempt])
    }

    /// The key of the invitations of the built-in issuer.
    #[must_use]
    pub fn invitations(&self) -> Zeroizing<[u8; 32]> {
        self.key("invitations", &[])
    }

    /// The name of a subject in one task. Two tasks, and two issuers, never share a name by design, so nobody without these keys
    /// can link the participations of a person over tasks.
    #[must_use]
    pub fn pseudonym(&self, task: TaskId, issuer: &Digest32, subject: &Digest32) -> ParticipantId {
        let digest = self.key("pseudonym", &[&task.0, issuer, subject]);
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        ParticipantId::new(u64::from_be_bytes(first))
    }
}

/// Bytes of the operating system.
///
/// # Errors
/// [`ServiceError::Entropy`].
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ServiceError::Entropy(error.to_string()))?;
    Ok(bytes)
}

/// The path of the key file of a data folder.
#[must_use]
pub fn key_file(folder: &Path) -> PathBuf {
    folder.join(KEY_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = Keys::open(folder.path()).unwrap();
        let read = Keys::open(folder.path()).unwrap();
        assert_eq!(made.root, read.root);
        let other = Keys::open(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(made.root, other.root);
    }

    #[test]
    fn a_file_of_another_kind_or_that_others_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = key_file(folder.path());
        for bytes in [&b""[..], b"undertone-key-1\n", &[7; 48], &[0; 100]] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let error = Keys::open(folder.path()).err().unwrap().to_string();
            assert!(error.contains("service.key"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        Keys::open(folder.path()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Keys::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("0600"), "{error}");
    }

    #[test]
    fn no_two_purposes_share_a_key() {
        let keys = Keys::from_root([1; 32]);
        let (a, b) = (TaskId([1; 32]), TaskId([2; 32]));
        let publics = [
            keys.board().public(),
            keys.plans().public(),
            keys.issuer().public(),
            keys.head(a).public(),
            keys.head(b).public(),
        ];
        let distinct: std::collections::BTreeSet<_> = publics.iter().collect();
        assert_eq!(distinct.len(), publics.len());
        let names = [
            keys.pseudonym(a, &[1; 32], &[1; 32]),
            keys.pseudonym(b, &[1; 32], &[1; 32]),
            keys.pseudonym(a, &[2; 32], &[1; 32]),
            keys.pseudonym(a, &[1; 32], &[2; 32]),
            Keys::from_root([2; 32]).pseudonym(a, &[1; 32], &[1; 32]),
        ];
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert_eq!(names[0], keys.pseudonym(a, &[1; 32], &[1; 32]));
    }
}
